"""Cuts chunks into windows that fit the embedding model, so that no token goes unembedded.

A chunk holds up to 2,000 characters, about 500 tokens; MiniLM reads 256. Each window starts with the
document's own title and heading path, which say what the slice is about.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from copilotd.types import Window

WINDOW_VERSION = 1

# Tokens of one window, the model's two special tokens not counted. Smaller than the model's limit because a
# slice tokenised alone may give a few tokens more than within its chunk.
WINDOW_TOKENS = 240
# Of these at most so many for title, heading path and table header; the rest is the text's own.
PREFIX_TOKENS = 96

Offsets = list[tuple[int, int]]
Tokenize = Callable[[str], Offsets]


@dataclass(frozen=True, slots=True)
class WindowPlanner:
    """Plans windows for one embedding model.

    Attributes:
        model: The model's fingerprint; part of each window's key.
        tokenize: Gives each token's character span.
        tokens: Tokens of one window.
    """

    model: str
    tokenize: Tokenize
    tokens: int = WINDOW_TOKENS

    @property
    def fingerprint(self) -> str:
        """Changes whenever the same chunk could be cut into other windows or get other vectors."""
        return f"{self.model}/{WINDOW_VERSION}/{self.tokens}"

    def plan(
        self, text: str, *, title: str, heading_path: tuple[str, ...], context: str = ""
    ) -> list[Window]:
        """Returns the windows of a chunk's ``text``, in order; their spans are relative to ``text``.

        Args:
            text: The chunk's text.
            title: The title inside the document.
            heading_path: The chunk's headings from the outermost down.
            context: Table header or fence opening to repeat in every window.
        """
        prefix = self._prefix(title, heading_path, context)
        budget = max(self.tokens - len(self.tokenize(prefix)), self.tokens // 4)
        windows = []
        for start, end in self._slices(text, budget):
            embedded = f"{prefix}{text[start:end].strip()}"
            windows.append(Window(start, end, embedded, self.key(embedded)))
        return windows

    def key(self, embedded_text: str) -> bytes:
        """Returns the content address of the vector of ``embedded_text``."""
        digest = hashlib.blake2b(self.model.encode(), digest_size=16)
        digest.update(b"\0")
        digest.update(embedded_text.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _prefix(self, title: str, heading_path: tuple[str, ...], context: str) -> str:
        headings = list(heading_path)
        if title and title not in headings[:1]:
            headings.insert(0, title)
        lines = [part for part in (" > ".join(headings), context.strip()) if part]
        prefix = "\n".join(lines)
        spans = self.tokenize(prefix)
        if len(spans) > PREFIX_TOKENS:
            prefix = prefix[: spans[PREFIX_TOKENS - 1][1]]
        return f"{prefix}\n" if prefix else ""

    def _slices(self, text: str, budget: int) -> list[tuple[int, int]]:
        """Cuts ``text`` at line or word ends into runs of about the same length, at most ``budget`` tokens."""
        spans = self.tokenize(text)
        if not spans:
            return []
        slices = []
        first, start = 0, 0
        while (remaining := len(spans) - first) > budget:
            pieces = -(-remaining // budget)
            wanted = first + -(-remaining // pieces)
            first = self._cut(text, spans, first, wanted, first + budget)
            slices.append((start, spans[first][0]))
            start = spans[first][0]
        slices.append((start, len(text)))
        return slices

    @staticmethod
    def _cut(text: str, spans: Offsets, first: int, wanted: int, limit: int) -> int:
        """Returns the token to cut before: near ``wanted``, at a line's start, else at a word's."""
        lowest = first + (wanted - first) // 2
        candidates = sorted(range(lowest + 1, limit + 1), key=lambda i: abs(i - wanted))
        for i in candidates:
            if "\n" in text[spans[i - 1][1] : spans[i][0]]:
                return i
        for i in candidates:
            if spans[i][0] > spans[i - 1][1]:
                return i
        return wanted


def make_planner(model: str, model_folder: Path, max_tokens: int = 256) -> WindowPlanner:
    """Builds the planner from the model's own tokenizer, without loading the model.

    Args:
        model: The model's fingerprint.
        model_folder: Where its files are.
        max_tokens: Tokens of one input that it reads.

    Where the folder has no ``tokenizer.json`` the number of tokens is estimated, on the safe side.
    """
    tokens = min(WINDOW_TOKENS, max_tokens - 16)
    path = model_folder / "tokenizer.json"
    if not path.exists():
        return WindowPlanner(model, estimate_tokens, tokens)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def tokenize(text: str) -> Offsets:
        encoding = tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)
        offsets: Offsets = encoding.offsets
        return offsets

    return WindowPlanner(model, tokenize, tokens)


_PIECE = re.compile(r"\w{1,4}|[^\w\s]")


def estimate_tokens(text: str) -> Offsets:
    """Returns spans of at most four letters or one sign: more than common tokenizers make of the text."""
    return [match.span() for match in _PIECE.finditer(text)]

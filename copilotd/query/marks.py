"""Recognises citation marks in a model's words: which passages a pair of brackets names.

A model is asked for ``[A]``; it also writes ``[A, B]``, ``[A-C]``, ``[a]``, ``[Source: guide > Install]``,
``[A: guide > Install]``, and titles themselves may hold brackets, quotes and ``>``. Known labels are
therefore matched as they stand, before any bracket is counted. Blanks, case, emphasis, backslashes and
the form of quotes, dashes and arrows make no difference.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from copilotd.text import printable
from copilotd.types import Citation

LONGEST_MARK = 300

# Models trained on other scripts write their marks in other brackets; a reader takes them for marks.
OPENERS = "[［【〔〖⟦〚"
CLOSERS = "]］】〕〗⟧〛"

_SAME = str.maketrans(
    {"›": ">", "»": ">", "→": ">", "“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-"}
)
_IGNORED = frozenset("`*\\ \t\n\u00a0")
_LEAD_WORDS = ("sources", "source", "passages", "passage", "citations", "citation", "refs", "ref", "see")
_LEAD = re.compile(rf"(?:{'|'.join(_LEAD_WORDS)})(?::\s*|\s+)", re.IGNORECASE)
_SEPARATOR = re.compile(r"[,;&|+/、，；]|and(?=\s)", re.IGNORECASE)
_SPLIT = re.compile(r"\s*[,;&|+/、，；]\s*|\s+and\s+", re.IGNORECASE)
_BEGUN_AND = ("a", "an", "and")
_RANGE = re.compile(r"([A-Z]{1,2})\s*[-–—]\s*([A-Z]{1,2})")
_LABEL = re.compile(r"\S\s+[>›»→]\s+\S")
_NUMBER = re.compile(r"\^?([1-9]\d?)")


class Undecided(Enum):
    """More text is needed to tell."""

    YET = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A pair of brackets that cites.

    Attributes:
        end: Behind the closing bracket.
        named: The passages it names, in its order.
        unknown: How many of its parts name nothing that was sent.
    """

    end: int
    named: tuple[Citation, ...]
    unknown: int = 0


class Marks:
    """Knows the passages that were sent by every name a model may call them.

    Where two passages have the same label, the label means the first, the more relevant one.
    """

    def __init__(self, citations: Mapping[str, Citation]) -> None:
        self._count = len(citations)
        self._by_key = dict(citations)
        self._key_shape = re.compile("[A-Z]{1,2}" if self._count > 26 else "[A-Z]")
        self._names: dict[str, Citation] = {}
        for key in citations:
            self._names[squeeze(key)] = citations[key]
        for key, citation in citations.items():
            path = " > ".join((citation.doc_title, *citation.heading_path))
            for label in (citation.label, path):
                for name in (label, f"{key}{label}", f"{key}:{label}"):
                    self._names.setdefault(squeeze(name), citation)
        self._names.pop("", None)
        # Most brackets begin like no name at all; trying every name on each took a minute for 300,000.
        self._names_by_first: dict[str, list[tuple[str, Citation]]] = {}
        for name, citation in self._names.items():
            self._names_by_first.setdefault(name[0], []).append((name, citation))

    def known(self, text: str, start: int, *, final: bool) -> Mark | Undecided | None:
        """Returns the longest mark of known names only that opens at ``start``."""
        if start + 1 == len(text):
            return None if final else Undecided.YET
        if text[start + 1].isspace():
            # Brackets of a document are given to the model with a blank inside: see prompt.py.
            return None
        best: Mark | None = None
        undecided = False
        waiting: list[tuple[int, tuple[Citation, ...]]] = [(start + 1, ())]
        while waiting:
            begin, found = waiting.pop()
            for position in self._item_starts(text, begin):
                if position is None:
                    undecided = True
                    continue
                for name, citation in self._beginning(text, position):
                    end = _match(text, position, name)
                    if end is None:
                        continue
                    if isinstance(end, Undecided):
                        undecided = True
                        continue
                    after = _skip(text, end)
                    if after - start > LONGEST_MARK:
                        continue
                    if after == len(text) or text[after : after + 4].lower() in _BEGUN_AND:
                        undecided = True
                    elif text[after] in CLOSERS:
                        if best is None or after + 1 > best.end:
                            best = Mark(after + 1, (*found, citation))
                    elif separator := _SEPARATOR.match(text, after):
                        following = _skip(text, separator.end())
                        undecided = undecided or following == len(text)
                        waiting.append((following, (*found, citation)))
        return Undecided.YET if undecided and not final else best

    def _beginning(self, text: str, position: int) -> Iterable[tuple[str, Citation]]:
        first = _skip(text, position)
        begun = _squeezed(text[first])[:1] if first < len(text) else ""
        return self._names_by_first.get(begun, ()) if begun else self._names.items()

    def _item_starts(self, text: str, position: int) -> tuple[int | None, ...]:
        if lead := _LEAD.match(text, position):
            after = _skip(text, lead.end())
            # The rest of the text is a lead word's blanks: what follows is not here yet.
            return (position, None if after == len(text) else after)
        rest = text[position : position + 10].lower()
        partial = position + len(rest) == len(text) and any(
            word.startswith(rest.rstrip(": ")) for word in _LEAD_WORDS
        )
        return (position, None) if partial else (position,)

    def any(self, content: str, end: int, *, after_word: bool) -> Mark | None:
        """Returns the mark that ``content`` between brackets is, whether it names something sent or not.

        Args:
            content: What stands between the brackets.
            end: Behind the closing bracket.
            after_word: Whether the bracket follows a letter or digit directly, as in ``argv[1]``.
        """
        padded = content[:1].isspace()
        content = unicodedata.normalize("NFKC", content).replace("\\", "").strip()
        content = content[lead.end() :] if (lead := _LEAD.match(content)) else content
        if not content:
            return None
        # Padded ones are a document's own, which the model repeats (see prompt.py): never a citation, but
        # a reader would take them for one.
        if not padded and (ends := _RANGE.fullmatch(content)) and (named := self._between(*ends.groups())):
            return Mark(end, named)
        parts = [part for part in _SPLIT.split(content) if part]
        named = tuple(c for part in parts if not padded and (c := self._names.get(squeeze(part))))
        unknown = [part for part in parts if padded or squeeze(part) not in self._names]
        if all(self._looks_like_mark(part, after_word) for part in unknown) and not (padded and after_word):
            return Mark(end, named, len(unknown))
        return Mark(end, named, 1) if _LABEL.search(content) else None

    def begun(self, text: str) -> bool:
        """Returns whether ``text``, behind an opening bracket at the answer's end, is the start of a name."""
        begun = squeeze(text)
        return any(name.startswith(begun) for name in self._names)

    def _between(self, first: str, last: str) -> tuple[Citation, ...]:
        keys = list(self._by_key)
        if first not in keys or last not in keys:
            return ()
        return tuple(self._by_key[key] for key in keys[keys.index(first) : keys.index(last) + 1])

    def _looks_like_mark(self, part: str, after_word: bool) -> bool:
        if self._key_shape.fullmatch(part) or squeeze(part) in self._names or _LABEL.search(part):
            return True
        # Sources are listed with numbers, so a number that could be one would be taken for one.
        number = _NUMBER.fullmatch(part)
        return number is not None and not after_word and int(number[1]) <= self._count


def squeeze(text: str) -> str:
    """Returns what of ``text`` makes a difference when names are compared."""
    return "".join(map(_squeezed, printable(text)))


@lru_cache(maxsize=4096)
def _squeezed(character: str) -> str:
    if character in _IGNORED:
        return ""
    return unicodedata.normalize("NFKD", character.translate(_SAME)).casefold()


def _match(text: str, position: int, name: str) -> int | Undecided | None:
    """Returns where ``name`` ends when it stands at ``position``."""
    matched = 0
    for index in range(position, min(len(text), position + LONGEST_MARK)):
        piece = _squeezed(text[index])
        if not name.startswith(piece, matched):
            return None
        matched += len(piece)
        if matched == len(name):
            return index + 1
    return Undecided.YET if position + LONGEST_MARK > len(text) else None


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _IGNORED:
        position += 1
    return position

"""The last two looks at a model's words before a reader sees them: where they lead, what they rest on.

:class:`Links` takes the teeth out of addresses that no passage holds; :class:`Sentences` finds the
sentences whose marks all turned out false. Both run behind :mod:`copilotd.query.citation_stream`, which
tells them about marks by private-use characters: these never survive :func:`copilotd.text.printable`, so a
model cannot write them. What they decide never depends on how the text was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Iterable

import regex as re

LABEL_START, LABEL_END, DROPPED = "\ue000", "\ue001", "\ue002"
UNVERIFIED = "[unverified]"
REMOVED = "(link removed)"

_SIGNALS = LABEL_START + LABEL_END + DROPPED
_SCHEME = r"(?:[a-z][a-z0-9+.\-]{1,30}\\?:\\?/\\?/|https?\\?:(?=[^\s/])|(?:https?|ftp|file)\\?:\\?/|www\.)"
_OPAQUE = r"(?:(?:javascript|vbscript)\\?:|data\\?:[a-z]+/)"
_REST = rf"[^\s<>\"`|{_SIGNALS}]"
_ADDRESS = re.compile(rf"(?<![a-z0-9])(?:{_SCHEME}|{_OPAQUE}){_REST}+", re.IGNORECASE)
_BEGUN = re.compile(
    rf"(?:{_SCHEME}|{_OPAQUE}){_REST}*$|[a-z][a-z0-9+.\-]{{0,30}}\\?:?\\?/?\\?$", re.IGNORECASE
)
_PREFIX = re.compile(_SCHEME, re.IGNORECASE)
_END = re.compile(r"""[.,;:!?)\]'*_~]+$""")
_LONGEST_ADDRESS = 2000


class Links:
    """Shows an address that stands in no source without its scheme, so that nothing makes it a link."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._sources = tuple(sources)
        self._buffer = ""

    def feed(self, text: str) -> str:
        """Takes a piece and returns what can be shown by now."""
        self._buffer += text
        tail = self._buffer[-_LONGEST_ADDRESS:]
        begun = _BEGUN.search(tail)
        keep = len(tail) - begun.start() if begun else 0
        # A longer one is cut where it is: each part is judged alone.
        ready, self._buffer = (
            self._buffer[: len(self._buffer) - keep],
            self._buffer[len(self._buffer) - keep :],
        )
        return self._judged(ready)

    def close(self) -> str:
        """Returns the rest."""
        ready, self._buffer = self._buffer, ""
        return self._judged(ready)

    def _judged(self, text: str) -> str:
        return _ADDRESS.sub(lambda found: self._shown(found[0]), text)

    def _shown(self, found: str) -> str:
        end = _END.search(found)
        address = found[: end.start()] if end else found
        whole = re.compile(rf"(?<![\w/:.#-]){re.escape(address)}(?![\w/#-])")
        if any(whole.search(source) for source in self._sources):
            return found
        rest = found[len(address) :]
        bare = _PREFIX.match(address)
        if bare is None or _ADDRESS.search(address, bare.end()) or bare.end() == len(address):
            return REMOVED + rest
        return address[bare.end() :] + rest


class Sentences:
    """Passes words on, marks the sentences that lost every mark and counts those without one.

    Attributes:
        trailing: How many sentences stand behind the last one with a valid mark.
    """

    def __init__(self) -> None:
        self.trailing = 0
        self._held = ""  # blanks behind a sentence's end: the next mark may still belong to it
        self._line = ""
        self._fenced = self._behind_fence = self._in_code = self._in_label = False
        self._words = self._valid = self._dropped = False
        self._terminal = self._ended = self._label_last = False

    def feed(self, text: str) -> str:
        """Takes a piece and returns what can be shown by now."""
        return "".join(map(self._step, text))

    def close(self) -> str:
        """Returns the rest; the answer is at its end."""
        return self._boundary("\n")

    def _step(self, character: str) -> str:
        if character == DROPPED:
            if self._line.lstrip(" \t>").startswith("|"):
                return (
                    f" {UNVERIFIED}"  # behind a table's row it would be a cell too many, which is not shown
                )
            self._dropped = True
            return ""
        if character == LABEL_START:
            self._in_label, self._valid = True, True
            held, self._held = self._held, ""
            return held
        if character == LABEL_END:
            self._in_label, self._label_last = False, True
            return ""
        if self._in_label:
            return character
        if character == "\n":
            return self._newline()
        self._line = (self._line + character)[:80]
        if self._fenced:
            return character
        if character.isspace():
            self._ended = self._ended or self._terminal
            if not self._ended:
                return character
            self._held += character
            return ""
        before = self._boundary(character) if self._ended else ""
        self._label_last = False
        if character == "`":
            self._in_code = not self._in_code
        if character in ".!?…。！？" and not self._in_code:
            self._terminal = True
            self._ended = character in "。！？"
        elif character not in "\"')]*_”’»`":
            self._terminal = False
        self._words = self._words or character.isalnum()
        return before + character

    def _newline(self) -> str:
        line, self._line = self._line.strip(" \t>"), ""
        fence = line.startswith(("```", "~~~"))
        if self._fenced:
            if fence and not line.strip("`~"):
                self._fenced, self._behind_fence = False, True
                self._ended = True
                self._held += "\n"
                return ""
            return "\n"
        self._in_code = False
        if fence:
            self._fenced = True
            held, self._held = self._held, ""
            return held + "\n"
        if line.startswith("#") and not self._dropped:
            self._words = False  # a heading claims nothing
        self._ended = True
        self._held += "\n"
        return ""

    def _boundary(self, following: str) -> str:
        """Ends the sentence; ``following`` is the first character of the next."""
        shown = ""
        if self._dropped and not self._valid:
            shown = f"\n{UNVERIFIED}" if self._behind_fence else f" {UNVERIFIED}"
        if self._valid:
            self.trailing = 0
        elif self._words or self._dropped:
            self.trailing += 1
        shown += self._held
        # "It is so. [A] says more": the mark opened this sentence.
        self._valid = self._label_last and following.islower()
        self._held = ""
        self._words = self._dropped = self._terminal = self._ended = self._behind_fence = False
        return shown

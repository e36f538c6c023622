"""Where a model's words lead: addresses that no passage holds lose their teeth.

:class:`Links` and :mod:`copilotd.query.sentences` run behind :mod:`copilotd.query.citation_stream`, which tells them
about marks by private-use characters: these never survive :func:`copilotd.text.printable`, so a model cannot write
them. What they decide never depends on how the text was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Iterable

import regex as re

LABEL_START, LABEL_END, DROPPED = "\ue000", "\ue001", "\ue002"
UNVERIFIED = "[unverified]"
INCOMPLETE = "[incomplete]"
_FIRST_KEY = 0xE100
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


def label_signal(label: str, number: int) -> str:
    """Returns a label with the number of the passage it stands for; no words where the label is empty."""
    return f"{LABEL_START}{chr(_FIRST_KEY + number)}{label}{LABEL_END}"


def key_at(character: str) -> int:
    """Returns the number that follows LABEL_START."""
    return ord(character) - _FIRST_KEY


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

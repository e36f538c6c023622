"""Lines of text: what is visible in them, and how kept source lines become a Document's text."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_SPACES = "".join(
    map(chr, [0x0B, 0x0C, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000])
)
# Zero-width characters, soft hyphens and bidirectional controls hide words from a search and can make
# text read differently from what it is. ZWJ and ZWNJ stay: emoji and several scripts need them.
_INVISIBLE = (
    "\xad\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
_CONTROLS = "".join(map(chr, [*range(9), *range(0x0E, 0x20), *range(0x7F, 0x85), *range(0x86, 0xA0)]))

_TRANSLATION = {
    **dict.fromkeys(map(ord, _SPACES), " "),
    **dict.fromkeys(map(ord, _INVISIBLE + _CONTROLS), None),
}
_ODD = re.compile("[" + re.escape(_SPACES + _INVISIBLE + _CONTROLS) + "\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS = re.compile(r"[^\W_]|[^\s\x00-\x7f]")


def clean_characters(text: str) -> str:
    """Returns ``text`` with plain spaces for all kinds of space, and without invisible characters.

    Newlines and tabs stay, so the number of lines is the same, and nothing else separates lines afterwards.
    """
    if not _ODD.search(text):
        return text
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text).translate(_TRANSLATION)


def has_words(line: str) -> bool:
    """Tells whether a reader sees more in ``line`` than punctuation: a letter, a digit, a symbol."""
    return _WORDS.search(line) is not None


@dataclass(frozen=True, slots=True)
class Layout:
    """The text made of the kept lines, and where each source line went.

    Attributes:
        text: The kept lines, joined by newlines.
        line_numbers: Source line (1-based) of each line of ``text``.
        starts: For each source line (0-based) the character it starts at; for a line that was not
            kept, where the next kept one starts.
        ends: For each source line the character behind its last one.
    """

    text: str
    line_numbers: tuple[int, ...]
    starts: list[int]
    ends: list[int]


def lay_out(lines: Sequence[str | None], verbatim: Collection[int] = frozenset()) -> Layout:
    """Joins the lines that are kept.

    Blank lines at the start and the end are left out, and of several in a row one stays.

    Args:
        lines: One entry a source line; None for a line that is removed.
        verbatim: Source lines (0-based) that stay even where they are blank: code.
    """
    kept: list[str] = []
    numbers: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    blank_before = True
    for index, line in enumerate(lines):
        starts.append(position)
        if line is None:
            ends.append(position)
            continue
        blank = not line or line.isspace()
        if blank and blank_before and index not in verbatim:
            ends.append(position)
            continue
        blank_before = blank
        kept.append(line)
        numbers.append(index + 1)
        position += len(line)
        ends.append(position)
        position += 1
    while kept and (not kept[-1] or kept[-1].isspace()):
        kept.pop()
        numbers.pop()
    text = "\n".join(kept)
    size = len(text)
    index = len(starts) - 1
    while index >= 0 and (starts[index] > size or ends[index] > size):
        starts[index], ends[index] = min(starts[index], size), min(ends[index], size)
        index -= 1
    return Layout(text, tuple(numbers), starts, ends)

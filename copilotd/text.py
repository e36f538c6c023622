"""Making untrusted text safe to show: no control sequence reaches a terminal, a log or JSON."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from shlex import quote

# Letters, digits and ASCII are harmless, and nearly all there is; only the rest is looked up.
_UNUSUAL = re.compile(r"[^\w\x20-\x7e\n\t]")

# Joiners that scripts (Persian, Hindi) and emoji are spelt with. Every other format character goes: bidirectional
# ones make text read differently from what it is (CVE-2021-42574, "Trojan Source"), zero-width ones hide words,
# and tag characters hide whole sentences that only a language model reads.
_JOINERS = frozenset("\u200c\u200d")


def printable(text: str, *, keep_newlines: bool = True) -> str:
    r"""Returns ``text`` with nothing in it that a terminal would act on.

    Control characters (C0 but newline and tab, DEL, C1) and format characters (bidirectional controls,
    zero-width and tag characters; not the two joiners) are removed, private-use characters replaced;
    lone surrogates, which stand for bytes of file names that are not UTF-8, are shown as ``\xNN``.

    Args:
        text: Anything, from anywhere.
        keep_newlines: When false, newlines and tabs become spaces.
    """
    if text.isascii() and text.isprintable():
        return text
    if not keep_newlines:
        text = text.replace("\n", " ").replace("\t", " ")
    return _UNUSUAL.sub(lambda match: _shown(match[0]), text)


@lru_cache(maxsize=4096)
def _shown(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf":
        return character if character in _JOINERS else ""
    if category == "Cn" and _ignorable(ord(character)):
        return ""
    if category == "Cs":
        code = ord(character)
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else "\N{REPLACEMENT CHARACTER}"
    if category in ("Cc", "Co"):
        return "\N{REPLACEMENT CHARACTER}" if category == "Co" else ""
    if category in ("Zl", "Zp"):
        return " "
    return character


def replace_unshown(text: str, replacement: Callable[[str], str]) -> str:
    """Returns ``text`` with each character that :func:`printable` would change, newline and tab apart, replaced."""

    def replaced(match: re.Match[str]) -> str:
        return match[0] if _shown(match[0]) == match[0] else replacement(match[0])

    return _UNUSUAL.sub(replaced, text)


def _ignorable(code: int) -> bool:
    """Whether an unassigned character is invisible by rule (Default_Ignorable_Code_Point)."""
    return code == 0x2065 or 0xFFF0 <= code <= 0xFFF8 or 0xE0000 <= code <= 0xE0FFF


def one_line(text: str, limit: int) -> str:
    """Returns ``text`` printable, on one line, cut at a word after at most ``limit`` characters."""
    flat = " ".join(printable(text, keep_newlines=False).split())
    if len(flat) <= limit:
        return flat
    cut = flat.rfind(" ", limit // 2, limit)
    return flat[: cut if cut > 0 else limit - 1].rstrip() + "…"


def shell_word(text: str) -> str:
    """Returns ``text`` printable and as one word of a command that is told to be copied into a shell.

    A ``~`` at the beginning isn't expanded by a shell that reads it quoted; paths in hints are absolute.
    """
    return quote(printable(text, keep_newlines=False))


def count(number: int, noun: str) -> str:
    """Returns ``1 file``, ``2 files``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def bracketed(label: str) -> str:
    """Returns ``label`` between brackets, on one line; a citation is shown like this.

    Brackets inside stay as they are, but where one closes the label and another opens behind it, as in
    the heading ``Fee] [bank > Refunds``: that would read as two citations, so all are escaped as in Markdown.
    """
    flat = " ".join(printable(label, keep_newlines=False).split())
    depth = 0
    for position, character in enumerate(flat):
        depth += (character == "[") - (character == "]")
        if depth < 0 and "[" in flat[position:]:
            flat = flat.replace("[", "\\[").replace("]", "\\]")
            break
    return f"[{flat}]"

"""Making untrusted text safe to show: no control sequence reaches a terminal, a log or JSON."""

from __future__ import annotations

import unicodedata

# Bidirectional embeddings, overrides and isolates can make text read differently from what it is
# (CVE-2021-42574, "Trojan Source"); zero-width characters hide words.
_INVISIBLE = frozenset(
    "\u200b\u2060\ufeff\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u00ad"
)


def printable(text: str, *, keep_newlines: bool = True) -> str:
    r"""Returns ``text`` with nothing in it that a terminal would act on.

    Control characters (C0 but newline and tab, DEL, C1), bidirectional controls, zero-width and
    private-use characters are removed; lone surrogates, which stand for bytes of file names that
    are not UTF-8, are shown as ``\xNN``.

    Args:
        text: Anything, from anywhere.
        keep_newlines: When false, newlines and tabs become spaces.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, keep_newlines) for character in text)


def _shown(character: str, keep_newlines: bool) -> str:
    if character in "\n\t":
        return character if keep_newlines else " "
    if character in _INVISIBLE:
        return ""
    category = unicodedata.category(character)
    if category == "Cs":
        code = ord(character)
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else "\N{REPLACEMENT CHARACTER}"
    if category in ("Cc", "Co"):
        return "\N{REPLACEMENT CHARACTER}" if category == "Co" else ""
    if category in ("Zl", "Zp"):
        return " "
    return character


def one_line(text: str, limit: int) -> str:
    """Returns ``text`` printable, on one line, cut at a word after at most ``limit`` characters."""
    flat = " ".join(printable(text, keep_newlines=False).split())
    if len(flat) <= limit:
        return flat
    cut = flat.rfind(" ", limit // 2, limit)
    return flat[: cut if cut > 0 else limit - 1].rstrip() + "…"


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

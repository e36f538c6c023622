"""Characters of a PDF: what a reader sees of a glyph, and the order right-to-left text is read in."""

from __future__ import annotations

import unicodedata

# Where Word, TeX and most exporters put their bullets: Symbol and Wingdings in the private use area.
_BULLETS = frozenset("\uf0b7\uf0a7\uf0d8\uf076\uf0fc\uf0a8\uf06e\uf071")
_RTL_CLASSES = frozenset({"R", "AL"})
_LTR_CLASSES = frozenset({"L", "EN", "AN"})
_MIRROR = str.maketrans("()[]{}<>«»", ")(][}{><»«")
UNKNOWN = "\ufffd"


def clean(text: str) -> str:
    """Returns the characters a reader sees, "" for nothing, UNKNOWN for a glyph nobody can read."""
    if text.isascii():
        if text.startswith("(cid:"):
            return UNKNOWN
        return text if text.isprintable() else " " if text.isspace() else ""
    cleaned = []
    for character in text:
        code = ord(character)
        category = unicodedata.category(character)
        if character in _BULLETS:
            cleaned.append("•")
        elif category == "Co" or character == UNKNOWN:
            return UNKNOWN
        elif category in ("Cc", "Cs", "Cn"):
            continue
        elif category == "Cf":
            # A soft hyphen that is printed stands at a line's end and is an ordinary hyphen there.
            cleaned.append("-" if character == "\xad" else "")
        elif category.startswith("Z"):
            cleaned.append(" ")
        elif 0xFB00 <= code <= 0xFDFF or 0xFE70 <= code <= 0xFEFC or 0x2E80 <= code <= 0x2FDF:
            # Ligatures, Arabic presentation forms, CJK radicals; superscripts keep their meaning.
            cleaned.append(unicodedata.normalize("NFKC", character))
        else:
            cleaned.append(character)
    return "".join(cleaned)


def logical_order(text: str) -> str:
    """Turns a line that is stored as it looks into the order it is read in (right-to-left scripts)."""
    if text.isascii():
        return text
    kinds = [unicodedata.bidirectional(character) for character in text]
    rtl = sum(1 for kind in kinds if kind in _RTL_CLASSES)
    if not rtl:
        return text
    ltr = sum(1 for kind in kinds if kind == "L")
    if rtl >= ltr:
        return _reverse_runs(text[::-1].translate(_MIRROR), _LTR_CLASSES, _RTL_CLASSES)
    return _reverse_runs(text, _RTL_CLASSES, frozenset({"L", "EN"}))


def _reverse_runs(text: str, inner: frozenset[str], outer: frozenset[str]) -> str:
    """Reverses each run of ``inner`` characters together with the neutral ones between them."""
    characters = list(text)
    start: int | None = None
    last = -1
    for index, character in enumerate([*characters, ""]):
        kind = unicodedata.bidirectional(character) if character else next(iter(outer))
        if kind in inner:
            start, last = (index if start is None else start), index
        elif kind in outer and start is not None:
            characters[start : last + 1] = "".join(characters[start : last + 1])[::-1].translate(_MIRROR)
            start = None
    return "".join(characters)

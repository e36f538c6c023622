"""Which lines of a PDF are headings, and how deep.

The seed's two heuristics (a line in capitals; a short line before a blank one) stand beside what
most documents say more plainly: bookmarks, font size, weight.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from copilotd.ingest.pdf_layout import TextLine

_SHORT_LINE = 60
_MAX_HEADING = 150
_TELLING_BOOKMARKS = 3
_CAPTION = re.compile(r"^(?:figure|fig\.|table|listing|abbildung|tabelle|figura|tableau)\s*\d", re.IGNORECASE)
_DASH = re.compile(r"^[•◦▪‣·●○■□–—*+-]\s")
_LEADER = re.compile(r"(?:\.\s?){4,}\s*[\w.-]+$|(?:\.\s?){6,}$|…\s*\d+$")
NUMBERED = re.compile(r"^(\d+(?:\.\d+)*)\.?\s+\S")
BULLET = re.compile(r"^(?:[•◦▪‣·●○■□–—*-]|\(?(?:\d{1,3}|[a-zA-Z])[.)])\s+\S")


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of the outline: its title, depth from 1, and the page it leads to where that is known."""

    title: str
    level: int
    page: int | None


@dataclass(frozen=True, slots=True)
class Item:
    """A line with what stands around it: a blank above or below, and its level if it is a heading."""

    line: TextLine
    blank_above: bool
    blank_below: bool
    level: int = 0


def spaced(lines: Sequence[TextLine]) -> list[Item]:
    """Derives blank lines from the distance between lines."""
    gaps = [
        round((below.top - above.bottom) / above.size, 1)
        for above, below in pairwise(lines)
        if above.page == below.page and below.top > above.top and above.size > 0
    ]
    usual = _usual_gap(gaps)
    blanks = [True]
    for above, below in pairwise(lines):
        size = max(1.0, min(above.size, below.size))
        gap = (below.top - above.bottom) / size
        if above.turn != below.turn:
            blanks.append(True)
        elif above.page != below.page or below.top <= above.top:
            # A new page or column: the paragraph goes on if it stopped in the middle of a sentence.
            goes_on = below.text[:1].islower() or above.text[-1:] in ",-\u2010"
            blanks.append(not goes_on)
        else:
            changed = abs(above.size - below.size) > 0.12 * size and abs(below.x0 - above.x0) < 30 * size
            blanks.append(gap > usual + 0.35 or (changed and gap > usual + 0.1))
    blanks.append(True)
    return [Item(line, above, below) for line, above, below in zip(lines, blanks, blanks[1:], strict=False)]


def _usual_gap(gaps: Sequence[float]) -> float:
    """The distance, in line heights, of two lines of one paragraph."""
    counts = Counter(gap for gap in gaps if gap < 2.0)
    if not counts:
        return 0.3
    most = max(counts.values())
    usual = min(gap for gap, count in counts.items() if count >= 0.8 * most)
    # Few lines prove nothing about double spacing.
    return max(0.0, min(usual, 1.4 if len(gaps) >= 12 else 0.5))


def with_levels(items: list[Item], bookmarks: Sequence[Bookmark]) -> list[Item]:
    """Finds the headings and their levels, 1 for the outermost."""
    sizes: Counter[float] = Counter()
    bold_characters = mono_characters = 0
    for item in items:
        length = len(item.line.text)
        sizes[round(item.line.size * 2) / 2] += length
        bold_characters += length * item.line.bold
        mono_characters += length * item.line.mono
    total = sizes.total()
    body = sizes.most_common(1)[0][0]
    bold_body = 2 * bold_characters > total
    mono_body = 2 * mono_characters > total

    marked = _bookmarked(items, bookmarks)
    kinds: list[str] = []
    for index, item in enumerate(items):
        after = items[index + 1] if index + 1 < len(items) else None
        if index in marked:
            kinds.append("bookmark")
        else:
            kinds.append(_heading_kind(item, after, body, bold_body=bold_body, mono_body=mono_body))
    if len(marked) >= _TELLING_BOOKMARKS:
        # Whoever made bookmarks marked the headings; a short line is then just a short line.
        kinds = ["" if kind == "short" else kind for kind in kinds]
    _drop_shouting(kinds)
    # Larger letters, higher heading; among headings as large as the body numbers and weight decide.
    ranks = sorted(
        {_rank_size(items[i].line.size, body) for i, kind in enumerate(kinds) if kind}, reverse=True
    )
    result: list[Item] = []
    for index, item in enumerate(items):
        kind = kinds[index]
        if not kind:
            result.append(item)
            continue
        if kind == "bookmark":
            level = marked[index]
        else:
            level = ranks.index(_rank_size(item.line.size, body)) + 1
            numbered = NUMBERED.match(item.line.text)
            if numbered and "." in numbered[1]:
                level = max(level, numbered[1].count(".") + 1)
            if kind == "short" and any(k in ("caps", "large", "bold") for k in kinds):
                level = max(level, 2)
        result.append(replace(item, level=min(level, 6)))
    return result


def _rank_size(size: float, body: float) -> float:
    return max(round(size * 2) / 2, body)


def _bookmarked(items: Sequence[Item], bookmarks: Sequence[Bookmark]) -> dict[int, int]:
    """Finds the lines the outline's entries lead to: the same words on the same page."""
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        places[item.line.page, letters(item.line.text)].append(index)
    marked: dict[int, int] = {}
    last = -1
    for bookmark in bookmarks:
        key = letters(bookmark.title)
        pages = [bookmark.page] if bookmark.page else sorted({item.line.page for item in items})
        candidates = [i for page in pages if key for i in places.get((page, key), ())]
        after = [i for i in candidates if i > last]
        if after or candidates:
            last = (after or candidates)[0]
            marked.setdefault(last, bookmark.level)
    return marked


def letters(text: str) -> str:
    """Returns what two spellings of one heading share: letters and digits behind its number."""
    return "".join(c for c in text.casefold() if c.isalnum()).lstrip("0123456789")


def _heading_kind(item: Item, after: Item | None, body: float, *, bold_body: bool, mono_body: bool) -> str:
    """Says why a line is a heading; empty where it is none."""
    line = item.line
    text = line.text
    letters = sum(1 for character in text if character.isalpha())
    if letters < 3 or len(text) > _MAX_HEADING or line.cells > 1 or _LEADER.search(text):
        return ""
    if (line.mono and not mono_body) or _CAPTION.match(text) or _DASH.match(text):
        return ""
    if line.size >= 1.12 * body and line.size >= body + 0.8:
        return "large"
    ends_sentence = text.rstrip("\"')”’")[-1:] in ".,;:!?…-"
    if text.upper() == text and text.lower() != text:
        # Capitals alone: "INSTALLATION", not "AB-120" nor a sentence that shouts.
        words = [word for word in text.split() if sum(c.isalpha() for c in word) >= 2]
        capitals_only = letters >= 4 and letters >= 0.6 * len(text.replace(" ", ""))
        if capitals_only and words and len(text) < 100 and text[-1:] not in ".,;":
            return "caps"
        return ""
    starts_well = text[0].isupper() or bool(NUMBERED.match(text)) or not text[0].isascii()
    if ends_sentence or not starts_well or (BULLET.match(text) and not NUMBERED.match(text)):
        return ""
    if line.bold and not bold_body and len(text) < 100 and item.blank_above:
        return "bold"
    follows = (
        after is not None
        and (after.line.page, after.line.turn) == (line.page, line.turn)
        and after.line.cells == 1
    )
    if len(text) < _SHORT_LINE and item.blank_above and item.blank_below and follows:
        return "short"
    return ""


def _drop_shouting(kinds: list[str]) -> None:
    """Lines of one kind in a row are a notice, a poster or a list: no headings."""
    for kind, most in (("caps", 2), ("short", 2), ("bold", 4), ("large", 5)):
        start = 0
        while start < len(kinds):
            end = start
            while end < len(kinds) and kinds[end] == kind:
                end += 1
            if end - start > most:
                kinds[start:end] = [""] * (end - start)
            start = max(end, start + 1)

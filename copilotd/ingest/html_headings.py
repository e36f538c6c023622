"""Headings that a Markdown file writes as HTML, as READMEs do to centre their title."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

# Not the standard library's: before Python 3.11.5 its possessive quantifiers match wrongly around groups (gh-106052).
import regex as re

from copilotd.ingest.markup import strip_markup

# Longer ones are no headings; the bound keeps tags that are never closed from costing more than their length.
_HEADING = re.compile(
    r"<h(?P<level>[1-6])(?P<attributes>\s[^<>]*+)?>(?P<inner>(?:(?!</?h[1-6]\b)[\s\S]){0,1000}+)</h(?P=level)\s*>",
    re.IGNORECASE,
)
_ID = re.compile(r"\sid\s*=\s*[\"']?([\w:.-]+)", re.IGNORECASE)
_MARKS = re.compile(r"[\s>*+-]*+(?:\d+[.)]\s*+)?")


@dataclass(frozen=True, slots=True)
class HtmlHeading:
    """A heading that shares its lines with no other words.

    Attributes:
        start: First line (0-based).
        end: Behind the last line.
        level: 1..6.
        inner: What stands between the tags.
        anchor: The tag's id.
    """

    start: int
    end: int
    level: int
    inner: str
    anchor: str


def html_headings(
    lines: Sequence[str], first: int, end: int, components: frozenset[str]
) -> Iterator[HtmlHeading]:
    """Yields the headings in ``lines[first:end]``, which hold no code."""
    text = "\n".join(lines[first:end])
    starts = [0, *accumulate(len(line) + 1 for line in lines[first:end])]
    line = 0
    for match in _HEADING.finditer(text):
        opening, closing = (bisect_right(starts, place) - 1 for place in (match.start(), match.end() - 1))
        before = strip_markup(text[starts[opening] : match.start()], components)
        behind = strip_markup(text[match.end() : starts[closing + 1] - 1], components)
        if opening < line or not _MARKS.fullmatch(before) or behind.strip():
            continue
        line = closing + 1
        anchor = _ID.search(match["attributes"] or "")
        yield HtmlHeading(
            first + opening,
            first + line,
            int(match["level"]),
            match["inner"],
            anchor[1] if anchor else "",
        )

"""From source lines to spans of the laid-out text: sections below their headings, blocks without blank edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from copilotd.ingest.lines import Layout, has_words
from copilotd.types import Section

MAX_LEVEL = 6
"""Deeper headings are told as of this level; below each other they stay."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading and its place.

    Attributes:
        line: Source line (0-based) it starts on.
        level: Its depth, from 1.
        text: Its words.
        anchor: The identifier its author gave it; empty for none.
    """

    line: int
    level: int
    text: str
    anchor: str = ""


def sections_of(headings: Sequence[Heading], layout: Layout, doc_title: str) -> tuple[Section, ...]:
    """Returns the sections of a text, in order and without a gap; what stands before the first heading has none.

    Args:
        headings: In the order of their lines.
        layout: The text.
        doc_title: Names what has no heading.
    """
    size = len(layout.text)
    if not size:
        return ()
    starts = [layout.starts[heading.line] for heading in headings]
    sections: list[Section] = []
    if not starts or starts[0] > 0:
        sections.append(Section(doc_title, 0, (), 0, starts[0] if starts else size))
    above: list[Heading] = []
    for heading, start, end in zip(headings, starts, [*starts, size][1:], strict=True):
        while above and above[-1].level >= heading.level:
            above.pop()
        above.append(heading)
        if start < end:
            path = tuple(one.text for one in above if one.text)
            sections.append(
                Section(heading.text, min(heading.level, MAX_LEVEL), path, start, end, heading.anchor)
            )
    return tuple(sections)


def span_of(layout: Layout, first: int, end: int) -> tuple[int, int] | None:
    """Returns the characters of source lines ``first`` up to, not including, ``end``; None where they hold no words.

    Blank lines around are left out, the indentation of the first line stays.
    """
    starts, ends = layout.starts, layout.ends
    last = end - 1
    while last >= first and ends[last] <= starts[first]:
        last -= 1
    if last < first:
        return None
    shown = layout.text[starts[first] : ends[last]]
    if not has_words(shown):
        return None
    blank = len(shown) - len(shown.lstrip())
    start = starts[first] + shown.rfind("\n", 0, blank) + 1
    return start, start + len(layout.text[start : ends[last]].rstrip())

"""From marked source lines to a Document: what every line-based parser but Markdown's ends with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from copilotd.ingest.lines import Layout, clean_characters, has_words, lay_out
from copilotd.ingest.spans import Heading, sections_of, span_of
from copilotd.types import Block, BlockKind, Document


def names(words: str) -> frozenset[str]:
    """Returns the set of the names in ``words``, which are separated by blanks."""
    return frozenset(words.split())


@dataclass(frozen=True, slots=True)
class Leaf:
    """A block without blocks in it, by source lines (0-based, half-open).

    Attributes:
        kind: What it is.
        start: First line.
        end: Behind the last line; cut where the next leaf starts.
        group: Leaves of one list, table or admonition share a number.
        level: Level of a heading, from 1; 0 for all others.
        heading: A heading's words.
        anchor: The id a link to this heading uses.
        header_lines: How many source lines at its start are repeated where it is cut.
    """

    kind: BlockKind
    start: int
    end: int
    group: int
    level: int = 0
    heading: str = ""
    anchor: str = ""
    header_lines: int = 0


def build_document(
    doc_title: str,
    lines: Sequence[str | None],
    leaves: Sequence[Leaf],
    *,
    title: str = "",
    description: str = "",
    verbatim: Collection[int] = frozenset(),
) -> Document:
    """Makes a Document of the kept lines; a line that no leaf holds becomes a block of its own.

    Args:
        doc_title: The file's name without suffix.
        lines: One entry a source line, invisible characters removed; None for a line that is not kept.
        leaves: The blocks, in any order.
        title: The title inside the document; else its first heading of the top level is.
        description: What the document says of itself without showing it.
        verbatim: Source lines (0-based) that stay even where they are blank: code.
    """
    layout = lay_out(lines, verbatim)
    if not has_words(layout.text):
        return Document(doc_title, " ".join(title.split()), "", (), (), (), description=description)
    whole = list(_whole(leaves, lines))
    headings = [
        Heading(leaf.start, leaf.level, " ".join(clean_characters(leaf.heading).split()), leaf.anchor)
        for leaf in whole
        if leaf.level
    ]
    sections = sections_of(headings, layout, doc_title)
    top = next((section.heading for section in sections if section.level == 1 and section.heading), "")
    return Document(
        doc_title=doc_title,
        title=" ".join(clean_characters(title).split()) or top,
        text=layout.text,
        line_numbers=layout.line_numbers,
        sections=sections,
        blocks=_blocks(whole, layout),
        description=" ".join(clean_characters(description).split()),
    )


def _whole(leaves: Sequence[Leaf], lines: Sequence[str | None]) -> Iterator[Leaf]:
    """Yields the leaves in order without overlaps, and one for each run of lines between them."""
    line = 0
    extra = -1 - len(lines)
    ordered = _one_a_line(leaves)
    for index, leaf in enumerate([*ordered, Leaf(BlockKind.OTHER, len(lines), len(lines), 0)]):
        while line < leaf.start:
            end = line
            while end < leaf.start and (lines[end] or "").strip():
                end += 1
            if end > line:
                yield Leaf(BlockKind.OTHER, line, end, extra)
                extra -= 1
            line = max(end, line + 1)
        limit = ordered[index + 1].start if index + 1 < len(ordered) else len(lines)
        end = min(leaf.end, max(limit, leaf.start))
        if index < len(ordered) and end > leaf.start >= line:
            yield replace(leaf, end=end)
            line = end


def _one_a_line(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Sorts leaves; of those that start on one line the first heading stays, else the first.

    A heading that shares its line with other text is no block of its own.
    """
    chosen: dict[int, Leaf] = {}
    for leaf in leaves:
        before = chosen.get(leaf.start)
        if before is None:
            chosen[leaf.start] = leaf
        else:
            first = leaf if leaf.level and not before.level else before
            kind = BlockKind.PARAGRAPH if first.level else first.kind
            chosen[leaf.start] = replace(first, kind=kind, end=max(before.end, leaf.end))
    return [chosen[start] for start in sorted(chosen)]


def _blocks(leaves: Sequence[Leaf], layout: Layout) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for leaf in leaves:
        span = span_of(layout, leaf.start, leaf.end)
        if span is None:
            continue
        start, end = span
        head = start
        if leaf.header_lines:
            head = max(start, min(layout.ends[min(leaf.start + leaf.header_lines, leaf.end) - 1], end))
        blocks.append(Block(leaf.kind, start, end, leaf.group, head))
    return tuple(blocks)

"""Cuts a chunk into units and finds the run of them that answers: whole sentences, items, rows, fences."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from copilotd.index.analysis import analyse
from copilotd.types import Block, BlockKind, StoredChunk

MAX_CHARS = 1200
MAX_LINES = 16
"""What a person looks over in about ten seconds."""
_MAX_CODE_LINES = 30
"""A fence is whole up to here; a longer one is cut at its blank lines, and where it has none every few lines."""
_CUT_LINES = 10

_SENTENCE_END = re.compile(r"""(?<=[.!?。！？])["')\]]?\s+(?=[A-Z0-9"'(`*\[])|(?<=[。！？])""")
_LINK_TARGETS = re.compile(r"(?:\s*\[[^\]\n]+\]:[^\n]*)+")
_LEADS_ON = re.compile(r":[*_]*\Z|\A[ \t]*(?:!!!|\?\?\?\+?)[^\n]*\Z")
"""A colon at the end; the first line of an admonition alone."""
_ENTRIES = (BlockKind.TABLE, BlockKind.LIST_ITEM)
_BLANK_LINES = re.compile(r"\n[ \t]*\n")


@dataclass(frozen=True, slots=True)
class Unit:
    """The least that is quoted: a sentence, a list item, a table row, a fence.

    Attributes:
        start: First character in the chunk's text.
        end: Behind the last one.
        kind: Of the block it belongs to.
        block: Index of that block among the chunk's blocks.
        group: The block's group: items of one list share it.
    """

    start: int
    end: int
    kind: BlockKind
    block: int
    group: int


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring units of one chunk.

    Attributes:
        start: First character in the chunk's text.
        end: Behind the last one.
        score: How well it answers, 0..1, for comparing runs of one question.
        header: Table header to show above rows that were cut from theirs; empty otherwise.
    """

    start: int
    end: int
    score: float
    header: str = ""


def cut_units(chunk: StoredChunk) -> list[Unit]:
    """Returns the quotable units of a chunk in order; headings and link targets are not quotable."""
    units: list[Unit] = []
    for number, block in enumerate(chunk.blocks):
        if block.kind is BlockKind.HEADING:
            continue
        for start, end in _pieces(chunk.text, block):
            start, end = _trimmed(chunk.text, start, end)
            if start < end and not _LINK_TARGETS.fullmatch(chunk.text, start, end):
                units.append(Unit(start, end, block.kind, number, block.group))
    return units


def best_run(
    chunk: StoredChunk, rarity: Mapping[str, float], names: Collection[str] = frozenset()
) -> Run | None:
    """Returns the run that covers most of the question in few words; None where nothing is quotable.

    A run never crosses a heading inside the chunk, and has its words for free. Words that the chunk's
    own headings say count little: every unit below them is about those.

    Args:
        chunk: What is quoted from.
        rarity: The question's tokens and their weights.
        names: Those of them that are options, settings, paths and the like. The row or item of a name is the answer;
            its neighbours are about others.
    """
    told = set(analyse(" ".join((chunk.title, *chunk.metadata.heading_path))))
    weights = {token: weight * (0.3 if token in told else 1.0) for token, weight in rarity.items()}
    best: Run | None = None
    before = 0
    for heading, units in _parts(chunk):
        run = _best_of(chunk, weights, set(analyse(heading)), units, before, names)
        if best is None or run.score > best.score:
            best = run
        before += len(units)
    return best


def whole_run(chunk: StoredChunk) -> Run | None:
    """Returns all of a chunk that is quotable; None where nothing is."""
    units = cut_units(chunk)
    if not units:
        return None
    return Run(units[0].start, units[-1].end, 1.0, _header(chunk, units[0]))


def _parts(chunk: StoredChunk) -> list[tuple[str, list[Unit]]]:
    """Returns the units below each heading inside the chunk, with that heading; the chunk's own has none."""
    parts: list[tuple[str, list[Unit]]] = []
    block = -1
    for unit in cut_units(chunk):
        headings = [b for b in chunk.blocks[block + 1 : unit.block] if b.kind is BlockKind.HEADING]
        if not parts or headings:
            inner = headings[-1] if headings and parts else None
            parts.append((chunk.text[inner.start : inner.end] if inner else "", []))
        parts[-1][1].append(unit)
        block = unit.block
    return parts


def _best_of(
    chunk: StoredChunk,
    weights: Mapping[str, float],
    given: set[str],
    units: list[Unit],
    before: int,
    names: Collection[str],
) -> Run:
    total = sum(weights.values()) or 1.0
    tokens = [{t for t in analyse(chunk.text[unit.start : unit.end]) if t in weights} for unit in units]
    sizes = list(accumulate((_cost(chunk.text, unit) for unit in units), initial=0.0))
    best = (float("-inf"), 0, 0)
    for first in range(len(units)):
        seen = given & weights.keys()
        for last in range(first, len(units)):
            size = sizes[last + 1] - sizes[first]
            if last > first and size > 1.0:
                break
            seen |= tokens[last]
            value = (
                sum(weights[token] for token in seen) / total - 0.12 * size - 0.01 * min(before + first, 10)
            )
            best = max(best, (value, -first, -last))
    score, first, last = best[0], -best[1], -best[2]
    named = [
        n for n in range(first, last + 1) if units[n].kind in _ENTRIES and not tokens[n].isdisjoint(names)
    ]
    if named:
        first, last = named[0], named[-1]
    else:
        first, last = _completed(chunk.text, units, sizes, first, last)
    return Run(units[first].start, units[last].end, score, _header(chunk, units[first]))


def _cost(text: str, unit: Unit) -> float:
    """The share of what may be quoted that a unit takes."""
    lines = text.count("\n", unit.start, unit.end) + 1
    return max((unit.end - unit.start) / MAX_CHARS, lines / MAX_LINES)


def _completed(text: str, units: list[Unit], sizes: list[float], first: int, last: int) -> tuple[int, int]:
    """Adds what the run doesn't stand without: the sentence before a fence, the list after a colon."""

    def fits(start: int, end: int, limit: float) -> bool:
        return sizes[end + 1] - sizes[start] <= limit

    # Whole lists while they fit.
    while first > 0 and _same_list(units[first - 1], units[first]) and fits(first - 1, last, 1.0):
        first -= 1
    while last + 1 < len(units) and _same_list(units[last], units[last + 1]) and fits(first, last + 1, 1.0):
        last += 1
    if first > 0 and _introduces(text, units[first - 1], units[first]) and fits(first - 1, last, 1.5):
        first -= 1
    while last + 1 < len(units) and _introduces(text, units[last], units[last + 1]):
        limit = 3.0 if units[last + 1].kind is BlockKind.CODE else 1.3
        if not fits(first, last + 1, limit):
            break
        last += 1
        while (
            last + 1 < len(units) and _same_list(units[last], units[last + 1]) and fits(first, last + 1, 1.3)
        ):
            last += 1
    asked = last
    # A few lines more of the same section read better than a torn thought, and hold the answer more often.
    # Not rows of a table: each stands for itself.
    while last + 1 < len(units) and fits(first, last + 1, _fill(units[last + 1])):
        last += 1
    while first > 0 and fits(first - 1, last, _fill(units[first - 1])):
        first -= 1
    # What only leads to something is no end.
    while last > asked and _LEADS_ON.search(text, units[last].start, units[last].end):
        last -= 1
    return first, last


def _fill(unit: Unit) -> float:
    """How full a quote may become by adding ``unit``, which nothing asks for."""
    return 0.3 if unit.kind is BlockKind.TABLE else 1.0


def _same_list(left: Unit, right: Unit) -> bool:
    if left.kind is BlockKind.TABLE:
        return False
    return left.group == right.group and (
        left.block == right.block or left.kind is right.kind is BlockKind.LIST_ITEM
    )


def _introduces(text: str, left: Unit, right: Unit) -> bool:
    """Whether ``left`` leads to ``right``: a colon, or a sentence right before a fence."""
    if left.kind in (BlockKind.CODE, BlockKind.TABLE):
        return False
    return text[left.start : left.end].rstrip("*_ ").endswith(":") or right.kind is BlockKind.CODE


def _header(chunk: StoredChunk, unit: Unit) -> str:
    if unit.kind is not BlockKind.TABLE:
        return ""
    block = chunk.blocks[unit.block]
    if unit.start >= block.header_end > block.start:
        return chunk.text[block.start : block.header_end].rstrip("\n")
    return chunk.context.rstrip("\n") if block.header_end <= block.start and chunk.context else ""


def _pieces(text: str, block: Block) -> list[tuple[int, int]]:
    """Cuts a block that is too long to be quoted whole; a fence only when it is very long."""
    lines = text.count("\n", block.start, block.end) + 1
    long = block.end - block.start > MAX_CHARS // 2 or lines > MAX_LINES // 2
    if block.kind is BlockKind.TABLE:
        return _rows(text, block) if long else [(block.start, block.end)]
    if block.kind is BlockKind.CODE:
        if lines <= _MAX_CODE_LINES:
            return [(block.start, block.end)]
        return [part for piece in _split(text, block, _BLANK_LINES) for part in _few_lines(text, *piece)]
    if not long:
        return [(block.start, block.end)]
    return _split(text, block, _SENTENCE_END)


def _rows(text: str, block: Block) -> list[tuple[int, int]]:
    rows = []
    start = max(block.header_end, block.start)
    while start < block.end:
        end = text.find("\n", start, block.end)
        end = block.end if end < 0 else end + 1
        rows.append((start, end))
        start = end
    return rows or [(block.start, block.end)]


def _split(text: str, block: Block, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    pieces = []
    start = block.start
    # What opens a listing goes with its first lines, also where a blank line stands between.
    opened = max(block.header_end, start)
    opened += len(text[opened : block.end]) - len(text[opened : block.end].lstrip())
    for match in pattern.finditer(text, opened, block.end):
        pieces.append((start, match.start()))
        start = match.end()
    return [*pieces, (start, block.end)]


def _few_lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cuts code without a blank line in it every few lines; the last part may be longer."""
    lines = text.count("\n", start, end) + 1
    while lines > _MAX_CODE_LINES:
        cut = start
        for _ in range(_CUT_LINES):
            cut = text.index("\n", cut) + 1
        yield start, cut
        start, lines = cut, lines - _CUT_LINES
    yield start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Leaves out blank lines around, keeps the indentation of the first line."""
    body = text[start:end]
    end -= len(body) - len(body.rstrip())
    leading = len(body) - len(body.lstrip())
    line = text.rfind("\n", start, start + leading)
    return (line + 1 if line >= 0 else start), end

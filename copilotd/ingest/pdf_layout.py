"""Glyphs of one page to lines in reading order. Pure geometry: knows nothing of any PDF library.

glyphs -upright-> -without doubles-> rows -segments-> columns -> TextLine[]

Coordinates are points with the origin at the top left, as a reader looks at the page. Every
tolerance is relative to the size of the glyphs it compares, so that it holds for any font size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from copilotd.ingest.pdf_characters import UNKNOWN, clean, logical_order

# Points; the grid in which doubles are looked for.
_CELL = 8.0
_UNREADABLE_SHARE = 0.15


class Glyph(NamedTuple):
    """One character as it stands on the page. A page has thousands: a tuple is made twice as fast as a dataclass.

    Attributes:
        text: What the font says it is.
        x0: Left edge.
        x1: Right edge.
        top: Upper edge.
        bottom: Lower edge.
        size: Height of the glyph's box, the font's size for most fonts.
        middle: Vertical centre.
        font: The font's name.
        turn: Quarter turns clockwise of its writing direction, or None for any other angle.
    """

    text: str
    x0: float
    x1: float
    top: float
    bottom: float
    size: float
    middle: float
    font: str
    turn: int | None


def glyph(
    text: str, x0: float, x1: float, top: float, bottom: float, font: str = "", turn: int | None = 0
) -> Glyph:
    """Makes a Glyph from its box."""
    return Glyph(text, x0, x1, top, bottom, bottom - top, (top + bottom) / 2, font, turn)


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of text on a page.

    Attributes:
        text: Its words; cells of a table row are two blanks apart.
        page: 1-based page number.
        x0: Left edge.
        x1: Right edge.
        top: Upper edge.
        bottom: Lower edge.
        size: Glyph height most of its characters have.
        bold: Whether most of its characters are of a bold font.
        mono: Whether nearly all of its characters are of a typewriter font.
        cells: Parts of the line that stand clearly apart.
        page_height: Height of the page, to tell margins.
        turn: Quarter turns clockwise of its writing direction.
    """

    text: str
    page: int
    x0: float
    x1: float
    top: float
    bottom: float
    size: float
    bold: bool
    mono: bool
    cells: int
    page_height: float
    turn: int = 0


@dataclass(frozen=True, slots=True)
class PageText:
    """What was read on a page.

    Attributes:
        number: 1-based.
        lines: In reading order.
        unreadable: Glyphs left out because their font doesn't say which characters they are.
        readable: Visible glyphs kept.
    """

    number: int
    lines: tuple[TextLine, ...]
    unreadable: int
    readable: int

    @property
    def is_unreadable(self) -> bool:
        """Whether so many characters are unknown that the known ones are usually wrong as well."""
        return self.unreadable >= 3 and self.unreadable > _UNREADABLE_SHARE * (
            self.unreadable + self.readable
        )


def pages_named(numbers: Sequence[int]) -> str:
    """Returns ``pages 1-3, 7`` for ascending page numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    shown = ", ".join("-".join(str(n) for n in run) for run in runs[:10])
    more = ", …" if len(runs) > 10 else ""
    return f"page{'s' if len(numbers) > 1 else ''} {shown}{more}"


@dataclass(slots=True)
class _Segment:
    glyphs: list[Glyph]
    tracking: float = 0.0
    x0: float = field(init=False)
    x1: float = field(init=False)

    def __post_init__(self) -> None:
        self.x0 = self.glyphs[0].x0
        self.x1 = max(g.x1 for g in self.glyphs)


_Row = list[_Segment]


def read_page(number: int, width: float, height: float, glyphs: Iterable[Glyph]) -> PageText:
    """Puts the glyphs of a page together to lines.

    Text that runs sideways or upside down follows the upright text, read in its own direction;
    text at any other angle (watermarks) is left out.
    """
    by_turn: dict[int, list[Glyph]] = {}
    for g in glyphs:
        cleaned = clean(g.text)
        if cleaned and g.turn is not None:
            kept = g if g.turn == 0 and cleaned == g.text else _upright(g, cleaned, width, height)
            by_turn.setdefault(g.turn, []).append(kept)
    lines: list[TextLine] = []
    readable = unreadable = 0
    # Upright text is read first, unless the page is a sideways one with some upright page number.
    total = sum(map(len, by_turn.values()))
    for turn in sorted(by_turn, key=lambda turn: (turn != 0 or 10 * len(by_turn[0]) < total, turn)):
        turned_height = width if turn % 2 else height
        turned_width = height if turn % 2 else width
        on_page = _without_doubles(
            g for g in by_turn[turn] if -1 <= g.middle <= turned_height + 1 and -1 <= g.x0 <= turned_width + 1
        )
        rows, unknown = _readable(_rows(on_page))
        unreadable += unknown
        readable += sum(1 for g in on_page if not g.text.isspace()) - unknown
        for row in _reading_order(rows):
            line = _line(row, number, turned_height, turn)
            if line is not None:
                lines.append(line)
    return PageText(number, tuple(lines), unreadable, readable)


def _upright(g: Glyph, text: str, width: float, height: float) -> Glyph:
    """Turns the page until the glyph stands upright."""
    if g.turn == 1:
        return glyph(text, g.top, g.bottom, width - g.x1, width - g.x0, g.font)
    if g.turn == 2:
        return glyph(text, width - g.x1, width - g.x0, height - g.bottom, height - g.top, g.font)
    if g.turn == 3:
        return glyph(text, height - g.bottom, height - g.top, g.x0, g.x1, g.font)
    return glyph(text, g.x0, g.x1, g.top, g.bottom, g.font)


def _without_doubles(glyphs: Iterable[Glyph]) -> list[Glyph]:
    """Drops glyphs printed again with a slight shift (fake bold, shadows).

    Two equal letters in a row are at least 0.18 of the size apart even in narrow fonts, the second
    print of one is below 0.12 in every file seen. Fonts without widths print all on one spot.
    """
    kept: list[Glyph] = []
    cells: dict[tuple[str, int, int], list[Glyph]] = {}
    for g in glyphs:
        reach = 0.12 * g.size
        if reach <= 0 or g.x1 - g.x0 < reach or g.text.isspace():
            kept.append(g)
            continue
        columns = range(int((g.x0 - reach) // _CELL), int((g.x0 + reach) // _CELL) + 1)
        rows = range(int((g.top - reach) // _CELL), int((g.top + reach) // _CELL) + 1)
        if len(columns) * len(rows) > 64 or not _printed_before(g, reach, columns, rows, cells):
            cells.setdefault((g.text, int(g.x0 // _CELL), int(g.top // _CELL)), []).append(g)
            kept.append(g)
    return kept


def _printed_before(
    g: Glyph, reach: float, columns: range, rows: range, cells: dict[tuple[str, int, int], list[Glyph]]
) -> bool:
    for column in columns:
        for row in rows:
            for other in cells.get((g.text, column, row), ()):
                if (
                    abs(other.x0 - g.x0) <= reach
                    and abs(other.top - g.top) <= reach
                    and abs(other.size - g.size) <= 0.2 * g.size
                ):
                    return True
    return False


def _rows(glyphs: Sequence[Glyph]) -> list[_Row]:
    rows: list[list[Glyph]] = []
    for g in sorted(glyphs, key=lambda g: g.middle):
        if rows:
            first = rows[-1][0]
            if g.middle - first.middle <= 0.35 * min(g.size, first.size):
                rows[-1].append(g)
                continue
        rows.append([g])
    segmented = [segments for row in rows if (segments := _segments(row))]
    return _with_raised(segmented)


def _with_raised(rows: list[_Row]) -> list[_Row]:
    """Puts superscripts and subscripts into the line they belong to."""
    merged: list[_Row] = []
    for row in rows:
        if merged:
            above, here = _row_box(merged[-1]), _row_box(row)
            small, large = sorted((above[1], here[1]))
            near = small < 0.85 * large and abs(above[0] - here[0]) < 0.6 * large
            if near and not _on_top(merged[-1], row):
                glyphs = [g for segment in (*merged[-1], *row) for g in segment.glyphs]
                merged[-1] = _segments(glyphs)
                continue
        merged.append(row)
    return merged


def _on_top(one: _Row, other: _Row) -> bool:
    """Whether glyphs of both rows share a place on the line."""
    first = [g for segment in one for g in segment.glyphs if not g.text.isspace()]
    second = [g for segment in other for g in segment.glyphs if not g.text.isspace()]
    return any(min(a.x1, b.x1) - max(a.x0, b.x0) > 0.2 * min(a.size, b.size) for a in first for b in second)


def _readable(rows: list[_Row]) -> tuple[list[_Row], int]:
    """Drops unknown glyphs and counts them; one alone in front of a line can only be its bullet."""
    kept: list[_Row] = []
    unknown = 0
    for row in rows:
        if not any(g.text == UNKNOWN for segment in row for g in segment.glyphs):
            kept.append(row)
            continue
        glyphs = [g for segment in row for g in segment.glyphs]
        visible = [g for g in glyphs if not g.text.isspace()]
        first, second = visible[0], visible[1] if len(visible) > 1 else None
        if first.text == UNKNOWN and second is not None and second.text != UNKNOWN:
            alone = second.x0 - first.x1 > 0.15 * second.size
            glyphs = [g._replace(text="•") if g is first and alone else g for g in glyphs]
        known = [g for g in glyphs if g.text != UNKNOWN]
        unknown += len(glyphs) - len(known)
        if segments := _segments(known):
            kept.append(segments)
    return kept, unknown


def _row_box(row: _Row) -> tuple[float, float]:
    glyphs = [g for segment in row for g in segment.glyphs]
    return median(g.middle for g in glyphs), median(g.size for g in glyphs)


def _segments(row: list[Glyph]) -> _Row:
    """Cuts a row where a gap is too wide for a blank between two words."""
    glyphs = sorted(row, key=lambda g: g.x0)
    visible = [g for g in glyphs if not g.text.isspace()]
    if not visible:
        return []
    size = median(g.size for g in visible)
    gaps = [right.x0 - left.x1 for left, right in pairwise(visible)]
    # In letter-spaced text most gaps are between letters, so their median is the tracking.
    tracking = max(0.0, median(gaps)) if len(gaps) >= 4 else 0.0
    limit = 1.4 * size + 2.5 * tracking
    segments: list[list[Glyph]] = []
    edge: float | None = None
    for g in glyphs:
        if g.text.isspace():
            if segments:
                segments[-1].append(g)
            continue
        if edge is None or g.x0 - edge > limit:
            segments.append([])
        segments[-1].append(g)
        edge = max(g.x1, edge or g.x1)
    for segment in segments:
        while segment[-1].text.isspace():
            segment.pop()
    return [_Segment(segment, tracking) for segment in segments]


def _reading_order(rows: list[_Row]) -> list[_Row]:
    """Columns of prose are read one after the other, rows of a table across."""
    gutter = _gutter(rows)
    if gutter is None:
        return rows
    ordered: list[_Row] = []
    band: list[_Row] = []
    for row in [*rows, None]:
        if row is not None and not any(s.x0 < gutter < s.x1 for s in row):
            band.append(row)
            continue
        left = [part for r in band if (part := [s for s in r if s.x1 <= gutter])]
        right = [part for r in band if (part := [s for s in r if s.x0 >= gutter])]
        if _is_prose(left) and _is_prose(right):
            ordered += _reading_order(left) + _reading_order(right)
        else:
            ordered += band
        band = []
        if row is not None:
            ordered.append(row)
    return ordered


def _gutter(rows: list[_Row]) -> float | None:
    """Finds the x that best parts the rows into two columns."""
    segments = [segment for row in rows for segment in row]
    if len(segments) < 6:
        return None
    left_edge, right_edge = min(s.x0 for s in segments), max(s.x1 for s in segments)
    width = right_edge - left_edge
    best: tuple[float, float] | None = None
    for x in sorted({round(s.x1 + 1) for s in segments}):
        if not left_edge + 0.2 * width < x < right_edge - 0.2 * width:
            continue
        left = right = across = 0
        for segment in segments:
            if segment.x1 <= x:
                left += 1
            elif segment.x0 >= x:
                right += 1
            else:
                across += 1
        score = min(left, right) - 1.5 * across
        if min(left, right) >= 3 and (best is None or score > best[0]):
            best = (score, float(x))
    return best[1] if best is not None and best[0] > 0 else None


def _is_prose(rows: list[_Row]) -> bool:
    """Tells lines of running text from cells: they are long, and one to a row."""
    if len(rows) < 3:
        return False
    lengths = [sum(len(segment.glyphs) for segment in row) for row in rows]
    alone = sum(1 for row in rows if len(row) == 1)
    return median(lengths) >= 18 and 2 * alone >= len(rows)


def _line(row: _Row, page: int, page_height: float, turn: int) -> TextLine | None:
    texts = [text for segment in row if (text := _segment_text(segment))]
    if not texts:
        return None
    glyphs = [g for segment in row for g in segment.glyphs if not g.text.isspace()]
    sizes = Counter(round(g.size, 1) for g in glyphs)
    fonts = Counter(g.font for g in glyphs)
    bold = sum(count for font, count in fonts.items() if _is_bold(font))
    mono = sum(count for font, count in fonts.items() if _is_mono(font))
    return TextLine(
        text="  ".join(texts),
        page=page,
        x0=min(g.x0 for g in glyphs),
        x1=max(g.x1 for g in glyphs),
        top=min(g.top for g in glyphs),
        bottom=max(g.bottom for g in glyphs),
        size=sizes.most_common(1)[0][0],
        bold=2 * bold > len(glyphs),
        mono=mono > 0.8 * len(glyphs),
        cells=len(texts),
        page_height=page_height,
        turn=turn,
    )


def _is_bold(font: str) -> bool:
    name = font.lower()
    return any(word in name for word in ("bold", "black", "heavy", "semibold", "demi")) or name.endswith(
        "-bd"
    )


def _is_mono(font: str) -> bool:
    name = font.lower()
    return any(word in name for word in ("mono", "courier", "consol", "typewriter", "cmtt", "menlo"))


def _segment_text(segment: _Segment) -> str:
    glyphs = segment.glyphs
    visible = [g for g in glyphs if not g.text.isspace()]
    if not visible:
        return ""
    size = median(g.size for g in visible)
    blanks = len(glyphs) - len(visible)
    # Blanks between single letters are tracking, not word ends: only geometry tells words then.
    spelled = len(visible) >= 6 and blanks >= 0.6 * len(visible)
    limit = (0.3 if blanks and not spelled else 0.16) * size + segment.tracking
    parts: list[str] = []
    pending_blank = False
    edge: float | None = None
    for g in glyphs:
        if g.text.isspace():
            pending_blank = not spelled
            continue
        if parts and (pending_blank or (edge is not None and g.x0 - edge > limit)):
            parts.append(" ")
        parts.append(g.text)
        pending_blank = False
        edge = g.x1
    return logical_order("".join(parts).strip())

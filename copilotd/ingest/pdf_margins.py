"""Running headers, footers and page numbers of a PDF: told by standing on several pages alike."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from copilotd.ingest.pdf_layout import PageText, TextLine

_RUNNING_PAGES = 3
_MARGIN = 0.12
_DIGITS = re.compile(r"\d+")


def without_running_lines(pages: Sequence[PageText]) -> list[TextLine]:
    """Leaves out headers, footers and page numbers.

    A line of the margin runs when the same words stand at the same height on three pages, where
    numbers may differ only as page numbers do: by exactly as much as the pages.
    """
    seen: dict[tuple[str, int, tuple[int, ...]], list[TextLine]] = defaultdict(list)
    for page in pages:
        for line in _margin_lines(page):
            for key in _running_keys(line):
                seen[key].append(line)
    running = {
        id(line)
        for key, lines in seen.items()
        if len({line.page for line in lines}) >= _RUNNING_PAGES
        for line in lines
    }
    kept: list[TextLine] = []
    for page in pages:
        rest = [line for line in page.lines if id(line) not in running]
        # A page that holds nothing else is not made of margins only.
        kept += rest or page.lines
    return kept


def _margin_lines(page: PageText) -> list[TextLine]:
    """The lines in the page's margins that stand apart from its body."""
    lines = sorted(page.lines, key=lambda line: line.top)
    if len(lines) < 2:
        return []
    found: list[TextLine] = []
    for ordered, is_top in ((lines, True), (lines[::-1], False)):
        for index, line in enumerate(ordered[:3]):
            inside = ordered[index + 1] if index + 1 < len(ordered) else None
            in_margin = (
                line.bottom <= _MARGIN * line.page_height
                if is_top
                else line.top >= (1 - _MARGIN) * line.page_height
            )
            if not in_margin or inside is None:
                break
            gap = inside.top - line.bottom if is_top else line.top - inside.bottom
            edge = line.bottom if is_top else line.page_height - line.top
            # Close to the body it is only believed at the very edge or in another size.
            if gap >= 0.8 * line.size or edge <= 0.075 * line.page_height or line.size < 0.9 * inside.size:
                found += ordered[: index + 1]
    return list({id(line): line for line in found}.values())


def _running_keys(line: TextLine) -> list[tuple[str, int, tuple[int, ...]]]:
    numbers = [int(match) if len(match) < 10 else 0 for match in _DIGITS.findall(line.text)]
    words = _DIGITS.sub("#", line.text).casefold()
    height = round(line.top / 6)
    keys = []
    # Either no number moves with the page, or one of them does. Heights are binned, so that a
    # line may fall on either side of a bin's edge: both neighbours are tried.
    for moving in (-1, *range(len(numbers))):
        offsets = tuple(n - line.page if i == moving else n for i, n in enumerate(numbers))
        keys += [(f"{moving}:{words}", height + shift, offsets) for shift in (0, 1)]
    return keys

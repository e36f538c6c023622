"""Glyphs of a PDF page: a pdfminer device that keeps letters and their places, and nothing else.

Lines, shadings and pictures are not text. Keeping them, as a general device does, takes most of
the time and memory of a page that holds a map or a plot. Imported when a PDF is read, not before.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from pdfminer.pdfdevice import PDFTextDevice
from pdfminer.pdffont import PDFUnicodeNotDefined
from pdfminer.pdfinterp import PDFPageInterpreter, PDFResourceManager
from pdfminer.pdfpage import PDFPage
from pdfminer.pdftypes import PDFStream
from pdfminer.utils import Matrix, apply_matrix_rect

from copilotd.ingest.pdf_layout import Glyph, PageText, glyph, read_page


class _GlyphDevice(PDFTextDevice):  # type: ignore[misc]  # pdfminer is untyped to us
    """Collects glyphs; places are points from the upper left corner of the page as it is shown."""

    def __init__(self, resources: PDFResourceManager) -> None:
        super().__init__(resources)
        self.glyphs: list[Glyph] = []
        self.width = self.height = 0.0

    def begin_page(self, page: PDFPage, ctm: Matrix) -> None:
        x0, y0, x1, y1 = apply_matrix_rect(ctm, page.mediabox)
        self.width, self.height = abs(x1 - x0), abs(y1 - y0)

    def render_char(
        self,
        matrix: Matrix,
        font: Any,
        fontsize: float,
        scaling: float,
        rise: float,
        cid: int,
        ncs: Any,
        graphicstate: Any,
    ) -> float:
        """Keeps one glyph; returns how far the next one is. Its box is as in PDF 32000-1, 9.4.4."""
        try:
            text = font.to_unichr(cid)
        except PDFUnicodeNotDefined:
            text = f"(cid:{cid})"
        advance: float = font.char_width(cid) * fontsize * scaling
        if font.is_vertical():
            to_left, to_top = font.char_disp(cid)
            left = -0.5 * fontsize if to_left is None else -to_left * fontsize * 0.001
            top = (1000 - to_top) * fontsize * 0.001 + rise
            box = (left, top + advance, left + fontsize, top)
        else:
            bottom = font.get_descent() * fontsize + rise
            box = (0, bottom, advance, bottom + fontsize)
        a, b, c, d, e, f = matrix
        if b == 0 == c:
            x0, y0, x1, y1 = a * box[0] + e, d * box[1] + f, a * box[2] + e, d * box[3] + f
            if x1 < x0:
                x0, x1 = x1, x0
            if y1 < y0:
                y0, y1 = y1, y0
        else:
            x0, y0, x1, y1 = apply_matrix_rect(matrix, box)
        self.glyphs.append(
            glyph(text, x0, x1, self.height - y1, self.height - y0, font.fontname, _turn(a, b))
        )
        return advance


def read_page_object(pdf: Any, page: Any, number: int) -> PageText:
    """Reads a page of an open pdfplumber file and lets go of what was decoded for it.

    Raises:
        Exception: Of any type, where the page is damaged.
    """
    # The reader keeps every object it has met; without this, memory grows with each page.
    kept = pdf.doc._cached_objs
    before = len(kept)
    device = _GlyphDevice(pdf.rsrcmgr)
    # Any two opposite corners may be given (PDF 32000-1, 7.9.5); pdfminer takes the first for the lower left.
    (x0, x1), (y0, y1) = sorted(page.mediabox[::2]), sorted(page.mediabox[1::2])
    page.mediabox = (x0, y0, x1, y1)
    try:
        PDFPageInterpreter(pdf.rsrcmgr, device).process_page(page)
        return read_page(number, device.width, device.height, device.glyphs)
    finally:
        for identity in list(islice(reversed(kept), len(kept) - before)):
            if isinstance(kept[identity][0], PDFStream):
                del kept[identity]
        for content in page.contents:
            kept.pop(getattr(content, "objid", None), None)
        page.contents = []


def _turn(along: float, up: float) -> int | None:
    """Quarter turns clockwise of the direction text runs in; None for a slanted one."""
    if abs(up) <= 0.05 * abs(along):
        return 0 if along >= 0 else 2
    if abs(along) <= 0.05 * abs(up):
        return 3 if up > 0 else 1
    return None

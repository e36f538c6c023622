"""Makes small PDFs for tests: each helper returns the file's bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

PAGE_WIDTH, PAGE_HEIGHT = A4
LEADING = 14

PROSE = (
    "The warehouse keeps every crate on a numbered shelf, and each shelf",
    "belongs to one aisle. When a crate is moved, the scanner at the end of",
    "the aisle writes the new place into the ledger within two seconds.",
)


def drawn(
    *pages: Callable[[Any], object], encrypt: StandardEncryption | None = None, title: str = ""
) -> bytes:
    """A PDF whose pages are drawn by functions of a reportlab canvas."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=A4, encrypt=encrypt, invariant=1)
    if title:
        canvas.setTitle(title)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def write(
    canvas: Any,
    lines: Sequence[str],
    *,
    x: float = 60,
    top: float = 80,
    font: str = "Helvetica",
    size: float = 11,
) -> float:
    """Draws lines below one another; an empty one leaves a gap. Returns where the next line would stand."""
    canvas.setFont(font, size)
    leading = size * LEADING / 11
    for line in lines:
        if line:
            canvas.drawString(x, PAGE_HEIGHT - top, line)
        top += leading if line else leading * 0.8
    return top


def of_lines(*pages: Sequence[str]) -> bytes:
    """A PDF of plain 11-point lines, a list of lines a page."""
    return drawn(*[lambda canvas, lines=lines: write(canvas, lines) for lines in pages])


def dense(pages: int) -> bytes:
    """A PDF of pages with some 5,000 characters each; ``page3line7`` stands where it says."""
    return drawn(
        *[
            lambda canvas, page=page: write(
                canvas,
                [
                    f"page{page}line{line} " + f"{page * line % 97} crates stand here. " * 3
                    for line in range(1, 73)
                ],
                top=40,
                size=8,
            )
            for page in range(1, pages + 1)
        ]
    )


def scanned(source: bytes, dpi: int = 200) -> bytes:
    """The same pages as pictures, as a scanner makes them."""
    import pypdfium2
    from reportlab.lib.utils import ImageReader

    pictures = [
        page.render(scale=dpi / 72, grayscale=True).to_pil() for page in pypdfium2.PdfDocument(source)
    ]
    return drawn(
        *[
            lambda canvas, picture=picture: canvas.drawImage(
                ImageReader(picture), 0, 0, PAGE_WIDTH, PAGE_HEIGHT
            )
            for picture in pictures
        ]
    )

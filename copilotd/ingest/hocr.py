"""hOCR, the HTML that OCR programs write: which words stand where on the picture of a page.

Format: http://kba.github.io/hocr-spec/1.2/ (properties in ``title``: bbox, baseline, x_size, x_wconf, textangle).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html.parser import HTMLParser

# Of common fonts, in heights of an x: from the tallest letter to the lowest, and below the baseline.
_SIZE = 1.75
_DESCENDERS = 0.4
_LINES = frozenset({"ocr_line", "ocr_header", "ocr_textfloat", "ocr_caption"})


@dataclass(frozen=True, slots=True)
class RecognisedWord:
    """A word as it was recognised; places are pixels from the top left.

    Attributes:
        text: Its characters.
        x0: Left edge.
        x1: Right edge.
        top: Upper edge.
        bottom: Lower edge. All words of a line are equally high, whatever their letters, as those of a
            font are.
        confidence: 0 to 100.
        turn: Quarter turns clockwise of its writing direction.
    """

    text: str
    x0: float
    x1: float
    top: float
    bottom: float
    confidence: float
    turn: int = 0

    @property
    def size(self) -> float:
        """How high its letters may be."""
        return self.x1 - self.x0 if self.turn % 2 else self.bottom - self.top

    def scaled(self, scale: float, size: float) -> RecognisedWord:
        """Returns the word in another unit, ``size`` high in that unit around the same middle."""
        x0, x1, top, bottom = (edge * scale for edge in (self.x0, self.x1, self.top, self.bottom))
        if self.turn % 2:
            x0, x1 = (x0 + x1 - size) / 2, (x0 + x1 + size) / 2
        else:
            top, bottom = (top + bottom - size) / 2, (top + bottom + size) / 2
        return replace(self, x0=x0, x1=x1, top=top, bottom=bottom)


def recognised_words(hocr: str) -> list[RecognisedWord]:
    """Returns the words in the order they stand; what is no hOCR has none."""
    reader = _Reader()
    reader.feed(hocr)
    reader.close()
    return reader.words


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[RecognisedWord] = []
        self._line: dict[str, list[float]] = {}
        self._word: dict[str, list[float]] | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        kind = attributes.get("class") or ""
        if kind in _LINES:
            self._line = _properties(attributes.get("title") or "")
        elif kind == "ocrx_word":
            self._word, self._text = _properties(attributes.get("title") or ""), []

    def handle_data(self, data: str) -> None:
        if self._word is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        # Inside a word stand only <em> and <strong>.
        if tag != "span" or self._word is None:
            return
        box = self._word.get("bbox", [])
        text = "".join(self._text).strip()
        if text and len(box) == 4 and box[0] < box[2] and box[1] < box[3]:
            confidence = (self._word.get("x_wconf") or [0.0])[0]
            turn = round(-(self._line.get("textangle") or [0.0])[0] / 90) % 4
            self.words.append(RecognisedWord(text, *self._box(box, turn), confidence, turn))
        self._word = None

    def _box(self, box: list[float], turn: int) -> tuple[float, float, float, float]:
        """The word's box (x0, x1, top, bottom), as high as the letters of its line may be."""
        x0, top, x1, bottom = box
        line = self._line.get("bbox", [])
        size, descenders, ascenders = (
            (self._line.get(name) or [0.0])[0] for name in ("x_size", "x_descenders", "x_ascenders")
        )
        baseline = self._line.get("baseline", [])
        # What rises and falls is measured from the letters there are, and in columns that are not level from
        # two lines at once; the height of an x is what holds.
        x_height = size - descenders - ascenders
        if x_height > 0:
            size, descenders = _SIZE * x_height, _DESCENDERS * x_height
        if len(line) != 4 or size <= 0:
            return x0, x1, top, bottom
        if turn % 2:
            middle = (line[0] + line[2]) / 2
            return middle - size / 2, middle + size / 2, top, bottom
        lowest = line[3] + baseline[1] + descenders if len(baseline) == 2 else (line[1] + line[3] + size) / 2
        return x0, x1, lowest - size, lowest


def _properties(title: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for entry in title.split(";"):
        name, *values = entry.split() or [""]
        try:
            found[name] = [float(value) for value in values]
        except ValueError:
            continue
    return found

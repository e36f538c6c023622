"""Plain text: paragraphs between blank lines, one section named after the file."""

from __future__ import annotations

from copilotd.ingest.decode import decode
from copilotd.ingest.lines import clean_characters, has_words, lay_out
from copilotd.types import Block, BlockKind, Document, Section


class PlainTextParser:
    """Reads ``.txt`` files."""

    name = "text"
    version = 2
    suffixes: tuple[str, ...] = (".txt",)
    isolated = False

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: The bytes are not text.
        """
        layout = lay_out(clean_characters(decode(source)).split("\n"))
        if not has_words(layout.text):
            return Document(doc_title, "", "", (), (), ())
        return Document(
            doc_title=doc_title,
            title="",
            text=layout.text,
            line_numbers=layout.line_numbers,
            sections=(Section(doc_title, 0, (), 0, len(layout.text)),),
            blocks=tuple(_paragraphs(layout.text)),
        )


def _paragraphs(text: str) -> list[Block]:
    blocks: list[Block] = []
    start = position = 0
    words = False
    for line in [*text.split("\n"), ""]:
        end = position - 1
        if line.strip():
            words = words or has_words(line)
        else:
            if words:
                end = start + len(text[start:end].rstrip())
                blocks.append(Block(BlockKind.PARAGRAPH, start, end, len(blocks), start))
            words = False
            start = position + len(line) + 1
        position += len(line) + 1
    return blocks

"""An independent reading of documents: what must hold for every parser and for the chunks of its documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from copilotd.errors import ParseError
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.decode import decode
from copilotd.types import Chunk, Document, Parser

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "markdown"


def letters(text: str) -> str:
    """Returns the letters and digits of ``text``, in order."""
    return "".join(character for character in text if character.isalnum())


def is_subsequence(part: str, whole: str) -> bool:
    """Tells whether the characters of ``part`` occur in ``whole`` in the same order."""
    rest = iter(whole)
    return all(character in rest for character in part)


def chunks_of(document: Document, *, max_chars: int = 2000, overlap_chars: int = 250) -> list[Chunk]:
    """Cuts a document whose path does not matter."""
    return chunk_document(
        document,
        source_file="/docs/guide.md",
        relative_path="guide.md",
        last_modified=1.0,
        max_chars=max_chars,
        overlap_chars=overlap_chars,
    )


def check_document(parser: Parser, source: bytes, read_line: Callable[[str], str] = str) -> Document | None:
    """Parses ``source`` and asserts what holds for every document; None where it is no text.

    ``read_line`` resolves what the format writes in place of characters: references, escapes.
    """
    try:
        document = parser.parse(source, "guide")
    except ParseError:
        return None
    source_lines = [read_line(line) for line in decode(source).split("\n")]
    lines = document.text.split("\n") if document.text else []
    assert len(lines) == len(document.line_numbers)
    assert list(document.line_numbers) == sorted(set(document.line_numbers))
    for line, number in zip(lines, document.line_numbers, strict=True):
        assert is_subsequence(letters(line), letters(source_lines[number - 1])), (number, line)
    position = 0
    for section in document.sections:
        assert section.start == position
        assert section.end > section.start
        position = section.end
    assert position == len(document.text)
    position = 0
    for block in document.blocks:
        assert position <= block.start < block.end
        assert block.start <= block.header_end <= block.end
        assert block.start == 0 or document.text[block.start - 1] == "\n"
        position = block.end
    covered = [False] * len(document.text)
    for block in document.blocks:
        covered[block.start : block.end] = [True] * (block.end - block.start)
    for index, character in enumerate(document.text):
        assert covered[index] or not character.isalnum(), document.text[index : index + 40]
    return document


def check_chunks(document: Document, *, max_chars: int, overlap_chars: int) -> list[Chunk]:
    """Cuts ``document`` and asserts what holds for the chunks of every document."""
    chunks = chunks_of(document, max_chars=max_chars, overlap_chars=overlap_chars)
    starts = [0]
    for line in document.text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    covered = [False] * len(document.text)
    end = 0
    for index, chunk in enumerate(chunks):
        text = document.text[chunk.start : chunk.end]
        assert text.strip()
        assert len(text) <= max_chars
        assert chunk.metadata.chunk_index == index
        assert chunk.metadata.char_count == len(text)
        assert chunk.metadata.section_heading
        assert chunk.end > end, "a chunk adds something to the one before it"
        assert end - chunk.start <= overlap_chars
        end = chunk.end
        covered[chunk.start : chunk.end] = [True] * len(text)
        section = document.sections[chunk.section]
        assert section.start <= chunk.start < section.end
        cited = [
            position
            for position, number in enumerate(document.line_numbers)
            if chunk.metadata.line_start <= number <= chunk.metadata.line_end
        ]
        shown = document.text[starts[cited[0]] : starts[cited[-1] + 1]]
        assert is_subsequence(letters(text), letters(shown)), "the cited lines hold the chunk's words"
        seen = [chunk.start + place for place, character in enumerate(text) if character.isalnum()]
        if seen:
            first, last = document.text.rfind("\n", 0, seen[0]) + 1, document.text.find("\n", seen[-1])
            whole = document.text[first : last if last >= 0 else len(document.text)]
            assert letters(shown) == letters(whole), "and nothing else but the rest of a line that was cut"
    for index, character in enumerate(document.text):
        assert covered[index] or not character.isalnum(), document.text[index : index + 40]
    return chunks

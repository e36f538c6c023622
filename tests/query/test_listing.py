"""Each place once: copies left out, neighbours of one section joined with exact lines."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.listing import MERGED_CHARS, listed
from copilotd.types import Hit, StoredChunk


def chunks_of(text: str, *, size: int, overlap: int = 0, document_id: int = 1) -> list[StoredChunk]:
    index = MemoryIndex(HashingEncoder())
    document = parse_file("guide.md", text.encode())
    chunks = chunk_document(
        document,
        source_file="/guide.md",
        relative_path="guide.md",
        last_modified=1.0,
        max_chars=size,
        overlap_chars=overlap,
    )
    stored = index.load_chunks(index.add(document, chunks)).values()
    return [replace(chunk, document_id=document_id) for chunk in stored]


def hits(chunks: list[StoredChunk]) -> list[Hit]:
    return [Hit(chunk, 1.0 - n / 100, 0.5, 1.0) for n, chunk in enumerate(chunks)]


def paragraphs(count: int, word: str = "matter") -> str:
    return "\n\n".join(f"Paragraph {n} tells of {word} {n} and of nothing else at all." for n in range(count))


def test_neighbours_of_a_section_are_one_hit_with_exact_lines() -> None:
    text = f"# Guide\n\n## Kiln\n\n{paragraphs(12)}\n"
    for overlap in (0, 80):
        chunks = chunks_of(text, size=300, overlap=overlap)[1:]
        assert len(chunks) > 2
        for order in ([1, 0], [0, 1]):
            (joined,) = listed(hits([chunks[n] for n in order]), 5)
            assert joined.chunk.id == chunks[order[0]].id
            source = text.split("\n")
            for line, number in zip(joined.chunk.text.split("\n"), joined.chunk.line_numbers, strict=True):
                assert line == source[number - 1]
            covered = [joined.chunk.text[block.start : block.end] for block in joined.chunk.blocks]
            assert all(word in "".join(covered) for word in joined.chunk.text.split())
            ends = [(block.start, block.end) for block in joined.chunk.blocks]
            assert ends == sorted(ends)
            assert all(left[1] <= right[0] for left, right in pairwise(ends))


def test_long_neighbours_stay_apart() -> None:
    chunks = chunks_of(f"# Guide\n\n{paragraphs(90)}\n", size=1900)
    assert len(chunks) > 1
    assert chunks[1].end - chunks[0].start > MERGED_CHARS
    assert len(listed(hits(chunks[:2]), 5)) == 2


def test_neighbours_of_different_sections_stay_apart() -> None:
    chunks = chunks_of("# Guide\n\n## Kiln\n\nHot.\n\n## Lamp\n\nBright.\n", size=2000)
    assert len(listed(hits(chunks), 9)) == len(chunks)


def test_near_copies_do_not_fill_the_list() -> None:
    text = f"# Guide\n\n{paragraphs(12)}\n"
    one, other = (
        chunks_of(text, size=2000),
        chunks_of(text.replace("nothing", "little"), size=2000, document_id=2),
    )
    assert len(listed(hits([*one, *other]), 5)) == 1


def test_a_copy_with_another_number_is_no_copy() -> None:
    text = f"# Guide\n\nThe port is 8080. {paragraphs(6)}\n"
    one, other = chunks_of(text, size=2000), chunks_of(text.replace("8080", "9090"), size=2000, document_id=2)
    assert len(listed(hits([*one, *other]), 5)) == 2


def test_what_is_joined_leaves_room_for_others() -> None:
    kiln = chunks_of(f"# Guide\n\n## Kiln\n\n{paragraphs(12)}\n", size=300)[1:]
    lamp = chunks_of("# Lamp\n\nThe lamp is lit.\n", size=300, document_id=9)
    found = listed(hits([kiln[0], kiln[1], *lamp]), 2)
    assert [hit.chunk.document_id for hit in found] == [kiln[0].document_id, 9]

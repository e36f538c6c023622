"""What a list of hits shows: each place once. Copies are left out, neighbours become one hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from copilotd.types import Block, Hit, StoredChunk

MERGED_CHARS = 2400
"""Neighbours stay apart where together they would be longer: a hit is something to read, not a chapter."""

_SAME = 0.9
"""Share of words in common from which one text is a near copy of another."""
_FEW_WORDS = 20
"""Shorter texts are copies only when they are equal: one word of them may be all that matters."""


def listed(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Returns the first ``limit`` hits, each place once.

    A hit that follows or precedes a better one within its section is joined to it, while both are
    short. A hit that says what a better one says is left out.

    Args:
        hits: Best first.
        limit: At most so many.
    """
    kept: list[Hit] = []
    words: list[_Words] = []
    for hit in hits:
        own = _Words(hit.chunk.text)
        if any(own.copies(other) for other in words):
            continue
        joined = next(
            ((n, chunk) for n, other in enumerate(kept) if (chunk := _joined(other.chunk, hit.chunk))), None
        )
        if joined is not None:
            number, chunk = joined
            kept[number] = replace(kept[number], chunk=chunk)
        elif len(kept) == limit:
            break
        else:
            kept.append(hit)
            words.append(own)
    return kept


class _Words:
    def __init__(self, text: str) -> None:
        self._sequence = text.lower().split()
        self._set = frozenset(self._sequence)
        # "8080" for "9090" is a small change of words and a large one of meaning.
        self._numbers = frozenset(word for word in self._set if any(map(str.isdigit, word)))

    def copies(self, other: _Words) -> bool:
        """Whether both say the same."""
        if min(len(self._set), len(other._set)) < _FEW_WORDS:
            return self._sequence == other._sequence
        common = len(self._set & other._set)
        return self._numbers == other._numbers and common >= _SAME * len(self._set | other._set)


def _joined(better: StoredChunk, other: StoredChunk) -> StoredChunk | None:
    """Returns both as one chunk under the better one's number; None where they are no short neighbours."""
    first, last = (better, other) if better.start <= other.start else (other, better)
    overlap = max(first.end - last.start, 0)
    # Chunks are trimmed: between neighbours lies the end of a line, and a blank line or not.
    gap = max(last.start - first.end, 0)
    if (
        first.document_id != last.document_id
        or first.metadata.heading_path != last.metadata.heading_path
        or first.metadata.section_heading != last.metadata.section_heading
        or gap > 2
        or last.end < first.end
        or last.end - first.start > MERGED_CHARS
    ):
        return None
    text = first.text + "\n" * gap + last.text[overlap:]
    further = last.line_numbers[last.text.count("\n", 0, overlap) :]
    if gap:
        blank = (min(first.line_numbers[-1] + 1, further[0]),) * (gap - 1)
        lines = first.line_numbers + blank + further
    else:
        lines = first.line_numbers[:-1] + further
    return replace(
        better,
        text=text,
        start=first.start,
        end=last.end,
        line_numbers=lines,
        page_starts=tuple(sorted({*first.page_starts, *last.page_starts})),
        blocks=_blocks(first, last),
        context=first.context,
        metadata=replace(
            first.metadata,
            line_end=last.metadata.line_end,
            page_end=last.metadata.page_end,
            char_count=len(text),
        ),
    )


def _blocks(first: StoredChunk, last: StoredChunk) -> tuple[Block, ...]:
    blocks = list(first.blocks)
    shift = last.start - first.start
    for block in last.blocks:
        start, end = block.start + shift, block.end + shift
        before = blocks[-1] if blocks else None
        if before is None or start >= before.end:
            blocks.append(replace(block, start=start, end=end, header_end=block.header_end + shift))
        elif end > before.end:
            # The first chunk ends within this block.
            blocks[-1] = replace(before, end=end)
    return tuple(blocks)

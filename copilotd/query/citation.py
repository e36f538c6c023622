"""What a citation says of the words it stands for."""

from __future__ import annotations

from copilotd.text import one_line
from copilotd.types import Citation, StoredChunk

_PREVIEW_CHARS = 160


def citation_of(
    key: str, chunk: StoredChunk, score: float, *, text: str = "", lines: tuple[int, int] | None = None
) -> Citation:
    """Returns the citation of a chunk, or of lines of it.

    Args:
        key: ``A``, ``B``…
        chunk: Where the words stand.
        score: Of the hit.
        text: What is quoted; all of the chunk where it is empty.
        lines: First and last source line of it; None for the chunk's own.
    """
    metadata = chunk.metadata
    first, last = lines or (metadata.line_start, metadata.line_end)
    page, page_end = (metadata.page, metadata.page_end) if lines is None else chunk.pages_of(first, last)
    return Citation(
        key=key,
        chunk_id=chunk.id,
        doc_title=metadata.doc_title,
        section_heading=metadata.section_heading,
        heading_path=metadata.heading_path,
        source_file=metadata.source_file,
        relative_path=metadata.relative_path,
        namespace=chunk.namespace,
        line_start=first,
        line_end=last,
        page=page,
        score=score,
        preview=one_line(text or chunk.text, _PREVIEW_CHARS),
        page_end=page_end,
    )

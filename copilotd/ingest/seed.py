"""The seed's entry point for Markdown files: the product's own parser and chunker on one path."""

from __future__ import annotations

import os

from copilotd.ingest.chunk import DEFAULT_CHUNK_OVERLAP_CHARS, DEFAULT_MAX_CHUNK_CHARS, chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.types import ChunkMetadata


def markdown_chunk_by_section(
    filepath: str,
    *,
    max_chars: int = DEFAULT_MAX_CHUNK_CHARS,
    overlap_chars: int = DEFAULT_CHUNK_OVERLAP_CHARS,
) -> list[tuple[str, ChunkMetadata]]:
    """Returns text and metadata of each chunk of a Markdown file.

    Raises:
        ParseError: The file is not text.
        OSError: The file cannot be opened.
    """
    last_modified = os.path.getmtime(filepath)
    with open(filepath, "rb") as file:
        document = parse_file(filepath, file.read())
    chunks = chunk_document(
        document,
        source_file=os.path.abspath(filepath),
        relative_path=os.path.basename(filepath),
        last_modified=last_modified,
        max_chars=max_chars,
        overlap_chars=overlap_chars,
    )
    return [(document.text[chunk.start : chunk.end], chunk.metadata) for chunk in chunks]

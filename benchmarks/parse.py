"""How fast each format is read: documents and megabytes a second, parsing and chunking, one process.

    python benchmarks/parse.py [FOLDER ...]

Reads the folders' documents, or the project's own fixtures, each once to warm up. PDF and Word documents are
read in this process, so that starting a child is not measured.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from copilotd.errors import ParseError
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parser_for
from copilotd.types import Parser

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures"
ENOUGH_SECONDS = 3.0


def documents(folders: list[Path]) -> dict[str, list[tuple[Parser, bytes]]]:
    """Returns the documents below ``folders`` by the name of their format."""
    found: dict[str, list[tuple[Parser, bytes]]] = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            parser = parser_for(str(path)) if path.is_file() else None
            if parser is not None and path.stat().st_size:
                found[parser.name].append((parser, path.read_bytes()))
    return found


def read(parser: Parser, source: bytes) -> bool:
    """Parses and chunks one document; tells whether it could be read."""
    try:
        document = parser.parse(source, "document")
    except ParseError:
        return False
    chunk_document(document, source_file="/d", relative_path="d", last_modified=0.0)
    return True


def measured(sources: list[tuple[Parser, bytes]]) -> Iterator[tuple[int, float]]:
    """Yields size and CPU seconds of each document read, until enough time was measured."""
    spent = 0.0
    read(*sources[0])
    while spent < ENOUGH_SECONDS:
        for parser, source in sources:
            begin = time.process_time()
            if read(parser, source):
                seconds = time.process_time() - begin
                yield len(source), seconds
                spent += seconds
        if not spent:
            return


def main() -> None:
    """Prints a line a format."""
    folders = [Path(argument) for argument in sys.argv[1:]] or [FIXTURES]
    print(f"{'format':<10} {'files':>6} {'documents/s':>12} {'MB/s':>8}")
    for name, sources in sorted(documents(folders).items()):
        sizes, seconds = zip(*measured(sources), strict=True)
        total = sum(seconds)
        print(f"{name:<10} {len(sources):>6} {len(sizes) / total:>12.1f} {sum(sizes) / total / 1e6:>8.2f}")


if __name__ == "__main__":
    main()

"""What a reader of an index sees: answers as the client prints them, and the lines of the files they cite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.engines import Recorder, ask, running_engine, search

from copilot_client import render
from copilot_client.terminal import Style
from copilotd.api.shapes import answer_json, section_json
from copilotd.engine import Engine
from copilotd.types import Answer, Citation, Hit, IndexReport


@dataclass
class Reader:
    """A folder of documents, indexed, and one who asks about them.

    Attributes:
        folder: Where the documents are.
        engine: What reads them.
        reports: What each indexing said.
    """

    folder: Path
    engine: Engine
    reports: list[IndexReport] = field(default_factory=list)

    def index(self, *, chunk_size: int | None = None) -> IndexReport:
        """Indexes the folder, or looks at it again."""
        self.reports.append(
            self.engine.index_root(str(self.folder), chunk_size=chunk_size, reporter=Recorder())
        )
        return self.reports[-1]

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Writes documents; text as UTF-8."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def ask(self, question: str, **options: Any) -> Answer:
        """Asks, and returns the answer."""
        return ask(self.engine, question, **options)

    def printed(self, answer: Answer) -> str:
        """Returns an answer as ``copilot ask`` prints it to a pipe."""
        data = answer_json(answer)
        return "\n".join([render.answer_text(data), *render.answer_sources(data, Style())])

    def section(self, ref: str) -> str:
        """Returns a section as ``copilot section`` prints it."""
        found = section_json(self.engine.section(ref, None, Recorder()))
        return "\n".join(render.section(found, Style()))

    def best(self, query: str) -> Hit:
        """Returns the best hit."""
        return search(self.engine, query).hits[0]

    def outline(self, name: str) -> list[str]:
        """Returns the heading paths of a document in order, as its lines tell them."""
        seen: dict[str, None] = {}
        count = self.engine.section(name, None, Recorder()).line_end
        for line in range(1, count + 1):
            path = self.engine.section(f"{name}:{line}", None, Recorder()).heading_path
            if path:
                seen[" > ".join(path)] = None
        return list(seen)

    def cited(self, citation: Citation, encoding: str = "utf-8") -> str:
        """Returns the lines of the file that a citation names, read without the product."""
        text = Path(citation.source_file).read_bytes().decode(encoding).removeprefix("\ufeff")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return "\n".join(lines[citation.line_start - 1 : citation.line_end])


@contextmanager
def reading(
    folder: Path,
    files: Mapping[str, str | bytes] | None = None,
    *,
    chunk_size: int | None = None,
    **settings: Any,
) -> Iterator[Reader]:
    """Indexes ``files``, written below ``folder``."""
    docs = folder / "docs"
    docs.mkdir()
    with running_engine(folder / "index", **settings) as engine:
        reader = Reader(docs, engine)
        if files is not None:
            reader.write(files)
            reader.index(chunk_size=chunk_size)
        yield reader

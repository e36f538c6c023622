"""Asks the product every question of one or more sets and measures what it says.

    python benchmarks/quality.py SET... [--index-dir DIR] [--json]

SET is a folder with ``corpus/`` and ``questions.jsonl``, the format of ``evalset.py``. Each set is indexed
by a real engine of its own, and each question goes through ``search`` (ten hits) and ``ask`` (extractive).
With ``--index-dir`` the index is kept, so that the next run embeds nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from evalset import Outcome, Question, Span, interval, load_questions, mean, measure

from copilotd.engine import Engine
from copilotd.settings import load_settings
from copilotd.types import AskRequest, ChunkMetadata, Citation, Progress, SearchRequest

_HITS = 10


class Quiet:
    """A reporter that shows the windows embedded, on a terminal only, and never cancels."""

    def progress(self, progress: Progress) -> None:
        """Shows how far indexing is."""
        if progress.windows_total and sys.stderr.isatty():
            print(f"\r  {progress.windows_done}/{progress.windows_total} windows ", end="", file=sys.stderr)

    def delta(self, text: str) -> None:
        """Ignores streamed text; the answer comes whole."""

    def cancelled(self) -> bool:
        """Never."""
        return False


class Product:
    """The engine over one set."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reporter = Quiet()

    def add(self, folder: Path) -> str:
        """Indexes a set's corpus and returns the line that says so."""
        report = self._engine.index_root(str(folder / "corpus"), reporter=self._reporter)
        return f"{folder.name}: {report.chunks} chunks from {report.files} files, {report.seconds:.0f} s"

    def ask(self, folder: Path, question: Question) -> Outcome:
        """Asks one question."""
        found = self._engine.search(SearchRequest(question.text, top_k=_HITS), self._reporter)
        answer = self._engine.ask(AskRequest(question.text, extractive=True, stream=False), self._reporter)
        return Outcome(
            question=question,
            found=tuple(_span(hit.chunk.metadata, len(hit.chunk.text)) for hit in found.hits),
            confidence=answer.verdict.confidence,
            known=answer.verdict.known,
            cited=tuple(cited_span(folder, citation) for citation in answer.citations),
            milliseconds=found.timings_ms["retrieve"],
            evidence=answer.verdict.evidence,
        )


@contextmanager
def product(index_dir: Path) -> Iterator[Product]:
    """Yields a running engine whose index lies in ``index_dir``."""
    engine = Engine(replace(load_settings(), index_dir=index_dir))
    engine.start()
    try:
        yield Product(engine)
    finally:
        engine.close()


def collect(folders: Sequence[Path], index_dir: Path | None) -> list[list[Outcome]]:
    """Returns what the product says to every question, a list for each set.

    Each set has an index of its own: how rare a word is must not depend on the other sets.
    """
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="copilot-quality-") as temporary:
        for folder in folders:
            with product((index_dir or Path(temporary)) / folder.name) as running:
                print(running.add(folder), file=sys.stderr)
                outcomes.append([running.ask(folder, question) for question in load_questions(folder)])
    return outcomes


def _span(meta: ChunkMetadata, chars: int) -> Span:
    return Span(meta.relative_path, meta.line_start, meta.line_end, chars)


def cited_span(folder: Path, citation: Citation) -> Span:
    """Returns the lines of a set's file that a citation names."""
    lines = (folder / "corpus" / citation.relative_path).read_text("utf-8", "replace").split("\n")
    chars = sum(len(line) + 1 for line in lines[citation.line_start - 1 : citation.line_end])
    return Span(citation.relative_path, citation.line_start, citation.line_end, chars)


def table(rows: dict[str, dict[str, float]]) -> str:
    """Returns the measures as a Markdown table, a row for each set."""
    names = list(next(iter(rows.values())))
    lines = ["| set | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for label, row in rows.items():
        cells = [_figure(name, row[name]) for name in names]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _figure(name: str, value: float) -> str:
    if value != value:
        return "–"
    return f"{value:.1f}" if name.endswith(("ms", "lines")) else f"{value:.3f}"


def main() -> None:
    """Runs the sets and prints the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET")
    parser.add_argument("--index-dir", type=Path, help="keep the index here for the next run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    folders = [folder.resolve() for folder in arguments.sets]
    outcomes = collect(folders, arguments.index_dir)
    rows = {folder.name: measure(one) for folder, one in zip(folders, outcomes, strict=True)}
    rows["mean"] = mean([rows[folder.name] for folder in folders])
    bounds = interval(outcomes)
    if arguments.json:
        print(json.dumps({"sets": rows, "interval95": bounds}, indent=2))
        return
    print(table(rows))
    shown = ", ".join(
        f"{name} {_figure(name, low)}–{_figure(name, high)}" for name, (low, high) in bounds.items()
    )
    print(f"\n95 % bootstrap intervals of the mean: {shown}")


if __name__ == "__main__":
    main()

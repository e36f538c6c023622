"""Deep mode against plain answers, and one batch against one search after the other.

    python benchmarks/deep.py SET... [--index-dir DIR] [--documents] [--json]

SET is a folder with ``corpus/`` and ``questions.jsonl``, the format of ``evalset.py``. Every question is
answered without a model, plainly and deeply, by the same engine. The queries of every plan are then searched
for in one batch, as deep mode does, and one after the other; the retrievals are the same, the time is not.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from evalset import MEASURES, Outcome, Question, load_questions, mean, measure
from quality import Quiet, cited_span, table

from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import locate_model
from copilotd.engine import Engine
from copilotd.index.store import load_index
from copilotd.query.deep.plan import plan_queries
from copilotd.query.retrieve import retrieve, retrieve_batch
from copilotd.settings import load_settings
from copilotd.types import Answer, AskRequest, Context, Scope

_NAMES = (
    "answered",
    "refused",
    "AUROC",
    "first citation",
    "citation precision",
    "touched",
    "cited lines",
    "p50 ms",
    "p95 ms",
)
_TOP_K = 6


def outcomes(folder: Path, index_dir: Path, contexts: Sequence[Context | None]) -> list[list[Outcome]]:
    """Returns what is answered to every question: plainly, and deeply from each of ``contexts``."""
    engine = Engine(replace(load_settings(), index_dir=index_dir))
    engine.start()
    try:
        report = engine.index_root(str(folder / "corpus"), reporter=Quiet())
        print(f"{folder.name}: {report.chunks} chunks from {report.files} files", file=sys.stderr)
        questions = load_questions(folder)
        ways: list[AskRequest] = [AskRequest("", extractive=True, deep=False, stream=False)]
        ways += [AskRequest("", extractive=True, deep=True, context=c, stream=False) for c in contexts]
        return [
            [
                _outcome(folder, question, engine.ask(replace(way, query=question.text), Quiet()))
                for question in questions
            ]
            for way in ways
        ]
    finally:
        engine.close()


def _outcome(folder: Path, question: Question, answer: Answer) -> Outcome:
    return Outcome(
        question=question,
        found=(),
        confidence=answer.verdict.confidence,
        known=answer.verdict.known,
        cited=tuple(cited_span(folder, citation) for citation in answer.citations),
        milliseconds=answer.timings_ms["total"],
    )


def batch_and_serial(folder: Path, index_dir: Path) -> tuple[float, float, float]:
    """Returns the median milliseconds of a plan's retrieval in one batch, one by one, and its mean queries."""
    encoder = load_encoder(locate_model(load_settings().embed_model))
    store = load_index(str(index_dir))
    together: list[float] = []
    apart: list[float] = []
    queries: list[int] = []
    try:
        with store.read() as view:
            for question in load_questions(folder):
                planned = plan_queries(question.text, index=view).queries

                def batch(planned: tuple[str, ...] = planned) -> object:
                    return retrieve_batch(planned, view, encoder, Scope(), _TOP_K)

                def serial(planned: tuple[str, ...] = planned) -> object:
                    return [retrieve(query, view, encoder, Scope(), _TOP_K) for query in planned]

                # Each goes first in turn, so that neither finds the documents read by the other.
                pair: list[tuple[Callable[[], object], list[float]]] = [(batch, together), (serial, apart)]
                for work, times in pair if len(queries) % 2 else pair[::-1]:
                    times.append(_milliseconds(work))
                queries.append(len(planned))
    finally:
        store.close()
    return statistics.median(together), statistics.median(apart), statistics.fmean(queries)


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Runs the sets and prints the tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET")
    parser.add_argument("--index-dir", type=Path, help="keep the index here for the next run")
    parser.add_argument("--documents", action="store_true", help="also answer from whole documents")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    contexts = [None, Context.DOCUMENTS] if arguments.documents else [None]
    labels = ["plain", "deep", "deep, documents"][: 1 + len(contexts)]
    rows: dict[str, dict[str, float]] = {}
    times: dict[str, tuple[float, float, float]] = {}
    measured: list[list[dict[str, float]]] = [[] for _ in labels]
    with tempfile.TemporaryDirectory(prefix="copilot-deep-") as temporary:
        for folder in (folder.resolve() for folder in arguments.sets):
            index_dir = (arguments.index_dir or Path(temporary)) / folder.name
            for label, kept, outcome in zip(
                labels, measured, outcomes(folder, index_dir, contexts), strict=True
            ):
                figures = measure(outcome)
                kept.append({name: figures[name] for name in MEASURES if name in _NAMES})
                rows[f"{folder.name}, {label}"] = kept[-1]
            times[folder.name] = batch_and_serial(folder, index_dir)
    rows |= {f"mean, {label}": mean(kept) for label, kept in zip(labels, measured, strict=True)}
    if arguments.json:
        print(json.dumps({"answers": rows, "retrieval_ms": times}, indent=2))
        return
    print(table(rows))
    print("\n| set | queries | one batch, ms | one by one, ms | times |\n|---|---|---|---|---|")
    for name, (together, apart, queries) in times.items():
        print(f"| {name} | {queries:.1f} | {together:.1f} | {apart:.1f} | {apart / together:.2f} |")


if __name__ == "__main__":
    main()

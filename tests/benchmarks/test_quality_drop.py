"""Small sets through the real model, one of them our own pages: fails when ranking, refusal or quotes get worse.

Small enough for every run. What it can't see, small losses, ``benchmarks/quality.py`` measures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from support.memory_index import MemoryIndex
from support.shared import SHARED

from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import BUNDLED_NAME, locate_model
from copilotd.embed.windows import make_planner
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.extract import extract
from copilotd.query.gate import judge
from copilotd.query.retrieve import retrieve
from copilotd.types import Chunk, Document, Encoder, Scope

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from evalset import Outcome, Question, Span, load_questions, measure

OWN = Path(__file__).resolve().parents[2] / "benchmarks" / "sets" / "own-docs"
SMALL = SHARED / "eval" / "qmd-eval"
STRANGERS = SHARED / "eval" / "chezmoi"
# Two of six: all would take longer to embed than a test should.
SMALL_DOCUMENTS = ("distributed-systems-overview.md", "startup-fundraising-memo.md")


@cache
def encoder() -> Encoder:
    return load_encoder(locate_model(BUNDLED_NAME))


def indexed(corpus: Path, names: Iterable[str]) -> MemoryIndex:
    model = locate_model(BUNDLED_NAME)
    planner = make_planner(model.fingerprint, model.folder)

    def windows(document: Document, chunk: Chunk) -> list[str]:
        planned = planner.plan(
            document.text[chunk.start : chunk.end],
            title=document.title,
            heading_path=chunk.metadata.heading_path,
            context=chunk.context,
        )
        return [window.embedded_text for window in planned]

    index = MemoryIndex(encoder(), windows)
    for name in names:
        path = corpus / name
        document = parse_file(str(path), path.read_bytes())
        index.add(
            document,
            chunk_document(
                document, source_file=str(path), relative_path=name, last_modified=0.0, max_chars=2000
            ),
        )
    return index


def outcome(index: MemoryIndex, question: Question) -> Outcome:
    found = retrieve(question.text, index, encoder(), Scope(), 10)
    verdict = judge(found, threshold=0.5)
    return Outcome(
        question=question,
        found=tuple(
            Span(m.relative_path, m.line_start, m.line_end, m.char_count)
            for m in (hit.chunk.metadata for hit in found.hits)
        ),
        confidence=verdict.confidence,
        known=verdict.known,
        cited=tuple(
            Span(p.chunk.metadata.relative_path, p.line_start, p.line_end, len(p.text))
            for p in extract(found)
        )
        if verdict.known
        else (),
        milliseconds=0.0,
        evidence=found.evidence,
    )


def test_our_own_pages_are_found_cited_and_refused_as_well_as_ever() -> None:
    index = indexed(OWN / "corpus", sorted(path.name for path in (OWN / "corpus").iterdir()))
    figures = measure([outcome(index, question) for question in load_questions(OWN)])
    # Measured when written, each with room for two questions or so:
    # .914, .943, .933, .886, .813, .927, .903, .721, .935, 11 lines.
    assert figures["hit@1"] >= 0.85
    assert figures["hit@5"] >= 0.91
    assert figures["MRR@10"] >= 0.89
    assert figures["answered"] >= 0.82
    assert figures["refused"] >= 0.74
    assert figures["AUROC"] >= 0.90
    assert figures["first citation"] >= 0.83
    assert figures["citation precision"] >= 0.66
    assert figures["touched"] >= 0.86
    assert figures["cited lines"] <= 16


def test_the_gold_lines_of_our_own_pages_are_there() -> None:
    for question in load_questions(OWN):
        for gold in question.gold:
            lines = (OWN / "corpus" / gold.file).read_text(encoding="utf-8").split("\n")
            assert gold.end <= len(lines)
            assert any(line.strip() for line in lines[gold.start - 1 : gold.end])


@pytest.mark.shared
@pytest.mark.skipif(not SMALL.is_dir(), reason="the evaluation sets are not beside this checkout")
def test_questions_find_their_document_and_strangers_are_refused() -> None:
    index = indexed(SMALL / "corpus", SMALL_DOCUMENTS)
    # Another project's questions: none is answered by these documents.
    strangers = [
        Question(question.id, question.text, False, (), ()) for question in load_questions(STRANGERS)[:16]
    ]
    own = [question for question in load_questions(SMALL) if question.gold[0].file in SMALL_DOCUMENTS]
    figures = measure([outcome(index, question) for question in [*own, *strangers]])
    assert figures["hit@1"] >= 0.95
    assert figures["answered"] >= 0.7
    assert figures["refused"] >= 0.9
    assert figures["AUROC"] >= 0.95
    assert figures["first citation"] >= 0.95
    assert figures["cited lines"] <= 25

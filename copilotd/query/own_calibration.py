"""Calibrates the gate for another embedding model, on the user's own documents with generated questions.

A section gives a question: its heading, or some words of one of its sentences. Asked as it is, the documents
answer it; asked while its whole document is hidden, they don't, and what is found instead is a near miss. The
slopes are fitted on both. Such questions are nearer to the documents' words than a person's, so the
balanced point between them would refuse too much: it is put where :data:`ADMITTED` of the near
misses would pass. Measured with the bundled model against people's questions on three
projects: AUROC .93 to .99, where the rule on words has .87 to .94 (``benchmarks/RESULTS.md``).
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import regex as re

from copilotd.errors import UsageError
from copilotd.index.analysis import analyse, analyse_query
from copilotd.query.fitting import DENSE, fit
from copilotd.query.gate import Calibration
from copilotd.query.retrieve import retrieve
from copilotd.types import (
    BlockKind,
    DenseHit,
    Encoder,
    Float32Array,
    IndexReader,
    KeywordHit,
    Scope,
    StoredChunk,
)

FILE_NAME = "calibration.json"
QUESTIONS = 80
FEWEST = 20
"""With fewer sections that make a question, nothing is fitted."""
ADMITTED = 0.85
"""Share of the generated near misses that the balanced point lets pass."""

_TOP_K = 5
_SHORTEST = 150
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s")
_EVERYWHERE = Scope()


@dataclass(frozen=True, slots=True)
class OwnCalibration:
    """What ``calibration.json`` beside an index holds.

    Attributes:
        model: Fingerprint of the embedding model it was fitted for.
        questions: How many were generated.
        auroc: How well it tells them apart from near misses, on the questions it was fitted on.
        calibration: The coefficients.
    """

    model: str
    questions: int
    auroc: float
    calibration: Calibration


class _Hidden:
    """The index without one document; words and vectors of it are as if they weren't there."""

    def __init__(self, index: IndexReader, chunk_id: int) -> None:
        self._index = index
        self.generation = index.generation
        self._hidden = frozenset(index.neighbours(chunk_id))
        self._words = [
            frozenset(analyse("\n".join((chunk.title, *chunk.metadata.heading_path, chunk.text))))
            for chunk in index.load_chunks(sorted(self._hidden)).values()
        ]

    def chunk_count(self, scope: Scope = _EVERYWHERE) -> int:
        return max(self._index.chunk_count(scope) - len(self._hidden), 1)

    def search_vectors(self, queries: Float32Array, limit: int, scope: Scope) -> list[list[DenseHit]]:
        found = self._index.search_vectors(queries, limit + len(self._hidden), scope)
        return [[hit for hit in hits if hit.chunk_id not in self._hidden][:limit] for hits in found]

    def score_chunks(self, queries: Float32Array, chunk_ids: Sequence[int]) -> Float32Array:
        return self._index.score_chunks(queries, chunk_ids)

    def search_keywords(self, terms: Sequence[str], limit: int, scope: Scope) -> list[KeywordHit]:
        hits = self._index.search_keywords(terms, limit + len(self._hidden), scope)
        return [hit for hit in hits if hit.chunk_id not in self._hidden][:limit]

    def document_frequencies(self, terms: Sequence[str], scope: Scope = _EVERYWHERE) -> dict[str, int]:
        found = self._index.document_frequencies(terms, scope)
        return {
            term: max(0, count - sum(term in words for words in self._words)) for term, count in found.items()
        }

    def vocabulary(self) -> Mapping[str, int]:
        return self._index.vocabulary()

    def load_chunks(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        return self._index.load_chunks(chunk_ids)

    def neighbours(self, chunk_id: int) -> list[int]:
        return self._index.neighbours(chunk_id)

    def packed_tokens(self, chunk_ids: Sequence[int]) -> dict[int, bytes]:
        return self._index.packed_tokens(chunk_ids)


def calibrate(
    index: IndexReader,
    encoder: Encoder,
    chunk_ids: Sequence[int],
    step: Callable[[int, int], None] = lambda done, total: None,
) -> OwnCalibration:
    """Returns the coefficients for ``encoder`` on these documents.

    Args:
        index: One view of the index; its vectors are this encoder's.
        encoder: The embedding model.
        chunk_ids: Every chunk a question may be made of.
        step: Told how many questions are done of how many; may raise to stop.

    Raises:
        UsageError: There are too few sections to make questions of, or the model gives no token vectors.
    """
    draw = random.Random(0)  # noqa: S311 (the same questions each time)
    order = sorted(chunk_ids)
    draw.shuffle(order)
    evidence: list[Mapping[str, float]] = []
    answerable: list[bool] = []
    for chunk_id in order:
        if len(answerable) == 2 * QUESTIONS:
            break
        chunk = index.load_chunks([chunk_id]).get(chunk_id)
        question = question_of(chunk, draw) if chunk is not None else ""
        if not question:
            continue
        for view, there in ((index, True), (_Hidden(index, chunk_id), False)):
            found = retrieve(question, view, encoder, _EVERYWHERE, _TOP_K).evidence
            if "met" in found:
                evidence.append(found)
                answerable.append(there)
        step(len(answerable) // 2, QUESTIONS)
    if min(sum(answerable), len(answerable) - sum(answerable)) < FEWEST:
        raise UsageError(
            f"Calibrating takes at least {FEWEST} sections in more than one document, with their vectors.",
            "index more documents, and wait until copilot status shows none pending",
        )
    fitted = fit(evidence, answerable, DENSE)
    odds = np.array([_odds(fitted, one) for one in evidence])
    answers = np.array(answerable)
    # Odds of 0 are a confidence of 0.5.
    balanced = float(np.quantile(odds[~answers], 1 - ADMITTED))
    auroc = float((odds[answers][:, None] > odds[~answers]).mean())
    return OwnCalibration(
        encoder.fingerprint,
        len(answerable) // 2,
        round(auroc, 3),
        replace(fitted, intercept=round(fitted.intercept - balanced, 3)),
    )


def question_of(chunk: StoredChunk, draw: random.Random) -> str:
    """Returns a question that the chunk answers: its heading, or three to six words of a sentence; or nothing."""
    if len(chunk.text) < _SHORTEST:
        return ""
    heading = chunk.metadata.section_heading
    made = [heading] if sum(not word.stop for word in analyse_query(heading).words) >= 2 else []
    for block in chunk.blocks:
        if block.kind in (BlockKind.HEADING, BlockKind.CODE, BlockKind.TABLE):
            continue
        sentence = _SENTENCE_END.split(chunk.text[block.start : block.end])[0]
        words = [word.surface for word in analyse_query(sentence).words if not word.stop]
        if len(words) >= 6:
            count = draw.randint(3, 6)
            first = draw.randrange(len(words) - count + 1)
            made.append(" ".join(words[first : first + count]))
            break
    return draw.choice(made) if made else ""


def save(own: OwnCalibration, folder: Path) -> None:
    """Writes it beside the index, whole or not at all."""
    path = folder / FILE_NAME
    text = json.dumps(
        {
            "model": own.model,
            "questions": own.questions,
            "auroc": own.auroc,
            "intercept": own.calibration.intercept,
            "weights": dict(own.calibration.weights),
        },
        indent=2,
    )
    temporary = path.with_suffix(".new")
    temporary.write_text(text + "\n", encoding="utf-8")
    os.replace(temporary, path)


def load(folder: Path) -> OwnCalibration | None:
    """Returns what was saved beside the index; None where there is nothing or it can't be read."""
    try:
        raw = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        weights = {name: float(raw["weights"][name]) for name in DENSE}
        calibration = Calibration(float(raw["intercept"]), weights)
        own = OwnCalibration(str(raw["model"]), int(raw["questions"]), float(raw["auroc"]), calibration)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return own if all(map(math.isfinite, (calibration.intercept, *weights.values()))) else None


def _odds(calibration: Calibration, evidence: Mapping[str, float]) -> float:
    return calibration.intercept + sum(
        weight * evidence.get(name, 0.0) for name, weight in calibration.weights.items()
    )

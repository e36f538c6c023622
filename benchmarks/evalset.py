"""Questions with gold places, and the measures taken over them.

A set is a folder with ``corpus/`` and ``questions.jsonl``, a question a line:
``{"id", "question", "answerable", "gold": [{"file", "start_line", "end_line"}], "tags"}``; lines are
1-based and inclusive, ``file`` is relative to ``corpus/``.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAX_CHARS = 2500
MAX_LINES = 80
"""A longer hit or citation earns nothing, or the best answer would be the whole book."""


@dataclass(frozen=True, slots=True)
class Span:
    """Lines of a file that answer, or that were cited.

    Attributes:
        file: Path relative to the corpus.
        start: First line.
        end: Last line.
        chars: How long the text is; 0 where it doesn't matter (gold).
    """

    file: str
    start: int
    end: int
    chars: int = 0

    @property
    def lines(self) -> int:
        """How many lines it covers."""
        return self.end - self.start + 1

    def hits(self, gold: Iterable[Span]) -> bool:
        """Whether it is short enough to count and overlaps one of the gold spans."""
        if self.chars > MAX_CHARS or self.lines > MAX_LINES:
            return False
        return any(g.file == self.file and g.start <= self.end and g.end >= self.start for g in gold)


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a set."""

    id: str
    text: str
    answerable: bool
    gold: tuple[Span, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the product said to one question.

    Attributes:
        question: The question.
        found: The hits in order, best first.
        confidence: Calibrated probability that they answer.
        known: Whether an answer was given.
        cited: The citations in order; empty where there is none.
        milliseconds: How long retrieval took.
        evidence: What the confidence was computed from.
    """

    question: Question
    found: tuple[Span, ...]
    confidence: float
    known: bool
    cited: tuple[Span, ...]
    milliseconds: float
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """Position of the first hit, from 1; 0 where none hits."""
        gold = self.question.gold
        return next((rank for rank, span in enumerate(self.found, 1) if span.hits(gold)), 0)


def load_questions(folder: Path) -> list[Question]:
    """Reads ``questions.jsonl`` of a set."""
    questions = []
    for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        gold = tuple(Span(g["file"], g["start_line"], g["end_line"]) for g in raw["gold"])
        tags = tuple(raw.get("tags") or ())
        questions.append(Question(raw["id"], raw["question"], raw["answerable"], gold, tags))
    return questions


def _share(values: Iterable[bool]) -> float:
    flags = list(values)
    return sum(flags) / len(flags) if flags else float("nan")


def _answerable(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.question.answerable]


def _answered(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in _answerable(outcomes) if outcome.known]


def _hit_at(k: int) -> Callable[[Sequence[Outcome]], float]:
    return lambda outcomes: _share(1 <= o.rank <= k for o in _answerable(outcomes))


def _reciprocal_rank(outcomes: Sequence[Outcome]) -> float:
    ranks = [outcome.rank for outcome in _answerable(outcomes)]
    return sum(1 / rank for rank in ranks if 1 <= rank <= 10) / len(ranks) if ranks else float("nan")


def _auroc(outcomes: Sequence[Outcome]) -> float:
    yes = [o.confidence for o in outcomes if o.question.answerable]
    no = [o.confidence for o in outcomes if not o.question.answerable]
    if not yes or not no:
        return float("nan")
    return sum((a > b) + 0.5 * (a == b) for a in yes for b in no) / (len(yes) * len(no))


def _first_citation(outcomes: Sequence[Outcome]) -> float:
    return _share(bool(o.cited) and o.cited[0].hits(o.question.gold) for o in _answered(outcomes))


def _citation_precision(outcomes: Sequence[Outcome]) -> float:
    return _share(span.hits(o.question.gold) for o in _answered(outcomes) for span in o.cited)


def _touched(outcomes: Sequence[Outcome]) -> float:
    return _share(any(span.hits(o.question.gold) for span in o.cited) for o in _answered(outcomes))


def _cited_lines(outcomes: Sequence[Outcome]) -> float:
    lines = [sum(span.lines for span in o.cited) for o in _answered(outcomes)]
    return statistics.median(lines) if lines else float("nan")


def _percentile(share: float) -> Callable[[Sequence[Outcome]], float]:
    def measure(outcomes: Sequence[Outcome]) -> float:
        times = sorted(outcome.milliseconds for outcome in outcomes)
        return times[min(int(len(times) * share), len(times) - 1)] if times else float("nan")

    return measure


MEASURES: dict[str, Callable[[Sequence[Outcome]], float]] = {
    "hit@1": _hit_at(1),
    "hit@5": _hit_at(5),
    "MRR@10": _reciprocal_rank,
    "answered": lambda outcomes: _share(o.known for o in _answerable(outcomes)),
    "refused": lambda outcomes: _share(not o.known for o in outcomes if not o.question.answerable),
    "AUROC": _auroc,
    "first citation": _first_citation,
    "citation precision": _citation_precision,
    "touched": _touched,
    "cited lines": _cited_lines,
    "p50 ms": _percentile(0.5),
    "p95 ms": _percentile(0.95),
}
"""Every measure by name. Shares of citations are over the answered answerable questions."""


def measure(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Returns every measure over one set."""
    return {name: function(outcomes) for name, function in MEASURES.items()}


def mean(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns each measure's mean over sets, each set with the same weight; NaN is left out."""
    means = {}
    for name in figures[0]:
        values = [row[name] for row in figures if row[name] == row[name]]
        means[name] = statistics.fmean(values) if values else float("nan")
    return means


def interval(
    outcomes: Sequence[Sequence[Outcome]], *, rounds: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Returns each measure's 95 % bootstrap interval for the mean over the sets.

    Args:
        outcomes: One sequence a set; questions are drawn again within their set.
        rounds: How many draws.
        seed: Makes the draws repeatable.
    """
    draw = random.Random(seed)
    drawn = [mean([measure(draw.choices(one, k=len(one))) for one in outcomes]) for _ in range(rounds)]
    bounds = {}
    for name in MEASURES:
        values = sorted(row[name] for row in drawn)
        bounds[name] = (values[int(rounds * 0.025)], values[int(rounds * 0.975) - 1])
    return bounds

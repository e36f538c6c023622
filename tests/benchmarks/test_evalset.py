"""The measures of the question sets, on outcomes small enough to count by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from calibrate import fit, left_out
from evalset import Outcome, Question, Span, interval, load_questions, mean, measure

GOLD = Span("a.md", 10, 12)
RIGHT = Span("a.md", 12, 14, 100)
WRONG = Span("a.md", 13, 14, 100)


def outcome(
    *found: Span, confidence: float = 0.9, cited: tuple[Span, ...] = (), answerable: bool = True
) -> Outcome:
    question = Question("q", "?", answerable, (GOLD,) if answerable else (), ())
    evidence = {"cosine": confidence}
    return Outcome(question, found, confidence, confidence >= 0.5, cited, 1.0, evidence)


@pytest.mark.parametrize(
    ("span", "hits"),
    [
        (RIGHT, True),
        (WRONG, False),
        (Span("b.md", 10, 12), False),
        (Span("a.md", 1, 80), True),
        (Span("a.md", 1, 81), False),
        (Span("a.md", 12, 12, 2500), True),
        (Span("a.md", 12, 12, 2501), False),
    ],
)
def test_a_hit_overlaps_gold_and_is_short(span: Span, hits: bool) -> None:
    assert span.hits([GOLD]) is hits


def test_measures_by_hand() -> None:
    figures = measure(
        [
            outcome(RIGHT, cited=(RIGHT, WRONG)),
            outcome(WRONG, RIGHT, cited=(WRONG,)),
            outcome(WRONG, confidence=0.2, cited=(RIGHT,)),
            outcome(RIGHT, confidence=0.1, answerable=False),
            outcome(RIGHT, confidence=0.6, answerable=False),
        ]
    )
    assert figures["hit@1"] == pytest.approx(1 / 3)
    assert figures["hit@5"] == pytest.approx(2 / 3)
    assert figures["MRR@10"] == pytest.approx(0.5)
    assert figures["answered"] == pytest.approx(2 / 3)
    assert figures["refused"] == 0.5
    assert figures["AUROC"] == pytest.approx(5 / 6)
    assert figures["first citation"] == 0.5
    assert figures["citation precision"] == pytest.approx(1 / 3)
    assert figures["touched"] == 0.5
    assert figures["cited lines"] == 3.5


def test_a_set_without_unanswerable_questions_leaves_gaps_that_a_mean_skips() -> None:
    half = measure([outcome(RIGHT), outcome(WRONG)])
    whole = measure([outcome(RIGHT), outcome(confidence=0.1, answerable=False)])
    assert half["AUROC"] != half["AUROC"]
    assert mean([half, whole])["AUROC"] == 1.0
    assert mean([half, whole])["hit@1"] == 0.75


def test_the_interval_holds_the_figure() -> None:
    outcomes = [[outcome(RIGHT)] * 6 + [outcome(WRONG)] * 4]
    low, high = interval(outcomes, rounds=200)["hit@1"]
    assert low < 0.6 < high


def test_questions_are_read(tmp_path: Path) -> None:
    raw = {
        "id": "x",
        "question": "Why?",
        "answerable": True,
        "gold": [{"file": "a.md", "start_line": 10, "end_line": 12, "text": "…"}],
        "tags": None,
    }
    (tmp_path / "questions.jsonl").write_text(json.dumps(raw) + "\n", encoding="utf-8")
    assert load_questions(tmp_path) == [Question("x", "Why?", True, (GOLD,), ())]


def test_the_fit_tells_what_can_be_told_apart() -> None:
    outcomes = [outcome(confidence=n / 20, answerable=n > 10) for n in range(21)]
    calibration = fit(outcomes, ("cosine", "coverage"))
    assert calibration.weights["cosine"] > 0
    # No feature, no weight; the balanced point lies between the classes.
    assert calibration.weights["coverage"] == 0
    assert calibration.probability({"cosine": 0.2}) < 0.5 < calibration.probability({"cosine": 0.9})
    rows = left_out({"one": outcomes, "two": outcomes}, ("cosine",))
    assert rows["mean"]["AUROC"] == 1.0

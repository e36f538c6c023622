"""The gate: a probability from raw evidence, the seed's sentence, and the rule without vectors."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.gate import handle_below_threshold, judge, load_calibrations
from copilotd.query.retrieve import retrieve
from copilotd.types import ConfidenceLevel, Hit, Retrieval, Scope

CALIBRATED = load_calibrations().model
STRONG = {
    "cosine": 0.8,
    "met": 0.7,
    "missing": 0.1,
    "lead": 0.1,
    "margin": 0.4,
    "coverage": 1.0,
    "rarest_held": 1.0,
    "known": 1.0,
    "asked": 0.8,
}
WEAK = {
    "cosine": 0.15,
    "met": 0.3,
    "missing": 0.6,
    "lead": -0.15,
    "margin": 0.02,
    "coverage": 0.1,
    "rarest_held": 0.0,
    "known": 0.4,
    "asked": 1.0,
}


@pytest.fixture(scope="module")
def hits() -> tuple[Hit, ...]:
    index = MemoryIndex(HashingEncoder())
    document = parse_file("g.md", b"# Kiln\n\nThe kiln is fired.\n")
    index.add(
        document, chunk_document(document, source_file="/g.md", relative_path="g.md", last_modified=1.0)
    )
    return retrieve("kiln", index, HashingEncoder(), Scope(), 5).hits


def found(hits: tuple[Hit, ...], evidence: dict[str, float], **changes: object) -> Retrieval:
    fields = {
        "query": "q",
        "hits": hits,
        "top_score": evidence["cosine"],
        "evidence": evidence,
        "model": CALIBRATED,
    }
    return Retrieval(**{**fields, **changes})  # type: ignore[arg-type]


def test_strong_evidence_is_known_and_weak_is_not(hits: tuple[Hit, ...]) -> None:
    strong = judge(found(hits, STRONG), threshold=0.5, min_score=0.0)
    weak = judge(found(hits, WEAK), threshold=0.5, min_score=0.0)
    assert (strong.known, strong.level) == (True, ConfidenceLevel.HIGH)
    assert (weak.known, weak.level) == (False, ConfidenceLevel.INSUFFICIENT)
    assert 0 < weak.confidence < 0.1 < 0.9 < strong.confidence < 1
    assert "cosine 0.80" in strong.reason


def test_the_threshold_is_compared_with_the_confidence(hits: tuple[Hit, ...]) -> None:
    confidence = judge(found(hits, STRONG), threshold=0.5).confidence
    assert judge(found(hits, STRONG), threshold=confidence).known
    assert not judge(found(hits, STRONG), threshold=confidence + 1e-6).known
    assert judge(found(hits, WEAK), threshold=0.0).known


def test_levels_between(hits: tuple[Hit, ...]) -> None:
    steps = [
        found(hits, WEAK | {"known": 1.0, "met": n / 500, "missing": 0.6 - n / 1000}) for n in range(500)
    ]
    middling = min(steps, key=lambda step: abs(judge(step, threshold=0.0).confidence - 0.55))
    confidence = judge(middling, threshold=0.0).confidence
    assert confidence == pytest.approx(0.55, abs=0.04)
    # Halfway between the threshold and certainty an answer becomes "high".
    assert judge(middling, threshold=confidence - 0.01).level is ConfidenceLevel.PARTIAL
    assert judge(middling, threshold=max(0.0, 2 * confidence - 1.01)).level is ConfidenceLevel.HIGH


def test_min_score_is_a_floor_on_the_cosine(hits: tuple[Hit, ...]) -> None:
    verdict = judge(found(hits, STRONG), threshold=0.5, min_score=0.9)
    assert not verdict.known
    assert verdict.level is ConfidenceLevel.INSUFFICIENT
    assert "MIN_SCORE" in verdict.reason


def test_no_hit_is_no_evidence() -> None:
    verdict = judge(found((), STRONG), threshold=0.0)
    assert (verdict.known, verdict.confidence) == (False, 0.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dense": False, "model": ""}, "vectors are not ready"),
        ({"model": "other-model"}, "not calibrated for other-model"),
    ],
)
def test_the_plain_rule_without_calibrated_vectors(
    hits: tuple[Hit, ...], changes: dict[str, object], why: str
) -> None:
    strong = judge(found(hits, STRONG, **changes), threshold=0.5)
    weak = judge(found(hits, WEAK, **changes), threshold=0.5)
    assert strong.known
    assert not weak.known
    assert why in strong.reason
    # Cosines of a model it wasn't fitted for say nothing.
    cosines = {"cosine": 0.0, "met": 0.0, "missing": 1.0, "lead": -1.0, "margin": 0.0}
    assert judge(found(hits, STRONG | cosines, **changes), threshold=0.5).confidence == strong.confidence


def test_a_passage_without_vectors_for_its_words_is_judged_by_words(hits: tuple[Hit, ...]) -> None:
    evidence = {name: value for name, value in STRONG.items() if "met" not in name}
    verdict = judge(found(hits, evidence), threshold=0.5)
    assert verdict.known
    assert "no vectors for the question's words" in verdict.reason


@given(st.dictionaries(st.sampled_from(sorted(STRONG)), st.floats(-5, 5)))
def test_a_probability_stays_one(evidence: dict[str, float]) -> None:
    calibrations = load_calibrations()
    for calibration in (calibrations.dense, calibrations.words):
        assert 0 <= calibration.probability(evidence) <= 1


def test_more_of_any_evidence_never_lowers_the_probability() -> None:
    calibrations = load_calibrations()
    for calibration in (calibrations.dense, calibrations.words):
        lowers = {name for name, weight in calibration.weights.items() if weight < 0}
        assert lowers <= {"missing"}


def test_the_coefficients_say_where_they_come_from() -> None:
    raw = json.loads(
        resources.files("copilotd.query").joinpath("calibration.json").read_text(encoding="utf-8")
    )
    assert {"date", "data", "scores", "model", "dense", "words"} <= raw.keys()


def test_the_seeds_sentence() -> None:
    assert handle_below_threshold("Why?", 0.3, 0.5) == (
        "I don't have enough information to answer 'Why?'. The documentation may not cover this topic."
    )
    assert handle_below_threshold("Why?", 0.5, 0.5) is None


def test_a_bare_name_that_stands_everywhere_is_never_sure(hits: tuple[Hit, ...]) -> None:
    verdict = judge(found(hits, STRONG | {"asked": 0.1}), threshold=0.5)
    assert (verdict.known, verdict.level) == (True, ConfidenceLevel.PARTIAL)
    assert verdict.confidence <= 0.6
    assert "everywhere" in verdict.reason

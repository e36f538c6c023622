"""The parts of a score, in words."""

from __future__ import annotations

from copilot_client.explain import explanation
from copilot_client.terminal import Style

PLAIN = Style()


def test_each_hit_shows_its_parts() -> None:
    result = {
        "confidence": 0.934,
        "confidence_level": "high",
        "corrections": {"databse": "databas"},
        "hits": [
            {
                "score": 0.44,
                "scores": {"dense": 0.5, "lexical": 9.81},
                "details": {
                    "dense": 0.1,
                    "words": 0.06,
                    "heading": 0.02,
                    "stub": -0.01,
                    "phrase": 0.0,
                    "late": 0.27,
                },
            },
            {"score": 0.3, "scores": {"dense": None, "lexical": 9.0}, "details": {"words": 0.3}},
        ],
    }
    assert explanation(result, PLAIN) == [
        "Why",
        "   confidence 0.93 (high)",
        "   databse: not in the documents, searched as databas",
        "1. 0.440 = dense 0.100 (cosine 0.500) + words 0.060 (BM25 9.8) + heading 0.020 - stub 0.010 + late 0.270",
        "2. 0.300 = no vector yet + words 0.300 (BM25 9.0)",
    ]


def test_what_an_older_daemon_leaves_out_is_left_out() -> None:
    assert explanation({"hits": [{"score": 1}]}, PLAIN) == ["Why", "1. 1.000 = no vector yet"]


def test_nothing_found_needs_no_explanation_of_hits() -> None:
    assert explanation({"confidence": 0.0, "confidence_level": "insufficient"}, PLAIN) == [
        "Why",
        "   confidence 0.00 (insufficient)",
    ]

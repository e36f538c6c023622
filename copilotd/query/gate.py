"""Decides whether the passages found answer the question, as a calibrated probability.

The probability comes from raw evidence, never from rank-fused scores: those say which passage is
best, not whether the best is good. The features, all from :attr:`Retrieval.evidence`:

================  ==============================================================================
``met``           how near the first passage's nearest words are to the deciding words of the question:
                  cosines of late interaction, rare words counting more
``missing``       what the first passage leaves unmet of a word, on average, a rare word's lack
                  weighing more: 0 where all are met or stand everywhere, towards 1 for strange words
``lead``          how much nearer the first passage's words are than the nearest words of any candidate
                  from the fifth on: a passage that answers stands out from its background
``margin``        cosine of the first passage above the candidates' median
``known``         share of the question's words that the corpus holds anywhere
``coverage``      rarity-weighted share of the question's words in the first passage; a word that
                  the corpus doesn't know weighs most; 0 for a question of common words only
``rarest_held``   1 where the first passage holds every word of the question, 0 where it lacks one
                  that the corpus doesn't know
``asked``         rarity, 0..1, of the rarest of the question's words
================  ==============================================================================

``calibration.json`` holds a logistic regression over them, fitted by ``benchmarks/calibrate.py``
with whole projects left out, both classes weighing the same, so that 0.5 is the balanced point. It
holds a second one without the cosines, whose scale depends on the embedding model: the rule for
another model, and for words alone while it loads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from copilotd.types import ConfidenceLevel, Retrieval, Verdict

_RARE = 0.4
"""Below this ``rarest_held`` means a missing word that stands in few places or none."""
_BARE = 0.3
"""Below this ``asked`` means that every word stands in a tenth of the passages or more: a product's name."""
_BARE_CONFIDENCE = 0.6
"""No more for such a question: many passages match it, and which one was meant it doesn't say."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic regression.

    Attributes:
        intercept: Log odds where every feature is 0.
        weights: Log odds a unit of each feature.
    """

    intercept: float
    weights: Mapping[str, float]

    def probability(self, evidence: Mapping[str, float]) -> float:
        """Returns the probability, 0..1, that passages with this evidence answer the question."""
        odds = self.intercept + sum(weight * evidence.get(name, 0.0) for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-max(-40.0, min(40.0, odds))))


@dataclass(frozen=True, slots=True)
class Calibrations:
    """What ``calibration.json`` holds.

    Attributes:
        model: Name of the embedding model that ``dense`` was fitted for.
        dense: With cosines.
        words: Without it, for every other case.
    """

    model: str
    dense: Calibration
    words: Calibration


@cache
def load_calibrations() -> Calibrations:
    """Reads the fitted coefficients that come with the product."""
    raw = json.loads(resources.files(__package__).joinpath("calibration.json").read_text(encoding="utf-8"))
    return Calibrations(
        model=raw["model"],
        dense=Calibration(raw["dense"]["intercept"], raw["dense"]["weights"]),
        words=Calibration(raw["words"]["intercept"], raw["words"]["weights"]),
    )


def judge(
    retrieval: Retrieval, *, threshold: float, min_score: float = 0.0, own: Calibration | None = None
) -> Verdict:
    """Returns whether the hits answer the question.

    Args:
        retrieval: Hits and evidence.
        threshold: CONFIDENCE_THRESHOLD; below it the question is refused.
        min_score: A floor on the best cosine (the seed's meaning of a score); 0 sets none.
        own: Coefficients fitted for the user's embedding model by ``copilot calibrate``; None where there are none.
    """
    if not retrieval.hits:
        return Verdict(False, 0.0, ConfidenceLevel.INSUFFICIENT, "no passage was found")
    calibrations = load_calibrations()
    dense = calibrations.dense if retrieval.model == calibrations.model else own
    fitted = dense is not None and "met" in retrieval.evidence
    calibration = dense if dense is not None and fitted else calibrations.words
    confidence = calibration.probability(retrieval.evidence)
    if retrieval.evidence.get("asked", 1.0) < _BARE:
        confidence = min(confidence, _BARE_CONFIDENCE)
    reason = _reason(retrieval, "" if fitted else _why_not_fitted(retrieval, dense is not None))
    if retrieval.dense and retrieval.top_score < min_score:
        return Verdict(
            False,
            confidence,
            ConfidenceLevel.INSUFFICIENT,
            f"best cosine {retrieval.top_score:.2f} is below MIN_SCORE {min_score:.2f}; {reason}",
            retrieval.evidence,
        )
    known = confidence >= threshold
    return Verdict(known, confidence, _level(confidence, threshold), reason, retrieval.evidence)


def handle_below_threshold(query: str, top_score: float, threshold: float) -> str | None:
    """Returns the sentence that is shown instead of an answer, or None at or above the threshold.

    Args:
        query: The question.
        top_score: How sure we are that it is answered; the product passes its calibrated confidence.
        threshold: CONFIDENCE_THRESHOLD.
    """
    if top_score >= threshold:
        return None
    return f"I don't have enough information to answer '{query}'. The documentation may not cover this topic."


def _level(confidence: float, threshold: float) -> ConfidenceLevel:
    if confidence < threshold:
        return ConfidenceLevel.INSUFFICIENT
    # Halfway between the threshold and certainty: 0.75 at the default.
    return ConfidenceLevel.HIGH if confidence >= (1 + threshold) / 2 else ConfidenceLevel.PARTIAL


def _why_not_fitted(retrieval: Retrieval, calibrated: bool) -> str:
    if not retrieval.dense:
        return "vectors are not ready"
    if not calibrated:
        return f"not calibrated for {retrieval.model}, see copilot calibrate"
    return "the model gives no vectors for the question's words"


def _reason(retrieval: Retrieval, why_not_fitted: str) -> str:
    evidence = retrieval.evidence
    parts = [f"words covered {evidence.get('coverage', 0.0):.0%}"]
    if "met" in evidence:
        parts[:0] = [f"words met {evidence['met']:.2f}", f"lead {evidence['lead']:+.2f}"]
    if retrieval.dense:
        parts.insert(0, f"cosine {evidence.get('cosine', 0.0):.2f}")
    if evidence.get("coverage", 0.0) > 0 and evidence.get("rarest_held", 1.0) < _RARE:
        parts.append("a rare word of the question is missing")
    if evidence.get("asked", 1.0) < _BARE:
        parts.append("its words stand nearly everywhere")
    if why_not_fitted:
        parts.append(f"plain rule on words: {why_not_fitted}")
    return ", ".join(parts)

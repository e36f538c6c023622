"""Fits the gate: a logistic regression of "the question can be answered" on the evidence.

Both classes weigh the same, so that a confidence of 0.5 is the balanced point whatever share of the
questions can be answered; weights are regularised (ridge on standardised features) and never have the wrong
sign: more evidence never lowers confidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from copilotd.query.gate import Calibration

DENSE = ("met", "missing", "lead", "margin", "known")
WORDS = ("coverage", "known")
LOWERS = {"missing"}
"""Features of which more means less confidence."""
_RIDGE = 2.0

_Array = NDArray[np.float64]


def fit(
    evidence: Sequence[Mapping[str, float]], answerable: Sequence[bool], features: Sequence[str]
) -> Calibration:
    """Returns the coefficients for ``features``.

    Args:
        evidence: What was found for each question.
        answerable: Whether it answers; both must occur.
        features: Names of the evidence to use.
    """
    known = np.array(answerable, np.float64)
    raw = np.array([[one.get(name, 0.0) for name in features] for one in evidence], np.float64)
    middle, spread = raw.mean(axis=0), raw.std(axis=0) + 1e-9
    sign = np.array([-1.0 if name in LOWERS else 1.0 for name in features])
    scaled = sign * (raw - middle) / spread
    kept = list(range(len(features)))
    while True:
        solution = _newton(scaled[:, kept], known)
        negative = [i for i in range(len(kept)) if solution[i + 1] < 0]
        if not negative:
            break
        kept.pop(min(negative, key=lambda i: solution[i + 1]))
    weights = np.zeros(len(features))
    weights[kept] = solution[1:]
    weights *= sign
    intercept = float(solution[0] - (weights * middle / spread).sum())
    named = {name: round(float(w), 3) for name, w in zip(features, weights / spread, strict=True)}
    return Calibration(round(intercept, 3), named)


def _newton(scaled: _Array, known: _Array) -> _Array:
    """Solves the ridge-penalised, class-balanced logistic regression; the first number is the intercept."""
    share = known.mean()
    balance = np.where(known > 0.5, 0.5 / share, 0.5 / (1 - share))
    design = np.hstack([np.ones((len(scaled), 1)), scaled])
    penalty = _RIDGE * np.eye(design.shape[1])
    penalty[0, 0] = 0.0
    solution = np.zeros(design.shape[1])
    for _ in range(50):
        # Far outside this range the step would overflow, and the answer is as sure as it gets.
        expected = 1 / (1 + np.exp(-np.clip(design @ solution, -40, 40)))
        slope = design.T @ (balance * (expected - known)) + penalty @ solution
        curve = (design.T * (balance * expected * (1 - expected))) @ design + penalty
        solution = solution - np.linalg.solve(curve, slope)
    return np.asarray(solution, np.float64)

"""Fits the gate's coefficients on question sets, and says how they do on a project they never saw.

    python benchmarks/calibrate.py SET SET... [--index-dir DIR] [--write]

Each set is left out once: the coefficients are fitted on the others and measured on it. Those that are written to
``copilotd/query/calibration.json`` are then fitted on all. Both classes weigh the same, so that a
confidence of 0.5 is the balanced point whatever share of the questions can be answered; weights are
regularised (ridge on standardised features) and never have the wrong sign: more evidence never lowers
confidence.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from evalset import Outcome, mean, measure
from numpy.typing import NDArray
from quality import collect, table

from copilotd.embed.models import BUNDLED_NAME
from copilotd.query.gate import Calibration

FEATURES = {
    "dense": ("met", "missing", "lead", "margin", "known"),
    "words": ("coverage", "known"),
}
LOWERS = {"missing"}
"""Features of which more means less confidence."""
RIDGE = 2.0
_SHOWN = ("answered", "refused", "AUROC")
_TARGET = Path(__file__).resolve().parents[1] / "copilotd" / "query" / "calibration.json"

Array = NDArray[np.float64]


def fit(outcomes: Sequence[Outcome], features: Sequence[str]) -> Calibration:
    """Returns the logistic regression of "the question can be answered" on the features."""
    known = np.array([float(outcome.question.answerable) for outcome in outcomes])
    raw = np.array([[outcome.evidence.get(name, 0.0) for name in features] for outcome in outcomes])
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


def _newton(scaled: Array, known: Array) -> Array:
    """Solves the ridge-penalised, class-balanced logistic regression; the first number is the intercept."""
    share = known.mean()
    balance = np.where(known > 0.5, 0.5 / share, 0.5 / (1 - share))
    design = np.hstack([np.ones((len(scaled), 1)), scaled])
    penalty = RIDGE * np.eye(design.shape[1])
    penalty[0, 0] = 0.0
    solution = np.zeros(design.shape[1])
    for _ in range(50):
        expected = 1 / (1 + np.exp(-design @ solution))
        slope = design.T @ (balance * (expected - known)) + penalty @ solution
        curve = (design.T * (balance * expected * (1 - expected))) @ design + penalty
        solution = solution - np.linalg.solve(curve, slope)
    return np.asarray(solution, np.float64)


def judged(outcomes: Sequence[Outcome], calibration: Calibration, threshold: float = 0.5) -> list[Outcome]:
    """Returns the outcomes as these coefficients would have judged them."""
    confidences = [calibration.probability(outcome.evidence) for outcome in outcomes]
    return [
        replace(outcome, confidence=confidence, known=confidence >= threshold)
        for outcome, confidence in zip(outcomes, confidences, strict=True)
    ]


def left_out(sets: Mapping[str, Sequence[Outcome]], features: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns the measures of each set under coefficients fitted on the others."""
    rows = {}
    for name, held_out in sets.items():
        others = [outcome for other, outcomes in sets.items() if other != name for outcome in outcomes]
        figures = measure(judged(held_out, fit(others, features)))
        rows[name] = {key: figures[key] for key in _SHOWN}
    rows["mean"] = mean(list(rows.values()))
    return rows


def main() -> None:
    """Fits, prints and, when asked, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET")
    parser.add_argument("--index-dir", type=Path, help="keep the index here for the next run")
    parser.add_argument("--write", action="store_true", help="write calibration.json")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    folders = [folder.resolve() for folder in arguments.sets]
    if len(folders) < 2:
        sys.exit("Leaving a set out takes two at least.")
    outcomes = collect(folders, arguments.index_dir)
    sets = {folder.name: one for folder, one in zip(folders, outcomes, strict=True)}
    written: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "data": {
            name: {
                "answerable": sum(outcome.question.answerable for outcome in one),
                "unanswerable": sum(not outcome.question.answerable for outcome in one),
            }
            for name, one in sets.items()
        },
        "model": BUNDLED_NAME,
        "scores": {},
    }
    for name, features in FEATURES.items():
        scores = left_out(sets, features)
        calibration = fit([outcome for one in outcomes for outcome in one], features)
        print(f"{name}: each set left out\n{table(scores)}\n")
        for threshold in (0.3, 0.5, 0.7):
            figures = mean([measure(judged(one, calibration, threshold)) for one in outcomes])
            print(f"  fitted on all, at {threshold}: " + ", ".join(f"{k} {figures[k]:.3f}" for k in _SHOWN))
        written["scores"][name] = {
            label: {key: round(value, 3) for key, value in row.items()} for label, row in scores.items()
        }
        written[name] = {"intercept": calibration.intercept, "weights": dict(calibration.weights)}
    if arguments.write:
        _TARGET.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

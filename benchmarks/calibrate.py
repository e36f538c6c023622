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

from evalset import Outcome, mean, measure
from quality import collect, table

from copilotd.embed.models import BUNDLED_NAME
from copilotd.query.fitting import DENSE, WORDS
from copilotd.query.fitting import fit as fit_evidence
from copilotd.query.gate import Calibration

FEATURES: dict[str, tuple[str, ...]] = {"dense": DENSE, "words": WORDS}
_SHOWN = ("answered", "refused", "AUROC")
_TARGET = Path(__file__).resolve().parents[1] / "copilotd" / "query" / "calibration.json"


def fit(outcomes: Sequence[Outcome], features: Sequence[str]) -> Calibration:
    """Returns the logistic regression of "the question can be answered" on the features."""
    return fit_evidence(
        [outcome.evidence for outcome in outcomes],
        [outcome.question.answerable for outcome in outcomes],
        features,
    )


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

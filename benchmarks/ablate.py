"""What each part of ranking and gate is worth: every part left out in turn, on the same index.

    python benchmarks/ablate.py SET SET... [--index-dir DIR]

The first table leaves out parts of the ranking and puts two simpler rankings beside it: cosine alone, and the third
seed's formula, 0.6 · term frequency + 0.3 · phrase + 0.1 · heading. The second leaves out features of the gate;
each set is judged by coefficients that were fitted on the others.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from calibrate import FEATURES, left_out
from evalset import Outcome, Question, Span, load_questions, mean, measure
from quality import product, table

from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import BUNDLED_NAME, locate_model
from copilotd.index.analysis import analyse, analyse_query
from copilotd.index.store import Store
from copilotd.query.retrieve import WEIGHTS, Weights, retrieve
from copilotd.types import Float32Array, Scope, StoredChunk, TokenEncoder, TokenVectors

_HITS = 10
_SHOWN = ("hit@1", "hit@5", "MRR@10")
_EVERYWHERE = Scope()

_ONLY_COSINE = Weights(lexical=0.0, heading=0.0, late=0.0, length=0.0, stub=0.0)
RANKINGS: dict[str, Weights | None] = {
    "all parts": WEIGHTS,
    "without words (BM25)": replace(WEIGHTS, lexical=0.0),
    "without headings": replace(WEIGHTS, heading=0.0),
    "without late interaction": replace(WEIGHTS, late=0.0, length=0.0),
    "without length": replace(WEIGHTS, length=0.0),
    "without stubs": replace(WEIGHTS, stub=0.0),
    "cosine of the best window alone": _ONLY_COSINE,
    "words alone, no vectors": None,
}


class Remembering:
    """An encoder that embeds each question once, whatever number of rankings ask for it."""

    def __init__(self, encoder: TokenEncoder) -> None:
        self.name, self.fingerprint = encoder.name, encoder.fingerprint
        self.dimension, self.max_tokens = encoder.dimension, encoder.max_tokens
        self._encoder = encoder
        self._known: dict[tuple[str, ...], tuple[Float32Array, list[TokenVectors]]] = {}

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Returns the vectors of ``texts``."""
        return self.encode_tokens(texts)[0]

    def encode_tokens(self, texts: Sequence[str]) -> tuple[Float32Array, list[TokenVectors]]:
        """Returns the vectors of ``texts`` and of their tokens."""
        key = tuple(texts)
        if key not in self._known:
            self._known[key] = self._encoder.encode_tokens(texts)
        vectors, tokens = self._known[key]
        return vectors.copy(), list(tokens)


def seed_formula(query: str, chunk: StoredChunk) -> float:
    """Returns the third seed's score: 0.6 · term frequency + 0.3 · phrase + 0.1 · heading, each 0..1.

    The seed leaves the parts open. Term frequency: each word's count among the chunk's words, which is
    saturated at three; phrase: the share of neighbouring words that stand side by side; heading: the share of
    words that the headings hold.
    """
    terms = analyse_query(query)
    tokens = terms.tokens
    if not tokens:
        return 0.0
    body = analyse(chunk.text)
    pairs = set(pairwise(body))
    heading = set(analyse(" ".join((chunk.title, *chunk.metadata.heading_path))))
    frequency = sum(min(body.count(token), 3) / 3 for token in tokens) / len(tokens)
    phrase = sum(pair in pairs for pair in terms.phrases) / len(terms.phrases) if terms.phrases else 0.0
    return 0.6 * frequency + 0.3 * phrase + 0.1 * sum(token in heading for token in tokens) / len(tokens)


def outcome(question: Question, chunks: Sequence[StoredChunk], evidence: dict[str, float]) -> Outcome:
    """Returns what a ranking found, for the measures of retrieval."""
    found = tuple(
        Span(
            chunk.metadata.relative_path, chunk.metadata.line_start, chunk.metadata.line_end, len(chunk.text)
        )
        for chunk in chunks
    )
    return Outcome(question, found, 0.0, False, (), 0.0, evidence)


def by_formula(everything: Sequence[StoredChunk]) -> Callable[[Question], Outcome]:
    """Returns the ranking of the third seed's formula over every chunk."""

    def ask(question: Question) -> Outcome:
        ranked = sorted(everything, key=lambda chunk: (-seed_formula(question.text, chunk), chunk.id))
        return outcome(question, ranked[:_HITS], {})

    return ask


def run(folder: Path, index_dir: Path, encoder: Remembering) -> dict[str, list[Outcome]]:
    """Returns the outcomes of every ranking over one set."""
    with product(index_dir) as running:
        print(running.add(folder), file=sys.stderr)
    store = Store(index_dir)
    outcomes: dict[str, list[Outcome]] = {}
    try:
        store.load_vectors(store.planner)
        with store.read() as view:
            questions = load_questions(folder)
            for name, weights in RANKINGS.items():
                model = None if weights is None else encoder
                found = [retrieve(q.text, view, model, _EVERYWHERE, _HITS, weights) for q in questions]
                outcomes[name] = [
                    outcome(question, [hit.chunk for hit in one.hits], dict(one.evidence))
                    for question, one in zip(questions, found, strict=True)
                ]
            ids = [row[0] for row in view.connection.execute("SELECT id FROM chunks ORDER BY id")]
            ask = by_formula(list(view.load_chunks(ids).values()))
            outcomes["third seed's formula"] = [ask(question) for question in questions]
    finally:
        store.close()
    return outcomes


def main() -> None:
    """Runs every ranking over every set and prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET")
    parser.add_argument("--index-dir", type=Path, help="keep the index here for the next run")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    loaded = load_encoder(locate_model(BUNDLED_NAME))
    assert isinstance(loaded, TokenEncoder)
    encoder = Remembering(loaded)
    folders = [folder.resolve() for folder in arguments.sets]
    with tempfile.TemporaryDirectory(prefix="copilot-ablate-") as temporary:
        base = arguments.index_dir or Path(temporary)
        sets = {folder.name: run(folder, base / folder.name, encoder) for folder in folders}
    rows = {}
    for name in next(iter(sets.values())):
        figures = mean([measure(outcomes[name]) for outcomes in sets.values()])
        rows[name] = {key: figures[key] for key in _SHOWN}
    print(f"Ranking, mean of {', '.join(sets)}\n\n{table(rows)}\n")
    if len(sets) < 2:
        return
    own = {name: outcomes["all parts"] for name, outcomes in sets.items()}
    whole = FEATURES["dense"]
    gates = {"all features": left_out(own, whole)["mean"]}
    for feature in whole:
        gates[f"without {feature}"] = left_out(own, [one for one in whole if one != feature])["mean"]
    for feature in whole:
        gates[f"{feature} alone"] = left_out(own, [feature])["mean"]
    print(f"Gate, each project left out\n\n{table(gates)}")


if __name__ == "__main__":
    main()

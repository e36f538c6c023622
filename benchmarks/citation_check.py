"""Measures the sentence check: which sentences the passages bear out, and which it says they do.

    python benchmarks/citation_check.py SET... --index-dir DIR [--questions N] [--fit]

SET is a folder with ``corpus/`` and ``questions.jsonl`` (``evalset.py``) whose questions have a reference
``answer``. Each is searched by a real engine; the hits that overlap the gold lines are the cited passages. Pairs
of a sentence and its passages:

- *answer*: a sentence of the reference answer, written by a person or a large model, with the gold passages: borne out;
- *own*: a sentence of the gold lines, reworded lightly, with the gold passages: borne out;
- *near*: the same sentences with the best hits that are not gold: not borne out. Some are after all, since
  documents repeat themselves, so what is measured is a lower bound;
- *other*: the same with the gold passages of another question: not borne out;
- *changed*: the same with one number or identifier changed, with the gold passages: not borne out;
- *negated*: the same with a "not" put in or taken out; *exchanged*: with two of its facts exchanged, or one in the
  place of another of the passage. Not borne out; of the reference answers' and of the gold lines' sentences apart.

``--fit`` fits the coefficients of ``copilotd/query/support.py`` on all sets, and reports each set by coefficients
fitted on the others.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changed
from pathlib import Path

import numpy as np
import regex as re
from evalset import Span, load_questions
from numpy.typing import NDArray
from quality import Quiet

from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import locate_model
from copilotd.engine import Engine
from copilotd.index.analysis import analyse_query
from copilotd.query.support import (
    OTHERWISE,
    THRESHOLD,
    WITH_VECTORS,
    WORDS_ALONE,
    Coefficients,
    Features,
    SupportChecker,
    heading_of,
)
from copilotd.query.support_facts import Fact, facts_of
from copilotd.settings import load_settings
from copilotd.types import AskRequest, Encoder, Float32Array, Hit, SearchRequest

BORNE_OUT = ("answer", "own")
NOT_BORNE_OUT = ("near", "other")
CHANGED = ("changed", "negated answer", "negated own", "exchanged answer", "exchanged own")
_HITS = 8
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])|\n+")
_VERB = re.compile(
    r"\b(?:is|are|was|were|can|will|must|should|does|do|has|have|may|could|would)\b(?!\s+not\b|n['’]t)",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:(is|are|was|were|can|will|must|should|does|do|did|has|have|could|would)(?:n['’]t|\s+not)|(can)not|never"
    r"|no longer)\b",
    re.IGNORECASE,
)
_REWORDED = {
    "use": "employ", "uses": "employs", "used": "employed", "must": "has to", "need to": "have to", "delete": "remove",
    "removes": "deletes", "remove": "delete", "create": "make", "creates": "makes", "set": "put", "show": "display",
    "shows": "displays", "start": "begin", "starts": "begins", "big": "large", "large": "big", "however": "but",
    "because": "since", "ensure": "make sure", "allows": "lets", "allow": "let", "currently": "at present",
    "default": "standard", "multiple": "several", "several": "multiple", "also": "as well", "will": "is going to",
    "file": "document", "directory": "folder", "folder": "directory", "e.g.": "for example", "do not": "don't",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence with the passages it cites.

    Attributes:
        kind: One of those of this module's docstring.
        sentence: Its words.
        hits: The passages.
    """

    kind: str
    sentence: str
    hits: tuple[Hit, ...]


class Remembering:
    """An encoder that embeds each text once: the passages of a question come with many sentences."""

    def __init__(self, encoder: Encoder) -> None:
        self.name = encoder.name
        self.fingerprint = encoder.fingerprint
        self.dimension = encoder.dimension
        self.max_tokens = encoder.max_tokens
        self._encoder = encoder
        self._known: dict[str, Float32Array] = {}

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Returns what the encoder does."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._encoder.encode(new), strict=True))
        return np.stack([self._known[text] for text in texts])


def reword(sentence: str, draw: random.Random) -> str:
    """Returns ``sentence`` with other common words and its clauses in another order; facts stay."""
    words = re.split(r"(\s+)", sentence)
    words = [_REWORDED.get(word.lower(), word) if draw.random() < 0.8 else word for word in words]
    text = "".join(words).rstrip(". ")
    clause, comma, rest = text.partition(", ")
    if comma and re.match(r"(?:If|When|To|For|In)\b", clause) and "," not in rest:
        text = f"{rest[:1].upper()}{rest[1:]} {clause[:1].lower()}{clause[1:]}"
    return f"{text}."


def change(sentence: str, draw: random.Random) -> str | None:
    """Returns ``sentence`` with one of its facts changed, or None where it has none."""
    facts = facts_of(sentence)
    if not facts:
        return None
    fact: Fact = draw.choice(facts)
    if fact.number:
        digits = re.search(r"\d+", fact.text)
        if digits is None:
            return None
        changed = fact.text.replace(digits[0], str(int(digits[0]) + draw.choice((1, 2, 7, 30))), 1)
    else:
        letters = list(fact.name)
        places = [place for place, letter in enumerate(letters) if letter.isalpha()]
        place = draw.choice(places) if places else 0
        letters[place] = draw.choice([c for c in "bdfgkmprtx" if c != letters[place].lower()])
        changed = "".join(letters)
    return sentence.replace(fact.name or fact.text, changed, 1)


def pairs_of(folder: Path, engine: Engine, draw: random.Random, most: int) -> list[Pair]:
    """Returns every pair of one set's first ``most`` questions."""
    answers = {}
    gold_texts = {}
    for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        answers[raw["id"]] = raw.get("answer") or ""
        gold_texts[raw["id"]] = "\n".join(gold.get("text") or "" for gold in raw["gold"])
    borne_out: list[Pair] = []
    pairs: list[Pair] = []
    for question in [q for q in load_questions(folder) if q.answerable and answers[q.id]][:most]:
        hits = engine.search(SearchRequest(question.text, top_k=_HITS), Quiet()).hits
        gold = tuple(hit for hit in hits if _span(hit).hits(question.gold))
        near = tuple(hit for hit in hits if hit not in gold)[:2]
        if not gold:
            continue
        for sentence in sentences(answers[question.id]):
            borne_out.append(Pair("answer", sentence, gold))
        for sentence in sentences(gold_texts[question.id])[:3]:
            borne_out.append(Pair("own", reword(sentence, draw), gold))
        pairs += [Pair("near", pair.sentence, near) for pair in borne_out if pair.hits == gold and near]
    pairs += borne_out
    for pair in borne_out:
        other = draw.choice([p.hits for p in borne_out if not _ids(p) & _ids(pair)])
        pairs.append(Pair("other", pair.sentence, other))
        if (changed := change(pair.sentence, draw)) is not None:
            pairs.append(Pair("changed", changed, pair.hits))
        if (negated := negate(pair.sentence)) is not None:
            pairs.append(Pair(f"negated {pair.kind}", negated, pair.hits))
        if (other_fact := exchange(pair.sentence, pair.hits, draw)) is not None:
            pairs.append(Pair(f"exchanged {pair.kind}", other_fact, pair.hits))
    return pairs


def negate(sentence: str) -> str | None:
    """Returns ``sentence`` without its negation, or with one behind its verb; None where there is no place for one."""
    if found := _NEGATION.search(sentence):
        return sentence[: found.start()] + (found[1] or found[2] or "") + sentence[found.end() :]
    if found := _VERB.search(sentence):
        return f"{sentence[: found.end()]} not{sentence[found.end() :]}"
    return None


def exchange(sentence: str, hits: Sequence[Hit], draw: random.Random) -> str | None:
    """Returns ``sentence`` with two of its facts exchanged, else one in the place of another of the passages."""
    facts = facts_of(sentence)
    for chosen in ([f for f in facts if f.number], [f for f in facts if f.name]):
        if len(chosen) < 2:
            continue
        one, other = (_shown(fact) for fact in draw.sample(chosen, 2))
        if one not in other and other not in one:
            return sentence.replace(one, "\0", 1).replace(other, one, 1).replace("\0", other, 1)
    if not facts:
        return None
    fact = draw.choice(facts)
    others = [
        other
        for hit in hits
        for other in facts_of(hit.chunk.text)
        if (bool(other.number), other.unit, other.exact) == (bool(fact.number), fact.unit, fact.exact)
        and other not in facts
    ]
    return sentence.replace(_shown(fact), _shown(draw.choice(others)), 1) if others else None


def _shown(fact: Fact) -> str:
    return fact.name or fact.text.split()[0]


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text that claim something, markup of directives and tables left out."""
    parts = (part.strip(" \t-*") for part in _SENTENCE.split(text))
    return [
        part
        for part in parts
        if len(analyse_query(part).content) >= 4 and not part.startswith(("|", "..", "#", "<"))
    ]


def _keys(pair: Pair) -> list[str]:
    return [str(number) for number in range(len(pair.hits))]


def _ids(pair: Pair) -> set[int]:
    return {hit.chunk.id for hit in pair.hits}


def _span(hit: Hit) -> Span:
    metadata = hit.chunk.metadata
    return Span(metadata.relative_path, metadata.line_start, metadata.line_end)


def checker(hits: Sequence[Hit], encoder: Encoder | None) -> SupportChecker:
    """Returns the product's own checker for the passages."""
    return SupportChecker(
        {str(n): (heading_of(hit), f"{hit.chunk.context}\n{hit.chunk.text}") for n, hit in enumerate(hits)},
        encoder,
    )


def features_of(pair: Pair, encoder: Encoder | None) -> Features:
    """Returns what the product computes for a pair."""
    check = checker(pair.hits, encoder)
    return check.features(pair.sentence, analyse_query(pair.sentence).content, _keys(pair))


def fit(features: Sequence[Features], labels: Sequence[bool], *, cosine: bool) -> Coefficients:
    """Fits the logistic formula by Newton's method, both classes with the same weight."""
    rows = [(1.0, f.covered, f.nearby, f.cosine if cosine else 0.0) for f in features]
    x: NDArray[np.float64] = np.array(rows)
    y = np.array(labels, dtype=float)
    weight = np.where(y > 0, 0.5 / max(y.mean(), 1e-9), 0.5 / max(1 - y.mean(), 1e-9))
    beta = np.zeros(4)
    ridge = np.diag([1e-6, 0.05, 0.05, 0.05])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ beta))
        gradient = x.T @ (weight * (p - y)) + ridge @ beta
        hessian = (x * (weight * p * (1 - p))[:, None]).T @ x + ridge
        beta -= np.linalg.solve(hessian, gradient)
    return Coefficients(*(round(float(value), 3) for value in beta))


def shares(pairs: Sequence[Pair], marked: Sequence[bool]) -> dict[str, tuple[float, int]]:
    """Returns for each kind which share was marked, and of how many."""
    found = {}
    for kind in (*BORNE_OUT, *NOT_BORNE_OUT, *CHANGED):
        flags = [mark for pair, mark in zip(pairs, marked, strict=True) if pair.kind == kind]
        found[kind] = (sum(flags) / len(flags) if flags else float("nan"), len(flags))
    return found


def row(name: str, found: Mapping[str, tuple[float, int]]) -> str:
    """Returns a row of the table: shares marked, then precision and recall of the marks."""
    wrong = sum(share * count for kind, (share, count) in found.items() if kind in BORNE_OUT and count)
    right = sum(share * count for kind, (share, count) in found.items() if kind not in BORNE_OUT and count)
    bad = sum(count for kind, (_, count) in found.items() if kind not in BORNE_OUT)
    precision, recall = (
        right / (right + wrong) if right + wrong else float("nan"),
        right / bad if bad else float("nan"),
    )
    cells = [f"{share:.3f} ({count})" if count else "–" for share, count in found.values()]
    return f"| {name} | {' | '.join(cells)} | {precision:.3f} | {recall:.3f} |"


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=50, help="questions a set")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    encoder = Remembering(load_encoder(locate_model(load_settings().embed_model)))
    found: dict[str, list[Pair]] = {}
    for folder in options.sets:
        engine = Engine(with_changed(load_settings(), index_dir=options.index_dir / folder.name))
        engine.start()
        engine.index_root(str(folder / "corpus"), reporter=Quiet())
        # A search doesn't wait for the model as an answer does: the first ones would be by words alone.
        engine.ask(AskRequest("model", extractive=True), Quiet())
        found[folder.name] = pairs_of(folder, engine, random.Random(7), options.questions)
        engine.close()
    kinds = " | ".join(f"{kind} marked" for kind in (*BORNE_OUT, *NOT_BORNE_OUT, *CHANGED))
    print(f"| set | {kinds} | precision | recall |")
    print("|---" * (len((*BORNE_OUT, *NOT_BORNE_OUT, *CHANGED)) + 3) + "|")
    for label, used, shipped in (("", encoder, WITH_VECTORS), (", words alone", None, WORDS_ALONE)):
        for line in _lines(found, used, shipped, label, fitted=options.fit):
            print(line)


def _lines(
    found: Mapping[str, list[Pair]],
    encoder: Encoder | None,
    shipped: Coefficients,
    label: str,
    *,
    fitted: bool,
) -> Iterator[str]:
    everything = [pair for pairs in found.values() for pair in pairs]
    all_features = {id(pair): features_of(pair, encoder) for pair in everything}
    found_broken = {
        id(pair): checker(pair.hits, None).check(pair.sentence, _keys(pair)) for pair in everything
    }
    broken = {
        pair: bool(support.missing) or support.reason.startswith(OTHERWISE)
        for pair, support in found_broken.items()
    }

    def fit_on(pairs: Sequence[Pair]) -> Coefficients:
        chosen = [pair for pair in pairs if pair.kind not in CHANGED]
        labels = [pair.kind in BORNE_OUT for pair in chosen]
        return fit([all_features[id(p)] for p in chosen], labels, cosine=encoder is not None)

    for name, pairs in found.items():
        used = fit_on([p for other, ps in found.items() if other != name for p in ps]) if fitted else shipped
        marked = [broken[id(p)] or used.probability(all_features[id(p)]) < THRESHOLD for p in pairs]
        yield row(f"{name}{label}", shares(pairs, marked))
        yield row(f"{name}{label}, by rule alone", shares(pairs, [broken[id(p)] for p in pairs]))
    if fitted:
        yield f"fitted on all{label}: {fit_on(everything)}"


if __name__ == "__main__":
    main()

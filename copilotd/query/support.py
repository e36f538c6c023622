"""Whether the passages that a sentence cites bear it out: shared words, nearness of meaning, exact facts.

Three things are compared. Numbers and identifiers must stand in the cited passages as they are
(:mod:`copilotd.query.support_facts`). The share of the sentence's words that the passages hold, in all and in
their best run of sentences, and the best cosine between the sentence and such a run give a probability; its
coefficients come from ``benchmarks/citation_check.py``, which fits them on questions with known answers.

A sentence that says nearly what a passage does, but for a "not" or with another fact in a fact's place, fails, too
(:mod:`copilotd.query.support_contrast`); in a free rewording neither is seen. Nor is a true sentence that doesn't
answer. Words in another language than the passages can't be compared; then the facts alone are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import regex as re

from copilotd.errors import ModelError
from copilotd.index.analysis import QueryWord, analyse, analyse_query
from copilotd.query.support_contrast import Contrast, exchanged, turned_round
from copilotd.query.support_facts import FactSource, code_facts, facts_of
from copilotd.query.support_language import same_language
from copilotd.text import one_line
from copilotd.types import Encoder, Float32Array, Hit, Support

THRESHOLD = 0.5
"""A sentence with a lower probability is not supported."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A logistic formula; fitted by ``benchmarks/citation_check.py`` on borg, chezmoi, frigate and anthropic-docs.

    Attributes:
        constant: Its constant.
        covered: Weight of the share of words that the passages hold.
        nearby: Weight of the share that one run of sentences holds.
        cosine: Weight of the best cosine.
    """

    constant: float
    covered: float
    nearby: float
    cosine: float

    def probability(self, features: Features) -> float:
        """Returns the probability, 0..1, that a sentence with these features is borne out."""
        x = self.constant + self.covered * features.covered + self.nearby * features.nearby
        return 1.0 / (1.0 + math.exp(-(x + self.cosine * features.cosine)))


WITH_VECTORS = Coefficients(-8.653, 0.919, 8.622, 4.641)
WORDS_ALONE = Coefficients(-6.881, 1.875, 9.269, 0.0)

_BEFORE_STOP = re.compile(r"\s+([.,;:!?])")  # where a citation stood

# What claims nothing that words could show: too short, an offer, a lead-in.
_FEWEST_WORDS = 3
_RUN_CHARS = 300
_MOST_RUNS = 60
_SENTENCE_ENDS = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_MARKUP = re.compile(r"[`*_#>|]+|^\s*(?:[-+•]|\d{1,3}[.)])\s+", re.MULTILINE)
_DENIAL = (
    r"(?:(?:do|does|did|is|are|was|were|can|could)(?:n['’]?t|\s+not)|cannot|can['’]t|not)\s+(?:\w+\s+)?"
    r"(?:know|say|state|mention|specif|describe|cover|explain|contain|include|provide|give|hold|tell|document|list|find"
    r"|found|available|answer)\w*|no\s+(?:information|details?|mention|passage)"
)
_MATERIAL = r"(?:passages?|documents?|documentation|docs|context|information|sources?|excerpts?|sections?)"
_ADMITS = re.compile(
    rf"\bI (?:don['’]t|do not) know\b|\b{_MATERIAL}\b.*?\b(?:{_DENIAL})|\b(?:{_DENIAL})\b.*?\b{_MATERIAL}\b",
    re.IGNORECASE | re.DOTALL,
)
# In more words than these something else may be claimed beside the gap.
_LONGEST_ADMISSION = 30
GAP = "admits a gap"
OTHERWISE = "the passages say otherwise"
_LONGEST_SHOWN = 160


class UnitKind(Enum):
    """What kind of words a unit of an answer is."""

    PROSE = "prose"
    HEADING = "heading"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Features:
    """What a sentence's probability is computed from, each 0..1.

    Attributes:
        covered: Share of its words that the passages hold anywhere.
        nearby: Share that the best run of sentences of one passage holds.
        cosine: Between the sentence and the nearest such run; 0 without vectors.
    """

    covered: float
    nearby: float
    cosine: float


class _Source:
    """One passage, prepared when it is first cited."""

    def __init__(self, heading: str, text: str) -> None:
        self._heading = heading
        self.text = text
        self.runs = _runs(text)

    @cached_property
    def facts(self) -> FactSource:
        return FactSource((self._heading, self.text))

    @cached_property
    def contrast(self) -> Contrast:
        return Contrast(self.text)

    @cached_property
    def head(self) -> frozenset[str]:
        return frozenset(analyse(self._heading))

    @cached_property
    def run_words(self) -> list[frozenset[str]]:
        return [frozenset(analyse(run)) | self.head for run in self.runs]

    @cached_property
    def words(self) -> frozenset[str]:
        return self.head.union(*self.run_words)


class SupportChecker:
    """Checks the sentences of one answer against the passages that were sent.

    Args:
        passages: Heading line and text of each passage, by key.
        encoder: Gives the cosines; None compares words alone.
        overlap: Whether words and meaning are compared, too, or the facts alone.
    """

    def __init__(
        self, passages: Mapping[str, tuple[str, str]], encoder: Encoder | None = None, *, overlap: bool = True
    ) -> None:
        self._sources = {key: _Source(heading, text) for key, (heading, text) in passages.items()}
        self._encoder = encoder
        self._overlap = overlap
        self._vectors: dict[str, Float32Array] = {}

    def check(self, text: str, keys: Sequence[str], kind: UnitKind = UnitKind.PROSE) -> Support:
        """Returns what the passages ``keys`` say about a unit of the answer; all of them where it cites none."""
        sentence = (
            _BEFORE_STOP.sub(r"\1", " ".join(text.split())) if kind is not UnitKind.CODE else text.strip()
        )
        cited = [key for key in dict.fromkeys(keys) if key in self._sources]
        against = [self._sources[key] for key in cited] or list(self._sources.values())
        facts = code_facts(_fenced(text)) if kind is UnitKind.CODE else facts_of(text)
        missing = [fact for fact in facts if not any(source.facts.holds(fact) for source in against)]
        where = "the cited passages" if cited else "the passages"
        if missing:
            named = tuple(fact.text for fact in missing)
            return Support(sentence, tuple(cited), 0.0, False, f"not in {where}: {', '.join(named)}", named)
        if kind is not UnitKind.PROSE:
            return Support(sentence, tuple(cited), 1.0 if facts else None, True, "" if facts else "no claim")
        plain = _MARKUP.sub(" ", text)
        words = [word for word in analyse_query(plain).words if not word.stop]
        if len(plain.split()) <= _LONGEST_ADMISSION and _ADMITS.search(plain):
            return Support(sentence, tuple(cited), None, True, GAP)
        contrasts = [source.contrast for source in against]
        if moved := exchanged(text, contrasts):
            reason = f"{OTHERWISE}: something else stands in the place of {', '.join(moved)}"
            return Support(sentence, tuple(cited), 0.0, False, reason, moved)
        beside_facts = [
            word for word in words if not any(word.surface.lower() in fact.text.lower() for fact in facts)
        ]
        few = len(beside_facts if facts else words) < _FEWEST_WORDS
        if not self._overlap or (few and (facts or cited or len(words) < 2)):
            return Support(sentence, tuple(cited), 1.0 if facts else None, True, "" if facts else "no claim")
        if not same_language(plain, [source.text for source in against]):
            return Support(sentence, tuple(cited), None, True, "in another language than the passages")
        if opposite := turned_round(text, contrasts):
            said = one_line(opposite, _LONGEST_SHOWN)
            return Support(sentence, tuple(cited), 0.0, False, f"{OTHERWISE}: {said}")
        features = self.features(plain, words, cited or list(self._sources), together=len(cited) > 1)
        score = (WORDS_ALONE if self._encoder is None else WITH_VECTORS).probability(features)
        supported = score >= THRESHOLD
        return Support(
            sentence, tuple(cited), round(score, 3), supported, "" if supported else f"not found in {where}"
        )

    def features(
        self, text: str, words: Sequence[QueryWord], keys: Sequence[str], *, together: bool = False
    ) -> Features:
        """Returns what the probability is computed from; ``together`` joins the best run of each passage."""
        sources = [self._sources[key] for key in keys]
        held: frozenset[str] = frozenset().union(*(source.words for source in sources))
        best = [max(source.run_words, key=lambda run: _share(words, run)) for source in sources]
        if together:
            best = [frozenset().union(*best)]
        nearby = max((_share(words, run) for run in best), default=0.0)
        return Features(_share(words, held), nearby, self._cosine(text, keys))

    def _cosine(self, text: str, keys: Sequence[str]) -> float:
        if self._encoder is None:
            return 0.0
        try:
            vector = self._encoder.encode([" ".join(text.split())])[0]
            return max((float(np.max(self._run_vectors(key) @ vector)) for key in keys), default=0.0)
        except ModelError:
            # The answer is here; a broken model must not cost it.
            return 0.0

    def _run_vectors(self, key: str) -> Float32Array:
        if key not in self._vectors:
            assert self._encoder is not None
            self._vectors[key] = self._encoder.encode(self._sources[key].runs)
        return self._vectors[key]


def _runs(text: str) -> list[str]:
    """Returns runs of whole sentences of about ``_RUN_CHARS``, each beginning in the middle of the one before."""
    sentences = [s for s in (_MARKUP.sub(" ", part).strip() for part in _SENTENCE_ENDS.split(text)) if s]
    runs: list[str] = []
    first = 0
    while first < len(sentences) and len(runs) < _MOST_RUNS:
        last, size = first, 0
        while last < len(sentences) and (last == first or size + len(sentences[last]) <= _RUN_CHARS):
            size += len(sentences[last])
            last += 1
        runs.append(" ".join(sentences[first:last]))
        if last >= len(sentences):
            break
        first = max(first + 1, (first + last + 1) // 2)
    return runs or [text.strip() or "-"]


def _share(words: Sequence[QueryWord], held: frozenset[str]) -> float:
    if not words:
        return 1.0
    return sum(_held(word, held) for word in words) / len(words)


def _held(word: QueryWord, held: frozenset[str]) -> float:
    if word.tokens[0] in held:
        return 1.0
    parts = word.tokens[1:]
    return sum(part in held for part in parts) / len(parts) if parts else 0.0


def _fenced(text: str) -> str:
    """Returns the lines between the fences."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip(" \t>").startswith(("```", "~~~")))


def heading_of(hit: Hit) -> str:
    """Returns the words that stand over a passage: file name, title and headings."""
    metadata = hit.chunk.metadata
    return " > ".join((metadata.doc_title, hit.chunk.title, *metadata.heading_path))

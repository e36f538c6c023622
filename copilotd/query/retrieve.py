"""Finds the passages for a question: by meaning (vectors) and by words (BM25), blended.

Both retrievers restrict to the scope before they rank. The blend is linear on raw scores, not on
ranks: a cosine says how near the best passage is, and a rank says only that another was farther.
What else re-orders the list is cheap, is computed from text already loaded, and each part is shown
in :attr:`Hit.details`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import OSA

from copilotd.embed.tokens import nearest_tokens, packed_size
from copilotd.index.analysis import STOP_WORDS, QueryTerms, QueryWord, analyse, analyse_query
from copilotd.index.keywords import match_any
from copilotd.types import (
    BlockKind,
    Encoder,
    Float32Array,
    Hit,
    IndexReader,
    Retrieval,
    Scope,
    StoredChunk,
    TokenEncoder,
    TokenVectors,
)


@dataclass(frozen=True, slots=True)
class Weights:
    """What each part of the score is worth, in units of cosine.

    Each value lies on a plateau: half or twice of it moves the figures of the projects it was tuned on by
    less than their interval.

    Attributes:
        lexical: Of the BM25 score, which is scaled to 0..1 by the best one.
        smoothing: Added to the best BM25 score when scaling, so that a question none of whose words
            says much isn't treated as a perfect match.
        heading: Of the rarity-weighted share of the question's words that title and headings hold.
        phrase: Of the share of the question's word pairs that stand side by side in the chunk; late
            interaction reads words in their context and leaves it nothing to add.
        late: Of late interaction: the mean over the question's words, common ones too, of the cosine with
            the nearest word of the chunk, each word as the model reads it in its context.
        length: Taken from a chunk for each e-fold of its tokens above 150: among more words a near one is
            met by chance.
        stub: Taken from a chunk with next to no text below its heading: it names the matter, which makes
            its vector near, and answers nothing.
        stub_chars: Text from which nothing is taken.
        candidates: How many chunks of each retriever are looked at.
        refined: How many of the blended list are loaded and scored by heading, length and late interaction.
        read: How many of those are scored by phrase.
    """

    lexical: float = 0.4
    smoothing: float = 10.0
    heading: float = 0.2
    phrase: float = 0.0
    late: float = 4.0
    length: float = 0.06
    stub: float = 0.15
    stub_chars: int = 100
    candidates: int = 60
    refined: int = 24
    read: int = 10


_GUESSED = 0.5
"""What a corrected word counts where it stands: the guess may be wrong."""
_PARTS = 0.5
"""What all parts of an identifier count where the whole does not stand."""

_USUAL_TOKENS = 150
_FEW_TOKENS = 30

_WORD = re.compile(r"[^\W\d_]+")

WEIGHTS = Weights()
WORDS_ALONE = Weights(lexical=1.0, smoothing=1.0, phrase=0.05)
"""While there is no vector to set the scale."""


def retrieve(
    query: str,
    index: IndexReader,
    encoder: Encoder | None,
    scope: Scope,
    top_k: int,
    weights: Weights | None = None,
) -> Retrieval:
    """Returns the best ``top_k`` chunks for ``query``, with the evidence the gate reads.

    Args:
        query: Any text; none of it is query syntax.
        index: One consistent view of the index.
        encoder: The embedding model; None searches by words alone.
        scope: What may be found; applied before ranking.
        top_k: At most so many hits.
        weights: Of the parts of the score; None for the tuned ones.
    """
    return retrieve_batch((query,), index, encoder, scope, top_k, weights)[0]


def retrieve_batch(
    queries: Sequence[str],
    index: IndexReader,
    encoder: Encoder | None,
    scope: Scope,
    top_k: int,
    weights: Weights | None = None,
) -> list[Retrieval]:
    """Returns what :func:`retrieve` does for each query; all are embedded together and searched in one call.

    The time of each stage is that of all queries.

    Args:
        queries: Any texts; at least one.
        index: One consistent view of the index.
        encoder: The embedding model; None searches by words alone.
        scope: What may be found; applied before ranking.
        top_k: At most so many hits a query.
        weights: Of the parts of the score; None for the tuned ones.
    """
    clock = _Clock()
    weights = weights or (WEIGHTS if encoder is not None else WORDS_ALONE)
    known = [_Known(analyse_query(query), index, scope) for query in queries]
    clock.lap("analyse")
    lexical = [
        {
            hit.chunk_id: hit.score
            for hit in index.search_keywords(match_any(one.terms.tokens), weights.candidates, scope)
        }
        for one in known
    ]
    clock.lap("keywords")
    dense: list[dict[int, float]] = [{} for _ in queries]
    words: list[TokenVectors | None] = [None] * len(queries)
    if encoder is not None and any(query.strip() for query in queries):
        vectors, words = _encode(encoder, queries)
        clock.lap("encode")
        dense = _dense(index, vectors, lexical, weights.candidates, scope)
        clock.lap("vectors")
    ranked = [
        _ranked(index, known[n], dense[n], lexical[n], words[n], weights, top_k, clock)
        for n in range(len(queries))
    ]
    return [
        Retrieval(
            query=query,
            hits=tuple(hits),
            top_score=max((hit.dense for hit in hits if hit.dense is not None), default=0.0),
            evidence=evidence,
            corrections={word: _surface(near, hits) for word, near in one.corrections.items()},
            dense=encoder is not None,
            timings_ms=clock.laps,
            rarity=one.weights(),
            model=encoder.name if encoder is not None else "",
        )
        for query, one, (hits, evidence) in zip(queries, known, ranked, strict=True)
    ]


def _ranked(
    index: IndexReader,
    known: _Known,
    dense: Mapping[int, float],
    lexical: Mapping[int, float],
    words: TokenVectors | None,
    weights: Weights,
    top_k: int,
    clock: _Clock,
) -> tuple[list[Hit], dict[str, float]]:
    """Returns a query's best hits and the evidence of them."""
    blended = _blend(dense, lexical, weights)
    shortlist = sorted(blended, key=lambda i: (-blended[i], i))[: max(weights.refined, 2 * top_k)]
    chunks = index.load_chunks(shortlist)
    clock.lap("load")
    ranked = [
        _hit(chunks[i], dense.get(i), lexical.get(i, 0.0), blended[i], known, weights)
        for i in shortlist
        if i in chunks
    ]
    ranked.sort(key=_order)
    # Words of whole texts cost the most, so only the head of the list is read.
    head = [_with_phrases(hit, known.terms.phrases, weights.phrase) for hit in ranked[: weights.read]]
    clock.lap("phrases")
    near = _near_words(words, index, [hit.chunk.id for hit in ranked])
    ranked = _with_late(head + ranked[weights.read :], near, weights)
    clock.lap("late")
    ranked.sort(key=_order)
    evidence = _evidence(ranked, known)
    if ranked and words is not None and ranked[0].chunk.id in near:
        evidence.update(_met(words.tokens, near[ranked[0].chunk.id].similar, known))
    hits = [_in_shares(hit, weights) for hit in _without_copies(ranked, top_k)]
    clock.lap("rank")
    return hits, evidence


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + (now - self._last) * 1000
        self._last = now


class _Known:
    """The question's words as the corpus knows them: their rarity, and near words for unknown ones."""

    def __init__(self, asked: QueryTerms, index: IndexReader, scope: Scope) -> None:
        self._chunks = max(index.chunk_count(scope), 1)
        self.frequencies = index.document_frequencies(asked.tokens, scope)
        self.corrections: dict[str, str] = {}
        self._guessed: set[str] = set()
        words = []
        vocabulary: Mapping[str, int] | None = None
        for word in asked.words:
            if _may_be_misspelt(word) and not any(self.frequencies.get(token) for token in word.tokens):
                vocabulary = index.vocabulary() if vocabulary is None else vocabulary
                near = _nearest(word.tokens[0], vocabulary)
                if near:
                    self.corrections[word.surface] = near
                    self.frequencies[near] = vocabulary[near]
                    word = replace(word, tokens=(near,))
                    self._guessed.add(near)
            words.append(word)
        self.terms = QueryTerms(tuple(words))
        self.asked = asked

    def rarity(self, token: str) -> float:
        """The weight of a token: high for rare ones, highest for unknown ones."""
        return math.log((self._chunks + 1) / (self.frequencies.get(token, 0) + 0.5))

    def weights(self) -> dict[str, float]:
        """Each deciding token's rarity."""
        return {token: self.rarity(token) for token in self.terms.tokens}

    def covered(self, tokens: frozenset[str] | set[str]) -> float:
        """The rarity-weighted share, 0..1, of the deciding words that ``tokens`` holds."""
        total = found = 0.0
        for word in self.terms.content:
            weight = max((self.rarity(token) for token in word.tokens), default=0.0)
            total += weight
            found += weight * self._held(word, tokens)
        return found / total if total else 0.0

    def _held(self, word: QueryWord, tokens: frozenset[str] | set[str]) -> float:
        """How much of a word stands there: all of it, or for an identifier a part of its parts."""
        if word.tokens[0] in tokens:
            return _GUESSED if word.tokens[0] in self._guessed else 1.0
        parts = word.tokens[1:]
        return _PARTS * sum(part in tokens for part in parts) / len(parts) if parts else 0.0

    def share_known(self) -> float:
        """The share, 0..1, of the deciding tokens that stand anywhere in the corpus."""
        tokens = self.terms.tokens
        return sum(self.frequencies.get(token, 0) > 0 for token in tokens) / len(tokens) if tokens else 0.0

    def rarest_missing(self, passages: Sequence[frozenset[str]]) -> float:
        """The rarity, 0..1 of what an unknown word has, of the rarest deciding word that no passage holds."""
        most = self.rarity("")
        return max(
            (
                max(self.rarity(token) for token in word.tokens)
                * (1 - max((self._held(word, tokens) for tokens in passages), default=0.0))
                / most
                for word in self.terms.content
            ),
            default=1.0,
        )


def _may_be_misspelt(word: QueryWord) -> bool:
    token = word.tokens[0]
    if len(word.tokens) > 1 or word.stop or not word.surface.isalpha():
        return False
    # A short stem with a regular ending ("spammed") is a word, though one the corpus doesn't use.
    return len(token) > 4 or (len(token) == 4 and len(word.surface) == 4)


def _nearest(token: str, vocabulary: Mapping[str, int]) -> str:
    """Returns the likeliest known word within one typing slip (two for a long word), or nothing.

    Slips are insertions, deletions, substitutions and swaps of neighbours; the first letter is
    taken as right, which is where people err least and what keeps ``restic`` from becoming ``static``.
    """
    allowed = 1 if len(token) < 8 else 2
    near = [
        (distance, -vocabulary[candidate], candidate)
        for candidate, distance, _ in process.extract(
            token,
            [
                term
                for term in vocabulary
                if term[0] == token[0] and abs(len(term) - len(token)) <= allowed and term.isalpha()
            ],
            scorer=OSA.distance,
            score_cutoff=allowed,
            limit=20,
        )
    ]
    return min(near)[2] if near else ""


def _surface(stem: str, hits: Sequence[Hit]) -> str:
    """Returns the first word of the hits with this stem, as it stands there; the stem where none has it."""
    for hit in hits:
        for word in _WORD.findall(hit.chunk.text):
            if word[:1].lower() == stem[:1] and analyse(word) == [stem]:
                return str(word).lower()
    return stem


def _dense(
    index: IndexReader,
    vectors: Float32Array,
    wanted: Sequence[Mapping[int, float]],
    limit: int,
    scope: Scope,
) -> list[dict[int, float]]:
    """Returns for each query the cosines of the nearest chunks and of those its words found."""
    found = [
        {hit.chunk_id: hit.score for hit in hits} for hits in index.search_vectors(vectors, limit, scope)
    ]
    for n, (near, by_words) in enumerate(zip(found, wanted, strict=True)):
        others = [chunk_id for chunk_id in by_words if chunk_id not in near]
        if others:
            scores = index.score_chunks(vectors[n : n + 1], others)[0]
            near.update(
                (chunk_id, float(score))
                for chunk_id, score in zip(others, scores, strict=True)
                if not np.isnan(score)
            )
    return found


def _blend(dense: Mapping[int, float], lexical: Mapping[int, float], weights: Weights) -> dict[int, float]:
    """Returns each candidate's cosine plus its scaled BM25 score."""
    best = max(lexical.values(), default=0.0) + weights.smoothing
    return {
        chunk_id: dense.get(chunk_id, 0.0) + weights.lexical * lexical.get(chunk_id, 0.0) / best
        for chunk_id in dense.keys() | lexical.keys()
    }


def _hit(
    chunk: StoredChunk,
    cosine: float | None,
    words: float,
    blended: float,
    known: _Known,
    weights: Weights,
) -> Hit:
    """Makes a hit, with what its headings, its phrases and its length add to the blended score."""
    heading = frozenset(analyse(" ".join((chunk.title, *chunk.metadata.heading_path))))
    details = {
        "words": blended - (cosine or 0.0),
        "heading": weights.heading * known.covered(heading),
        "stub": -weights.stub * max(0.0, 1 - _text_chars(chunk) / weights.stub_chars),
    }
    return Hit(chunk, (cosine or 0.0) + sum(details.values()), cosine, words, details)


def _order(hit: Hit) -> tuple[float, int]:
    return (-hit.score, hit.chunk.id)


def _text_chars(chunk: StoredChunk) -> int:
    return sum(block.end - block.start for block in chunk.blocks if block.kind is not BlockKind.HEADING)


def _with_phrases(hit: Hit, pairs: Sequence[tuple[str, ...]], weight: float) -> Hit:
    """Adds the share of the question's word pairs that stand side by side, or one token apart."""
    if not pairs or not weight:
        return hit
    body = analyse(hit.chunk.text)
    near = {(a, b) for step in (1, 2) for a, b in zip(body, body[step:], strict=False)}
    return _with_part(hit, "phrase", weight * sum(pair in near for pair in pairs) / len(pairs))


def _encode(encoder: Encoder, queries: Sequence[str]) -> tuple[Float32Array, list[TokenVectors | None]]:
    """Returns each query's vector, and those of its tokens from an encoder that gives them."""
    if not isinstance(encoder, TokenEncoder):
        return encoder.encode(queries), [None] * len(queries)
    vectors, tokens = encoder.encode_tokens(queries)
    return vectors, [of_query if of_query.tokens else None for of_query in tokens]


@dataclass(frozen=True, slots=True)
class _Near:
    """A chunk's tokens against the question's.

    Attributes:
        similar: The cosine of each of the question's tokens with the nearest of the chunk's.
        tokens: How many tokens the chunk has.
    """

    similar: Float32Array
    tokens: int


def _near_words(words: TokenVectors | None, index: IndexReader, chunk_ids: Sequence[int]) -> dict[int, _Near]:
    """Returns how near each chunk's tokens are to the question's; nothing for chunks without tokens."""
    if words is None:
        return {}
    packed = index.packed_tokens(chunk_ids)
    size = packed_size(words.rows.shape[1])
    nearest = nearest_tokens(words.rows, list(packed.values()))
    return {
        chunk_id: _Near(similar, len(of_chunk) // size)
        for (chunk_id, of_chunk), similar in zip(packed.items(), nearest, strict=True)
    }


def _with_late(hits: list[Hit], near: Mapping[int, _Near], weights: Weights) -> list[Hit]:
    """Adds how near the question's words are met, on average.

    A chunk that is not embedded yet counts as the worst of the others: it may be as good as any, and
    nothing says so.
    """
    values = {
        chunk_id: weights.late * float(found.similar.mean())
        - weights.length * math.log(max(found.tokens, _FEW_TOKENS) / _USUAL_TOKENS)
        for chunk_id, found in near.items()
    }
    worst = min(values.values(), default=0.0)
    return [_with_part(hit, "late", values.get(hit.chunk.id, worst)) for hit in hits]


def _with_part(hit: Hit, name: str, value: float) -> Hit:
    return replace(hit, score=hit.score + value, details={**hit.details, name: value})


def _in_shares(hit: Hit, weights: Weights) -> Hit:
    """Returns the hit with its score and each part of it as a share of the best score there can be."""
    best = 1.0 + weights.lexical + weights.heading + weights.phrase + weights.late
    parts = {"dense": hit.dense or 0.0, **hit.details}
    return replace(hit, score=hit.score / best, details={name: value / best for name, value in parts.items()})


def _without_copies(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Returns the first ``limit`` hits, leaving out those whose words are a better one's: copied text."""
    seen: set[str] = set()
    kept: list[Hit] = []
    for hit in hits:
        if len(kept) == limit:
            break
        words = " ".join(hit.chunk.text.lower().split())
        if words not in seen:
            seen.add(words)
            kept.append(hit)
    return kept


def _evidence(hits: Sequence[Hit], known: _Known) -> dict[str, float]:
    """Returns the raw evidence; :mod:`copilotd.query.gate` says what each part means."""
    if not hits:
        return {}
    cosine = hits[0].dense or 0.0
    if known.terms.only_stop_words:
        # "How do I do it": every passage holds such words, which is no evidence.
        return {"cosine": cosine, "coverage": 0.0, "rarest_held": 0.0, "known": 0.0}
    held = [frozenset(_all_tokens(hit.chunk)) for hit in hits[:3]]
    return {
        "cosine": cosine,
        "coverage": known.covered(held[0]),
        "rarest_held": 1 - known.rarest_missing(held),
        "known": known.share_known(),
    }


def _met(tokens: Sequence[str], near: Float32Array, known: _Known) -> dict[str, float]:
    """Returns how near the deciding words of the question are met, on average and in the worst third."""
    deciding = [n for n, token in enumerate(tokens) if token not in STOP_WORDS]
    if not deciding or known.terms.only_stop_words:
        return {"met": 0.0, "worst_met": 0.0}
    sims = np.sort(near[deciding])
    return {"met": float(sims.mean()), "worst_met": float(sims[: max(1, len(sims) // 3)].mean())}


def _all_tokens(chunk: StoredChunk) -> list[str]:
    return analyse("\n".join((chunk.title, *chunk.metadata.heading_path, chunk.context, chunk.text)))

"""Finds the passages for a question: by meaning (vectors) and by words (BM25), blended.

Both retrievers restrict to the scope before they rank. The blend is linear on raw scores, not on
ranks: a cosine says how near the best passage is, and a rank says only that another was farther.
What else re-orders the list is cheap, is computed from text already loaded, and each part is shown
in :attr:`Hit.details`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from copilotd.embed.tokens import nearest_tokens, packed_size
from copilotd.index.analysis import analyse, analyse_query
from copilotd.query.features import features
from copilotd.query.known import KnownWords
from copilotd.query.listing import listed
from copilotd.types import (
    BlockKind,
    Encoder,
    Float32Array,
    Hit,
    IndexReader,
    Reranker,
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
        rerank: Of the reranking model's judgement, where one is set.
        reranked: How many of the best hits that model reads.
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
    rerank: float = 4.0
    reranked: int = 12
    candidates: int = 60
    refined: int = 24
    read: int = 10


_Encoded = tuple[Float32Array | None, list[TokenVectors | None]]

_ENCODING = ThreadPoolExecutor(4, "question-encoder")

_USUAL_TOKENS = 150
_FEW_TOKENS = 30

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
    reranker: Reranker | None = None,
) -> Retrieval:
    """Returns the best ``top_k`` chunks for ``query``, with the evidence the gate reads.

    Args:
        query: Any text; none of it is query syntax.
        index: One consistent view of the index.
        encoder: The embedding model; None searches by words alone.
        scope: What may be found; applied before ranking.
        top_k: At most so many hits.
        weights: Of the parts of the score; None for the tuned ones.
        reranker: Reads the best hits once more; None where none is set.
    """
    return retrieve_batch((query,), index, encoder, scope, top_k, weights, reranker)[0]


def retrieve_batch(
    queries: Sequence[str],
    index: IndexReader,
    encoder: Encoder | None,
    scope: Scope,
    top_k: int,
    weights: Weights | None = None,
    reranker: Reranker | None = None,
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
        reranker: Reads the best hits of each once more; None where none is set.
    """
    clock = _Clock()
    weights = weights or (WEIGHTS if encoder is not None else WORDS_ALONE)
    # The model and FTS5 both let go of the interpreter: on two cores the words cost no time of their own.
    encoding = _ENCODING.submit(_encode, encoder, queries)
    known = [
        KnownWords(analyse_query(query), index, scope, partial(_spelt, encoding, number))
        for number, query in enumerate(queries)
    ]
    clock.lap("analyse")
    lexical = [
        {
            hit.chunk_id: hit.score
            for hit in index.search_keywords(one.terms.tokens, weights.candidates, scope)
        }
        for one in known
    ]
    clock.lap("keywords")
    vectors, words = encoding.result()
    if encoder is not None and vectors is not None:
        _encode_corrected(encoder, queries, known, vectors, words)
    clock.lap("encode")
    dense: list[dict[int, float]] = [{} for _ in queries]
    if vectors is not None:
        dense = _dense(index, vectors, lexical, weights.candidates, scope)
        clock.lap("vectors")
    ranked = [
        _ranked(
            index, known[n], dense[n], lexical[n], words[n], weights, top_k, clock, (reranker, queries[n])
        )
        for n in range(len(queries))
    ]
    return [
        Retrieval(
            query=query,
            hits=tuple(hits),
            top_score=max((hit.dense for hit in hits if hit.dense is not None), default=0.0),
            evidence=evidence,
            corrections=one.corrections,
            dense=encoder is not None,
            timings_ms=clock.laps,
            rarity=one.weights(),
            model=encoder.name if encoder is not None else "",
        )
        for query, one, (hits, evidence) in zip(queries, known, ranked, strict=True)
    ]


def _ranked(
    index: IndexReader,
    known: KnownWords,
    dense: Mapping[int, float],
    lexical: Mapping[int, float],
    words: TokenVectors | None,
    weights: Weights,
    top_k: int,
    clock: _Clock,
    judge: tuple[Reranker | None, str],
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
    reranker, query = judge
    if reranker is not None:
        ranked = _reranked(reranker, query, ranked, weights)
        clock.lap("rerank")
    evidence = features(
        ranked,
        known,
        list(dense.values()),
        words.tokens if words is not None else (),
        _similar(ranked[: weights.refined], near),
    )
    hits = [_in_shares(hit, weights) for hit in listed(ranked, top_k)]
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
    known: KnownWords,
    weights: Weights,
) -> Hit:
    """Makes a hit, with what its headings, its phrases and its length add to the blended score."""
    heading = " ".join((chunk.title, *chunk.metadata.heading_path))
    details = {
        "words": blended - (cosine or 0.0),
        "heading": weights.heading * known.covered(_heading_tokens(heading)),
        "stub": -weights.stub * max(0.0, 1 - _text_chars(chunk) / weights.stub_chars),
    }
    return Hit(chunk, (cosine or 0.0) + sum(details.values()), cosine, words, details)


@lru_cache(maxsize=4096)
def _heading_tokens(heading: str) -> frozenset[str]:
    return frozenset(analyse(heading))


def _order(hit: Hit) -> tuple[float, int]:
    # Copies differ in the last bits, by the order of the additions: which one comes first must not depend on that.
    return (-round(hit.score, 5), hit.chunk.id)


def _text_chars(chunk: StoredChunk) -> int:
    return sum(block.end - block.start for block in chunk.blocks if block.kind is not BlockKind.HEADING)


def _with_phrases(hit: Hit, pairs: Sequence[tuple[str, ...]], weight: float) -> Hit:
    """Adds the share of the question's word pairs that stand side by side, or one token apart."""
    if not pairs or not weight:
        return hit
    body = analyse(hit.chunk.text)
    near = {(a, b) for step in (1, 2) for a, b in zip(body, body[step:], strict=False)}
    return _with_part(hit, "phrase", weight * sum(pair in near for pair in pairs) / len(pairs))


def _encode(encoder: Encoder | None, queries: Sequence[str]) -> _Encoded:
    """Returns each query's vector, and those of its tokens from an encoder that gives them."""
    nothing: list[TokenVectors | None] = [None] * len(queries)
    if encoder is None or not any(query.strip() for query in queries):
        return None, nothing
    if not isinstance(encoder, TokenEncoder):
        return encoder.encode(queries), nothing
    vectors, tokens = encoder.encode_tokens(queries)
    return vectors, [of_query if of_query.tokens else None for of_query in tokens]


def _spelt(encoding: Future[_Encoded], number: int) -> frozenset[str] | None:
    """Returns the words that the model knows as a whole: it has read them often, so they are no slips."""
    words = encoding.result()[1][number]
    return None if words is None else frozenset(token.lower() for token in words.tokens)


def _encode_corrected(
    encoder: Encoder,
    queries: Sequence[str],
    known: Sequence[KnownWords],
    vectors: Float32Array,
    words: list[TokenVectors | None],
) -> None:
    """Replaces the vectors of misspelt queries: the model makes little of pieces of a word.

    Only where the model itself could tell that a word is no word; a guess from the corpus alone
    would turn one real word into another.
    """
    wrong = [n for n, one in enumerate(known) if one.corrections and words[n] is not None]
    if not wrong:
        return
    again, tokens = _encode(encoder, [known[n].corrected(queries[n]) for n in wrong])
    for row, n in enumerate(wrong):
        if again is not None and tokens[row] is not None:
            vectors[n], words[n] = again[row], tokens[row]


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


def _similar(hits: Sequence[Hit], near: Mapping[int, _Near]) -> list[Float32Array]:
    """Returns the similarities of the hits in order; nothing where the best one has none."""
    if not hits or hits[0].chunk.id not in near:
        return []
    return [near[hit.chunk.id].similar for hit in hits if hit.chunk.id in near]


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


def _reranked(reranker: Reranker, query: str, hits: list[Hit], weights: Weights) -> list[Hit]:
    """Adds the reranking model's judgement to the best hits and orders them anew; the others stay behind them."""
    head = hits[: weights.reranked]
    texts = [
        "\n".join((" > ".join(hit.chunk.metadata.heading_path), f"{hit.chunk.context}{hit.chunk.text}"))
        for hit in head
    ]
    scores = reranker.score(query, texts)
    judged = [
        _with_part(hit, "rerank", weights.rerank * float(score))
        for hit, score in zip(head, scores, strict=True)
    ]
    return sorted(judged, key=_order) + [_with_part(hit, "rerank", 0.0) for hit in hits[weights.reranked :]]


def _in_shares(hit: Hit, weights: Weights) -> Hit:
    """Returns the hit with its score and each part of it as a share of the best score there can be."""
    best = 1.0 + weights.lexical + weights.heading + weights.phrase + weights.late
    best += weights.rerank if "rerank" in hit.details else 0.0
    parts = {"dense": hit.dense or 0.0, **hit.details}
    return replace(hit, score=hit.score / best, details={name: value / best for name, value in parts.items()})

"""Searches for all queries of a plan together and makes one list of what they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from copilotd.query.retrieve import retrieve_batch
from copilotd.types import Encoder, Hit, IndexReader, Reranker, Retrieval, Scope

TOP_K = 6
MIN_SCORE = 0.35
MOST_HITS = 15

# What a query that was only thought of counts beside the question itself.
_THOUGHT_OF = 0.95


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the queries of a plan found.

    Attributes:
        retrievals: What each query found; the question's own first.
        hits: All of them, each chunk once with its best score, best first; at most fifteen.
    """

    retrievals: tuple[Retrieval, ...]
    hits: tuple[Hit, ...]

    @property
    def question(self) -> Retrieval:
        """What the question itself found; what the gate judges."""
        return self.retrievals[0]


def parallel_retrieve(
    queries: Sequence[str],
    index: IndexReader,
    encoder: Encoder | None,
    scope: Scope,
    *,
    top_k: int = TOP_K,
    min_score: float = MIN_SCORE,
    asked: int = 0,
    earlier: Gathered | None = None,
    reranker: Reranker | None = None,
) -> Gathered:
    """Returns the passages of all ``queries``, embedded in one batch and searched in one call.

    Args:
        queries: At least one; the question itself first unless it is among ``earlier``.
        index: One consistent view of the index.
        encoder: The embedding model; None searches by words alone.
        scope: What may be found.
        top_k: Hits a query.
        min_score: Hits with a lower cosine are left out; those without a vector yet stay.
        asked: How many of the first queries are the question's own words. Of theirs nothing is left out: the gate
            judges them by more than a cosine, and an identifier found by its letters has a low one.
        earlier: What was found before; of it only what the index still holds stays.
        reranker: Reads the best hits of each query once more; None where none is set.
    """
    found = retrieve_batch(queries, index, encoder, scope, top_k, reranker=reranker)
    found[asked:] = [
        replace(one, hits=tuple(hit for hit in one.hits if hit.dense is None or hit.dense >= min_score))
        for one in found[asked:]
    ]
    if earlier is not None:
        alive = index.load_chunks([hit.chunk.id for one in earlier.retrievals for hit in one.hits])
        kept = [
            replace(one, hits=tuple(hit for hit in one.hits if hit.chunk.id in alive))
            for one in earlier.retrievals
        ]
        found = [*kept, *found]
    return Gathered(tuple(found), merge_hits(found))


def merge_hits(retrievals: Sequence[Retrieval], limit: int = MOST_HITS) -> tuple[Hit, ...]:
    """Returns each chunk once, with the best score any query gave it, best first.

    Scores are shares of the best there can be, so those of different queries may be compared; the first
    query is the question, and the others count a little less. Of copied text the better place stays.
    """
    best: dict[int, Hit] = {}
    for number, retrieval in enumerate(retrievals):
        for hit in retrieval.hits:
            score = hit.score if number == 0 else hit.score * _THOUGHT_OF
            known = best.get(hit.chunk.id)
            if known is None or score > known.score:
                best[hit.chunk.id] = replace(hit, score=score)
    kept: dict[str, Hit] = {}
    for hit in sorted(best.values(), key=lambda hit: (-hit.score, hit.chunk.id)):
        kept.setdefault(" ".join(hit.chunk.text.lower().split()), hit)
    return tuple(kept.values())[:limit]

"""Which documents a question is about, and as much of them as an answer may read.

The score of a document is the second seed's: 0.4 · (its chunks among the hits ÷ the most any document
has) + 0.4 · their average similarity + 0.2 · the best of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from copilotd.query.pack import estimate_tokens
from copilotd.types import Hit, IndexReader, StoredChunk

TOP_DOCUMENTS = 5

_FREQUENCY, _AVERAGE, _BEST = 0.4, 0.4, 0.2
# What a passage costs beside its text, in tokens: key, label, fences.
_LABEL_TOKENS = 30


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document with its hits.

    Attributes:
        document_id: The catalog's number.
        relative_path: Below its root.
        score: The seed's, 0..1 for similarities of 0..1.
        hits: Its chunks among the hits, best first.
    """

    document_id: int
    relative_path: str
    score: float
    hits: tuple[Hit, ...]


def rank_documents(hits: Sequence[Hit], top_documents: int = TOP_DOCUMENTS) -> list[RankedDocument]:
    """Returns the best documents among ``hits``, best first.

    A hit's similarity is its cosine, and its score where it has no vector yet.
    """
    by_document: dict[int, list[Hit]] = {}
    for hit in hits:
        by_document.setdefault(hit.chunk.document_id, []).append(hit)
    most = max(map(len, by_document.values()), default=1)
    ranked = [
        RankedDocument(number, own[0].chunk.metadata.relative_path, document_score(own, most), tuple(own))
        for number, own in by_document.items()
    ]
    # Among equals the one whose passage ranks first, which is the order of the hits.
    ranked.sort(key=lambda document: -document.score)
    return ranked[:top_documents]


def document_score(hits: Sequence[Hit], most: int) -> float:
    """Returns the seed's score of a document with these ``hits``, where one has at ``most`` so many."""
    similarities = [hit.score if hit.dense is None else hit.dense for hit in hits]
    return (
        _FREQUENCY * len(hits) / most
        + _AVERAGE * sum(similarities) / len(similarities)
        + _BEST * max(similarities)
    )


def document_passages(
    documents: Sequence[RankedDocument], index: IndexReader, budget: int
) -> tuple[Hit, ...]:
    """Returns the passages of ``documents``: whole ones where they fit, else what stands around their hits.

    Each passage stays a chunk with its own lines, so that a citation is as exact as ever. The documents
    come in their order, and the passages of each in the document's.

    Args:
        documents: Best first.
        index: Where the rest of them is read.
        budget: Tokens that may be read; the hits themselves are always among it while they fit.
    """
    room = budget
    kept: list[list[Hit]] = []
    # The hits of all documents go before the surroundings of any.
    for document in documents:
        own = []
        for hit in document.hits:
            if _cost(hit.chunk) <= room or not kept:
                own.append(hit)
                room -= _cost(hit.chunk)
        if own:
            kept.append(own)
    passages: list[Hit] = []
    for own in kept:
        more = _surroundings(own, index, max(room, 0))
        room -= sum(_cost(hit.chunk) for hit in more)
        passages += sorted([*own, *more], key=lambda hit: hit.chunk.start)
    return tuple(passages)


def document_tokens(document: RankedDocument, index: IndexReader) -> int:
    """Returns how many tokens the whole of a document costs."""
    chunks = index.load_chunks(index.neighbours(document.hits[0].chunk.id)).values()
    return sum(map(_cost, chunks))


def _surroundings(own: Sequence[Hit], index: IndexReader, room: int) -> list[Hit]:
    """Returns the document's other chunks, the nearest to a hit first, while they fit."""
    order = index.neighbours(own[0].chunk.id)
    place = {chunk_id: number for number, chunk_id in enumerate(order)}
    held = [place[hit.chunk.id] for hit in own if hit.chunk.id in place]
    missing = sorted(
        (min(abs(place[chunk_id] - n) for n in held), place[chunk_id], chunk_id)
        for chunk_id in order
        if held and place[chunk_id] not in held
    )
    least = min(hit.score for hit in own)
    more: list[Hit] = []
    for distance, _, chunk_id in missing:
        chunk = index.load_chunks([chunk_id]).get(chunk_id)
        if chunk is None:
            continue
        if _cost(chunk) > room:
            break
        room -= _cost(chunk)
        score = least / (1 + distance)
        more.append(replace(own[0], chunk=chunk, score=score, dense=None, lexical=0.0, details={}))
    return more


def _cost(chunk: StoredChunk) -> int:
    return estimate_tokens(chunk.text) + estimate_tokens(chunk.context) + _LABEL_TOKENS

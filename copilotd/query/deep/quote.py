"""What a deep answer quotes where no model writes it: the best of each part, or of each document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from copilotd.index.analysis import analyse, analyse_query
from copilotd.query.deep.documents import RankedDocument
from copilotd.query.deep.parallel import Gathered
from copilotd.query.extract import Passage, extract, overlap
from copilotd.types import Retrieval

_ONE_PART = 3
_EACH_PART = 2
_MOST = 5
_NEAR = 0.9
_FURTHER = 1


def quote_parts(parts: Sequence[Retrieval]) -> list[Passage]:
    """Returns the passages of each part in turn; of a question with one part what a plain answer quotes."""
    if len(parts) == 1:
        return extract(parts[0], max_passages=_ONE_PART)
    passages: list[Passage] = []
    for part in parts:
        found = extract(part, max_passages=_EACH_PART)
        # A part whose best passage is quoted already is answered; what else it found ranks behind that.
        if found and not any(overlap(found[0], earlier) for earlier in passages):
            passages += found
    return distinct_passages(passages)


def quote_documents(parts: Sequence[Retrieval], documents: Sequence[RankedDocument]) -> list[Passage]:
    """Returns the passages of the documents in their order, and in each in the document's.

    Args:
        parts: What each part of the question found; each has its share of the passages.
        documents: Best first.
    """
    rank = {document.document_id: number for number, document in enumerate(documents)}
    if len(parts) == 1:
        hits = sorted((hit for document in documents for hit in document.hits), key=lambda hit: -hit.score)
        found = extract(replace(parts[0], hits=tuple(hits)), max_passages=_MOST)
    else:
        # A part's hits are judged by its own words: another part's best ones would push all of them out.
        found = quote_parts(
            [
                replace(part, hits=tuple(hit for hit in part.hits if hit.chunk.document_id in rank))
                for part in parts
            ]
        )
    return sorted(found, key=lambda p: (rank[p.chunk.document_id], p.line_start))


def quote_further(passages: Sequence[Passage], gathered: Gathered, topics: Sequence[str]) -> list[Passage]:
    """Returns ``passages`` and, behind them, further ones that speak of ``topics`` and nearly rank with them.

    A word found just anywhere would send the reader to a place that doesn't answer.
    """
    wanted = {token for topic in topics for token in analyse_query(topic).tokens}
    best = max((hit.score for hit in gathered.question.hits), default=0.0)
    further = []
    for hit in gathered.hits:
        if hit.score < _NEAR * best:
            break
        own = replace(gathered.question, hits=(hit,), rarity=dict.fromkeys(wanted, 1.0))
        further += [p for p in extract(own, max_passages=1) if wanted & set(analyse(p.text))]
    return distinct_passages([*passages, *further[:_FURTHER]])


def distinct_passages(passages: Sequence[Passage]) -> list[Passage]:
    """Returns the first passages that quote no line twice."""
    kept: list[Passage] = []
    for passage in passages:
        if len(kept) < _MOST and not any(overlap(passage, earlier) for earlier in kept):
            kept.append(passage)
    return kept

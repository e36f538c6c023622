"""The seed's document score, and documents as context."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.deep.documents import (
    document_passages,
    document_score,
    document_tokens,
    rank_documents,
)
from copilotd.query.deep.parallel import MOST_HITS, merge_hits, parallel_retrieve
from copilotd.types import DenseHit, Float32Array, Hit, Scope, StoredChunk

SECTIONS = ("Loading", "Firing", "Cooling", "Glazing", "Cleaning")


def text_of(name: str) -> str:
    parts = [
        f"## {section}\n\n{section} of the {name} takes patience. {'Wait. ' * 30}" for section in SECTIONS
    ]
    return "\n\n".join(parts)


class Counting(MemoryIndex):
    """Counts how often the vectors are searched, and can lose chunks."""

    def __init__(self, encoder: HashingEncoder) -> None:
        super().__init__(encoder)
        self.searches: list[int] = []
        self.gone: set[int] = set()

    def load_chunks(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        return super().load_chunks([chunk_id for chunk_id in chunk_ids if chunk_id not in self.gone])

    def search_vectors(self, queries: Float32Array, limit: int, scope: Scope) -> list[list[DenseHit]]:
        self.searches.append(len(queries))
        return super().search_vectors(queries, limit, scope)


@pytest.fixture
def index() -> Counting:
    made = Counting(HashingEncoder())
    for name in ("kiln", "oven", "forge", "stove"):
        document = parse_file(f"{name}.md", text_of(name).encode())
        path = f"{name}.md"
        made.add(
            document, chunk_document(document, source_file=f"/{path}", relative_path=path, last_modified=1.0)
        )
    return made


def hits(index: MemoryIndex, *queries: str, top_k: int = 6, min_score: float = -1.0) -> tuple[Hit, ...]:
    return parallel_retrieve(queries, index, HashingEncoder(), Scope(), top_k=top_k, min_score=min_score).hits


def made_hit(index: MemoryIndex, number: int, similarity: float) -> Hit:
    return Hit(index.load_chunks([number])[number], similarity, similarity, 0.0)


similarities = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(own=similarities, more=st.integers(0, 8))
def test_the_score_is_the_seeds(own: list[float], more: int) -> None:
    index = MemoryIndex()
    document = parse_file("kiln.md", text_of("kiln").encode())
    index.add(
        document,
        chunk_document(document, source_file="/kiln.md", relative_path="kiln.md", last_modified=1.0),
    )
    of_document = [made_hit(index, 1, similarity) for similarity in own]
    most = len(own) + more
    score = document_score(of_document, most)
    expected = 0.4 * len(own) / most + 0.4 * sum(own) / len(own) + 0.2 * max(own)
    assert score == pytest.approx(expected)
    assert 0 <= score <= 1 + 1e-9
    assert document_score(of_document, most + 1) <= score
    assert document_score([*of_document, made_hit(index, 1, max(own))], most + 1) >= score - 1e-9 - 0.4 / most


def test_documents_come_by_their_score_each_once(index: Counting) -> None:
    found = hits(index, "loading the kiln", "firing the kiln", "cooling the oven")
    ranked = rank_documents(found)
    assert ranked[0].relative_path == "kiln.md"
    scores = [document.score for document in ranked]
    assert scores == sorted(scores, reverse=True)
    assert len({document.document_id for document in ranked}) == len(ranked)
    assert sum(len(document.hits) for document in ranked) == len(found)
    assert len(rank_documents(found, 1)) == 1
    assert rank_documents([]) == []


def test_a_document_that_fits_is_read_whole_and_in_order(index: Counting) -> None:
    kiln = rank_documents(hits(index, "firing the kiln", top_k=1))
    passages = document_passages(kiln, index, document_tokens(kiln[0], index))
    assert [hit.chunk.metadata.section_heading for hit in passages] == [*SECTIONS]
    assert len({hit.chunk.id for hit in passages}) == len(passages)
    for hit in passages:
        # Each stays a chunk with its own lines, so that a citation is exact.
        assert hit.chunk.metadata.line_start <= hit.chunk.metadata.line_end


def test_a_longer_one_is_read_around_its_hits(index: Counting) -> None:
    found = hits(index, "cooling the kiln", top_k=1)
    one = document_tokens(rank_documents(found)[0], index) // len(SECTIONS)
    assert document_passages(rank_documents(found), index, one + 5) == found
    around = document_passages(rank_documents(found), index, int(3.5 * one))
    assert [hit.chunk.metadata.section_heading for hit in around] == ["Firing", "Cooling", "Glazing"]
    assert [hit for hit in around if hit.dense is not None] == list(found)


def test_hits_of_every_document_go_before_the_surroundings_of_any(index: Counting) -> None:
    found = hits(index, "firing the kiln", "firing the oven", top_k=2)
    one = document_tokens(rank_documents(found)[0], index) // len(SECTIONS)
    kept = document_passages(rank_documents(found), index, (one + 5) * len(found))
    assert {hit.chunk.id for hit in kept} == {hit.chunk.id for hit in found}


def test_the_best_hit_is_read_however_small_the_budget(index: Counting) -> None:
    found = hits(index, "firing the kiln", top_k=1)
    assert document_passages(rank_documents(found), index, 1) == found


def test_queries_are_embedded_together_and_searched_in_one_call(index: Counting) -> None:
    encoder = HashingEncoder()
    queries = ("loading the kiln", "firing the oven", "stove", "forge")
    parallel_retrieve(queries, index, encoder, Scope())
    assert (encoder.encoded, index.searches) == (list(queries), [4])


def test_what_several_queries_find_is_listed_once_at_its_best_place(index: Counting) -> None:
    gathered = parallel_retrieve(
        ("firing the kiln", "the kiln, firing it", "cooling the oven"),
        index,
        HashingEncoder(),
        Scope(),
        top_k=10,
        min_score=-1.0,
    )
    ids = [hit.chunk.id for hit in gathered.hits]
    assert len(ids) == len(set(ids)) == MOST_HITS
    scores = [hit.score for hit in gathered.hits]
    assert scores == sorted(scores, reverse=True)
    for hit in gathered.hits:
        found = [other.score for one in gathered.retrievals for other in one.hits if other.chunk == hit.chunk]
        assert any(hit.score == pytest.approx(share * score) for score in found for share in (1.0, 0.95))


def test_copied_text_is_listed_once(index: Counting) -> None:
    document = parse_file("copy.md", text_of("kiln").encode())
    index.add(
        document,
        chunk_document(document, source_file="/copy.md", relative_path="copy.md", last_modified=1.0),
    )
    texts = [hit.chunk.text for hit in hits(index, "firing the kiln", "kiln loading")]
    assert len(texts) == len(set(texts))


def test_what_is_less_similar_than_the_floor_is_left_out(index: Counting) -> None:
    everything = hits(index, "firing the kiln")
    floor = sorted(hit.dense for hit in everything if hit.dense is not None)[len(everything) // 2]
    kept = hits(index, "firing the kiln", min_score=floor)
    assert kept == tuple(hit for hit in everything if hit.dense is not None and hit.dense >= floor)


def test_by_words_alone_nothing_is_below_the_floor(index: Counting) -> None:
    gathered = parallel_retrieve(("firing the kiln",), index, None, Scope(), min_score=0.9)
    assert gathered.hits
    assert not gathered.question.dense


def test_a_later_look_adds_to_an_earlier_one_what_is_still_there(index: Counting) -> None:
    first = parallel_retrieve(("firing the kiln",), index, HashingEncoder(), Scope(), min_score=-1.0)
    gone = first.hits[0].chunk.id
    index.gone.add(gone)
    both = parallel_retrieve(
        ("cooling the oven",), index, HashingEncoder(), Scope(), min_score=-1.0, earlier=first
    )
    assert [one.query for one in both.retrievals] == ["firing the kiln", "cooling the oven"]
    assert gone not in {hit.chunk.id for hit in both.hits}
    assert {hit.chunk.id for hit in first.hits} - {gone} <= {
        hit.chunk.id for one in both.retrievals for hit in one.hits
    }


def test_nothing_merges_to_nothing() -> None:
    assert merge_hits([]) == ()

"""A reranking model reorders the best hits, and its judgement is a part of the score like any other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.deep.parallel import parallel_retrieve
from copilotd.query.retrieve import WEIGHTS, retrieve
from copilotd.types import Float32Array, Scope

TEXT = "# Studio\n" + "".join(
    f"\n## Part {n}\n\nThe kiln of part {n} is fired {'at dawn' if n == 3 else 'some day'}.\n"
    for n in range(20)
)


class Prefers:
    """Gives 1 to texts with ``word``, 0 to others, and remembers what it read."""

    name = "prefers"

    def __init__(self, word: str) -> None:
        self.word = word
        self.read: list[str] = []

    def score(self, query: str, texts: Sequence[str]) -> Float32Array:
        self.read += texts
        return np.array([float(self.word in text) for text in texts], np.float32)


@pytest.fixture
def index() -> MemoryIndex:
    made = MemoryIndex(HashingEncoder())
    document = parse_file("s.md", TEXT.encode())
    made.add(document, chunk_document(document, source_file="/s.md", relative_path="s.md", last_modified=1.0))
    return made


def test_what_it_prefers_comes_first_and_the_parts_add_up(index: MemoryIndex) -> None:
    plain = retrieve("kiln part fired", index, HashingEncoder(), Scope(), 5)
    # One that is among those it reads, and not the first.
    wanted = plain.hits[3].chunk.metadata.section_heading
    found = retrieve(
        "kiln part fired", index, HashingEncoder(), Scope(), 5, reranker=(judge := Prefers(f"> {wanted}\n"))
    )
    assert found.hits[0].chunk.metadata.section_heading == wanted
    assert found.hits[0].details["rerank"] > 0
    assert len(judge.read) == WEIGHTS.reranked
    for hit in found.hits:
        assert hit.score == pytest.approx(sum(hit.details.values()))
        assert hit.score <= 1.0


def test_without_one_nothing_changes(index: MemoryIndex) -> None:
    for hit in retrieve("kiln", index, HashingEncoder(), Scope(), 5).hits:
        assert "rerank" not in hit.details


def test_deep_search_has_every_query_reranked(index: MemoryIndex) -> None:
    plain = parallel_retrieve(["kiln part fired", "some day"], index, HashingEncoder(), Scope(), asked=1)
    wanted = plain.question.hits[3].chunk.metadata.section_heading
    judge = Prefers(f"> {wanted}\n")
    found = parallel_retrieve(
        ["kiln part fired", "some day"], index, HashingEncoder(), Scope(), asked=1, reranker=judge
    )
    assert found.hits[0].chunk.metadata.section_heading == wanted
    assert all("rerank" in hit.details for one in found.retrievals for hit in one.hits)
    assert all("rerank" not in hit.details for hit in plain.hits)

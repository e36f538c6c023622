"""What is kept of terms between questions."""

from __future__ import annotations

import sqlite3

import pytest

from copilotd.index import keywords
from copilotd.index.postings import PostingsCache


@pytest.fixture
def connection() -> sqlite3.Connection:
    opened = sqlite3.connect(":memory:")
    keywords.create(opened)
    for chunk_id, text in {2: "ubuntu", 3: "panic", 4: "lamp"}.items():
        keywords.insert(opened, chunk_id, scope=f"r{chunk_id % 2}", title="", heading="", body=text, name="")
    return opened


def test_what_is_kept_of_a_term_is_of_its_generation_and_scope(connection: sqlite3.Connection) -> None:
    cache = PostingsCache()

    def found(generation: int, scopes: list[str] | None = None) -> list[int]:
        (one,) = cache.find(generation, connection, ["lamp"], scopes)
        return [int(chunk_id) for chunk_id in one.chunk_ids]

    assert found(1) == [4]
    assert found(1, ["r1"]) == []
    keywords.insert(connection, 9, scope="r1", title="", heading="", body="lamp", name="")
    assert found(1) == [4]
    assert found(2) == [4, 9]
    assert found(2, ["r1"]) == [9]
    # A view opened before the edit reads for itself, and spoils nothing.
    keywords.delete(connection, [9])
    assert found(1) == [4]
    assert found(2) == [4, 9]


def test_the_terms_asked_for_last_are_kept(connection: sqlite3.Connection) -> None:
    cache = PostingsCache(kept=120)
    first = {term: cache.find(1, connection, [term], None)[0] for term in ("lamp", "ubuntu")}
    assert cache.find(1, connection, ["lamp"], None)[0] is first["lamp"]
    cache.find(1, connection, ["panic"], None)
    assert cache.find(1, connection, ["lamp"], None)[0] is first["lamp"]
    assert cache.find(1, connection, ["ubuntu"], None)[0] is not first["ubuntu"]

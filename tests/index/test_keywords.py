"""The FTS5 table: what is found, in which order, and that nothing in a question is syntax."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.index import keywords
from copilotd.index.analysis import analyse_query
from copilotd.types import KeywordHit

TEXTS = {
    1: "The --error-on-warnings option turns each warning into an error.",
    2: "Brindle runs on Ubuntu 20.04 and on Debian.",
    3: "Section 38.101 describes the radio. Don't panic when v2.0.1-rc.1 restarts.",
    4: "The lamp is switched AND dimmed; cats OR dogs may sleep NEAR the sea.",
    5: "烧制温度是一千二百度。合約轉換體驗課問題請找櫃台。",
}


@pytest.fixture
def connection() -> sqlite3.Connection:
    opened = sqlite3.connect(":memory:")
    keywords.create(opened)
    for chunk_id, text in TEXTS.items():
        keywords.insert(opened, chunk_id, scope=f"r{chunk_id % 2}", title="", heading="", body=text, name="")
    return opened


def ask(connection: sqlite3.Connection, question: str, scopes: list[str] | None = None) -> list[int]:
    return [hit.chunk_id for hit in search(connection, analyse_query(question).tokens, 10, scopes)]


def search(
    connection: sqlite3.Connection, terms: Sequence[str], limit: int, scopes: list[str] | None = None
) -> list[KeywordHit]:
    return keywords.best_chunks([keywords.postings(connection, term, scopes) for term in terms], limit)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("--error-on-warnings", 1),  # QRY-02
        ('"--error-on-warnings"', 1),
        ('what does "--error-on-warnings do', 1),
        ("don't panic", 3),  # QRY-03
        ("ubuntu 20.04", 2),  # QRY-05
        ("38.101", 3),
        ("what is v2.0.1-rc.1?", 3),
        ("NOT lamp", 4),  # QRY-06
        ("lamp AND", 4),
        ("cats OR", 4),
        ("NEAR(the sea, 3)", 4),
        ("does brindle need ubuntu or something else please", 2),  # QRY-08
        ("烧制温度是多少", 5),  # QRY-10
        ("合約轉換", 5),
    ],
)
def test_questions_of_the_cases(connection: sqlite3.Connection, question: str, first: int) -> None:
    assert ask(connection, question)[0] == first


@pytest.mark.parametrize(
    "question", ["what's the rock'n'roll port?", "WHEN TO USE AND", "", '"', "*", "^a -b :c {d}"]
)
def test_nothing_found_is_no_error(connection: sqlite3.Connection, question: str) -> None:
    ask(connection, question)


@given(st.text(max_size=80))
def test_no_text_is_query_syntax(text: str) -> None:
    opened = sqlite3.connect(":memory:")
    keywords.create(opened)
    keywords.insert(opened, 1, scope="r1", title="", heading="", body=text, name="")
    found = ask(opened, text)
    assert found == ([1] if analyse_query(text).tokens else [])
    opened.close()


def test_scope_is_applied_before_the_limit(connection: sqlite3.Connection) -> None:
    for chunk_id in range(100, 200):
        keywords.insert(
            connection, chunk_id, scope="r7", title="lamp", heading="lamp", body="lamp", name="lamp"
        )
    hits = search(connection, ["lamp"], 1, ["r0"])
    assert [hit.chunk_id for hit in hits] == [4]
    assert search(connection, ["lamp"], 1, []) == []


def test_a_scope_is_no_word(connection: sqlite3.Connection) -> None:
    assert ask(connection, "r1") == []
    assert "r1" not in keywords.vocabulary(connection)
    assert keywords.document_frequencies(connection, ["r1"]) == {"r1": 0}


def test_deleted_chunks_are_forgotten(connection: sqlite3.Connection) -> None:
    keywords.delete(connection, [1, 999])
    assert ask(connection, "--error-on-warnings") != [1]
    assert keywords.document_frequencies(connection, ["--error-on-warnings"]) == {"--error-on-warnings": 0}


def test_a_heading_says_more_than_a_body(connection: sqlite3.Connection) -> None:
    keywords.insert(
        connection, 10, scope="r1", title="", heading="", body="kiln and more words here", name=""
    )
    keywords.insert(connection, 11, scope="r1", title="", heading="kiln", body="and more words here", name="")
    assert ask(connection, "kiln") == [11, 10]


def test_scores_are_positive_and_fall(connection: sqlite3.Connection) -> None:
    hits = search(connection, ["error", "lamp"], 10)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0


def test_terms_added_up_are_what_one_query_for_all_would_score(connection: sqlite3.Connection) -> None:
    for chunk_id in range(100, 160):
        body = " ".join(word for n, word in enumerate(("kiln", "lamp", "sea", "error")) if chunk_id >> n & 1)
        keywords.insert(connection, chunk_id, scope="r1", title="", heading="kiln", body=body, name="")
    terms = ["kiln", "lamp", "sea", "nowhere", "--error-on-warnings"]
    together = connection.execute(
        "SELECT rowid, -rank FROM keywords WHERE keywords MATCH ? ORDER BY rank, rowid LIMIT 20",
        (" OR ".join(f'"{term}"' for term in terms),),
    ).fetchall()
    hits = search(connection, terms, 20)
    assert [hit.chunk_id for hit in hits] == [chunk_id for chunk_id, _ in together]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in together])


def test_only_allowed_chunks_and_before_the_limit(connection: sqlite3.Connection) -> None:
    found = [keywords.postings(connection, term, None) for term in ("ubuntu", "lamp", "panic")]
    assert {hit.chunk_id for hit in keywords.best_chunks(found, 10)} == {2, 3, 4}
    assert [hit.chunk_id for hit in keywords.best_chunks(found, 1, {4})] == [4]
    assert keywords.best_chunks(found, 10, set()) == []
    assert keywords.best_chunks([], 10) == []

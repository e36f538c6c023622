"""Retrieval over an index in memory: scope, syntax, slips of typing, copies, missing vectors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.gate import judge
from copilotd.query.retrieve import retrieve, retrieve_batch
from copilotd.types import DenseHit, Float32Array, Retrieval, Scope

EVERYWHERE = Scope()
GUIDE = """# Brindle

Brindle runs on Ubuntu 20.04 and on Debian.

## Warnings

Pass `--error-on-warnings` to turn each warning into an error. Don't panic when it stops.

## Radio

Section 38.101 describes the radio; v2.0.1-rc.1 fixed its port.

## Lamp

The lamp is switched and dimmed. Cats or dogs may sleep near the sea.

## Upload limits

Throttle the upload speed with `BRINDLE_RATE`; the repository stays consistent.
"""


def add(index: MemoryIndex, path: str, text: str, namespace: str = "default") -> None:
    document = parse_file(path, text.encode())
    chunks = chunk_document(document, source_file=f"/{path}", relative_path=path, last_modified=1.0)
    index.add(document, chunks, namespace)


@pytest.fixture
def index() -> MemoryIndex:
    made = MemoryIndex(HashingEncoder())
    add(made, "guide.md", GUIDE)
    return made


def ask(index: MemoryIndex, question: str, scope: Scope = EVERYWHERE, *, vectors: bool = True) -> Retrieval:
    return retrieve(question, index, HashingEncoder() if vectors else None, scope, 5)


def first(retrieval: Retrieval) -> str:
    return retrieval.hits[0].chunk.metadata.section_heading


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize(
    ("question", "section"),
    [
        ("--error-on-warnings", "Warnings"),  # QRY-02
        ('"--error-on-warnings"', "Warnings"),
        ('what does "--error-on-warnings do', "Warnings"),
        ("don't panic", "Warnings"),  # QRY-03
        ("ubuntu 20.04", "Brindle"),  # QRY-05
        ("38.101", "Radio"),
        ("what is v2.0.1-rc.1?", "Radio"),
        ("NOT lamp", "Lamp"),  # QRY-06
        ("lamp AND", "Lamp"),
        ("cats OR", "Lamp"),
        ("NEAR(the sea, 3)", "Lamp"),
        ("does brindle need ubuntu or something else please", "Brindle"),  # QRY-08
        ("what's the brindle_rate", "Upload limits"),
    ],
)
def test_the_section_that_says_it_comes_first(
    index: MemoryIndex, question: str, section: str, vectors: bool
) -> None:
    assert first(ask(index, question, vectors=vectors)) == section


@pytest.mark.parametrize(
    "question",
    ["what's the rock'n'roll port?", "WHEN TO USE AND", "how do I do it", "what is the", "", " ", "???"],
)
def test_questions_that_say_little_are_no_error(index: MemoryIndex, question: str) -> None:  # QRY-03, 06, 09
    ask(index, question)
    ask(index, question, vectors=False)


def test_filler_words_do_not_decide(index: MemoryIndex) -> None:  # QRY-09
    add(
        index,
        "filler.md",
        "# How do I do it\n\nWhat is the thing and how do I do it? What is it? How do I do it?\n",
    )
    assert first(ask(index, "how do I do it with the lamp", vectors=False)) == "Lamp"
    assert first(ask(index, "how do I do it", vectors=False)) == "How do I do it"


@pytest.mark.parametrize("question", ["how do I do it", "what is the"])
def test_filler_words_are_no_evidence(index: MemoryIndex, question: str) -> None:  # QRY-09
    add(
        index,
        "filler.md",
        "# How do I do it\n\nWhat is the thing and how do I do it? What is it? How do I do it?\n",
    )
    for vectors in (True, False):
        assert ask(index, question, vectors=vectors).evidence["coverage"] == 0.0
    assert not judge(ask(index, question, vectors=False), threshold=0.5).known


@pytest.mark.parametrize("question", ["烧制温度是多少", "合約轉換"])
def test_scripts_without_blanks_are_found(index: MemoryIndex, question: str) -> None:  # QRY-10
    add(
        index,
        "kiln.md",
        "# 陶窯手冊\n\n烧制温度是一千二百度。合約轉換體驗課問題請找櫃台。\n\n## 冷却\n\n冷却需要九小时。\n",
    )
    assert first(ask(index, question, vectors=False)) == "陶窯手冊"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_question(text: str) -> None:
    index = MemoryIndex(HashingEncoder())
    add(index, "guide.md", GUIDE)
    hits = ask(index, text).hits
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_scope_is_applied_before_top_k(index: MemoryIndex) -> None:
    for number in range(150):
        add(index, f"other/{number}.md", f"# Lamp {number}\n\nlamp lamp lamp {number}\n", "other")
    for vectors in (True, False):
        found = ask(index, "lamp", Scope(namespaces=("default",)), vectors=vectors).hits
        assert {hit.chunk.namespace for hit in found} == {"default"}
        assert found[0].chunk.metadata.section_heading == "Lamp"
        found = ask(index, "lamp", Scope(paths=("guide*",)), vectors=vectors).hits
        assert {hit.chunk.metadata.relative_path for hit in found} == {"guide.md"}
    assert ask(index, "lamp", Scope(namespaces=("nowhere",))).hits == ()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("thorttle", "throttle"), ("uplaod", "upload"), ("repositry", "repository"), ("lmap", "lamp")],
)
def test_slips_of_typing_are_corrected_and_shown(index: MemoryIndex, typed: str, meant: str) -> None:
    assert ask(index, typed, vectors=False).corrections == {typed: meant}


@pytest.mark.parametrize("word", ["lamp", "--error-on-warning", "xyzzy", "38.102", "seb"])
def test_known_words_identifiers_and_strangers_are_left_alone(index: MemoryIndex, word: str) -> None:
    assert ask(index, word).corrections == {}


def test_copies_do_not_fill_the_list(index: MemoryIndex) -> None:
    for number in range(8):
        add(index, f"copy{number}.md", "# Kiln\n\nThe kiln is fired at dawn.\n")
    add(index, "kiln.md", "# Kiln repair\n\nThe kiln door is mended at noon.\n")
    headings = [hit.chunk.metadata.section_heading for hit in ask(index, "kiln").hits]
    assert headings.count("Kiln") == 1
    assert "Kiln repair" in headings


def test_a_chunk_without_a_vector_is_still_found_by_its_words() -> None:
    index = MemoryIndex(HashingEncoder(), lambda document, chunk: [])
    add(index, "guide.md", GUIDE)
    retrieval = ask(index, "lamp")
    assert first(retrieval) == "Lamp"
    assert retrieval.hits[0].dense is None
    assert retrieval.top_score == 0.0


def test_only_the_question_is_encoded(index: MemoryIndex) -> None:
    encoder = HashingEncoder()
    retrieve("lamp", index, encoder, EVERYWHERE, 3)
    assert encoder.encoded == ["lamp"]


def test_the_parts_of_a_score_add_up(index: MemoryIndex) -> None:
    for hit in ask(index, "throttle the upload speed").hits:
        assert hit.score == pytest.approx(sum(hit.details.values()))
        assert -1.0 <= hit.score <= 1.0


class Counting(MemoryIndex):
    """Counts how often the vectors are searched."""

    def __init__(self, encoder: HashingEncoder) -> None:
        super().__init__(encoder)
        self.searches: list[int] = []

    def search_vectors(self, queries: Float32Array, limit: int, scope: Scope) -> list[list[DenseHit]]:
        self.searches.append(len(queries))
        return super().search_vectors(queries, limit, scope)


def test_a_batch_finds_what_each_query_finds_alone_in_one_search() -> None:
    index = Counting(HashingEncoder())
    add(index, "guide.md", GUIDE)
    queries = ("turn warnings into errors", "throttle the uplod", "BRINDLE_RATE", "lamp")
    encoder = HashingEncoder()
    batch = retrieve_batch(queries, index, encoder, EVERYWHERE, 5)
    assert (encoder.encoded, index.searches) == (list(queries), [4])
    for query, found in zip(queries, batch, strict=True):
        alone = retrieve(query, index, HashingEncoder(), EVERYWHERE, 5)
        assert [hit.chunk.id for hit in found.hits] == [hit.chunk.id for hit in alone.hits]
        assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in alone.hits], abs=1e-5)
        assert (found.query, found.corrections, found.rarity) == (query, alone.corrections, alone.rarity)
        assert found.evidence == pytest.approx(alone.evidence, abs=1e-5)

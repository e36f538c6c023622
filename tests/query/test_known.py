"""The question's words against the corpus: which are slips of typing, and what is searched instead."""

from __future__ import annotations

import pytest
from support.hashing_encoder import HashingTokenEncoder
from support.memory_index import MemoryIndex

from copilotd.index.analysis import analyse_query
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.known import KnownWords, nearest_terms
from copilotd.query.retrieve import retrieve
from copilotd.types import Scope

EVERYWHERE = Scope()


def add(index: MemoryIndex, path: str, text: str, namespace: str = "default") -> None:
    document = parse_file(path, text.encode())
    chunks = chunk_document(document, source_file=f"/{path}", relative_path=path, last_modified=1.0)
    index.add(document, chunks, namespace)


@pytest.fixture
def index() -> MemoryIndex:
    made = MemoryIndex()
    add(made, "guide.md", "# Help\n\nThe command stacks all the panes. Configured thresholds help.\n")
    add(made, "other.md", "# Kiln\n\nThe kiln was uploaded.\n", "studio")
    return made


def known(
    index: MemoryIndex, question: str, *, spelt: str | None = None, scope: Scope = EVERYWHERE
) -> KnownWords:
    words = None if spelt is None else spelt.split()
    return KnownWords(analyse_query(question), index, scope, lambda: words)


def test_a_correction_is_written_as_the_documents_write_it(index: MemoryIndex) -> None:
    words = known(index, "what is the treshold?", spelt="what is the")
    assert words.corrections == {"treshold": "thresholds"}
    assert words.corrected("what is the treshold?") == "what is the thresholds?"


@pytest.mark.parametrize("word", ["helm", "slack"])
def test_a_word_that_the_model_knows_is_no_slip(index: MemoryIndex, word: str) -> None:
    assert known(index, word).corrections  # nobody said that it is a word
    assert known(index, word, spelt=word).corrections == {}


def test_only_words_of_the_scope_are_offered(index: MemoryIndex) -> None:
    assert known(index, "uplaoded").corrections == {"uplaoded": "uploaded"}
    assert known(index, "uplaoded", scope=Scope(namespaces=("default",))).corrections == {}


def test_a_correction_inside_another_word_is_left_alone(index: MemoryIndex) -> None:
    words = known(index, "treshold and tresholding_x", spelt="")
    assert words.corrected("treshold and tresholding_x") == "thresholds and tresholding_x"


def test_the_nearest_and_most_frequent_comes_first() -> None:
    assert nearest_terms("lmap", {"lamp": 1, "limp": 9, "map": 9, "kiln": 99}) == ["lamp"]
    assert nearest_terms("boarder", {"border": 1, "boarded": 5}) == ["boarded", "border"]
    assert nearest_terms("xyzzy", {"lamp": 1}) == []


def test_the_corrected_question_is_what_the_model_reads() -> None:
    encoder = HashingTokenEncoder("how to throttle the upload speed")
    index = MemoryIndex(encoder)
    add(index, "guide.md", "# Limits\n\nThrottle the upload speed.\n")
    encoder.encoded.clear()
    found = retrieve("throttle uplaod speed", index, encoder, EVERYWHERE, 3)
    assert "throttle upload speed" in encoder.encoded
    assert found.corrections == {"uplaod": "upload"}
    assert found.evidence["met"] == pytest.approx(
        retrieve("throttle upload speed", index, encoder, EVERYWHERE, 3).evidence["met"]
    )

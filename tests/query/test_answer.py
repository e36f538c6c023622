"""From a verdict to an answer: what a model says is shown only where it cites what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.answer import answer_question
from copilotd.query.retrieve import retrieve
from copilotd.types import (
    Answer,
    CompletionRequest,
    ConfidenceLevel,
    Finished,
    Retrieval,
    Scope,
    TextDelta,
    Verdict,
)

QUERY = "How hot is the kiln?"
KNOWN = Verdict(True, 0.9, ConfidenceLevel.HIGH, "close")


class Scripted:
    name = "openai"
    model = "gpt-test"

    def __init__(self, *pieces: str, reason: str = "end") -> None:
        self._events: tuple[TextDelta | Finished, ...] = (*map(TextDelta, pieces), Finished(reason))

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        yield from self._events


@pytest.fixture(scope="module")
def retrieval() -> Retrieval:
    document = parse_file("kiln.md", b"# Kiln\n\n## Firing\n\nThe kiln is 1200 degrees hot.\n")
    chunks = chunk_document(document, source_file="/kiln.md", relative_path="kiln.md", last_modified=1.0)
    index = MemoryIndex(HashingEncoder())
    index.add(document, chunks)
    return retrieve(QUERY, index, HashingEncoder(), Scope(), 5)


def ask(retrieval: Retrieval, provider: Scripted) -> tuple[Answer, str]:
    deltas: list[str] = []
    answer = answer_question(
        retrieval,
        KNOWN,
        make_provider=lambda: provider,
        max_tokens=100,
        on_delta=deltas.append,
        cancelled=lambda: False,
    )
    return answer, "".join(deltas)


@pytest.mark.parametrize("reason", ["end", "length", "refusal"])
@pytest.mark.parametrize(
    "words", ["It is 9000 degrees.", "It is 9000 degrees [Z].", "9000\n\nSources:\n- [A]"]
)
def test_words_that_cite_nothing_give_way_to_a_quotation(
    retrieval: Retrieval, words: str, reason: str
) -> None:
    answer, streamed = ask(retrieval, Scripted(*words, reason=reason))
    assert "1200 degrees" in answer.text
    assert answer.text == streamed
    assert "9000" not in f"{answer.text} {answer.notices}"
    assert [citation.section_heading for citation in answer.citations] == ["Firing"]
    assert (answer.provider, answer.model) == ("extractive", "")
    withheld = [notice for notice in answer.notices if "withheld" in notice]
    assert len(withheld) == 1
    assert "openai (gpt-test) cited nothing" in withheld[0]


def test_cited_words_are_the_answer(retrieval: Retrieval) -> None:
    answer, streamed = ask(retrieval, Scripted("It is 1200 ", "degrees [B", "]."))
    assert answer.text == streamed
    assert answer.text.startswith("It is 1200 degrees [")
    assert (answer.provider, answer.model) == ("openai", "gpt-test")


def test_behind_i_dont_know_nothing_is_claimed(retrieval: Retrieval) -> None:
    answer, streamed = ask(retrieval, Scripted("I don't know. But it is 9000 degrees."))
    assert (
        answer.text
        == f"I don't have enough information to answer '{QUERY}'. The documentation may not cover this topic."
    )
    assert streamed == ""
    assert not answer.verdict.known
    assert answer.closest

"""From a verdict to an answer: what a model says is shown only where it cites what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.answer import answer_question, usage_of
from copilotd.query.retrieve import retrieve
from copilotd.types import (
    Answer,
    CompletionRequest,
    ConfidenceLevel,
    Finished,
    Prices,
    Retrieval,
    Scope,
    TextDelta,
    Usage,
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
    why = "gpt-test (openai) refused" if reason == "refusal" else "openai (gpt-test) cited nothing"
    instead = [notice for notice in answer.notices if notice.endswith("the documents are quoted instead.")]
    assert len(instead) == 1
    assert why in instead[0]


def test_cited_words_are_the_answer(retrieval: Retrieval) -> None:
    answer, streamed = ask(retrieval, Scripted("It is 1200 ", "degrees [B", "]."))
    assert answer.text == streamed
    assert answer.text.startswith("It is 1200 degrees [")
    assert (answer.provider, answer.model) == ("openai", "gpt-test")


@pytest.mark.parametrize("words", ["It is 9000 degrees [B].", "Our sponsor sells the best tongs of all [B]."])
def test_what_no_passage_bears_out_is_i_dont_know_with_a_reason(retrieval: Retrieval, words: str) -> None:
    answer, streamed = ask(retrieval, Scripted(*words))
    assert answer.text.startswith("I don't have enough information")
    assert (streamed, answer.citations, answer.verdict.known) == ("", (), False)
    assert any("bear out none of it" in notice and "--extractive" in notice for notice in answer.notices)
    assert answer.closest
    assert [support.supported for support in answer.support] == [False]


@pytest.mark.parametrize(
    ("finished", "prices", "usage"),
    [
        (Finished("end", 1000, 100, 600), Prices(3.0, 15.0, 0.3), Usage(1000, 100, 600, 0.00288)),
        (Finished("end", 1000, 100, 600), Prices(3.0, 15.0), Usage(1000, 100, 600, 0.0045)),
        (Finished("end", 1000, 100), Prices(), Usage(1000, 100)),
        (Finished("end"), Prices(3.0, 15.0), Usage()),
        (None, Prices(3.0, 15.0), Usage()),
    ],
)
def test_costs_come_from_prices_that_the_user_set(
    finished: Finished | None, prices: Prices, usage: Usage
) -> None:
    found = usage_of(finished, prices)
    assert replace(found, cost=None) == replace(usage, cost=None)
    assert found.cost == (None if usage.cost is None else pytest.approx(usage.cost))


def test_behind_i_dont_know_nothing_is_claimed(retrieval: Retrieval) -> None:
    answer, streamed = ask(retrieval, Scripted("I don't know. But it is 9000 degrees."))
    assert (
        answer.text
        == f"I don't have enough information to answer '{QUERY}'. The documentation may not cover this topic."
    )
    assert streamed == ""
    assert not answer.verdict.known
    assert any("found no answer" in notice and "--extractive" in notice for notice in answer.notices)
    assert answer.closest

"""Sentences on their way to the reader: marked, removed or let through, however they were cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.query.cite import GroundedAnswer, answer_from_passages
from copilotd.types import (
    ChunkMetadata,
    CitationCheck,
    CompletionRequest,
    Finished,
    Grounding,
    Hit,
    StoredChunk,
    TextDelta,
)

KILN = "The kiln reaches 1200 degrees after nine hours. Never open the door before it has cooled."
GLAZE = "Mix the powder with water until it is as thick as cream. Run `glaze --sieve 2` twice."


def hit(number: int, title: str, heading: str, text: str) -> Hit:
    metadata = ChunkMetadata(
        title, heading, 1.0, f"/docs/{title}.md", 0, len(text), (heading,), f"{title}.md"
    )
    chunk = StoredChunk(number, number, "default", "", text, 0, len(text), (1,), (), "", metadata)
    return Hit(chunk, 0.5, 0.5, 1.0)


HITS = [hit(1, "kiln", "Firing", KILN), hit(2, "glaze", "Mixing", GLAZE)]


class Scripted:
    name = "scripted"
    model = "scripted-1"

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        yield from map(TextDelta, self._pieces)
        yield Finished("end")


def answered(*pieces: str, check: str = "mark") -> tuple[GroundedAnswer, str]:
    deltas: list[str] = []
    grounding = Grounding(check=CitationCheck(check))
    answer = answer_from_passages("How?", HITS, Scripted(*pieces), deltas.append, grounding=grounding)
    return answer, "".join(deltas)


A, B = "[kiln > Firing]", "[glaze > Mixing]"
TRUE = "The kiln reaches 1200 degrees [A]."
SHOWN = f"The kiln reaches 1200 degrees {A}."
FALSE = "Our sponsor sells the best tongs of all [A]."


@pytest.mark.parametrize(
    ("said", "marked", "strict"),
    [
        (f"{TRUE} {FALSE}", f"{SHOWN} Our sponsor sells the best tongs of all {A}. [unverified]", SHOWN),
        (
            f"{TRUE} It reaches 1300 degrees [A]. Mix the powder with water [B].",
            f"{SHOWN} It reaches 1300 degrees {A}. [unverified: 1300 degrees] Mix the powder with water {B}.",
            f"{SHOWN} Mix the powder with water {B}.",
        ),
        (
            f"{TRUE}\n\n- {FALSE}\n- Mix the powder with water [B].\n\nEnd.",
            f"{SHOWN}\n\n- Our sponsor sells the best tongs of all {A}. [unverified]\n"
            f"- Mix the powder with water {B}.\n\nEnd.",
            f"{SHOWN}\n\n- Mix the powder with water {B}.\n\nEnd.",
        ),
        (
            f"{TRUE}\n\n- Our sponsor sells the best tongs. Mix the powder with water [B].",
            f"{SHOWN}\n\n- Our sponsor sells the best tongs. [unverified] Mix the powder with water {B}.",
            f"{SHOWN}\n\n- Mix the powder with water {B}.",
        ),
        (
            f"{TRUE}\n\n```sh\nglaze --sieve 2\n```\n[B]\n\n```sh\nglaze --boil\n```\n[B]",
            f"{SHOWN}\n\n```sh\nglaze --sieve 2\n```\n{B}\n\n```sh\nglaze --boil\n```\n{B}\n[unverified: --boil]",
            f"{SHOWN}\n\n```sh\nglaze --sieve 2\n```\n{B}",
        ),
        (
            f"{TRUE}\n\n| what | how |\n|---|---|\n| kiln | 1200 degrees [A] |\n| kiln | 1300 degrees [A] |\n",
            f"{SHOWN}\n\n| what | how |\n|---|---|\n| kiln | 1200 degrees {A} |\n"
            f"| kiln | 1300 degrees {A} [unverified: 1300 degrees] |",
            f"{SHOWN}\n\n| what | how |\n|---|---|\n| kiln | 1200 degrees {A} |",
        ),
        (
            f"## Firing at 1300 degrees\n\n{TRUE}",
            f"## Firing at 1300 degrees [unverified: 1300 degrees]\n\n{SHOWN}",
            SHOWN,
        ),
        (
            "The kiln reaches approx. 1200 degrees, i.e. after nine hours [A].",
            f"The kiln reaches approx. 1200 degrees, i.e. after nine hours {A}.",
            f"The kiln reaches approx. 1200 degrees, i.e. after nine hours {A}.",
        ),
        (
            f"{TRUE} Tongs are sold in every shop [Z].",
            f"{SHOWN} Tongs are sold in every shop. [unverified]",
            SHOWN,
        ),
    ],
)
def test_what_does_not_hold_is_marked_or_removed(said: str, marked: str, strict: str) -> None:
    for check, expected in (("mark", marked), ("strict", strict)):
        answer, streamed = answered(*said, check=check)
        assert answer.text == expected
        assert streamed.strip() == expected
        whole, _ = answered(said, check=check)
        assert whole.text == expected
        assert whole.support == answer.support


def test_with_the_check_off_only_facts_are_marked() -> None:
    answer, _ = answered(f"{TRUE} {FALSE} It reaches 1300 degrees [A].", check="off")
    assert answer.text == (
        f"{SHOWN} Our sponsor sells the best tongs of all {A}. It reaches 1300 degrees {A}. [unverified: 1300 degrees]"
    )


def test_the_marker_is_explained_once_below() -> None:
    answer, _ = answered(f"{TRUE} {FALSE} {FALSE} It reaches 1300 degrees [A].")
    explained = [notice for notice in answer.notices if "[unverified]" in notice]
    assert len(explained) == 1
    assert "3 sentences" in explained[0]


def test_how_many_were_removed_is_said() -> None:
    answer, _ = answered(f"{TRUE} {FALSE} It reaches 1300 degrees [A].", check="strict")
    assert any(notice.startswith("2 sentences were removed") for notice in answer.notices)
    assert not any("carry no citation" in notice for notice in answer.notices)


def test_a_removed_sentence_takes_its_citation_with_it() -> None:
    answer, _ = answered(f"{TRUE} Our sponsor sells the best tongs [B].", check="strict")
    assert [citation.key for citation in answer.citations] == ["A"]


@pytest.mark.parametrize("check", ["mark", "strict"])
@pytest.mark.parametrize("said", [FALSE, "It is 9000 degrees hot there [A].", f"{FALSE} {FALSE}"])
def test_an_answer_without_a_claim_that_holds_is_withheld(said: str, check: str) -> None:
    answer, streamed = answered(*said, check=check)
    assert (answer.text, streamed, answer.citations) == ("", "", ())
    assert answer.unsupported
    assert not answer.uncited
    assert not any(support.supported for support in answer.support)


def test_nothing_is_shown_before_a_sentence_holds_and_then_words_come_at_once() -> None:
    deltas: list[str] = []
    pieces = [FALSE, " ", "The kiln reaches 1200 ", "degrees [A].", " Mix", " the", " powder with water [B]."]
    answer_from_passages("How?", HITS, Scripted(*pieces), deltas.append)
    assert deltas[0].startswith("Our sponsor sells")
    assert SHOWN in deltas[0]
    assert len(deltas) > 1


def test_json_tells_sentence_keys_score_and_reason() -> None:
    answer, _ = answered(f"{TRUE} It reaches 1300 degrees [A].")
    first, second = answer.support
    assert (first.sentence, first.keys, first.supported, first.reason) == (
        "The kiln reaches 1200 degrees.",
        ("A",),
        True,
        "",
    )
    assert (second.keys, second.score, second.missing) == (("A",), 0.0, ("1300 degrees",))
    assert "1300 degrees" in second.reason


def test_two_passages_of_one_label_are_checked_each() -> None:
    hits = [HITS[0], hit(3, "kiln", "Firing", "Cool it for twelve hours with closed vents.")]
    said = "The kiln reaches 1200 degrees [A][B]. Cool it for twelve hours with closed vents [B]."
    answer = answer_from_passages("How?", hits, Scripted(*said))
    assert [support.keys for support in answer.support] == [("A", "B"), ("B",)]
    assert all(support.supported for support in answer.support)


@given(
    st.lists(
        st.sampled_from(
            [
                TRUE,
                FALSE,
                " ",
                "\n",
                "\n\n",
                "- ",
                "| a | 1300 [A] |\n",
                "```\nx --y\n```\n",
                "[B]",
                "# H 7\n",
                "e.g. ",
                "So. [A] is",
            ]
        ),
        max_size=8,
    ),
    st.lists(st.integers(0, 200), max_size=6),
    st.sampled_from(["mark", "strict", "off"]),
)
def test_how_an_answer_is_cut_makes_no_difference(parts: list[str], cuts: list[int], check: str) -> None:
    said = "".join(parts)
    edges = sorted({0, len(said), *(cut for cut in cuts if cut < len(said))})
    pieces = [said[start:end] for start, end in pairwise(edges)]
    whole, streamed = answered(said, check=check)
    cut, cut_streamed = answered(*pieces, check=check)
    assert (whole.text, whole.support, whole.notices) == (cut.text, cut.support, cut.notices)
    assert streamed == cut_streamed
    assert streamed.strip() == whole.text

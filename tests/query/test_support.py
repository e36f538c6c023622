"""What the check of one sentence says, by words alone and with vectors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.hashing_encoder import HashingEncoder

from copilotd.errors import ModelError
from copilotd.query.support import GAP, SupportChecker, UnitKind
from copilotd.query.support_language import same_language
from copilotd.types import Encoder, Float32Array

PASSAGES = {
    "A": (
        "kiln > Kiln > Firing",
        "The kiln reaches 1200 degrees after nine hours. Never open the door before it has cooled below 80 degrees.\n"
        "Run `kiln --ramp slow` for thick pots.",
    ),
    "B": (
        "glaze > Glazes > Mixing",
        "Mix the powder with water until it is as thick as cream. Sieve it twice.",
    ),
}


@pytest.fixture(params=[None, HashingEncoder()], ids=["words", "vectors"])
def checker(request: pytest.FixtureRequest) -> SupportChecker:
    encoder: Encoder | None = request.param
    return SupportChecker(PASSAGES, encoder)


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ("The kiln reaches 1200 degrees after nine hours.", "A"),
        ("After nine hours the kiln reaches 1200 degrees.", "A"),
        ("Don't open the door of the kiln before it cooled below 80 degrees.", "A"),
        ("Sieve the powder twice, mixed with water until it is thick as cream.", "B"),
        ("Thick pots want `kiln --ramp slow`.", "A"),
        ("Mix the powder with water; the kiln reaches 1200 degrees.", "AB"),
        ("Mix the powder with water until thick as cream.", ""),
    ],
)
def test_what_a_passage_says_is_supported(checker: SupportChecker, said: str, keys: str) -> None:
    support = checker.check(said, keys)
    assert support.supported, support
    assert support.score is not None
    assert support.score >= 0.5
    assert support.keys == tuple(keys)


@pytest.mark.parametrize(
    ("said", "keys", "missing"),
    [
        ("The kiln reaches 1300 degrees after nine hours.", "A", ("1300 degrees",)),
        ("The kiln reaches 1200 hours after nine degrees.", "A", ("1200 hours", "nine degrees")),
        ("Run `kiln --ramp-slow` for thick pots.", "A", ("--ramp-slow",)),
        ("The kiln reaches 1200 degrees after nine hours.", "B", ("1200 degrees", "nine hours")),
        ("Buy the expensive tongs of our sponsor in every shop.", "A", ()),
        ("Mix the powder with water until it is as thick as cream.", "A", ()),
        ("Order replacement heating elements by telephone.", "", ()),
    ],
)
def test_what_no_cited_passage_says_is_not(
    checker: SupportChecker, said: str, keys: str, missing: tuple[str, ...]
) -> None:
    support = checker.check(said, keys)
    assert not support.supported
    assert support.missing == missing
    assert ("cited" in support.reason) == bool(keys)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Yes.", "no claim"),
        ("Here is how:", "no claim"),
        ("The passages don't say how long glaze keeps.", GAP),
        ("How long glaze keeps is not specified in the documentation.", GAP),
        ("I don't know who sells them.", GAP),
    ],
)
def test_what_claims_nothing_is_let_through(checker: SupportChecker, said: str, reason: str) -> None:
    support = checker.check(said, "A")
    assert (support.supported, support.score, support.reason) == (True, None, reason)


def test_beside_a_gap_facts_are_checked_and_long_sentences_are_no_admission() -> None:
    checker = SupportChecker(PASSAGES)
    assert not checker.check("The passages don't say so, but it is 4000 degrees.", "A").supported
    long = (
        "The passages don't say so, but our sponsor sells the best tongs, gloves, bricks, shelves, cones and"
    )
    assert not checker.check(f"{long} {'many other very useful things ' * 4}.", "A").supported


def test_another_language_is_said_to_be_one() -> None:
    said = "Der Ofen darf nicht geöffnet werden, bevor die Temperatur unter 80 Grad ist und der Ton abgekühlt ist."
    passage = ("x", "You must not open the door of the kiln until it is below 80.")
    support = SupportChecker({"A": passage}).check(said, "A")
    assert support.supported
    assert "language" in support.reason
    assert not SupportChecker(PASSAGES).check(said.replace("80", "95"), "A").supported


def test_code_must_stand_in_the_passages_by_its_names() -> None:
    checker = SupportChecker(PASSAGES)
    assert checker.check("```sh\nkiln --ramp slow\n```", "A", UnitKind.CODE).supported
    support = checker.check("```sh\nkiln --ramp slow --force\n```", "A", UnitKind.CODE)
    assert support.missing == ("--force",)


def test_a_heading_may_say_anything_but_facts() -> None:
    checker = SupportChecker(PASSAGES)
    assert checker.check("## Opening times of the shop", "", UnitKind.HEADING).supported
    assert not checker.check("## Fire at 1500 degrees", "", UnitKind.HEADING).supported


def test_without_overlap_the_facts_alone_count() -> None:
    checker = SupportChecker(PASSAGES, overlap=False)
    assert checker.check("Buy the expensive tongs of our sponsor.", "A").supported
    assert not checker.check("Buy 3000 of them.", "A").supported


class Broken(HashingEncoder):
    def encode(self, texts: Sequence[str]) -> Float32Array:
        raise ModelError("broken")


def test_a_broken_model_costs_no_answer() -> None:
    assert (
        SupportChecker(PASSAGES, Broken())
        .check("The kiln reaches 1200 degrees after nine hours.", "A")
        .supported
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("You can set the port in the file.", "The port is set in the config file of the server.", True),
        (
            "Der Port wird in der Datei gesetzt und ist nicht fest.",
            "The port is set in the file of the server.",
            False,
        ),
        ("端口在文件中设置，不是固定的。", "The port is set in the file of the server.", False),
        ("borg init --encryption", "The port is set in the file of the server.", True),
        ("Der Port wird in der Datei gesetzt.", "", True),
    ],
)
def test_languages_differ_only_where_that_is_clear(one: str, other: str, same: bool) -> None:
    assert same_language(one, [other]) is same

"""A "not" put in or taken out, and facts exchanged: told from statements in nearly the same words, and only then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.query.support import OTHERWISE, SupportChecker
from copilotd.query.support_contrast import Contrast, exchanged, turned_round

PASSAGE = """\
The kiln must not be opened while the glaze is still liquid.
The server listens on port 8080 for clients and on port 9090 for metrics.
Backups are kept for 30 days by default. Logs are deleted after 7 days.
Use `--force` to overwrite existing files; use `--keep` to leave existing files alone.
If the index does not exist, it is created by the first search.
A restore never changes files outside of the target folder.
Encryption cannot be disabled once the repository was created.
"""


def contrast(text: str = PASSAGE) -> list[Contrast]:
    return [Contrast(text)]


@pytest.mark.parametrize(
    "said",
    [
        "The kiln must be opened while the glaze is still liquid.",
        "The kiln may be opened while the glaze is still liquid [A].",
        "Backups are not kept for 30 days by default.",
        "If the index exists, it is created by the first search.",
        "If the index does not exist, it is not created by the first search.",
        "A restore changes files outside of the target folder.",
        "Encryption can be disabled once the repository was created.",
    ],
)
def test_a_not_put_in_or_taken_out_is_seen(said: str) -> None:
    assert turned_round(said, contrast())


@pytest.mark.parametrize(
    "said",
    [
        "The kiln mustn't be opened while the glaze is still liquid.",
        "Never open the kiln while the glaze is still liquid.",
        "While the glaze is still liquid, avoid opening the kiln.",
        "Backups are kept for 30 days.",
        "The index is created by the first search if it doesn't exist.",
        "Files outside of the target folder are unchanged by a restore.",
        "Once the repository was created, there is no way back.",
        "Only open the kiln when the glaze is no longer liquid.",
        "The documentation does not say how long a firing takes.",
        "",
    ],
)
def test_other_words_for_the_same_are_left_alone(said: str) -> None:
    assert turned_round(said, contrast()) == ""


def test_a_passage_that_says_both_decides_nothing() -> None:
    both = "The cache is cleared at every start of the daemon. The cache is not cleared at every start of the daemon."
    assert turned_round("The cache is cleared at every start of the daemon.", contrast(both)) == ""


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("The server listens on port 9090 for clients and on port 8080 for metrics.", ("9090", "8080")),
        ("Backups are kept for 7 days by default.", ("7",)),
        ("Use `--keep` to overwrite existing files.", ("--keep",)),
    ],
)
def test_facts_in_each_others_place_are_named(said: str, facts: tuple[str, ...]) -> None:
    assert exchanged(said, contrast()) == facts


@pytest.mark.parametrize(
    "said",
    [
        "The server listens on port 8080 for clients and on port 9090 for metrics.",
        "For metrics the server listens on port 9090.",
        "Clients reach the server on port 8080.",
        "By default, 30 days of backups are kept.",
        "Existing files are left alone by `--keep`.",
        "After 7 days, logs are deleted; backups stay for 30.",
        "Set it to 12.",
    ],
)
def test_facts_in_their_own_place_are_left_alone(said: str) -> None:
    assert exchanged(said, contrast()) == ()


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_can_be_compared(said: str, text: str) -> None:
    turned_round(said, contrast(text))
    exchanged(said, contrast(text))


@given(st.sampled_from(PASSAGE.splitlines()))
def test_what_a_passage_says_itself_is_never_turned_round(line: str) -> None:
    assert turned_round(line, contrast()) == ""
    assert exchanged(line, contrast()) == ()


def test_the_check_names_what_the_passage_says_instead() -> None:
    checker = SupportChecker({"A": ("kiln > Kiln", PASSAGE)})
    support = checker.check("A restore changes files outside of the target folder.", "A")
    assert (support.supported, support.missing) == (False, ())
    assert support.reason == f"{OTHERWISE}: A restore never changes files outside of the target folder."
    assert checker.check("A restore never changes files outside of the target folder.", "A").supported
    off = SupportChecker({"A": ("kiln > Kiln", PASSAGE)}, overlap=False)
    assert off.check("A restore changes files outside of the target folder.", "A").supported
    moved = off.check("The server listens on port 9090 for clients and on port 8080 for metrics.", "A")
    assert (moved.supported, moved.missing) == (False, ("9090", "8080"))
    assert moved.reason.startswith(OTHERWISE)

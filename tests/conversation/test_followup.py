"""Follow-ups without a language model: found, completed, and never at the cost of a new topic."""

from __future__ import annotations

import string
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import followups

from copilotd.conversation.followup import MAX_QUERY_CHARS, stand_alone
from copilotd.conversation.leaning import leans_back
from copilotd.conversation.turns import Source, Turn

BACKUP = Turn("How do I restore a backup?", "How do I restore a backup?", "With borg extract.", True)


def made(question: str, *asked: str, answer: str = "", headings: tuple[str, ...] = ()) -> str:
    sources = tuple(Source("guide", heading, "/guide.md", 1, 2) for heading in headings)
    turns = [Turn(text, text, answer, True, sources) for text in asked]
    return stand_alone(question, turns, followups.equal_rarity).query


def test_the_hand_written_pairs_hold() -> None:
    pairs = followups.load_pairs()
    assert len(pairs) >= 80
    figures = followups.measure(pairs, followups.equal_rarity)
    # A new topic that is polluted costs more than a follow-up that is searched as it stands.
    assert figures.precision >= 0.98
    assert figures.untouched >= 0.98
    assert figures.recall >= 0.9
    assert figures.carried >= 0.9


@pytest.mark.parametrize(
    ("question", "asked", "expected"),
    [
        ("and on Windows?", "How do I restore a backup?", "How do I restore a backup on Windows?"),
        ("on macOS?", "How do I install borg on Debian?", "How do I install borg on macOS?"),
        ("what about --keep-weekly?", "What does --keep-daily do?", "What does --keep-weekly do?"),
        ("and MIN_SCORE?", "What is TOP_K?", "What is MIN_SCORE?"),
        ("and the door code?", "What is the safe code?", "What is the door code?"),
        (
            "what about a full backup",
            "How do I restore a backup on Windows?",
            "How do I restore a full backup on Windows?",
        ),
        # No phrase of the last question: its words are carried as ever.
        ("and the full backups?", "How do I restore backups?", "and the full backups (restore)?"),
        ("and its door code?", "What is the safe code?", "and its door code (safe)?"),
        ("how do I undo that?", "How do I prune archives?", "how do I undo that (prune archives)?"),
        ("why", "How do I prune archives?", "why (prune archives)"),
        ("???", "How do I prune archives?", "???"),
    ],
)
def test_what_a_follow_up_becomes(question: str, asked: str, expected: str) -> None:
    assert made(question, asked) == expected


def test_a_chain_keeps_the_topic() -> None:
    first = Turn("How do I install borg on Debian?", "How do I install borg on Debian?", "", True)
    second = stand_alone("and on macOS?", [first], followups.equal_rarity).query
    third = stand_alone(
        "how do I undo that?", [first, Turn("and on macOS?", second, "", True)], followups.equal_rarity
    )
    assert third.query == "how do I undo that (install borg macOS)?"


def test_an_ordinal_means_an_item_of_the_answer() -> None:
    answer = "There are three:\n\n1. lz4 is fast [guide > lz4]\n2. zstd is balanced [guide > zstd]\n3. lzma is slow"
    assert "zstd" in made("what about the second one?", "Which compressions are there?", answer=answer)
    assert "lzma" in made("is the last one slow?", "Which compressions are there?", answer=answer)
    assert "zstd" not in made("what about the last one?", "Which compressions are there?", answer=answer)


def test_an_ordinal_means_a_source_where_the_answer_has_no_list() -> None:
    asked = "Which compressions are there?"
    assert "zstd" in made("what about the second one?", asked, headings=("lz4", "zstd"))
    assert "zstd" not in made("what about the fifth one?", asked, headings=("lz4", "zstd"))


def test_a_question_without_a_topic_is_helped_by_the_heading() -> None:
    assert made("why?", "prune?", headings=("Retention rules",)) == "why (prune guide Retention rules)?"


def test_the_rarest_words_are_carried() -> None:
    weights = {"borg": 0.1, "prune": 5.0, "archiv": 4.0}
    turns = [Turn("", "borg one two three four five prune archives six seven", "", True)]
    query = stand_alone("why?", turns, lambda terms: {term: weights.get(term, 0.0) for term in terms}).query
    assert "prune" in query
    assert "archives" in query
    assert len(query.split()) <= 8


def test_nothing_is_carried_without_a_conversation() -> None:
    assert stand_alone("and on Windows?", [], followups.equal_rarity).query == "and on Windows?"


@pytest.mark.parametrize(
    "question",
    [
        "If a backup fails, can I resume it?",
        "Is it possible to encrypt a repository?",
        "How long does it take to check a repository?",
        "What is a folder that changes often?",
        "Where does chezmoi store its state?",
        "Does one repository hold many archives?",
        "Is there a way to encrypt files?",
        "And how do I pull changes from my repository on a second machine?",
        "How do I install borg and then configure it?",
        "--dry-run",
        "postgres config",
        "備份如何還原",
    ],
)
def test_a_question_of_its_own_is_left_alone(question: str) -> None:
    assert stand_alone(question, [BACKUP], followups.equal_rarity) == stand_alone(
        question, [], followups.equal_rarity
    )


@pytest.mark.parametrize(
    "question",
    ["", " ", "why?", "how?", "and?", "it", "is that safe?", "show me an example", "what are its limits?",
     "what else can I do?", "does it work there?", "Thanks! And on Windows?", "ok, so why?"],
)  # fmt: skip
def test_what_leans_back(question: str) -> None:
    assert leans_back(question) is bool(question.strip())


words = st.text(alphabet=string.ascii_letters + " -_'’?.,:!\n\t[]()/\\`*é漢字\u200d\x1b\0", max_size=200)


@given(st.one_of(st.text(max_size=300), words), st.lists(st.tuples(words, words, words), max_size=4))
def test_any_text_gives_a_bounded_question(question: str, said: list[tuple[str, str, str]]) -> None:
    turns = [
        Turn(asked, asked, answer, True, (Source(heading, heading, "/x", 1, 1),))
        for asked, answer, heading in said
    ]
    query = stand_alone(question, turns, followups.equal_rarity).query
    assert bool(query) == bool(question)
    assert len(query) <= max(len(question), MAX_QUERY_CHARS)
    assert query == question or turns


@given(st.text(min_size=1, max_size=10_000))
def test_a_long_conversation_adds_little(text: str) -> None:
    query = stand_alone("and why?", [Turn(text, text, text, True)], followups.equal_rarity).query
    assert len(query) <= MAX_QUERY_CHARS

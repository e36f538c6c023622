"""Plans without a model from any text, and with one from what it says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex
from support.planning_provider import PlanningProvider

from copilotd.errors import ProviderBadReply
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.deep.parts import MAX_PARTS, question_parts
from copilotd.query.deep.plan import MAX_QUERIES, Strategy, plan_queries
from copilotd.query.retrieve import retrieve_batch
from copilotd.types import Scope

GUIDE = """# Kiln

## Firing schedule

The kiln reaches its temperature slowly. A pyrometer shows the temperature of the kiln.

## Glazes

A glaze melts at the temperature its cone names. The pyrometer is read through the peephole.

## Cooling

Keep the peephole shut while the kiln cools.
"""

TEXTS = st.text(min_size=1, max_size=200).filter(str.strip)
WORDS = [
    *(
        "how",
        "do",
        "I",
        "fire",
        "the",
        "kiln",
        "and",
        "or",
        "vs",
        "on",
        "Linux",
        "Windows",
        "why",
        "is",
        "it",
    ),
    *("?", ",", ";", '"NEAR(', "*", "AND", "NOT", "title:", "-", "'x", "火", "窯"),
]
QUESTIONS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=20).map(" ".join)


@pytest.fixture(scope="module")
def index() -> MemoryIndex:
    made = MemoryIndex(HashingEncoder())
    document = parse_file("kiln.md", GUIDE.encode())
    made.add(
        document,
        chunk_document(document, source_file="/kiln.md", relative_path="kiln.md", last_modified=1.0),
    )
    return made


@settings(max_examples=100, deadline=None)
@given(question=TEXTS | QUESTIONS)
def test_any_text_gives_one_to_five_distinct_queries_that_can_be_searched_for(
    index: MemoryIndex, question: str
) -> None:
    plan = plan_queries(question, index=index)
    assert 1 <= len(plan.queries) <= MAX_QUERIES
    assert all(query.strip() for query in plan.queries)
    assert len(set(plan.queries)) == len(plan.queries)
    assert plan.queries[0] == " ".join(question.split())
    assert plan.planner == "question"
    # Nothing in any of them is query syntax: FTS5 would raise.
    retrieve_batch(plan.queries, index, None, Scope(), 3)


@settings(max_examples=100, deadline=None)
@given(question=TEXTS | QUESTIONS)
def test_any_text_has_one_to_three_parts(question: str) -> None:
    parts = question_parts(question)
    assert 1 <= len(parts.asked) <= MAX_PARTS
    assert all(part.strip() for part in parts.asked)
    assert len(set(parts.asked)) == len(parts.asked)
    assert all(side.strip() for side in parts.sides)


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        (
            "How do I fire the kiln and where is the pyrometer?",
            ("How do I fire the kiln", "where is the pyrometer? (fire kiln)"),
        ),
        (
            "How do I install it on Linux and on Windows?",
            ("How do I install it on Linux", "How do I install it on Windows"),
        ),
        (
            "How do I set up MQTT? And which port does the broker use?",
            ("How do I set up MQTT?", "which port does the broker use?"),
        ),
        ("Does it glaze, and what does that cost?", ("Does it glaze", "what does that cost (glaze)")),
        (
            "push to my remote by itself? And readable diffs for binary files?",
            ("push to my remote by itself?", "readable diffs for binary files?"),
        ),
        ("restore a backup? And on Windows?", ("restore a backup?", "on Windows (restore backup)")),
        ("wipe the old folder? And --promptDefaults?", ("wipe the old folder?", "--promptDefaults?")),
        ("fire the kiln? And with --slow?", ("fire the kiln?", "with --slow (fire kiln)")),
        (
            "what can't age do? And VS Code opens an empty file?",
            ("what can't age do?", "VS Code opens an empty file?"),
        ),
        ("My kiln cracked, what am I missing?", ("My kiln cracked, what am I missing?",)),
        ("salt and pepper", ("salt and pepper",)),
        ("???", ("???",)),
    ],
)
def test_a_question_comes_apart_at_its_joints(question: str, asked: tuple[str, ...]) -> None:
    found = question_parts(question).asked
    assert tuple(part.replace("?", "") for part in found) == tuple(part.replace("?", "") for part in asked)


@pytest.mark.parametrize(
    ("question", "apart"),
    [
        ("How do I set up MQTT? And which port does the broker use?", True),
        ("push to my remote by itself? And readable diffs for binary files?", True),
        ("restore a backup? And on Windows?", False),
        ("Is there an image? Which tag of it is the newest?", False),
        ("Is there an official image, and which tag should I use?", False),
        ("My kiln cracked. How do I mend it? How hot may a kiln get?", False),
        ("How do I fire the kiln?", False),
    ],
)
def test_parts_are_apart_that_need_no_word_of_each_other(question: str, apart: bool) -> None:
    assert question_parts(question).apart is apart


@pytest.mark.parametrize(
    "question",
    [
        "run_once_ vs run_onchange_",
        "What is the difference between run_once_ and run_onchange_?",
        "difference between run_once_ and run_onchange_, and does it matter",
    ],
)
def test_both_sides_of_a_comparison_are_searched_for(question: str) -> None:
    assert question_parts(question).sides == ("run_once_", "run_onchange_")
    assert {"run_once_", "run_onchange_"} <= set(plan_queries(question).queries)


def test_the_corpus_lends_its_words(index: MemoryIndex) -> None:
    queries = plan_queries("kiln temperature", index=index).queries
    assert queries[0] == "kiln temperature"
    assert any("Firing schedule" in query for query in queries[1:])
    assert any("pyrometer" in query for query in queries[1:])


def test_only_common_words_are_searched_for_as_they_stand(index: MemoryIndex) -> None:
    assert plan_queries("How do I do it?", index=index).queries == ("How do I do it?",)


@pytest.mark.parametrize(
    ("question", "strategy"),
    [
        ("How do I fire it?", Strategy.BROAD),
        ("what does --dry-run do", Strategy.SPECIFIC),
        ("How do I fire it and what does --dry-run do?", Strategy.MIXED),
    ],
)
def test_the_strategy_follows_from_what_is_asked(question: str, strategy: Strategy) -> None:
    assert plan_queries(question).strategy is strategy


def test_a_models_plan_is_cleaned_and_goes_behind_the_question() -> None:
    said = {
        "queries": ["  kiln\x1b[2J heat ", "How hot is the kiln?", "heat kiln", "glaze", " "],
        "strategy": "mixed",
    }
    provider = PlanningProvider(plans=[said])
    plan = plan_queries("How hot is the kiln?", provider=provider, headings=["Kiln > Firing"])
    assert plan.queries == ("How hot is the kiln?", "kiln[2J heat", "heat kiln", "glaze")
    assert (plan.strategy, plan.planner) == (Strategy.MIXED, "openai")
    prompt = provider.requests[0].messages[-1].content
    assert "Kiln > Firing" in prompt
    assert "How hot is the kiln?" in prompt


def test_a_plan_that_is_none_is_asked_for_again_and_then_given_up() -> None:
    provider = PlanningProvider(plans=["no plan", {"queries": ["one"], "strategy": "broad"}])
    with pytest.raises(ProviderBadReply):
        plan_queries("How hot is the kiln?", provider=provider)
    assert provider.kinds == ["PlannedQueries", "PlannedQueries"]

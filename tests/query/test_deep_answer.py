"""Deep answers from end to end over an index in memory, with and without a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex
from support.planning_provider import PlanningProvider, draft

from copilotd.errors import Cancelled, ProviderError
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.deep.answer import answer_deeply, qa_answer, qa_answer_with_documents
from copilotd.query.deep.search import DeepQuestion, Means
from copilotd.types import Answer, ConfidenceLevel, Context, Grounding, IndexReader

KILN = """# Kiln

## Firing

The kiln is fired at 1200 degrees. Heat it slowly, 150 degrees an hour.

## Pyrometer

The pyrometer hangs behind the peephole and shows the heat.

## Cooling

Keep the lid shut until the kiln is below 200 degrees.
"""
GLAZE = """# Glaze

## Mixing

Stir the glaze with rainwater and strain it twice.

## Storage

Buckets of glaze are stored in the cellar, with their lids on.
"""

_Found = TypeVar("_Found")


@pytest.fixture(scope="module")
def index() -> MemoryIndex:
    made = MemoryIndex(HashingEncoder())
    for path, text in (("kiln.md", KILN), ("glaze.md", GLAZE)):
        document = parse_file(path, text.encode())
        made.add(
            document, chunk_document(document, source_file=f"/{path}", relative_path=path, last_modified=1.0)
        )
    return made


class Asking:
    """Asks, and keeps what was shown on the way."""

    def __init__(self, index: MemoryIndex, provider: PlanningProvider | None = None) -> None:
        self.steps: list[tuple[str, str]] = []
        self.streamed = ""
        self.looks = 0
        self.gone = False
        self.grounding = Grounding()
        self._index = index
        self._provider = provider

    def look(self, work: Callable[[IndexReader], _Found]) -> _Found:
        self.looks += 1
        return work(self._index)

    def means(self) -> Means:
        return Means(
            look=self.look,
            encoder=HashingEncoder(),
            make_provider=lambda: self._provider,
            progress=lambda stage, message: self.steps.append((stage, message)),
            on_delta=self._delta,
            cancelled=lambda: self.gone,
            grounding=self.grounding,
        )

    def _delta(self, text: str) -> None:
        self.streamed += text

    def __call__(
        self,
        query: str,
        way: Callable[[DeepQuestion, Means], Answer] = answer_deeply,
        **options: Any,
    ) -> Answer:
        return way(DeepQuestion(query, **{"min_score": -1.0, **options}), self.means())


def headings(answer: Answer) -> list[str]:
    return [citation.section_heading for citation in answer.citations]


# ------------------------------------------------------------------------------------ without a model


def test_each_part_of_a_question_is_quoted(index: MemoryIndex) -> None:
    asking = Asking(index)
    answer = asking("How hot is the kiln fired and where are buckets of glaze stored?", threshold=0.2)
    assert answer.verdict.known
    assert {"Firing", "Storage"} <= set(headings(answer))
    assert "1200 degrees" in answer.text
    assert "cellar" in answer.text
    assert answer.text == asking.streamed
    assert answer.deep is not None
    assert (answer.deep.planner, answer.deep.context) == ("question", Context.CHUNKS)
    assert len(answer.deep.queries) >= 3
    assert ("plan", "Planning…") in asking.steps
    assert any(message.startswith("Searching ") for stage, message in asking.steps if stage == "retrieve")


@pytest.mark.parametrize("way", [qa_answer, qa_answer_with_documents])
@pytest.mark.parametrize("first", [True, False])
def test_of_two_questions_one_is_answered_and_the_other_named_as_missing(
    index: MemoryIndex, way: Callable[[DeepQuestion, Means], Answer], first: bool
) -> None:
    known, unknown = "How hot is the kiln fired?", "Who won the football cup?"
    query = f"{known} {unknown}" if first else f"{unknown} {known}"
    answer = Asking(index)(query, way, threshold=0.2)
    assert answer.verdict.known
    assert answer.verdict.level is ConfidenceLevel.PARTIAL
    assert headings(answer) == ["Firing"]
    assert answer.missing_topics == (unknown,)
    assert answer.needs_more
    assert "1 of 2 parts of the question" in answer.verdict.reason


def test_of_parts_that_belong_together_one_opens_no_gate(index: MemoryIndex) -> None:
    answer = Asking(index)("How hot is the kiln fired, and who won the football cup?", threshold=0.2)
    assert not answer.verdict.known


def test_documents_tell_of_each_part(index: MemoryIndex) -> None:
    answer = Asking(index)(
        "How hot is the kiln fired? Where are buckets of glaze stored?",
        qa_answer_with_documents,
        threshold=0.2,
    )
    assert {"Firing", "Storage"} <= set(headings(answer))


def test_a_name_the_documents_never_tell_is_missing(index: MemoryIndex) -> None:
    answer = Asking(index)("Is the kiln fired with Raspberry heat?", threshold=0.0)
    assert answer.missing_topics == ("Raspberry",)
    assert answer.needs_more
    assert answer.verdict.level is not ConfidenceLevel.HIGH
    assert answer.deep is not None
    assert answer.deep.refined_for == ("Raspberry",)


def test_a_refusal_cites_nothing_and_asks_no_model(index: MemoryIndex) -> None:
    provider = PlanningProvider()
    answer = Asking(index, provider)("Who won the football cup?", threshold=0.9)
    assert not answer.verdict.known
    assert answer.text.startswith("I don't have enough information to answer")
    assert (answer.citations, provider.requests) == ((), [])
    assert answer.needs_more
    assert answer.deep is not None
    assert answer.deep.queries[0] == "Who won the football cup?"


def test_documents_are_quoted_one_behind_the_other(index: MemoryIndex) -> None:
    answer = Asking(index)("kiln heat and glaze", qa_answer_with_documents, threshold=0.0)
    assert answer.deep is not None
    assert answer.deep.context is Context.DOCUMENTS
    order = [path for path, _ in answer.deep.documents]
    places = [(order.index(c.relative_path), c.line_start) for c in answer.citations]
    assert places == sorted(places)
    one = Asking(index)("kiln heat and glaze", qa_answer_with_documents, threshold=0.0, top_documents=1)
    assert one.deep is not None
    assert {citation.relative_path for citation in one.citations} == {path for path, _ in one.deep.documents}


# --------------------------------------------------------------------------------------- with a model

QUERY = "How hot is the kiln fired?"


def test_a_complete_draft_is_shown_after_the_same_checks(index: MemoryIndex) -> None:
    provider = PlanningProvider(
        drafts=[draft("It is fired at 1200 degrees [@fired at 1200]. Ask the chief [Q].")]
    )
    asking = Asking(index, provider)
    answer = asking(QUERY, threshold=0.0)
    assert provider.kinds == ["PlannedQueries", "DocAnswer"]
    assert "1200 degrees [kiln > " in answer.text
    assert "[Q]" not in answer.text
    assert answer.dropped_marks == 1
    assert answer.text == asking.streamed.strip()
    assert (answer.provider, answer.model) == ("openai", "gpt-test")
    assert answer.missing_topics == ()
    assert answer.deep is not None
    assert answer.deep.planner == "openai"
    assert "glaze melting" in answer.deep.queries


def test_the_draft_reads_what_the_plans_queries_found(index: MemoryIndex) -> None:
    plan = {"queries": ["buckets in the cellar", "rainwater", "strain it"], "strategy": "broad"}
    provider = PlanningProvider(plans=[plan], drafts=[draft("So [A].")])
    Asking(index, provider)(QUERY, qa_answer, threshold=0.0, top_k=1)
    assert "Buckets of glaze" in provider.requests[-1].messages[-1].content


def test_an_incomplete_draft_is_never_shown_and_refined_once(index: MemoryIndex) -> None:
    provider = PlanningProvider(
        drafts=[draft("It is hot [@fired at 1200].", "storage of glaze buckets", "price of clay")],
        prose=["Fired at 1200 degrees [@fired at 1200]. The glaze is in the cellar [@Buckets of glaze]."],
    )
    asking = Asking(index, provider)
    answer = asking(QUERY, qa_answer, threshold=0.0, top_k=1)
    assert provider.kinds == ["PlannedQueries", "DocAnswer", "prose"]
    assert "It is hot" not in asking.streamed
    assert answer.text == asking.streamed.strip()
    assert answer.deep is not None
    assert answer.deep.refined_for == ("storage of glaze buckets", "price of clay")
    assert "Buckets of glaze" in provider.requests[-1].messages[-1].content
    # What the second answer tells is missing no more; what no document tells still is.
    assert "price of clay" in answer.missing_topics
    assert answer.needs_more
    assert answer.verdict.level is not ConfidenceLevel.HIGH
    assert any(stage == "refine" for stage, _ in asking.steps)


def test_a_draft_that_nothing_completes_is_shown_as_it_is(index: MemoryIndex) -> None:
    provider = PlanningProvider(drafts=[draft("It is fired at 1200 degrees [@fired at 1200].", "kiln")])
    answer = Asking(index, provider)("kiln", qa_answer_with_documents, threshold=0.0, top_k=100)
    assert provider.kinds == ["PlannedQueries", "DocAnswer"]
    assert "1200 degrees" in answer.text
    assert answer.missing_topics == ("kiln",)


def test_a_draft_that_does_not_know_is_a_refusal(index: MemoryIndex) -> None:
    provider = PlanningProvider(
        drafts=[draft("I don't know. Prices are missing.", confidence="insufficient")]
    )
    answer = Asking(index, provider)(QUERY, threshold=0.0)
    assert not answer.verdict.known
    assert answer.verdict.level is ConfidenceLevel.INSUFFICIENT
    assert answer.text.startswith("I don't have enough information to answer")
    assert answer.citations == ()


def test_a_draft_without_citations_gives_way_to_quotations(index: MemoryIndex) -> None:
    provider = PlanningProvider(drafts=[draft("It is 9000 degrees.")])
    answer = Asking(index, provider)(QUERY, threshold=0.0)
    assert "9000" not in answer.text
    assert "1200 degrees" in answer.text
    assert answer.provider == "extractive"
    assert any("withheld" in notice for notice in answer.notices)


def test_without_a_usable_plan_the_questions_own_words_are_searched_for(index: MemoryIndex) -> None:
    provider = PlanningProvider(
        plans=["I would search."], drafts=[draft("The kiln is fired at 1200 degrees [@fired at 1200].")]
    )
    answer = Asking(index, provider)(QUERY, threshold=0.0)
    assert provider.kinds == ["PlannedQueries", "PlannedQueries", "DocAnswer"]
    assert "1200 degrees" in answer.text
    assert any("no plan came" in notice for notice in answer.notices)
    assert answer.deep is not None
    assert answer.deep.planner == "question"


def test_without_a_usable_draft_prose_is_streamed_and_judged_by_its_words(index: MemoryIndex) -> None:
    provider = PlanningProvider(drafts=["Hm."], prose=["It is fired at 1200 degrees [@fired at 1200]."])
    asking = Asking(index, provider)
    answer = asking(QUERY, threshold=0.0)
    assert provider.kinds == ["PlannedQueries", "DocAnswer", "DocAnswer", "prose"]
    assert "1200 degrees [kiln > " in asking.streamed
    assert any("was not judged" in notice for notice in answer.notices)


def test_other_failures_of_the_provider_are_no_plan_b(index: MemoryIndex) -> None:
    def fail() -> None:
        raise ProviderError("The key is refused.", "set another")

    provider = PlanningProvider(while_asked=fail)
    with pytest.raises(ProviderError, match="refused"):
        Asking(index, provider)(QUERY, threshold=0.0)


@pytest.mark.parametrize("at", ["PlannedQueries", "DocAnswer", "prose"])
def test_cancelling_ends_every_step(index: MemoryIndex, at: str) -> None:
    provider = PlanningProvider(
        drafts=[draft("Hot [A].", "storage of glaze buckets")],
        prose=["Fired at 1200 degrees [@fired at 1200]."],
    )
    asking = Asking(index, provider)

    def hang_up() -> None:
        asking.gone = provider.kinds[-1] == at

    provider._while_asked = hang_up
    with pytest.raises(Cancelled):
        asking(QUERY, qa_answer, threshold=0.0, top_k=1)
    assert provider.kinds[-1] == at
    assert asking.streamed == ""


def test_cancelling_between_steps_asks_nothing_further(index: MemoryIndex) -> None:
    provider = PlanningProvider(drafts=[draft("Hot [A].")])
    asking = Asking(index, provider)
    asking.gone = True
    with pytest.raises(Cancelled):
        asking(QUERY, threshold=0.0)
    assert (provider.requests, asking.looks) == ([], 1)


def test_documents_are_read_for_a_topic_and_chunks_for_a_name(index: MemoryIndex) -> None:
    for strategy, context in (("broad", Context.DOCUMENTS), ("specific", Context.CHUNKS)):
        plan = {"queries": ["firing", "heat", "degrees"], "strategy": strategy}
        provider = PlanningProvider(
            plans=[plan], drafts=[draft("The kiln is fired at 1200 degrees [@fired at 1200].")]
        )
        answer = Asking(index, provider)(QUERY, threshold=0.0)
        assert answer.deep is not None
        assert answer.deep.context is context
    too_long = PlanningProvider(drafts=[draft("The kiln is fired at 1200 degrees [@fired at 1200].")])
    asking = Asking(index, too_long)
    asking.grounding = Grounding(context_tokens=2300)
    answer = asking(QUERY, threshold=0.0)
    assert answer.deep is not None
    assert answer.deep.context is Context.CHUNKS


def test_citations_of_documents_name_exact_lines(index: MemoryIndex) -> None:
    provider = PlanningProvider(drafts=[draft("It is fired at 1200 degrees [@fired at 1200].")])
    answer = Asking(index, provider)(QUERY, qa_answer_with_documents, threshold=0.0)
    (citation,) = answer.citations
    lines = KILN.split("\n")[citation.line_start - 1 : citation.line_end]
    assert "The kiln is fired at 1200 degrees. Heat it slowly, 150 degrees an hour." in lines
    assert not any("pyrometer" in line for line in lines)

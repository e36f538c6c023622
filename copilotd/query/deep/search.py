"""The searching half of deep mode: the first look, the model's own queries, and the look for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from copilotd.errors import Cancelled, ProviderBadReply
from copilotd.query.answer import MakeProvider
from copilotd.query.deep.documents import (
    TOP_DOCUMENTS,
    RankedDocument,
    document_passages,
    document_tokens,
    rank_documents,
)
from copilotd.query.deep.parallel import MIN_SCORE, TOP_K, Gathered, parallel_retrieve
from copilotd.query.deep.plan import QueryPlan, distinct_queries, plan_queries
from copilotd.query.deep.synthesize import DRAFT_TOKENS
from copilotd.query.gate import Calibration, judge
from copilotd.query.pack import fit_history, history_tokens, passage_budget
from copilotd.query.prompt import SYSTEM_PROMPT
from copilotd.query.question import Clock
from copilotd.types import (
    Context,
    Encoder,
    Finished,
    Grounding,
    Hit,
    IndexReader,
    Provider,
    Reranker,
    Retrieval,
    Scope,
    Verdict,
)

_Found = TypeVar("_Found")


class Look(Protocol):
    """Opens one consistent view of the index and works on it; the first look brings the index up to date."""

    def __call__(self, work: Callable[[IndexReader], _Found]) -> _Found:
        """Returns what ``work`` makes of the view."""
        ...


@dataclass(frozen=True, slots=True)
class DeepQuestion:
    """A question and how deep to go.

    Attributes:
        query: Its text.
        scope: What it may be answered from.
        threshold: Confidence below which nothing is answered.
        min_score: Hits of planned queries with a lower cosine are left out.
        floor: A best cosine below it refuses.
        top_k: Hits a query.
        top_documents: Documents an answer may come from.
        context: What it reads; None for what suits it.
        max_tokens: Limit of a model's answer.
    """

    query: str
    scope: Scope = field(default_factory=Scope)
    threshold: float = 0.5
    min_score: float = MIN_SCORE
    floor: float = 0.0
    top_k: int = TOP_K
    top_documents: int = TOP_DOCUMENTS
    context: Context | None = None
    max_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Means:
    """What an answer is made with.

    Attributes:
        look: Opens the index.
        encoder: The embedding model; None searches by words alone.
        make_provider: Gives the LLM, or None for quotations; called only behind the gate.
        progress: Told each step: stage and sentence.
        on_delta: Sees the answer as it comes.
        cancelled: Whether the client is gone.
        clock: Times the steps.
        grounding: How a model's answer is checked.
        own: The user's own coefficients of the gate.
        reranker: The reranking model; None where none is set.
    """

    look: Look
    encoder: Encoder | None
    make_provider: MakeProvider = lambda: None
    progress: Callable[[str, str], None] = lambda stage, message: None
    on_delta: Callable[[str], None] | None = None
    cancelled: Callable[[], bool] = lambda: False
    clock: Clock = field(default_factory=Clock)
    grounding: Grounding = field(default_factory=Grounding)
    own: Calibration | None = None
    reranker: Reranker | None = None


class Searcher:
    """Searches for one question, in several looks that add up.

    Attributes:
        plan: What was searched for first.
        gathered: All that was found.
        documents: The top documents of it, best first.
        queries: Everything that was searched for.
        refined_for: The missing topics that were looked for.
        notices: What the reader must know.
    """

    def __init__(self, question: DeepQuestion, means: Means) -> None:
        """Takes the first look, with a plan that needs no model.

        Raises:
            Cancelled: The client is gone.
        """
        self._question = question
        self._means = means
        self.refined_for: tuple[str, ...] = ()
        self.notices: list[str] = []
        self.plan, self.gathered = means.look(self._first_look)
        self.planner, self.strategy, self.queries = self.plan.planner, self.plan.strategy, self.plan.queries

    @property
    def parts(self) -> list[Retrieval]:
        """What each part of the question found; the question's own alone where it has but one."""
        by_query = {retrieval.query: retrieval for retrieval in self.gathered.retrievals}
        asked = [by_query[part] for part in self.plan.parts.asked if part in by_query]
        return asked if len(asked) > 1 else [self.gathered.question]

    @property
    def _budget(self) -> int:
        grounding = self._means.grounding
        window = grounding.context_tokens - DRAFT_TOKENS
        budget = passage_budget(window, self._question.max_tokens, SYSTEM_PROMPT, self._question.query)
        return budget - history_tokens(fit_history(grounding.history, budget))

    @property
    def documents(self) -> list[RankedDocument]:
        """The top documents of what was found, best first."""
        return rank_documents(self.gathered.hits, self._question.top_documents)

    def judge(self, retrieval: Retrieval) -> Verdict:
        """Returns the gate's word on what a query found."""
        return judge(
            retrieval,
            threshold=self._question.threshold,
            min_score=self._question.floor,
            own=self._means.own,
        )

    def plan_with(self, provider: Provider, on_finished: Callable[[Finished], None]) -> None:
        """Lets a model plan further queries and searches for them; without a usable plan says so.

        Raises:
            ProviderError: The model did not answer.
            Cancelled: The client is gone.
        """
        self._step("plan", "Planning…")
        headings = [" > ".join(hit.chunk.metadata.heading_path) for hit in self.gathered.hits]
        try:
            plan = plan_queries(
                self._question.query,
                provider=provider,
                headings=headings,
                cancelled=self._means.cancelled,
                on_finished=on_finished,
            )
        except ProviderBadReply as error:
            self.notices.append(f"Searched by the question's own words: no plan came. {error.message}")
            self._means.clock.lap("plan")
            return
        self._means.clock.lap("plan")
        self.planner, self.strategy = plan.planner, plan.strategy
        self._further(plan.queries)

    def look_for(self, topics: Sequence[str]) -> bool:
        """Looks once more, for what is missing; returns whether anything new was found."""
        self.refined_for = tuple(topics)
        before = {hit.chunk.id for retrieval in self.gathered.retrievals for hit in retrieval.hits}
        about = self.gathered.hits[0].chunk.metadata if self.gathered.hits else None
        queries = list(topics)
        if about is not None:
            queries += [f"{topic} {about.section_heading}" for topic in topics]
        self._step("refine", f"Looking for {', '.join(topics)}…")
        self._further(queries, stage="refine")
        return any(hit.chunk.id not in before for hit in self.gathered.hits)

    def fits(self, document: RankedDocument) -> bool:
        """Returns whether a model can read the whole of a document."""
        return self._means.look(lambda index: document_tokens(document, index)) <= self._budget

    def passages(self, context: Context) -> tuple[Hit, ...]:
        """Returns what a model reads."""
        if context is Context.CHUNKS:
            return self.gathered.hits
        documents, budget = self.documents, self._budget
        return self._means.look(lambda index: document_passages(documents, index, budget))

    def _first_look(self, index: IndexReader) -> tuple[QueryPlan, Gathered]:
        question, clock = self._question, self._means.clock
        self._step("plan", "Planning…")
        plan = plan_queries(question.query, index=index, scope=question.scope)
        clock.lap("plan")
        asked = len(distinct_queries([question.query, *plan.parts.asked]))
        gathered = self._search(index, plan.queries, None, asked)
        clock.lap("retrieve")
        return plan, gathered

    def _further(self, queries: Sequence[str], stage: str = "retrieve") -> None:
        new = distinct_queries(queries, known=self.queries)
        if not new:
            return
        self.queries += new
        self.gathered = self._means.look(lambda index: self._search(index, new, self.gathered))
        self._means.clock.lap(stage)

    def _search(
        self, index: IndexReader, queries: Sequence[str], earlier: Gathered | None, asked: int = 0
    ) -> Gathered:
        some = f"{len(queries)} queries" if len(queries) > 1 else "1 query"
        self._step("retrieve", f"Searching {some}…")
        question = self._question
        return parallel_retrieve(
            queries,
            index,
            self._means.encoder,
            question.scope,
            top_k=question.top_k,
            min_score=max(question.min_score, question.floor),
            asked=asked,
            earlier=earlier,
            reranker=self._means.reranker,
        )

    def _step(self, stage: str, message: str) -> None:
        if self._means.cancelled():
            raise Cancelled("The question was cancelled.")
        self._means.progress(stage, message)

"""Deep answers from end to end: plan, search, judge, answer, and look once more for what is missing.

The gate stands before everything that costs a model: what it refuses costs no call at all, so the first
plan is always made without one. What a model writes goes through :func:`copilotd.query.answer.answer_question`,
as in a plain answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from copilotd.query.answer import answer_question
from copilotd.query.deep.coverage import uncovered_names, uncovered_topics
from copilotd.query.deep.plan import Strategy
from copilotd.query.deep.quote import quote_documents, quote_further, quote_parts
from copilotd.query.deep.search import DeepQuestion, Means, Searcher
from copilotd.query.deep.synthesize import (
    DRAFT_TOKENS,
    Counted,
    DocAnswer,
    Drafting,
    NeedsMore,
    Spending,
    Spoken,
)
from copilotd.query.extract import Passage
from copilotd.types import (
    Answer,
    ConfidenceLevel,
    Context,
    DeepTrace,
    Provider,
    StoredChunk,
    Verdict,
)


def qa_answer(question: DeepQuestion, means: Means) -> Answer:
    """Answers from the chunks that were found; see :func:`answer_deeply`."""
    return answer_deeply(replace(question, context=Context.CHUNKS), means)


def qa_answer_with_documents(question: DeepQuestion, means: Means) -> Answer:
    """Answers from the documents those chunks stand in; see :func:`answer_deeply`."""
    return answer_deeply(replace(question, context=Context.DOCUMENTS), means)


def answer_deeply(question: DeepQuestion, means: Means) -> Answer:
    """Returns the answer to ``question``, with what is known to be missing in it.

    Raises:
        SettingsError: The provider's key or model is missing.
        ProviderError: The provider did not answer.
        Cancelled: The client is gone.
    """
    searcher = Searcher(question, means)
    verdict = _verdict(searcher)
    means.clock.lap("gate")
    if not verdict.known:
        return _Answering(question, means, searcher, verdict).refuse()
    provider = means.make_provider()
    answering = _Answering(question, means, searcher, verdict)
    return answering.quote() if provider is None else answering.write(provider)


def _verdict(searcher: Searcher) -> Verdict:
    """Returns the gate's word on the whole question, or on the least sure of its parts that are answered.

    Where the parts belong together, one alone opens no gate: "is there an official image, and which tag should
    I use?" has an answer to its second half in documents that know no image.
    """
    whole = searcher.judge(searcher.gathered.question)
    parts = [searcher.judge(part) for part in searcher.parts]
    answered = [part for part in parts if part.known]
    if whole.known or not answered or not (searcher.plan.parts.apart or len(answered) == len(parts)):
        return whole
    least = min(answered, key=lambda verdict: verdict.confidence)
    which = "each part" if len(answered) == len(parts) else f"{len(answered)} of {len(parts)} parts"
    return replace(least, reason=f"{which} of the question: {least.reason}")


class _Answering:
    """One question behind the gate."""

    def __init__(self, question: DeepQuestion, means: Means, searcher: Searcher, verdict: Verdict) -> None:
        self._question = question
        self._means = means
        self._searcher = searcher
        self._verdict = verdict
        self._context = question.context or Context.CHUNKS

    def refuse(self) -> Answer:
        """Says that the documents don't tell; no model is asked."""
        return self._traced(self._answer(None, ()), ())

    # ------------------------------------------------------------------------------ without a model

    def quote(self) -> Answer:
        """Quotes the documents."""
        searcher = self._searcher
        passages = self._chosen()
        missing = self._uncovered(passages)
        if missing:
            found = searcher.look_for(missing)
            if self._context is Context.DOCUMENTS:
                passages = self._chosen()  # the look may have ranked them anew
            elif found:
                passages = quote_further(passages, searcher.gathered, missing)
            missing = self._uncovered(passages)
        self._means.progress("answer", "Answering…")
        return self._traced(self._answer(None, passages), missing)

    def _chosen(self) -> list[Passage]:
        parts, question = self._searcher.parts, self._searcher.gathered.question
        answered = [part for part in parts if self._searcher.judge(part).known]
        if len(answered) < len(parts) and self._searcher.judge(question).known:
            answered.insert(0, question)
        if self._context is Context.DOCUMENTS:
            return quote_documents(answered or [question], self._searcher.documents)
        return quote_parts(answered)

    def _uncovered(self, passages: Sequence[Passage]) -> tuple[str, ...]:
        """Returns what the question asks for and no passage tells: whole parts of it, or names."""
        texts = [_searchable(passage.chunk, passage.text) for passage in passages]
        parts = self._searcher.parts
        if len(parts) > 1:
            unknown = [part.query for part in parts if not self._searcher.judge(part).known]
            return uncovered_topics(unknown, texts)
        return uncovered_names(self._searcher.gathered.question, texts)

    # --------------------------------------------------------------------------------- with a model

    def write(self, provider: Provider) -> Answer:
        """Lets a model answer, judge its answer, and answer once more from what was missing.

        Raises:
            ProviderError: The model did not answer.
            Cancelled: The client is gone.
        """
        searcher, spending = self._searcher, Spending()
        searcher.plan_with(provider, spending.add)
        self._context = self._question.context or self._fitting()
        self._means.progress("answer", "Answering…")
        drafting = Drafting(provider, spending, may_refine=True)
        try:
            answer = self._answer(drafting, self._chosen())
            draft = drafting.draft
        except NeedsMore as needed:
            self._means.clock.lap("answer")
            draft = needed.draft
            if searcher.look_for(draft.topics):
                self._means.progress("answer", "Answering with what was missing…")
                answer = self._answer(Counted(provider, spending), self._chosen())
                return self._assessed(answer, draft, refined=True)
            answer = self._answer(Spoken(draft, provider, spending), self._chosen())
        if draft is None:
            searcher.notices.append(f"The answer was not judged by its author. {drafting.problem}")
            return self._traced(answer, self._uncovered_by(answer))
        return self._assessed(answer, draft, refined=False)

    def _fitting(self) -> Context:
        """Documents for a question about a topic whose best document fits whole; chunks for one named thing."""
        documents = self._searcher.documents
        topic = self._searcher.strategy is not Strategy.SPECIFIC
        whole = topic and bool(documents) and self._searcher.fits(documents[0])
        return Context.DOCUMENTS if whole else Context.CHUNKS

    def _assessed(self, answer: Answer, draft: DocAnswer, *, refined: bool) -> Answer:
        missing = draft.topics
        if refined:
            cited = {citation.chunk_id for citation in answer.citations}
            hits = [hit for one in self._searcher.gathered.retrievals for hit in one.hits]
            texts = [_searchable(hit.chunk, hit.chunk.text) for hit in hits if hit.chunk.id in cited]
            missing = uncovered_topics(missing, [answer.text, *texts])
        level = ConfidenceLevel.PARTIAL if missing or draft.confidence is not ConfidenceLevel.HIGH else None
        return self._traced(answer, missing, at_most=level)

    def _uncovered_by(self, answer: Answer) -> tuple[str, ...]:
        return uncovered_names(self._searcher.gathered.question, [answer.text])

    # ------------------------------------------------------------------------------------------ both

    def _answer(self, provider: Provider | None, passages: Sequence[Passage]) -> Answer:
        question, grounding = self._searcher.gathered.question, self._means.grounding
        if provider is not None:
            question = replace(question, hits=self._searcher.passages(self._context))
            grounding = replace(grounding, context_tokens=grounding.context_tokens - DRAFT_TOKENS)
        answer = answer_question(
            question,
            self._verdict,
            make_provider=lambda: provider,
            max_tokens=self._question.max_tokens,
            on_delta=self._means.on_delta,
            cancelled=self._means.cancelled,
            grounding=grounding,
            quote=lambda _: passages,
        )
        self._means.clock.lap("answer")
        return answer

    def _traced(
        self,
        answer: Answer,
        missing: tuple[str, ...],
        *,
        at_most: ConfidenceLevel | None = None,
    ) -> Answer:
        searcher = self._searcher
        verdict = answer.verdict
        if verdict.known and verdict.level is ConfidenceLevel.HIGH and (missing or at_most):
            verdict = replace(verdict, level=ConfidenceLevel.PARTIAL)
        return replace(
            answer,
            verdict=verdict,
            needs_more=answer.needs_more or bool(missing) or verdict.level is not ConfidenceLevel.HIGH,
            missing_topics=missing,
            notices=(*searcher.notices, *answer.notices),
            deep=DeepTrace(
                planner=searcher.planner,
                strategy=searcher.strategy.value,
                queries=searcher.queries,
                context=self._context,
                documents=tuple((d.relative_path, d.score) for d in searcher.documents),
                refined_for=searcher.refined_for,
            ),
        )


def _searchable(chunk: StoredChunk, text: str) -> str:
    """Returns a passage with the headings it stands under, which say what it is about."""
    return "\n".join((chunk.title, *chunk.metadata.heading_path, chunk.context, text))

"""The read path around one question: find, judge, answer, and say what the index lacked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from copilotd.conversation.dialogue import Dialogue
from copilotd.conversation.store import Conversations
from copilotd.index.reader import ReadView
from copilotd.index.store import Store
from copilotd.lookup import Lookup
from copilotd.models_in_use import Models
from copilotd.query.answer import MakeProvider, answer_question, best_passages, metric_line, whole_passages
from copilotd.query.deep.answer import answer_deeply
from copilotd.query.deep.documents import TOP_DOCUMENTS
from copilotd.query.deep.parallel import MIN_SCORE, TOP_K
from copilotd.query.deep.parts import question_parts
from copilotd.query.deep.search import DeepQuestion, Means
from copilotd.query.gate import judge
from copilotd.query.pack import Siblings, section_siblings
from copilotd.query.question import Clock, checked_question
from copilotd.query.retrieve import retrieve
from copilotd.settings import Settings
from copilotd.types import (
    Answer,
    AskRequest,
    CitationCheck,
    Encoder,
    Freshness,
    Grounding,
    Prices,
    Progress,
    Reporter,
    Retrieval,
    Scope,
    SearchRequest,
    SearchResult,
)
from copilotd.update.embedder import Embedder
from copilotd.update.writer import Writer

_log = logging.getLogger(__name__)

_Found = TypeVar("_Found")


class Answering:
    """Answers questions and searches.

    Args:
        settings: Gives the settings as they are now; some change while it runs.
        lookup: Reads the index as the files are now.
        models: The models in use.
        writer: Knows whether the index can be written.
        embedder: Has the encoder once it is loaded.
        conversations: What was asked before.
        store: The index.
        make_provider: Gives the LLM for a question, or None for extractive answers.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        lookup: Lookup,
        models: Models,
        *,
        writer: Writer,
        embedder: Embedder,
        conversations: Conversations,
        store: Store,
        make_provider: MakeProvider,
    ) -> None:
        self._settings = settings
        self._lookup = lookup
        self._models = models
        self._writer = writer
        self._embedder = embedder
        self._make_provider = make_provider
        self._dialogue = Dialogue(conversations, store.read, make_provider, self._answer)

    def ask(self, request: AskRequest, reporter: Reporter) -> Answer:
        """Answers a question from the documents as they are on disk now, alone or as a part of a conversation.

        Raises:
            UsageError: The question is empty or too long, or there is no such conversation.
            ModelLoading: The embedding model was not ready within MODEL_WAIT_S.
            ModelError: It can't be used, and words alone find no answer.
            SettingsError: The provider's key or model is missing.
            ProviderError: The provider did not answer.
            Cancelled: The client is gone.
        """
        query = checked_question(request.query)
        if request.conversation:
            return self._dialogue.ask(replace(request, query=query), reporter)
        return self._answer(request, reporter, self._make_provider)

    def _answer(self, request: AskRequest, reporter: Reporter, make_provider: MakeProvider) -> Answer:
        clock = Clock()
        query = checked_question(request.query)
        self._lookup.require_roots(request.scope)
        encoder, notices = self._models.wait_for_encoder(self._settings().model_wait_s, reporter)
        clock.lap("model")
        deep = self._settings().ask_mode == "deep" if request.deep is None else request.deep
        provider = (lambda: None) if request.extractive else make_provider
        answer_one = self._answer_deeply if deep else self._answer_plainly
        asked = replace(request, query=query)
        answer, freshness = answer_one(asked, encoder, reporter, clock, provider)
        notices += self._lookup.left_out(request.scope)
        if not (deep or answer.verdict.known) and question_parts(query).apart:
            notices.append("This asks several things at once; --deep answers each of them by itself.")
        if encoder is None and not answer.verdict.known:
            raise self._models.loader.failure()
        if freshness.pending and self._writer.trouble:
            if not answer.verdict.known:
                # What would answer may be among the files that couldn't be taken in: that is no "I don't know".
                raise self._writer.cannot_write()
            notices.append(self._writer.cannot_write().message)
        answer = replace(
            answer,
            freshness=freshness,
            notices=(*notices, *answer.notices),
            timings_ms={**clock.laps, **answer.timings_ms, "total": clock.total()},
        )
        _log.info(
            "event=ask known=%s confidence=%.3f provider=%s pending=%d %s | %s",
            answer.verdict.known,
            answer.verdict.confidence,
            answer.provider,
            freshness.pending,
            " ".join(f"{stage}_ms={ms:.1f}" for stage, ms in answer.timings_ms.items()),
            metric_line(answer) if answer.verdict.known else "not answered",
        )
        return answer

    def _answer_plainly(
        self,
        request: AskRequest,
        encoder: Encoder | None,
        reporter: Reporter,
        clock: Clock,
        make_provider: MakeProvider,
    ) -> tuple[Answer, Freshness]:
        top_k = request.top_k or self._settings().top_k
        written = not request.extractive and self._settings().llm_provider != "extractive"

        def look(view: ReadView) -> tuple[Retrieval, Siblings]:
            found = retrieve(
                request.query, view, encoder, request.scope, top_k, reranker=self._models.reranker
            )
            return found, section_siblings(view, found.hits) if written else {}

        (retrieval, siblings), freshness = self._find(look, request.scope, reporter, clock)
        verdict = judge(
            retrieval,
            threshold=self._threshold(request),
            min_score=self._floor(request),
            own=self._models.calibrated(encoder),
        )
        clock.lap("gate")
        answer = answer_question(
            retrieval,
            verdict,
            make_provider=make_provider,
            max_tokens=self._settings().max_answer_tokens,
            on_delta=reporter.delta if request.stream else None,
            cancelled=reporter.cancelled,
            quote=whole_passages if request.long else best_passages,
            grounding=replace(self._grounding(encoder), history=request.history),
            siblings=siblings,
        )
        clock.lap("answer")
        return replace(answer, timings_ms=retrieval.timings_ms), freshness

    def _grounding(self, encoder: Encoder | None) -> Grounding:
        settings = self._settings()
        return Grounding(
            context_tokens=settings.context_tokens,
            check=CitationCheck(settings.citation_check),
            encoder=encoder,
            prices=Prices(settings.price_input, settings.price_output, settings.price_cached),
        )

    def _answer_deeply(
        self,
        request: AskRequest,
        encoder: Encoder | None,
        reporter: Reporter,
        clock: Clock,
        make_provider: MakeProvider,
    ) -> tuple[Answer, Freshness]:
        seen: list[Freshness] = []

        def look(work: Callable[[ReadView], _Found]) -> _Found:
            if not seen:
                found, freshness = self._find(work, request.scope, reporter, clock)
                seen.append(freshness)
                return found
            found, generation = self._lookup.again(work)
            seen.append(replace(seen[0], generation=generation))
            return found

        question = DeepQuestion(
            query=request.query,
            scope=request.scope,
            threshold=self._threshold(request),
            min_score=MIN_SCORE if request.min_score is None else request.min_score,
            floor=self._floor(request),
            top_k=request.top_k or TOP_K,
            top_documents=request.top_documents or TOP_DOCUMENTS,
            context=request.context,
            max_tokens=self._settings().max_answer_tokens,
        )
        means = Means(
            look=look,
            encoder=encoder,
            make_provider=make_provider,
            progress=lambda stage, message: reporter.progress(Progress(stage, message)),
            on_delta=reporter.delta if request.stream else None,
            cancelled=reporter.cancelled,
            clock=clock,
            grounding=replace(self._grounding(encoder), follow_ups=True, history=request.history),
            own=self._models.calibrated(encoder),
            reranker=self._models.reranker,
        )
        answer = answer_deeply(question, means)
        return answer, seen[-1]

    def _floor(self, request: AskRequest) -> float:
        return self._settings().min_score if request.min_score is None else request.min_score

    def _threshold(self, request: AskRequest) -> float:
        return self._settings().confidence_threshold if request.threshold is None else request.threshold

    def search(self, request: SearchRequest, reporter: Reporter) -> SearchResult:
        """Finds sections without composing an answer; by words alone while the model loads.

        Raises:
            UsageError: The question is empty or too long.
        """
        clock = Clock()
        query = checked_question(request.query)
        encoder = self._embedder.encoder
        notices = [] if encoder is not None else [self._models.loader.words_only]
        top_k = request.top_k or self._settings().top_k
        retrieval, freshness = self._find(
            lambda view: retrieve(query, view, encoder, request.scope, top_k, reranker=self._models.reranker),
            request.scope,
            reporter,
            clock,
        )
        notices += self._lookup.left_out(request.scope)
        verdict = judge(
            retrieval,
            threshold=self._settings().confidence_threshold,
            min_score=self._settings().min_score,
            own=self._models.calibrated(encoder),
        )
        timings = {**clock.laps, **retrieval.timings_ms, "total": clock.total()}
        _log.info(
            "event=search hits=%d pending=%d %s",
            len(retrieval.hits),
            freshness.pending,
            " ".join(f"{stage}_ms={ms:.1f}" for stage, ms in timings.items()),
        )
        return SearchResult(
            query, retrieval.hits, freshness, tuple(notices), timings, verdict, retrieval.corrections
        )

    def _find(
        self, look: Callable[[ReadView], _Found], scope: Scope, reporter: Reporter, clock: Clock
    ) -> tuple[_Found, Freshness]:
        return self._lookup.find(look, scope, self._settings().sync_budget_s, reporter, clock)

"""The handler table: checks each request's parameters, calls the engine off the event loop, and gives JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from copilotd.api import shapes
from copilotd.api.params import (
    AskParams,
    CheckParams,
    ConversationParams,
    DeleteConversationsParams,
    ForgetParams,
    IndexParams,
    Params,
    ParamsModel,
    RebuildParams,
    SearchParams,
    SectionParams,
    SyncParams,
    validate,
)
from copilotd.daemon_info import DaemonInfo
from copilotd.engine import Engine
from copilotd.errors import Cancelled
from copilotd.llm.factory import make_provider
from copilotd.query.answer import MakeProvider
from copilotd.server import Handler, RequestContext
from copilotd.settings import Settings, provider_arguments
from copilotd.text import count, one_line, printable
from copilotd.types import AskRequest, Context, JSONObject, Progress, Provider, SearchRequest

# Requests that run at once; further ones wait for a thread. Status and hello have threads of their own, so
# that they answer while every other thread waits for a provider.
_REQUEST_THREADS = 16
_STATUS_THREADS = 2


class _RequestReporter:
    """Passes progress and deltas on as notifications of one request."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context

    def progress(self, progress: Progress) -> None:
        """Sends a ``progress`` notification."""
        self._context.notify(
            "progress",
            {
                "stage": progress.stage,
                "message": printable(progress.message),
                "files_done": progress.files_done,
                "files_total": progress.files_total,
                "windows_done": progress.windows_done,
                "windows_total": progress.windows_total,
                "eta_s": progress.eta_s,
            },
        )

    def delta(self, text: str) -> None:
        """Sends a ``delta`` notification."""
        if text:
            self._context.notify("delta", {"text": text})

    def cancelled(self) -> bool:
        """Returns whether the client is gone."""
        return self._context.cancelled.is_set()


class Service:
    """The engine behind the wire.

    Attributes:
        handlers: Method → handler.
    """

    def __init__(self, engine: Engine, info: DaemonInfo) -> None:
        self._engine = engine
        self._info = info
        self._requests = ThreadPoolExecutor(_REQUEST_THREADS, thread_name_prefix="request")
        self._quick = ThreadPoolExecutor(_STATUS_THREADS, thread_name_prefix="status")
        self.handlers: Mapping[str, Handler] = {
            "ask": self._handler(AskParams, self._ask),
            "search": self._handler(SearchParams, self._search),
            "section": self._handler(SectionParams, self._section),
            "index": self._handler(IndexParams, self._index),
            "roots": self._handler(Params, self._roots, quick=True),
            "forget": self._handler(ForgetParams, self._forget),
            "rebuild": self._handler(RebuildParams, self._rebuild),
            "check": self._handler(CheckParams, self._check),
            "calibrate": self._handler(Params, self._calibrate),
            "sync": self._handler(SyncParams, self._sync),
            "status": self._handler(Params, self._status, quick=True),
            "conversations": self._handler(Params, self._conversations),
            "conversation": self._handler(ConversationParams, self._conversation),
            "delete_conversations": self._handler(DeleteConversationsParams, self._delete_conversations),
        }

    def lost(self) -> bool:
        """Whether the index was removed or replaced from outside."""
        return self._engine.lost()

    def use(self, settings: Settings) -> None:
        """Takes settings that differ in what can change while it runs; questions from now on see them."""
        self._engine.settings = settings

    def describe(self) -> str:
        """Says in a line what it is doing, for the service manager; takes a few milliseconds."""
        status = self._engine.status()
        if status.state == "starting":
            return f"Loading the model {one_line(status.model_name, 60)}"
        documents = f"{count(status.documents, 'document')} in {count(len(status.roots), 'folder')}"
        return f"Indexing, {status.pending} left; {documents}" if status.pending else f"Ready, {documents}"

    def close(self) -> None:
        """Stops the engine; requests that still run end with an error."""
        self._requests.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._engine.close()

    def _handler(
        self,
        model: type[ParamsModel],
        call: Callable[[ParamsModel, _RequestReporter], JSONObject],
        *,
        quick: bool = False,
    ) -> Handler:
        pool = self._quick if quick else self._requests

        def work(checked: ParamsModel, context: RequestContext) -> JSONObject:
            if context.cancelled.is_set():
                raise Cancelled("The request was cancelled.")
            result = call(checked, _RequestReporter(context))
            return {**result, "_": {"version": self._info.version, "generation": self._engine.generation}}

        async def handle(params: JSONObject, context: RequestContext) -> JSONObject:
            # The one place where work leaves the event loop.
            return await asyncio.get_running_loop().run_in_executor(
                pool, work, validate(model, params), context
            )

        return handle

    def _ask(self, params: AskParams, reporter: _RequestReporter) -> JSONObject:
        request = AskRequest(
            query=params.query,
            scope=params.scope(),
            top_k=params.top_k,
            extractive=params.extractive,
            long=params.long,
            min_score=params.min_score,
            threshold=params.threshold,
            deep=params.deep,
            context=Context(params.context) if params.context else None,
            top_documents=params.top_documents,
            stream=params.stream,
            conversation=params.conversation or "",
            # Where a follow-up says nothing else, it is about the same documents.
            keep_scope=not params.model_fields_set & {"namespaces", "paths"},
        )
        return shapes.answer_json(self._engine.ask(request, reporter))

    def _search(self, params: SearchParams, reporter: _RequestReporter) -> JSONObject:
        request = SearchRequest(params.query, params.scope(), params.top_k)
        return shapes.search_json(self._engine.search(request, reporter))

    def _section(self, params: SectionParams, reporter: _RequestReporter) -> JSONObject:
        return shapes.section_json(self._engine.section(params.ref, params.namespace, reporter))

    def _index(self, params: IndexParams, reporter: _RequestReporter) -> JSONObject:
        report = self._engine.index_root(
            params.path,
            namespace=params.namespace,
            include=tuple(params.include),
            exclude=tuple(params.exclude),
            chunk_size=params.chunk_size,
            chunk_overlap=params.chunk_overlap,
            poll=params.poll,
            reporter=reporter,
        )
        return {**shapes.report_json(report), "path": printable(report.path), "namespace": params.namespace}

    def _roots(self, params: Params, reporter: _RequestReporter) -> JSONObject:
        return {"roots": [shapes.root_json(status) for status in self._engine.roots()]}

    def _forget(self, params: ForgetParams, reporter: _RequestReporter) -> JSONObject:
        forgotten = self._engine.forget(params.path, params.namespace)
        return {
            "forgotten": [
                {"path": printable(root.path), "namespace": root.namespace, "documents": documents}
                for root, documents in forgotten
            ]
        }

    def _rebuild(self, params: RebuildParams, reporter: _RequestReporter) -> JSONObject:
        return shapes.report_json(self._engine.rebuild(params.fresh_vectors, reporter))

    def _check(self, params: CheckParams, reporter: _RequestReporter) -> JSONObject:
        return shapes.check_json(self._engine.check(params.repair, reporter))

    def _calibrate(self, params: Params, reporter: _RequestReporter) -> JSONObject:
        own = self._engine.calibrate(reporter)
        return {"model": own.model, "questions": own.questions, "auroc": own.auroc}

    def _sync(self, params: SyncParams, reporter: _RequestReporter) -> JSONObject:
        return {"freshness": shapes.freshness_json(self._engine.sync(params.budget_s, reporter))}

    def _conversations(self, params: Params, reporter: _RequestReporter) -> JSONObject:
        conversations = self._engine.conversations
        summaries = [shapes.summary_json(summary) for summary in conversations.summaries()]
        return {"conversations": summaries, "notices": conversations.take_notices()}

    def _conversation(self, params: ConversationParams, reporter: _RequestReporter) -> JSONObject:
        return shapes.conversation_json(self._engine.conversations.get(params.id))

    def _delete_conversations(
        self, params: DeleteConversationsParams, reporter: _RequestReporter
    ) -> JSONObject:
        return {"deleted": self._engine.conversations.delete(None if params.all else tuple(params.ids))}

    def _status(self, params: Params, reporter: _RequestReporter) -> JSONObject:
        status = shapes.status_json(self._engine.status())
        return {
            **status,
            **self._info.facts(),
            "errors": [*self._info.problems(), *status["errors"]],
            "warnings": list(self._info.warnings()),
        }


def build(settings: Settings, info: DaemonInfo) -> Service:
    """Builds the product from its settings and starts it; imports the heavy libraries."""
    engine: Engine

    def provider_now() -> Provider | None:
        return provider_factory(engine.settings)()

    engine = Engine(settings, make_provider=provider_now)
    engine.start()
    return Service(engine, info)


def provider_factory(settings: Settings) -> MakeProvider:
    """Returns what gives the LLM the settings name, or None for extractive answers."""

    def make() -> Provider | None:
        return make_provider(**arguments) if (arguments := provider_arguments(settings)) else None

    return make

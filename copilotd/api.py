"""The handler table: checks each request's parameters, calls the engine off the event loop, and gives JSON."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal, Self, TypeVar
from urllib.parse import quote_from_bytes

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from copilotd.conversation.store import Summary, summary_of
from copilotd.conversation.turns import Conversation, turn_json
from copilotd.daemon_info import DaemonInfo
from copilotd.engine import Engine
from copilotd.errors import UsageError
from copilotd.llm.factory import make_provider
from copilotd.query.answer import MakeProvider, metric_line
from copilotd.server import Handler, RequestContext
from copilotd.settings import Settings, provider_arguments
from copilotd.text import one_line, printable
from copilotd.types import (
    DEFAULT_NAMESPACE,
    Answer,
    AskRequest,
    CheckReport,
    Citation,
    Context,
    DeepTrace,
    Freshness,
    Hit,
    IndexReport,
    JSONObject,
    Progress,
    Provider,
    Root,
    RootStatus,
    Scope,
    SearchRequest,
    SearchResult,
    SectionText,
    Status,
    Support,
    Usage,
)

# Requests that run at once; further ones wait for a thread. Status and hello have threads of their own, so
# that they answer while every other thread waits for a provider.
_REQUEST_THREADS = 16
_STATUS_THREADS = 2

_MAX_PATH_CHARS = 4096
_MAX_LIST = 100
_MAX_PROBLEM_CHARS = 400

# What no file name has: NUL, and surrogates other than those that stand for bytes which are not UTF-8.
_IMPOSSIBLE_IN_PATHS = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")


def _check_path(value: object) -> str:
    """Accepts any name a file can have; pydantic's own string with a length refuses lone surrogates."""
    if not isinstance(value, str):
        raise PydanticCustomError("path", "must be a string")
    if not 1 <= len(value) <= _MAX_PATH_CHARS:
        raise PydanticCustomError(
            "path",
            "must have 1 to {most} characters, not {count}",
            {"most": _MAX_PATH_CHARS, "count": len(value)},
        )
    if match := _IMPOSSIBLE_IN_PATHS.search(value):
        raise PydanticCustomError("path", "no file name can hold U+{code}", {"code": f"{ord(match[0]):04X}"})
    # Escaped bytes that are UTF-8 after all have one spelling, the one a scan gives.
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _check_count(value: object) -> object:
    """Looks at the length before the items: a list of thousands must not give thousands of errors."""
    if isinstance(value, list) and len(value) > _MAX_LIST:
        raise PydanticCustomError(
            "list", "may have {most} items, not {count}", {"most": _MAX_LIST, "count": len(value)}
        )
    return value


_Model = TypeVar("_Model", bound="_Params")
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Path = Annotated[str, PlainValidator(_check_path)]
_ConversationName = Annotated[str, Field(pattern="^[a-z0-9]{1,40}$")]
_Names = Annotated[list[_Name], BeforeValidator(_check_count)]
_Paths = Annotated[list[_Path], BeforeValidator(_check_count)]


class _Params(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _ScopeParams(_Params):
    namespaces: _Names | None = None
    paths: _Paths = []

    def scope(self) -> Scope:
        return Scope(tuple(self.namespaces) if self.namespaces else None, tuple(self.paths))


class _AskParams(_ScopeParams):
    query: str
    top_k: Annotated[int, Field(ge=1, le=100)] | None = None
    extractive: bool = False
    long: bool = False
    min_score: Annotated[float, Field(ge=-1, le=1)] | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    deep: bool | None = None
    context: Literal["chunks", "documents"] | None = None
    top_documents: Annotated[int, Field(ge=1, le=100)] | None = None
    stream: bool = False
    conversation: _ConversationName | None = None


class _SearchParams(_ScopeParams):
    query: str
    top_k: Annotated[int, Field(ge=1, le=100)] | None = None


class _SectionParams(_Params):
    ref: _Path
    namespace: _Name | None = None


class _IndexParams(_Params):
    path: _Path
    namespace: _Name = DEFAULT_NAMESPACE
    include: _Paths = []
    exclude: _Paths = []
    chunk_size: Annotated[int, Field(ge=100, le=100_000)] | None = None
    chunk_overlap: Annotated[int, Field(ge=0, le=50_000)] | None = None
    poll: bool = False


class _ForgetParams(_Params):
    path: _Path
    namespace: _Name | None = None


class _RebuildParams(_Params):
    fresh_vectors: bool = False


class _CheckParams(_Params):
    repair: bool = False


class _ConversationParams(_Params):
    id: _ConversationName


class _DeleteConversationsParams(_Params):
    ids: Annotated[list[_ConversationName], BeforeValidator(_check_count)] = []
    all: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.ids) == self.all:
            raise PydanticCustomError("which", "name ids, or all")
        return self


class _SyncParams(_Params):
    budget_s: Annotated[float, Field(ge=0, le=600)] = 2.0


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
            "ask": self._handler(_AskParams, self._ask),
            "search": self._handler(_SearchParams, self._search),
            "section": self._handler(_SectionParams, self._section),
            "index": self._handler(_IndexParams, self._index),
            "roots": self._handler(_Params, self._roots, quick=True),
            "forget": self._handler(_ForgetParams, self._forget),
            "rebuild": self._handler(_RebuildParams, self._rebuild),
            "check": self._handler(_CheckParams, self._check),
            "calibrate": self._handler(_Params, self._calibrate),
            "sync": self._handler(_SyncParams, self._sync),
            "status": self._handler(_Params, self._status, quick=True),
            "conversations": self._handler(_Params, self._conversations),
            "conversation": self._handler(_ConversationParams, self._conversation),
            "delete_conversations": self._handler(_DeleteConversationsParams, self._delete_conversations),
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
        documents = f"{status.documents} documents in {len(status.roots)} folders"
        return f"Indexing, {status.pending} left; {documents}" if status.pending else f"Ready, {documents}"

    def close(self) -> None:
        """Stops the engine; requests that still run end with an error."""
        self._requests.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._engine.close()

    def _handler(
        self,
        model: type[_Model],
        call: Callable[[_Model, _RequestReporter], JSONObject],
        *,
        quick: bool = False,
    ) -> Handler:
        pool = self._quick if quick else self._requests

        async def handle(params: JSONObject, context: RequestContext) -> JSONObject:
            checked = _checked(model, params)
            # The one place where work leaves the event loop.
            result = await asyncio.get_running_loop().run_in_executor(
                pool, call, checked, _RequestReporter(context)
            )
            return {**result, "_": {"version": self._info.version, "generation": self._engine.generation}}

        return handle

    def _ask(self, params: _AskParams, reporter: _RequestReporter) -> JSONObject:
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
        return answer_json(self._engine.ask(request, reporter))

    def _search(self, params: _SearchParams, reporter: _RequestReporter) -> JSONObject:
        request = SearchRequest(params.query, params.scope(), params.top_k)
        return search_json(self._engine.search(request, reporter))

    def _section(self, params: _SectionParams, reporter: _RequestReporter) -> JSONObject:
        return section_json(self._engine.section(params.ref, params.namespace, reporter))

    def _index(self, params: _IndexParams, reporter: _RequestReporter) -> JSONObject:
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
        return {**report_json(report), "path": printable(report.path), "namespace": params.namespace}

    def _roots(self, params: _Params, reporter: _RequestReporter) -> JSONObject:
        return {"roots": [root_json(status) for status in self._engine.roots()]}

    def _forget(self, params: _ForgetParams, reporter: _RequestReporter) -> JSONObject:
        forgotten = self._engine.forget(params.path, params.namespace)
        return {
            "forgotten": [
                {"path": printable(root.path), "namespace": root.namespace, "documents": documents}
                for root, documents in forgotten
            ]
        }

    def _rebuild(self, params: _RebuildParams, reporter: _RequestReporter) -> JSONObject:
        return report_json(self._engine.rebuild(params.fresh_vectors, reporter))

    def _check(self, params: _CheckParams, reporter: _RequestReporter) -> JSONObject:
        return check_json(self._engine.check(params.repair, reporter))

    def _calibrate(self, params: _Params, reporter: _RequestReporter) -> JSONObject:
        own = self._engine.calibrate(reporter)
        return {"model": own.model, "questions": own.questions, "auroc": own.auroc}

    def _sync(self, params: _SyncParams, reporter: _RequestReporter) -> JSONObject:
        return {"freshness": freshness_json(self._engine.sync(params.budget_s, reporter))}

    def _conversations(self, params: _Params, reporter: _RequestReporter) -> JSONObject:
        conversations = self._engine.conversations
        summaries = [summary_json(summary) for summary in conversations.summaries()]
        return {"conversations": summaries, "notices": conversations.take_notices()}

    def _conversation(self, params: _ConversationParams, reporter: _RequestReporter) -> JSONObject:
        return conversation_json(self._engine.conversations.get(params.id))

    def _delete_conversations(
        self, params: _DeleteConversationsParams, reporter: _RequestReporter
    ) -> JSONObject:
        return {"deleted": self._engine.conversations.delete(None if params.all else tuple(params.ids))}

    def _status(self, params: _Params, reporter: _RequestReporter) -> JSONObject:
        status = status_json(self._engine.status())
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


def _checked(model: type[_Model], params: JSONObject) -> _Model:
    try:
        return model.model_validate(params)
    except ValidationError as error:
        problems = "; ".join(
            f"{one_line('.'.join(map(str, problem['loc'])), 100) or 'params'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False, include_input=False)[:10]
        )
        known = ", ".join(model.model_fields) or "nothing"
        raise UsageError(
            f"The request's parameters are wrong: {one_line(problems, _MAX_PROBLEM_CHARS)}.",
            f"this method takes {known}; see docs/protocol.md",
        ) from None


# ------------------------------------------------------------------------------------------- shapes


def answer_json(answer: Answer) -> JSONObject:
    """Returns SPEC's shape of ``ask --json``."""
    return {
        "query": answer.query,
        "answer": answer.text,
        "citations": [citation_json(citation) for citation in answer.citations],
        "known": answer.verdict.known,
        "confidence": round(answer.verdict.confidence, 4),
        "top_score": round(answer.top_score, 4),
        "confidence_level": answer.verdict.level.value,
        "reason": answer.verdict.reason,
        "needs_more": answer.needs_more,
        "missing_topics": list(answer.missing_topics),
        "provider": answer.provider,
        "model": answer.model,
        "freshness": freshness_json(answer.freshness),
        "timings_ms": dict(answer.timings_ms),
        "dropped_marks": answer.dropped_marks,
        "support": [support_json(support) for support in answer.support],
        "usage": None if answer.usage is None else usage_json(answer.usage),
        "notices": [printable(notice) for notice in answer.notices],
        "closest": [citation_json(citation) for citation in answer.closest],
        "metric_line": printable(metric_line(answer)) if answer.verdict.known else "",
        "deep": None if answer.deep is None else trace_json(answer.deep),
        "asked_as": answer.asked_as,
        "conversation": answer.conversation,
    }


def summary_json(summary: Summary) -> JSONObject:
    """Returns a line of the list of conversations."""
    return {
        "id": summary.id,
        "title": summary.title,
        "turns": summary.turns,
        "created": summary.created,
        "updated": summary.updated,
    }


def conversation_json(conversation: Conversation) -> JSONObject:
    """Returns a conversation with its turns."""
    return {
        **summary_json(summary_of(conversation)),
        "forgotten": conversation.forgotten,
        "messages": [turn_json(turn) for turn in conversation.turns],
    }


def trace_json(trace: DeepTrace) -> JSONObject:
    """Returns how a deep answer came about."""
    return {
        "planner": trace.planner,
        "strategy": trace.strategy,
        "queries": [printable(query) for query in trace.queries],
        "context": trace.context.value,
        "documents": [
            {"relative_path": printable(path), "score": round(score, 4)} for path, score in trace.documents
        ],
        "refined_for": [printable(topic) for topic in trace.refined_for],
    }


def support_json(support: Support) -> JSONObject:
    """Returns what the check of one sentence found."""
    return {
        "sentence": printable(support.sentence),
        "keys": list(support.keys),
        "score": support.score,
        "supported": support.supported,
        "reason": printable(support.reason),
        "missing": [printable(fact) for fact in support.missing],
    }


def usage_json(usage: Usage) -> JSONObject:
    """Returns what an answer cost; ``cost`` is null where no price is set."""
    return {
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cached": usage.cached,
        "cost": None if usage.cost is None else round(usage.cost, 6),
    }


def citation_json(citation: Citation) -> JSONObject:
    """Returns a citation: its key, place, score and preview."""
    return {
        "key": citation.key,
        **_place(citation),
        "score": round(citation.score, 4),
        "preview": citation.preview,
    }


def search_json(result: SearchResult) -> JSONObject:
    """Returns SPEC's shape of ``search --json``."""
    return {
        "query": result.query,
        "hits": [hit_json(hit) for hit in result.hits],
        "freshness": freshness_json(result.freshness),
        "notices": [printable(notice) for notice in result.notices],
        "timings_ms": dict(result.timings_ms),
        "corrections": dict(result.corrections),
        "confidence": round(result.verdict.confidence, 4),
        "confidence_level": result.verdict.level.value,
    }


def hit_json(hit: Hit) -> JSONObject:
    """Returns a hit: its place, text and scores."""
    metadata = hit.chunk.metadata
    return {
        "doc_title": metadata.doc_title,
        "section_heading": printable(metadata.section_heading),
        "heading_path": [printable(heading) for heading in metadata.heading_path],
        **_file(metadata.source_file, metadata.relative_path),
        "namespace": hit.chunk.namespace,
        "line_start": metadata.line_start,
        "line_end": metadata.line_end,
        "page": metadata.page,
        "text": printable(hit.chunk.text),
        "score": round(hit.score, 4),
        "scores": {
            "dense": None if hit.dense is None else round(hit.dense, 4),
            "lexical": round(hit.lexical, 4),
        },
        "details": {name: round(value, 4) for name, value in hit.details.items()},
    }


def section_json(section: SectionText) -> JSONObject:
    """Returns a section: its place and text."""
    return {**_place(section), "text": printable(section.text)}


def report_json(report: IndexReport) -> JSONObject:
    """Returns SPEC's shape of ``index --json``."""
    return {
        "files": report.files,
        "new": report.new,
        "updated": report.updated,
        "moved": report.moved,
        "removed": report.removed,
        "unchanged": report.unchanged,
        "chunks": report.chunks,
        "windows_embedded": report.windows_embedded,
        "skipped": _skipped_json(report.skipped),
        "document_warnings": _warnings_json(report.warnings),
        "seconds": round(report.seconds, 3),
        "suffixes": list(report.suffixes),
        "notices": [printable(notice) for notice in report.notices],
    }


def check_json(report: CheckReport) -> JSONObject:
    """Returns what ``check`` found."""
    return {
        "clean": not report.findings,
        "repaired": report.repaired,
        "documents": report.documents,
        "windows": report.windows,
        "findings": [
            {
                "kind": finding.kind,
                "path": printable(finding.path, keep_newlines=False),
                "detail": printable(finding.detail),
            }
            for finding in report.findings
        ],
        "seconds": round(report.seconds, 3),
    }


def root_json(status: RootStatus) -> JSONObject:
    """Returns one root with its counts."""
    root: Root = status.root
    return {
        "path": printable(root.path),
        "namespace": root.namespace,
        "documents": status.documents,
        "chunks": status.chunks,
        "watch": status.watch,
        "state": status.state.value,
        "include": list(root.include),
        "exclude": list(root.exclude),
        "chunk_size": root.chunk_size,
        "chunk_overlap": root.chunk_overlap,
        "poll": root.poll,
    }


def status_json(status: Status) -> JSONObject:
    """Returns the engine's part of SPEC's shape of ``status --json``; the daemon adds its own facts."""
    return {
        "state": status.state,
        "model": {
            "name": status.model_name,
            "loaded": status.model_loaded,
            "fingerprint": status.model_fingerprint,
            "error": status.model_error,
        },
        "roots": [root_json(root) for root in status.roots],
        "documents": status.documents,
        "chunks": status.chunks,
        "windows": status.windows,
        "embedded_total": status.embedded_total,
        "pending": status.pending,
        "pending_windows": status.pending_windows,
        "generation": status.generation,
        "skipped": _skipped_json(status.skipped),
        "document_warnings": _warnings_json(status.warnings),
        "reading": status.reading,
        "errors": [printable(error) for error in status.errors],
        "provider": status.provider,
        "llm_model": status.llm_model,
    }


def freshness_json(freshness: Freshness) -> JSONObject:
    """Returns SPEC's ``freshness``."""
    return {
        "generation": freshness.generation,
        "pending": freshness.pending,
        "pending_paths": [printable(path) for path in freshness.pending_paths],
        "by_words": freshness.by_words,
    }


def _skipped_json(skipped: tuple[tuple[str, str], ...]) -> list[JSONObject]:
    return [{"path": printable(path), "reason": printable(reason)} for path, reason in skipped]


def _warnings_json(warnings: tuple[tuple[str, str], ...]) -> list[JSONObject]:
    return [{"path": printable(path), "warning": printable(warning)} for path, warning in warnings]


def _place(thing: Citation | SectionText) -> JSONObject:
    return {
        "doc_title": thing.doc_title,
        "section_heading": printable(thing.section_heading),
        "heading_path": [printable(heading) for heading in thing.heading_path],
        **_file(thing.source_file, thing.relative_path),
        "namespace": thing.namespace,
        "line_start": thing.line_start,
        "line_end": thing.line_end,
        "page": thing.page,
    }


def _file(source_file: str, relative_path: str) -> JSONObject:
    return {
        "path": printable(source_file, keep_newlines=False),
        "path_uri": _file_uri(source_file),
        "relative_path": printable(relative_path, keep_newlines=False),
    }


def _file_uri(path: str) -> str:
    """Names the file by its bytes, whatever encoding they are in."""
    return f"file://{quote_from_bytes(os.fsencode(path))}"

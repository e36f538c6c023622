"""The engine: the one place where the write path and the read path meet. No sockets in it.

All methods block, may be called from any thread, and report through a :class:`~copilotd.types.Reporter`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from copilotd.conversation.dialogue import Dialogue
from copilotd.conversation.store import FOLDER, Conversations
from copilotd.embed.encoder import load_encoder, load_reranker
from copilotd.embed.models import LocatedModel, locate_model
from copilotd.embed.windows import make_planner
from copilotd.errors import (
    Cancelled,
    ModelError,
    ModelLoading,
    RootNotFound,
    UsageError,
)
from copilotd.index.analysis import ANALYSER_VERSION
from copilotd.index.reader import ReadView
from copilotd.index.store import Store
from copilotd.ingest import isolate
from copilotd.ingest.chunk import CHUNKER_VERSION
from copilotd.ingest.cookie import Cookies
from copilotd.ingest.parse import PARSERS_FINGERPRINT
from copilotd.ingest.pdf_ocr import find_ocr
from copilotd.ingest.watch import Watcher
from copilotd.query.answer import MakeProvider, answer_question, best_passages, metric_line, whole_passages
from copilotd.query.deep.answer import answer_deeply
from copilotd.query.deep.documents import TOP_DOCUMENTS
from copilotd.query.deep.parallel import MIN_SCORE, TOP_K
from copilotd.query.deep.search import DeepQuestion, Means
from copilotd.query.gate import Calibration, judge, load_calibrations
from copilotd.query.own_calibration import OwnCalibration, calibrate
from copilotd.query.own_calibration import load as load_calibration
from copilotd.query.own_calibration import save as save_calibration
from copilotd.query.pack import Siblings, section_siblings
from copilotd.query.question import Clock, checked_question
from copilotd.query.retrieve import retrieve
from copilotd.query.section import find_section
from copilotd.settings import Settings
from copilotd.text import one_line, printable
from copilotd.types import (
    DEFAULT_NAMESPACE,
    Answer,
    AskRequest,
    CheckReport,
    CitationCheck,
    Encoder,
    Freshness,
    Grounding,
    IndexReport,
    Prices,
    Progress,
    Reporter,
    Reranker,
    Retrieval,
    Root,
    RootStatus,
    Scope,
    SearchRequest,
    SearchResult,
    SectionText,
    Status,
)
from copilotd.update.audit import Auditor
from copilotd.update.background import LoadEncoder, LoadReranker, ModelLoader, ReconcileLoop
from copilotd.update.embedder import Embedder
from copilotd.update.index_run import IndexRunner, tell_stale
from copilotd.update.read import FileReader, ReadLimits
from copilotd.update.reconcile import Reconciler
from copilotd.update.roots import absolute_path, check_root, same_root
from copilotd.update.writer import Writer

_log = logging.getLogger(__name__)

_Found = TypeVar("_Found")

_PENDING_PATHS = 20
_PROGRESS_EVERY_S = 0.2
# Looks a question may cost: one, and one more after each round of work that it waited for.
_MAX_LOOKS = 4
_STOP_S = 1.6
# How long a check waits for what is pending before it counts it as a finding.
_CHECK_SYNC_S = 20.0


class Engine:
    """Everything the product does, on one index.

    Args:
        settings: All settings.
        make_provider: Gives the LLM for a question, or None for extractive answers.
        load: Loads the embedding model.
        locate: Finds the embedding model on disk.
        background: Watch the folders and look at them between questions; off for one run as a library.

    Attributes:
        settings: All settings.
        conversations: What was asked before, of this index alone.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        make_provider: MakeProvider = lambda: None,
        load: LoadEncoder = load_encoder,
        load_second: LoadReranker = load_reranker,
        locate: Callable[[str], LocatedModel] = locate_model,
        background: bool = True,
    ) -> None:
        self.settings = settings
        self._make_provider = make_provider
        self._errors: deque[str] = deque(maxlen=20)
        self._store = Store(settings.index_dir)
        self._errors.extend(self._store.notes)
        model, model_error = _locate(locate, settings.embed_model)
        planner = None if model is None else make_planner(model.fingerprint, model.folder)
        self._loader = ModelLoader(model, model_error, load)
        self._locate_model = locate
        self._load_reranker = load_second
        self._reranker: Reranker | None = None
        self._own = load_calibration(settings.index_dir)
        self._writer = Writer(str(settings.index_dir))
        self._embedder = Embedder(self._store, self._writer, self._note_error)
        self._reader = FileReader(
            self._store,
            self._writer,
            ReadLimits(
                settings.max_chunk_chars,
                settings.chunk_overlap_chars,
                settings.max_file_bytes,
                settings.pdf_seconds,
                settings.pdf_memory_mb * 1024 * 1024,
                find_ocr(settings.ocr_language, settings.ocr_seconds) if settings.ocr == "on" else None,
            ),
            fingerprint=f"{PARSERS_FINGERPRINT};chunk={CHUNKER_VERSION};words={ANALYSER_VERSION}",
            planner=planner,
        )
        self._reconciler = Reconciler(
            self._store,
            self._writer,
            self._reader,
            self._embedder,
            max_file_bytes=settings.max_file_bytes,
            grace_s=settings.root_grace_s,
            full_look_files=settings.full_look_files,
            on_error=self._note_error,
        )
        self._loop = ReconcileLoop(
            self._store,
            self._writer,
            self._reader,
            self._reconciler,
            self._embedder,
            reconcile_s=settings.reconcile_s,
            vector_cache_bytes=settings.vector_cache_mb * 1024 * 1024,
            on_error=self._note_error,
        )
        self._runner = IndexRunner(
            self._store,
            self._writer,
            self._reconciler,
            self._embedder,
            self._loader,
            roots=self.roots,
            status=self.status,
            closed=lambda: self._closed,
        )
        self._watcher = None
        if background:
            self._watcher = Watcher(self._loop.wake, cookies=Cookies(settings.index_dir / "cookies"))
            self._reconciler.trust(self._watcher)
        self._planner = planner
        self.conversations = Conversations(settings.index_dir / FOLDER, keep=settings.max_conversations)
        self._dialogue = Dialogue(self.conversations, self._store.read, make_provider, self._answer)
        self._closed = False
        self._close_lock = threading.Lock()
        self._roots_lock = threading.Lock()

    # ----------------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Fills the vectors in memory and starts the background work; returns before the model is loaded."""
        planner = self._planner.fingerprint if self._planner else self._store.planner
        self._writer.run(lambda: self._store.load_vectors(planner))
        self._errors.extend(self._store.notes[len(self._errors) :])
        self._reconciler.start()
        if self._watcher is None:
            self._loop.replan()
        else:
            self._loop.count_unplanned()
            self._loop.start()
            self._watcher.start()
            for watch in self._reconciler.watches():
                self._watcher.add(watch.root, watch.scanner, poll=watch.root.poll)
        self._loader.start(self._use_models, self._note_error)

    def lost(self) -> bool:
        """Whether the database was removed or replaced by somebody else: what is open has no name any more."""
        return self._store.lost()

    def close(self) -> None:
        """Ends the background work within two seconds; whatever is unfinished goes on at the next start."""
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        until = time.monotonic() + _STOP_S

        def left() -> float:
            return max(0.05, until - time.monotonic())

        if self._watcher is not None:
            self._watcher.close()
        isolate.close()
        ended = [self._loop.stop(left()), self._embedder.stop(left()), self._reconciler.stop(left())]
        ended.append(self._writer.close(left()))
        if all(ended):
            self._store.close()
        else:
            # A thread is inside a long parse or a native call; SQLite is safe against a process that ends.
            _log.warning("stopped without waiting for a worker")

    # ------------------------------------------------------------------------------------ read path

    def ask(self, request: AskRequest, reporter: Reporter) -> Answer:
        """Answers a question from the documents as they are on disk now, alone or as a part of a conversation.

        Raises:
            UsageError: The question is empty or too long, or there is no such conversation.
            ModelLoading: The embedding model was not ready within MODEL_WAIT_S.
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
        encoder, notices = self._wait_for_encoder(reporter)
        clock.lap("model")
        deep = self.settings.ask_mode == "deep" if request.deep is None else request.deep
        provider = (lambda: None) if request.extractive else make_provider
        answer_one = self._answer_deeply if deep else self._answer_plainly
        asked = replace(request, query=query)
        answer, freshness = answer_one(asked, encoder, reporter, clock, provider)
        notices += self._left_out(request.scope)
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
        top_k = request.top_k or self.settings.top_k
        written = not request.extractive and self.settings.llm_provider != "extractive"

        def look(view: ReadView) -> tuple[Retrieval, Siblings]:
            found = retrieve(request.query, view, encoder, request.scope, top_k, reranker=self._reranker)
            return found, section_siblings(view, found.hits) if written else {}

        (retrieval, siblings), freshness = self._find(
            look,
            request.scope,
            reporter,
            clock,
        )
        verdict = judge(
            retrieval,
            threshold=self._threshold(request),
            min_score=self._floor(request),
            own=self._calibrated(encoder),
        )
        clock.lap("gate")
        answer = answer_question(
            retrieval,
            verdict,
            make_provider=make_provider,
            max_tokens=self.settings.max_answer_tokens,
            on_delta=reporter.delta if request.stream else None,
            cancelled=reporter.cancelled,
            quote=whole_passages if request.long else best_passages,
            grounding=self._grounding(encoder),
            siblings=siblings,
        )
        clock.lap("answer")
        return replace(answer, timings_ms=retrieval.timings_ms), freshness

    def _use_models(self, encoder: Encoder) -> None:
        """Called from the loading thread; a reranking model that can't be had is named, and nothing waits for it."""
        self._embedder.use(encoder)
        if not self.settings.rerank_model:
            return
        found, error = _locate(self._locate_model, self.settings.rerank_model)
        if found is None:
            self._note_error(f"Not reranked: {error}")
            return
        try:
            self._reranker = self._load_reranker(found)
        except ModelError as failure:
            self._note_error(f"Not reranked: {failure.message}")

    def _grounding(self, encoder: Encoder | None) -> Grounding:
        settings = self.settings
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
            with self._question(), self._store.read() as view:
                seen.append(replace(seen[0], generation=view.generation))
                return work(view)

        question = DeepQuestion(
            query=request.query,
            scope=request.scope,
            threshold=self._threshold(request),
            min_score=MIN_SCORE if request.min_score is None else request.min_score,
            floor=self._floor(request),
            top_k=request.top_k or TOP_K,
            top_documents=request.top_documents or TOP_DOCUMENTS,
            context=request.context,
            max_tokens=self.settings.max_answer_tokens,
        )
        means = Means(
            look=look,
            encoder=encoder,
            make_provider=make_provider,
            progress=lambda stage, message: reporter.progress(Progress(stage, message)),
            on_delta=reporter.delta if request.stream else None,
            cancelled=reporter.cancelled,
            clock=clock,
            grounding=replace(self._grounding(encoder), follow_ups=True),
            own=self._calibrated(encoder),
        )
        answer = answer_deeply(question, means)
        return answer, seen[-1]

    def _floor(self, request: AskRequest) -> float:
        return self.settings.min_score if request.min_score is None else request.min_score

    def _threshold(self, request: AskRequest) -> float:
        return self.settings.confidence_threshold if request.threshold is None else request.threshold

    def search(self, request: SearchRequest, reporter: Reporter) -> SearchResult:
        """Finds sections without composing an answer; by words alone while the model loads.

        Raises:
            UsageError: The question is empty or too long.
        """
        clock = Clock()
        query = checked_question(request.query)
        encoder = self._embedder.encoder
        notices = [] if encoder is not None else [self._loader.words_only]
        top_k = request.top_k or self.settings.top_k
        retrieval, freshness = self._find(
            lambda view: retrieve(query, view, encoder, request.scope, top_k, reranker=self._reranker),
            request.scope,
            reporter,
            clock,
        )
        notices += self._left_out(request.scope)
        verdict = judge(
            retrieval,
            threshold=self.settings.confidence_threshold,
            min_score=self.settings.min_score,
            own=self._calibrated(encoder),
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

    def section(self, ref: str, namespace: str | None, reporter: Reporter) -> SectionText:
        """Returns the section a citation names, whole, as it is on disk now.

        Raises:
            SectionNotFound: Nothing indexed has this name.
        """
        self.sync(self.settings.sync_budget_s, reporter)
        with self._store.read() as view:
            return find_section(view, ref, namespace)

    # ----------------------------------------------------------------------------------- write path

    def sync(self, budget_s: float, reporter: Reporter) -> Freshness:
        """Brings whatever was saved before this call into the index, as far as the time budget goes.

        Args:
            budget_s: Seconds.
            reporter: Told each changed file.
        """
        began = time.monotonic()
        deadline = began + budget_s

        unseen: list[str] = []
        looked = began
        for _ in range(_MAX_LOOKS):
            unseen = [
                watch.root.path
                for watch in self._reconciler.watches()
                if not self._reconciler.look(
                    watch.root.id,
                    looked,
                    timeout_s=deadline - time.monotonic(),
                    every_file=False,
                    on_stale=tell_stale(reporter),
                )
            ]
            if not self._reconciler.count_backlog() or time.monotonic() >= deadline:
                break
            self._reconciler.wait_fresh(budget_s, deadline, reporter.cancelled)
            looked = time.monotonic()
        if reporter.cancelled():
            raise Cancelled("The question was cancelled.")
        return self._freshness(unseen)

    def index_root(
        self,
        path: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        include: tuple[str, ...] = (),
        exclude: tuple[str, ...] = (),
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
        poll: bool = False,
        reporter: Reporter,
    ) -> IndexReport:
        """Adds a watched folder and waits until everything in it is indexed. A known folder costs one look.

        Raises:
            RootNotFound: There is no such folder.
            RootOverlap: It lies inside another root of the namespace, or holds one.
            UsageError: A name or number makes no sense.
            IndexError_: The index can't be written.
            Cancelled: The client is gone; the work goes on.
        """
        began = time.monotonic()
        with self._roots_lock:
            root = check_root(
                path,
                namespace,
                include,
                exclude,
                chunk_size,
                chunk_overlap,
                poll,
                watched=[watch.root for watch in self._reconciler.watches()],
                default_size=self.settings.max_chunk_chars,
                default_overlap=self.settings.chunk_overlap_chars,
            )
            known = next((w for w in self._reconciler.watches() if same_root(w.root, root)), None)
            if known is not None and replace(root, id=known.root.id) == known.root:
                watch = known
            else:
                stored = self._writer.run(lambda: self._store.add_root(root))
                watch = self._reconciler.add_root(next(s for s in self._store.roots() if s.root == stored))
                if self._watcher is not None:
                    self._watcher.add(watch.root, watch.scanner, poll=watch.root.poll)
        return self._runner.run([watch], began, reporter)

    def rebuild(self, fresh_vectors: bool, reporter: Reporter) -> IndexReport:
        """Reads and parses every document again; vectors of unchanged text are kept unless told otherwise.

        Raises:
            Cancelled: The client is gone; the work goes on.
        """
        if fresh_vectors:
            self._writer.run(self._store.drop_vectors)
        self._reconciler.outdate_all()
        # A look that began before, for somebody else, didn't know what is outdated now.
        return self._runner.run(self._reconciler.watches(), time.monotonic(), reporter)

    def calibrate(self, reporter: Reporter) -> OwnCalibration:
        """Fits the gate for another embedding model on the documents indexed, and uses it from now on.

        Raises:
            UsageError: The bundled model needs none, or there are too few documents.
            ModelLoading: The embedding model was not ready within MODEL_WAIT_S.
            Cancelled: The client is gone.
        """
        encoder, notices = self._wait_for_encoder(reporter)
        if encoder is None:
            raise UsageError(" ".join(notices) or "There is no embedding model to calibrate for.")
        if encoder.name == load_calibrations().model:
            raise UsageError(
                f"{encoder.name} is calibrated already: its coefficients come with the installation.",
                "set EMBED_MODEL to another model first",
            )

        def step(done: int, total: int) -> None:
            if reporter.cancelled():
                raise Cancelled("The question was cancelled.")
            reporter.progress(Progress("calibrate", f"{done} of {total} questions"))

        with self._store.read() as view:
            own = calibrate(view, encoder, view.chunk_ids(), step)
        save_calibration(own, self.settings.index_dir)
        self._own = own
        return own

    def _calibrated(self, encoder: Encoder | None) -> Calibration | None:
        own = self._own
        return own.calibration if own and encoder and own.model == encoder.fingerprint else None

    def check(self, repair: bool, reporter: Reporter) -> CheckReport:
        """Verifies the whole index against itself, the files and the model, and mends it where told to.

        Raises:
            Cancelled: The client is gone.
        """

        def settle() -> tuple[str, ...]:
            until = time.monotonic() + _CHECK_SYNC_S
            while True:
                freshness = self.sync(_CHECK_SYNC_S, reporter)
                if not freshness.pending or time.monotonic() >= until or self._closed:
                    return freshness.pending_paths
                time.sleep(_PROGRESS_EVERY_S)

        auditor = Auditor(
            self._store,
            self._writer,
            self._reader,
            self._reconciler,
            self._embedder,
            sync=settle,
            replan=self._loop.replan,
        )
        report = auditor.check(repair, reporter)
        _log.info(
            "event=check findings=%d repaired=%s seconds=%.1f",
            len(report.findings),
            report.repaired,
            report.seconds,
        )
        return report

    def forget(self, path: str, namespace: str | None) -> list[tuple[Root, int]]:
        """Stops watching a folder and removes its documents; returns each root with its document count.

        Raises:
            RootNotFound: It is not a root.
        """
        wanted = absolute_path(path)
        chosen = [
            watch.root
            for watch in self._reconciler.watches()
            if namespace in (None, watch.root.namespace)
            and wanted in (watch.root.path, os.path.realpath(watch.root.path))
        ]
        if not chosen:
            raise RootNotFound(f"{one_line(path, 300)} is not a watched folder.", "copilot roots lists them")
        forgotten = []
        for root in chosen:
            if self._watcher is not None:
                self._watcher.remove(root.id)
            forgotten.append((root, self._reconciler.remove_root(root.id)))
            _log.info("event=forget path=%s namespace=%s", root.path, root.namespace)
        return forgotten

    # --------------------------------------------------------------------------------------- status

    def roots(self) -> list[RootStatus]:
        """Returns every root with its counts and how it is watched."""
        with self._store.read() as view:
            counts = view.counts()
        return [
            RootStatus(
                watch.root,
                *counts.get(watch.root.id, (0, 0)),
                watch=self._watcher.health(watch.root.id) if self._watcher else "polling: not watched",
                state=watch.state,
            )
            for watch in self._reconciler.watches()
        ]

    def status(self) -> Status:
        """Returns the engine's state; costs a few milliseconds."""
        roots = self.roots()
        backlog = self._reconciler.count_backlog()
        with self._store.read() as view:
            skipped = view.skipped()
            warnings = view.warnings()
            pending_windows, pending_documents = view.pending_counts()
            generation = view.generation
        problems = [
            (os.path.join(watch.root.path, path), reason)
            for watch in self._reconciler.watches()
            for path, reason in watch.problems
        ]
        loaded = self._embedder.encoder is not None
        busy = backlog or (pending_windows and loaded)
        return Status(
            state="starting" if not self._loader.finished else "indexing" if busy else "ready",
            model_name=self._loader.model.name if self._loader.model else self.settings.embed_model,
            model_loaded=loaded,
            model_fingerprint=self._loader.model.fingerprint if self._loader.model else "",
            model_error=self._loader.error,
            roots=tuple(roots),
            documents=sum(root.documents for root in roots),
            chunks=sum(root.chunks for root in roots),
            windows=len(self._store.vectors),
            embedded_total=self._embedder.embedded_total,
            pending=backlog + pending_documents,
            pending_windows=pending_windows,
            generation=generation,
            skipped=tuple(dict.fromkeys((*skipped, *problems))),
            warnings=tuple(warnings),
            reading=self._reconciler.reading(),
            errors=tuple(self._errors),
            index_dir=str(self.settings.index_dir),
            provider=self.settings.llm_provider or "extractive",
            llm_model=self.settings.llm_model,
        )

    @property
    def generation(self) -> int:
        """The index generation: grows with every change."""
        with self._store.read() as view:
            return view.generation

    def wait_until_swept(self, timeout_s: float) -> bool:
        """Waits until every root was looked at once since the start, and what differed is indexed."""
        until = time.monotonic() + timeout_s
        return self._loop.swept.wait(timeout_s) and self._reconciler.wait_idle(
            None, lambda: time.monotonic() < until
        )

    # ------------------------------------------------------------------------------------ internals

    def _note_error(self, message: str) -> None:
        _log.error("event=error message=%s", message)
        if message not in self._errors:
            self._errors.append(message)

    def _find(
        self, search: Callable[[ReadView], _Found], scope: Scope, reporter: Reporter, clock: Clock
    ) -> tuple[_Found, Freshness]:
        """Brings the index up to date and searches it; rows found damaged are read again before it answers."""
        with self._question():
            for _ in range(_MAX_LOOKS):
                freshness = self.sync(self.settings.sync_budget_s, reporter)
                clock.lap("sync")
                with self._store.read() as view:
                    self._require_roots(view, scope)
                    found = search(view)
                    freshness = replace(freshness, generation=view.generation)
                clock.lap("retrieve")
                if not self._loop.take_damaged():
                    break
        return found, freshness

    def _left_out(self, scope: Scope) -> list[str]:
        """Says which roots are not cited just now: an empty answer must not look like ignorance."""
        return [
            f"{printable(watch.root.path)} is {watch.state.value}: its documents are left out."
            for watch in self._reconciler.watches()
            if watch.suspended_ns is not None
            and watch.known
            and (scope.namespaces is None or watch.root.namespace in scope.namespaces)
        ]

    @contextmanager
    def _question(self) -> Iterator[None]:
        self._embedder.question_begins()
        try:
            yield
        finally:
            self._embedder.question_ends()

    def _wait_for_encoder(self, reporter: Reporter) -> tuple[Encoder | None, list[str]]:
        """Waits for the model, so that nobody gets a false "I don't know" while it loads."""
        if self._embedder.encoder is not None:
            return self._embedder.encoder, []
        until = time.monotonic() + self.settings.model_wait_s
        while not self._loader.wait(_PROGRESS_EVERY_S):
            if reporter.cancelled():
                raise Cancelled("The question was cancelled.")
            reporter.progress(Progress("model", "Loading the embedding model…"))
            if time.monotonic() >= until:
                raise ModelLoading(
                    f"The embedding model was not ready after {self.settings.model_wait_s:g} s.",
                    "ask again in a moment; copilot status shows the state, copilot search works by words meanwhile",
                )
        encoder = self._embedder.encoder
        return encoder, ([] if encoder is not None else [self._loader.words_only])

    def _require_roots(self, view: ReadView, scope: Scope) -> None:
        roots = self._reconciler.watches()
        if not roots:
            raise UsageError("No folder is indexed yet.", "copilot index DIR")
        known = {watch.root.namespace for watch in roots}
        unknown = [name for name in scope.namespaces or () if name not in known]
        if unknown:
            raise UsageError(
                f"There is no namespace {printable(unknown[0])!r}.",
                f"known namespaces: {', '.join(sorted(known))}",
            )
        # Where files are still to be read, the one that is meant may be among them.
        unmatched = [] if self._reconciler.count_backlog() else view.unmatched_paths(scope)
        if unmatched and len(unmatched) == len(scope.paths):
            raise UsageError(
                f"No document's path matches {printable(unmatched[0])!r}.",
                "paths are below the indexed folder, as sources show them; a folder's name or a glob will do",
            )

    def _freshness(self, unseen: list[str]) -> Freshness:
        """Says what the index lacks: files to read, documents that wait for vectors, roots not looked at."""
        paths = [*unseen, *self._reconciler.backlog()]
        with self._store.read() as view:
            generation = view.generation
            _, documents = view.pending_counts() if self._embedder.encoder is not None else (0, 0)
            documents += self._loop.unplanned
            if documents:
                waiting = [path for path in view.pending_paths(_PENDING_PATHS) if path not in paths]
                return Freshness(
                    generation,
                    len(paths) + documents,
                    tuple((*paths, *waiting)[:_PENDING_PATHS]),
                    by_words=documents,
                )
        return Freshness(generation, len(paths), tuple(paths[:_PENDING_PATHS]))


def _locate(locate: Callable[[str], LocatedModel], name: str) -> tuple[LocatedModel | None, str]:
    try:
        return locate(name), ""
    except ModelError as error:
        return None, f"{error.message} ({error.hint})"

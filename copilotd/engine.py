"""The engine: the one place where the write path and the read path meet. No sockets in it.

All methods block, may be called from any thread, and report through a :class:`~copilotd.types.Reporter`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from copilotd.answering import Answering
from copilotd.conversation.store import FOLDER, Conversations
from copilotd.embed.encoder import load_encoder, load_reranker
from copilotd.embed.models import LocatedModel, locate_model
from copilotd.embed.windows import make_planner
from copilotd.errors import RootNotFound
from copilotd.index.analysis import ANALYSER_VERSION
from copilotd.index.store import Store
from copilotd.ingest import isolate
from copilotd.ingest.chunk import CHUNKER_VERSION
from copilotd.ingest.cookie import Cookies
from copilotd.ingest.parse import PARSERS_FINGERPRINT
from copilotd.ingest.pdf_ocr import find_ocr
from copilotd.ingest.watch import Watcher
from copilotd.lookup import Lookup
from copilotd.models_in_use import Models
from copilotd.query.answer import MakeProvider
from copilotd.query.own_calibration import OwnCalibration
from copilotd.query.section import find_section
from copilotd.settings import Settings
from copilotd.text import one_line
from copilotd.types import (
    DEFAULT_NAMESPACE,
    Answer,
    AskRequest,
    CheckReport,
    Freshness,
    IndexReport,
    Reporter,
    Root,
    RootStatus,
    SearchRequest,
    SearchResult,
    SectionText,
    Status,
)
from copilotd.update.audit import Auditor
from copilotd.update.background import LoadEncoder, LoadReranker, ReconcileLoop
from copilotd.update.census import Census
from copilotd.update.embedder import Embedder
from copilotd.update.index_run import IndexRunner
from copilotd.update.read import FileReader, ReadLimits
from copilotd.update.reconcile import Reconciler
from copilotd.update.roots import absolute_path, check_root, same_root
from copilotd.update.writer import Writer

_log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 0.2
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
        self._errors: deque[str] = deque(maxlen=20)
        self._store = Store(settings.index_dir)
        self._errors.extend(self._store.notes)
        self._models = Models(
            settings.index_dir,
            (settings.embed_model, settings.rerank_model),
            locate=locate,
            load=load,
            load_second=load_second,
            on_error=self._note_error,
        )
        model = self._models.located
        planner = None if model is None else make_planner(model.fingerprint, model.folder)
        self._writer = Writer(str(settings.index_dir), self._note_error)
        self._census = Census(self._store, self._writer)
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
            self._models.loader,
            roots=self.roots,
            status=self.status,
            closed=lambda: self._closed,
        )
        self._watcher = None
        if background:
            self._watcher = Watcher(
                self._loop.wake, on_death=self._note_error, cookies=Cookies(settings.index_dir / "cookies")
            )
            self._reconciler.trust(self._watcher)
        self._planner = planner
        self.conversations = Conversations(settings.index_dir / FOLDER, keep=settings.max_conversations)
        self._lookup = Lookup(self._store, self._reconciler, self._embedder, self._loop)
        self._answering = Answering(
            lambda: self.settings,
            self._lookup,
            self._models,
            writer=self._writer,
            embedder=self._embedder,
            conversations=self.conversations,
            store=self._store,
            make_provider=make_provider,
        )
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
        self._models.start(self._embedder)

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
            ModelError: It can't be used, and words alone find no answer.
            SettingsError: The provider's key or model is missing.
            ProviderError: The provider did not answer.
            Cancelled: The client is gone.
        """
        return self._answering.ask(request, reporter)

    def search(self, request: SearchRequest, reporter: Reporter) -> SearchResult:
        """Finds sections without composing an answer; by words alone while the model loads.

        Raises:
            UsageError: The question is empty or too long.
        """
        return self._answering.search(request, reporter)

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

        Raises:
            Cancelled: The client is gone.
        """
        return self._lookup.sync(budget_s, reporter)

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
        return self._models.calibrate(self._store, self.settings.model_wait_s, reporter)

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
        counts = self._census.now().by_root
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
        """Returns the engine's state; costs a few milliseconds at most."""
        roots = self.roots()
        backlog = self._reconciler.count_backlog()
        counts = self._census.now()
        problems = [
            (os.path.join(watch.root.path, path), reason)
            for watch in self._reconciler.watches()
            for path, reason in watch.problems
        ]
        loaded = self._embedder.encoder is not None
        busy = backlog or (counts.pending_windows and loaded)
        return Status(
            state="starting" if not self._models.loader.finished else "indexing" if busy else "ready",
            model_name=self._models.loader.model.name
            if self._models.loader.model
            else self.settings.embed_model,
            model_loaded=loaded,
            model_fingerprint=self._models.loader.model.fingerprint if self._models.loader.model else "",
            model_error=self._models.loader.error,
            roots=tuple(roots),
            documents=sum(root.documents for root in roots),
            chunks=sum(root.chunks for root in roots),
            windows=len(self._store.vectors),
            embedded_total=self._embedder.embedded_total,
            pending=backlog + counts.pending_documents,
            pending_windows=counts.pending_windows,
            generation=counts.generation,
            skipped=tuple(dict.fromkeys((*counts.skipped, *problems))),
            warnings=counts.warnings,
            reading=self._reconciler.reading(),
            errors=tuple(self._errors),
            index_dir=str(self.settings.index_dir),
            provider=self.settings.llm_provider or "extractive",
            llm_model=self.settings.llm_model,
        )

    @property
    def generation(self) -> int:
        """The index generation: grows with every change."""
        return self._census.now().generation

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

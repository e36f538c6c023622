"""The loops that run between questions: looking at roots, loading the model, planning windows anew."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import LocatedModel
from copilotd.errors import NEXT, CopilotError, ModelError, ShuttingDown
from copilotd.index.store import Store
from copilotd.supervise import Worker
from copilotd.types import Encoder, Reranker
from copilotd.update.embedder import Embedder
from copilotd.update.read import FileReader
from copilotd.update.reconcile import Reconciler
from copilotd.update.writer import Writer

_log = logging.getLogger(__name__)

# Between two looks that found nothing the pause doubles up to RECONCILE_S.
_FIRST_PAUSE_S = 2.0
# Every so many periodic looks one trusts nothing that was remembered.
_FULL_EVERY = 20
_TRIM_EVERY_S = 600.0
# The pause after a look that found work is at least so many times as long as the look took.
_LOOK_SHARE = 20.0

LoadEncoder = Callable[[LocatedModel], Encoder]
LoadReranker = Callable[[LocatedModel], Reranker]


class ModelLoader:
    """Loads the model on a thread of its own.

    Attributes:
        error: Why it could not be loaded; empty while all is well.
    """

    def __init__(self, model: LocatedModel | None, error: str, load: LoadEncoder = load_encoder) -> None:
        self.error = error
        self.model = model
        self._load = load
        self._done = threading.Event()
        if model is None:
            self._done.set()

    def start(self, on_loaded: Callable[[Encoder], None], on_error: Callable[[str], None]) -> None:
        """Starts loading; one of the callbacks is called from the loading thread."""
        if self.model is None:
            on_error(self.error)
            return
        threading.Thread(
            target=self._run, args=(self.model, on_loaded, on_error), name="model-loader", daemon=True
        ).start()

    @property
    def finished(self) -> bool:
        """Whether loading has ended, well or not."""
        return self._done.is_set()

    @property
    def words_only(self) -> str:
        """Why a question is searched by words alone while there is no encoder."""
        if self.error:
            return f"Searched by words only. {self.error}"
        return "Searched by words only: the embedding model is still loading."

    def failure(self) -> ModelError:
        """Returns what is told who asked something that words alone don't answer: that is no "I don't know"."""
        why, _, hint = self.error.partition(NEXT)
        return ModelError(
            f"Words alone find no answer, and the embedding model can't be used: {why}",
            hint or "copilot doctor",
        )

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end of loading, well or not."""
        return self._done.wait(timeout_s)

    def _run(
        self, model: LocatedModel, on_loaded: Callable[[Encoder], None], on_error: Callable[[str], None]
    ) -> None:
        try:
            on_loaded(self._load(model))
        except CopilotError as error:
            self.error = error.message
            on_error(error.message)
        except BaseException as error:
            # Whatever ended it: nobody must wait for a model that doesn't come.
            _log.exception("model could not be loaded")
            self.error = f"The embedding model could not be loaded: {error}"
            on_error(self.error)
        finally:
            self._done.set()


class ReconcileLoop:
    """Looks at roots when woken and from time to time, and keeps house in between.

    Attributes:
        swept: Set once every root was looked at.
        unplanned: Documents whose windows are still to be planned for this model.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        reader: FileReader,
        reconciler: Reconciler,
        embedder: Embedder,
        *,
        reconcile_s: float,
        vector_cache_bytes: int,
        on_error: Callable[[str], None],
    ) -> None:
        self._store = store
        self._writer = writer
        self._reader = reader
        self._reconciler = reconciler
        self._embedder = embedder
        self._reconcile_s = reconcile_s
        self._vector_cache_bytes = vector_cache_bytes
        self._on_error = on_error
        self._condition = threading.Condition()
        self._woken: set[int] = set()
        self._stop = threading.Event()
        self.swept = threading.Event()
        self.unplanned = 0
        self._thread = Worker("reconciler", self._run, on_death=on_error)

    def start(self) -> None:
        """Starts with a look at every root."""
        self._thread.start()

    def wake(self, root_id: int) -> None:
        """Asks for a look at a root soon."""
        with self._condition:
            self._woken.add(root_id)
            self._condition.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """Stops after the look at hand; returns whether the thread ended in time."""
        with self._condition:
            self._stop.set()
            self._condition.notify_all()
        return self._thread.join(timeout_s)

    def _run(self) -> None:
        pause, periodic, trimmed = min(_FIRST_PAUSE_S, self._reconcile_s), 0, time.monotonic()
        next_round = 0.0
        while not self._stop.is_set():
            try:
                woken = self._wait(next_round)
                if self._stop.is_set():
                    return
                everything = [watch.root.id for watch in self._reconciler.watches()]
                # One root that is woken all the time must not keep the others from being looked at.
                round_due = time.monotonic() >= next_round
                due = everything if round_due else [root_id for root_id in everything if root_id in woken]
                began = time.monotonic()
                found = self._look_at(
                    due, every_file=round_due, full=round_due and periodic % _FULL_EVERY == 0
                )
                self.swept.set()
                if round_due:
                    periodic += 1
                    pause = min(pause * 2, self._reconcile_s)
                took = time.monotonic() - began
                if found:
                    # While thousands of files are read, looking at them all must not be most of the work.
                    pause = min(max(_FIRST_PAUSE_S, _LOOK_SHARE * took), self._reconcile_s)
                if round_due or found:
                    next_round = time.monotonic() + pause
                self.replan()
                if time.monotonic() - trimmed > _TRIM_EVERY_S and not self._reconciler.count_backlog():
                    trimmed = time.monotonic()
                    self._writer.run(lambda: self._store.trim_vectors(self._vector_cache_bytes), urgent=False)
            except ShuttingDown:
                return
            except Exception as error:
                _log.exception("reconcile failed")
                self._on_error(f"looking at the folders failed: {error}")
                pause = self._reconcile_s
                next_round = time.monotonic() + pause

    def _wait(self, until: float) -> set[int]:
        with self._condition:
            while not self._woken and not self._stop.is_set() and (left := until - time.monotonic()) > 0:
                if due := self._reconciler.due_roots():
                    self._woken.update(due)
                    break
                self._condition.wait(min(left, 0.25))
            woken, self._woken = self._woken, set()
            return woken

    def _look_at(self, root_ids: list[int], *, every_file: bool, full: bool) -> bool:
        for root_id in root_ids:
            if self._stop.is_set():
                return False
            self._reconciler.look(root_id, time.monotonic(), full=full, every_file=every_file)
        if self.take_damaged():
            for root_id in root_ids:
                self._reconciler.look(root_id, time.monotonic())
        return self._reconciler.count_backlog() > 0

    def take_damaged(self) -> bool:
        """Marks the files whose stored rows were found damaged to be read again; returns whether there were any."""
        damaged = self._store.take_damaged()
        if damaged:
            self._on_error(f"{len(damaged)} stored documents were damaged; they are read again.")
            self._reconciler.reread(damaged)
        return bool(damaged)

    def replan(self) -> None:
        """Plans the windows of documents that were indexed for another model."""
        planner = self._reader.planner
        if planner is None:
            return
        files = self.count_unplanned()
        for file_id in files:
            if self._stop.is_set():
                return
            self._writer.run(
                lambda file_id=file_id: self._store.replan_document(  # type: ignore[misc]
                    file_id, planner.fingerprint, self._reader.plan_windows
                ),
                urgent=False,
            )
            self.unplanned -= 1
            self._embedder.wake()

    def count_unplanned(self) -> list[int]:
        """Returns the documents whose windows are still to be planned for this model."""
        planner = self._reader.planner
        files = [] if planner is None else self._store.unplanned_files(planner.fingerprint)
        self.unplanned = len(files)
        return files

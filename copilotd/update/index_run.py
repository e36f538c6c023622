"""A run of the write path that somebody waits for: followed to its end, and reported."""

from __future__ import annotations

import time
from collections.abc import Callable

from copilotd.errors import Cancelled, IndexError_
from copilotd.index.store import Store
from copilotd.ingest.parse import supported_suffixes
from copilotd.text import printable
from copilotd.types import IndexReport, Progress, Reporter, RootStatus, Status
from copilotd.update.background import ModelLoader
from copilotd.update.embedder import Embedder
from copilotd.update.read import Outcome
from copilotd.update.reconcile import Reconciler, RootWatch, Tally
from copilotd.update.writer import Writer

_PROGRESS_EVERY_S = 0.2
# How long writing may fail before whoever waits for it is told.
_TROUBLE_S = 5.0


class IndexRunner:
    """Runs ``index`` and ``rebuild``: the work is the reconciler's, the waiting and telling is here.

    Args:
        store: The index.
        writer: Writes to it.
        reconciler: Finds and does the work.
        embedder: Makes the vectors.
        loader: Loads the model.
        roots: Gives every root with its counts.
        status: Gives the engine's state.
        closed: Whether the engine is stopping.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        reconciler: Reconciler,
        embedder: Embedder,
        loader: ModelLoader,
        *,
        roots: Callable[[], list[RootStatus]],
        status: Callable[[], Status],
        closed: Callable[[], bool],
    ) -> None:
        self._store = store
        self._writer = writer
        self._reconciler = reconciler
        self._embedder = embedder
        self._loader = loader
        self._roots = roots
        self._status = status
        self._closed = closed

    def run(self, watches: list[RootWatch], began: float, reporter: Reporter) -> IndexReport:
        """Looks at roots, waits until every file and window of them is indexed, and says what was done.

        Args:
            watches: The roots.
            began: Monotonic time; what was saved before it is in the index afterwards.
            reporter: Told how far it is.

        Raises:
            IndexError_: The index can't be written.
            Cancelled: The client is gone; the work goes on.
        """
        one = watches[0].root.id if len(watches) == 1 else None
        tally = self._reconciler.open_tally(one)
        try:
            reporter.progress(Progress("scan", "Looking for documents…"))
            for watch in watches:
                seen = self._reconciler.look(watch.root.id, began, full=True, on_stale=tell_stale(reporter))
                if not seen and self._writer.trouble:
                    raise self._writer.cannot_write()
                if not seen:
                    raise IndexError_(
                        f"{printable(watch.root.path)} could not be brought up to date; it is tried again.",
                        "copilot status shows what is wrong",
                    )
            self._follow(one, tally, reporter)
        finally:
            self._reconciler.close_tally(tally)
        # Only what had no vector when it was stored cost an embedding.
        embedded = len(tally.keys) - len(self._store.pending_texts(list(tally.keys)))
        return self._report(watches, tally, began, embedded)

    def _follow(self, root_id: int | None, tally: Tally, reporter: Reporter) -> None:
        """Shows progress until every file is read and every window of them has a vector."""
        total = self._reconciler.count_backlog(root_id)
        started = time.monotonic()
        last = 0.0

        def show() -> bool:
            nonlocal last, total, started
            if reporter.cancelled():
                raise Cancelled("Indexing goes on in the background.", "copilot status shows how far it is")
            now = time.monotonic()
            if self._embedder.encoder is None:
                # How fast vectors are made can be told only from when they are.
                started = now
            if now - last >= _PROGRESS_EVERY_S:
                last = now
                waiting = self._reconciler.count_backlog(root_id)
                total = max(total, waiting)
                reporter.progress(self._progress(total - waiting, total, tally, now - started))
            return not self._closed()

        troubled_since = 0.0

        def go_on() -> bool:
            nonlocal troubled_since
            if not self._writer.trouble:
                troubled_since = 0.0
            elif not troubled_since:
                troubled_since = time.monotonic()
            elif time.monotonic() - troubled_since > _TROUBLE_S:
                raise self._writer.cannot_write()
            return show()

        self._reconciler.wait_idle(root_id, go_on)
        # Not only this run's: an earlier one may have been stopped between words and vectors.
        while go_on() and (missing := self._pending_windows(root_id)):
            if self._loader.finished and self._embedder.encoder is None:
                return
            self._embedder.wake()
            time.sleep(min(_PROGRESS_EVERY_S, 0.02 * missing))

    def _pending_windows(self, root_id: int | None) -> int:
        with self._store.read() as view:
            return view.pending_windows_of(root_id)

    def _progress(self, files: int, total: int, tally: Tally, elapsed: float) -> Progress:
        missing = self._pending_windows(tally.root_id)
        keys = max(len(tally.keys), missing)
        embedded = keys - missing
        waiting = self._embedder.encoder is None and not self._loader.finished
        reading = self._reconciler.reading(tally.root_id)
        message = "Loading the embedding model…" if waiting and files >= total else reading
        rate = embedded / elapsed if elapsed > 0 else 0.0
        eta = missing / rate if rate and files >= total else None
        return Progress("embed" if files >= total else "parse", message, files, total, embedded, keys, eta)

    def _report(self, watches: list[RootWatch], tally: Tally, began: float, embedded: int) -> IndexReport:
        ids = {watch.root.id for watch in watches}
        counts = [status for status in self._roots() if status.root.id in ids]
        documents = sum(status.documents for status in counts)
        chunks = sum(status.chunks for status in counts)
        outcomes = tally.outcomes
        changed = outcomes[Outcome.NEW] + outcomes[Outcome.UPDATED] + outcomes[Outcome.MOVED]
        prefixes = tuple(watch.root.path.rstrip("/") + "/" for watch in watches)
        status = self._status()
        return IndexReport(
            files=documents,
            new=outcomes[Outcome.NEW],
            updated=outcomes[Outcome.UPDATED],
            moved=outcomes[Outcome.MOVED],
            removed=outcomes[Outcome.REMOVED],
            unchanged=max(0, documents - changed),
            chunks=chunks,
            windows_embedded=embedded,
            skipped=tuple(item for item in status.skipped if item[0].startswith(prefixes)),
            warnings=tuple(item for item in status.warnings if item[0].startswith(prefixes)),
            seconds=time.monotonic() - began,
            suffixes=supported_suffixes(),
            notices=(
                *((self._loader.words_only,) if chunks and self._embedder.encoder is None else ()),
                *(watch.left_out for watch in watches if watch.left_out),
            ),
            path=watches[0].root.path if len(watches) == 1 else "",
        )


def tell_stale(reporter: Reporter) -> Callable[[str], None]:
    """Returns what tells ``reporter`` of each changed file."""
    return lambda name: reporter.progress(
        Progress("sync", f"Stale index detected: {printable(name)} changed. Re-indexing.")
    )

"""The one thread that writes to SQLite and FAISS."""

from __future__ import annotations

import itertools
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from copilotd.errors import IndexError_, ShuttingDown
from copilotd.supervise import Worker

_T = TypeVar("_T")
_Job = tuple[int, int, "Callable[[], Any] | None", "Future[Any] | None"]


class Writer:
    """Runs jobs one after the other on a thread of its own; urgent ones go first.

    Args:
        place: The index folder, for messages.
        on_death: Told where the thread died and was started again.

    Attributes:
        trouble: Why the index can't be written just now (a full disk, say); empty while it can.
        jobs: How many have ended; changes before whoever waits for one knows that it has.
    """

    def __init__(self, place: str, on_death: Callable[[str], None] = lambda _: None) -> None:
        self.trouble = ""
        self.jobs = 0
        self._place = place
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._order = itertools.count()
        self._closed = False
        self._lock = threading.Lock()
        self._in_hand: Future[Any] | None = None
        self._thread = Worker("writer", self._run, on_death=on_death, mend=self._drop_in_hand)
        self._thread.start()

    def run(self, job: Callable[[], _T], *, urgent: bool = True) -> _T:
        """Runs ``job`` on the writer's thread and returns its result, or raises what it raised.

        Raises:
            ShuttingDown: The writer is closed.
        """
        if self._thread.is_current():
            return job()
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                raise ShuttingDown("The daemon is stopping.")
            self._jobs.put((0 if urgent else 1, next(self._order), job, future))
        return future.result()

    def cannot_write(self) -> IndexError_:
        """Returns the error for whoever waits for what can't be written just now."""
        return IndexError_(
            f"The index can't be written: {self.trouble}.",
            f"make room on the disk of {self._place}; the work goes on by itself",
        )

    def close(self, timeout_s: float) -> bool:
        """Lets the running job end, refuses those that wait, and returns whether it ended in time."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put((-1, 0, None, None))
        return self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            _, _, job, future = self._jobs.get()
            if job is None or future is None:
                break
            self._in_hand = future
            try:
                result = job()
            except BaseException as error:
                self.jobs += 1
                if isinstance(error, (sqlite3.Error, OSError)):
                    self.trouble = str(error)
                future.set_exception(error)
            else:
                self.jobs += 1
                self.trouble = ""
                future.set_result(result)
        while not self._jobs.empty():
            _, _, _, waiting = self._jobs.get_nowait()
            if waiting is not None:
                waiting.set_exception(ShuttingDown("The daemon is stopping."))

    def _drop_in_hand(self) -> None:
        """Nobody must wait for ever for a job that the thread died of; what it had begun is rolled back by SQLite."""
        future = self._in_hand
        if future is not None and not future.done():
            self.jobs += 1
            future.set_exception(IndexError_("The index's writer failed; it was started again.", "ask again"))

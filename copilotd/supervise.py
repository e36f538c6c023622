"""Threads that are started again where they die, so that one mistake doesn't end the daemon's work for good."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Between a death and the next start: doubled each time, so that a thread that can't live doesn't use up a core."""

STEADY_S = 60.0
"""One that has lived for so long counts as healthy again."""


def _nothing() -> None:
    return None


class Worker:
    """A daemon thread that runs ``work`` until it returns; where it raises, it is run again.

    Args:
        name: Of the thread, for the log and for people.
        work: Returns when it is told to end.
        on_death: Told, in a sentence, that it died and goes on.
        mend: Called after a death, on the same thread: lets go of what the work had in hand.
        first_pause_s: Before the first new start.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        *,
        on_death: Callable[[str], None],
        mend: Callable[[], None] = _nothing,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self.name = name
        self._work = work
        self._on_death = on_death
        self._mend = mend
        self._first_pause_s = first_pause_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread; once."""
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The thread's number; None before it was started."""
        return self._thread.ident

    def is_alive(self) -> bool:
        """Whether the thread runs, or will run again after a death."""
        return self._thread.is_alive()

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def join(self, timeout_s: float) -> bool:
        """Waits for the work to return, which must have been told to; returns whether it did."""
        self._ending.set()
        if self._thread.ident is not None and not self.is_current():
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause = self._first_pause_s
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                self._work()
                return
            except BaseException as error:
                _log.exception("event=thread_died thread=%s", self.name)
                self._after_death(error)
            if time.monotonic() - began > STEADY_S:
                pause = self._first_pause_s
            self._ending.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _after_death(self, error: BaseException) -> None:
        try:
            self._mend()
            if not self._ending.is_set():
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self._on_death(f"The {self.name} thread failed ({reason}) and was started again.")
        except Exception:
            _log.exception("event=mend_failed thread=%s", self.name)

"""Turns at the processor: as many questions are searched at once as help each other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from copilotd.errors import Cancelled

AT_ONCE = max(1, min(2, os.cpu_count() or 1))
"""Half of a search is Python, of which one thread runs at a time: more searches at once are answered no sooner,
and whatever else wants to run, ``status`` among it, waits for its turn among all of them."""

_PATIENCE_S = 0.5


class Turns:
    """Lets so many threads in at once; the others wait.

    Args:
        at_once: How many.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._free = threading.Semaphore(at_once)

    @contextmanager
    def take(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Waits for a turn and has it while it is entered.

        Args:
            cancelled: Whether the waiting is for nobody.

        Raises:
            Cancelled: It is.
        """
        while not self._free.acquire(timeout=_PATIENCE_S):
            if cancelled():
                raise Cancelled("The question was cancelled.")
        try:
            if cancelled():
                raise Cancelled("The question was cancelled.")
            yield
        finally:
            self._free.release()

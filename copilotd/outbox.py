"""What waits to be sent to one client: filled from any thread, emptied by the event loop, bounded."""

from __future__ import annotations

import asyncio
import contextlib
import threading

_PATIENCE_S = 0.5


class Outbox:
    """Lines in order, with a limit that holds back whoever produces them.

    Args:
        loop: The loop that empties it.
        limit: Bytes from which on producers wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._limit = limit
        self._lines: dict[object, bytes] = {}
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, line: bytes, *, replaces: object = None) -> None:
        """Appends a line without waiting; an unsent one with the same ``replaces`` gives way to it."""
        with self._changed:
            if self._closed:
                return
            key = object() if replaces is None else replaces
            self._bytes += len(line) - len(self._lines.get(key, b""))
            self._lines[key] = line
        if threading.get_ident() == self._loop_thread:
            self._note_filled()
        else:
            # The loop is closed when a worker outlives the daemon's shutdown.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._note_filled)

    def put_with_backpressure(self, line: bytes, cancelled: threading.Event) -> None:
        """Appends a line; a worker thread waits first until there is room, or nobody wants it any more.

        The loop's own thread can't wait for itself: there the line is appended at once.
        """
        if threading.get_ident() != self._loop_thread:
            with self._changed:
                while self._bytes >= self._limit and not self._closed and not cancelled.is_set():
                    self._changed.wait(_PATIENCE_S)
        if not cancelled.is_set():
            self.put(line)

    def wake(self) -> None:
        """Lets waiting threads look again whether they are cancelled."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Takes no more lines; those that wait are still given out, then None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._note_filled()

    async def take(self) -> bytes | None:
        """Returns all that waits, at least a line; None when closed and empty."""
        while True:
            await self._filled.wait()
            with self._changed:
                data = b"".join(self._lines.values())
                self._lines.clear()
                self._bytes = 0
                if not self._closed:
                    self._filled.clear()
                self._changed.notify_all()
            self._room.set()
            # A thread's signal may arrive after its line was taken with an earlier one.
            if data or self._closed:
                return data or None

    async def wait_for_room(self) -> None:
        """Returns once less than the limit waits."""
        await self._room.wait()

    def _note_filled(self) -> None:
        self._filled.set()
        if self._bytes >= self._limit:
            self._room.clear()

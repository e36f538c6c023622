"""One client's connection: its requests, their cancelling, its limits; no business rules.

One task reads and one writes; each request is a task of its own. A client that hangs up, or sends
``cancel``, sets the request's ``cancelled``; a handler that doesn't end soon after is abandoned.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from copilotd import wire
from copilotd.errors import Busy, Cancelled, CopilotError, UsageError, WireError
from copilotd.outbox import Outbox
from copilotd.text import one_line
from copilotd.wire import JSONObject, RequestId

if TYPE_CHECKING:
    from copilotd.server import Server

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_RECEIVE_BYTES = 65_536
_HANGUP_POLL_S = 0.1
# A timer that comes so late was not late by itself: this process was stopped (SIGSTOP, a frozen machine). The
# client could do nothing in that time, so it isn't counted against it.
_STOPPED_S = 1.0


class UnknownMethod(UsageError):
    """The daemon has no such method."""

    def __init__(self, method: str) -> None:
        super().__init__(
            f"There is no method {one_line(method, 60)!r}.", "docs/protocol.md lists the methods."
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost.

    Attributes:
        message_bytes: Length of a request.
        connections: Clients at once.
        open_requests: Requests without a reply, a connection.
        all_requests: Requests without a reply, of all connections; those of ``always`` are taken all the same.
        always: Methods that cost next to nothing and say what is going on.
        outbox_bytes: Bytes waiting for a slow reader before its requests are held up.
        message_s: Time for a message from its first byte to its newline.
        idle_s: Time a connection may stay without a request.
        write_s: Time without a byte taken after which a reader counts as gone.
        request_s: Time a request may go on without a sign of life (a notification).
        cancel_s: Time a cancelled handler has to end by itself.
    """

    message_bytes: int = wire.MAX_REQUEST_BYTES
    connections: int = 256
    open_requests: int = 64
    all_requests: int = 1024
    always: frozenset[str] = frozenset({"hello", "status", "shutdown"})
    outbox_bytes: int = 1 << 20
    message_s: float = 30.0
    idle_s: float = 3600.0
    write_s: float = 30.0
    request_s: float = 600.0
    cancel_s: float = 2.0


@dataclass(eq=False, slots=True)
class RequestContext:
    """What a handler knows of its request beyond the parameters.

    Attributes:
        request_id: The client's number for it.
        method: Its method.
        cancelled: Set when the client is gone or has cancelled, or the daemon stops; for worker threads.
    """

    request_id: RequestId
    method: str
    cancelled: threading.Event
    _outbox: Outbox
    _last_sign: float = field(default_factory=time.monotonic)
    _expired: bool = False

    def notify(self, method: str, params: JSONObject) -> None:
        """Sends a notification about this request; callable from any thread.

        Of ``progress`` only the latest waits for a slow reader; every other is kept, and a worker thread that is
        too far ahead of its reader waits here. Once the client is gone, nothing happens.
        """
        self._last_sign = time.monotonic()
        line = wire.encode_notification(method, {"id": self.request_id, **params})
        if method == "progress":
            self._outbox.put(line, replaces=self)
        else:
            self._outbox.put_with_backpressure(line, self.cancelled)


Handler = Callable[[JSONObject, RequestContext], Awaitable[JSONObject]]


class Session:
    """One connection, from accept to close."""

    def __init__(self, server: Server, connection: socket.socket) -> None:
        self._server = server
        self._limits = server.limits
        self._socket = connection
        self._wire = wire.Connection(self._limits.message_bytes)
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(self._loop, self._limits.outbox_bytes)
        self._requests: dict[RequestId, tuple[RequestContext, asyncio.Task[None]]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serves the connection until either side ends it."""
        self._reader = self._loop.create_task(self._read())
        writer = self._loop.create_task(self._write())
        try:
            await asyncio.wait({self._reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            self.cancel_requests()
            self._outbox.close()
            if not writer.done():
                await asyncio.wait({writer}, timeout=self._limits.write_s)
        finally:
            self.cancel_requests()
            self._outbox.close()
            self._reader.cancel()
            writer.cancel()
            outcomes = await asyncio.gather(self._reader, writer, return_exceptions=True)
            self._socket.close()
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    log.error("event=connection_failed", exc_info=outcome)

    def hang_up(self) -> None:
        """Ends the connection once what is written has been sent."""
        if self._reader is not None:
            self._reader.cancel()

    def cancel_requests(self) -> None:
        """Cancels all that run."""
        for context, task in list(self._requests.values()):
            self._cancel(context, task)

    def _cancel(self, context: RequestContext, task: asyncio.Task[None]) -> None:
        if not context.cancelled.is_set():
            context.cancelled.set()
            self._outbox.wake()
            self._loop.call_later(self._limits.cancel_s, task.cancel)

    # ---------------------------------------------------------------------------------- bytes in

    async def _read(self) -> None:
        half_since: float | None = None
        while True:
            await self._outbox.wait_for_room()
            now = self._loop.time()
            patience = (
                self._limits.idle_s if half_since is None else half_since + self._limits.message_s - now
            )
            try:
                data = await _in_time(self._loop.sock_recv(self._socket, _RECEIVE_BYTES), patience)
            except TimeoutError:
                if half_since is not None:
                    text = f"The message was not finished within {self._limits.message_s:g} s."
                    self._outbox.put(self._wire.encode_error(None, WireError(text)))
                    return
                if self._requests:
                    continue
                return
            except OSError:
                return
            if not data:
                await self._wait_for_hangup()
                return
            for message in self._wire.receive(data):
                if not self._take(message):
                    return
            if not self._wire.half_message:
                half_since = None
            elif half_since is None:
                half_since = self._loop.time()

    async def _wait_for_hangup(self) -> None:
        """Tells a client that only finished writing (``socat``, ``nc -N``) from one that is gone."""
        poll = select.poll()
        poll.register(self._socket, 0)
        # A selector can't wait for a hang-up alone: the read end stays ready.
        while self._requests and not any(events & select.POLLHUP for _, events in poll.poll(0)):  # noqa: ASYNC110
            await asyncio.sleep(_HANGUP_POLL_S)

    def _take(self, message: wire.Request | wire.Notification | wire.Invalid) -> bool:
        """Acts on a message; False ends the connection."""
        if isinstance(message, wire.Invalid):
            log.warning("event=bad_message reason=%r", message.error.message)
            self._outbox.put(self._wire.encode_error(message.id, message.error, message.number))
            return not message.fatal
        if isinstance(message, wire.Notification):
            # Unknown ones are ignored, as JSON-RPC wants: a newer client may send more.
            cancelled = message.params.get("id")
            if message.method == "cancel" and isinstance(cancelled, int | str):
                running = self._requests.get(cancelled)
                if running is not None:
                    self._cancel(*running)
            return True
        self._begin(message)
        return True

    def _begin(self, request: wire.Request) -> None:
        refusal = self._server.farewell or self._too_much(request.method)
        if refusal is not None:
            self._outbox.put(self._wire.encode_error(request.id, refusal))
            return
        context = RequestContext(request.id, request.method, threading.Event(), self._outbox)
        task = self._loop.create_task(self._answer(request, context), name=f"request-{request.method}")
        self._requests[request.id] = (context, task)
        self._server.request_tasks.add(task)
        task.add_done_callback(self._server.request_tasks.discard)
        self._watch(context, task)

    def _too_much(self, method: str) -> CopilotError | None:
        if len(self._requests) >= self._limits.open_requests:
            return Busy(f"{self._limits.open_requests} requests of this connection have no reply yet.")
        if method not in self._limits.always and self._server.overloaded:
            return Busy(
                f"{self._limits.all_requests} requests wait for a reply already.",
                "Try again in a moment, or raise MAX_REQUESTS.",
            )
        return None

    def _watch(self, context: RequestContext, task: asyncio.Task[None], due: float | None = None) -> None:
        """Cancels a request that has gone without a sign of life for too long."""
        now = time.monotonic()
        if due is not None and now - due > _STOPPED_S:
            context._last_sign = now
        left = context._last_sign + self._limits.request_s - now
        if left > 0:
            timer = self._loop.call_later(left, self._watch, context, task, now + left)
            task.add_done_callback(lambda _: timer.cancel())
        elif not task.done():
            context._expired = True
            self._cancel(context, task)

    # --------------------------------------------------------------------------------- answering

    async def _answer(self, request: wire.Request, context: RequestContext) -> None:
        started = time.perf_counter()
        outcome = "ok"
        try:
            result = await self._server.find(request.method)(request.params, context)
            line = self._wire.encode_result(request.id, result)
            if len(line) > wire.MAX_REPLY_BYTES:
                raise UsageError("The result is too large to send.", "Ask for less of it.")
        except asyncio.CancelledError:
            outcome = "abandoned"
            line = self._wire.encode_error(request.id, self._why_cancelled(context))
        except Cancelled:
            outcome = "cancelled"
            line = self._wire.encode_error(request.id, self._why_cancelled(context))
        except UnknownMethod as error:
            outcome = error.code
            line = self._wire.encode_error(request.id, error, wire.METHOD_NOT_FOUND)
        except CopilotError as error:
            outcome = error.code
            line = self._wire.encode_error(request.id, error)
        except Exception as error:
            outcome = "internal"
            log.exception("event=request_failed method=%s", one_line(request.method, 60))
            text = f"The daemon failed on this request ({type(error).__name__}); its log has the details."
            line = self._wire.encode_error(request.id, CopilotError(text, "copilot logs"))
        # Before the client can use the id again.
        self._requests.pop(request.id, None)
        self._outbox.put(line)
        level = logging.DEBUG if outcome == "ok" and request.method in ("hello", "status") else logging.INFO
        milliseconds = (time.perf_counter() - started) * 1000
        method = one_line(request.method, 60)
        log.log(level, "event=request method=%s outcome=%s ms=%.1f", method, outcome, milliseconds)

    def _why_cancelled(self, context: RequestContext) -> CopilotError:
        if context._expired:
            return Busy(
                f"The request was given up after {self._limits.request_s:g} s without a sign of life.",
                "REQUEST_TIMEOUT_S sets the limit.",
            )
        return self._server.farewell or Cancelled("The request was cancelled.")

    # --------------------------------------------------------------------------------- bytes out

    async def _write(self) -> None:
        while (data := await self._outbox.take()) is not None:
            view = memoryview(data)
            while view:
                try:
                    # Bit by bit, so that the time-out means "takes nothing", not "is slow".
                    sending = self._loop.sock_sendall(self._socket, view[:_RECEIVE_BYTES])
                    await _in_time(sending, self._limits.write_s)
                except TimeoutError:
                    log.warning("event=slow_reader waited_s=%g", self._limits.write_s)
                    return
                except OSError:
                    return
                view = view[_RECEIVE_BYTES:]


async def _in_time(waiting: Coroutine[Any, Any, _T], seconds: float) -> _T:
    """Returns what ``waiting`` gives; time in which this very process was stopped doesn't count.

    Raises:
        TimeoutError: It took longer than ``seconds``.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(waiting)
    try:
        while not task.done():
            due = loop.time() + max(seconds, 0.0)
            await asyncio.wait({task}, timeout=max(seconds, 0.0))
            if not task.done() and loop.time() - due < _STOPPED_S:
                raise TimeoutError
        return task.result()
    finally:
        task.cancel()

"""The asyncio adapter around :mod:`copilotd.wire`: accepts, refuses, finds handlers; no business rules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial

from copilotd import wire
from copilotd.errors import Busy, CopilotError, ShuttingDown, UsageError
from copilotd.listener import peer_uid
from copilotd.session import Handler, Limits, RequestContext, Session, UnknownMethod

__all__ = ["Handler", "Limits", "RequestContext", "Server", "UnknownMethod"]

log = logging.getLogger(__name__)


class Server:
    """Serves a listening socket.

    Args:
        handlers: Method → handler; may be exchanged while serving by assigning :attr:`handlers`.
        limits: What one client may cost.
        fallback: Answers a method that is not in ``handlers``; None refuses it.

    Attributes:
        farewell: What requests are told once it closes; None until then.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        limits: Limits | None = None,
        *,
        fallback: Callable[[str], Handler] | None = None,
    ) -> None:
        self.handlers = handlers
        self.fallback = fallback
        self.limits = limits or Limits()
        self.farewell: CopilotError | None = None
        self.request_tasks: set[asyncio.Task[None]] = set()
        self._clients: set[Session] = set()
        self._client_tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._refusals = 0

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    @property
    def overloaded(self) -> bool:
        """Whether as many requests have no reply yet as may."""
        return len(self.request_tasks) >= self.limits.all_requests

    def start(self, listening: socket.socket) -> None:
        """Begins to accept; ``listening`` is bound, listening and non-blocking, and stays the caller's."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening), name="accept")

    async def stop_accepting(self) -> None:
        """Takes no new clients; those that are connected go on."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)

    async def close(self, grace_s: float = 1.0, reason: CopilotError | None = None) -> None:
        """Stops accepting, cancels what runs, sends the replies that come within ``grace_s``, hangs up.

        Args:
            grace_s: Seconds for requests to end.
            reason: What those that end without a result are told; None for an orderly shutdown.
        """
        self.farewell = reason or ShuttingDown("The daemon is stopping.", "copilot start")
        await self.stop_accepting()
        for client in self._clients:
            client.cancel_requests()
        # Those of clients that are gone already are among them.
        requests = list(self.request_tasks)
        if requests:
            _, late = await asyncio.wait(requests, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*requests, return_exceptions=True)
        for client in list(self._clients):
            client.hang_up()
        if self._client_tasks:
            _, stuck = await asyncio.wait(self._client_tasks, timeout=0.5)
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                # No descriptors left (EMFILE), or a client gone before its turn; neither ends the daemon.
                log.warning("event=accept_failed reason=%r", error.strerror)
                await asyncio.sleep(0.1)
                continue
            try:
                self._admit(connection)
            except Exception:
                # One client's misfortune: a daemon that no longer accepts could not even be stopped.
                log.exception("event=admit_failed")
                connection.close()

    def _admit(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        refusal = self._refuse(connection)
        if refusal is not None:
            with contextlib.suppress(OSError):
                connection.send(wire.encode_error(None, refusal))
            connection.close()
            return
        client = Session(self, connection)
        self._clients.add(client)
        task = asyncio.get_running_loop().create_task(client.run(), name=f"client-{connection.fileno()}")
        self._client_tasks.add(task)
        task.add_done_callback(self._client_tasks.discard)
        task.add_done_callback(partial(self._forget, client))

    def _forget(self, session: Session, _task: asyncio.Task[None]) -> None:
        self._clients.discard(session)

    def _refuse(self, connection: socket.socket) -> CopilotError | None:
        try:
            uid = peer_uid(connection)
        except OSError:
            return UsageError("The kernel does not say who you are.")
        if uid != os.getuid():
            log.warning("event=refused reason=other_user uid=%d", uid)
            return UsageError(f"This daemon serves user {os.getuid()}; you are user {uid}.")
        if len(self._clients) >= self.limits.connections:
            self._refusals += 1
            if self._refusals.bit_count() == 1:  # the 1st, 2nd, 4th…: a flood must not fill the log
                log.warning("event=refused reason=connections count=%d", self._refusals)
            return Busy(
                f"{self.limits.connections} clients are connected already.",
                "Try again in a moment, or raise MAX_CONNECTIONS.",
            )
        return None

    def find(self, method: str) -> Handler:
        """Returns the handler of a method.

        Raises:
            UnknownMethod: There is none.
        """
        handler = self.handlers.get(method)
        if handler is None and self.fallback is not None:
            handler = self.fallback(method)
        if handler is None:
            raise UnknownMethod(method)
        return handler

"""The daemon's life: startup, run, shutdown.

The socket opens first and the service behind it is built in a worker thread, so that ``hello`` and
``status`` are answered from the first moment; other requests wait for the service. Signals only set flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

from copilotd import __version__
from copilotd.backend import BuildService, Service, build_service
from copilotd.daemon_info import DaemonInfo, find_starter
from copilotd.errors import CopilotError, IndexError_, SettingsError, ShuttingDown, could_not_start
from copilotd.live_settings import LiveSettings
from copilotd.notify import notify, watchdog_interval
from copilotd.own_handlers import OwnHandlers
from copilotd.premises import Premises
from copilotd.server import Handler, Limits, RequestContext, Server, UnknownMethod
from copilotd.settings import Settings
from copilotd.wire import JSONObject

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_NEVER = 3
"""Starting again can't help (RestartPreventExitStatus in the unit)."""

SHUTDOWN_S = 2.0
"""All of a shutdown, from the signal to the exit."""

PLACES_CHECK_S = 5.0
"""How often to look whether the socket and the index are still there."""

_REQUESTS_END_S = 0.5
_CHORE_AGAIN_S = 5.0

# How often the service manager is told what the daemon does: while that changes fast, and later.
_TELL_STARTING_S, _TELL_S = 1.0, 30.0


class Daemon:
    """One process, one index, one socket.

    Args:
        settings: All of them.
        build: Makes the service; injected by tests.
        inherited: The socket that a service manager listens on for it.

    Attributes:
        on_reload: Called with the settings that a reload gave.
    """

    def __init__(
        self,
        settings: Settings,
        build: BuildService = build_service,
        *,
        inherited: socket.socket | None = None,
    ) -> None:
        self.on_reload: Callable[[Settings], None] = lambda _settings: None
        self._settings = LiveSettings(settings)
        self._build = build
        self._inherited = inherited
        self._premises: Premises | None = None
        self._service: Service | None = None
        self._state = "starting"
        self._failure: CopilotError | None = None
        self._exit_code = EXIT_OK
        self._info = DaemonInfo(
            socket=settings.copilot_socket,
            index_dir=settings.index_dir,
            log_file=settings.log_file,
            env_file=settings.copilot_env_file,
            announce=_announce,
            stop=self.stop,
            warnings=self._settings.warnings,
            problems=self._all_problems,
            started_by=find_starter(os.environ),
        )
        self._own = OwnHandlers(
            self._info,
            settings=lambda: self.settings,
            state=lambda: "stopping" if self._stopping.is_set() else self._state,
            reload=lambda: self._settings.reload(self._take_settings),
            stop=lambda: self._stopping.set(),
        )

    @property
    def settings(self) -> Settings:
        """All of them, as they are in use."""
        return self._settings.now

    @property
    def failure(self) -> CopilotError | None:
        """Why the service could not be built, once that is known."""
        return self._failure

    # ----------------------------------------------------------------------------------- startup

    def startup(self) -> None:
        """Takes the index and opens the socket.

        Raises:
            IndexLocked: Another daemon has one of them.
            SettingsError: A place can't be used.
        """
        self._premises = Premises(self.settings, self._inherited)

    def run(self) -> int:
        """Serves until a signal or ``shutdown``; returns the exit code. Must run in the main thread."""
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._serve())
        finally:
            # Not asyncio.run: it would wait without limit for worker threads that are stuck.
            loop.close()
        return self._exit_code

    def stop(self) -> None:
        """Begins an orderly shutdown; any thread, any time after :meth:`run` began."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        assert self._premises is not None
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._built = asyncio.Event()
        self._signals = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        self._server = Server(self._own.early, _limits(self.settings), fallback=self._wait_for_service)
        self._server.start(self._premises.listener.socket)
        log.info("event=listening socket=%s pid=%d version=%s", self._info.socket, os.getpid(), __version__)
        for warning in self.settings.warnings:
            log.warning("event=settings note=%r", warning)
        threading.Thread(target=self._build_in_thread, name="build", daemon=True).start()
        work = (_feed_watchdog, partial(self._watch_places, self._premises), self._tell_manager)
        chores = [self._loop.create_task(_keep_up(chore)) for chore in work]
        await self._stopping.wait()
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await self._close()

    def _build_in_thread(self) -> None:
        failure: BaseException | None = None
        service: Service | None = None
        try:
            service = self._build(self.settings, self._info)
        except BaseException as error:
            failure = error
        try:
            self._loop.call_soon_threadsafe(self._on_built, service, failure)
        except RuntimeError:
            # The daemon stopped meanwhile, and its loop is gone.
            if service is not None:
                service.close()

    def _on_built(self, service: Service | None, failure: BaseException | None) -> None:
        self._service = service
        if service is not None:
            if not self._stopping.is_set():
                self._state = "ready"
                self._server.handlers = {**service.handlers, **self._own.always}
                self._server.fallback = None
                # A reload may have come while it was being built.
                service.use(self.settings)
                notify(READY=1, STATUS="Ready")
                log.info("event=ready seconds=%.2f", time.monotonic() - self._info.started)
        elif isinstance(failure, CopilotError):
            self._exit_code, self._failure = EXIT_NEVER, failure
            log.error(
                "event=cannot_start code=%s reason=%r hint=%r", failure.code, failure.message, failure.hint
            )
        else:
            self._exit_code = EXIT_FAILED
            self._failure = CopilotError(could_not_start(f"{failure}."), "copilot logs")
            log.error("event=start_failed", exc_info=failure)
        self._built.set()
        if self._failure is not None:
            self._stopping.set()

    # ------------------------------------------------------------------------------ while it runs

    async def _tell_manager(self) -> None:
        """Keeps STATUS= true, where there is a manager to read it."""
        told = ""
        while os.environ.get("NOTIFY_SOCKET"):
            if self._service is not None:
                text = await asyncio.to_thread(self._service.describe)
                if text != told:
                    _announce(text)
                told = text
            await asyncio.sleep(_TELL_S if told.startswith("Ready") else _TELL_STARTING_S)

    async def _watch_places(self, premises: Premises) -> None:
        while True:
            await asyncio.sleep(PLACES_CHECK_S)
            problems = self._problems()
            if problems:
                # What is open has no name any more: answers would come from it, and changes go to it, for nothing.
                self._exit_code = EXIT_FAILED
                self._failure = IndexError_(problems[0], "copilot start, then copilot index DIR")
                log.error("event=index_lost path=%s reason=%r", self.settings.index_dir, problems[0])
                self._stopping.set()
                return
            if premises.listener.vanished():
                await self._server.stop_accepting()
                premises.restore_socket()
                self._server.start(premises.listener.socket)

    def _problems(self) -> tuple[str, ...]:
        folder_lost = self._premises is not None and self._premises.lost()
        if not folder_lost and (self._service is None or not self._service.lost()):
            return ()
        return (
            f"The index {'folder' if folder_lost else 'database in'} {self.settings.index_dir} was removed or replaced"
            " while the daemon ran; it stops.",
        )

    def _all_problems(self) -> tuple[str, ...]:
        return (*self._problems(), *((self._settings.problem,) if self._settings.problem else ()))

    def _on_hangup(self) -> None:
        log.info("event=signal name=SIGHUP")
        self._hangup = self._loop.create_task(self._reload_quietly())

    async def _reload_quietly(self) -> None:
        # What is wrong is in the log and in `status` already.
        with contextlib.suppress(SettingsError):
            await self._settings.reload(self._take_settings)

    def _take_settings(self, settings: Settings) -> None:
        self.on_reload(settings)
        self._server.limits = _limits(settings)
        if self._service is not None:
            self._service.use(settings)

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        name = signal.Signals(number).name
        if self._signals > 1:
            log.warning("event=signal name=%s note='the second: ending at once'", name)
            logging.shutdown()
            # The store is safe against being cut off at any instant; that is what it is asked here.
            os._exit(128 + number)
        log.info("event=signal name=%s", name)
        self._stopping.set()

    def _wait_for_service(self, method: str) -> Handler:
        async def wait(params: JSONObject, context: RequestContext) -> JSONObject:
            context.notify("progress", {"stage": "model", "message": "The daemon is starting."})
            await self._built.wait()
            if self._failure is not None:
                raise self._failure
            if self._stopping.is_set():
                raise ShuttingDown("The daemon is stopping.", "copilot start")
            handler = self._server.handlers.get(method)
            if handler is None:
                raise UnknownMethod(method)
            return await handler(params, context)

        return wait

    # ---------------------------------------------------------------------------------- shutdown

    async def _close(self) -> None:
        deadline = time.monotonic() + SHUTDOWN_S
        notify(STOPPING=1, STATUS="Stopping")
        log.info("event=stopping connections=%d", self._server.connections)
        await self._server.close(_REQUESTS_END_S, self._failure)
        if not self._built.is_set():
            try:
                async with asyncio.timeout(deadline - time.monotonic() - 0.2):
                    await self._built.wait()
            except TimeoutError:
                log.warning("event=stop_timeout note='the service was still being built'")
        if self._service is not None:
            await self._close_service(self._service, deadline - time.monotonic() - 0.1)
        log.info("event=stopped exit=%d", self._exit_code)

    async def _close_service(self, service: Service, seconds: float) -> None:
        closed = asyncio.Event()

        def close() -> None:
            try:
                service.close()
            except Exception:
                log.exception("event=close_failed")
            # The loop is gone when this took too long.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=close, name="close", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await closed.wait()
        except TimeoutError:
            log.warning("event=stop_timeout note='closing took too long; what is stored stays whole'")

    def shutdown(self) -> None:
        """Lets go of socket and lock; a second call does nothing."""
        if self._premises is not None:
            self._premises.leave()
            self._premises = None


def _announce(text: str) -> None:
    notify(STATUS=text)
    log.info("event=state note=%r", text)


async def _keep_up(chore: Callable[[], Awaitable[None]]) -> None:
    """Does a chore until it is done; where it fails, once more after a while."""
    while True:
        try:
            return await chore()
        except Exception:
            log.exception("event=chore_failed")
            await asyncio.sleep(_CHORE_AGAIN_S)


async def _feed_watchdog() -> None:
    interval = watchdog_interval()
    while interval is not None:
        notify(WATCHDOG=1)
        await asyncio.sleep(interval)


def _limits(settings: Settings) -> Limits:
    return Limits(
        message_bytes=settings.max_message_bytes,
        connections=settings.max_connections,
        all_requests=settings.max_requests,
        request_s=settings.request_timeout_s,
    )

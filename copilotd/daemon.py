"""The daemon's life: startup, run, shutdown.

The socket opens first and the service behind it is built in a worker thread, so that ``hello`` and
``status`` are answered from the first moment; other requests wait for the service. Signals only set flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from copilotd import __version__
from copilotd.daemon_info import DaemonInfo, find_starter
from copilotd.errors import CopilotError, IndexError_, SettingsError, ShuttingDown, UsageError
from copilotd.listener import Listener
from copilotd.lock import LockFile
from copilotd.notify import notify, watchdog_interval
from copilotd.paths import check_index_directory, default_index_dir, user_state_dir
from copilotd.server import Handler, Limits, RequestContext, Server, UnknownMethod
from copilotd.settings import Settings, load_settings, merge_live
from copilotd.text import one_line
from copilotd.wire import OLDEST_PROTOCOL, PROTOCOL, JSONObject

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

# How often the service manager is told what the daemon does: while that changes fast, and later.
_TELL_STARTING_S, _TELL_S = 1.0, 30.0


class Service(Protocol):
    """What stands behind the socket."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Method → handler."""
        ...

    def lost(self) -> bool:
        """Whether what it keeps its data in was removed or replaced from outside; quick."""
        ...

    def use(self, settings: Settings) -> None:
        """Takes settings that differ in what can change while it runs; any thread, quick."""
        ...

    def describe(self) -> str:
        """Says in a line what it is doing; called in a thread."""
        ...

    def close(self) -> None:
        """Saves and lets go of everything; called once, in a thread of its own, cut off after two seconds."""
        ...


BuildService = Callable[[Settings, DaemonInfo], Service]


def build_service(settings: Settings, info: DaemonInfo) -> Service:
    """Builds the product; runs in a worker thread since it imports heavy libraries."""
    from copilotd.api import service as api

    return api.build(settings, info)


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
        self.settings = settings
        self.on_reload: Callable[[Settings], None] = lambda _settings: None
        self._build = build
        self._inherited = inherited
        self._settings_problem = ""
        self._waiting: tuple[str, ...] = ()
        self._reloading = asyncio.Lock()
        self._lock: LockFile | None = None
        self._listener: Listener | None = None
        self._service: Service | None = None
        self._state = "starting"
        self._failure: CopilotError | None = None
        self._exit_code = EXIT_OK
        self._info = DaemonInfo(
            socket=settings.copilot_socket,
            index_dir=settings.index_dir,
            log_file=settings.log_file,
            env_file=settings.copilot_env_file,
            announce=self._announce,
            stop=self.stop,
            warnings=self._warnings,
            problems=self._all_problems,
            started_by=find_starter(os.environ),
        )

    # ----------------------------------------------------------------------------------- startup

    def startup(self) -> None:
        """Takes the index and opens the socket.

        Raises:
            IndexLocked: Another daemon has one of them.
            SettingsError: A place can't be used.
        """
        self._lock = self._lock_index()
        try:
            # Only our own folder's rights are changed; one that the user names is taken or refused.
            ours = self.settings.copilot_socket.parent == user_state_dir()
            self._listener = Listener(self.settings.copilot_socket, tighten=ours, inherited=self._inherited)
        except BaseException:
            self._lock.release()
            raise
        facts = {
            "pid": os.getpid(),
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "socket": str(self.settings.copilot_socket),
            "version": __version__,
        }
        self._lock.describe(**facts)
        self._listener.lock.describe(**facts)

    def _lock_index(self) -> LockFile:
        folder = self.settings.index_dir
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # As with the socket's folder: one that the user names is taken as it is, or refused.
            check_index_directory(folder, tighten=folder == default_index_dir())
        except OSError as error:
            raise SettingsError(
                f"INDEX_DIR {folder} can't be used: {error.strerror}.",
                "Set INDEX_DIR to a folder of your own.",
            ) from None
        return LockFile(folder / "copilotd.lock", f"The index {folder}")

    # --------------------------------------------------------------------------------------- run

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
        assert self._listener is not None
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._built = asyncio.Event()
        self._signals = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        early = {"status": self._status, **self._own_handlers}
        self._server = Server(early, _limits(self.settings), fallback=self._wait_for_service)
        self._server.start(self._listener.socket)
        log.info("event=listening socket=%s pid=%d version=%s", self._info.socket, os.getpid(), __version__)
        for warning in self.settings.warnings:
            log.warning("event=settings note=%r", warning)
        threading.Thread(target=self._build_in_thread, name="build", daemon=True).start()
        work = (self._feed_watchdog(), self._watch_places(), self._tell_manager())
        chores = [self._loop.create_task(chore) for chore in work]
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
                self._server.handlers = {**service.handlers, **self._own_handlers}
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
            self._failure = CopilotError(f"The daemon could not start: {failure}.", "copilot logs")
            log.error("event=start_failed", exc_info=failure)
        self._built.set()
        if self._failure is not None:
            self._stopping.set()

    @property
    def failure(self) -> CopilotError | None:
        """Why the service could not be built, once that is known."""
        return self._failure

    def _announce(self, text: str) -> None:
        notify(STATUS=text)
        log.info("event=state note=%r", text)

    async def _feed_watchdog(self) -> None:
        interval = watchdog_interval()
        while interval is not None:
            notify(WATCHDOG=1)
            await asyncio.sleep(interval)

    async def _tell_manager(self) -> None:
        """Keeps STATUS= true, where there is a manager to read it."""
        told = ""
        while os.environ.get("NOTIFY_SOCKET"):
            if self._service is not None:
                text = await asyncio.to_thread(self._service.describe)
                if text != told:
                    self._announce(text)
                told = text
            await asyncio.sleep(_TELL_S if told.startswith("Ready") else _TELL_STARTING_S)

    async def _watch_places(self) -> None:
        assert self._listener is not None
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
            if self._listener.vanished():
                await self._restore_socket(self._listener)

    async def _restore_socket(self, listener: Listener) -> None:
        """Puts the socket back where its file was removed: without it nobody could even stop the daemon."""
        await self._server.stop_accepting()
        try:
            listener.restore()
            log.warning("event=socket_restored path=%s", listener.path)
        except (OSError, SettingsError) as error:
            log.warning("event=socket_lost path=%s reason=%r", listener.path, str(error))
        self._server.start(listener.socket)

    def _problems(self) -> tuple[str, ...]:
        folder_lost = self._lock is not None and self._lock.lost()
        if not folder_lost and (self._service is None or not self._service.lost()):
            return ()
        return (
            f"The index {'folder' if folder_lost else 'database in'} {self.settings.index_dir} was removed or replaced"
            " while the daemon ran; it stops.",
        )

    def _all_problems(self) -> tuple[str, ...]:
        return (*self._problems(), *((self._settings_problem,) if self._settings_problem else ()))

    def _warnings(self) -> tuple[str, ...]:
        if not self._waiting:
            return self.settings.warnings
        waiting = f"{', '.join(self._waiting)}: changed, and used after a restart. Run: copilot restart"
        return (*self.settings.warnings, waiting)

    # ------------------------------------------------------------------------------------ reload

    def _on_hangup(self) -> None:
        log.info("event=signal name=SIGHUP")
        self._hangup = self._loop.create_task(self._reload_quietly())

    async def _reload_quietly(self) -> None:
        # What is wrong is in the log and in `status` already.
        with contextlib.suppress(SettingsError):
            await self._reload_settings()

    async def _reload_settings(self) -> JSONObject:
        """Reads the settings anew and takes what can change while the daemon runs.

        Raises:
            SettingsError: They are wrong; the old ones stay.
        """
        async with self._reloading:
            try:
                wanted = await asyncio.to_thread(load_settings)
            except SettingsError as error:
                self._settings_problem = f"The settings were not reloaded: {error.message}"
                log.error("event=reload_failed reason=%r", error.message)
                raise SettingsError(
                    f"{error.message}\nThe daemon goes on with the old ones.", error.hint
                ) from None
            self._settings_problem = ""
            self.settings, changed, self._waiting = merge_live(self.settings, wanted)
            self.on_reload(self.settings)
            self._server.limits = _limits(self.settings)
            if self._service is not None:
                self._service.use(self.settings)
        log.info(
            "event=reload changed=%s needs_restart=%s",
            ",".join(changed) or "-",
            ",".join(self._waiting) or "-",
        )
        for warning in self.settings.warnings:
            log.warning("event=settings note=%r", warning)
        return {
            "changed": list(changed),
            "needs_restart": list(self._waiting),
            "warnings": list(self.settings.warnings),
        }

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

    # ---------------------------------------------------------------------------------- handlers

    @property
    def _own_handlers(self) -> dict[str, Handler]:
        return {"hello": self._hello, "reload": self._reload, "shutdown": self._shutdown}

    async def _hello(self, params: JSONObject, context: RequestContext) -> JSONObject:
        unknown = set(params) - {"client", "version", "protocol"}
        if unknown:
            raise UsageError(f"hello has no parameter '{one_line(', '.join(sorted(unknown)), 200)}'.")
        return {
            "server": "copilotd",
            "version": __version__,
            "protocol": PROTOCOL,
            "oldest_protocol": OLDEST_PROTOCOL,
            "started_by": self._info.started_by,
            "pid": os.getpid(),
            "state": "stopping" if self._stopping.is_set() else self._state,
        }

    async def _status(self, params: JSONObject, context: RequestContext) -> JSONObject:
        """Answers while the service is being built; it answers itself afterwards."""
        if params:
            raise UsageError("status takes no parameters.")
        model = {"name": self.settings.embed_model, "loaded": False, "fingerprint": "", "error": ""}
        zeros = (
            "documents",
            "chunks",
            "windows",
            "embedded_total",
            "pending",
            "pending_windows",
            "generation",
        )
        empty = ("roots", "skipped")
        return {
            **self._info.facts(),
            "state": "stopping" if self._stopping.is_set() else "starting",
            "model": model,
            "provider": self.settings.llm_provider,
            "llm_model": self.settings.llm_model,
            **dict.fromkeys(zeros, 0),
            **{name: [] for name in empty},
            "errors": list(self._all_problems()),
            "warnings": list(self._warnings()),
        }

    async def _reload(self, params: JSONObject, context: RequestContext) -> JSONObject:
        if params:
            raise UsageError("reload takes no parameters.")
        return await self._reload_settings()

    async def _shutdown(self, params: JSONObject, context: RequestContext) -> JSONObject:
        if params:
            raise UsageError("shutdown takes no parameters.")
        self._stopping.set()
        return {"stopping": True}

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
        assert self._listener is not None
        deadline = time.monotonic() + SHUTDOWN_S
        notify(STOPPING=1, STATUS="Stopping")
        log.info("event=stopping connections=%d", self._server.connections)
        await self._server.close(_REQUESTS_END_S)
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
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _limits(settings: Settings) -> Limits:
    return Limits(
        message_bytes=settings.max_message_bytes,
        connections=settings.max_connections,
        request_s=settings.request_timeout_s,
    )

"""A scripted daemon: a thread with a real Unix socket that speaks the real wire."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from copilotd import wire
from copilotd.errors import CopilotError

JSONObject = dict[str, Any]


class Speaker:
    """What a script says to one client; ``gone`` turns true when that client hangs up or cancels."""

    def __init__(self, sock: socket.socket, request: wire.Request, gone: threading.Event) -> None:
        self._socket = sock
        self._request = request
        self.gone = gone

    def progress(self, **params: Any) -> None:
        self.raw(wire.encode_notification("progress", {"id": self._request.id, **params}))

    def delta(self, text: str) -> None:
        self.raw(wire.encode_notification("delta", {"id": self._request.id, "text": text}))

    def result(self, result: Mapping[str, Any]) -> None:
        extended = {**result, "_": {"version": "0.1.0", "generation": 7}}
        self.raw(wire.encode_result(self._request.id, extended))

    def fail(self, error: CopilotError) -> None:
        self.raw(wire.encode_error(self._request.id, error))

    def raw(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


Script = Callable[[wire.Request, Speaker], None]


def reply(
    result: Mapping[str, Any], *, deltas: Iterable[str] = (), progress: Iterable[Mapping[str, Any]] = ()
) -> Script:
    """A script that gives progress, then the pieces of an answer, then the result."""
    pieces, steps = list(deltas), list(progress)

    def script(request: wire.Request, speaker: Speaker) -> None:
        for step in steps:
            speaker.progress(**step)
        if request.params.get("stream", True):
            for piece in pieces:
                speaker.delta(piece)
        speaker.result(result)

    return script


def failure(error: CopilotError) -> Script:
    return lambda request, speaker: speaker.fail(error)


def until_gone(request: wire.Request, speaker: Speaker) -> None:
    """A script that works until the client goes away."""
    speaker.gone.wait(20)


class ScriptedDaemon:
    """Listens while it is entered.

    Args:
        path: Where to bind.
        scripts: What to do for each method; ``hello`` and ``shutdown`` work without one.
        hello: What ``hello`` answers.
    """

    def __init__(
        self,
        path: Path | str,
        scripts: Mapping[str, Script] | None = None,
        hello: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.requests: list[wire.Request] = []
        self.notifications: list[wire.Notification] = []
        # How many messages came with each read: hello and its request should come together.
        self.batches: list[int] = []
        self.stopped = threading.Event()
        self._scripts: dict[str, Script] = {"shutdown": self._shutdown, **(scripts or {})}
        self._hello = {
            "server": "copilotd", "version": "0.1.0", "protocol": wire.PROTOCOL, "pid": os.getpid(), "state": "ready",
            **(hello or {}),
        }  # fmt: skip
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        self._listener.bind(self.path)
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Closes the socket and removes its path."""
        if self.stopped.is_set():
            return
        self.stopped.set()
        # Closing alone doesn't wake a thread that is in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def request(self, method: str) -> wire.Request:
        """The last request for ``method``."""
        return next(request for request in reversed(self.requests) if request.method == method)

    def await_notification(self, method: str, seconds: float = 60.0) -> wire.Notification:
        """Waits for a notification of the client."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for notification in self.notifications:
                if notification.method == method:
                    return notification
            time.sleep(0.01)
        raise AssertionError(f"no {method} came")

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        connection = wire.Connection()
        gone = threading.Event()
        with sock, contextlib.suppress(OSError):
            while data := sock.recv(1 << 16):
                messages = connection.receive(data)
                self.batches.append(len(messages))
                for message in messages:
                    if isinstance(message, wire.Request):
                        self.requests.append(message)
                        threading.Thread(target=self._answer, args=(sock, message, gone), daemon=True).start()
                        if message.method == "hello":
                            time.sleep(0.01)  # its reply comes first, as the real daemon's does
                    elif isinstance(message, wire.Notification):
                        self.notifications.append(message)
        gone.set()

    def _answer(self, sock: socket.socket, request: wire.Request, gone: threading.Event) -> None:
        speaker = Speaker(sock, request, gone)
        script = self._scripts.get(request.method)
        if script is not None:
            script(request, speaker)
        elif request.method == "hello":
            speaker.result(self._hello)
        else:
            speaker.raw(wire.encode_error(request.id, CopilotError("no script"), wire.METHOD_NOT_FOUND))

    def _shutdown(self, request: wire.Request, speaker: Speaker) -> None:
        speaker.result({"stopping": True})
        self.stop()


class RawListener(ScriptedDaemon):
    """Answers each connection with fixed bytes, whatever it hears; ``b""`` stays silent."""

    def __init__(self, path: Path | str, answer: bytes) -> None:
        super().__init__(path)
        self._raw_answer = answer

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            while sock.recv(1 << 16):
                sock.sendall(self._raw_answer)

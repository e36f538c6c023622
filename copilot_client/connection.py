"""A blocking connection to the daemon, and the sentence for each way of not having one.

::

    DaemonUnavailable           exit code 3
    ├── NotRunning              nothing listens
    │   └── StaleSocket         a socket file is left over from a daemon that was killed
    ├── Starting                the daemon holds its lock but doesn't listen yet
    ├── BusyDaemon              it listens but doesn't answer
    ├── OtherVersion            it speaks another protocol, or is no copilotd
    ├── OtherUser               the socket is not ours
    └── ConnectionLost          it went away in the middle of a request
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from copilotd import __version__, wire
from copilotd.errors import CopilotError, VersionMismatch

CONNECT_S = 2.0
HELLO_S = 5.0
ACTIVATION_S = 60.0
"""How long a daemon may take to say hello that a service manager starts for this connection."""

RECEIVE_BYTES = 1 << 16
SYSTEM: str = sys.platform

# Requests that only read go out in the same write as `hello`; the others wait for its reply, so that a
# daemon of another protocol never acts on one it misreads.
READING_METHODS = frozenset({"ask", "search", "section", "roots", "status", "sync"})

Params = Mapping[str, Any]
Listener = Callable[[Params], None]


class DaemonUnavailable(CopilotError):
    """There is no daemon to talk to; the hint is the command that helps."""

    code: ClassVar[str] = "daemon_unavailable"


class NotRunning(DaemonUnavailable):
    """Nothing listens where the daemon should."""

    code = "not_running"

    def __init__(self, path: Path | str, message: str = "") -> None:
        super().__init__(message or f"The daemon is not running (no socket at {path}).", "copilot start")


class StaleSocket(NotRunning):
    """A socket file stands there that nobody listens on."""

    code = "stale_socket"

    def __init__(self, path: Path | str) -> None:
        super().__init__(path, f"The daemon is not running; its last one left {path} behind.")


class Starting(DaemonUnavailable):
    """The daemon has begun to start."""

    code = "starting"

    def __init__(self, pid: int) -> None:
        super().__init__(f"The daemon (pid {pid}) is starting and doesn't listen yet.", "copilot status")


class BusyDaemon(DaemonUnavailable):
    """It listens, but takes no connection or doesn't answer it."""

    code = "busy_daemon"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The daemon did not answer within {seconds:g} s.", "copilot restart")


class OtherVersion(DaemonUnavailable):
    """It speaks another protocol.

    Attributes:
        said: What it said of itself.
    """

    code = "version_mismatch"

    def __init__(self, message: str, said: Params | None = None) -> None:
        super().__init__(message, "copilot restart")
        self.said: Params = said or {}


class OlderDaemon(DaemonUnavailable):
    """It is of an older version, and a client started it, so a client may start it again."""

    code = "older_daemon"

    def __init__(self, said: Params) -> None:
        super().__init__(f"The daemon is still version {said.get('version')}.", "copilot restart")


class OtherUser(DaemonUnavailable):
    """The socket belongs to somebody else."""

    code = "other_user"

    def __init__(self, message: str) -> None:
        super().__init__(message, "Set COPILOT_SOCKET to a path in a folder of your own.")


class ConnectionLost(DaemonUnavailable):
    """The daemon closed the connection before it had answered."""

    code = "connection_lost"

    def __init__(self) -> None:
        super().__init__("The daemon went away before it had answered.", "copilot status")


class Connection:
    """One connection; requests go one after the other.

    Args:
        sock: A connected socket; this object closes it.
        hello_seconds: How long the daemon may take to say hello.

    Attributes:
        replaces_older: Raise OlderDaemon where a client started a daemon that is older than this client.
        on_hello: Called with what the daemon says of itself, before anything else of it is heard.
    """

    def __init__(self, sock: socket.socket, *, hello_seconds: float = HELLO_S) -> None:
        self._socket = sock
        self._hello_seconds = hello_seconds
        self._decoder = wire.Decoder()
        self._received: list[wire.Message] = []
        self._last_id = 0
        self._hello: Params | None = None
        self.replaces_older = False
        self.on_hello: Listener | None = None

    @classmethod
    def open(cls, path: Path | str, *, seconds: float = CONNECT_S) -> Self:
        """Connects to the socket at ``path``.

        Raises:
            NotRunning: Nothing listens there.
            BusyDaemon: Its queue stays full for ``seconds``.
            OtherUser: It belongs to somebody else.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect(sock, os.fspath(path), seconds)
            _check_peer(sock, path)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; a request still running is thereby cancelled."""
        self._socket.close()

    def hello(self) -> Params:
        """Returns what the daemon says of itself, asking where it hasn't said it yet."""
        if self._hello is None:
            self._send(self._encode_hello())
            self._await_hello()
        assert self._hello is not None
        return self._hello

    def call(
        self,
        method: str,
        params: Params,
        *,
        on_progress: Listener | None = None,
        on_delta: Callable[[str], None] | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Sends a request and returns its result.

        Args:
            method: One of the daemon's methods.
            params: Its parameters; those that are None are left out.
            on_progress: Called with each progress notification.
            on_delta: Called with each piece of the answer.
            seconds: Longest silence to bear; None for any.

        Raises:
            CopilotError: What the daemon answered, as its class of the error tree.
            DaemonUnavailable: It doesn't answer, went away, or speaks another protocol.
        """
        opening = b"" if self._hello is not None else self._encode_hello()
        waits_for_hello = bool(opening) and method not in READING_METHODS
        if waits_for_hello:
            self._send(opening)
            self._await_hello()
            opening = b""
        request_id = self._next_id()
        present = {name: value for name, value in params.items() if value is not None}
        self._send(opening + wire.encode_request(request_id, method, present))
        try:
            if opening:
                self._await_hello()
            return self._await_result(request_id, on_progress, on_delta, seconds)
        except KeyboardInterrupt:
            with contextlib.suppress(OSError, DaemonUnavailable):
                self._send(wire.encode_notification("cancel", {"id": request_id}))
            self.close()
            raise

    @property
    def greeted(self) -> bool:
        """Whether the daemon has answered this connection's greeting."""
        return self._hello is not None

    @property
    def managers(self) -> bool:
        """Whether a service manager listens, because the daemon hasn't taken its socket over yet."""
        return _is_managers(self._socket)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _encode_hello(self) -> bytes:
        params = {"client": "copilot", "version": __version__, "protocol": wire.PROTOCOL}
        return wire.encode_request(self._next_id(), "hello", params)

    def _await_hello(self) -> None:
        try:
            message = self._greeting(self._hello_seconds)
        except BusyDaemon:
            if not self.managers:
                raise
            # The connection has just made a service manager start the daemon.
            message = self._greeting(ACTIVATION_S)
        if isinstance(message, wire.Failure):
            if isinstance(message.error, VersionMismatch):
                raise OtherVersion(message.error.message)
            if message.number in (wire.METHOD_NOT_FOUND, wire.INVALID_PARAMS, wire.INVALID_REQUEST):
                raise OtherVersion(f"The daemon doesn't know this client's greeting: {message.error.message}")
            raise message.error
        if not isinstance(message, wire.Result) or message.id != 1:
            raise OtherVersion("What listens on the socket does not speak the daemon's protocol.")
        said = self._hello = message.result
        if not _speaks_with_us(said):
            raise OtherVersion(
                f"The daemon is version {said.get('version')} with protocol {said.get('protocol')}; "
                f"this client is version {__version__} with protocol {wire.PROTOCOL}.",
                said,
            )
        if self.replaces_older and may_replace(said):
            raise OlderDaemon(said)
        if self.on_hello is not None:
            self.on_hello(said)

    def _greeting(self, seconds: float) -> wire.Message:
        deadline = time.monotonic() + seconds
        # `hello` is always the connection's first request.
        message = self._next_message(deadline, seconds)
        while isinstance(message, wire.Notification):
            message = self._next_message(deadline, seconds)
        return message

    def _await_result(
        self,
        request_id: int,
        on_progress: Listener | None,
        on_delta: Callable[[str], None] | None,
        seconds: float | None,
    ) -> dict[str, Any]:
        while True:
            deadline = None if seconds is None else time.monotonic() + seconds
            message = self._next_message(deadline, seconds)
            if isinstance(message, wire.Notification):
                if message.params.get("id") != request_id:
                    continue
                if message.method == "progress" and on_progress is not None:
                    on_progress(message.params)
                elif message.method == "delta" and on_delta is not None:
                    on_delta(str(message.params.get("text", "")))
            elif isinstance(message, wire.Result) and message.id == request_id:
                return message.result
            elif isinstance(message, wire.Failure) and message.id in (request_id, None):
                raise message.error
            elif isinstance(message, wire.Invalid):
                raise OtherVersion(f"The daemon's reply can't be read: {message.error.message}")

    def _send(self, data: bytes) -> None:
        # sendall's time-out covers the whole call; what the daemon said before it hung up is still read.
        self._socket.settimeout(max(self._hello_seconds, 1.0))
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise BusyDaemon(self._hello_seconds) from None
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise ConnectionLost from error

    def _next_message(self, deadline: float | None, seconds: float | None) -> wire.Message:
        while not self._received:
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise BusyDaemon(seconds or 0)
            self._socket.settimeout(remaining)
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise ConnectionLost from error
            if not data:
                raise ConnectionLost
            self._received = self._decoder.feed(data)
        return self._received.pop(0)


def _speaks_with_us(said: Params) -> bool:
    """Whether a protocol exists that both sides speak: the lower one of the two, where the other still does."""
    theirs, oldest = said.get("protocol"), said.get("oldest_protocol", said.get("protocol"))
    if said.get("server") != "copilotd" or not isinstance(theirs, int) or not isinstance(oldest, int):
        return False
    return oldest <= wire.PROTOCOL and theirs >= wire.OLDEST_PROTOCOL


def is_older(said: Params) -> bool:
    """Whether a daemon is of an older version than this client."""
    return _release(str(said.get("version", ""))) < _release(__version__)


def may_replace(said: Params) -> bool:
    """Whether the daemon is older and was started by a client, so that nobody else looks after it."""
    return said.get("started_by") == "client" and is_older(said)


def _release(version: str) -> tuple[int, ...]:
    """Returns ``1.2.0`` of ``1.2.0rc1`` as numbers; one that can't be read is the oldest."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _connect(sock: socket.socket, path: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        sock.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            return sock.connect(path)
        except FileNotFoundError:
            raise NotRunning(path) from None
        except ConnectionRefusedError:
            raise StaleSocket(path) from None
        except PermissionError:
            raise OtherUser(f"The socket {path} may not be opened by this user.") from None
        except (BlockingIOError, TimeoutError):
            # Linux answers EAGAIN at once when the queue of the listening socket is full.
            if time.monotonic() >= deadline:
                raise BusyDaemon(seconds) from None
            time.sleep(0.02)
        except OSError as error:
            raise DaemonUnavailable(
                f"The socket {path} can't be used: {error.strerror or error}.", "copilot start"
            ) from None


def _check_peer(sock: socket.socket, path: Path | str) -> None:
    """Refuses a listener of another user: it would get to read the question."""
    owner = peer_uid(sock)
    if owner is not None and owner != os.getuid():
        raise OtherUser(f"Another user (uid {owner}) listens at {path}; nothing was sent.")


def peer_uid(sock: socket.socket) -> int | None:
    """Returns the user on the other side of a Unix socket; None where the system can't tell."""
    try:
        if SYSTEM == "linux":
            # struct ucred: pid, uid, gid. The pid may be systemd's, which made the socket: never use it.
            return int(struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
        if SYSTEM == "darwin":
            # struct xucred of <sys/ucred.h>: version, uid, …; SOL_LOCAL is 0, LOCAL_PEERCRED is 1.
            return int(struct.unpack_from("=II", sock.getsockopt(0, 1, 76))[1])
    except OSError:
        return None
    return None


def _is_managers(sock: socket.socket) -> bool:
    """Whether a service manager holds the listening socket because the daemon hasn't taken it over yet."""
    if SYSTEM != "linux":
        # LOCAL_PEERPID would tell, but the daemon is as likely as launchd; waiting longer does no harm.
        return SYSTEM == "darwin"
    try:
        pid = int(struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read().strip() == "systemd"
    except FileNotFoundError:
        # Who made it listen last is dead, so somebody else keeps it open. 0 is one we can't see.
        return pid != 0
    except OSError:
        return False

"""Taking over the socket that a service manager listens on: sd_listen_fds(3) and launch_activate_socket(3)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from copilotd import wire
from copilotd.errors import CannotStart, CopilotError, SettingsError, could_not_start
from copilotd.units import LAUNCHD_LABEL, LAUNCHD_SOCKETS

FIRST_DESCRIPTOR = 3
"""SD_LISTEN_FDS_START."""

_SYSTEM: str = sys.platform
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_REFUSALS = 1024


def take_socket(environ: MutableMapping[str, str], *, first: int = FIRST_DESCRIPTOR) -> socket.socket | None:
    """Returns the listening socket this process was handed, None where it was handed none.

    The variables are removed, so that no child takes the descriptors for its own.

    Args:
        environ: The process's environment.
        first: The number of the first descriptor.

    Raises:
        SettingsError: What was handed over is no listening Unix socket, or more than one.
    """
    if _SYSTEM == "darwin" and environ.get("XPC_SERVICE_NAME") == LAUNCHD_LABEL:
        descriptors = launchd_descriptors(LAUNCHD_SOCKETS)
    else:
        descriptors = _systemd_descriptors(environ, first)
    if not descriptors:
        return None
    for descriptor in descriptors:
        # One that is not open is told apart below.
        with contextlib.suppress(OSError):
            os.set_inheritable(descriptor, False)
    if len(descriptors) > 1:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        raise SettingsError(
            f"The service manager handed over {len(descriptors)} sockets; the daemon serves one.",
            "hand over the one of: copilotd --print-unit systemd-socket",
        )
    return _listening_socket(descriptors[0])


def check_place(inherited: socket.socket, expected: Path) -> None:
    """Refuses a socket that clients with the settings of this daemon would not find.

    Raises:
        SettingsError: It listens at another path than ``expected``.
    """
    name = inherited.getsockname()
    actual = os.fsdecode(name) if isinstance(name, bytes) else str(name)
    if os.path.realpath(actual) != os.path.realpath(expected):
        raise SettingsError(
            f"The service manager listens on {actual}, but clients look for {expected}.",
            "give both the same settings, and the manager the file of: copilotd --print-unit systemd-socket",
        )


def refuse_waiting(inherited: socket.socket, error: CopilotError) -> int:
    """Tells each client that waits why the daemon can't start; returns how many there were.

    A connection left in the queue would make the service manager start the daemon again at once.
    """
    if inherited.fileno() < 0:
        return 0
    reply = wire.encode_error(None, CannotStart(could_not_start(error.message), error.hint))
    inherited.setblocking(False)
    for count in range(_REFUSALS):
        try:
            connection, _ = inherited.accept()
        except OSError:
            return count
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.send(reply)
    return _REFUSALS


def launchd_descriptors(name: str, library: Any = None) -> list[int]:
    """Returns the descriptors launchd holds under ``name`` of the property list's ``Sockets``.

    Args:
        name: The entry's name.
        library: What has ``launch_activate_socket``; None for the system's own.
    """
    system = ctypes.CDLL(None) if library is None else library
    numbers = ctypes.POINTER(ctypes.c_int)()
    count = ctypes.c_size_t()
    # int launch_activate_socket(const char *name, int **fds, size_t *cnt); 0, or an errno: ESRCH where the
    # job wasn't loaded by launchd, ENOENT where its property list has no such entry.
    if system.launch_activate_socket(name.encode(), ctypes.byref(numbers), ctypes.byref(count)) != 0:
        return []
    try:
        return [numbers[index] for index in range(count.value)]
    finally:
        system.free(numbers)


def _systemd_descriptors(environ: MutableMapping[str, str], first: int) -> list[int]:
    values = {name: environ.pop(name, "") for name in _VARIABLES}
    try:
        # The variables may have come through a wrapper that was the one they were meant for.
        if int(values["LISTEN_PID"]) != os.getpid():
            return []
        count = int(values["LISTEN_FDS"])
    except ValueError:
        return []
    return list(range(first, first + max(count, 0)))


def _listening_socket(descriptor: int) -> socket.socket:
    try:
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        is_socket = False
    if is_socket:
        inherited = socket.socket(fileno=descriptor)
        listens = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if inherited.family == socket.AF_UNIX and inherited.type == socket.SOCK_STREAM and listens:
            return inherited
        inherited.close()
    raise SettingsError(
        "What the service manager handed over is no listening Unix stream socket.",
        "use the files of: copilotd --print-unit systemd, and systemd-socket",
    )

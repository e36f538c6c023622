"""The listening socket: made by hand, because asyncio unlinks a live one and leaves it open to others.

https://github.com/python/cpython/issues/121252
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
from pathlib import Path

from copilotd.activation import check_place
from copilotd.errors import IndexLocked, SettingsError
from copilotd.lock import LockFile
from copilotd.paths import ensure_private_directory

# 200 clients may start at once; a full backlog would refuse them.
_BACKLOG = 512


class Listener:
    """A bound Unix socket that only its owner can reach, and the lock that goes with it.

    Args:
        path: Where to listen. A stale socket there is replaced; a live one, or anything else, is not.
        tighten: See :func:`copilotd.paths.ensure_private_directory`.
        inherited: A socket that a service manager listens on at ``path``; its file is left to the manager.

    Raises:
        IndexLocked: Another daemon listens there.
        SettingsError: The place can't be used.
    """

    def __init__(self, path: Path, *, tighten: bool = False, inherited: socket.socket | None = None) -> None:
        ensure_private_directory(path.parent, tighten=tighten)
        self.path = path
        self.lock = LockFile(path.with_name(f"{path.name}.lock"), f"The socket {path}")
        self._identity: tuple[int, int] | None = None
        try:
            if inherited is not None:
                self.socket = _adopt(inherited, path)
                return
            _remove_stale(path)
            self.socket = _bind(path)
        except OSError as error:
            self.lock.release()
            raise SettingsError(f"The socket {path} can't be opened: {error.strerror}.") from None
        except BaseException:
            self.lock.release()
            raise
        self._identity = _identity(path)

    def vanished(self) -> bool:
        """Whether the socket file is gone: a cleaner of /tmp, or somebody's hand."""
        return not os.path.lexists(self.path)

    def restore(self) -> None:
        """Listens anew where the file has vanished; nobody must be accepting on the old socket.

        Raises:
            SettingsError: The folder can't be used any more.
            OSError: The socket can't be bound.
        """
        ensure_private_directory(self.path.parent)
        fresh = _bind(self.path)
        self.socket.close()
        self.socket = fresh
        self._identity = _identity(self.path)

    def close(self) -> None:
        """Stops listening and removes the socket file, unless somebody has put another in its place."""
        self.socket.close()
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()
        self.lock.release()


def _adopt(inherited: socket.socket, path: Path) -> socket.socket:
    check_place(inherited, path)
    # Once more, by this process: the kernel then tells clients our user and process instead of the manager's.
    inherited.listen(_BACKLOG)
    inherited.setblocking(False)
    return inherited


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SettingsError(f"{path} is in the way: it is not a socket.", f"ls -l {path}")
    # The lock is ours, so no daemon of this version lives there; another program still might.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except (TimeoutError, BlockingIOError):
            pass  # a full backlog: somebody listens
    raise IndexLocked(
        f"Another program listens on {path}.", "Stop it, or set COPILOT_SOCKET to another path."
    )


def _bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o077)
    try:
        bound.bind(os.fspath(path))
        path.chmod(0o600)
        bound.listen(_BACKLOG)
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(before)
    bound.setblocking(False)
    return bound


def peer_uid(connection: socket.socket) -> int:
    """Returns the user id at the other end, as the kernel noted it when the connection was made."""
    if sys.platform == "darwin":
        # struct xucred of <sys/ucred.h>: u_int cr_version, uid_t cr_uid, …; SOL_LOCAL 0, LOCAL_PEERCRED 1
        _version, uid = struct.unpack("=Ii", connection.getsockopt(0, 1, 76)[:8])
        return int(uid)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", credentials)
    return int(uid)

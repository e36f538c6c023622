"""One owner per index and per socket: a lock the kernel drops when its holder dies.

The file's text only tells people who holds it; a pid in it is never trusted, since after a reboot it may
name another program. The file stays when the lock is released: to unlink it would let two starters lock
two different files of one name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from copilotd.errors import IndexLocked, SettingsError


class LockFile:
    """An advisory lock on a file, held until :meth:`release` or the end of the process.

    Args:
        path: The file; its folder must exist.
        subject: What it protects, for the message, such as ``The index /home/me/index``.

    Raises:
        IndexLocked: Somebody else holds it.
        SettingsError: The file can't be made or locked here.
    """

    def __init__(self, path: Path, subject: str) -> None:
        self.path = path
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise SettingsError(
                f"{path} can't be opened: {error.strerror}.", f"ls -ld {path.parent}"
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise SettingsError(f"{path} can't be locked: {error.strerror}.") from None
            # A holder that has just come writes its pid in the next instant; until then the last one's is there.
            time.sleep(0.05)
            pid = read_holder(path).get("pid", "unknown")
            raise IndexLocked(
                f"{subject} is in use by another daemon (pid {pid}).", "copilot status"
            ) from None
        self.describe(pid=os.getpid())

    def describe(self, **facts: Any) -> None:
        """Writes who holds the lock into the file, as one JSON object."""
        text = json.dumps(facts).encode("ascii")
        # A full disk must not stop a daemon from answering: the lock holds without the text.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)

    def lost(self) -> bool:
        """Whether the file at this path is no longer the one that is locked: its folder was removed or replaced."""
        if self._descriptor < 0:
            return False
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # a disk that doesn't answer says nothing about what is on it
        return not os.path.samestat(there, os.fstat(self._descriptor))

    def release(self) -> None:
        """Gives the lock up; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_holder(path: Path) -> dict[str, Any]:
    """Returns what the lock's last holder wrote (pid, started, socket, version); empty where nothing is."""
    try:
        facts = json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}

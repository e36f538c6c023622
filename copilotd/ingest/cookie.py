"""Tells when every notice of what happened before now has been taken.

Notices of one source come in the order in which things happened. A file made now in a watched folder of our
own therefore sends a notice that comes after those of all earlier changes. (The idea is Watchman's.)
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from pathlib import Path


class Cookies:
    """Files that are made for the sake of their notices.

    Args:
        folder: A folder for them alone; made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Another process's leftovers must not be taken for ours.
        self._prefix = f"{os.getpid()}-"
        self._numbers = itertools.count(1)
        self._arrived = threading.Condition()
        self._waiting: set[str] = set()

    def prepare(self) -> None:
        """Makes the folder, and removes what another process left in it.

        Raises:
            OSError: It can't be made.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self.folder.iterdir():
            left.unlink(missing_ok=True)

    def take(self, name: str) -> None:
        """Takes the notice of a cookie."""
        with self._arrived:
            if name in self._waiting:
                self._waiting.discard(name)
                self._arrived.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Makes a cookie and returns whether its notice was taken in time."""
        name = f"{self._prefix}{next(self._numbers)}"
        path = self.folder / name
        with self._arrived:
            self._waiting.add(name)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            with self._arrived:
                return self._arrived.wait_for(lambda: name not in self._waiting, timeout_s)
        except OSError:
            return False
        finally:
            with self._arrived:
                self._waiting.discard(name)
            with contextlib.suppress(OSError):
                path.unlink()

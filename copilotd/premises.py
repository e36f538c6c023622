"""What the daemon holds on disk: the lock on its index, and its socket."""

from __future__ import annotations

import datetime
import logging
import os
import socket

from copilotd import __version__
from copilotd.errors import SettingsError
from copilotd.listener import Listener
from copilotd.lock import LockFile
from copilotd.paths import check_index_directory, default_index_dir, user_state_dir
from copilotd.settings import Settings

log = logging.getLogger(__name__)


class Premises:
    """The index's lock and the listening socket, taken together and let go together.

    Args:
        settings: They name the places.
        inherited: The socket that a service manager listens on.

    Raises:
        IndexLocked: Another daemon has one of them.
        SettingsError: A place can't be used.
    """

    def __init__(self, settings: Settings, inherited: socket.socket | None) -> None:
        self._lock = _lock_index(settings)
        try:
            # Only our own folder's rights are changed; one that the user names is taken or refused.
            ours = settings.copilot_socket.parent == user_state_dir()
            self.listener = Listener(settings.copilot_socket, tighten=ours, inherited=inherited)
        except BaseException:
            self._lock.release()
            raise
        facts = {
            "pid": os.getpid(),
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "socket": str(settings.copilot_socket),
            "version": __version__,
        }
        self._lock.describe(**facts)
        self.listener.lock.describe(**facts)

    def lost(self) -> bool:
        """Whether the index folder was removed or replaced."""
        return self._lock.lost()

    def restore_socket(self) -> None:
        """Puts the socket back where its file was removed: without it nobody could even stop the daemon."""
        try:
            self.listener.restore()
            log.warning("event=socket_restored path=%s", self.listener.path)
        except (OSError, SettingsError) as error:
            log.warning("event=socket_lost path=%s reason=%r", self.listener.path, str(error))

    def leave(self) -> None:
        """Lets go of both."""
        self.listener.close()
        self._lock.release()


def _lock_index(settings: Settings) -> LockFile:
    folder = settings.index_dir
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

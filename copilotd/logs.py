"""The log: a rotating file and stderr, one line an event, ``key=value``, no secret, no control character.

Lines after the first (tracebacks) begin with `` | ``, so that no text from a document or a model can pass
for an event of its own.
"""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from copilotd.errors import SettingsError
from copilotd.paths import ensure_private_directory
from copilotd.text import printable

MAX_BYTES = 5_000_000
BACKUPS = 3

# What keys look like, for those that come from elsewhere than our settings (an SDK's own variable).
_LOOKS_SECRET = re.compile(
    r"""(?ix)\b(?:sk-[a-z0-9_-]{8,}
    | (?:(?:x-api-key|api[_-]?key|authorization)['"]?\s*[:=]\s*)?bearer\s+[^\s'",]+
    | (?:x-api-key|api[_-]?key|authorization)['"]?\s*[:=]\s*[^\s,;]+)"""
)
_HIDDEN = "********"

log = logging.getLogger("copilotd")


class _Formatter(logging.Formatter):
    """One line an event, with the time in the local zone and its offset."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__()
        # Longest first: one secret may be the beginning of another.
        self._secrets = sorted((secret for secret in secrets if len(secret) >= 4), key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
        zone = time.strftime("%z", time.localtime(record.created))
        head = f"{clock}.{int(record.msecs):03d}{zone} level={record.levelname} logger={record.name}"
        first, *more = self._hide(record.getMessage()).splitlines() or [""]
        if record.exc_info:
            more += self._hide(self.formatException(record.exc_info)).splitlines()
        lines = [f"{head} {first}", *(f" | {line}" for line in more)]
        return "\n".join(printable(line, keep_newlines=False) for line in lines)

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return _LOOKS_SECRET.sub(_HIDDEN, text)


class _PrivateFileHandler(logging.handlers.RotatingFileHandler):
    """A rotating file that only its owner can read, whatever the umask."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return io.TextIOWrapper(open(descriptor, "ab"), encoding="utf-8")


class Logs:
    """The handlers in place; :meth:`close` puts everything back.

    Args:
        file: The log file; its folder is made.
        level: For our own events; libraries speak from WARNING on.
        secrets: Values that are never written.
        stderr: Whether events go to stderr as well.
    """

    def __init__(
        self, file: Path, *, level: str = "INFO", secrets: Sequence[str] = (), stderr: bool = True
    ) -> None:
        self._root_level = logging.root.level
        self._hooks = (sys.excepthook, threading.excepthook)
        self._handlers: list[logging.Handler] = []
        formatter = _Formatter(secrets)
        problem = ""
        if stderr:
            self._handlers.append(logging.StreamHandler())
        try:
            if not file.parent.is_dir():
                ensure_private_directory(file.parent)
            self._handlers.append(_PrivateFileHandler(file, "a", MAX_BYTES, BACKUPS))
        except (OSError, SettingsError) as error:
            problem = str(error)
        for handler in self._handlers:
            handler.setFormatter(formatter)
            logging.root.addHandler(handler)
        logging.root.setLevel(logging.WARNING)
        log.setLevel(level)
        logging.captureWarnings(True)
        # A full disk or a closed stderr must not reach the code that logs.
        logging.raiseExceptions = False
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
        if problem:
            log.warning("event=log_file_unusable path=%s reason=%r", file, problem)

    def use(self, level: str, secrets: Sequence[str]) -> None:
        """Takes another level, and other values that are never written, from now on."""
        formatter = _Formatter(secrets)
        for handler in self._handlers:
            handler.setFormatter(formatter)
        log.setLevel(level)

    def close(self) -> None:
        """Flushes and removes the handlers."""
        logging.captureWarnings(False)
        logging.raiseExceptions = True
        sys.excepthook, threading.excepthook = self._hooks
        for handler in self._handlers:
            logging.root.removeHandler(handler)
            with contextlib.suppress(OSError, ValueError):
                handler.close()
        self._handlers.clear()
        logging.root.setLevel(self._root_level)
        log.setLevel(logging.NOTSET)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("event=uncaught", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread else ""
    error = args.exc_value or args.exc_type()
    log.error("event=thread_died thread=%r", name, exc_info=(args.exc_type, error, args.exc_traceback))

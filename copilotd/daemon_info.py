"""Facts about the running daemon that replies carry."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from copilotd import __version__
from copilotd.wire import PROTOCOL, JSONObject


def _ignore(_text: str) -> None:
    return None


def _do_nothing() -> None:
    return None


def _no_problems() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class DaemonInfo:
    """Who answers, and what a handler may ask of the daemon.

    Attributes:
        socket: Where it listens.
        index_dir: Which index it serves.
        log_file: Where it logs.
        env_file: Which settings file it read.
        pid: Its process.
        version: Its version.
        started: When it started, on the monotonic clock.
        announce: Tells the service manager and the log what is going on ("Loading the model…"); any thread.
        stop: Begins an orderly shutdown; any thread.
        warnings: What was odd about the settings.
        problems: What is wrong with the daemon's own places now, a sentence each; any thread.
    """

    socket: Path
    index_dir: Path
    log_file: Path
    env_file: Path
    pid: int = field(default_factory=os.getpid)
    version: str = __version__
    started: float = field(default_factory=time.monotonic)
    announce: Callable[[str], None] = _ignore
    stop: Callable[[], None] = _do_nothing
    warnings: tuple[str, ...] = ()
    problems: Callable[[], tuple[str, ...]] = _no_problems

    def facts(self) -> JSONObject:
        """Returns what ``status`` says about the process."""
        return {
            "pid": self.pid,
            "version": self.version,
            "protocol": PROTOCOL,
            "socket": str(self.socket),
            "index_dir": str(self.index_dir),
            "log_file": str(self.log_file),
            "env_file": str(self.env_file),
            "uptime_s": round(time.monotonic() - self.started, 3),
            "memory_bytes": memory_bytes(),
        }


def memory_bytes() -> int:
    """Returns the resident memory of this process; where the system doesn't tell, its maximum so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

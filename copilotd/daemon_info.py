"""Facts about the running daemon that replies carry."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from copilotd import __version__
from copilotd.units import LAUNCHD_LABEL
from copilotd.wire import PROTOCOL, STARTED_BY, JSONObject


def _ignore(_text: str) -> None:
    return None


def _do_nothing() -> None:
    return None


def _nothing() -> tuple[str, ...]:
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
        warnings: What is odd about the settings now; any thread.
        problems: What is wrong with the daemon's own places or settings now, a sentence each; any thread.
        started_by: ``client``, ``systemd``, ``launchd`` or ``user``: who has to start it again.
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
    warnings: Callable[[], tuple[str, ...]] = _nothing
    problems: Callable[[], tuple[str, ...]] = _nothing
    started_by: str = "user"

    def facts(self) -> JSONObject:
        """Returns what ``status`` says about the process."""
        return {
            "pid": self.pid,
            "version": self.version,
            "protocol": PROTOCOL,
            "started_by": self.started_by,
            "socket": str(self.socket),
            "index_dir": str(self.index_dir),
            "log_file": str(self.log_file),
            "env_file": str(self.env_file),
            "uptime_s": round(time.monotonic() - self.started, 3),
            "memory_bytes": memory_bytes(),
        }


def find_starter(environ: Mapping[str, str]) -> str:
    """Returns who started this process: ``client``, ``systemd``, ``launchd`` or ``user``."""
    if environ.get("XPC_SERVICE_NAME") == LAUNCHD_LABEL:
        return "launchd"
    # Set by systemd for the main process of a service; a shell inside of one inherits it with another pid.
    if environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()):
        return "systemd"
    return "client" if environ.get(STARTED_BY) == "client" else "user"


def memory_bytes() -> int:
    """Returns the resident memory of this process; where the system doesn't tell, its maximum so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

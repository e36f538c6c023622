"""What the client asks of a service manager, and which one this machine has."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from copilotd.errors import CopilotError
from copilotd.paths import Places
from copilotd.text import one_line

COMMAND_S = 120.0
"""How long a manager may take: a start waits until the index is open."""

MANAGERS = ("systemd", "launchd")


class NoServiceManager(CopilotError):
    """This machine has no service manager that can be reached."""

    code: ClassVar[str] = "no_service_manager"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"No service manager can be used: {reason}.",
            "nothing is missing without one: the first question starts the daemon, and so does copilot start",
        )


class ServiceFailed(CopilotError):
    """The service manager refused, or the service didn't start."""

    code: ClassVar[str] = "service"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """How the service is.

    Attributes:
        manager: ``systemd`` or ``launchd``.
        installed: Whether its files are there.
        enabled: Whether it starts when the user logs in.
        state: ``running``, ``starting``, ``waiting`` (the first question starts it), ``failed`` or ``stopped``.
        pid: Of the daemon; None where it doesn't run.
        restarts: Since it was started; None where that isn't known.
        note: What it says it is doing, or how it ended.
        files: What the manager reads.
    """

    manager: str
    installed: bool
    enabled: bool = False
    state: str = "stopped"
    pid: int | None = None
    restarts: int | None = None
    note: str = ""
    files: tuple[str, ...] = ()


class Manager(Protocol):
    """A service manager with the files of our service."""

    name: str

    def require(self) -> None:
        """Makes sure that it can be reached.

        Raises:
            NoServiceManager: It can't.
        """
        ...

    def kinds(self) -> Mapping[str, Path]:
        """Returns what ``copilotd --print-unit`` calls each file, with where it goes."""
        ...

    def serves(self, places: Places) -> bool:
        """Whether the service is installed for the socket of ``places``; reads a file at most."""
        ...

    def state(self) -> ServiceState:
        """Returns how the service is."""
        ...

    def about_to_start(self) -> bool:
        """Whether the manager starts the daemon just now, or will without being asked, as after a crash."""
        ...

    def load(self) -> None:
        """Makes the manager take the files as they are now, and starts the service.

        Raises:
            ServiceFailed: It doesn't start.
        """
        ...

    def unload(self) -> None:
        """Stops the service and makes the manager forget it; does what it can."""
        ...

    def start(self) -> bool:
        """Makes the manager listen for the daemon; returns whether it does."""
        ...

    def stop(self) -> bool:
        """Stops the daemon and the listening; returns whether there was something to stop."""
        ...

    def restart(self) -> bool:
        """Stops the daemon, to be started by the next connection at the latest; returns whether it did."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Returns what the user should know about how long the service lives."""
        ...

    def journal(self, lines: int, *, follow: bool) -> Sequence[str]:
        """Returns the command that prints what the manager kept of the daemon's output; empty without one."""
        ...


def find_manager(name: str = "") -> Manager:
    """Returns the manager of that name, else the one this kind of system has."""
    from copilot_client.service.launchd import Launchd
    from copilot_client.service.systemd import Systemd

    chosen = name or ("launchd" if sys.platform == "darwin" else "systemd")
    return Launchd() if chosen == "launchd" else Systemd()


def installed_manager(places: Places) -> Manager | None:
    """Returns the manager whose service is the daemon of ``places``, None where none is installed for it."""
    manager = find_manager()
    return manager if manager.serves(places) else None


def write_file(path: Path, text: str) -> bool:
    """Writes a file whole or not at all; returns whether that changed it."""
    data = os.fsencode(text)
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
    return True


def run_quietly(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a manager's command; one that can't be run, or takes too long, has failed."""
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=COMMAND_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def what_it_said(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the first line of a command's complaint, without the full stop."""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return one_line(lines[0], 200).rstrip(".") if lines else f"exit status {done.returncode}"

"""The service under launchd, as an agent of the logged-in user."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from copilot_client.service.manager import (
    NoServiceManager,
    ServiceFailed,
    ServiceState,
    run_quietly,
    what_it_said,
)
from copilotd.paths import Places, ensure_private_directory

LABEL = "io.github.docs-copilot.copilotd"


class Launchd:
    """launchd; see :class:`~copilot_client.service.manager.Manager`."""

    name = "launchd"

    def __init__(self) -> None:
        self.path = Path(os.path.expanduser("~/Library/LaunchAgents"), f"{LABEL}.plist")
        self.domain = f"gui/{os.getuid()}"
        self.target = f"{self.domain}/{LABEL}"

    def require(self) -> None:
        """Makes sure that launchctl and the user's domain are there."""
        if shutil.which("launchctl") is None:
            raise NoServiceManager("there is no launchctl on the PATH")
        done = self._run("print", self.domain)
        if done.returncode != 0:
            raise NoServiceManager(f"launchd has no domain {self.domain} ({what_it_said(done)})")

    def kinds(self) -> Mapping[str, Path]:
        """Returns the property list."""
        return {"launchd": self.path}

    def serves(self, places: Places) -> bool:
        """Whether our property list listens where the client connects."""
        return _socket_path(self._job()) == str(places.socket)

    def state(self) -> ServiceState:
        """Returns what ``launchctl print`` says of the job."""
        if not self.path.is_file():
            return ServiceState(self.name, installed=False)
        done = self._run("print", self.target)
        loaded = done.returncode == 0
        pid = _number(r"^\s*pid = (\d+)$", done.stdout) if loaded else None
        code = _number(r"^\s*last exit code = (\d+)", done.stdout) if loaded else None
        state = "running" if pid else "stopped"
        if loaded and not pid:
            state = "failed" if code else "waiting"
        return ServiceState(
            manager=self.name,
            installed=True,
            enabled=loaded,
            state=state,
            pid=pid,
            note=f"exit status {code}" if state == "failed" else "",
            files=(str(self.path),),
        )

    def about_to_start(self) -> bool:
        """False: launchd holds our socket all the time, so a client that finds none has nobody to wait for."""
        return False

    def load(self) -> None:
        """Loads the property list anew, and starts the job."""
        job = self._job()
        # launchd makes neither folder, and would make the socket's one open to others.
        ensure_private_directory(Path(_socket_path(job)).parent)
        ensure_private_directory(Path(job["StandardErrorPath"]).parent, tighten=True)
        self._run("bootout", self.target)
        self._must("enable", self.target)
        self._must("bootstrap", self.domain, str(self.path))
        self._must("kickstart", self.target)

    def unload(self) -> None:
        """Stops the job, makes launchd forget it, and removes the property list and launchd's own log."""
        job = self._job()
        self._run("bootout", self.target)
        self.path.unlink(missing_ok=True)
        for name in (
            job.get("StandardErrorPath"),
            job.get("Sockets", {}).get("Listeners", {}).get("SockPathName"),
        ):
            if name:
                with contextlib.suppress(OSError):
                    os.unlink(name)

    def start(self) -> bool:
        """Loads the property list where it isn't loaded; the first connection starts the job."""
        if self._run("print", self.target).returncode == 0:
            return True
        return self._run("bootstrap", self.domain, str(self.path)).returncode == 0

    def stop(self) -> bool:
        """Unloads the job until the next login or start."""
        return self._run("bootout", self.target).returncode == 0

    def restart(self) -> bool:
        """Starts the job anew."""
        return self.start() and self._run("kickstart", "-k", self.target).returncode == 0

    def notes(self) -> tuple[str, ...]:
        """Says that an agent ends with the login."""
        return ("It runs while you are logged in, and starts again at the next login.",)

    def journal(self, lines: int, *, follow: bool) -> Sequence[str]:
        """Returns the command that prints what launchd kept of the daemon's stderr."""
        name = self._job().get("StandardErrorPath", "")
        return ["tail", f"-n{lines}", *(["-F"] if follow else []), name] if os.path.isfile(name) else ()

    def _job(self) -> dict[str, Any]:
        import plistlib

        try:
            job = plistlib.loads(self.path.read_bytes())
        except (OSError, ValueError, plistlib.InvalidFileException):
            return {}
        return job if isinstance(job, dict) else {}

    def _must(self, *arguments: str) -> None:
        done = self._run(*arguments)
        if done.returncode != 0:
            raise ServiceFailed(
                f"launchctl {' '.join(arguments)}: {what_it_said(done)}.", "copilot service logs"
            )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_quietly(["launchctl", *arguments])


def _socket_path(job: Mapping[str, Any]) -> str:
    return str(job.get("Sockets", {}).get("Listeners", {}).get("SockPathName", ""))


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else None

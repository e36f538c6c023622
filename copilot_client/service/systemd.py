"""The service under systemd's user instance."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from copilot_client.service.manager import (
    NoServiceManager,
    ServiceFailed,
    ServiceState,
    run_quietly,
    what_it_said,
)
from copilotd.paths import Places

SERVICE = "copilotd.service"
SOCKET = "copilotd.socket"
UNITS = (SOCKET, SERVICE)

# Where a unit may be that somebody else than `copilot service install` has put there; systemd.unit(5).
_OTHER_FOLDERS = (
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
)

_LISTEN = "ListenStream="
_PROPERTIES = "ActiveState,SubState,UnitFileState,MainPID,NRestarts,Result,ExecMainStatus,StatusText"


class Systemd:
    """systemd's user instance; see :class:`~copilot_client.service.manager.Manager`."""

    name = "systemd"

    def __init__(self) -> None:
        config = os.environ.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")
        self.folder = Path(config, "systemd", "user")

    def require(self) -> None:
        """Makes sure that systemctl and the user instance are there."""
        if shutil.which("systemctl") is None:
            raise NoServiceManager("there is no systemctl on the PATH")
        done = self._run("show-environment")
        if done.returncode != 0:
            raise NoServiceManager(f"systemd's user instance doesn't answer ({what_it_said(done)})")

    def kinds(self) -> Mapping[str, Path]:
        """Returns the two units."""
        return {"systemd": self.folder / SERVICE, "systemd-socket": self.folder / SOCKET}

    def serves(self, places: Places) -> bool:
        """Whether our socket unit listens where the client connects."""
        try:
            lines = (self.folder / SOCKET).read_text("utf-8", "surrogateescape").splitlines()
        except OSError:
            return False
        paths = [line.removeprefix(_LISTEN).replace("%%", "%") for line in lines if line.startswith(_LISTEN)]
        return str(places.socket) in paths

    def state(self) -> ServiceState:
        """Returns how both units are."""
        files = tuple(str(path) for path in self.kinds().values() if path.is_file())
        if not files:
            return ServiceState(self.name, installed=False)
        service, socket = self._show(SERVICE), self._show(SOCKET)
        active = service.get("ActiveState", "")
        if active in ("active", "reloading"):
            state = "running"
        elif active == "activating":
            state = "starting"
        elif active == "failed" or socket.get("ActiveState") == "failed":
            state = "failed"
        else:
            state = "waiting" if socket.get("ActiveState") == "active" else "stopped"
        note = service.get("StatusText", "") if state in ("running", "starting") else ""
        if state == "failed":
            note = f"{service.get('Result', 'failed')}, exit status {service.get('ExecMainStatus', '?')}"
        return ServiceState(
            manager=self.name,
            installed=True,
            enabled=service.get("UnitFileState") == "enabled",
            state=state,
            pid=int(service.get("MainPID") or 0) or None,
            restarts=int(service.get("NRestarts") or 0),
            note=note,
            files=files,
        )

    def about_to_start(self) -> bool:
        """Whether the service is being started, or was killed and is started again; with or without our socket."""
        if not any(Path(folder, SERVICE).is_file() for folder in (self.folder, *_OTHER_FOLDERS)):
            return False
        shown = self._show(SERVICE, "ActiveState,MainPID")
        if shown.get("ActiveState") in ("activating", "deactivating"):
            return True
        # For an instant after its end systemd hasn't heard of it.
        return shown.get("ActiveState") in ("active", "reloading") and not _is_alive(
            shown.get("MainPID", "0")
        )

    def load(self) -> None:
        """Reads the units, enables them, and starts socket and service anew."""
        self._must("daemon-reload")
        found = self._show(SERVICE, "FragmentPath").get("FragmentPath", "")
        if os.path.realpath(found) != os.path.realpath(self.folder / SERVICE):
            raise ServiceFailed(
                f"systemd's user instance doesn't read {self.folder}"
                + (f"; it has {SERVICE} from {found}." if found else "."),
                "run this with the XDG_CONFIG_HOME that you log in with",
            )
        self._run("stop", SERVICE, SOCKET)
        self._run("reset-failed", *UNITS)
        self._must("enable", *UNITS)
        # First the socket: the service takes it over when it starts.
        self._must("start", SOCKET)
        done = self._run("start", SERVICE)
        if done.returncode != 0:
            state = self.state()
            raise ServiceFailed(
                f"The service is installed, but the daemon doesn't stay: {state.note or what_it_said(done)}.",
                "copilot service logs",
            )

    def unload(self) -> None:
        """Stops and disables both units, and removes what enabled them."""
        self._run("disable", "--now", *UNITS)
        for unit, target in ((SERVICE, "default.target.wants"), (SOCKET, "sockets.target.wants")):
            link = self.folder / target / unit
            with contextlib.suppress(OSError):
                link.unlink()
            with contextlib.suppress(OSError):
                link.parent.rmdir()
        for path in self.kinds().values():
            path.unlink(missing_ok=True)
        for folder in (self.folder, self.folder.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._run("daemon-reload")
        self._run("reset-failed", *UNITS)

    def start(self) -> bool:
        """Starts the socket; the first connection starts the service."""
        self._run("reset-failed", *UNITS)
        return self._run("start", SOCKET).returncode == 0

    def stop(self) -> bool:
        """Stops both units."""
        active = self._run("is-active", *UNITS).stdout.split()
        if not {"active", "activating", "reloading", "deactivating"} & set(active):
            return False
        return self._run("stop", SERVICE, SOCKET).returncode == 0

    def restart(self) -> bool:
        """Stops the service and leaves the socket; the next connection starts the service, or hears why not."""
        return self.start() and self._run("stop", SERVICE).returncode == 0

    def notes(self) -> tuple[str, ...]:
        """Says how to keep the service beyond the login."""
        user = _user_name()
        if os.getuid() == 0 or not user or Path("/var/lib/systemd/linger", user).exists():
            return ()
        return ("It ends when you log out. To keep it running, and start it at boot: loginctl enable-linger",)

    def journal(self, lines: int, *, follow: bool) -> Sequence[str]:
        """Returns journalctl's command line."""
        if shutil.which("journalctl") is None:
            return ()
        # Not --user: that reads a journal of this user's own, which root and a journal in memory don't have.
        command = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"--user-unit={SERVICE}"]
        return [*command, f"--lines={lines}", *(["--follow"] if follow else [])]

    def _show(self, unit: str, properties: str = _PROPERTIES) -> dict[str, str]:
        done = self._run("show", unit, f"--property={properties}")
        pairs = (line.partition("=") for line in done.stdout.splitlines())
        return {name: value for name, _, value in pairs}

    def _must(self, *arguments: str) -> None:
        done = self._run(*arguments)
        if done.returncode != 0:
            raise ServiceFailed(
                f"systemctl --user {' '.join(arguments)}: {what_it_said(done)}.", "copilot service logs"
            )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ)
        # cron and `su` don't set it, and the instance is there all the same.
        environment.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        command = ["systemctl", "--user", "--no-pager", "--no-ask-password", *arguments]
        return run_quietly(command, environment)


def _is_alive(pid: str) -> bool:
    try:
        return (
            Path("/proc", pid, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] not in "ZX"
        )
    except OSError:
        return False


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""

"""A user instance of systemd of its own, in a home of its own, for tests of the service."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home

SYSTEMD = Path("/lib/systemd/systemd")


@dataclass(frozen=True)
class UserSystemd:
    """A user instance that runs.

    Attributes:
        home: A home whose commands reach it.
        process: The manager.
    """

    home: Home
    process: subprocess.Popen[bytes]

    def systemctl(self, *arguments: str) -> str:
        """Runs ``systemctl --user`` and returns what it printed, whatever its exit status."""
        command = ["systemctl", "--user", "--no-pager", *arguments]
        return subprocess.run(
            command, env=self.home.env, capture_output=True, text=True, timeout=150, check=False
        ).stdout.strip()

    def show(self, name: str, unit: str = "copilotd.service") -> str:
        """Returns a property of a unit."""
        return self.systemctl("show", unit, "--property", name, "--value")

    def eventually(self, happened: Callable[[], object], what: str, seconds: float = 90.0) -> None:
        """Waits for a condition."""
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, (
                f"never: {what}\n{self.systemctl('status', 'copilotd.service')}"
            )
            time.sleep(0.1)


@contextlib.contextmanager
def user_systemd() -> Iterator[UserSystemd]:
    """Starts a user instance; skips the test where that is impossible, and says why."""
    for program in ("systemctl", "systemd-analyze"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if not SYSTEMD.is_file():
        pytest.skip("systemd is not installed")
    if not Path("/sys/fs/cgroup").is_dir():
        pytest.skip("there are no control groups for systemd to use")
    booted = Path("/run/systemd/system")
    if not booted.is_dir():
        # What sd_booted(3) looks at: systemctl doesn't talk to an instance without it.
        try:
            booted.mkdir(parents=True)
        except OSError as error:
            pytest.skip(f"the system was not booted by systemd, and {booted} can't be made: {error.strerror}")
    with temporary_home() as home:
        runtime = home.path / "r"
        runtime.mkdir(mode=0o700)
        for name in ("PYTHONWARNINGS", "PYTHONPATH", "XDG_CACHE_HOME"):
            home.env.pop(name)
        home.env.update(XDG_RUNTIME_DIR=str(runtime), PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin")
        with (home.path / "systemd.out").open("wb") as output:
            process = subprocess.Popen(
                [SYSTEMD, "--user"],
                env=home.env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        manager = UserSystemd(home, process)
        try:
            deadline = time.monotonic() + 60
            while manager.systemctl("is-system-running") not in ("running", "degraded"):
                if process.poll() is not None or time.monotonic() > deadline:
                    said = (home.path / "systemd.out").read_text(errors="replace").strip().splitlines()
                    pytest.skip(
                        f"no user instance of systemd can run here: {said[-1:] or 'it does not answer'}"
                    )
                time.sleep(0.1)
            yield manager
        finally:
            _end(manager)


def _end(manager: UserSystemd) -> None:
    if manager.process.poll() is None:
        # It stops its services first.
        manager.process.terminate()
        try:
            manager.process.wait(60)
        except subprocess.TimeoutExpired:
            manager.process.kill()
            manager.process.wait()

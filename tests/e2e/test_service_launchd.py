"""``copilot service`` under launchd, with a stand-in for launchctl that really runs the job."""

from __future__ import annotations

import json
import os
import plistlib
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import fake_launchctl
from support.client_home import Home, temporary_home

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("launchd"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc"),
]

LABEL = "io.github.docs-copilot.copilotd"
DOMAIN = f"gui/{os.getuid()}"
MANAGER = ("--manager", "launchd")


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home() as home:
        for name in ("PYTHONWARNINGS", "PYTHONPATH"):
            home.env.pop(name)
        fake_launchctl.install(home.path / "bin")
        home.env["PATH"] = f"{home.path / 'bin'}:{home.env['PATH']}"
        yield home
        home.run("service", "uninstall", *MANAGER)
        home.run("stop")


def calls(home: Home) -> list[list[str]]:
    return [json.loads(line) for line in (home.path / "bin" / "calls").read_text().splitlines()]


def plist_of(home: Home) -> Path:
    return home.path / "h" / "Library" / "LaunchAgents" / f"{LABEL}.plist"


def test_install_status_logs_uninstall(home: Home) -> None:
    done = home.run("service", "install", *MANAGER)
    assert done.code == 0, done.err
    assert done.out.startswith(f"Installed: {plist_of(home)}\nThe daemon runs (pid ")
    assert "starts again at the next login" in done.err
    job = plistlib.loads(plist_of(home).read_bytes())
    logs = Path(job["StandardErrorPath"])
    assert logs.is_file(), "launchd starts nothing where the folder of the logs is missing"
    assert stat.S_IMODE(logs.parent.stat().st_mode) == 0o700
    assert os.path.isabs(job["ProgramArguments"][0])
    changing = [call for call in calls(home) if call[0] != "print"]
    assert changing == [
        ["bootout", f"{DOMAIN}/{LABEL}"], ["enable", f"{DOMAIN}/{LABEL}"],
        ["bootstrap", DOMAIN, str(plist_of(home))], ["kickstart", f"{DOMAIN}/{LABEL}"],
    ]  # fmt: skip

    again = home.run("service", "install", *MANAGER)
    assert again.out.startswith("Installed already: ")
    assert [call for call in calls(home) if call[0] != "print"] == changing, "what runs is left alone"

    state = json.loads(home.run("service", "status", *MANAGER, "--json").out)
    assert (state["installed"], state["enabled"], state["state"], state["outdated"]) == (
        True,
        True,
        "running",
        False,
    )
    assert json.loads(home.run("status", "--json").out)["pid"] == state["pid"]

    logs.write_text("copilotd: said before the log was open\x1b[2J\n")
    assert "said before the log was open[2J\n" in home.run("service", "logs", *MANAGER).out

    gone = home.run("service", "uninstall", *MANAGER)
    assert gone.out == f"Removed: {plist_of(home)}\n"
    assert not plist_of(home).exists()
    assert not logs.exists()
    assert not home.socket.exists()
    assert home.run("status").code == 3
    assert home.run("service", "uninstall", *MANAGER).out == "The service is not installed.\n"
    assert home.run("service", "status", *MANAGER).code == 3


def test_a_job_that_ended_badly_is_told(home: Home) -> None:
    assert home.run("service", "install", *MANAGER).code == 0
    state = json.loads(home.run("service", "status", *MANAGER, "--json").out)
    os.kill(state["pid"], signal.SIGKILL)
    told = home.run("service", "status", *MANAGER)
    deadline = time.monotonic() + 60
    while told.code == 0 and time.monotonic() < deadline:
        told = home.run("service", "status", *MANAGER)
    assert told.out.startswith("The daemon failed: exit status 9.\n")
    assert "copilot service logs" in told.err
    assert home.run("service", "install", *MANAGER).code == 0, "installing again mends it"


def test_a_daemon_that_runs_already_is_taken_over(home: Home) -> None:
    assert home.run("start").code == 0
    before = json.loads(home.run("status", "--json").out)["pid"]
    assert home.run("service", "install", *MANAGER).code == 0
    state = json.loads(home.run("service", "status", *MANAGER, "--json").out)
    assert state["pid"] not in (None, before)
    assert json.loads(home.run("status", "--json").out)["pid"] == state["pid"]


def test_nothing_is_installed_with_wrong_settings_or_without_a_manager(home: Home) -> None:
    wrong = home.run("service", "install", *MANAGER, env={"TOP_K": "many", "OCR": "perhaps"})
    assert wrong.code == 1
    for name in ("TOP_K", "OCR"):
        assert f"{name} must be" in wrong.err
    assert not plist_of(home).exists()
    for manager, program in (("launchd", "launchctl"), ("systemd", "systemctl")):
        none = home.run("service", "install", "--manager", manager, env={"PATH": str(home.path)})
        assert none.code == 1
        assert f"there is no {program} on the PATH" in none.err
        assert "the first question starts the daemon" in none.err

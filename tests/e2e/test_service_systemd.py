"""The service under a real user instance of systemd, from the installation to the removal.

The tests of this file run in order in one instance; each leaves the service installed and answering.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_home import Home, Transcript
from support.shared import REPOSITORY
from support.user_systemd import UserSystemd, user_systemd

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("systemd"), pytest.mark.timeout(600)]

QUESTION = "How do I configure the database connection?"
EXPOSURE = 7.0
"""The most that `systemd-analyze security` may say (6.6 with systemd 252); docs/service.md says why."""


@pytest.fixture(scope="module")
def systemd() -> Iterator[UserSystemd]:
    with user_systemd() as manager:
        shutil.copytree(REPOSITORY / "tests" / "fixtures" / "docs", manager.home.path / "docs")
        done = manager.home.run("service", "install")
        assert done.code == 0, done.err
        assert done.out.startswith("Installed: ")
        indexed = manager.home.run("index", "docs")
        assert indexed.code == 0, indexed.err
        yield manager


@pytest.fixture
def home(systemd: UserSystemd) -> Home:
    return systemd.home


def units_of(home: Home) -> Path:
    return home.path / "c" / "systemd" / "user"


def main_pid(systemd: UserSystemd) -> int:
    return int(systemd.show("MainPID") or 0)


def answered(done: Transcript) -> bool:
    return done.code == 0 and "DATABASE_URL" in done.out


def wait_until_ready(systemd: UserSystemd) -> None:
    systemd.eventually(lambda: systemd.show("ActiveState") == "active", "the service is active")


# ------------------------------------------------------------------------------------- install, ask


def test_install_twice_changes_nothing_and_asks_nothing(systemd: UserSystemd, home: Home) -> None:
    pid = main_pid(systemd)
    again = home.run("service", "install")
    assert again.code == 0, again.err
    assert again.out.startswith("Installed already: ")
    assert main_pid(systemd) == pid, "a service that runs is left alone"
    state = json.loads(home.run("service", "install", "--json").out)
    assert (state["installed"], state["enabled"], state["state"], state["changed"]) == (
        True, True, "running", False,
    )  # fmt: skip
    assert os.path.isabs(state["command"][0])


def test_the_units_hold_absolute_paths_and_no_key(home: Home) -> None:
    again = home.run("service", "install", env={"ANTHROPIC_API_KEY": "sk-shell-only", "LLM_MODEL": "m"})
    assert "ANTHROPIC_API_KEY" in again.err, "what only this shell has is told"
    unit = (units_of(home) / "copilotd.service").read_text()
    assert re.search(r"^ExecStart=/", unit, re.MULTILINE)
    assert f'Environment="XDG_DATA_HOME={home.path}/d"' in unit
    assert "sk-shell-only" not in unit


def test_ask_is_answered_by_the_service(systemd: UserSystemd, home: Home) -> None:
    assert answered(home.run("ask", QUESTION))
    assert json.loads(home.run("status", "--json").out)["pid"] == main_pid(systemd)
    told = home.run("service", "status")
    assert told.code == 0
    assert f"(pid {main_pid(systemd)})" in told.out
    assert "starts at login" in told.out


# ------------------------------------------------------------------------------------- kill, restart


def test_a_kill_is_survived_and_the_next_question_answered(systemd: UserSystemd, home: Home) -> None:
    killed, restarts = main_pid(systemd), int(systemd.show("NRestarts"))
    os.kill(killed, signal.SIGKILL)
    assert answered(home.run("ask", QUESTION))
    wait_until_ready(systemd)
    pid = main_pid(systemd)
    assert pid not in (0, killed)
    assert json.loads(home.run("status", "--json").out)["pid"] == pid, "the service answers, no second daemon"
    assert int(systemd.show("NRestarts")) == restarts + 1


def test_after_a_kill_the_service_comes_back_without_a_question(systemd: UserSystemd) -> None:
    killed = main_pid(systemd)
    os.kill(killed, signal.SIGKILL)
    systemd.eventually(lambda: main_pid(systemd) not in (0, killed), "it is started again")
    wait_until_ready(systemd)


def test_broken_settings_end_with_3_and_no_loop(systemd: UserSystemd, home: Home) -> None:
    settings = home.path / "c" / "copilot" / ".env"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text("TOP_K=many\nOCR=perhaps\n")
    settings.chmod(0o600)
    try:
        restarted = home.run("restart")
        assert restarted.code == 3
        assert "TOP_K" in restarted.err
        assert "OCR" in restarted.err, "all that is wrong is said at once"
        systemd.eventually(lambda: systemd.show("ActiveState") == "failed", "the service has failed")
        assert systemd.show("ExecMainStatus") == "3"
        ended = systemd.show("ExecMainExitTimestampMonotonic")
        time.sleep(3.5)  # longer than RestartSec
        assert (systemd.show("ActiveState"), systemd.show("ExecMainExitTimestampMonotonic")) == (
            "failed",
            ended,
        )
        assert home.run("service", "status").code == 3
        asked = home.run("ask", QUESTION)
        assert asked.code == 3
        assert "TOP_K" in asked.err, "who asks hears the reason"
    finally:
        settings.unlink()
    assert answered(home.run("ask", QUESTION)), "mended, the next question starts it"
    wait_until_ready(systemd)


# ------------------------------------------------------------------------------------- socket, stop, reload


def test_the_first_question_starts_the_service_by_its_socket(systemd: UserSystemd, home: Home) -> None:
    systemd.systemctl("stop", "copilotd.service")
    assert main_pid(systemd) == 0
    assert home.run("service", "status").out.startswith(
        "The daemon isn't running; the first question starts it"
    )
    assert answered(home.run("ask", "--no-start", QUESTION))
    wait_until_ready(systemd)
    assert main_pid(systemd) != 0


def test_stop_lasts_and_is_within_the_time_out(systemd: UserSystemd, home: Home) -> None:
    stopped = json.loads(home.run("stop", "--json").out)
    assert (stopped["stopped"], stopped["by"]) == (True, "systemd")
    assert (systemd.show("ActiveState"), systemd.show("Result")) == ("inactive", "success"), (
        "no time-out, no kill"
    )
    assert systemd.show("ActiveState", "copilotd.socket") == "inactive"
    assert home.run("ask", "--no-start", QUESTION).code == 3
    started = home.run("start")
    assert started.code == 0, started.err
    systemd.eventually(lambda: main_pid(systemd) != 0, "it is the service that was started")
    wait_until_ready(systemd)


def test_reload_takes_new_settings_without_a_restart(systemd: UserSystemd, home: Home) -> None:
    pid = main_pid(systemd)
    done = home.run("config", "set", "TOP_K", "7")
    try:
        assert "In use now: TOP_K" in done.out, done.err
        assert "Nothing has changed." in home.run("reload").out
        systemd.systemctl("reload", "copilotd.service")
        assert main_pid(systemd) == pid
    finally:
        home.run("config", "unset", "TOP_K")


# ------------------------------------------------------------------------------------- logs


def test_logs_are_in_the_journal(systemd: UserSystemd, home: Home) -> None:
    with socket.socket(socket.AF_UNIX) as journal:
        if journal.connect_ex("/run/systemd/journal/stdout") != 0:
            pytest.skip("no journald runs on this machine")

    def logged() -> bool:
        return "event=" in home.run("service", "logs", "-n", "50").out

    systemd.eventually(logged, "the journal has the daemon's lines")


def test_logs_without_a_journal_are_the_daemons_own(home: Home) -> None:
    done = home.run(
        "service",
        "logs",
        "-n",
        "3",
        env={"PATH": str(Path(shutil.which("systemctl") or "/x").parent / "none")},
    )
    assert done.code == 0, done.err
    assert "event=" in done.out
    assert "the daemon's own log" in done.err


# ------------------------------------------------------------------------------------- the units themselves


def test_systemd_analyze_finds_nothing_to_say(home: Home) -> None:
    files = sorted(map(str, units_of(home).glob("copilotd.*")))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", *files],
        env=home.env, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "copilotd." not in done.stderr


def test_the_exposure_is_what_the_page_says(systemd: UserSystemd, home: Home) -> None:
    done = subprocess.run(
        ["systemd-analyze", "--user", "security", "--no-pager", "copilotd.service"],
        env=home.env, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    said = re.search(r"Overall exposure level for copilotd.service: ([\d.]+)", done.stdout)
    assert said, done.stdout + done.stderr
    assert float(said[1]) <= EXPOSURE


# ------------------------------------------------------------------------------------- upgrade


def test_files_of_another_installation_are_noticed_and_replaced(systemd: UserSystemd, home: Home) -> None:
    unit = units_of(home) / "copilotd.service"
    fresh = unit.read_text()
    unit.write_text(fresh.replace("ExecStart=", "ExecStart=/old") + "# older\n")
    told = home.run("service", "status")
    assert "another installation or version. Next: copilot service install" in told.err
    done = home.run("service", "install")
    assert done.code == 0, done.err
    assert done.out.startswith("Installed: ")
    assert unit.read_text() == fresh
    assert answered(home.run("ask", QUESTION))


# ------------------------------------------------------------------------------------- by hand, without a socket


def test_a_client_waits_for_a_service_without_a_socket_that_was_killed(
    systemd: UserSystemd, home: Home
) -> None:
    systemd.systemctl("disable", "--now", "copilotd.socket", "copilotd.service")
    unit = units_of(home) / "copilotd.socket"
    kept = unit.read_text()
    unit.unlink()
    systemd.systemctl("daemon-reload")
    try:
        systemd.systemctl("start", "copilotd.service")
        wait_until_ready(systemd)
        killed = main_pid(systemd)
        os.kill(killed, signal.SIGKILL)
        assert answered(home.run("ask", QUESTION))
        pid = json.loads(home.run("status", "--json").out)["pid"]
        wait_until_ready(systemd)
        assert pid == main_pid(systemd), "the client started none of its own"
        assert systemd.show("NRestarts") == "1"
        assert json.loads(home.run("start", "--json").out)["started_by"] == "systemd"
    finally:
        systemd.systemctl("stop", "copilotd.service")
        unit.write_text(kept)
    assert home.run("service", "install").code == 0


# ------------------------------------------------------------------------------------- login, uninstall


def test_it_is_enabled_for_the_next_login(home: Home) -> None:
    for link in ("default.target.wants/copilotd.service", "sockets.target.wants/copilotd.socket"):
        assert (units_of(home) / link).resolve() == (units_of(home) / Path(link).name).resolve()


def test_uninstall_leaves_nothing_but_index_and_settings(systemd: UserSystemd, home: Home) -> None:
    index = home.lock.parent
    done = home.run("service", "uninstall")
    assert done.code == 0, done.err
    assert done.out.startswith("Removed: ")
    assert str(index) in done.err
    assert not units_of(home).exists()
    assert systemd.show("ActiveState") == "inactive"
    assert (index / "index.sqlite3").is_file()
    assert home.run("service", "uninstall").out == "The service is not installed.\n"
    assert home.run("service", "status").code == 3
    assert home.run("status").code == 3
    # Without a service the client looks after the daemon again.
    assert answered(home.run("ask", QUESTION))
    assert home.run("stop").code == 0

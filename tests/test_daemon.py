"""The daemon as a process: starting, waiting, signals, one owner, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.daemon_process import Process, exchange, result
from support.shared import REPOSITORY

from copilotd import wire
from copilotd.lock import read_holder


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="d") as name:
        yield Path(name)


Start = Callable[..., Process]


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    started: list[Process] = []

    def begin(mode: str = "", *arguments: str, **environment: str) -> Process:
        started.append(Process(home, mode, *arguments, **environment))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


# ----------------------------------------------------------------------------------- starting


def test_a_request_is_answered_and_sigterm_ends_it_in_order(start: Start) -> None:
    daemon = start()
    assert result(daemon.call("echo", x=1)) == {"x": 1}
    code, stderr, seconds = daemon.stop()
    assert (code, seconds < 20) == (0, True)
    assert (daemon.index / "closed").exists()
    assert not daemon.socket_path.exists()
    assert "event=stopped exit=0" in stderr


def test_hello_and_status_answer_while_the_service_is_built_and_others_wait(start: Start) -> None:
    daemon = start("slow")
    hello = result(daemon.call("hello", client="t", version="1", protocol=1))
    assert hello["state"] == "starting"
    assert (hello["pid"], hello["protocol"]) == (daemon.process.pid, wire.PROTOCOL)
    status = result(daemon.call("status"))
    assert status["state"] == "starting"
    assert status["model"]["loaded"] is False
    assert result(daemon.call("echo", late=True)) == {"late": True}
    assert result(daemon.call("hello"))["state"] == "ready"
    assert result(daemon.call("status"))["state"] == "ready"


def test_an_unknown_method_is_refused_before_and_after_the_service_is_there(start: Start) -> None:
    daemon = start("slow")
    for _ in range(2):
        failure = daemon.call("nonsense")
        assert isinstance(failure, wire.Failure)
        assert failure.number == wire.METHOD_NOT_FOUND


def test_a_service_that_can_never_be_built_is_told_to_who_waits_and_exits_with_3(start: Start) -> None:
    daemon = start("too_new")
    code, stderr = daemon.end()
    assert code == 3
    assert "made by a newer version" in stderr
    assert "Traceback" not in stderr


def test_a_service_that_fails_unexpectedly_exits_with_1_and_a_traceback_in_the_log(start: Start) -> None:
    daemon = start("broken")
    code, _ = daemon.end()
    assert code == 1
    assert " | RuntimeError: no luck" in daemon.log.read_text()


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TOP_K": "0", "LLM_PROVIDER": "?"}, ["TOP_K", "LLM_PROVIDER"]),
        ({"COPILOT_ENV_FILE": "/absent"}, ["COPILOT_ENV_FILE"]),
        ({"INDEX_DIR": "/proc/nope"}, ["INDEX_DIR"]),
        ({"COPILOT_SOCKET": "/dev/null/s"}, ["/dev/null"]),
    ],
)
def test_what_can_never_start_exits_with_3_names_the_reason_and_shows_no_traceback(
    start: Start, environment: dict[str, str], words: list[str]
) -> None:
    code, stderr = start(**environment).end()
    assert code == 3
    assert all(word in stderr for word in words), stderr
    assert "Traceback" not in stderr


def test_the_command_says_how_it_is_used(home: Path) -> None:
    for arguments, code, words in (
        (["--help"], 0, str(home / ".config/copilot/.env")),
        (["--version"], 0, "copilotd "),
        (["--nonsense"], 2, "usage"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "copilotd", *arguments], capture_output=True, text=True,
            cwd=REPOSITORY, env={"HOME": str(home), "COLUMNS": "500"}, check=False,
        )  # fmt: skip
        assert done.returncode == code
        assert words in done.stdout + done.stderr


# ---------------------------------------------------------------------------------- one owner


def test_a_second_daemon_is_refused_and_told_the_holders_pid(start: Start) -> None:
    first = start()
    first.call("echo")
    other_socket = {"COPILOT_SOCKET": str(first.socket_path.with_name("other.sock"))}
    other_index = {"INDEX_DIR": str(first.home / "other"), "COPILOT_SOCKET": str(first.socket_path)}
    for environment in ({}, other_socket, other_index):
        code, stderr = start(**environment).end()
        assert code == 3
        assert f"pid {first.process.pid}" in stderr
    assert result(first.call("echo")) == {}


def test_the_lock_file_says_who_holds_it(start: Start) -> None:
    daemon = start()
    daemon.call("echo")
    holder = read_holder(daemon.index / "copilotd.lock")
    assert holder["pid"] == daemon.process.pid
    assert holder["socket"] == str(daemon.socket_path)
    assert set(holder) == {"pid", "started", "socket", "version"}


def test_five_starters_at_once_end_with_one_daemon(start: Start) -> None:
    daemons = [start() for _ in range(5)]
    deadline = time.monotonic() + 60
    while sum(daemon.process.poll() is None for daemon in daemons) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    (alive,) = [daemon for daemon in daemons if daemon.process.poll() is None]
    assert result(alive.call("hello"))["pid"] == alive.process.pid
    for daemon in daemons:
        if daemon is not alive:
            assert f"pid {alive.process.pid}" in daemon.end()[1]
    assert {daemon.process.returncode for daemon in daemons if daemon is not alive} == {3}


def test_after_kill_9_the_next_one_starts_over_the_stale_socket_and_a_strangers_pid(start: Start) -> None:
    first = start()
    first.call("echo")
    first.process.kill()
    first.process.wait()
    assert first.socket_path.exists()
    # As after a reboot: the number now belongs to somebody else.
    (first.index / "copilotd.lock").write_text(json.dumps({"pid": os.getpid()}))
    assert result(start().call("echo", y=2)) == {"y": 2}


def test_two_indexes_have_two_daemons(start: Start, home: Path) -> None:
    one = start()
    two = start(INDEX_DIR=str(home / "two"), COPILOT_SOCKET=str(home / "p" / "two.sock"))
    assert result(one.call("hello"))["pid"] == one.process.pid
    assert result(two.call("hello"))["pid"] == two.process.pid
    assert (home / "p").stat().st_mode & 0o777 == 0o700


def test_thousands_of_unknown_parameters_of_hello_give_one_short_sentence(start: Start) -> None:
    reply = start().call("hello", **{f"unknown{number}": 1 for number in range(5000)})
    assert isinstance(reply, wire.Failure)
    assert len(reply.error.message) < 500


def test_each_index_answers_for_itself_through_the_client(start: Start, home: Path) -> None:
    """Only INDEX_DIR differs, and both use one home: the second client must not meet the first daemon."""
    indexes = [str(home / "a"), str(home / "b")]
    pids = {index: start(INDEX_DIR=index).process.pid for index in indexes}
    for index in indexes:
        deadline = time.monotonic() + 60
        code = 3
        while code == 3 and time.monotonic() < deadline:
            done = subprocess.run(
                [sys.executable, "-m", "copilot_client", "status", "--json"], capture_output=True, text=True,
                cwd=REPOSITORY, env={"HOME": str(home), "INDEX_DIR": index}, check=False,
            )  # fmt: skip
            code = done.returncode
        status = json.loads(done.stdout)
        assert (status["index_dir"], status["pid"]) == (index, pids[index])


def test_a_runtime_folder_open_to_others_is_refused_with_the_remedy(start: Start, home: Path) -> None:
    state = home / ".local/state/copilot"
    state.mkdir(parents=True)
    state.chmod(0o777)
    code, stderr = start().end()
    assert code == 3
    assert f"chmod 700 {state}" in stderr


def test_a_socket_file_that_was_removed_comes_back(start: Start) -> None:
    daemon = start()
    with daemon.connect() as peer:
        exchange(peer, "echo")
        daemon.socket_path.unlink()
        daemon.wait_for_log("event=socket_restored")
        assert result(exchange(peer, "echo", old=1)) == {"old": 1}
    assert result(daemon.call("echo", new=1)) == {"new": 1}
    assert daemon.socket_path.stat().st_mode & 0o777 == 0o600
    assert daemon.stop()[0] == 0
    assert not daemon.socket_path.exists()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_an_index_that_was_taken_away_ends_the_daemon_for_a_fresh_one(start: Start, replaced: bool) -> None:
    daemon = start()
    daemon.call("echo")
    shutil.rmtree(daemon.index)
    if replaced:
        daemon.index.mkdir(mode=0o700)
        (daemon.index / "copilotd.lock").touch()
    code, stderr = daemon.end()
    assert code == 1
    assert f"copilotd: The index folder {daemon.index} was removed or replaced" in stderr
    assert "event=index_lost" in daemon.log.read_text()
    assert not daemon.socket_path.exists()
    assert result(start().call("echo", y=1)) == {"y": 1}


def test_status_says_at_once_that_the_index_was_taken_away(start: Start) -> None:
    daemon = start("very_slow")
    assert result(daemon.call("status"))["errors"] == []
    daemon.index.rename(daemon.home / "elsewhere")
    (error,) = result(daemon.call("status"))["errors"]
    assert str(daemon.index) in error


def test_a_second_daemon_beside_a_removed_index_is_refused_or_makes_the_first_one_stop(start: Start) -> None:
    first = start()
    first.call("echo")
    shutil.rmtree(first.index)
    code, stderr = start().end()
    assert code == 3
    assert f"pid {first.process.pid}" in stderr
    second = start(COPILOT_SOCKET=str(first.home / "p" / "other.sock"))
    assert result(second.call("echo", y=1)) == {"y": 1}
    assert first.end()[0] == 1
    assert second.process.poll() is None


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o720])
def test_an_index_folder_that_others_can_write_to_is_refused(start: Start, home: Path, mode: int) -> None:
    index = home / "index"
    index.mkdir()
    index.chmod(mode)
    code, stderr = start(INDEX_DIR=str(index)).end()
    assert code == 3
    assert f"chmod go-w {index}" in stderr
    assert list(index.iterdir()) == []


def test_only_our_own_index_folder_is_closed_to_others_who_look(start: Start, home: Path) -> None:
    named, ours = home / "index", home / ".local/share/copilot/index"
    for folder in (named, ours):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    start().call("echo")
    start(INDEX_DIR=str(named), COPILOT_SOCKET=str(home / "p" / "s")).call("echo")
    assert [folder.stat().st_mode & 0o777 for folder in (named, ours)] == [0o755, 0o700]


@pytest.mark.parametrize("name", ["copilotd.lock", "index.sqlite3", "roots.json.new"])
def test_no_file_of_the_index_leads_elsewhere(start: Start, home: Path, name: str) -> None:
    index, precious = home / "index", home / "precious"
    index.mkdir(mode=0o700)
    precious.write_text("mine")
    (index / name).symlink_to(precious)
    code, stderr = start(INDEX_DIR=str(index)).end()
    assert code == 3
    assert f"{index / name} is a symbolic link" in stderr
    assert precious.read_text() == "mine"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make folders of another user")
def test_an_index_folder_of_another_user_is_refused(start: Start, home: Path) -> None:
    index = home / "index"
    index.mkdir(mode=0o700)
    os.chown(index, 65534, 65534)
    code, stderr = start(INDEX_DIR=str(index)).end()
    assert code == 3
    assert f"INDEX_DIR {index} belongs to user 65534" in stderr


# ------------------------------------------------------------------------------------ stopping


def test_shutdown_is_answered_first(start: Start) -> None:
    daemon = start()
    assert result(daemon.call("shutdown")) == {"stopping": True}
    assert daemon.end()[0] == 0


@pytest.mark.parametrize("mode", ["stuck", "deaf", "very_slow", "close_fails"])
def test_sigterm_is_bounded_whatever_the_service_does(start: Start, mode: str) -> None:
    daemon = start(mode)
    with daemon.connect() as peer:
        if mode == "deaf":
            peer.sendall(wire.encode_request(1, "wait", {}))
            daemon.wait_for_log("event=ready")
            time.sleep(0.2)
        else:
            exchange(peer, "hello" if mode == "very_slow" else "echo")
        code, stderr, seconds = daemon.stop()
    assert (code, seconds < 20) == (0, True), seconds
    if mode in ("stuck", "very_slow"):
        assert "event=stop_timeout" in stderr
    if mode == "close_fails":
        assert "event=close_failed" in stderr
    assert not daemon.socket_path.exists()


def test_a_running_request_is_told_that_the_daemon_stops(start: Start) -> None:
    daemon = start()
    with daemon.connect() as peer:
        exchange(peer, "echo")
        peer.sendall(wire.encode_request(2, "wait", {}))
        peer.sendall(wire.encode_request(3, "nonsense", {}))
        peer.recv(65536)
        daemon.process.send_signal(signal.SIGTERM)
        received = b""
        while data := peer.recv(65536):
            received += data
    assert wire.Decoder().feed(received)
    assert daemon.end()[0] == 0


def test_a_second_signal_ends_at_once(start: Start) -> None:
    daemon = start("stuck")
    daemon.call("echo")
    daemon.process.send_signal(signal.SIGTERM)
    daemon.wait_for_log("event=stopping")
    # The first signal alone would end it with 0, once the service was given up.
    assert daemon.stop(signal.SIGINT)[0] == 128 + signal.SIGINT


def test_sighup_is_logged_and_survived(start: Start) -> None:
    daemon = start()
    daemon.call("echo")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for_log("event=reload changed=- needs_restart=-")
    assert result(daemon.call("echo")) == {}


# ------------------------------------------------------------------------ log and service manager


def test_warnings_about_the_settings_reach_the_log(start: Start, home: Path) -> None:
    file = home / "my.env"
    file.write_text("LLM_PROVDER=openai\n")
    daemon = start("", "--env-file", str(file), "--quiet")
    daemon.call("echo")
    daemon.wait_for_log("did you mean LLM_PROVIDER")
    code, stderr, _ = daemon.stop()
    assert (code, stderr) == (0, "")
    assert daemon.log.stat().st_mode & 0o077 == 0


def test_systemd_is_told_of_each_state(start: Start, home: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(home / "notify"))
        manager.settimeout(60)
        daemon = start("slow", NOTIFY_SOCKET=str(home / "notify"), WATCHDOG_USEC="200000")
        told: list[str] = []
        while "READY=1" not in told:
            told += manager.recv(4096).decode().splitlines()
        assert "STATUS=Loading the model…" in told
        assert told.count("WATCHDOG=1") >= 2
        daemon.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            while "STOPPING=1" not in told:
                told += manager.recv(4096).decode().splitlines()
        assert "STOPPING=1" in told


def test_an_idle_daemon_costs_no_processor(start: Start) -> None:
    daemon = start()
    daemon.call("echo")
    time.sleep(0.2)

    def ticks() -> int:
        fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1)
    assert ticks() - before <= 1


def test_the_command_sets_its_environment_before_numpy_and_faiss_read_it() -> None:
    code = "import sys, copilotd.cli; print({'numpy', 'faiss', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon_process import exchange, result
from support.shared import REPOSITORY

from copilotd import wire
from copilotd.activation import check_place, launchd_descriptors, refuse_waiting, take_socket
from copilotd.errors import SettingsError


@pytest.fixture
def place() -> Iterator[Path]:
    # pytest's own folders can be too long for a socket's path.
    with tempfile.TemporaryDirectory(prefix="a") as name:
        yield Path(name)


@pytest.fixture
def listening(place: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as manager:
        manager.bind(str(place / "s"))
        manager.listen(8)
        yield manager


def handed_over(count: int, pid: int | None = None) -> dict[str, str]:
    return {
        "LISTEN_PID": str(os.getpid() if pid is None else pid),
        "LISTEN_FDS": str(count),
        "LISTEN_FDNAMES": "copilotd",
        "HOME": "/home/me",
    }


def test_the_socket_is_taken_and_no_child_finds_the_variables(listening: socket.socket, place: Path) -> None:
    environ = handed_over(1)
    descriptor = os.dup(listening.fileno())
    os.set_inheritable(descriptor, True)
    taken = take_socket(environ, first=descriptor)
    assert taken is not None
    with taken:
        assert environ == {"HOME": "/home/me"}
        assert not taken.get_inheritable()
        check_place(taken, place / "s")
        with pytest.raises(SettingsError, match="but clients look for"):
            check_place(taken, place / "elsewhere")


@pytest.mark.parametrize(
    "environ",
    [{}, handed_over(1, pid=1), {"LISTEN_PID": "me", "LISTEN_FDS": "1"}, handed_over(0), handed_over(-1)],
)
def test_what_was_meant_for_another_process_is_left_alone(environ: dict[str, str]) -> None:
    environ = dict(environ)
    assert take_socket(environ) is None
    assert not {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} & set(environ)


def test_two_sockets_are_refused(listening: socket.socket) -> None:
    first = os.dup(listening.fileno())
    second = os.dup2(listening.fileno(), first + 1) if not _is_open(first + 1) else pytest.fail("in use")
    with pytest.raises(SettingsError, match="handed over 2 sockets"):
        take_socket(handed_over(2), first=first)
    assert not _is_open(first)
    assert not _is_open(second)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ["file", "connected", "closed"])
def test_what_does_not_listen_is_refused(place: Path, kind: str) -> None:
    if kind == "file":
        descriptor = os.open(place / "file", os.O_CREAT | os.O_RDONLY)
    elif kind == "connected":
        one, other = socket.socketpair()
        descriptor = one.detach()
        other.close()
    else:
        descriptor = os.open(place, os.O_RDONLY)
        os.close(descriptor)
    with pytest.raises(SettingsError, match="no listening Unix stream socket"):
        take_socket(handed_over(1), first=descriptor)
    if _is_open(descriptor):
        os.close(descriptor)


def test_everyone_who_waits_is_told_why_the_daemon_cannot_start(
    listening: socket.socket, place: Path
) -> None:
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for client in clients:
        client.settimeout(60)
        client.connect(str(place / "s"))
    assert refuse_waiting(listening, SettingsError("TOP_K is wrong.", "mend it")) == 3
    for client in clients:
        (failure,) = wire.Decoder().feed(client.recv(65536))
        assert isinstance(failure, wire.Failure)
        assert failure.error.message == "The daemon could not start: TOP_K is wrong."
        client.close()
    assert refuse_waiting(listening, SettingsError("x")) == 0


class LaunchLibrary:
    """``launch_activate_socket`` as its header has it."""

    def __init__(self, descriptors: list[int], code: int = 0) -> None:
        self._array = (ctypes.c_int * len(descriptors))(*descriptors)
        self._code = code
        self.asked: list[bytes] = []
        self.freed = 0

    def launch_activate_socket(self, name: bytes, numbers: object, count: object) -> int:
        self.asked.append(name)
        numbers._obj.contents = ctypes.c_int.from_buffer(self._array)  # type: ignore[attr-defined]
        count._obj.value = len(self._array)  # type: ignore[attr-defined]
        return self._code

    def free(self, _: object) -> None:
        self.freed += 1


def test_launchd_gives_its_descriptors_by_name() -> None:
    library = LaunchLibrary([7, 9])
    assert launchd_descriptors("Listener", library) == [7, 9]
    assert (library.asked, library.freed) == ([b"Listener"], 1)
    assert launchd_descriptors("Listener", LaunchLibrary([7], code=3)) == []


# ---------------------------------------------------------------------------- the process itself


@pytest.fixture
def activated(place: Path) -> Iterator[socket.socket]:
    """A socket where clients look for it, in the hands of a manager."""
    folder = place / ".local/state/copilot"
    folder.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as manager:
        manager.bind(str(folder / "copilotd.sock"))
        manager.listen(8)
        yield manager


HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, sys.argv[2]])
"""


def start(place: Path, manager: socket.socket, **environment: str) -> subprocess.Popen[str]:
    """As systemd does: descriptor 3, and the process's own number beside it."""
    fake = str(REPOSITORY / "tests/support/fake_daemon.py")
    handed = os.dup(manager.fileno())
    try:
        return subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, str(handed), fake],
            env={
                "HOME": str(place), "PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **environment,
            },
            pass_fds=(handed,), stderr=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
    finally:
        os.close(handed)


def connect(place: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(str(place / ".local/state/copilot/copilotd.sock"))
    return client


def test_a_question_that_came_before_the_daemon_is_answered_and_its_socket_stays(
    place: Path, activated: socket.socket
) -> None:
    with connect(place) as early:
        daemon = start(place, activated)
        try:
            assert result(exchange(early, "echo", x=1)) == {"x": 1}
            with connect(place) as second:
                assert result(exchange(second, "hello"))["pid"] == daemon.pid
        finally:
            daemon.send_signal(signal.SIGTERM)
            _, stderr = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, stderr
    assert (place / ".local/state/copilot/copilotd.sock").exists(), "it is the manager's to remove"


@pytest.mark.parametrize("trouble", ["settings", "too_new"])
def test_who_waits_for_a_daemon_that_can_never_start_is_told(
    place: Path, activated: socket.socket, trouble: str
) -> None:
    environment = {"TOP_K": "many"} if trouble == "settings" else {"FAKE_MODE": "too_new"}
    with connect(place) as early:
        early.sendall(wire.encode_request(1, "echo", {}))
        daemon = start(place, activated, **environment)
        _, stderr = daemon.communicate(timeout=60)
        data = early.recv(65536)
    assert daemon.returncode == 3, stderr
    messages = [message for message in wire.Decoder().feed(data) if isinstance(message, wire.Failure)]
    assert messages
    assert ("TOP_K" if trouble == "settings" else "newer version") in messages[0].error.message


# ---------------------------------------------------------------------------------------- reload


def settings_file(place: Path, text: str) -> None:
    path = place / ".config/copilot/.env"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


def until(place: Path, wanted: dict[str, object]) -> dict[str, object]:
    """Waits until ``status`` holds what is wanted."""
    deadline = time.monotonic() + 60
    while True:
        with connect(place) as client:
            status = result(exchange(client, "status"))
        if wanted.items() <= status.items():
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.05)


def test_new_settings_are_taken_while_it_runs_and_bad_ones_are_told(
    place: Path, activated: socket.socket
) -> None:
    settings_file(place, "TOP_K=4\n")
    daemon = start(place, activated)
    try:
        until(place, {"top_k": 4})
        settings_file(place, "TOP_K=7\nMAX_CHUNK_CHARS=1000\n")
        daemon.send_signal(signal.SIGHUP)
        status = until(place, {"top_k": 7})
        assert "MAX_CHUNK_CHARS: changed, and used after a restart" in str(status["warnings"])
        settings_file(place, "TOP_K=many\n")
        with connect(place) as client:
            failure = exchange(client, "reload")
        assert isinstance(failure, wire.Failure)
        assert "The daemon goes on with the old ones." in failure.error.message
        assert "TOP_K must be a whole number" in str(until(place, {"top_k": 7})["errors"])
        settings_file(place, "TOP_K=7\n")
        with connect(place) as client:
            assert result(exchange(client, "reload")) == {"changed": [], "needs_restart": [], "warnings": []}
        assert until(place, {"errors": []})["top_k"] == 7
        with connect(place) as client:
            assert isinstance(exchange(client, "reload", x=1), wire.Failure)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=60)
    shutil.rmtree(place / ".config")


def test_check_settings_reports_every_problem_and_shows_no_key(place: Path) -> None:
    def report(text: str) -> tuple[int, str]:
        settings_file(place, text)
        done = subprocess.run(
            [sys.executable, "-m", "copilotd", "--check-settings"],
            env={"HOME": str(place), "PATH": os.environ["PATH"]},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout

    code, told = report("ANTHROPIC_API_KEY=sk-ant-secret\nTOP_K=7\n")
    assert code == 0
    assert "sk-ant-secret" not in told
    assert '"TOP_K": {"value": 7, "source": "file", "secret": false, "live": true}' in told
    code, told = report("TOP_K=many\nMIN_SCORE=9\n")
    assert code == 3
    assert "TOP_K" in told
    assert "MIN_SCORE" in told

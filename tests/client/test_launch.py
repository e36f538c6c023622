"""Who holds the lock, who may be signalled, and what `stop` does with daemons that don't understand it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home
from support.scripted_daemon import RawListener, ScriptedDaemon, failure

from copilot_client.launch import lock_holder, terminate_holder
from copilotd.errors import CopilotError, VersionMismatch
from copilotd.lock import LockFile

HOLDER = """
import fcntl, sys, time, signal
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home() as home:
        home.lock.parent.mkdir(parents=True)
        yield home


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.communicate()


def test_the_holder_of_a_lock_is_found(home: Home) -> None:
    assert lock_holder(home.lock) is None
    home.lock.write_text("{}")
    assert lock_holder(home.lock) is None
    with process(HOLDER, str(home.lock)) as child:
        assert lock_holder(home.lock) == child.pid
    assert lock_holder(home.lock) is None


def test_looking_never_takes_the_lock(home: Home) -> None:
    """A daemon that starts in the instant of a look must not find its lock taken."""
    home.lock.write_text("{}")
    looker = (
        "import sys, pathlib; from copilot_client.launch import lock_holder; print(flush=True)\n"
        "while True: lock_holder(pathlib.Path(sys.argv[1]))"
    )
    with process(looker, str(home.lock)):
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            LockFile(home.lock, "The index").release()


def test_a_pid_in_the_file_alone_is_never_signalled(home: Home) -> None:
    with process("import time; print(flush=True); time.sleep(60)") as stranger:
        home.lock.write_text(json.dumps({"pid": stranger.pid}))
        assert lock_holder(home.lock) is None
        assert terminate_holder(home.lock) is None
        assert home.run("stop").out == "The daemon is not running.\n"
        assert home.run("status").code == 3
        assert stranger.poll() is None


def test_a_daemon_that_only_holds_the_lock_is_terminated(home: Home) -> None:
    with process(HOLDER, str(home.lock)) as child:
        status = home.run("status")
        done = home.run("stop", "--json")
        assert child.wait(5) < 0
    assert (status.code, status.err.splitlines()[0]) == (
        3,
        f"Error: The daemon (pid {child.pid}) is starting and doesn't listen yet.",
    )
    assert json.loads(done.out) == {"stopped": True, "pid": child.pid, "by": "signal"}


def test_a_daemon_of_another_protocol_is_stopped_by_its_lock(home: Home) -> None:
    hello = failure(VersionMismatch("The daemon speaks protocol 0."))
    with process(HOLDER, str(home.lock)) as child, ScriptedDaemon(home.socket, {"hello": hello}) as daemon:
        # The socket belongs to this test, not to the child: it goes when the child goes.
        stopping = subprocess.Popen(home.command("stop"), env=home.env, stdout=subprocess.PIPE, text=True)
        assert child.wait(10) < 0
        daemon.stop()
        out, _ = stopping.communicate(timeout=60)
    assert out == f"The daemon (pid {child.pid}) has stopped after SIGTERM.\n"


def test_a_stranger_on_the_socket_is_left_alone(home: Home) -> None:
    with RawListener(home.socket, b"hello?\n"):
        done = home.run("stop")
    assert done.code == 3
    assert "was not signalled" in done.err


def test_ask_says_that_a_socket_was_left_behind(home: Home) -> None:
    with process(f"import socket; s = socket.socket(1); s.bind({str(home.socket)!r}); print(flush=True)"):
        pass
    assert Path(home.socket).exists()
    done = home.run("ask", "x", "--no-start")
    assert (done.code, done.err) == (
        3, f"Error: The daemon is not running; its last one left {home.socket} behind.\n  Next: copilot start\n"
    )  # fmt: skip


COMMANDS = [
    ("start",),
    ("restart",),
    ("ask", "x"),
    ("search", "x"),
    ("index", "d"),
    ("section", "x"),
    ("roots",),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_state_folder_that_can_not_be_used_is_a_daemon_that_can_not_start(
    home: Home, command: tuple[str, ...]
) -> None:
    home.state.chmod(0o777)
    done = home.run(*command)
    assert done.code == 3
    assert f"chmod 700 {home.state}" in done.err


def test_a_link_in_the_place_of_a_start_lock_is_one_too(home: Home) -> None:
    (home.state / "copilotd.start").symlink_to(home.path / "elsewhere")
    done = home.run("start")
    assert (done.code, "can't be opened" in done.err, "Traceback" in done.err) == (3, True, False)
    assert not (home.path / "elsewhere").exists()


@pytest.mark.parametrize("command", [*COMMANDS, ("status",), ("stop",)])
def test_settings_that_can_not_be_read_are_too(home: Home, command: tuple[str, ...]) -> None:
    done = home.run(*command, env={"COPILOT_ENV_FILE": "/absent"})
    assert (done.code, "COPILOT_ENV_FILE" in done.err) == (3, True)


@pytest.mark.parametrize("said", ["It broke.", "The daemon could not start: It broke."])
def test_that_it_could_not_start_is_said_once_by_whoever_knows_first(home: Home, said: str) -> None:
    scripts = {"roots": failure(CopilotError(said, "copilot logs"))}
    with ScriptedDaemon(home.socket, scripts, hello={"state": "starting"}):
        done = home.run("start")
    assert (done.code, done.err.splitlines()[-2]) == (3, "Error: The daemon could not start: It broke.")


def test_a_daemon_that_can_not_start_says_why(home: Home) -> None:
    done = home.run("start", env={"TOP_K": "many"})
    assert done.code == 3
    assert "Error: The daemon could not start: " in done.err
    assert "TOP_K" in done.err
    assert "Traceback" not in done.err

"""Each way of not working has its sentence, a next command and its exit code; so has each meeting of two versions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.client_home import Home, temporary_home
from support.scripted_daemon import RawListener, Script, ScriptedDaemon, failure, reply

from copilot_client.connection import (
    BusyDaemon,
    ConnectionLost,
    DaemonUnavailable,
    NotRunning,
    OlderDaemon,
    OtherUser,
    OtherVersion,
    StaleSocket,
    Starting,
    is_older,
    may_replace,
)
from copilotd import __version__, wire
from copilotd.errors import (
    Busy,
    CopilotError,
    IndexMissing,
    ModelLoading,
    ProviderAuth,
    ProviderUnreachable,
    ShuttingDown,
)

OLD = "0.0.9"
ANSWER = {"answer": "It is so. [a > B]", "known": True, "citations": [], "freshness": {}}

Situation = Callable[[Home], contextlib.AbstractContextManager[object]]


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        yield home


@contextlib.contextmanager
def left_over(home: Home) -> Iterator[None]:
    """A socket file that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home.socket))
    yield


@contextlib.contextmanager
def lock_held(home: Home) -> Iterator[None]:
    """A daemon that has its lock and doesn't listen yet."""
    home.lock.parent.mkdir(parents=True, exist_ok=True)
    with home.lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def open_folder(home: Home) -> Iterator[None]:
    """A folder of the socket that everybody may write to."""
    home.state.chmod(0o777)
    yield


@contextlib.contextmanager
def nothing(home: Home) -> Iterator[None]:
    yield


def listening(**scripts: Script) -> Situation:
    return lambda home: ScriptedDaemon(home.socket, scripts)


def speaking(**hello: Any) -> Situation:
    return lambda home: ScriptedDaemon(home.socket, {}, hello)


def saying(raw: bytes) -> Situation:
    return lambda home: RawListener(home.socket, raw)


def status(**changes: Any) -> Situation:
    shown = {
        "pid": 1,
        "version": __version__,
        "state": "ready",
        "model": {"name": "m", "loaded": True},
        "roots": [],
    }
    return listening(status=reply({**shown, **changes}))


ASK = ("ask", "x", "--no-start")
WAYS: dict[str, tuple[Situation, tuple[str, ...], int, str, str]] = {
    "not running": (nothing, ASK, 3, "The daemon is not running", "copilot start"),
    "stale socket": (left_over, ASK, 3, "its last one left", "copilot start"),
    "starting": (lock_held, ASK, 3, "is starting and doesn't listen yet", "copilot status"),
    "folder open to others": (open_folder, ("ask", "x"), 3, "open to other users", "chmod 700"),
    "other protocol": (speaking(protocol=99, oldest_protocol=99), ASK, 3, "with protocol 99", "copilot restart"),
    "something else": (saying(b"HTTP/1.1 400\r\n\r\n"), ASK, 3, "does not speak", "copilot restart"),
    "gone in the middle": (
        listening(ask=lambda request, speaker: speaker.hang_up()), ASK, 3, "went away", "copilot status",
    ),
    "stopping": (
        listening(ask=failure(ShuttingDown("It is stopping.", "copilot start"))), ASK, 3, "stopping", "copilot start",
    ),
    "too many": (
        listening(ask=failure(Busy("All 256 connections are in use.", "MAX_CONNECTIONS sets the limit."))),
        ASK, 3, "256 connections", "MAX_CONNECTIONS",
    ),
    "model late": (
        listening(ask=failure(ModelLoading("The model wasn't ready in time.", "copilot search"))),
        ASK, 1, "wasn't ready", "copilot search",
    ),
    "no roots yet": (listening(ask=failure(IndexMissing())), ASK, 1, "Run --index first", "copilot index"),
    "provider's key": (
        listening(ask=failure(ProviderAuth("The key was rejected.", "copilot config set ANTHROPIC_API_KEY"))),
        ASK, 1, "The key was rejected.", "copilot config set",
    ),
    "provider away": (
        listening(ask=failure(ProviderUnreachable("Nothing answers at http://x.", "Check OLLAMA_BASE_URL."))),
        ASK, 1, "Nothing answers", "OLLAMA_BASE_URL",
    ),
    "disk full": (
        status(errors=["The disk is full: the index can't be written (database or disk is full)."]),
        ("status",), 0, "The disk is full", "",
    ),
    "watch limit": (
        status(roots=[{
            "path": "/d", "namespace": "n", "documents": 1, "chunks": 1, "state": "ok",
            "watch": "polling: no watches left (fs.inotify.max_user_watches)",
        }]),
        ("status",), 0, "max_user_watches", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_each_way_has_a_sentence_a_next_command_and_its_code(home: Home, way: str) -> None:
    situation, command, code, sentence, following = WAYS[way]
    with situation(home):
        done = home.run(*command)
    said = done.out + done.err
    assert done.code == code, said
    assert sentence in said
    assert "Traceback" not in said
    if code:
        told = done.err.partition("\n  Next: ")
        assert "Error: " in told[0]
        assert following in told[2], said


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        (
            {"stage": "model", "message": "Loading the embedding model… 40 %"},
            "Loading the embedding model… 40 %",
        ),
        ({"stage": "sync", "message": "Reading 3 changed files…"}, "Reading 3 changed files…"),
    ],
)
def test_what_an_answer_waits_for_is_told(home: Home, progress: dict[str, str], told: str) -> None:
    with ScriptedDaemon(home.socket, {"ask": reply(ANSWER, progress=[progress])}):
        done = home.run(*ASK)
    assert done.code == 0
    assert told in done.err
    assert told not in done.out


@pytest.mark.parametrize(
    "error",
    [
        NotRunning("/s"), StaleSocket("/s"), Starting(7), BusyDaemon(5.0), OtherVersion("It is another version."),
        OlderDaemon({"version": OLD}), OtherUser("Another user (uid 7) listens at /s; nothing was sent."),
        ConnectionLost(),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_no_way_of_having_no_daemon_is_without_a_hint(error: DaemonUnavailable) -> None:
    assert error.message.endswith((".", ")."))
    assert error.hint
    assert isinstance(error, CopilotError)
    assert error.code != DaemonUnavailable.code or type(error) is DaemonUnavailable


# ------------------------------------------------------------------------------------- two versions


@pytest.mark.parametrize(
    ("version", "started_by", "older", "replaced"),
    [
        (OLD, "client", True, True), (OLD, "systemd", True, False), (OLD, "launchd", True, False),
        (OLD, "user", True, False), (__version__, "client", False, False), ("99.0", "client", False, False),
        ("", "client", True, True), (f"{__version__}rc1", "client", False, False),
    ],
)  # fmt: skip
def test_only_an_older_daemon_that_a_client_started_may_be_replaced(
    version: str, started_by: str, older: bool, replaced: bool
) -> None:
    said = {"version": version, "started_by": started_by}
    assert (is_older(said), may_replace(said)) == (older, replaced)


def test_an_older_daemon_of_a_service_answers_and_is_named_with_the_command(home: Home) -> None:
    hello = {"version": OLD, "started_by": "systemd"}
    with ScriptedDaemon(home.socket, {"ask": reply(ANSWER, deltas=["It is so."])}, hello) as daemon:
        done = home.run("ask", "x")
        assert not daemon.stopped.is_set(), "somebody else looks after it"
    assert done.code == 0
    assert done.out.startswith("It is so.")
    assert done.err == f"The daemon is still version {OLD}. Next: copilot restart\n"


@pytest.mark.parametrize(
    ("hello", "speaks"),
    [
        ({"version": "99.0", "protocol": wire.PROTOCOL + 1, "oldest_protocol": wire.PROTOCOL}, True),
        ({"version": OLD, "protocol": wire.OLDEST_PROTOCOL, "oldest_protocol": wire.OLDEST_PROTOCOL}, True),
        ({"version": "99.0", "protocol": wire.PROTOCOL + 1, "oldest_protocol": wire.PROTOCOL + 1}, False),
        ({"version": OLD, "protocol": wire.OLDEST_PROTOCOL - 1}, False),
    ],
)
def test_either_side_older_by_one_release_still_talks(
    home: Home, hello: dict[str, Any], speaks: bool
) -> None:
    with ScriptedDaemon(home.socket, {"ask": reply(ANSWER)}, hello):
        done = home.run(*ASK)
    assert done.code == (0 if speaks else 3)
    if not speaks:
        assert str(hello["version"]) in done.err
        assert __version__ in done.err


def test_results_of_a_newer_daemon_may_have_more_fields(home: Home) -> None:
    with ScriptedDaemon(home.socket, {"ask": reply({**ANSWER, "novelty": {"a": [1]}, "citations": []})}):
        done = home.run(*ASK)
    assert (done.code, done.out.splitlines()[0]) == (0, "It is so. [a > B]")


@pytest.mark.e2e
@pytest.mark.xdist_group("journey")
@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="finds processes in /proc")
def test_an_older_daemon_that_a_client_started_is_replaced_by_the_next_question(home: Home) -> None:
    (home.path / "docs").mkdir()
    (home.path / "docs" / "a.md").write_text("# A\n\n## Port\n\nThe server listens on port 8080.\n")
    older = (
        "import copilotd; copilotd.__version__ = '0.0.9'\n"
        "import sys; from copilotd.cli import main; main(['--quiet'])"
    )
    daemon = subprocess.Popen([sys.executable, "-c", older], env={**home.env, wire.STARTED_BY: "client"})
    try:
        deadline = time.monotonic() + 60
        while home.run("status").code == 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert daemon.poll() is None
        done = home.run("index", "docs")
        assert done.code == 0, done.err
        asked = home.run("ask", "Which port does the server listen on?")
        assert asked.code == 0, asked.err
        assert "8080" in asked.out
        assert daemon.wait(60) == 0, "the older one has ended in order"
        assert f'"version": "{__version__}"'.replace(" ", "") in home.run("start", "--json").out.replace(
            " ", ""
        )
    finally:
        home.run("stop")
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()

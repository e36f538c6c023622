"""Failures that users of other daemons reported, replayed on the real one: kills, strangers, aborts, suspends."""

from __future__ import annotations

import contextlib
import json
import os
import plistlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home
from support.daemon_process import exchange
from support.llm_servers import LLMServer, OpenAIDialect, Reply, Request, serving
from support.scripted_daemon import ScriptedDaemon
from support.shared import REPOSITORY, SHARED, needs_shared

from copilot_client.connection import Connection
from copilotd import wire
from copilotd.index.catalog import DATABASE_NAME

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("journey")]

FIXTURES = REPOSITORY / "tests" / "fixtures" / "docs"
QUESTION = "How do I configure the database connection?"
SAID = "Put the connection string into the variable DATABASE_URL before the first start [A]."
ANSWERED = SAID.replace("[A]", "[setup_guide > Database Config]")
in_proc = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="finds processes in /proc")


@pytest.fixture
def home() -> Iterator[Home]:
    """A home without a daemon and without an index."""
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        shutil.copytree(FIXTURES, home.path / "docs")
        yield home
        home.run("stop")


@pytest.fixture(scope="module")
def served() -> Iterator[Home]:
    """A home whose daemon runs; tests leave it as they found it."""
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        shutil.copytree(FIXTURES, home.path / "docs")
        done = home.run("index", "docs")
        assert done.code == 0, done.err
        yield home
        home.run("stop")


def eventually(happened: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def pid_of(home: Home) -> int:
    return int(json.loads(home.run("status", "--json").out)["pid"])


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def log_of(home: Home) -> str:
    return (home.state / "log" / "copilotd.log").read_text()


def kill(home: Home) -> None:
    pid = pid_of(home)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not runs(pid), "the daemon is gone")


# ------------------------------------------------------------------------------- DMN-02, DMN-03


@in_proc
def test_dmn_02_five_asks_after_a_kill_say_the_same_and_start_nothing(home: Home) -> None:
    home.run("start")
    kill(home)
    assert home.socket.exists(), "the case is about a socket file that is left behind"
    asks = [
        subprocess.Popen(
            home.command("ask", "--no-start", QUESTION), env=home.env, stderr=subprocess.PIPE, text=True
        )
        for _ in range(5)
    ]
    said = {(ask.communicate(timeout=60)[1], ask.returncode) for ask in asks}
    sentence = f"Error: The daemon is not running; its last one left {home.socket} behind.\n"
    assert said == {(f"{sentence}  Next: copilot start\n", 3)}
    assert home.run("status").code == 3


@in_proc
def test_dmn_02_five_asks_after_a_kill_are_answered_by_one_daemon(home: Home) -> None:
    assert home.run("index", "docs").code == 0
    kill(home)
    asks = [
        subprocess.Popen(
            home.command("ask", QUESTION), env=home.env, stdout=subprocess.PIPE, text=True, cwd=home.path
        )
        for _ in range(5)
    ]
    outputs = [ask.communicate(timeout=120)[0] for ask in asks]
    assert [ask.returncode for ask in asks] == [0] * 5
    assert all("DATABASE_URL" in output for output in outputs)
    assert home.run("stop").code == 0
    assert home.run("status").code == 3, "no second one is left"


def test_dmn_02_a_socket_whose_daemon_does_not_answer_is_no_hang(home: Home) -> None:
    home.run("start")
    pid = pid_of(home)
    os.kill(pid, signal.SIGSTOP)
    try:
        done = home.run("ask", "--no-start", QUESTION)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.code == 3
    assert "did not answer within" in done.err
    assert "copilot restart" in done.err


@in_proc
def test_dmn_03_a_pid_that_names_a_stranger_stops_nothing_and_signals_nobody(home: Home) -> None:
    home.lock.parent.mkdir(mode=0o700)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            for file in (home.lock, home.socket.with_name(f"{home.socket.name}.lock")):
                file.write_text(json.dumps({"pid": stranger.pid, "socket": str(home.socket)}))
            assert home.run("status").code == 3
            assert home.run("stop").out == "The daemon is not running.\n"
            assert home.run("start").code == 0
            assert pid_of(home) != stranger.pid
            assert home.run("stop").code == 0
            assert stranger.poll() is None
        finally:
            stranger.kill()


# ------------------------------------------------------------------------------- DMN-07, DMN-08, DMN-10


def test_dmn_07_a_shared_runtime_folder_and_no_umask_leave_everything_private(home: Home) -> None:
    shared = home.path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    shell = f"umask 000; exec {sys.executable} -m copilot_client index docs"
    done = subprocess.run(
        ["sh", "-c", shell],
        env={**home.env, "XDG_RUNTIME_DIR": str(shared), "TMPDIR": str(shared)},
        cwd=home.path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (home.state.stat().st_mode & 0o777, home.socket.stat().st_mode & 0o777) == (0o700, 0o600)
    ours = [path for path in shared.iterdir() if "copilot" in path.name]
    assert ours == [], "nothing of ours is where others may write"
    for folder in (home.state, home.lock.parent):
        for path in folder.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_dmn_07_a_folder_open_to_others_is_refused_with_its_reason(home: Home, mode: int) -> None:
    folder = home.path / "open"
    folder.mkdir()
    folder.chmod(mode)
    done = home.run("start", env={"COPILOT_SOCKET": str(folder / "c.sock")})
    assert done.code == 3
    assert f"open to other users (mode {mode:04o})" in done.err
    assert f"chmod 700 {folder}" in done.err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_dmn_07_a_name_that_another_user_took_first_is_refused(home: Home) -> None:
    folder = home.path / "taken"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    done = home.run("start", env={"COPILOT_SOCKET": str(folder / "c.sock")})
    assert done.code == 3
    assert "belongs to user 65534" in done.err


def test_dmn_08_a_service_without_a_key_says_where_a_service_has_it_from(home: Home) -> None:
    settings = home.path / "h" / ".config" / "copilot" / ".env"
    settings.parent.mkdir(parents=True, mode=0o700)
    settings.write_text("LLM_PROVIDER=openai\nLLM_MODEL=gpt-test\n")
    settings.chmod(0o600)
    bare = Home(home.path, {"HOME": home.env["HOME"], "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)})
    try:
        assert bare.run("index", "docs").code == 0
        # The shell that asks has a key; the daemon was started without one.
        done = bare.run("ask", QUESTION, env={"OPENAI_API_KEY": "sk-shell"})
        assert done.code == 1
        for part in (
            "The daemon has no key for openai",
            "OPENAI_API_KEY",
            str(settings),
            "copilot config set OPENAI_API_KEY",
        ):
            assert part in done.err
        with serving(OpenAIDialect().answer(SAID)) as server:
            with settings.open("a") as file:
                file.write(f"OPENAI_API_KEY=sk-file\nOPENAI_BASE_URL={server.url}/v1\n")
            assert bare.run("restart").code == 0
            assert ANSWERED in bare.run("ask", QUESTION).out
            assert server.requests[0].headers["authorization"] == "Bearer sk-file"
    finally:
        bare.run("stop")


@pytest.mark.parametrize("name", ["ho me", "h&o<m>e"])
def test_dmn_10_log_paths_of_the_plist_are_absolute_escaped_and_the_users_own(home: Home, name: str) -> None:
    place = home.path / name
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "copilotd", "--print-unit", "launchd"],
        env={"HOME": str(place), "PATH": home.env["PATH"], "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    job = plistlib.loads(done.stdout)
    for key in ("StandardOutPath", "StandardErrorPath"):
        assert os.path.isabs(job[key])
        assert job[key].startswith(f"{place}/")
        assert "~" not in job[key]
        assert "$" not in job[key]


# ------------------------------------------------------------------------------- DMN-13


@in_proc
@pytest.mark.parametrize("asked", [False, True], ids=["signal", "shutdown"])
def test_dmn_13_a_held_write_lock_does_not_hold_up_the_end(home: Home, asked: bool) -> None:
    assert home.run("index", "docs").code == 0
    pid = pid_of(home)
    with contextlib.closing(sqlite3.connect(home.lock.with_name(DATABASE_NAME))) as outsider:
        outsider.execute("BEGIN IMMEDIATE")
        (home.path / "docs" / "late.md").write_text("# Late\n\n## Kiln\n\nThe kiln cools for 14 hours.\n")
        home.run("search", "kiln")  # so that a write is under way
        if asked:
            with Connection.open(home.socket) as connection:
                connection.hello()
                connection.call("shutdown", {})
        else:
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not runs(pid), "the daemon ends while the lock is held")
        outsider.rollback()
    assert "event=stopped exit=0" in log_of(home)
    assert "database is locked" in log_of(home) or "without waiting" in log_of(home)
    assert "DATABASE_URL" in home.run("ask", QUESTION).out, "the last good save is intact"
    assert "14 hours" in home.run("ask", "How long does the kiln cool?").out, "what was cut off is done anew"


# ------------------------------------------------------------------------------- DMN-14, DMN-15


def without_end(dialect: OpenAIDialect) -> Callable[[Request], Reply]:
    """An LLM that never stops talking about the first question and answers every other at once."""

    def answer(request: Request) -> Reply:
        if "first question" not in json.dumps(request.body):
            return dialect.answer(SAID)
        words = tuple(f"{SAID} Remainder {number} [A]. " for number in range(5000))
        return Reply(
            headers=dialect.answer("").headers,
            pieces=dialect.unfinished(*words, ending="hold").pieces,
            pause_s=0.02,
            ending="hold",
        )

    return answer


@pytest.fixture
def talking(home: Home) -> Iterator[tuple[Home, LLMServer]]:
    """A daemon whose provider is :func:`without_end`."""
    with serving(without_end(OpenAIDialect())) as server:
        home.env.update(
            LLM_PROVIDER="openai", LLM_MODEL="m", OPENAI_API_KEY="sk-x", OPENAI_BASE_URL=f"{server.url}/v1"
        )
        assert home.run("index", "docs").code == 0
        yield home, server
        home.run("stop")


def interrupt_after_the_first_words(home: Home, server: LLMServer) -> None:
    server.disconnected.clear()
    asking = subprocess.Popen(
        home.command("ask", f"first question: {QUESTION}"),
        env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert asking.stdout is not None
    assert asking.stdout.read(20) == SAID[:20].encode()
    asking.send_signal(signal.SIGINT)
    _, err = asking.communicate(timeout=60)
    assert (asking.returncode, b"Traceback" in err) == (130, False)
    assert server.disconnected.wait(60), "the provider's stream is closed"


@in_proc
def test_dmn_14_15_aborted_answers_leave_nothing_behind(talking: tuple[Home, LLMServer]) -> None:
    home, server = talking
    interrupt_after_the_first_words(home, server)
    assert ANSWERED in home.run("ask", QUESTION).out
    folder = Path(f"/proc/{pid_of(home)}/fd")
    before = len(list(folder.iterdir()))
    for _ in range(20):
        interrupt_after_the_first_words(home, server)
        answer, _, sources = home.run("ask", QUESTION).out.partition("\n\nSources:\n")
        assert answer == ANSWERED
        assert "Remainder" not in sources
    eventually(lambda: len(list(folder.iterdir())) <= before, "descriptors are back to what they were")


@in_proc
def test_dmn_14_a_client_that_is_killed_in_mid_answer_is_one_too(talking: tuple[Home, LLMServer]) -> None:
    home, server = talking
    pid = pid_of(home)
    with Connection.open(home.socket) as connection:
        asked = wire.encode_request(1, "ask", {"query": f"first question: {QUESTION}", "stream": True})
        connection._socket.settimeout(60)
        connection._socket.sendall(asked)
        heard = b""
        while b'"delta"' not in heard:
            heard += connection._socket.recv(1 << 16)
    assert server.disconnected.wait(60)
    assert ANSWERED in home.run("ask", QUESTION).out
    assert pid_of(home) == pid


# ------------------------------------------------------------------------------- DMN-18, DMN-19, DMN-20


@pytest.mark.parametrize("theirs", [0, wire.PROTOCOL + 7, None])
def test_dmn_18_another_protocol_is_named_with_both_versions_and_nothing_is_done(
    home: Home, theirs: int | None
) -> None:
    hello = {"version": "9.9.9", "protocol": theirs}
    with ScriptedDaemon(home.socket, {}, hello) as daemon:
        for command in (("forget", "docs"), ("index", "docs"), ("ask", "x")):
            done = home.run(*command)
            assert done.code == 3
            assert "9.9.9" in done.err
            assert "copilot restart" in done.err
        changing = [request.method for request in daemon.requests if request.method in ("forget", "index")]
    assert changing == [], "what changes something is not sent to a daemon that may misread it"


def test_dmn_18_a_greeting_the_daemon_does_not_understand_is_refused(served: Home) -> None:
    for params in ({"version": 7, "extra": True}, {"protocol": 1, "surprise": []}):
        with Connection.open(served.socket) as connection:
            message = exchange(connection._socket, "hello", **params)
        assert isinstance(message, wire.Failure)
        assert "hello has no parameter" in message.error.message
    assert served.run("status").code == 0


def test_dmn_19_what_does_not_speak_and_holds_no_lock_is_left_alone(home: Home) -> None:
    with ScriptedDaemon(home.socket, {}, {"protocol": 0, "server": "elsewhere"}) as daemon:
        done = home.run("stop")
        assert done.code == 3
        assert "was not signalled" in done.err
        assert f"lsof {home.socket}" in done.err
        assert "shutdown" not in [request.method for request in daemon.requests]


@in_proc
def test_dmn_19_stop_ends_a_daemon_that_does_not_answer_by_its_verified_lock(home: Home) -> None:
    home.run("start")
    pid = pid_of(home)
    os.kill(pid, signal.SIGSTOP)
    stopping = subprocess.Popen(home.command("stop"), env=home.env, stdout=subprocess.PIPE, text=True)
    # A stopped process takes the signal when it goes on.
    eventually(lambda: _pending(pid, signal.SIGTERM), "SIGTERM was sent")
    os.kill(pid, signal.SIGCONT)
    out, _ = stopping.communicate(timeout=60)
    assert (stopping.returncode, out) == (0, f"The daemon (pid {pid}) has stopped after SIGTERM.\n")


def _pending(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [line.split()[1] for line in status.splitlines() if line.startswith(("ShdPnd", "SigPnd"))]
    return any(int(mask, 16) & 1 << (number - 1) for mask in masks)


@pytest.mark.parametrize("command", [("ask", QUESTION), ("index", "docs"), ("start",)])
def test_dmn_20_a_newer_index_is_refused_and_not_touched(home: Home, command: tuple[str, ...]) -> None:
    home.lock.parent.mkdir(mode=0o700)
    database = home.lock.with_name(DATABASE_NAME)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 999")
        connection.execute("CREATE TABLE chunks (future TEXT)")
        connection.execute("INSERT INTO chunks VALUES ('kept')")
        connection.commit()
    before = database.read_bytes()
    done = home.run(*command)
    assert (done.code, done.out) == (3, "")
    assert "made by a newer version" in done.err
    assert "no such column" not in done.err
    assert database.read_bytes() == before


def test_dmn_20_an_unknown_key_is_a_warning_and_a_wrong_value_an_error(home: Home) -> None:
    settings = home.path / "c" / "copilot" / ".env"
    settings.parent.mkdir(parents=True)
    settings.write_text("SETTING_OF_TOMORROW=1\n")
    settings.chmod(0o600)
    assert home.run("start").code == 0
    assert "unknown setting SETTING_OF_TOMORROW is ignored" in home.run("status").out
    home.run("stop")
    settings.write_text("TOP_K=many\n")
    done = home.run("start")
    assert done.code == 3
    assert "TOP_K must be a whole number from 1 to 100" in done.err


# ------------------------------------------------------------------------------- DMN-24, DMN-25


def test_dmn_24_two_indexes_answer_from_their_own_documents(home: Home) -> None:
    indexes = {"alpha": {"INDEX_DIR": str(home.path / "a1")}, "beta": {"INDEX_DIR": str(home.path / "b1")}}
    for name, env in indexes.items():
        folder = home.path / name
        folder.mkdir()
        (folder / "kiln.md").write_text(f"# Kiln\n\n## Firing\n\nThe {name} kiln fires at night.\n")
        assert home.run("index", name, env=env).code == 0
    try:
        for name, env in indexes.items():
            found = home.run("search", "when does the kiln fire", "--json", env=env).out
            assert f"The {name} kiln fires at night." in found
            (other,) = indexes.keys() - {name}
            assert f"{other} kiln" not in found
        statuses = [json.loads(home.run("status", "--json", env=env).out) for env in indexes.values()]
        assert len({status["pid"] for status in statuses}) == 2
        assert len({status["socket"] for status in statuses}) == 2
        home.run("stop", env=indexes["alpha"])
        assert home.run("status", env=indexes["beta"]).code == 0, "stop ends the one it was meant for"
    finally:
        for env in indexes.values():
            home.run("stop", env=env)


@pytest.mark.parametrize("command", ["index", "forget"])
def test_dmn_25_a_command_without_its_folder_takes_none(served: Home, command: str) -> None:
    done = served.run(command, cwd=served.path / "h")
    assert done.code == 2
    assert "Missing argument" in done.err
    roots = json.loads(served.run("roots", "--json").out)["roots"]
    assert [root["path"] for root in roots] == [str(served.path / "docs")]


@pytest.mark.parametrize("folder", ["~", "/", "."])
def test_dmn_25_home_and_root_are_not_indexed_without_a_word(served: Home, folder: str) -> None:
    done = served.run("index", folder, cwd=served.path / "h")
    assert done.code == 2
    assert "--yes" in done.err
    assert len(json.loads(served.run("roots", "--json").out)["roots"]) == 1


# ------------------------------------------------------------------------------- DMN-28, DMN-29


def test_dmn_28_a_provider_that_went_silent_gives_an_error_in_time_and_then_a_fresh_connection(
    home: Home,
) -> None:
    answer = OpenAIDialect().answer(SAID)
    silent = Reply(delay_s=600)
    with serving(answer, silent, answer) as server:
        home.env.update(
            LLM_PROVIDER="openai", LLM_MODEL="m", OPENAI_API_KEY="sk-x", PROVIDER_TIMEOUT_S="5",
            OPENAI_BASE_URL=f"{server.url}/v1",
        )  # fmt: skip
        assert home.run("index", "docs").code == 0
        assert ANSWERED in home.run("ask", QUESTION).out
        done = home.run("ask", QUESTION)
        assert done.code == 1
        assert "sent nothing" in done.err
        assert "5 s" in done.err
        assert ANSWERED in home.run("ask", QUESTION).out
        assert server.connections == 3, "no question waits on the connection of another"


def test_dmn_28_a_connection_that_dies_before_the_first_byte_is_tried_once_more(home: Home) -> None:
    with serving(Reply(ending="drop"), OpenAIDialect().answer(SAID)) as server:
        home.env.update(
            LLM_PROVIDER="openai", LLM_MODEL="m", OPENAI_API_KEY="sk-x", OPENAI_BASE_URL=f"{server.url}/v1"
        )
        assert home.run("index", "docs").code == 0
        assert ANSWERED in home.run("ask", QUESTION).out
        assert server.connections == 2


def test_dmn_29_time_that_the_daemon_was_stopped_is_not_counted_as_silence(home: Home) -> None:
    home.env.update(REQUEST_TIMEOUT_S="4")
    many = home.path / "many"
    many.mkdir()
    for number in range(40):
        parts = "\n\n".join(f"## Part {part}\n\nKiln {number}, part {part}." for part in range(4))
        (many / f"{number}.md").write_text(f"# Page {number}\n\n{parts}\n")
    home.run("start")
    pid = pid_of(home)
    indexing = subprocess.Popen(
        home.command("index", "many", "--json"),
        env=home.env, cwd=home.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with Connection.open(home.socket) as connection:
        eventually(lambda: connection.call("status", {})["documents"], "indexing is under way")
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(6)
    finally:
        os.kill(pid, signal.SIGCONT)
    out, err = indexing.communicate(timeout=120)
    assert indexing.returncode == 0, err
    assert json.loads(out)["files"] == 40
    assert pid_of(home) == pid, "nobody restarted a healthy daemon"


@needs_shared
def test_every_case_of_a_daemon_is_replayed_here() -> None:
    lines = (SHARED / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = {case["id"] for case in map(json.loads, lines) if case["id"].startswith("DMN-")}
    replays = (re.match(r"test_dmn((?:_\d\d)+)_", name) for name in globals())
    numbers = {number for replay in replays if replay for number in replay[1].split("_")[1:]}
    assert {f"DMN-{number}" for number in numbers} == cases

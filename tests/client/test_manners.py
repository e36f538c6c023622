"""Manners on the terminal: nothing from outside acts on it, and Ctrl-C, pipes and poor terminals are taken well."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.client_home import Home, temporary_home
from support.scripted_daemon import RawListener, ScriptedDaemon, failure, reply, until_gone
from support.terminal import Terminal

from copilotd.errors import CopilotError

# Clears the screen, sets the title, writes the clipboard, goes back over the line, turns text around; C1 forms too.
EVIL = "x\x1b[2J\x1b]0;t\x07\x1b]52;c;aGk=\x07\r\b\x9b2J\x9d0;t\x9c\u202e\x7fy"
FORBIDDEN = "\x1b\x07\x08\x0d\x7f\x9b\x9c\x9d\u202e"
PLACE = {
    "doc_title": EVIL, "section_heading": EVIL, "heading_path": [EVIL], "path": f"/d/{EVIL}.md",
    "path_uri": f"file:///d/{EVIL}.md", "relative_path": f"{EVIL}.md", "namespace": EVIL,
    "line_start": 1, "line_end": 2, "page": None,
}  # fmt: skip
ROOT = {"path": f"/{EVIL}", "namespace": EVIL, "documents": 1, "chunks": 1, "watch": EVIL, "state": EVIL,
        "include": [EVIL], "exclude": [EVIL]}  # fmt: skip
RESULTS: dict[str, dict[str, Any]] = {
    "ask": {
        "query": EVIL, "answer": EVIL, "known": True, "confidence": 0.9, "top_score": 0.9,
        "notices": [EVIL], "citations": [{"key": "A", "score": 0.8, "preview": EVIL, **PLACE}],
        "missing_topics": [EVIL], "needs_more": True,
        "freshness": {"generation": 1, "pending": 1, "pending_paths": [f"/d/{EVIL}"]}, "provider": EVIL, "model": EVIL,
    },
    "search": {
        "query": EVIL, "hits": [{**PLACE, "text": EVIL, "score": 0.5}], "notices": [EVIL], "freshness": {},
        "corrections": {EVIL: EVIL},
    },
    "section": {**PLACE, "text": EVIL},
    "status": {
        "pid": 1, "version": EVIL, "state": EVIL, "model": {"name": EVIL, "loaded": False, "error": EVIL},
        "roots": [ROOT],
        "skipped": [{"path": f"/d/{EVIL}", "reason": EVIL}], "errors": [EVIL], "warnings": [EVIL], "socket": EVIL,
        "index_dir": EVIL, "log_file": EVIL, "env_file": EVIL, "provider": EVIL, "llm_model": EVIL,
    },
    "roots": {"roots": [ROOT]},
    "reload": {"changed": [EVIL], "needs_restart": [EVIL], "warnings": [EVIL]},
    "check": {
        "clean": False, "repaired": 0, "documents": 1, "windows": 1, "seconds": 0.1,
        "findings": [{"kind": EVIL, "path": EVIL, "detail": EVIL}],
    },
}  # fmt: skip
COMMANDS = {
    "ask": ("ask", "x"), "search": ("search", "x"), "section": ("section", "a:1"), "status": ("status",),
    "roots": ("roots",), "reload": ("reload",), "check": ("check",),
}  # fmt: skip


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        yield home


def harmless(text: str) -> bool:
    return not set(text) & set(FORBIDDEN)


@pytest.mark.parametrize("method", COMMANDS)
def test_nothing_a_daemon_passes_on_acts_on_a_terminal(home: Home, method: str) -> None:
    with ScriptedDaemon(
        home.socket, {method: reply(RESULTS[method], deltas=[EVIL] if method == "ask" else [])}
    ):
        done = home.run(*COMMANDS[method])
        as_json = home.run(*COMMANDS[method], "--json")
    assert done.out
    assert harmless(done.out + done.err), done
    assert harmless(as_json.out + as_json.err), as_json
    assert "Traceback" not in done.err


@pytest.mark.parametrize("method", COMMANDS)
def test_nor_does_an_error(home: Home, method: str) -> None:
    with ScriptedDaemon(home.socket, {method: failure(CopilotError(EVIL, EVIL))}):
        done = home.run(*COMMANDS[method])
    assert done.code == 1
    assert harmless(done.out + done.err), done


def test_nor_what_was_typed_or_who_listens(home: Home) -> None:
    for arguments in (
        (EVIL,),
        ("ask",),
        ("forget", "--no-start", f"/{EVIL}"),
        ("config", "get", EVIL),
        ("completions", EVIL),
    ):
        done = home.run(*arguments)
        assert done.code != 0
        assert harmless(done.out + done.err), done
    with RawListener(home.socket, f"{EVIL}\n".encode()):
        done = home.run("status")
    assert (done.code, harmless(done.err)) == (3, True)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "", "COLUMNS": "20"}])
def test_without_colours_there_are_none(home: Home, env: dict[str, str]) -> None:
    with ScriptedDaemon(home.socket, {"status": reply(RESULTS["status"])}):
        terminal = Terminal(home.command("status"), {**home.env, "TERM": "xterm", **env}, home.path)
        try:
            assert terminal.wait_until_gone() == 0
            assert b"\x1b[" not in terminal.raw
        finally:
            terminal.close()


@pytest.mark.parametrize("columns", [20, 40, 200])
def test_hits_fit_the_terminal(home: Home, columns: int) -> None:
    hit = {
        **PLACE,
        "doc_title": "guide",
        "section_heading": "Port",
        "relative_path": "g.md",
        "namespace": "default",
    }
    hits = [{**hit, "path_uri": "", "text": "word " * 200, "score": 0.5}]
    with ScriptedDaemon(home.socket, {"search": reply({"query": "x", "hits": hits})}):
        terminal = Terminal(
            home.command("search", "x"), {**home.env, "TERM": "dumb"}, home.path, columns=columns
        )
        try:
            assert terminal.wait_until_gone() == 0
            previews = [line for line in terminal.shown.splitlines() if "word" in line]
            assert previews
            assert all(len(line) <= columns for line in previews), previews
        finally:
            terminal.close()


def test_the_log_goes_on_until_ctrl_c_which_is_quiet(home: Home) -> None:
    log = home.state / "log" / "copilotd.log"
    log.parent.mkdir()
    log.write_text(f"first {EVIL}\n")
    following = subprocess.Popen(
        home.command("logs", "-f"), env=home.env, cwd=home.path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert following.stdout is not None
    first = following.stdout.readline()
    assert first.startswith("first x")
    assert harmless(first.rstrip("\n"))
    log.rename(log.with_name("copilotd.log.1"))
    log.write_text("after the rotation\n")
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=60)
    assert (following.returncode, err.strip()) == (130, "")


def test_a_reader_that_goes_away_ends_the_log(home: Home) -> None:
    log = home.state / "log" / "copilotd.log"
    log.parent.mkdir()
    log.write_text("line\n" * 50_000)
    shell = f'{shlex.join(home.command("logs", "-n", "50000"))} | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", shell], env=home.env, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("line\n141\n", "")


@pytest.mark.parametrize(
    "command", [("search", "x"), ("section", "a:1"), ("check",), ("ask", "x"), ("rebuild",)]
)
def test_ctrl_c_while_the_daemon_works_is_quiet_and_cancels(home: Home, command: tuple[str, ...]) -> None:
    with ScriptedDaemon(home.socket, {command[0]: until_gone}) as daemon:
        process = subprocess.Popen(
            home.command(*command), env=home.env, cwd=home.path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not any(request.method == command[0] for request in daemon.requests):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_ctrl_c_while_a_greeting_is_awaited(home: Home) -> None:
    with RawListener(home.socket, b"") as listener:
        process = subprocess.Popen(
            home.command("ask", "x"), env=home.env, cwd=home.path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert not listener.stopped.is_set()
        # Imported, connected, and waiting: the descriptor of the socket is open.
        deadline = time.monotonic() + 60
        while not _is_connected(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def _is_connected(pid: int) -> bool:
    folder = f"/proc/{pid}/fd"
    if not os.path.isdir("/proc/self/fd"):
        return True
    try:
        return any(os.readlink(f"{folder}/{name}").startswith("socket:") for name in os.listdir(folder))
    except OSError:
        return False

"""``copilot chat`` on a real terminal and in a pipe, with the real daemon and model."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home
from support.llm_servers import OpenAIDialect, serving
from support.shared import REPOSITORY
from support.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("chat")]

FIXTURES = REPOSITORY / "tests" / "fixtures" / "docs"
BACKUP = """# Backups

## Restore a backup

To restore a backup, run `borg extract` in an empty folder.

## Restore a backup on Windows

On Windows, restore a backup from the WSL shell with `borg extract`.
"""
QUESTION = "How do I restore a backup?"

Chat = Callable[..., Terminal]


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Home]:
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        home.env["TERM"] = "xterm-256color"
        shutil.copytree(FIXTURES, home.path / "docs")
        (home.path / "docs" / "backup.md").write_text(BACKUP)
        done = home.run("index", "docs")
        assert done.code == 0, done.err
        yield home
        home.run("stop")


@pytest.fixture
def home(shared_home: Home) -> Home:
    """The one daemon of this module, with nothing said to it yet."""
    done = shared_home.run("conversations", "delete", "--all")
    assert done.code == 0, done.err
    return shared_home


@pytest.fixture
def chat(home: Home) -> Iterator[Chat]:
    opened: list[Terminal] = []

    def start(*arguments: str, columns: int = 80, **environment: str) -> Terminal:
        terminal = Terminal(
            home.command("chat", *arguments), {**home.env, **environment}, home.path, columns=columns
        )
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


def fake_editor(home: Home) -> tuple[Path, Path]:
    log, editor = home.path / "opened", home.path / "nano"
    editor.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}\n')
    editor.chmod(0o755)
    return editor, log


def test_a_conversation_on_a_terminal(home: Home, chat: Chat) -> None:
    editor, log = fake_editor(home)
    terminal = chat(EDITOR=str(editor))
    terminal.wait_for("/help lists the commands")
    terminal.wait_for(">")
    terminal.type(f"{QUESTION}\r")
    terminal.wait_for("Sources:")
    # Backquotes are drawn as bold, and the citation leads to its file.
    assert "run borg extract in" in terminal.shown.replace("\n", " ")
    path = home.path / "docs" / "backup.md"
    assert f";file://{path}\x1b\\".encode() in terminal.raw

    terminal.type("and on Windows?\r")
    terminal.wait_for("Asked as: How do I restore a backup on Windows?")
    terminal.wait_for("Sources:", times=2)
    assert "WSL" in terminal.shown

    terminal.type("/opne\r")
    terminal.wait_for("did you mean /open?")
    terminal.type("/open 99\r")
    terminal.wait_for("number of a source")
    terminal.type("/open 1\r")
    terminal.type("/sources\r")
    terminal.wait_for("Sources:", times=3)
    line, opened = log.read_text().splitlines()
    assert opened == str(path)
    assert line.startswith("+")

    terminal.type("/save talk.md\r")
    terminal.wait_for("Saved to talk.md")
    saved = (home.path / "talk.md").read_text()
    assert saved.startswith(f"# {QUESTION}\n")
    assert "*Asked as: How do I restore a backup on Windows?*" in saved

    terminal.type("/new\r")
    terminal.wait_for("A new conversation.")
    assert terminal.leave() == 0

    (history,) = home.state.glob("chat-*.history")
    assert QUESTION in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    listed = json.loads(home.run("conversations", "--json").out)["conversations"]
    assert [(item["title"], item["turns"]) for item in listed] == [(QUESTION, 2)]


def test_keys_for_several_lines(home: Home, chat: Chat) -> None:
    terminal = chat()
    terminal.wait_for(">")
    terminal.type("How do I\x1b\rrestore\\\ra backup?\r")
    terminal.wait_for("Sources:")
    terminal.type("nonsense\x03")
    terminal.wait_for("Ctrl-D leaves.", times=2)
    terminal.type("/quit\r")
    assert terminal.wait_until_gone() == 0
    (found,) = json.loads(home.run("conversations", "--json").out)["conversations"]
    assert (found["title"], found["turns"]) == ("How do I restore a backup?", 1)


def test_ctrl_c_cancels_at_the_provider_and_the_chat_goes_on(home: Home, chat: Chat) -> None:
    dialect = OpenAIDialect()
    with serving(dialect.unfinished("Run borg extract [A]. ", "Then wait", ending="hold")) as server:
        provider = {
            "LLM_PROVIDER": "openai",
            "LLM_MODEL": "gpt-test",
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{server.url}/v1",
        }
        assert home.run("restart", env=provider).code == 0
        terminal = chat()
        terminal.wait_for(">")
        terminal.type(f"{QUESTION}\r")
        terminal.wait_for("borg extract")
        terminal.type("\x03")
        terminal.wait_for("Cancelled.")
        assert server.disconnected.wait(60)
        terminal.wait_for("(incomplete)")
        terminal.type("/namespace\r")
        terminal.wait_for("Answering from all namespaces. Known: default.")
        assert terminal.leave() == 0
    assert json.loads(home.run("conversations", "--json").out)["conversations"] == []
    assert home.run("restart").code == 0


def test_a_simple_terminal_gets_plain_text(home: Home, chat: Chat) -> None:
    terminal = chat(TERM="dumb")
    terminal.wait_for(">")
    terminal.type(f"{QUESTION}\n")
    terminal.wait_for("Sources:")
    terminal.type("/quit\n")
    assert terminal.wait_until_gone() == 0
    assert b"\x1b" not in terminal.raw
    assert "run `borg extract` in an empty folder" in terminal.shown.replace("\n", " ")


def test_without_colours_and_on_a_narrow_one_nothing_is_lost(home: Home, chat: Chat) -> None:
    terminal = chat(NO_COLOR="1", columns=40)
    terminal.wait_for(">")
    terminal.type("How do I restore a backup on Windows?\r")
    terminal.wait_for("Sources:")
    assert terminal.leave() == 0
    assert "from the WSL shell with borg extract" in " ".join(terminal.shown.split())


def test_a_pipe_is_answered_line_by_line(home: Home) -> None:
    done = home.run("chat", stdin=f"{QUESTION}\nand on \\\nWindows?\n\n/sources\n".encode())
    assert done.code == 0, done.err
    assert done.out.count("Sources:") == 3
    assert "WSL" in done.out
    assert "\x1b" not in done.out
    assert "Asked as: How do I restore a backup on Windows?" in done.err
    failed = home.run("chat", "--continue", stdin=b"/frobnicate\nand on Windows?\n/open x\n")
    assert failed.code == 2
    assert "There is no command /frobnicate" in failed.err
    assert "Asked as:" in failed.err


def test_a_chat_that_may_not_start_the_daemon_says_so() -> None:
    with temporary_home() as home:
        done = home.run("chat", "--no-start", stdin=b"why?\n")
    assert done.code == 3
    assert "not running" in done.err


def test_ask_goes_on_with_the_last_conversation(home: Home) -> None:
    first = home.run("ask", "-c", "and on Windows?")
    assert (first.code, "no conversation to continue" in first.err) == (2, True)
    assert home.run("ask", QUESTION).code == 0
    done = home.run("ask", "--json", "-c", "and on Windows?")
    answer = json.loads(done.out)
    assert answer["asked_as"] == "How do I restore a backup on Windows?"
    shown = home.run("conversations", "show", answer["conversation"][:6]).out
    assert "## and on Windows?" in shown
    exported = json.loads(home.run("conversations", "export", "--json").out)
    assert [turn["question"] for turn in exported["messages"]] == [QUESTION, "and on Windows?"]
    assert home.run("conversations", "delete", "ffff").code == 2
    assert home.run("conversations", "delete").code == 2
    assert home.run("conversations", "delete", "--all").out == "Deleted 1 conversation.\n"
    assert home.run("conversations").out == "There are no conversations yet.\n"
    assert not any(os.scandir(home.path / "d" / "copilot" / "index" / "conversations"))

"""What was typed into a chat: question or command."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_client.chat.lines import COMMANDS, Command, help_lines, read_line, unknown_command
from copilot_client.chat.reading import LineReader


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("  why?  ", "why?"),
        ("", ""),
        ("/open 2", Command("open", "2")),
        ("/OPEN  2 ", Command("open", "2")),
        ("/save my file.md", Command("save", "my file.md")),
        ("/frobnicate", Command("frobnicate", "")),
        ("/etc/fstab, what is it?", "/etc/fstab, what is it?"),
        ("//new means what?", "/new means what?"),
        ("/", "/"),
        ("/2 of them", "/2 of them"),
    ],
)
def test_what_a_line_means(typed: str, meant: Command | str) -> None:
    assert read_line(typed) == meant


def test_an_unknown_command_is_helped() -> None:
    assert "did you mean /sources?" in unknown_command("source")
    assert "/help lists the commands" in unknown_command("xyzzy")


def test_help_names_every_command() -> None:
    text = "\n".join(help_lines())
    assert all(f"/{name}" in text for name in COMMANDS)


@given(st.text())
def test_any_line_is_one_or_the_other(text: str) -> None:
    line = read_line(text)
    assert isinstance(line, Command | str)
    assert not isinstance(line, str) or bool(line) == bool(text.strip())


def read_all(text: str) -> list[str]:
    reader, found = LineReader(io.StringIO(text)), []
    while (line := reader.read("> ")) is not None:
        found.append(line)
    return found


def test_a_backslash_joins_lines() -> None:
    assert read_all("one\\\ntwo\nthree\r\n") == ["one\ntwo", "three"]
    assert read_all("one\\") == ["one"]
    assert read_all("") == []

"""Completions, loaded into each shell that is installed, complete what that shell's user types."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home


@pytest.fixture
def home() -> Iterator[Home]:
    """A home in which ``copilot`` is a command on the PATH."""
    with temporary_home() as home:
        command = home.path / "bin" / "copilot"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m copilot_client "$@"\n')
        command.chmod(0o755)
        home.env.pop("PYTHONWARNINGS")
        home.env["PATH"] = f"{command.parent}:{home.env['PATH']}"
        yield home


def script_of(home: Home, shell: str) -> Path:
    done = home.run("completions", shell)
    assert done.code == 0, done.err
    script = home.path / f"completion.{shell}"
    script.write_text(done.out)
    return script


def run_in(home: Home, *command: str) -> list[str]:
    done = subprocess.run(
        command, env=home.env, cwd=home.path, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


CASES = [
    ("copilot se", {"search", "section", "service"}),
    ("copilot service un", {"uninstall"}),
    ("copilot ask --thr", {"--threshold"}),
    ("copilot completions z", {"zsh"}),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_bash(home: Home, line: str, expected: set[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    script = script_of(home, "bash")
    words = shlex.split(line)
    typed = " ".join(map(shlex.quote, words))
    shown = run_in(
        home, "bash", "--norc", "-c",
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(line)};"
        " COMP_POINT=${#COMP_LINE};"
        " function_=$(complete -p copilot | sed 's/.*-F \\([^ ]*\\).*/\\1/');"
        f" $function_ copilot {shlex.quote(words[-1])} {shlex.quote(words[-2])};"
        ' printf "%s\\n" "${COMPREPLY[@]}"',
    )  # fmt: skip
    assert set(shown) == expected


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_fish(home: Home, line: str, expected: set[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = script_of(home, "fish")
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete --do-complete {shlex.quote(line)}"],
        env=home.env, cwd=home.path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {entry.split("\t")[0] for entry in done.stdout.splitlines()} == expected


def test_zsh_loads_the_script_and_knows_the_command(home: Home) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script = script_of(home, "zsh")
    loaded = run_in(
        home, "zsh", "-f", "-c",
        f"autoload -Uz compinit; compinit -u -d {home.path}/dump; source {script}; print -r -- $_comps[copilot]",
    )  # fmt: skip
    assert loaded == ["_copilot_completion"]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_zsh(home: Home, line: str, expected: set[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script = script_of(home, "zsh")
    offered = home.path / "offered"
    words = " ".join(map(shlex.quote, shlex.split(line)))
    # Outside of zsh's line editor `compadd` and `_describe` don't work; what they would be given does.
    body = f"""
        autoload -Uz compinit; compinit -u -d {home.path}/dump
        source {script}
        compadd() {{ while [[ $1 != -a && $# -gt 0 ]]; do shift; done; print -rl -- "${{(@P)2}}" >> {offered} }}
        _describe() {{
            for name in "$@"; do [[ $name == completions* ]] && print -rl -- "${{(@P)name}}" >> {offered}; done
        }}
        words=({words}); CURRENT={len(shlex.split(line))}
        _copilot_completion
    """
    run_in(home, "zsh", "-f", "-c", body)
    assert {entry.split(":")[0] for entry in offered.read_text().splitlines() if entry} == expected


def test_an_unknown_shell_is_a_usage_error(home: Home) -> None:
    done = home.run("completions", "tcsh")
    assert done.code == 2
    assert "fish" in done.err


def test_completing_starts_no_daemon_and_loads_nothing_heavy(home: Home) -> None:
    done = home.run(env={"_COPILOT_COMPLETE": "bash_complete", "COMP_WORDS": "copilot as", "COMP_CWORD": "1"})
    assert done.out == "plain,ask\n"
    assert not home.socket.exists()

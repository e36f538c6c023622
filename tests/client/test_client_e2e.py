"""The client starts, survives and stops the real daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home

pytestmark = pytest.mark.e2e


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home() as home:
        # What the daemon's libraries warn of is not this test's business.
        home.env.pop("PYTHONWARNINGS")
        docs = home.path / "docs"
        docs.mkdir()
        (docs / "setup_guide.md").write_text(
            "# Guide\n\n## Database Config\n\nSet DATABASE_URL to the address.\n"
        )
        yield home
        home.run("stop")


def daemons(home: Home) -> list[int]:
    """Every daemon whose environment names this home."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"copilotd.cli" in command and os.fsencode(home.state.parent) in environment:
            found.append(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="finds processes in /proc")
def test_from_nothing_to_an_answer_through_a_kill(home: Home) -> None:
    done = home.run("index", "docs")
    assert (done.code, done.out) == (0, "Indexed 2 chunks from 1 files (1 new, 0 unchanged)\n")
    assert done.err.startswith("Starting the daemon…\n")
    pid = json.loads(home.run("status", "--json").out)["pid"]

    os.kill(pid, signal.SIGKILL)
    searches = [
        subprocess.Popen(home.command("search", "database"), env=home.env, stdout=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    outputs = [search.communicate(timeout=60)[0] for search in searches]
    assert [search.returncode for search in searches] == [0] * 5
    assert all("setup_guide.md:3-5" in output for output in outputs)
    assert len(daemons(home)) == 1

    assert "has stopped" in home.run("stop").out
    assert daemons(home) == []
    assert home.run("search", "database", "--no-start").code == 3

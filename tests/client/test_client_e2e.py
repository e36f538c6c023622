"""The client starts, survives and stops the real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home

from copilotd.index.catalog import DATABASE_NAME

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


def test_a_name_that_is_not_utf8_from_index_to_forget(home: Home) -> None:
    folder = os.fsencode(home.path) + b"/dir\xff"
    os.mkdir(folder)
    with open(folder + b"/ki\xfeln.md", "w", encoding="utf-8") as file:
        file.write("# Kiln\n\n## Cooling\n\nThe kiln cools for 14 hours before it is opened.\n")

    def run(*arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
        command = [*map(os.fsencode, home.command()), *map(os.fsencode, arguments)]
        return subprocess.run(
            command, env=home.env, capture_output=True, timeout=120, cwd=home.path, check=False
        )

    indexed = run("index", b"dir\xff")
    assert (indexed.returncode, indexed.stdout.split()[:2]) == (0, [b"Indexed", b"2"]), indexed.stderr
    asked = run("ask", "How long does the kiln cool?", "--path", b"ki\xfeln.md")
    assert b"14 hours" in asked.stdout
    assert b"ki\\xfeln.md:5" in asked.stdout
    section = run("section", "1")
    assert b"14 hours" in section.stdout, section.stderr
    forgotten = run("forget", b"dir\xff")
    assert (forgotten.returncode, b"dir\\xff" in forgotten.stdout) == (0, True)
    assert run("roots").stdout.startswith(b"No folder is indexed yet")


def test_an_index_of_a_newer_version_and_an_unknown_setting(home: Home) -> None:
    home.lock.parent.mkdir(mode=0o700)
    database = home.lock.with_name(DATABASE_NAME)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA user_version = 999")
    before = database.read_bytes()
    settings = home.path / "c" / "copilot" / ".env"
    settings.parent.mkdir(parents=True)
    settings.write_text("TOP_KK=7\n")
    settings.chmod(0o600)
    for arguments in (("start",), ("search", "x")):
        done = home.run(*arguments)
        assert (done.code, done.out) == (3, "")
        assert "made by a newer version" in done.err
    assert database.read_bytes() == before
    (log,) = home.path.glob("s/copilot/log/copilotd.log")
    assert "did you mean TOP_K?" in log.read_text()


def test_an_index_removed_under_the_daemon_is_begun_anew_by_the_next_command(home: Home) -> None:
    home.run("index", "docs")
    pid = json.loads(home.run("status", "--json").out)["pid"]
    shutil.rmtree(home.lock.parent)
    told = home.run("status")
    # It may have ended already.
    assert "was removed or replaced" in told.out or told.code == 3
    again = home.run("index", "docs")
    deadline = time.monotonic() + 60
    while again.out != "Indexed 2 chunks from 1 files (1 new, 0 unchanged)\n" and time.monotonic() < deadline:
        again = home.run("index", "docs")
    assert again.out == "Indexed 2 chunks from 1 files (1 new, 0 unchanged)\n", again.err
    assert json.loads(home.run("status", "--json").out)["pid"] != pid


def test_a_database_removed_under_the_daemon_is_made_anew_with_the_same_folders(home: Home) -> None:
    home.run("index", "docs")
    (database,) = home.path.glob("d/copilot/index/index.sqlite3")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    told = home.run("status")
    assert "index database in" in told.out + told.err or told.code == 3
    place = "[setup_guide > Database Config]"
    again = home.run("search", "address")
    deadline = time.monotonic() + 60
    while not (database.exists() and place in again.out) and time.monotonic() < deadline:
        time.sleep(0.2)
        again = home.run("search", "address")
    assert place in again.out, again.err
    assert database.exists()


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

"""Files, folders and disks that refuse: as another user than root, or on a disk that is full."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import Recorder, ask, found, running_engine
from support.shared import REPOSITORY

from copilotd.engine import Engine
from copilotd.errors import IndexError_

NOBODY = 65534
AS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not AS_ROOT, reason="only root can mount a small disk")


def index(engine: Engine, folder: Path) -> None:
    engine.index_root(str(folder), reporter=Recorder())


def as_nobody(tmp_path: Path, script: str) -> None:
    """Runs a script as a user whom permissions bind; root is told no by none."""
    code = f"""
import os, sys
from pathlib import Path
from support.engines import Recorder, found, running_engine, search
def found_paths(engine, word):
    hits = search(engine, word, top_k=50).hits
    return [hit.chunk.metadata.relative_path for hit in hits if word in hit.chunk.text.lower()]
def index(engine, docs):
    return engine.index_root(str(docs), reporter=Recorder())
# Whatever is imported late is loaded now: another user may not be able to read this Python.
import tempfile
with tempfile.TemporaryDirectory() as warm, running_engine(Path(warm, "i"), background=True) as engine:
    Path(warm, "docs").mkdir()
    Path(warm, "docs", "a.md").write_text("# A\\n\\nWarm.\\n")
    index(engine, Path(warm, "docs"))
    found(engine, "warm")
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
place = Path(sys.argv[1])
docs = place / "docs"
docs.mkdir()
(docs / "a.md").write_text("# A\\n\\nThe kiln.\\n")
(docs / "b.md").write_text("# B\\n\\nThe wheel.\\n")
{script}
"""
    place = tmp_path / "place"
    place.mkdir()
    if AS_ROOT:
        os.chown(place, NOBODY, NOBODY)
        for folder in (tmp_path, *tmp_path.parents):
            if folder.owner() == "root" and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_wat_13_a_file_that_cannot_be_read_is_named_and_tried_again(tmp_path: Path) -> None:
    as_nobody(tmp_path, """
with running_engine(place / "index") as engine:
    (docs / "a.md").chmod(0)
    report = index(engine, docs)
    assert [(Path(p).name, r) for p, r in report.skipped] == [("a.md", "no permission to read it")], report
    (docs / "a.md").chmod(0o644)
    assert found_paths(engine, "kiln") == ["a.md"]
    (docs / "a.md").chmod(0)
    assert found_paths(engine, "kiln") == []
    before = engine.status().embedded_total
    (docs / "a.md").chmod(0o644)
    assert found_paths(engine, "kiln") == ["a.md"]
    assert engine.status().embedded_total == before
""")  # fmt: skip


def test_wat_12_a_folder_that_becomes_readable(tmp_path: Path) -> None:
    as_nobody(tmp_path, """
(docs / "secret").mkdir()
(docs / "secret").chmod(0)
with running_engine(place / "index", background=True) as engine:
    index(engine, docs)
    (docs / "secret").chmod(0o755)
    (docs / "secret" / "s.md").write_text("# S\\n\\nThe secret.\\n")
    assert found_paths(engine, "secret") == ["secret/s.md"]
    (docs / "secret").chmod(0)
    found(engine, "secret")
    before = engine.status().embedded_total
    (docs / "secret").chmod(0o755)
    assert found_paths(engine, "secret") == ["secret/s.md"]
    assert engine.status().embedded_total == before
""")  # fmt: skip


def test_wat_08_a_root_whose_permission_flips(tmp_path: Path) -> None:
    as_nobody(tmp_path, """
with running_engine(place / "index") as engine:
    index(engine, docs)
    before = engine.status().embedded_total
    docs.chmod(0)
    result = search(engine, "kiln")
    assert result.hits == () and any("left out" in n for n in result.notices), result.notices
    docs.chmod(0o755)
    assert found_paths(engine, "kiln") == ["a.md"]
    assert engine.status().embedded_total == before
""")  # fmt: skip


def test_an_index_folder_that_cannot_be_written_is_named_and_left_alone(tmp_path: Path) -> None:
    as_nobody(tmp_path, """
from copilotd.errors import IndexError_
with running_engine(place / "index") as engine:
    index(engine, docs)
names = sorted(p.name for p in (place / "index").iterdir())
for path in (place / "index").iterdir():
    path.chmod(0o400)
(place / "index").chmod(0o500)
try:
    with running_engine(place / "index"):
        raise SystemExit("it started")
except (IndexError_, PermissionError):
    pass
(place / "index").chmod(0o700)
assert sorted(p.name for p in (place / "index").iterdir()) == names
for path in (place / "index").iterdir():
    path.chmod(0o600)
with running_engine(place / "index") as engine:
    assert found_paths(engine, "kiln") == ["a.md"]
    assert engine.status().embedded_total == 0
""")  # fmt: skip


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small disk can't be mounted: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@needs_root
def test_a_full_disk_loses_nothing_and_is_told(tmp_path: Path, small_disk: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# A\n\nThe kiln.\n")
    (docs / "b.md").write_text("# B\n\nThe wheel.\n")
    with running_engine(small_disk / "index", sync_budget_s=1.0) as engine:
        index(engine, docs)
        ballast = small_disk / "ballast"
        descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(descriptor, b"\0" * 4096):
                pass
        os.close(descriptor)
        (docs / "a.md").write_text(
            "# A\n\n" + "".join(f"## S{i}\n\nThe new kiln {i}.\n\n" for i in range(60))
        )
        (docs / "b.md").unlink()
        freshness = engine.sync(1.0, Recorder())
        assert freshness.pending, "what could not be stored is named"
        assert any("full" in error or "space" in error or "I/O" in error for error in engine.status().errors)
        assert not any("wheel" in text for text in found(engine, "wheel")), (
            "deleted: never cited, though its rows can't be deleted"
        )
        assert found(engine, "kiln"), "what is indexed stays"
        with pytest.raises(IndexError_, match="can't be written"):
            ask(engine, "who won the football cup", threshold=1.0)
        with pytest.raises(IndexError_, match="can't be written"):
            engine.index_root(str(docs), reporter=Recorder())
        ballast.unlink()
        until = time.monotonic() + 60
        while (freshness := engine.sync(5.0, Recorder())).pending:
            assert time.monotonic() < until, (freshness, engine.status().errors)
            time.sleep(0.1)
        assert any("new kiln 59" in text for text in found(engine, "kiln 59"))
        assert engine.status().documents == 1
    with running_engine(small_disk / "index") as engine:
        assert any("new kiln 59" in text for text in found(engine, "kiln 59"))
        assert engine.check(False, Recorder()).findings == ()

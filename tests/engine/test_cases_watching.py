"""The WAT cases of real bug reports, through the engine with its watcher; siblings beside each.

What the scanner, the plan and the watcher do by themselves is tested beside them; here it counts that the next
answer is right, and that the background alone gets there too.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.engines import Recorder, running_engine, search
from support.shared import SHARED, needs_shared

from copilotd.engine import Engine
from copilotd.types import Hit, RootState


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "d.md").write_text("# D\n\nThe old kiln.\n")
    return folder


@pytest.fixture
def engine(tmp_path: Path, docs: Path) -> Iterator[Engine]:
    with running_engine(tmp_path / "index", background=True, reconcile_s=1.0) as engine:
        index(engine, docs)
        yield engine


def index(engine: Engine, folder: Path, **options: object) -> None:
    engine.index_root(str(folder), reporter=Recorder(), **options)  # type: ignore[arg-type]


def hits_with(engine: Engine, query: str) -> list[Hit]:
    """The hits that hold the query's first word; vectors find something near in any document."""
    word = query.split()[0]
    return [hit for hit in search(engine, query, top_k=50).hits if word in hit.chunk.text.lower()]


def found(engine: Engine, query: str) -> list[str]:
    return [hit.chunk.text for hit in hits_with(engine, query)]


def found_paths(engine: Engine, query: str) -> list[str]:
    return [hit.chunk.metadata.relative_path for hit in hits_with(engine, query)]


def becomes_true(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """By itself: nothing in ``condition`` may be a question, which would look at the folder."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def documents(engine: Engine) -> list[str]:
    """What is indexed, without asking a question."""
    with engine._store.read() as view:
        return sorted(path for _, path, _, _ in view.documents())


@pytest.mark.parametrize("pause", [0.0, 0.05, 0.3])
def test_wat_02_backup_and_rename(engine: Engine, docs: Path, pause: float) -> None:
    (docs / "d.md").rename(docs / "d.md~")
    time.sleep(pause)
    (docs / "d.md").write_text("# D\n\nThe new kiln.\n")
    time.sleep(pause)
    (docs / "d.md~").unlink()
    assert found(engine, "kiln") == ["# D\n\nThe new kiln."]
    assert found_paths(engine, "kiln") == ["d.md"]


@pytest.mark.parametrize("noise", [".d.md.swp", "4913", "#d.md#", ".#d.md", "d.md.bak", "d.md.tmp"])
def test_wat_02_what_editors_leave_is_no_document(engine: Engine, docs: Path, noise: str) -> None:
    (docs / noise).write_text("# D\n\nThe kiln as a backup.\n")
    assert found_paths(engine, "kiln backup") == ["d.md"]


def test_wat_04_a_folder_moved_in_is_watched_from_then_on(engine: Engine, tmp_path: Path, docs: Path) -> None:
    box = tmp_path / "out" / "box" / "sub"
    box.mkdir(parents=True)
    (box / "a.md").write_text("# A\n\nWheel one.\n")
    (tmp_path / "out" / "box").rename(docs / "box")
    becomes_true(lambda: "box/sub/a.md" in documents(engine))
    (docs / "box" / "sub" / "a.md").write_text("# A\n\nWheel two.\n")
    (docs / "box" / "sub" / "b.md").write_text("# B\n\nWheel three.\n")
    becomes_true(lambda: "box/sub/b.md" in documents(engine))
    assert set(found(engine, "wheel")) == {"# A\n\nWheel two.", "# B\n\nWheel three."}


@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_wat_05_a_folder_that_leaves_takes_its_documents_along(
    engine: Engine, tmp_path: Path, docs: Path, how: str
) -> None:
    (docs / "box").mkdir()
    for name in "ab":
        (docs / "box" / f"{name}.md").write_text(f"# {name}\n\nWheel {name}.\n")
    assert len(found(engine, "wheel")) == 2
    if how == "moved":
        (docs / "box").rename(tmp_path / "elsewhere")
    else:
        shutil.rmtree(docs / "box")
    assert found(engine, "wheel") == []
    if how == "moved":
        (tmp_path / "elsewhere" / "a.md").write_text("# A\n\nWheel again.\n")
        time.sleep(0.5)
        assert found(engine, "wheel") == []
    becomes_true(lambda: documents(engine) == ["d.md"])


@pytest.mark.parametrize("how", ["replaced by an empty folder", "gone", "replaced by a file"])
def test_wat_08_a_root_that_cannot_be_looked_at_is_not_gone(
    engine: Engine, tmp_path: Path, docs: Path, how: str
) -> None:
    for number in range(20):
        (docs / f"{number}.md").write_text(f"# {number}\n\nWheel {number}.\n")
    assert len(found(engine, "wheel")) == 20
    before = engine.status().embedded_total
    docs.rename(tmp_path / "aside")
    if how == "replaced by an empty folder":
        docs.mkdir()
    elif how == "replaced by a file":
        docs.write_text("a file")
    result = search(engine, "wheel")
    assert result.hits == ()
    assert any("left out" in notice for notice in result.notices), "nothing found is not nothing known"
    becomes_true(lambda: engine.roots()[0].state is not RootState.OK)
    if docs.is_dir():
        docs.rmdir()
    elif docs.exists():
        docs.unlink()
    (tmp_path / "aside").rename(docs)
    assert len(found(engine, "wheel")) == 20
    assert engine.status().embedded_total == before


@pytest.mark.parametrize("restart", [False, True])
def test_wat_08_absent_at_start(tmp_path: Path, docs: Path, restart: bool) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    docs.rename(tmp_path / "aside")
    with running_engine(tmp_path / "index", background=True) as engine:
        assert found(engine, "kiln") == []
        if not restart:
            (tmp_path / "aside").rename(docs)
            assert found(engine, "kiln")
            assert engine.status().embedded_total == 0
    if restart:
        (tmp_path / "aside").rename(docs)
        with running_engine(tmp_path / "index") as engine:
            assert found(engine, "kiln")
            assert engine.status().embedded_total == 0


def test_wat_15_16_old_times(tmp_path: Path, docs: Path, engine: Engine) -> None:
    status = (docs / "d.md").stat()
    (docs / "d.md").write_text("# D\n\nThe new kiln.\n")
    os.utime(docs / "d.md", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert found(engine, "kiln") == ["# D\n\nThe new kiln."]
    replacement = tmp_path / "r.md"
    replacement.write_text("# D\n\nThe cold kiln.\n"[: status.st_size])
    os.utime(replacement, (978_307_200, 978_307_200))
    shutil.copy2(replacement, docs / "d.md")
    assert any("cold" in text for text in found(engine, "kiln"))


def test_wat_16_old_times_while_stopped(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    (docs / "d.md").write_text("# D\n\nThe new kiln.\n")
    os.utime(docs / "d.md", (978_307_200, 978_307_200))
    with running_engine(tmp_path / "index") as engine:
        assert found(engine, "kiln") == ["# D\n\nThe new kiln."]


def test_wat_18_a_slow_writer(engine: Engine, docs: Path) -> None:
    """Emptied, then a half, then the rest: the good version stays until there is another."""
    with (docs / "d.md").open("w") as file:
        result = search(engine, "kiln")
        assert [hit.chunk.text for hit in result.hits] == ["# D\n\nThe old kiln."]
        assert result.freshness.pending_paths == ("d.md",)
        file.write("# D\n\nThe first")
        file.flush()
        assert found(engine, "first") == ["# D\n\nThe first"]
        file.write(" and the second half of the kiln.\n")
    assert found(engine, "kiln") == ["# D\n\nThe first and the second half of the kiln."]
    assert engine.sync(2.0, Recorder()).pending == 0


def test_wat_21_a_steady_stream_starves_nothing(engine: Engine, docs: Path) -> None:
    done = threading.Event()

    def append() -> None:
        while not done.wait(0.05):
            with (docs / "noise.md").open("a") as file:
                file.write("noise\n")

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    try:
        time.sleep(0.5)
        (docs / "saved.md").write_text("# Saved\n\nWheel.\n")
        becomes_true(lambda: "saved.md" in documents(engine), 10)
        assert found(engine, "wheel") == ["# Saved\n\nWheel."]
    finally:
        done.set()
        thread.join(5)


def test_wat_21_a_noisy_root_does_not_keep_the_others_from_being_looked_at(
    engine: Engine, tmp_path: Path, docs: Path
) -> None:
    """The other root sends no notices, as a network share: only the periodic look can see its changes."""
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    index(engine, quiet, namespace="quiet", poll=True)
    assert engine._watcher is not None
    done = threading.Event()

    def wake() -> None:
        while not done.wait(0.02):
            engine._loop.wake(1)

    thread = threading.Thread(target=wake, daemon=True)
    thread.start()
    try:
        engine._watcher.remove(2)
        (quiet / "q.md").write_text("# Q\n\nQuiet.\n")
        becomes_true(lambda: "q.md" in documents(engine), 10)
    finally:
        done.set()
        thread.join(5)


def test_wat_23_links_that_lead_out_are_not_followed(engine: Engine, tmp_path: Path, docs: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret.md").write_text("# Secret\n\nWheel.\n")
    (docs / "h.md").symlink_to(private / "secret.md")
    (docs / "p").symlink_to(private)
    (docs / "loop").symlink_to(docs)
    assert found(engine, "wheel secret") == []
    assert len(engine.status().skipped) >= 2


def test_wat_26_what_is_no_file_is_not_opened(engine: Engine, docs: Path) -> None:
    os.mkfifo(docs / "pipe.md")
    (docs / "folder.md").mkdir()
    (docs / "z.md").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as peer:
        here = os.getcwd()
        os.chdir(docs)
        try:
            peer.bind("s.md")
        finally:
            os.chdir(here)
        (docs / "good.md").write_text("# Good\n\nWheel.\n")
        assert found(engine, "wheel") == ["# Good\n\nWheel."]
        began = time.monotonic()
        engine.close()
        assert time.monotonic() - began < 20


@needs_shared
def test_wat_27_nested_ignore_files(engine: Engine, docs: Path) -> None:
    shutil.copytree(SHARED / "cases" / "files" / "w27_nested_ignore", docs, dirs_exist_ok=True)
    (docs / ".git").mkdir()
    engine.sync(5.0, Recorder())
    assert documents(engine) == ["d.md", "pkg/guide.md"]


def test_wat_29_built_and_fetched_things_are_left_out(engine: Engine, docs: Path) -> None:
    (docs / ".git").mkdir()
    (docs / ".gitignore").write_text("custom-out/\n")
    for name in ("node_modules/p/README.md", ".git/x.md", "custom-out/y.md", ".venv/z.md", "sub/a.md"):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(f"# X\n\nWheel of {name}.\n")
    assert found_paths(engine, "wheel") == ["sub/a.md"]
    (docs / ".gitignore").unlink()
    assert sorted(found_paths(engine, "wheel")) == ["custom-out/y.md", "sub/a.md"]


def test_wat_31_names_alike(engine: Engine, docs: Path) -> None:
    names = ["a b.md", "a_b.md", "a-b.md", "a%b.md", "a*b.md", "A b.md", "a  b.md"]
    for number, name in enumerate(names):
        (docs / name).write_text(f"# T{number}\n\nWheel number{number} of {name!r}.\n")
    assert sorted(found_paths(engine, "wheel")) == sorted(names)
    for name in names:
        assert repr(name) in engine.section(name, None, Recorder()).text


def test_wat_32_a_folder_whose_name_occurs_twice(engine: Engine, docs: Path) -> None:
    (docs / "rep" / "rep").mkdir(parents=True)
    (docs / "rep" / "rep" / "f.md").write_text("# F\n\nWheel.\n")
    assert found_paths(engine, "wheel") == ["rep/rep/f.md"]
    before = engine.status().embedded_total
    (docs / "rep").rename(docs / "new")
    assert found_paths(engine, "wheel") == ["new/rep/f.md"]
    assert engine.status().embedded_total == before


def test_a_root_deleted_and_made_again_is_watched_again(engine: Engine, docs: Path) -> None:
    shutil.rmtree(docs)
    becomes_true(lambda: engine.roots()[0].state is RootState.MISSING)
    docs.mkdir()
    (docs / "n.md").write_text("# N\n\nWheel.\n")
    becomes_true(lambda: documents(engine) == ["n.md"])
    (docs / "o.md").write_text("# O\n\nWheel too.\n")
    becomes_true(lambda: documents(engine) == ["n.md", "o.md"])


def test_a_root_behind_a_link_that_is_turned(tmp_path: Path, docs: Path) -> None:
    """As a deployment switches ``current`` from one release to the next."""
    other = tmp_path / "release2"
    other.mkdir()
    (other / "d.md").write_text("# D\n\nThe second kiln.\n")
    link = tmp_path / "current"
    link.symlink_to(docs)
    with running_engine(tmp_path / "index", background=True) as engine:
        index(engine, link)
        assert found(engine, "kiln") == ["# D\n\nThe old kiln."]
        new = tmp_path / "next"
        new.symlink_to(other)
        new.replace(link)
        assert found(engine, "kiln") == ["# D\n\nThe second kiln."]


def test_a_polled_root_says_so_and_is_polled_after_a_restart(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", background=True) as engine:
        index(engine, docs, poll=True)
        becomes_true(lambda: engine.roots()[0].watch == "polling: as asked for")
    with running_engine(tmp_path / "index", background=True) as engine:
        becomes_true(lambda: engine.roots()[0].watch == "polling: as asked for")
        index(engine, docs)
        becomes_true(lambda: engine.roots()[0].watch == "events")

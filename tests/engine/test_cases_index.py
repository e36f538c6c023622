"""The IDX cases of real bug reports, through the engine, with siblings beside each."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.engines import Recorder, found, found_paths, running_engine, search
from support.hashing_encoder import HashingEncoder
from support.index_snapshot import check_vectors, snapshot, store_of

from copilotd.engine import Engine
from copilotd.errors import IndexTooNew
from copilotd.index.catalog import DATABASE_NAME
from copilotd.types import Float32Array, Scope

WORDS = ("part", "alpha", "unique9")


def sections(count: int, mark: str = "alpha") -> str:
    return "".join(f"## Part {i}\n\nUnique{i} {mark} words.\n\n" for i in range(count))


def index(engine: Engine, folder: Path) -> None:
    engine.index_root(str(folder), reporter=Recorder())


def settle(engine: Engine) -> None:
    until = time.monotonic() + 60
    while not engine.status().model_loaded or engine.sync(5.0, Recorder()).pending:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "d.md").write_text(sections(10))
    return folder


def clean(engine: Engine) -> None:
    assert engine.check(False, Recorder()).findings == ()


def test_idx_01_ids_are_not_handed_out_twice(tmp_path: Path, docs: Path) -> None:
    seen: set[int] = set()
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        for round_ in range(4):
            ids = store_of(engine).vectors.window_ids()
            (docs / "d.md").write_text(sections(7, f"round{round_}"))
            settle(engine)
            new = store_of(engine).vectors.window_ids() - ids
            assert not new & seen
            seen |= ids | new
            assert engine.status().windows == 7
            assert all(f"round{round_}" in text for text in found(engine, f"round{round_}"))
        clean(engine)


@pytest.mark.parametrize("restart", [False, True])
def test_idx_03_reading_again_leaves_one_vector_a_window(tmp_path: Path, docs: Path, restart: bool) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        for fresh in (False, True, False):
            engine.rebuild(fresh, Recorder())
    with running_engine(tmp_path / "index") as engine:
        if restart:
            engine.rebuild(False, Recorder())
        settle(engine)
        assert engine.status().windows == engine.status().chunks == 10
        check_vectors(engine, WORDS)
        clean(engine)


def test_idx_07_a_model_changed_half_way_mixes_nothing(tmp_path: Path, docs: Path) -> None:
    class Slow(HashingEncoder):
        left = 3

        def encode(self, texts: Sequence[str]) -> Float32Array:
            if self.left <= 0:
                raise MemoryError("stopped half-way")
            self.left -= 1
            return super().encode(texts[:4]) if len(texts) <= 4 else super().encode(texts)

    for number in range(20):
        (docs / f"{number}.md").write_text(sections(3, f"mark{number}"))
    reporter = Recorder()
    with running_engine(tmp_path / "index", encoder=Slow()) as engine:
        run_for(lambda: engine.index_root(str(docs), reporter=reporter), 1.0)
        reporter.gone = True
        assert engine.status().pending_windows
    other = HashingEncoder()
    other.name, other.fingerprint, other.dimension = "other", "other-1", 32
    with running_engine(tmp_path / "index", encoder=other) as engine:
        index(engine, docs)
        settle(engine)
        assert store_of(engine).vectors.dimension == 32
        assert engine.status().windows == engine.status().chunks == 70
        clean(engine)


def run_for(call: Callable[[], object], seconds: float) -> None:
    def quietly() -> None:
        try:
            call()
        except Exception:
            return

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(seconds)


@pytest.mark.parametrize("cut", [0, 10, 10_000, -3])
@pytest.mark.parametrize("name", [DATABASE_NAME, f"{DATABASE_NAME}-wal"])
def test_idx_08_a_cut_file_heals_at_the_next_start(tmp_path: Path, docs: Path, cut: int, name: str) -> None:
    """Also a write-ahead log that a power cut left short."""
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        (docs / "late.md").write_text(sections(3, "late"))
        settle(engine)
        # What a kill leaves: the files as they are, not as closing would tidy them up.
        shutil.copytree(tmp_path / "index", tmp_path / "killed")
    victim = tmp_path / "killed" / name
    assert victim.exists()
    size = victim.stat().st_size
    os.truncate(victim, cut if cut >= 0 else size + cut)
    with running_engine(tmp_path / "killed") as engine:
        assert [root.root.path for root in engine.roots()] == [str(docs)]
        settle(engine)
        assert any("unique9" in text.lower() for text in found(engine, "unique9"))
        assert found_paths(engine, "late")[0] == "late.md"
        if list((tmp_path / "killed").glob("*.damaged-*")):
            assert any("damaged" in error for error in engine.status().errors)
        clean(engine)


def test_idx_08_a_missing_database_is_made_anew(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    (tmp_path / "index" / DATABASE_NAME).unlink()
    with running_engine(tmp_path / "index") as engine:
        settle(engine)
        assert found_paths(engine, "unique9")


@pytest.mark.parametrize("seed", range(6))
def test_idx_08_flipped_bytes_are_never_quoted(tmp_path: Path, docs: Path, seed: int) -> None:
    """Anywhere in the file: the start heals, or the rows' checksums find it; nobody's text changes."""
    import random

    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        expected = set(found(engine, "part words"))
    pick = random.Random(seed)
    path = tmp_path / "index" / DATABASE_NAME
    content = bytearray(path.read_bytes())
    for _ in range(3):
        content[pick.randrange(100, len(content))] ^= 1 << pick.randrange(8)
    path.write_bytes(content)
    with running_engine(tmp_path / "index") as engine:
        settle(engine)
        assert set(found(engine, "part words")) <= expected
        engine.check(True, Recorder())
    with running_engine(tmp_path / "index") as engine:
        settle(engine)
        assert set(found(engine, "part words")) == expected


def test_idx_10_an_older_database_put_back_cites_nothing_wrong(tmp_path: Path, docs: Path) -> None:
    """Vectors and text are one file here; an older copy of it is an index that must catch up."""
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    shutil.copytree(tmp_path / "index", tmp_path / "older")
    with running_engine(tmp_path / "index") as engine:
        (docs / "d.md").write_text(sections(4, "newer"))
        (docs / "e.md").write_text(sections(2, "another"))
        settle(engine)
        expected = snapshot(engine, WORDS, WORDS)
    with running_engine(tmp_path / "older") as engine:
        assert all("newer" in text or "another" in text for text in found(engine, "unique1"))
        settle(engine)
        assert snapshot(engine, WORDS, WORDS) == expected
        clean(engine)


def test_idx_11_a_vector_lost_between_two_transactions_is_embedded_again(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    with sqlite3.connect(tmp_path / "index" / DATABASE_NAME) as database:
        database.execute("DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors LIMIT 4)")
    database.close()
    with running_engine(tmp_path / "index") as engine:
        # Which windows lack a vector is counted by another thread.
        until = time.monotonic() + 60
        while engine.status().embedded_total < 4 and time.monotonic() < until:
            time.sleep(0.01)
        settle(engine)
        assert engine.status().embedded_total == 4
        assert engine.status().windows == 10
        clean(engine)


def test_idx_12_changes_while_stopped_are_seen_before_the_first_answer(tmp_path: Path, docs: Path) -> None:
    (docs / "a.md").write_text("# A\n\nAardvark.\n")
    (docs / "b.md").write_text("# B\n\nBadger.\n")
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    (docs / "a.md").unlink()
    (docs / "b.md").rename(docs / "c.md")
    with running_engine(tmp_path / "index") as engine:
        assert "a.md" not in found_paths(engine, "aardvark")
        assert found_paths(engine, "badger")[0] == "c.md"
        assert "b.md" not in found_paths(engine, "badger")
        assert engine.status().embedded_total == 0


@pytest.mark.parametrize("left", [2, 1, 0])
def test_idx_13_a_shrunk_document_keeps_no_tail(tmp_path: Path, docs: Path, left: int) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        (docs / "d.md").write_text(sections(left))
        os.utime(docs / "d.md", (1_000_000_000, 1_000_000_000))
        settle(engine)
        assert not any("Unique9" in text for text in found(engine, "unique9"))
        assert engine.status().windows == engine.status().chunks == left


def test_idx_18_full_reindexes_at_once_do_the_work_once(tmp_path: Path, docs: Path) -> None:
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        threads = [
            threading.Thread(target=lambda fresh=fresh: engine.rebuild(fresh, Recorder()), daemon=True)
            for fresh in (False, True, False)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        settle(engine)
        assert engine.status().errors == ()
        assert engine.status().windows == engine.status().chunks == 10
        clean(engine)


def test_idx_18_what_was_being_read_when_all_was_outdated_is_read_again(tmp_path: Path, docs: Path) -> None:
    """A rebuild that begins while another's files are with a worker."""
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        windows = engine.status().windows
        for _ in range(20):
            first = threading.Thread(target=lambda: engine.rebuild(False, Recorder()), daemon=True)
            first.start()
            engine.rebuild(True, Recorder())
            first.join(60)
            assert engine.status().windows == windows, "whoever waited for a rebuild finds it done"


def test_idx_20_questions_while_hundreds_of_files_are_indexed(tmp_path: Path, docs: Path) -> None:
    problems: list[BaseException] = []
    with running_engine(tmp_path / "index", sync_budget_s=0.05) as engine:
        index(engine, docs)
        for number in range(150):
            (docs / f"n{number}.md").write_text(f"# N {number}\n\n## Item\n\nThing{number} of the kiln.\n")
        done = threading.Event()

        def ask() -> None:
            number = 0
            while not done.is_set():
                number += 1
                try:
                    for hit in search(engine, f"thing{number % 150}", top_k=10).hits:
                        source = Path(hit.chunk.metadata.source_file).read_text()
                        assert hit.chunk.text.splitlines()[-1] in source
                except BaseException as error:
                    problems.append(error)
                    return

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        index(engine, docs)
        done.set()
        for thread in threads:
            thread.join(20)
        assert problems == []
        check_vectors(engine, ("kiln",))
        clean(engine)
    with running_engine(tmp_path / "index") as engine:
        assert engine.status().documents == 151
        clean(engine)


def test_idx_22_a_narrow_filter_finds_what_is_there(tmp_path: Path, docs: Path) -> None:
    (docs / "small").mkdir()
    for number in range(200):
        (docs / f"big{number}.md").write_text("# Kiln kiln\n\nThe kiln kiln kiln.\n")
    (docs / "small" / "one.md").write_text(
        "# One\n\nOnce there was a kiln among other things of little note.\n"
    )
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        hits = search(engine, "kiln", scope=Scope(paths=("small",)), top_k=5).hits
        assert [hit.chunk.metadata.relative_path for hit in hits] == ["small/one.md"]


def test_an_index_of_a_newer_version_is_refused_by_the_engine(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    with sqlite3.connect(tmp_path / "index" / DATABASE_NAME) as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    with pytest.raises(IndexTooNew), running_engine(tmp_path / "index"):
        pass

"""Read your writes: the races between looks, workers, the embedder and whatever goes wrong meanwhile."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.engines import Recorder, ask, found, found_paths, running_engine, search
from support.hashing_encoder import HashingEncoder
from support.index_snapshot import check_files, check_vectors, store_of

from copilotd.engine import Engine
from copilotd.errors import IndexError_, RootOverlap
from copilotd.index.catalog import DATABASE_NAME
from copilotd.types import Float32Array, Reporter, Scope


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text("# Kiln\n\nFire the kiln hot.\n")
    (folder / "glaze.md").write_text("# Glaze\n\nCeladon needs iron.\n")
    return folder


class GatedEncoder(HashingEncoder):
    """Stops inside ``encode`` while a text holds the word ``gated``, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = threading.Event()
        self.release = threading.Event()

    def encode(self, texts: Sequence[str]) -> Float32Array:
        if any("gated" in text for text in texts):
            self.inside.set()
            assert self.release.wait(20)
        return super().encode(texts)


def index(engine: Engine, folder: Path, **options: object) -> None:
    engine.index_root(str(folder), reporter=Recorder(), **options)  # type: ignore[arg-type]


def settle(engine: Engine) -> None:
    until = time.monotonic() + 60
    while not engine.status().model_loaded or engine.sync(5.0, Recorder()).pending:
        assert time.monotonic() < until
        time.sleep(0.01)


def locked(folder: Path) -> sqlite3.Connection:
    """Another process that holds the write lock, as a backup or a shell does."""
    database = sqlite3.connect(folder / DATABASE_NAME, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    return database


def in_background(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


# ------------------------------------------------------------------------------- while a worker is inside


def test_a_change_taken_back_while_it_is_read(tmp_path: Path, docs: Path) -> None:
    """The worker is inside version B when the file becomes A again: A's hash is the old one, but B is stored."""
    encoder = GatedEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        first = (docs / "kiln.md").read_text()
        (docs / "kiln.md").write_text("# Kiln\n\nThe gated text.\n")
        engine.sync(0.0, Recorder())
        assert encoder.inside.wait(20)
        (docs / "kiln.md").write_text(first)
        assert "kiln.md" in engine.sync(0.05, Recorder()).pending_paths
        encoder.release.set()
        settle(engine)
        assert any("hot" in text for text in found(engine, "kiln hot"))
        assert not any("gated" in text for text in found(engine, "kiln gated"))
        check_files(engine)


def test_a_question_of_one_namespace_is_not_told_of_the_pending_files_of_another(
    tmp_path: Path, docs: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    encoder = GatedEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        settle(engine)
        index(engine, other, namespace="wiki")
        # Two files: one without its vectors yet, one not even read.
        (other / "new.md").write_text("# New\n\nThe gated text.\n")
        (other / "empty.md").write_text("# Full\n\nOf text.\n")
        engine.sync(0.0, Recorder())
        assert encoder.inside.wait(20)
        (other / "empty.md").write_text("")
        everywhere = search(engine, "kiln").freshness
        assert {"new.md", "empty.md"} <= set(everywhere.pending_paths)
        for scope in (Scope(namespaces=("default",)), Scope(paths=("kiln.md",))):
            told = search(engine, "kiln", scope=scope).freshness
            assert not {"new.md", "empty.md"} & set(told.pending_paths)
            assert told.by_words == 0
        there = search(engine, "text", scope=Scope(namespaces=("wiki",))).freshness
        assert {"new.md", "empty.md"} <= set(there.pending_paths)
        encoder.release.set()


def test_a_document_deleted_while_it_is_read(tmp_path: Path, docs: Path) -> None:
    encoder = GatedEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        (docs / "new.md").write_text("# New\n\nThe gated text.\n")
        engine.sync(0.0, Recorder())
        assert encoder.inside.wait(20)
        (docs / "new.md").unlink()
        engine.sync(0.05, Recorder())
        encoder.release.set()
        settle(engine)
        assert "new.md" not in found_paths(engine, "gated text")
        assert engine.status().documents == 2


def test_renamed_on_and_on_while_it_is_read(tmp_path: Path, docs: Path) -> None:
    """The row of a first rename must not follow a second file that took the old name."""
    encoder = GatedEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        (docs / "busy.md").write_text("# Busy\n\nThe gated text.\n")
        engine.sync(0.0, Recorder())
        assert encoder.inside.wait(20)
        (docs / "kiln.md").rename(docs / "one.md")
        engine.sync(0.05, Recorder())
        (docs / "kiln.md").write_text("# Kiln\n\nAnother kiln.\n")
        (docs / "one.md").rename(docs / "two.md")
        engine.sync(0.05, Recorder())
        encoder.release.set()
        settle(engine)
        assert set(found_paths(engine, "kiln fire another")) >= {"kiln.md", "two.md"}
        assert engine.status().documents == 4
        check_files(engine)


def test_a_new_file_that_never_settles_and_goes_is_no_longer_pending(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        (docs / "glaze.md").write_text("")
        assert engine.sync(2.0, Recorder()).pending == 1
        (docs / "glaze.md").unlink()
        assert engine.sync(2.0, Recorder()).pending == 0


@pytest.mark.parametrize("year", [1_000_000_000, 4_000_000_000])
def test_an_emptied_file_with_a_strange_time_settles(tmp_path: Path, docs: Path, year: int) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        (docs / "glaze.md").write_text("")
        os.utime(docs / "glaze.md", (year, year))
        until = time.monotonic() + 60
        while engine.sync(2.0, Recorder()).pending:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "glaze.md" not in found_paths(engine, "celadon")


# ------------------------------------------------------------------------------------ beside bulk work


def test_one_edit_is_waited_for_while_thousands_wait(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        for number in range(600):
            (docs / f"bulk{number}.md").write_text(f"# Bulk {number}\n\nWords of {number}.\n")
            os.utime(docs / f"bulk{number}.md", (1_000_000_000 + number, 1_000_000_000))
        engine.sync(0.0, Recorder())
        (docs / "kiln.md").write_text("# Kiln\n\nA brand new celadon kiln.\n")
        result = search(engine, "brand new")
        assert any("brand new" in hit.chunk.text for hit in result.hits), result.freshness


def test_a_window_the_background_has_taken_is_not_embedded_twice(tmp_path: Path, docs: Path) -> None:
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        for number in range(30):
            (docs / "kiln.md").write_text(f"# Kiln\n\nRound {number} of the kiln.\n")
            engine._embedder.wake()
            engine.sync(5.0, Recorder())
        texts = [text for text in encoder.encoded if "Round" in text]
        assert len(texts) == len(set(texts)) == 30


# --------------------------------------------------------------------------------- roots that change


def test_rules_that_leave_documents_out_remove_them(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        index(engine, docs, exclude=("glaze.md",))
        assert "glaze.md" not in found_paths(engine, "celadon iron")
        index(engine, docs, include=("glaze*",))
        assert found_paths(engine, "celadon kiln") == ["glaze.md"]
        index(engine, docs)
        assert engine.status().documents == 2
        check_vectors(engine, ("kiln",))


def test_rules_changed_while_a_worker_reads_by_the_old_ones(tmp_path: Path, docs: Path) -> None:
    encoder = GatedEncoder()
    text = "# Long\n\nThe gated text. " + "Words about clay. " * 40
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        (docs / "long.md").write_text(text)
        indexer = in_background(lambda: index(engine, docs))
        assert encoder.inside.wait(20)
        other = in_background(lambda: index(engine, docs, chunk_size=150, chunk_overlap=0))
        time.sleep(0.2)
        encoder.release.set()
        indexer.join(20)
        other.join(20)
        settle(engine)
        with store_of(engine).read() as view:
            sizes = [end - start for start, end in view.connection.execute("SELECT start, end FROM chunks")]
        assert max(sizes) <= 150


def test_nested_roots_added_at_once(tmp_path: Path) -> None:
    (tmp_path / "docs" / "inner").mkdir(parents=True)
    (tmp_path / "docs" / "inner" / "a.md").write_text("# A\n")
    refused: list[BaseException] = []

    def add(path: Path) -> None:
        try:
            index(engine, path)
        except RootOverlap as error:
            refused.append(error)

    with running_engine(tmp_path / "index") as engine:
        threads = [in_background(lambda path=path: add(path)) for path in (tmp_path / "docs", tmp_path / "docs/inner")]  # type: ignore[misc]  # fmt: skip
        for thread in threads:
            thread.join(20)
        assert len(refused) == len(engine.roots()) == 1


def test_forgetting_does_not_wait_for_a_file_that_is_being_read(tmp_path: Path, docs: Path) -> None:
    encoder = GatedEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        (docs / "new.md").write_text("# New\n\nThe gated text.\n")
        engine.sync(0.0, Recorder())
        assert encoder.inside.wait(20)
        began = time.monotonic()
        engine.forget(str(docs), None)
        assert time.monotonic() - began < 20
        encoder.release.set()
        assert engine.roots() == []
        assert engine.status().errors == ()
        index(engine, docs)
        assert engine.status().documents == 3


def test_an_edit_in_one_root_is_taken_in_although_another_cannot_be_stored(
    tmp_path: Path, docs: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.md").write_text("# A\n\nWheel.\n")
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        index(engine, other, namespace="other")
        (other / "a.md").write_text("# A\n\nPotter's wheel.\n")
        (docs / "kiln.md").unlink()
        assert any("Potter" in text for text in found(engine, "wheel"))
        assert "kiln.md" not in found_paths(engine, "kiln")


# ------------------------------------------------------------------------------------- what goes wrong


def test_a_lock_from_outside_delays_but_loses_nothing(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", sync_budget_s=1.0) as engine:
        index(engine, docs)
        database = locked(tmp_path / "index")
        (docs / "kiln.md").write_text("# Kiln\n\nFire the kiln slowly.\n")
        (docs / "glaze.md").unlink()
        began = time.monotonic()
        result = search(engine, "kiln celadon")
        assert time.monotonic() - began < 40
        assert result.freshness.pending
        assert "glaze.md" not in [hit.chunk.metadata.relative_path for hit in result.hits], (
            "deleted: never cited"
        )
        assert any("locked" in error for error in engine.status().errors)
        database.rollback()
        database.close()
        settle(engine)
        assert any("slowly" in text for text in found(engine, "kiln"))
        assert engine.status().documents == 1


def test_a_file_that_comes_back_after_its_removal_could_not_be_stored(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", sync_budget_s=0.5) as engine:
        index(engine, docs)
        aside = tmp_path / "aside.md"
        database = locked(tmp_path / "index")
        (docs / "glaze.md").rename(aside)
        assert "glaze.md" not in found_paths(engine, "celadon")
        aside.rename(docs / "glaze.md")
        database.rollback()
        database.close()
        settle(engine)
        assert "glaze.md" in found_paths(engine, "celadon")


def test_stopping_under_a_lock_from_outside_is_bounded(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        database = locked(tmp_path / "index")
        (docs / "kiln.md").write_text("# Kiln\n\nOther.\n")
        engine.sync(0.0, Recorder())
        began = time.monotonic()
        engine.close()
        assert time.monotonic() - began < 20
        database.rollback()
        database.close()
    with running_engine(tmp_path / "index") as engine:
        assert any("Other" in text for text in found(engine, "kiln"))


def test_starting_under_a_lock_from_outside_keeps_the_index(tmp_path: Path, docs: Path) -> None:
    """'Database is locked' is an sqlite3.DatabaseError too: it is no damage."""
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    database = sqlite3.connect(tmp_path / "index" / DATABASE_NAME, isolation_level=None)
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("BEGIN EXCLUSIVE")
    with pytest.raises(IndexError_, match="locked"), running_engine(tmp_path / "index"):
        pass
    database.close()
    assert list((tmp_path / "index").glob("*.damaged-*")) == []
    with running_engine(tmp_path / "index") as engine:
        assert "glaze.md" in found_paths(engine, "celadon")
        assert engine.status().embedded_total == 0


def test_too_many_open_files_loses_no_document(tmp_path: Path, docs: Path) -> None:
    resource = pytest.importorskip("resource")
    with running_engine(tmp_path / "index", sync_budget_s=0.5) as engine:
        index(engine, docs)
        (docs / "kiln.md").write_text("# Kiln\n\nFire the kiln slowly.\n")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert "kiln.md" in found_paths(engine, "kiln")
        (docs / "kiln.md").write_text("# Kiln\n\nFire the kiln at last.\n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            freshness = engine.sync(0.5, Recorder())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert freshness.pending
        settle(engine)
        assert any("at last" in text for text in found(engine, "kiln"))


def test_a_model_that_fails_on_one_text_holds_up_no_other(tmp_path: Path, docs: Path) -> None:
    class Picky(HashingEncoder):
        def encode(self, texts: Sequence[str]) -> Float32Array:
            rows = super().encode(texts)
            if any("poison" in text for text in texts):
                rows[:] = float("nan")
            return rows

    with running_engine(tmp_path / "index", encoder=Picky()) as engine:
        (docs / "bad.md").write_text("# Bad\n\nThe poison.\n")
        reporter = Recorder()
        in_background(lambda: _quietly(lambda: engine.index_root(str(docs), reporter=reporter)))
        until = time.monotonic() + 60
        while engine.status().windows < 2 and time.monotonic() < until:
            time.sleep(0.05)
        reporter.gone = True
        assert engine.status().windows == 2
        assert any("not a number" in error for error in engine.status().errors)
        assert "bad.md" in search(engine, "poison").freshness.pending_paths
        assert "bad.md" in found_paths(engine, "poison"), "words find it"


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # the client of this test goes away
        return


def test_a_row_found_damaged_is_read_again_before_the_answer(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        database = sqlite3.connect(tmp_path / "index" / DATABASE_NAME)
        database.execute("UPDATE documents SET text = replace(CAST(text AS TEXT), 'iron', 'tin!')")
        database.commit()
        database.close()
        assert "iron" in ask(engine, "what does celadon need", threshold=0.0).text
        assert any("damaged" in error for error in engine.status().errors)


# ------------------------------------------------------------------------------------- models and starts


def test_text_of_another_model_is_not_embedded_by_this_one(tmp_path: Path, docs: Path) -> None:
    """Killed before anything was embedded, started with another model, and back again (IDX-07)."""

    class Dead(HashingEncoder):
        def encode(self, texts: Sequence[str]) -> Float32Array:
            raise MemoryError

    with running_engine(tmp_path / "index", encoder=Dead()) as engine:
        reporter: Reporter = Recorder()
        in_background(lambda: _quietly(lambda: engine.index_root(str(docs), reporter=reporter)))
        until = time.monotonic() + 60
        while engine.status().pending_windows < 2 and time.monotonic() < until:
            time.sleep(0.02)
        reporter.gone = True  # type: ignore[attr-defined]
    other = HashingEncoder()
    other.name, other.fingerprint, other.dimension = "other", "other-1", 32
    with running_engine(tmp_path / "index", encoder=other) as engine:
        settle(engine)
        lengths = {32 * 4}
        assert _vector_lengths(engine) == lengths
    with running_engine(tmp_path / "index") as engine:
        settle(engine)
        check_vectors(engine, ("kiln",))
        assert _vector_lengths(engine) == lengths | {64 * 4}


def _vector_lengths(engine: Engine) -> set[int]:
    with store_of(engine).read() as view:
        return {row[0] for row in view.connection.execute("SELECT length(vector) FROM vectors")}


def test_a_window_without_vector_and_without_pending_text_is_embedded_at_the_next_start(
    tmp_path: Path, docs: Path
) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    database = sqlite3.connect(tmp_path / "index" / DATABASE_NAME)
    database.execute("DELETE FROM vectors WHERE rowid = 1")
    database.commit()
    database.close()
    with running_engine(tmp_path / "index") as engine:
        settle(engine)
        assert engine.status().windows == 2
        assert engine.status().embedded_total == 1


def test_a_forgotten_root_does_not_come_back(tmp_path: Path, docs: Path) -> None:
    """Killed after the database was told, before the file beside it was written."""
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        saved = (tmp_path / "index" / "roots.json").read_bytes()
        engine.forget(str(docs), None)
    (tmp_path / "index" / "roots.json").write_bytes(saved)
    with running_engine(tmp_path / "index") as engine:
        assert engine.roots() == []

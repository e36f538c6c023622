"""``check`` finds each kind of damage, and ``--repair`` leaves an index like a fresh one."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import Recorder, found, running_engine
from support.index_snapshot import snapshot, store_of

from copilotd.engine import Engine

WORDS = ("kiln", "celadon")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text(
        "# Kiln\n\n## Firing\n\nFire the kiln hot.\n\n## Cooling\n\nWait two days.\n"
    )
    (folder / "glaze.md").write_text("# Glazes\n\n## Celadon\n\nCeladon needs iron.\n")
    return folder


@pytest.fixture
def engine(tmp_path: Path, docs: Path) -> Iterator[Engine]:
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        yield engine


def test_a_sound_index_is_clean(engine: Engine) -> None:
    report = engine.check(False, Recorder())
    assert (report.findings, report.repaired, report.documents) == ((), False, 2)


VICTIM = "(SELECT id FROM files WHERE relative_path = CAST('kiln.md' AS BLOB))"
CHUNK = f"(SELECT max(id) FROM chunks WHERE file_id = {VICTIM})"
DAMAGE = {
    "document": f"UPDATE documents SET text = replace(CAST(text AS TEXT), 'hot', 'hat') WHERE file_id = {VICTIM}",
    "chunk": f"UPDATE chunks SET line_start = line_start + 1 WHERE id = {CHUNK}",
    "words": f"UPDATE keywords SET body = 'celadon' WHERE rowid = {CHUNK}",
    "words lost": f"DELETE FROM keywords WHERE rowid = {CHUNK}",
    "windows": f"UPDATE windows SET key = randomblob(16) WHERE chunk_id = {CHUNK}",
    "windows lost": f"DELETE FROM windows WHERE chunk_id = {CHUNK}",
    "vector": "UPDATE vectors SET vector = zeroblob(256)"
    f" WHERE key IN (SELECT key FROM windows WHERE chunk_id = {CHUNK})",
    "windows bare": f"DELETE FROM vectors WHERE key IN (SELECT key FROM windows WHERE chunk_id = {CHUNK})",
    "orphans of tokens": "INSERT INTO tokens VALUES (randomblob(16), x'00', 0)",
    "vector's tokens": "INSERT INTO tokens SELECT key, x'00', 0 FROM vectors LIMIT 1",
    # More than a question or a check embeds by the way.
    "orphans": "INSERT INTO pending SELECT randomblob(16), 'nobody wants this'"
    " FROM sqlite_master a, sqlite_master b LIMIT 100",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_mended(tmp_path: Path, engine: Engine, kind: str) -> None:
    before = snapshot(engine, WORDS, WORDS)
    database = sqlite3.connect(tmp_path / "index" / "index.sqlite3")
    assert database.execute(DAMAGE[kind]).rowcount >= 1
    database.commit()
    database.close()

    report = engine.check(True, Recorder())
    assert kind.split()[0].removesuffix("'s") in {finding.kind for finding in report.findings}
    assert report.repaired
    assert engine.check(False, Recorder()).findings == ()
    assert snapshot(engine, WORDS, WORDS) == before


def test_a_vector_of_another_text_is_found(tmp_path: Path, engine: Engine) -> None:
    """Its checksum is right and it is normalised: only the model can tell."""
    database = sqlite3.connect(tmp_path / "index" / "index.sqlite3")
    [(vector, checksum)] = database.execute(
        "SELECT vector, checksum FROM vectors ORDER BY rowid LIMIT 1"
    ).fetchall()
    database.execute("UPDATE vectors SET vector = ?, checksum = ?", (vector, checksum))
    database.commit()
    database.close()
    kinds = {finding.kind for finding in engine.check(False, Recorder()).findings}
    assert kinds == {"vector", "memory"}


def test_vectors_in_memory_that_drifted_are_found(engine: Engine) -> None:
    before = found(engine, "kiln")
    vectors = store_of(engine).vectors
    vectors.remove(list(vectors.window_ids())[:1])
    report = engine.check(True, Recorder())
    assert [finding.kind for finding in report.findings] == ["memory"]
    assert report.repaired
    assert found(engine, "kiln") == before


def test_content_that_changed_behind_an_unchanged_stat_is_found(tmp_path: Path, engine: Engine) -> None:
    """As by a disk that gives other bytes than were written: the stored hash is made wrong."""
    # A file read within a tick of its writing is read once more at the next look; let that happen first.
    time.sleep(0.05)
    engine.sync(5.0, Recorder())
    database = sqlite3.connect(tmp_path / "index" / "index.sqlite3")
    database.execute(f"UPDATE files SET content_hash = 'of something else' WHERE id = {VICTIM}")
    database.commit()
    database.close()
    store = store_of(engine)
    [stored] = store.roots()
    watch = engine._reconciler.watches()[0]
    watch.known.update(store.files(stored.root.id))
    report = engine.check(True, Recorder())
    assert [(finding.kind, os.path.basename(finding.path)) for finding in report.findings] == [
        ("file", "kiln.md")
    ]
    assert report.repaired

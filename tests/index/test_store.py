"""The store: what was committed is what is found, through updates, crashes and damage."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.hashing_encoder import HashingEncoder

from copilotd.embed.windows import WindowPlanner, estimate_tokens
from copilotd.errors import IndexTooNew
from copilotd.index.catalog import DATABASE_NAME
from copilotd.index.store import Store, Written, load_index
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.types import Chunk, Document, Root, Scope, SourceFile, StatFingerprint, Window

ENCODER = HashingEncoder()
PLANNER = WindowPlanner(ENCODER.fingerprint, estimate_tokens, 60)


def plan(document: Document, chunk: Chunk) -> list[Window]:
    return PLANNER.plan(
        document.text[chunk.start : chunk.end],
        title=document.title,
        heading_path=document.sections[chunk.section].heading_path,
    )


class Bench:
    """A store with one root, and short ways to change it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.load_vectors(PLANNER.fingerprint)
        self.root = self.store.add_root(Root(0, "/docs"))
        self.planned = 0

    def write(self, name: str, text: str, *, replaces: int | None = None, embed: bool = True) -> Written:
        document = parse_file(name, text.encode())
        chunks = chunk_document(
            document,
            source_file=f"/docs/{name}",
            relative_path=name,
            last_modified=1.0,
            max_chars=400,
            overlap_chars=0,
        )

        def counted(document: Document, chunk: Chunk) -> list[Window]:
            self.planned += 1
            return plan(document, chunk)

        written = self.store.write_document(
            self.root,
            SourceFile(name, StatFingerprint(1, len(text), 1, 1)),
            document,
            chunks,
            content_hash=text,
            read_ns=2,
            reader="r",
            planner=PLANNER.fingerprint,
            plan_windows=counted,
            replaces=replaces,
        )
        if embed:
            self.embed(written.keys)
        return written

    def embed(self, keys: tuple[bytes, ...]) -> None:
        work = self.store.pending_texts(keys)
        self.store.put_vectors([key for key, _ in work], ENCODER.encode([text for _, text in work]))

    def by_words(self, *words: str) -> list[str]:
        with self.store.read() as view:
            hits = view.search_keywords(words, 50, Scope())
            return [chunk.text for chunk in view.load_chunks([hit.chunk_id for hit in hits]).values()]

    def by_meaning(self, query: str, scope: Scope = Scope()) -> list[str]:  # noqa: B008 (frozen)
        with self.store.read() as view:
            hits = view.search_vectors(ENCODER.encode([query]), 50, scope)[0]
            return [chunk.text for chunk in view.load_chunks([hit.chunk_id for hit in hits]).values()]

    def sound(self) -> None:
        """Every invariant of the index at rest."""
        database = sqlite3.connect(self.store.folder / DATABASE_NAME)

        def one(sql: str) -> int:
            return int(database.execute(sql).fetchone()[0])

        windows = {
            row[0] for row in database.execute("SELECT w.id FROM windows w JOIN vectors v ON v.key = w.key")
        }
        assert self.store.vectors.window_ids() == windows
        assert one("SELECT count(*) FROM keywords") == one("SELECT count(*) FROM chunks")
        assert one("SELECT count(*) FROM chunks WHERE id NOT IN (SELECT rowid FROM keywords)") == 0
        assert one("SELECT count(*) FROM windows WHERE chunk_id NOT IN (SELECT id FROM chunks)") == 0
        assert one("SELECT count(*) FROM pending WHERE key IN (SELECT key FROM vectors)") == 0
        assert one("SELECT count(*) FROM pending WHERE key NOT IN (SELECT key FROM windows)") == 0
        assert one(
            "SELECT count(DISTINCT key) FROM windows WHERE key NOT IN (SELECT key FROM vectors)"
        ) == one("SELECT count(*) FROM pending")
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        database.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "index")
    yield bench
    bench.sound()
    bench.store.close()


TEXT = "# Guide\n\nIntro words.\n\n## Kiln\n\nFire the kiln hot.\n\n## Glaze\n\nMix the celadon.\n"


def test_a_document_is_found_by_words_and_by_meaning(bench: Bench) -> None:
    bench.write("a.md", TEXT)
    assert bench.by_words("celadon") == ["## Glaze\n\nMix the celadon."]
    assert "Fire the kiln" in bench.by_meaning("fire kiln")[0]


def test_words_are_found_before_their_vectors_come(bench: Bench) -> None:
    written = bench.write("a.md", TEXT, embed=False)
    assert bench.by_words("celadon")
    assert bench.by_meaning("celadon") == []
    assert len(bench.store.pending_windows(100)) == len(written.keys) == 3
    bench.embed(written.keys)
    assert bench.by_meaning("celadon")


def test_an_edit_replaces_only_the_chunks_it_touched(bench: Bench) -> None:
    first = bench.write("a.md", TEXT)
    planned = bench.planned
    second = bench.write(
        "a.md", TEXT.replace("hot", "slowly").replace("Intro", "More\nintro"), replaces=first.file_id
    )
    assert (second.file_id, second.chunks_new, bench.planned - planned) == (first.file_id, 2, 2)
    assert bench.by_words("hot") == []
    with bench.store.read() as view:
        hits = view.search_keywords(["celadon"], 5, Scope())
        glaze = view.load_chunks([hits[0].chunk_id])[hits[0].chunk_id]
    assert (glaze.metadata.line_start, glaze.metadata.line_end) == (10, 12), (
        "the kept chunk moved down a line"
    )
    assert glaze.line_numbers == (10, 11, 12)


def test_ids_are_never_used_again(bench: Bench) -> None:
    seen: set[int] = set()
    for _ in range(3):
        written = bench.write("a.md", TEXT)
        ids = bench.store.vectors.window_ids()
        assert not ids & seen
        seen |= ids
        bench.store.remove_files([written.file_id])
        assert len(bench.store.vectors) == 0


def test_a_shrunk_document_leaves_nothing_behind(bench: Bench) -> None:
    long = "# D\n\n" + "".join(f"## Part {i}\n\nUnique{i} words.\n\n" for i in range(10))
    written = bench.write("d.md", long)
    bench.write("d.md", "# D\n\n## Part 0\n\nUnique0 words.\n", replaces=written.file_id)
    assert bench.by_words("unique9") == []
    assert len(bench.store.vectors) == 2


def test_text_that_comes_back_needs_no_embedding(bench: Bench) -> None:
    first = bench.write("a.md", TEXT)
    bench.store.remove_files([first.file_id])
    again = bench.write("elsewhere/b.md", TEXT)
    assert again.keys == ()
    assert len(bench.store.vectors) == 3


def test_pending_text_that_nobody_wants_any_more_is_dropped(bench: Bench) -> None:
    one = bench.write("a.md", TEXT, embed=False)
    bench.write("b.md", TEXT, embed=False)
    bench.store.remove_files([one.file_id])
    assert len(bench.store.pending_windows(100)) == 3
    bench.write("b.md", "# Other\n\nThings.\n", embed=False)
    assert len(bench.store.pending_windows(100)) == 1


def test_a_file_moved_over_another_replaces_it(bench: Bench) -> None:
    bench.write("a.md", "# A\n\nAlpha.\n")
    moved = bench.write("b.md", "# B\n\nBeta.\n")
    bench.write("a.md", "# B\n\nBeta.\n", replaces=moved.file_id)
    assert bench.by_words("alpha") == []
    assert set(bench.store.files(bench.root.id)) == {"a.md"}


def test_a_suspended_root_is_not_found_and_comes_back_whole(bench: Bench) -> None:
    bench.write("a.md", TEXT)
    bench.store.suspend_root(bench.root.id, 5)
    assert bench.by_words("celadon") == []
    assert bench.by_meaning("celadon") == []
    bench.store.resume_root(bench.root.id)
    assert bench.by_words("celadon")
    assert bench.by_meaning("celadon")


def test_skipping_a_file_removes_what_was_indexed_of_it(bench: Bench) -> None:
    written = bench.write("a.md", TEXT)
    source = SourceFile("a.md", StatFingerprint(2, 2, 2, 1))
    bench.store.write_skipped(
        bench.root, source, "no permission", content_hash="", read_ns=3, reader="r", replaces=written.file_id
    )
    assert bench.by_words("celadon") == []
    assert bench.store.files(bench.root.id)["a.md"].skipped == "no permission"
    with bench.store.read() as view:
        assert view.skipped() == [("/docs/a.md", "no permission")]


def test_reopening_gives_the_same_index(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "index")
    bench.write("a.md", TEXT)
    words, meaning = bench.by_words("celadon"), bench.by_meaning("celadon")
    bench.store.close()
    store = load_index(str(tmp_path / "index"))
    bench.store = store
    assert (bench.by_words("celadon"), bench.by_meaning("celadon")) == (words, meaning)
    bench.sound()
    store.close()


def test_another_planners_vectors_stay_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "index")
    bench.write("a.md", TEXT)
    bench.store.load_vectors("another")
    assert len(bench.store.vectors) == 0
    assert bench.store.unplanned_files("another") == [1]
    bench.store.load_vectors(PLANNER.fingerprint)
    assert len(bench.store.vectors) == 3
    bench.store.close()


@pytest.mark.parametrize(
    "damage", ["zero", "ten bytes", "half", "minus three", "garbage", "another database"]
)
def test_a_damaged_database_is_kept_aside_and_begun_anew(tmp_path: Path, damage: str) -> None:
    bench = Bench(tmp_path / "index")
    for number in range(20):
        bench.write(f"{number}.md", TEXT.replace("celadon", f"celadon{number} " * 50))
    bench.store.close()
    path = tmp_path / "index" / DATABASE_NAME
    content = path.read_bytes()
    if damage == "another database":
        path.unlink()
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE t(x)")
        other.close()
    else:
        path.write_bytes(
            {
                "zero": b"",
                "ten bytes": content[:10],
                "half": content[: len(content) // 2],
                "minus three": content[:-3],
                "garbage": os.urandom(len(content)),
            }[damage]
        )
    store = Store(tmp_path / "index")
    store.load_vectors(PLANNER.fingerprint)
    assert [stored.root.path for stored in store.roots()] == ["/docs"], (
        "the roots are known from the file beside it"
    )
    if damage == "minus three" and not store.notes:
        # SQLite reads the missing bytes as zeros; where they were zeros, nothing is damaged.
        bench.store = store
        assert len(bench.by_words("kiln")) == 20
    elif damage != "zero":
        assert any("damaged" in note for note in store.notes)
        assert list((tmp_path / "index").glob("*.damaged-*"))
    store.close()


def test_only_the_latest_damaged_databases_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "index"
    for day in range(1, 6):
        Store(folder).close()
        (folder / DATABASE_NAME).write_bytes(f"garbage of day {day} ".encode() * 1000)
        monkeypatch.setattr("copilotd.index.heal.time.strftime", lambda _, day=day: f"2026010{day}T000000")
        Store(folder).close()
    kept = sorted(path.name[-15:] for path in folder.glob("*.damaged-*"))
    assert kept == ["20260104T000000", "20260105T000000"]


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_that_was_taken_away_is_noticed(tmp_path: Path, how: str) -> None:
    store = Store(tmp_path)
    assert not store.lost()
    (tmp_path / DATABASE_NAME).rename(tmp_path / "elsewhere")
    if how == "replaced":
        (tmp_path / DATABASE_NAME).write_bytes(b"")
    assert store.lost()
    store.close()


def test_a_flipped_byte_in_a_text_is_not_quoted(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "index")
    written = bench.write("a.md", TEXT)
    bench.write("b.md", "# Other\n\nA celadon bowl.\n")
    with sqlite3.connect(tmp_path / "index" / DATABASE_NAME) as database:
        database.execute(
            "UPDATE documents SET text = replace(CAST(text AS TEXT), 'Mix', 'Mux') WHERE file_id = ?",
            (written.file_id,),
        )
    database.close()
    assert bench.by_words("celadon") == ["# Other\n\nA celadon bowl."]
    assert bench.store.take_damaged() == {written.file_id}
    assert bench.store.take_damaged() == set()
    bench.store.close()


def test_a_flipped_byte_in_a_vector_is_computed_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "index")
    bench.write("a.md", TEXT)
    bench.store.close()
    with sqlite3.connect(tmp_path / "index" / DATABASE_NAME) as database:
        database.execute("UPDATE vectors SET vector = zeroblob(length(vector)) WHERE rowid = 1")
    database.close()
    store = load_index(tmp_path / "index")
    assert len(store.vectors) == 2
    [file_id] = store.unplanned_files(PLANNER.fingerprint)
    keys = store.replan_document(file_id, PLANNER.fingerprint, plan)
    assert len(keys) == 1
    bench.store = store
    bench.embed(keys)
    assert len(store.vectors) == 3
    bench.sound()
    store.close()


def test_an_index_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "index")
    bench.write("a.md", TEXT)
    bench.store.close()
    path = tmp_path / "index" / DATABASE_NAME
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    before = path.read_bytes()
    with pytest.raises(IndexTooNew, match="newer version"):
        Store(tmp_path / "index")
    assert path.read_bytes() == before


def test_not_even_the_journal_mode_of_a_newer_index_is_changed(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_NAME
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE chunks(of_tomorrow)")
    database.execute("PRAGMA user_version = 999")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(IndexTooNew):
        Store(tmp_path)
    assert path.read_bytes() == before


def test_unused_vectors_are_dropped_oldest_first(bench: Bench) -> None:
    one = bench.write("a.md", "# A\n\nAlpha.\n")
    two = bench.write("b.md", "# B\n\nBeta.\n")
    bench.store.remove_files([one.file_id])
    bench.store.remove_files([two.file_id])
    size = ENCODER.dimension * 4
    assert bench.store.trim_vectors(size) == 1
    assert bench.write("b.md", "# B\n\nBeta.\n").keys == ()
    assert len(bench.write("a.md", "# A\n\nAlpha.\n").keys) == 1


def test_a_view_sees_one_state_while_the_index_changes(bench: Bench) -> None:
    written = bench.write("a.md", TEXT)
    with bench.store.read() as view:
        before = view.generation
        bench.store.remove_files([written.file_id])
        assert view.search_keywords(["celadon"], 5, Scope())
        assert view.generation == before
    with bench.store.read() as view:
        assert view.search_keywords(["celadon"], 5, Scope()) == []
        assert view.generation > before


def test_vectors_are_stored_as_given(bench: Bench) -> None:
    written = bench.write("a.md", TEXT)
    query = ENCODER.encode([text for _, text in [(b"", "Guide > Kiln\n## Kiln\n\nFire the kiln hot.")]])
    with bench.store.read() as view:
        scores = view.score_chunks(query, [2])
    assert np.isclose(scores[0, 0], 1.0, atol=1e-5)
    assert written.chunks_new == 3


def test_tokens_come_and_go_with_their_vectors(bench: Bench) -> None:
    written = bench.write("a.md", TEXT, embed=False)
    work = bench.store.pending_texts(written.keys)
    packed = [bytes([number]) * 8 for number in range(len(work))]
    bench.store.put_vectors(
        [key for key, _ in work], ENCODER.encode([text for _, text in work]), packed_tokens=packed
    )
    with bench.store.read() as view:
        assert sorted(view.packed_tokens([1, 2, 3, 99]).values()) == packed
    database = sqlite3.connect(bench.store.folder / DATABASE_NAME)
    with database:
        database.execute("UPDATE tokens SET packed = x'00' WHERE packed = ?", (packed[0],))
    with bench.store.read() as view:
        assert sorted(view.packed_tokens([1, 2, 3]).values()) == packed[1:], "damaged ones are left out"
    bench.store.remove_files([written.file_id])
    assert bench.store.trim_vectors(len(packed) * (ENCODER.dimension * 4 + 8)) == 0
    assert bench.store.trim_vectors(len(packed) * ENCODER.dimension * 4) == 1, "their tokens take room, too"
    assert bench.store.trim_vectors(0) == len(packed) - 1
    assert database.execute("SELECT count(*) FROM tokens").fetchone() == (0,)
    database.close()


def test_an_index_from_before_tokens_is_embedded_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "index")
    bench.write("a.md", TEXT)
    bench.store.close()
    with sqlite3.connect(tmp_path / "index" / DATABASE_NAME) as database:
        database.execute("DROP TRIGGER tokens_go_with_vectors")
        database.execute("DROP TABLE tokens")
        database.execute("PRAGMA user_version = 2")
    database.close()
    store = load_index(tmp_path / "index")
    [file_id] = store.unplanned_files(PLANNER.fingerprint)
    assert len(store.replan_document(file_id, PLANNER.fingerprint, plan)) == 3
    store.close()


def test_an_older_index_is_brought_up_to_date_and_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "index")
    bench.write("a.md", TEXT)
    bench.store.close()
    path = tmp_path / "index" / DATABASE_NAME
    with sqlite3.connect(path) as database:
        # What version 1 had.
        database.execute("ALTER TABLE roots DROP COLUMN poll")
        database.execute("DROP TRIGGER tokens_go_with_vectors")
        database.execute("DROP TABLE tokens")
        database.execute("PRAGMA user_version = 1")
    database.close()
    store = load_index(tmp_path / "index")
    assert store.notes == []
    assert [(stored.root.path, stored.root.poll) for stored in store.roots()] == [("/docs", False)]
    bench.store = store
    assert bench.by_words("celadon")
    [file_id] = store.unplanned_files(PLANNER.fingerprint)
    bench.embed(store.replan_document(file_id, PLANNER.fingerprint, plan))
    assert bench.by_meaning("celadon")
    bench.sound()
    store.close()


@pytest.mark.parametrize("after", range(1, 40, 3))
def test_a_transaction_that_fails_anywhere_changes_nothing_and_blocks_nothing(
    tmp_path: Path, after: int
) -> None:
    bench = Bench(tmp_path / "index")
    first = bench.write("a.md", TEXT)
    left = after

    def authorize(*_: object) -> int:
        nonlocal left
        left -= 1
        return sqlite3.SQLITE_OK if left > 0 else sqlite3.SQLITE_DENY

    bench.store._connection.set_authorizer(authorize)
    with pytest.raises(sqlite3.DatabaseError):
        bench.write("a.md", TEXT.replace("celadon", "shino"), replaces=first.file_id)
    bench.store._connection.set_authorizer(None)
    assert bench.by_words("celadon")
    bench.write("a.md", TEXT.replace("celadon", "shino"), replaces=first.file_id)
    assert bench.by_words("celadon") == []
    bench.sound()
    bench.store.close()


def test_a_vector_that_is_no_number_is_refused(bench: Bench) -> None:
    written = bench.write("a.md", TEXT, embed=False)
    rows = np.full((len(written.keys), ENCODER.dimension), np.nan, np.float32)
    with pytest.raises(ValueError, match="not a number"):
        bench.store.put_vectors(list(written.keys), rows)
    assert len(bench.store.pending_windows(10)) == 3


def test_pending_text_of_another_model_is_dropped_and_planned_anew(bench: Bench) -> None:
    written = bench.write("a.md", TEXT, embed=False)
    bench.store.load_vectors("another")
    assert bench.store.pending_windows(10) == []
    bench.store.load_vectors(PLANNER.fingerprint)
    assert bench.store.unplanned_files(PLANNER.fingerprint) == [written.file_id]
    bench.embed(bench.store.replan_document(written.file_id, PLANNER.fingerprint, plan))
    assert len(bench.store.vectors) == 3


def test_vectors_in_memory_that_cannot_follow_are_filled_anew(bench: Bench) -> None:
    """As after an error of FAISS between the commit and its change."""
    bench.write("a.md", TEXT)
    bench.store.vectors.replace_all([(999, 1, 1)], np.zeros((1, 7), np.float32))
    bench.write("b.md", TEXT.replace("celadon", "shino"))
    assert any("filled anew" in note for note in bench.store.notes)
    assert any("celadon" in text for text in bench.by_meaning("celadon"))

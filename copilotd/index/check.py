"""Verifies everything an index holds, against itself and against what it was made from.

Only what is stored is read here; that the files on disk are as they were read is for the engine to see.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np

from copilotd.index import catalog, keywords
from copilotd.index.reader import CHUNK_ROW, ReadView
from copilotd.index.rows import keyword_texts
from copilotd.index.store import PlanWindows
from copilotd.index.vectors import VectorIndex
from copilotd.types import Finding, Window

# Vectors are stored as float32 of unit length.
_NORM_TOLERANCE = 1e-3

# Rows that belong to nothing, and how many there are of them.
_ORPHANS = (
    ("files", "root_id NOT IN (SELECT id FROM roots)"),
    ("documents", "file_id NOT IN (SELECT id FROM files)"),
    ("chunks", "file_id NOT IN (SELECT file_id FROM documents)"),
    ("keywords", "rowid NOT IN (SELECT id FROM chunks)"),
    ("windows", "chunk_id NOT IN (SELECT id FROM chunks)"),
    ("pending", "key NOT IN (SELECT key FROM windows)"),
    ("pending", "key IN (SELECT key FROM vectors)"),
    ("tokens", "key NOT IN (SELECT key FROM vectors)"),
)


def check_database(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Checks the pages, the references between tables and the inverted index.

    Args:
        connection: One that may write, outside a transaction: FTS5 checks itself by a command.
    """
    for (problem,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
        if problem != "ok":
            yield Finding("database", "", str(problem))
    for table, condition in _ORPHANS:
        count = connection.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()[0]
        if count:
            yield Finding("orphans", "", f"{count} rows of {table} belong to nothing")
    if problem := keywords.check(connection):
        yield Finding("keywords", "", f"the word index differs from its rows: {problem}")


def delete_orphans(connection: sqlite3.Connection) -> None:
    """Deletes the rows that belong to nothing; the caller has a transaction."""
    for table, condition in _ORPHANS:
        connection.execute(f"DELETE FROM {table} WHERE {condition}")


def check_document(
    view: ReadView, file_id: int, path: str, planner: str, plan_windows: PlanWindows
) -> Iterator[Finding]:
    """Checks one document: its rows, its words against its text, its windows and pending text against the planner."""
    stored = view.load_document(file_id)
    if stored is None:
        yield Finding("document", path, "its stored text is damaged", file_id)
        return
    root_id, document, chunks = stored
    relative_path, planned_by = view.connection.execute(
        "SELECT f.relative_path, d.planner FROM files f JOIN documents d ON d.file_id = f.id WHERE f.id = ?",
        (file_id,),
    ).fetchone()
    sound = {
        row[0]
        for row in view.connection.execute(f"{CHUNK_ROW} WHERE c.file_id = ?", (file_id,))
        if catalog.checksum(*row[1:12]) == row[12]
    }
    for chunk_id, chunk in chunks:
        if chunk_id not in sound or not 0 <= chunk.start < chunk.end <= len(document.text):
            yield Finding("chunk", path, f"the row of chunk {chunk.metadata.chunk_index} is damaged", file_id)
            continue
        words = keywords.stored_row(view.connection, chunk_id)
        if words != keywords.row(**keyword_texts(root_id, os.fsdecode(relative_path), document, chunk)):
            yield Finding(
                "words", path, f"the words of chunk {chunk.metadata.chunk_index} are not its text's", file_id
            )
        if planned_by == planner:
            problem = _compare_windows(view.connection, chunk_id, plan_windows(document, chunk))
            if problem:
                yield Finding("windows", path, f"chunk {chunk.metadata.chunk_index}: {problem}", file_id)


def _compare_windows(connection: sqlite3.Connection, chunk_id: int, planned: Sequence[Window]) -> str:
    rows = connection.execute(
        "SELECT w.start, w.end, w.key, p.text, v.key FROM windows w LEFT JOIN pending p ON p.key = w.key"
        " LEFT JOIN vectors v ON v.key = w.key WHERE w.chunk_id = ? ORDER BY w.id",
        (chunk_id,),
    ).fetchall()
    if [row[:3] for row in rows] != [(window.start, window.end, window.key) for window in planned]:
        return "its windows are not those of its text"
    for (_, _, _, text, vector), window in zip(rows, planned, strict=True):
        if vector is None and text is None:
            return "a window has no vector and does not wait for one"
        if vector is None and text != window.embedded_text.encode("utf-8", "replace").decode():
            return "the text that waits for a vector is not the window's"
    return ""


def check_vectors(connection: sqlite3.Connection) -> Iterator[tuple[bytes, Finding]]:
    """Checks each stored vector's checksum, length, and that it is finite and normalised; yields the bad ones' keys."""
    for key, blob, crc in connection.execute("SELECT key, vector, checksum FROM vectors"):
        problem = ""
        if catalog.checksum(blob) != crc:
            problem = "its checksum is wrong"
        elif len(blob) % 4 or not np.isfinite(vector := np.frombuffer(blob, np.float32)).all():
            problem = "it is not a row of numbers"
        elif abs(float(np.linalg.norm(vector)) - 1) > _NORM_TOLERANCE:
            problem = "it is not normalised"
        if problem:
            yield key, Finding("vector", "", f"vector {key.hex()}: {problem}")
    for key, packed, crc in connection.execute("SELECT key, packed, checksum FROM tokens"):
        if catalog.checksum(packed) != crc:
            yield key, Finding("vector", "", f"vector {key.hex()}: the checksum of its tokens is wrong")


def check_memory(connection: sqlite3.Connection, vectors: VectorIndex, planner: str) -> Iterator[Finding]:
    """Compares the vectors in memory with the stored ones; on the writer's thread, so that neither changes."""
    rows = connection.execute(
        "SELECT w.id, v.vector FROM windows w JOIN vectors v ON v.key = w.key JOIN chunks c ON c.id = w.chunk_id"
        " JOIN files f ON f.id = c.file_id JOIN documents d ON d.file_id = f.id"
        " JOIN roots r ON r.id = f.root_id WHERE r.suspended_ns IS NULL AND d.planner = ?",
        (planner,),
    ).fetchall()
    stored = dict(rows)
    held = vectors.window_ids()
    if held != stored.keys():
        lost, extra = len(stored.keys() - held), len(held - stored.keys())
        yield Finding("memory", "", f"{lost} vectors are missing in memory, {extra} are not in the database")
        return
    ids = sorted(held)
    different = sum(
        1
        for window_id, vector in zip(ids, vectors.reconstruct(ids), strict=True)
        if vector.tobytes() != stored[window_id]
    )
    if different:
        yield Finding("memory", "", f"{different} vectors in memory differ from the stored ones")

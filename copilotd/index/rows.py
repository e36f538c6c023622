"""The rows of one file: its own, its chunks' and windows', written and deleted inside a transaction of the store."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from copilotd.index import catalog, keywords
from copilotd.types import Chunk, Document, Root, SourceFile, Window

_T = TypeVar("_T")

# SQLite refuses more variables than this in one statement in its older builds.
_MAX_VARIABLES = 900


def write_file(
    connection: sqlite3.Connection,
    root: Root,
    source: SourceFile,
    replaces: int | None,
    content_hash: str,
    read_ns: int,
    reader: str,
    skipped: str,
    warnings: Sequence[str],
) -> tuple[int, bool]:
    """Writes the file's row; returns its number and whether its path changed."""
    path = os.fsencode(source.relative_path)
    stat = source.fingerprint
    values = (
        root.id,
        path,
        stat.mtime_ns,
        stat.size,
        stat.ctime_ns,
        stat.inode,
        content_hash,
        read_ns,
        reader,
        skipped,
        json.dumps(list(warnings)),
    )
    if replaces is not None:
        row = connection.execute("SELECT relative_path FROM files WHERE id = ?", (replaces,)).fetchone()
        if row is not None:
            connection.execute(
                "UPDATE files SET root_id = ?, relative_path = ?, mtime_ns = ?, size = ?, ctime_ns = ?,"
                " inode = ?, content_hash = ?, read_ns = ?, reader = ?, skipped = ?, warnings = ? WHERE id = ?",
                (*values, replaces),
            )
            return replaces, row[0] != path
    cursor = connection.execute(
        "INSERT INTO files(root_id, relative_path, mtime_ns, size, ctime_ns, inode, content_hash, read_ns,"
        " reader, skipped, warnings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid, False


def place_chunk(
    connection: sqlite3.Connection, chunk_id: int | None, file_id: int, chunk: Chunk, digest: bytes
) -> int:
    """Writes a chunk's row, over that of ``chunk_id`` where it is given; returns its number."""
    place = chunk.metadata
    values = (
        file_id,
        place.chunk_index,
        chunk.start,
        chunk.end,
        chunk.section,
        place.line_start,
        place.line_end,
        place.page,
        place.page_end,
        chunk.context,
        digest,
    )
    crc = catalog.checksum(*values)
    if chunk_id is not None:
        connection.execute(
            "UPDATE chunks SET file_id = ?, chunk_index = ?, start = ?, end = ?, section = ?, line_start = ?,"
            " line_end = ?, page = ?, page_end = ?, context = ?, digest = ?, checksum = ? WHERE id = ?",
            (*values, crc, chunk_id),
        )
        return chunk_id
    cursor = connection.execute(
        "INSERT INTO chunks(file_id, chunk_index, start, end, section, line_start, line_end, page, page_end,"
        " context, digest, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, crc),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def insert_windows(
    connection: sqlite3.Connection, planned: Sequence[tuple[int, Sequence[Window]]]
) -> tuple[list[tuple[int, int, bytes, int]], list[bytes]]:
    """Writes windows, and the text of those whose vector is not known.

    Returns:
        ``(window id, chunk id, vector, checksum)`` of those known already, and the keys to embed.
    """
    added, keys = [], []
    now = time.time_ns()
    for chunk_id, windows in planned:
        for window in windows:
            cursor = connection.execute(
                "INSERT INTO windows(chunk_id, start, end, key) VALUES (?, ?, ?, ?)",
                (chunk_id, window.start, window.end, window.key),
            )
            known = connection.execute(
                "SELECT vector, checksum FROM vectors WHERE key = ?", (window.key,)
            ).fetchone()
            if known is None:
                connection.execute(
                    "INSERT OR IGNORE INTO pending VALUES (?, ?)",
                    (window.key, window.embedded_text.encode("utf-8", "replace").decode()),
                )
                keys.append(window.key)
            else:
                assert cursor.lastrowid is not None
                connection.execute("UPDATE vectors SET used_ns = ? WHERE key = ?", (now, window.key))
                added.append((cursor.lastrowid, chunk_id, known[0], known[1]))
    return added, keys


def displace(connection: sqlite3.Connection, root: Root, source: SourceFile, keep: int | None) -> list[int]:
    """Deletes whatever else stands under this path: a file moved over another replaces it."""
    rows = connection.execute(
        "SELECT id FROM files WHERE root_id = ? AND relative_path = ? AND id IS NOT ?",
        (root.id, os.fsencode(source.relative_path), keep),
    ).fetchall()
    return delete_files(connection, [row[0] for row in rows])


def delete_files(connection: sqlite3.Connection, file_ids: Sequence[int]) -> list[int]:
    """Deletes files with all that hangs on them; returns the window ids that must leave FAISS."""
    removed: list[int] = []
    for batch in batches(file_ids):
        chunk_ids = [
            row[0]
            for row in connection.execute(f"SELECT id FROM chunks WHERE file_id IN ({marks(batch)})", batch)
        ]
        removed += delete_chunks(connection, chunk_ids)
        connection.execute(f"DELETE FROM documents WHERE file_id IN ({marks(batch)})", batch)
        connection.execute(f"DELETE FROM files WHERE id IN ({marks(batch)})", batch)
    return removed


def delete_chunks(connection: sqlite3.Connection, chunk_ids: Sequence[int]) -> list[int]:
    """Deletes chunks with their words and windows; returns the window ids that must leave FAISS."""
    removed = delete_windows(connection, chunk_ids)
    keywords.delete(connection, chunk_ids)
    for batch in batches(chunk_ids):
        connection.execute(f"DELETE FROM chunks WHERE id IN ({marks(batch)})", batch)
    return removed


def delete_windows(connection: sqlite3.Connection, chunk_ids: Sequence[int]) -> list[int]:
    """Deletes windows; vectors stay for when the text comes back, pending texts that nobody wants go."""
    removed: list[int] = []
    for batch in batches(chunk_ids):
        rows = connection.execute(
            f"SELECT id, key FROM windows WHERE chunk_id IN ({marks(batch)})", batch
        ).fetchall()
        connection.execute(f"DELETE FROM windows WHERE chunk_id IN ({marks(batch)})", batch)
        connection.executemany(
            "DELETE FROM pending WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM windows WHERE key = ?1)",
            [(key,) for _, key in rows],
        )
        removed += [window_id for window_id, _ in rows]
    return removed


def keyword_texts(root_id: int, relative_path: str, document: Document, chunk: Chunk) -> dict[str, str]:
    """Returns the texts by which a chunk is found by words; arguments of :func:`keywords.insert`."""
    return {
        "scope": keywords.scope_token(root_id),
        "title": f"{document.title} {document.description}",
        "heading": " ".join(document.sections[chunk.section].heading_path),
        "body": f"{chunk.context}\n{document.text[chunk.start : chunk.end]}",
        "name": os.fsencode(relative_path).decode("utf-8", "replace"),
    }


def digest_of(document: Document, chunk: Chunk, planner: str) -> bytes:
    """Identifies what a chunk's words and vectors depend on; its place is not among it."""
    digest = hashlib.blake2b(digest_size=16)
    parts: Mapping[str, str] = {
        "planner": planner,
        "title": document.title,
        "description": document.description,
        "headings": "\x1f".join(document.sections[chunk.section].heading_path),
        "context": chunk.context,
        "text": document.text[chunk.start : chunk.end],
    }
    for part in parts.values():
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.digest()


def batches(items: Sequence[_T]) -> Iterator[list[_T]]:
    """Cuts what a statement is given into runs that SQLite takes."""
    for first in range(0, len(items), _MAX_VARIABLES):
        yield list(items[first : first + _MAX_VARIABLES])


def marks(batch: Sequence[object]) -> str:
    """Returns a question mark for each item."""
    return ",".join("?" * len(batch))

"""The rows of the vectors: put, listed, distrusted, trimmed; each function runs in the caller's transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence

import numpy as np

from copilotd.index import catalog
from copilotd.types import Float32Array

VectorRow = tuple[int, int, int, bytes, int]
"""Window id, chunk id, root id, vector, checksum."""

_OF_CITED_WINDOWS = (
    "SELECT w.id, w.chunk_id, f.root_id, v.vector, v.checksum FROM windows w"
    " JOIN vectors v ON v.key = w.key JOIN chunks c ON c.id = w.chunk_id"
    " JOIN files f ON f.id = c.file_id JOIN documents d ON d.file_id = f.id"
    " JOIN roots r ON r.id = f.root_id WHERE r.suspended_ns IS NULL AND d.planner = ?"
)


def of_planner(connection: sqlite3.Connection, planner: str) -> list[VectorRow]:
    """Returns the vectors of all windows that are cited and were planned under ``planner``."""
    return connection.execute(_OF_CITED_WINDOWS, (planner,)).fetchall()


def of_root(connection: sqlite3.Connection, root_id: int) -> list[VectorRow]:
    """Returns the vectors of a root's windows that were planned for the model in use."""
    planner = catalog.get_meta(connection, "planner")
    return connection.execute(f"{_OF_CITED_WINDOWS} AND f.root_id = ?", (planner, root_id)).fetchall()


def put(
    connection: sqlite3.Connection,
    keys: Sequence[bytes],
    vectors: Float32Array,
    packed_tokens: Sequence[bytes],
) -> list[VectorRow]:
    """Stores vectors and the token vectors beside them; their windows are no longer pending.

    Args:
        connection: In a transaction.
        keys: Content addresses.
        vectors: ``(len(keys), dim)`` float32, L2-normalised.
        packed_tokens: Token vectors of each window, or none at all.

    Returns:
        The rows of the windows that have them now.
    """
    now = time.time_ns()
    planner = catalog.get_meta(connection, "planner")
    rows: list[VectorRow] = []
    for key, vector in zip(keys, vectors, strict=True):
        blob = np.ascontiguousarray(vector, dtype=np.float32).tobytes()
        connection.execute(
            "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", (key, blob, catalog.checksum(blob), now)
        )
        connection.execute("DELETE FROM pending WHERE key = ?", (key,))
        rows += connection.execute(f"{_OF_CITED_WINDOWS} AND w.key = ?", (planner, key)).fetchall()
    connection.executemany(
        "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)",
        ((key, packed, catalog.checksum(packed)) for key, packed in zip(keys, packed_tokens, strict=False)),
    )
    return rows


def distrust(connection: sqlite3.Connection, keys: Iterable[bytes]) -> None:
    """Drops vectors that are wrong; the documents they are of are planned, and so embedded, again."""
    for key in keys:
        connection.execute(
            "UPDATE documents SET planner = '' WHERE file_id IN (SELECT c.file_id FROM chunks c"
            " JOIN windows w ON w.chunk_id = c.id WHERE w.key = ?)",
            (key,),
        )
        connection.execute("DELETE FROM vectors WHERE key = ?", (key,))


def keys_of(connection: sqlite3.Connection, window_ids: Iterable[int]) -> list[bytes]:
    """Returns the keys of windows."""
    return [
        key
        for window_id in window_ids
        for (key,) in connection.execute("SELECT key FROM windows WHERE id = ?", (window_id,))
    ]


def trim(connection: sqlite3.Connection, max_bytes: int) -> int:
    """Drops vectors that no window uses, oldest first, until those left take at most ``max_bytes``; counts them."""
    unused = connection.execute(
        "SELECT v.key, length(v.vector) + coalesce(length(t.packed), 0) FROM vectors v"
        " LEFT JOIN tokens t ON t.key = v.key WHERE NOT EXISTS"
        " (SELECT 1 FROM windows w WHERE w.key = v.key) ORDER BY v.used_ns DESC"
    ).fetchall()
    total, dropped = 0, []
    for key, size in unused:
        total += size
        if total > max_bytes:
            dropped.append((key,))
    connection.executemany("DELETE FROM vectors WHERE key = ?", dropped)
    return len(dropped)

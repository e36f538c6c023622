"""What an index holds, in a form that two indexes of the same folder must agree on."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from support.hashing_encoder import HashingEncoder

from copilotd.engine import Engine
from copilotd.index.reader import ReadView
from copilotd.index.store import Store
from copilotd.types import Scope

EVERYTHING = Scope()


def store_of(engine: Engine) -> Store:
    """The engine's own store: what is checked here is not what a question shows."""
    return engine._store


def snapshot(engine: Engine, words: tuple[str, ...], queries: tuple[str, ...]) -> dict[str, Any]:
    """Documents, chunks, windows, vectors, and what searches find; ids and times of reading left out."""
    store = store_of(engine)
    with store.read() as view:
        names = {
            file_id: (namespace, path, root)
            for file_id, path, root, namespace in view.documents()
        }  # fmt: skip
        documents = {name: _document(view, file_id) for file_id, name in names.items()}
        places = {
            chunk_id: (names[file_id], index)
            for chunk_id, file_id, index in view.connection.execute(
                "SELECT id, file_id, chunk_index FROM chunks"
            )
            if file_id in names
        }
        found = {
            word: sorted(
                (places[hit.chunk_id], round(hit.score, 5))
                for hit in view.search_keywords([word], 10_000, EVERYTHING)
            )
            for word in words
        }
        near = {
            query: sorted(
                (places[hit.chunk_id], round(hit.score, 4))
                for hit in view.search_vectors(HashingEncoder().encode([query]), 10_000, EVERYTHING)[0]
            )
            for query in queries
        }
        skipped = view.skipped()
    return {"documents": documents, "found": found, "near": near, "skipped": skipped}


def _document(view: ReadView, file_id: int) -> dict[str, Any]:
    stored = view.load_document(file_id)
    assert stored is not None
    _, document, chunks = stored
    return {
        "document": document,
        "chunks": [chunk for _, chunk in chunks],
        "windows": [
            view.connection.execute(
                "SELECT w.start, w.end, w.key, v.vector FROM windows w LEFT JOIN vectors v ON v.key = w.key"
                " WHERE w.chunk_id = ? ORDER BY w.start, w.end",
                (chunk_id,),
            ).fetchall()
            for chunk_id, _ in chunks
        ],
    }


def check_vectors(engine: Engine, queries: tuple[str, ...]) -> None:
    """FAISS holds exactly the windows it should, and finds what brute force finds."""
    store = store_of(engine)
    with store.read() as view:
        rows = view.connection.execute(
            "SELECT w.id, w.chunk_id, v.vector FROM windows w JOIN vectors v ON v.key = w.key"
            " JOIN chunks c ON c.id = w.chunk_id JOIN files f ON f.id = c.file_id"
            " JOIN roots r ON r.id = f.root_id WHERE r.suspended_ns IS NULL"
        ).fetchall()
        assert store.vectors.window_ids() == {row[0] for row in rows}
        if not rows:
            return
        matrix = np.stack([np.frombuffer(row[2], np.float32) for row in rows])
        for query in queries:
            row = HashingEncoder().encode([query])
            best: dict[int, float] = {}
            for (_, chunk_id, _), score in zip(rows, (matrix @ row[0]).tolist(), strict=True):
                best[chunk_id] = max(score, best.get(chunk_id, -2.0))
            hits = view.search_vectors(row, len(best), EVERYTHING)[0]
            assert {hit.chunk_id: round(hit.score, 4) for hit in hits} == {
                chunk_id: round(score, 4) for chunk_id, score in best.items()
            }


def check_files(engine: Engine) -> None:
    """Every stored fingerprint is that of the file as it is."""
    for stored in store_of(engine).roots():
        for path, known in store_of(engine).files(stored.root.id).items():
            status = os.lstat(os.path.join(stored.root.path, path))
            assert (status.st_mtime_ns, status.st_size, status.st_ctime_ns, status.st_ino) == (
                known.fingerprint.mtime_ns,
                known.fingerprint.size,
                known.fingerprint.ctime_ns,
                known.fingerprint.inode,
            ), path

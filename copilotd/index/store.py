"""The store: commits each change to SQLite first, then brings FAISS to the same state.

A file changes in two transactions: text, places, words and the list of windows still to embed; then, as
they come, their vectors. A crash between the two leaves pending windows, which is a valid state.

One thread at a time may call the methods that write (the engine has a thread for it); :meth:`Store.read`
gives any thread its own consistent view.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from copilotd.errors import IndexError_, IndexMissing
from copilotd.index import catalog, keywords, rows, vector_rows
from copilotd.index.heal import open_or_heal
from copilotd.index.reader import ReadView, SharedCaches
from copilotd.index.roots_file import load_roots, save_roots
from copilotd.index.vectors import VectorIndex
from copilotd.types import (
    Chunk,
    Document,
    Float32Array,
    IndexedFile,
    Root,
    SourceFile,
    StatFingerprint,
    Window,
)

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

PlanWindows = Callable[[Document, Chunk], list[Window]]

# SQLite refuses more variables than this in one statement in its older builds.
_MAX_VARIABLES = 900


@dataclass(frozen=True, slots=True)
class StoredRoot:
    """A root as the store holds it.

    Attributes:
        root: The root.
        suspended_ns: Since when (ns) its documents are kept but not cited; None while they are.
    """

    root: Root
    suspended_ns: int | None


@dataclass(frozen=True, slots=True)
class Written:
    """What storing a document did.

    Attributes:
        file_id: The file's number.
        chunks_new: Chunks that were not there before.
        keys: Keys of the windows that still need a vector.
    """

    file_id: int
    chunks_new: int
    keys: tuple[bytes, ...]


class Store:
    """An open index folder.

    Attributes:
        folder: Where it is.
        vectors: The vectors in memory.
        notes: What happened on opening that a person should know.
    """

    def __init__(self, folder: Path) -> None:
        """Opens or creates the index in ``folder``.

        A database that is damaged is moved aside and a new one begun: the documents are still there
        to be read again, and the roots are known from ``roots.json``.

        Raises:
            IndexTooNew: Made by a newer version; nothing was changed.
        """
        self.folder = folder
        self.vectors = VectorIndex()
        self.notes: list[str] = []
        self._path = folder / catalog.DATABASE_NAME
        self._caches = SharedCaches()
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._connection, note = open_or_heal(self._path)
        if note:
            self.notes.append(note)
        self._identity = os.stat(self._path)
        self._restore_roots()

    def load_vectors(self, planner: str) -> None:
        """Fills FAISS with the vectors of all windows planned under ``planner``; those of another model stay out."""
        with self._transaction() as connection:
            catalog.set_meta(connection, "planner", planner)
            # Text planned for another model must not be embedded by this one: its vector would be stored under
            # the other's key. Documents whose windows have neither vector nor pending text are planned anew.
            connection.execute(
                "DELETE FROM pending WHERE key NOT IN (SELECT w.key FROM windows w JOIN chunks c ON c.id = w.chunk_id"
                " JOIN documents d ON d.file_id = c.file_id WHERE d.planner = ?)",
                (planner,),
            )
            connection.execute(
                "UPDATE documents SET planner = '' WHERE planner = ? AND file_id IN (SELECT c.file_id FROM chunks c"
                " JOIN windows w ON w.chunk_id = c.id WHERE w.key NOT IN (SELECT key FROM vectors)"
                " AND w.key NOT IN (SELECT key FROM pending))",
                (planner,),
            )
        self.vectors.replace_all([], np.empty((0, 0), dtype=np.float32))
        self._add_vectors(vector_rows.of_planner(self._connection, planner))

    def lost(self) -> bool:
        """Whether the database at this path is no longer the one that is open: somebody removed or replaced it."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        except OSError:
            return False  # a disk that doesn't answer says nothing about what is on it
        return not os.path.samestat(there, self._identity)

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Returns whether something was ever indexed in ``folder``."""
        return (folder / catalog.DATABASE_NAME).exists()

    @property
    def planner(self) -> str:
        """The window planner whose vectors are in use; empty before the first."""
        return catalog.get_meta(self._connection, "planner")

    # ------------------------------------------------------------------------------------- reading

    @contextmanager
    def read(self) -> Iterator[ReadView]:
        """Gives this thread a consistent view of the index as of now.

        Raises:
            IndexError_: The database was removed or replaced by somebody else.
        """
        connection = getattr(self._local, "connection", None)
        if connection is None:
            if self.lost():
                raise IndexError_(
                    f"The index database in {self.folder} was removed or replaced while it was open.",
                    "ask again in a moment: the next start makes a new one of the same folders",
                )
            connection = catalog.connect(self._path, read_only=True)
            self._local.connection = connection
            with self._readers_lock:
                self._readers.append(connection)
        if connection.in_transaction:
            # A view within a view of the same thread sees the same state.
            yield ReadView(connection, self.vectors, self._caches)
            return
        connection.execute("BEGIN")
        try:
            yield ReadView(connection, self.vectors, self._caches)
        finally:
            connection.execute("ROLLBACK")

    def roots(self) -> list[StoredRoot]:
        """Returns all roots in the order they were added."""
        with self.read() as view:
            return [StoredRoot(root, suspended) for root, suspended in catalog.read_roots(view.connection)]

    def files(self, root_id: int) -> dict[str, IndexedFile]:
        """Returns what is known of each file of a root, by relative path."""
        with self.read() as view:
            rows = view.connection.execute(
                "SELECT id, relative_path, mtime_ns, size, ctime_ns, inode, content_hash, read_ns, skipped"
                " FROM files WHERE root_id = ?",
                (root_id,),
            )
            return {
                (name := os.fsdecode(path)): IndexedFile(
                    id_, name, StatFingerprint(mtime, size, ctime, inode), digest, read_ns, skipped
                )
                for id_, path, mtime, size, ctime, inode, digest, read_ns, skipped in rows
            }

    def outdated_files(self, root_id: int, *readers: str) -> set[int]:
        """Returns the files of a root that were read by another parser, chunker or analyser."""
        with self.read() as view:
            rows = view.connection.execute(
                "SELECT id FROM files WHERE root_id = ? AND reader NOT IN (SELECT value FROM json_each(?))",
                (root_id, json.dumps(readers)),
            )
            return {row[0] for row in rows}

    def hide(self, file_ids: Iterable[int]) -> None:
        """Stops citing files at once, for the case that their removal can't be stored yet."""
        self._caches.hidden.update(file_ids)

    def show(self, file_ids: Iterable[int]) -> None:
        """Takes back what :meth:`hide` did."""
        self._caches.hidden.difference_update(file_ids)

    def take_damaged(self) -> set[int]:
        """Returns the files whose stored rows were found damaged since the last call."""
        damaged, self._caches.damaged = self._caches.damaged, set()
        return damaged

    def unplanned_files(self, planner: str) -> list[int]:
        """Returns the documents whose windows were planned for another model."""
        with self.read() as view:
            rows = view.connection.execute("SELECT file_id FROM documents WHERE planner != ?", (planner,))
            return [row[0] for row in rows]

    def pending_windows(self, limit: int, exclude: Iterable[bytes] = ()) -> list[tuple[bytes, str]]:
        """Returns up to ``limit`` (key, text) that still need a vector, but none of ``exclude``."""
        left_out = set(exclude)
        with self.read() as view:
            rows = view.connection.execute(
                "SELECT key, text FROM pending LIMIT ?", (limit + len(left_out),)
            ).fetchall()
        return [(key, text) for key, text in rows if key not in left_out][:limit]

    def pending_texts(self, keys: Sequence[bytes]) -> list[tuple[bytes, str]]:
        """Returns (key, text) of those of ``keys`` that still need a vector."""
        with self.read() as view:
            return [
                (key, text)
                for batch in rows.batches(keys)
                for key, text in view.connection.execute(
                    f"SELECT key, text FROM pending WHERE key IN ({rows.marks(batch)})", batch
                )
            ]

    # ------------------------------------------------------------------------------------- writing

    def add_root(self, root: Root) -> Root:
        """Stores a root, or the changed rules of a known one, and returns it with its id."""
        with self._transaction() as connection:
            self._next_generation(connection)
            connection.execute(
                "INSERT INTO roots(path, namespace, include, exclude, chunk_size, chunk_overlap, poll)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT(path, namespace) DO UPDATE SET include = excluded.include,"
                " exclude = excluded.exclude, chunk_size = excluded.chunk_size,"
                " chunk_overlap = excluded.chunk_overlap, poll = excluded.poll",
                (
                    os.fsencode(root.path),
                    root.namespace,
                    json.dumps(root.include),
                    json.dumps(root.exclude),
                    root.chunk_size,
                    root.chunk_overlap,
                    root.poll,
                ),
            )
        self._save_roots()
        return next(
            stored.root
            for stored in self.roots()
            if stored.root.path == root.path and stored.root.namespace == root.namespace
        )

    def remove_root(self, root_id: int) -> int:
        """Forgets a root with everything below it; returns how many documents that were."""
        files = self.files(root_id)
        documents = sum(1 for file in files.values() if not file.skipped)
        with self._transaction() as connection:
            self._next_generation(connection)
            removed = rows.delete_files(connection, [file.id for file in files.values()])
            connection.execute("DELETE FROM roots WHERE id = ?", (root_id,))
        self._publish(removed)
        self._save_roots()
        return documents

    def suspend_root(self, root_id: int, since_ns: int) -> None:
        """Stops citing a root's documents, but keeps their rows and vectors for when it comes back."""
        with self._transaction() as connection:
            self._next_generation(connection)
            connection.execute("UPDATE roots SET suspended_ns = ? WHERE id = ?", (since_ns, root_id))
            windows = [row[0] for row in connection.execute(f"SELECT w.id {_WINDOWS_OF_ROOT}", (root_id,))]
        self._publish(windows)

    def resume_root(self, root_id: int) -> None:
        """Cites a suspended root's documents again; nothing is embedded."""
        with self._transaction() as connection:
            self._next_generation(connection)
            connection.execute("UPDATE roots SET suspended_ns = NULL WHERE id = ?", (root_id,))
            rows = vector_rows.of_root(connection, root_id)
        self._publish((), rows)

    def write_document(
        self,
        root: Root,
        source: SourceFile,
        document: Document,
        chunks: Sequence[Chunk],
        *,
        content_hash: str,
        read_ns: int,
        reader: str,
        planner: str,
        plan_windows: PlanWindows,
        replaces: int | None = None,
        reuse_chunks: bool = True,
    ) -> Written:
        """Stores a document's text, places and words, and lists the windows that need a vector.

        Chunks whose text and headings are as before keep their rows, words and vectors: only their
        places are brought up to date.

        Args:
            root: The root it is under.
            source: Its path and stat fingerprint.
            document: The parsed document.
            chunks: Its chunks, in order.
            content_hash: Hash of the bytes that were read.
            read_ns: Wall clock (ns) when reading began.
            reader: Fingerprint of parser, chunker and analyser.
            planner: Fingerprint of the window planner.
            plan_windows: Cuts a chunk into windows; called for new chunks only.
            replaces: The file's number where it is known already.
            reuse_chunks: False to write every chunk anew.
        """
        with self._transaction() as connection:
            generation = self._next_generation(connection)
            removed = rows.displace(connection, root, source, replaces)
            file_id, moved = rows.write_file(
                connection, root, source, replaces, content_hash, read_ns, reader, "", document.warnings
            )
            text = document.text.encode("utf-8", "replace")
            layout = catalog.pack_layout(document)
            connection.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    file_id,
                    document.doc_title,
                    document.title,
                    document.description,
                    text,
                    layout,
                    planner,
                    generation,
                    catalog.checksum(text, layout),
                ),
            )
            old: dict[bytes, list[int]] = {}
            if reuse_chunks and not moved:
                for chunk_id, digest in connection.execute(
                    "SELECT id, digest FROM chunks WHERE file_id = ? ORDER BY chunk_index", (file_id,)
                ):
                    old.setdefault(digest, []).append(chunk_id)
            all_old = [
                row[0] for row in connection.execute("SELECT id FROM chunks WHERE file_id = ?", (file_id,))
            ]
            kept: set[int] = set()
            new_chunks: list[tuple[int, Chunk, Sequence[Window]]] = []
            for chunk in chunks:
                digest = rows.digest_of(document, chunk, planner)
                if same := old.get(digest):
                    chunk_id = same.pop(0)
                    kept.add(chunk_id)
                    rows.place_chunk(connection, chunk_id, file_id, chunk, digest)
                else:
                    chunk_id = rows.place_chunk(connection, None, file_id, chunk, digest)
                    windows = plan_windows(document, chunk)
                    new_chunks.append((chunk_id, chunk, windows))
                    words = rows.keyword_texts(root.id, source.relative_path, document, chunk)
                    keywords.insert(connection, chunk_id, **words)
            removed += rows.delete_chunks(connection, [id_ for id_ in all_old if id_ not in kept])
            added, keys = rows.insert_windows(
                connection, [(chunk_id, windows) for chunk_id, _, windows in new_chunks]
            )
        self._publish(removed, [(w, c, root.id, vector, crc) for w, c, vector, crc in added])
        return Written(file_id, len(new_chunks), tuple(dict.fromkeys(keys)))

    def replan_document(self, file_id: int, planner: str, plan_windows: PlanWindows) -> tuple[bytes, ...]:
        """Plans a stored document's windows anew, for another model; returns the keys that need a vector."""
        with self.read() as view:
            stored = view.load_document(file_id)
        if stored is None:
            return ()
        root_id, document, chunks = stored
        with self._transaction() as connection:
            self._next_generation(connection)
            ids = [chunk_id for chunk_id, _ in chunks]
            removed = rows.delete_windows(connection, ids)
            planned = [(chunk_id, plan_windows(document, chunk)) for chunk_id, chunk in chunks]
            added, keys = rows.insert_windows(connection, planned)
            connection.execute("UPDATE documents SET planner = ? WHERE file_id = ?", (planner, file_id))
            for chunk_id, chunk in chunks:
                rows.place_chunk(
                    connection, chunk_id, file_id, chunk, rows.digest_of(document, chunk, planner)
                )
        self._publish(removed, [(w, c, root_id, vector, crc) for w, c, vector, crc in added])
        return tuple(dict.fromkeys(keys))

    def write_skipped(
        self,
        root: Root,
        source: SourceFile,
        reason: str,
        *,
        content_hash: str,
        read_ns: int,
        reader: str,
        replaces: int | None = None,
    ) -> int:
        """Remembers that a file can't be indexed and why; what was indexed of it is removed.

        Returns:
            The file's number.
        """
        with self._transaction() as connection:
            self._next_generation(connection)
            removed = rows.displace(connection, root, source, replaces)
            file_id, _ = rows.write_file(
                connection, root, source, replaces, content_hash, read_ns, reader, reason, ()
            )
            chunk_ids = [
                row[0] for row in connection.execute("SELECT id FROM chunks WHERE file_id = ?", (file_id,))
            ]
            removed += rows.delete_chunks(connection, chunk_ids)
            connection.execute("DELETE FROM documents WHERE file_id = ?", (file_id,))
        self._publish(removed)
        return file_id

    def touch_file(self, file_id: int, fingerprint: StatFingerprint, read_ns: int) -> None:
        """Stores a new stat fingerprint of a file whose content is as before."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE files SET mtime_ns = ?, size = ?, ctime_ns = ?, inode = ?, read_ns = ? WHERE id = ?",
                (
                    fingerprint.mtime_ns,
                    fingerprint.size,
                    fingerprint.ctime_ns,
                    fingerprint.inode,
                    read_ns,
                    file_id,
                ),
            )

    def remove_files(self, file_ids: Sequence[int]) -> None:
        """Forgets files that are gone."""
        with self._transaction() as connection:
            self._next_generation(connection)
            removed = rows.delete_files(connection, file_ids)
        self._publish(removed)

    def put_vectors(
        self, keys: Sequence[bytes], vectors: Float32Array, packed_tokens: Sequence[bytes] = ()
    ) -> None:
        """Stores vectors and makes every window with one of these keys findable.

        Args:
            keys: Content addresses.
            vectors: ``(len(keys), dim)`` float32, L2-normalised.
            packed_tokens: Token vectors of each window, from a model that gives them.

        Raises:
            ValueError: A vector is not finite; nothing was stored.
        """
        if not np.isfinite(vectors).all():
            # FAISS would never find them, and never say so.
            raise ValueError("the model gave a vector that is not a number")
        with self._transaction() as connection:
            self._next_generation(connection)
            rows = vector_rows.put(connection, keys, vectors, packed_tokens)
        self._publish((), rows)

    def drop_vectors(self) -> None:
        """Forgets all vectors and lists every window to be embedded anew; its text comes from ``replan_document``."""
        with self._transaction() as connection:
            self._next_generation(connection)
            connection.execute("DELETE FROM vectors")
            connection.execute("UPDATE documents SET planner = ''")
        self.vectors.replace_all([], np.empty((0, 0), dtype=np.float32))

    def run_check(self, check: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs a check that needs the writing connection; it may not change what is stored."""
        return check(self._connection)

    def repair(self, mend: Callable[[sqlite3.Connection], None], bad_keys: Sequence[bytes]) -> None:
        """Mends what needs no document: orphans, the word index, bad vectors and the vectors in memory.

        Args:
            mend: Run in the transaction.
            bad_keys: Keys of vectors to be computed again.
        """
        with self._transaction() as connection:
            self._next_generation(connection)
            mend(connection)
            vector_rows.distrust(connection, bad_keys)
        self.load_vectors(self.planner)

    def trim_vectors(self, max_bytes: int) -> int:
        """Drops vectors that no window uses, oldest first, until those left take at most ``max_bytes``.

        Returns:
            How many were dropped.
        """
        with self._transaction() as connection:
            return vector_rows.trim(connection, max_bytes)

    def close(self) -> None:
        """Closes every connection; may be called twice."""
        with self._readers_lock:
            for connection in self._readers:
                connection.close()
            self._readers.clear()
        self._connection.close()

    # ------------------------------------------------------------------------------------ internals

    def _restore_roots(self) -> None:
        """A database begun anew learns its roots from the file beside it."""
        # A root that was just forgotten must not come back from a file that was not written any more.
        if catalog.get_meta(self._connection, "generation", "0") != "0" or catalog.read_roots(
            self._connection
        ):
            return
        for root in load_roots(self.folder):
            self.add_root(root)

    def _save_roots(self) -> None:
        try:
            save_roots(self.folder, [stored.root for stored in self.roots()])
        except OSError as error:
            # The database has them; this file only counts should the database be lost.
            _log.warning("roots.json could not be written: %s", error)
            self.notes.append(f"roots.json could not be written: {error.strerror}.")

    def _publish(self, removed: Sequence[int], added: Sequence[vector_rows.VectorRow] = ()) -> None:
        """Brings FAISS to the state just committed; where that fails, it is filled anew from SQLite."""
        try:
            self.vectors.remove(removed)
            self._add_vectors(added)
        except Exception:
            _log.exception("the vectors in memory are filled anew")
            self.notes.append("The vectors in memory did not follow a change; they were filled anew.")
            self.load_vectors(self.planner)

    def _add_vectors(self, rows: Sequence[vector_rows.VectorRow]) -> None:
        """Brings stored vectors into memory; one whose checksum is wrong is dropped and embedded again."""
        good = [row for row in rows if catalog.checksum(row[3]) == row[4]]
        if len(good) < len(rows):
            self._drop_damaged([row[0] for row in rows if catalog.checksum(row[3]) != row[4]])
        if good:
            matrix = np.frombuffer(b"".join(row[3] for row in good), dtype=np.float32).reshape(len(good), -1)
            self.vectors.add([(row[0], row[1], row[2]) for row in good], matrix)

    def _drop_damaged(self, window_ids: list[int]) -> None:
        self.notes.append(f"{len(window_ids)} stored vectors were damaged; they are computed again.")
        _log.error("vectors damaged count=%d", len(window_ids))
        with self._transaction() as connection:
            vector_rows.distrust(connection, vector_rows.keys_of(connection, window_ids))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        if connection.in_transaction:
            # One whose end failed as well; whatever it held was never reported as done.
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # A full disk ends some transactions by itself, others must be ended or no further one could begin.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @staticmethod
    def _next_generation(connection: sqlite3.Connection) -> int:
        generation = int(catalog.get_meta(connection, "generation", "0")) + 1
        catalog.set_meta(connection, "generation", str(generation))
        return generation


def load_index(index_dir: str | os.PathLike[str]) -> Store:
    """Opens the index in ``index_dir``.

    Raises:
        FileNotFoundError: Nothing was indexed there yet: "Run --index first".
    """
    folder = Path(index_dir)
    if not Store.exists(folder):
        raise IndexMissing
    store = Store(folder)
    store.load_vectors(store.planner)
    return store


_WINDOWS_OF_ROOT = (
    "FROM windows w JOIN chunks c ON c.id = w.chunk_id JOIN files f ON f.id = c.file_id WHERE f.root_id = ?"
)

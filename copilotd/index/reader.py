"""One consistent view of the index for one question, and the caches all views share."""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import sqlite3
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

from copilotd.index import catalog, keywords
from copilotd.index.postings import PostingsCache
from copilotd.index.rows import batches, marks
from copilotd.index.vectors import VectorIndex
from copilotd.types import (
    Block,
    Chunk,
    ChunkMetadata,
    DenseHit,
    Document,
    Float32Array,
    KeywordHit,
    Scope,
    StoredChunk,
)

_log = logging.getLogger(__name__)

# Decoded documents kept for the next question; a document's text is a few tens of kilobytes.
_CACHED_DOCUMENTS = 1024
_CACHED_CHARACTERS = 16_000_000


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A stored document, decoded.

    Attributes:
        file_id: The file's number.
        revision: The generation it was written in.
        root_id: Its root.
        root_path: The root's absolute path.
        namespace: The root's namespace.
        relative_path: Path below the root.
        last_modified: Seconds since the epoch.
        document: Text and layout.
    """

    file_id: int
    revision: int
    root_id: int
    root_path: str
    namespace: str
    relative_path: str
    last_modified: float
    document: Document


class SharedCaches:
    """Decoded documents and the vocabulary, shared by all views; keyed so that nothing stale is found.

    Attributes:
        postings: Where terms occur.
        damaged: Files whose stored rows were found damaged.
        hidden: Files that are gone, though the catalog could not be told so yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._documents: OrderedDict[tuple[int, int, str], DocumentRecord] = OrderedDict()
        self._characters = 0
        self._vocabulary: tuple[int, dict[str, int]] = (-1, {})
        self._chunk_counts: tuple[int, dict[int, int]] = (-1, {})
        self.postings = PostingsCache()
        self.damaged: set[int] = set()
        self.hidden: set[int] = set()

    def document(self, key: tuple[int, int, str]) -> DocumentRecord | None:
        """Returns a decoded document, and marks it as used last."""
        with self._lock:
            record = self._documents.get(key)
            if record is not None:
                self._documents.move_to_end(key)
            return record

    def keep_document(self, key: tuple[int, int, str], record: DocumentRecord) -> None:
        """Keeps a decoded document, dropping those unused longest."""
        with self._lock:
            if key in self._documents:
                return
            self._documents[key] = record
            self._characters += len(record.document.text)
            while len(self._documents) > _CACHED_DOCUMENTS or (
                self._characters > _CACHED_CHARACTERS and len(self._documents) > 1
            ):
                _, dropped = self._documents.popitem(last=False)
                self._characters -= len(dropped.document.text)

    def vocabulary(self, generation: int, connection: sqlite3.Connection) -> dict[str, int]:
        """Returns the vocabulary as of ``generation``."""
        if self._vocabulary[0] != generation:
            self._vocabulary = (generation, keywords.vocabulary(connection))
        return self._vocabulary[1]

    def chunk_counts(self, generation: int, connection: sqlite3.Connection) -> dict[int, int]:
        """Returns the number of chunks of each root as of ``generation``."""
        if self._chunk_counts[0] != generation:
            rows = connection.execute(
                "SELECT f.root_id, count(*) FROM chunks c JOIN files f ON f.id = c.file_id GROUP BY f.root_id"
            )
            self._chunk_counts = (generation, dict(rows.fetchall()))
        return self._chunk_counts[1]


class ReadView:
    """An IndexReader over one read transaction; valid while the transaction is open."""

    def __init__(self, connection: sqlite3.Connection, vectors: VectorIndex, caches: SharedCaches) -> None:
        self.connection = connection
        self.generation = int(catalog.get_meta(connection, "generation", "0"))
        self._vectors = vectors
        self._caches = caches

    def chunk_count(self, scope: Scope = Scope()) -> int:  # noqa: B008 (frozen)
        """Returns how many chunks the scope's namespaces hold."""
        counts = self._caches.chunk_counts(self.generation, self.connection)
        roots = self._roots(scope)
        return sum(count for root_id, count in counts.items() if roots is None or root_id in roots)

    def search_vectors(self, queries: Float32Array, limit: int, scope: Scope) -> list[list[DenseHit]]:
        """Returns for each row of ``queries`` ``(n, dim)`` the best ``limit`` chunks, best first."""
        allowed = self._allowed_chunks(scope)
        wanted = limit if allowed is None else max(limit, len(self._vectors))
        found = self._vectors.search(queries, wanted, self._roots(scope))
        if allowed is None:
            return found
        return [[hit for hit in hits if hit.chunk_id in allowed][:limit] for hits in found]

    def score_chunks(self, queries: Float32Array, chunk_ids: Sequence[int]) -> Float32Array:
        """Returns the ``(n_queries, n_chunks)`` best-window cosines; NaN where a chunk has no vector yet."""
        return self._vectors.score_chunks(queries, chunk_ids)

    def search_keywords(self, terms: Sequence[str], limit: int, scope: Scope) -> list[KeywordHit]:
        """Returns the best ``limit`` chunks that hold any of the analysed terms, best first."""
        found = self._caches.postings.find(self.generation, self.connection, terms, self._scopes(scope))
        return keywords.best_chunks(found, limit, self._allowed_chunks(scope))

    def document_frequencies(self, terms: Sequence[str], scope: Scope = Scope()) -> dict[str, int]:  # noqa: B008
        """Returns in how many chunks of the scope's namespaces each analysed term occurs (0 where in none)."""
        return keywords.document_frequencies(self.connection, terms, self._scopes(scope))

    def vocabulary(self) -> Mapping[str, int]:
        """Returns every analysed term with its document frequency; cached a generation."""
        return self._caches.vocabulary(self.generation, self.connection)

    def load_chunks(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        """Returns the chunks that still exist and may be cited, by id."""
        rows: dict[int, tuple[Any, ...]] = {}
        for batch in batches(chunk_ids):
            found = self.connection.execute(
                f"{_CHUNK_COLUMNS}, d.revision, f.relative_path FROM chunks c"
                " JOIN documents d ON d.file_id = c.file_id JOIN files f ON f.id = c.file_id"
                f" JOIN roots r ON r.id = f.root_id WHERE r.suspended_ns IS NULL AND c.id IN ({marks(batch)})",
                batch,
            )
            rows.update((row[0], row) for row in found)
        chunks = {}
        for chunk_id in chunk_ids:
            row = rows.get(chunk_id)
            if row is None or row[1] in self._caches.hidden:
                continue
            if catalog.checksum(*row[1:12]) != row[12]:
                self._report_damage(row[1])
                continue
            record = self._record(row[1], row[13], row[14])
            if record is not None:
                chunks[chunk_id] = _stored_chunk(cast(_ChunkRow, row[:13]), record)
        return chunks

    def chunk_ids(self) -> list[int]:
        """Returns the ids of all chunks."""
        return [row[0] for row in self.connection.execute("SELECT id FROM chunks ORDER BY id")]

    def neighbours(self, chunk_id: int) -> list[int]:
        """Returns the ids of all chunks of the same document, in document order."""
        rows = self.connection.execute(
            "SELECT id FROM chunks WHERE file_id = (SELECT file_id FROM chunks WHERE id = ?) ORDER BY chunk_index",
            (chunk_id,),
        )
        return [row[0] for row in rows]

    def packed_tokens(self, chunk_ids: Sequence[int]) -> dict[int, bytes]:
        """Returns the packed token vectors of the chunks that have them, their windows' one behind the other.

        Damaged ones are left out: they only refine an order.
        """
        parts: dict[int, list[bytes]] = {chunk_id: [] for chunk_id in chunk_ids}
        for batch in batches(chunk_ids):
            rows = self.connection.execute(
                "SELECT w.chunk_id, t.packed, t.checksum FROM windows w JOIN tokens t ON t.key = w.key"
                f" WHERE w.chunk_id IN ({marks(batch)}) ORDER BY w.chunk_id, w.id",
                batch,
            )
            for chunk_id, packed, crc in rows:
                if catalog.checksum(packed) == crc:
                    parts[chunk_id].append(packed)
        return {chunk_id: b"".join(found) for chunk_id, found in parts.items() if any(found)}

    def documents(self) -> list[tuple[int, str, str, str]]:
        """Returns (file id, relative path, root path, namespace) of every document that may be cited."""
        rows = self.connection.execute(
            "SELECT f.id, f.relative_path, r.path, r.namespace FROM files f JOIN roots r ON r.id = f.root_id"
            " WHERE f.skipped = '' AND r.suspended_ns IS NULL ORDER BY f.id"
        )
        return [
            (id_, os.fsdecode(path), os.fsdecode(root), namespace)
            for id_, path, root, namespace in rows
            if id_ not in self._caches.hidden
        ]

    def titles(self) -> list[tuple[int, str, str]]:
        """Returns (file id, doc_title, namespace) of every document that may be cited."""
        rows = self.connection.execute(
            "SELECT d.file_id, d.doc_title, r.namespace FROM documents d JOIN files f ON f.id = d.file_id"
            " JOIN roots r ON r.id = f.root_id WHERE r.suspended_ns IS NULL ORDER BY d.file_id"
        )
        return [row for row in rows if row[0] not in self._caches.hidden]

    def counts(self) -> dict[int, tuple[int, int]]:
        """Returns (documents, chunks) by root id."""
        documents = dict(
            self.connection.execute(
                "SELECT root_id, count(*) FROM files WHERE skipped = '' GROUP BY root_id"
            ).fetchall()
        )
        chunks = self._caches.chunk_counts(self.generation, self.connection)
        return {root_id: (count, chunks.get(root_id, 0)) for root_id, count in documents.items()}

    def skipped(self) -> list[tuple[str, str]]:
        """Returns (absolute path, reason) of every file that is known but not indexed."""
        rows = self.connection.execute(
            "SELECT r.path, f.relative_path, f.skipped FROM files f JOIN roots r ON r.id = f.root_id"
            " WHERE f.skipped != '' ORDER BY r.id, f.relative_path"
        )
        return [(os.path.join(os.fsdecode(root), os.fsdecode(path)), reason) for root, path, reason in rows]

    def warnings(self) -> list[tuple[str, str]]:
        """Returns (absolute path, warning) of every document that is indexed but not wholly readable."""
        rows = self.connection.execute(
            "SELECT r.path, f.relative_path, f.warnings FROM files f JOIN roots r ON r.id = f.root_id"
            " WHERE f.warnings != '[]' ORDER BY r.id, f.relative_path"
        )
        return [
            (os.path.join(os.fsdecode(root), os.fsdecode(path)), warning)
            for root, path, warnings in rows
            for warning in json.loads(warnings)
        ]

    def pending_counts(self) -> tuple[int, int]:
        """Returns (windows, documents) that still wait for a vector."""
        windows = self.connection.execute("SELECT count(*) FROM pending").fetchone()[0]
        if not windows:
            return 0, 0
        documents = self.connection.execute(
            "SELECT count(DISTINCT c.file_id) FROM pending p JOIN windows w ON w.key = p.key"
            " JOIN chunks c ON c.id = w.chunk_id"
        ).fetchone()[0]
        return int(windows), int(documents)

    def pending_windows_of(self, root_id: int | None) -> int:
        """Returns how many different texts of a root still wait for a vector; None counts all."""
        if root_id is None:
            return self.pending_counts()[0]
        row = self.connection.execute(
            "SELECT count(DISTINCT p.key) FROM pending p JOIN windows w ON w.key = p.key"
            " JOIN chunks c ON c.id = w.chunk_id JOIN files f ON f.id = c.file_id WHERE f.root_id = ?",
            (root_id,),
        ).fetchone()
        return int(row[0])

    def pending_paths(self, scope: Scope) -> list[str]:
        """Returns the relative paths of the documents of a scope that still wait for a vector."""
        if not self.pending_counts()[0]:
            return []
        roots = self._roots(scope)
        rows = self.connection.execute(
            "SELECT DISTINCT f.id, f.root_id, f.relative_path FROM pending p JOIN windows w ON w.key = p.key"
            " JOIN chunks c ON c.id = w.chunk_id JOIN files f ON f.id = c.file_id ORDER BY f.id"
        )
        return [
            path
            for _, root_id, name in rows
            if (roots is None or root_id in roots) and in_paths(path := os.fsdecode(name), scope)
        ]

    def load_record(self, file_id: int) -> DocumentRecord | None:
        """Returns a document's text and layout; None where it is gone, suspended or damaged."""
        head = self.connection.execute(
            "SELECT d.revision, f.relative_path FROM documents d JOIN files f ON f.id = d.file_id"
            " JOIN roots r ON r.id = f.root_id WHERE d.file_id = ? AND r.suspended_ns IS NULL",
            (file_id,),
        ).fetchone()
        return None if head is None or file_id in self._caches.hidden else self._record(file_id, *head)

    def _record(self, file_id: int, revision: int, path: bytes) -> DocumentRecord | None:
        key = (file_id, revision, os.fsdecode(path))
        record = self._caches.document(key)
        if record is None:
            record = self._decode_record(file_id)
            if record is not None:
                self._caches.keep_document(key, record)
        return record

    def load_document(self, file_id: int) -> tuple[int, Document, list[tuple[int, Chunk]]] | None:
        """Returns root id, document and (chunk id, chunk) pairs in document order."""
        record = self._decode_record(file_id)
        if record is None:
            return None
        chunks = []
        for row in self.connection.execute(
            f"{CHUNK_ROW} WHERE c.file_id = ? ORDER BY c.chunk_index", (file_id,)
        ):
            metadata = _metadata(row, record)
            chunks.append((row[0], Chunk(row[3], row[4], metadata, row[5], row[10])))
        return record.root_id, record.document, chunks

    def _decode_record(self, file_id: int) -> DocumentRecord | None:
        row = self.connection.execute(
            "SELECT d.doc_title, d.title, d.description, d.text, d.layout, d.revision, d.checksum, f.root_id,"
            " f.relative_path, f.mtime_ns, r.path, r.namespace FROM documents d JOIN files f ON f.id = d.file_id"
            " JOIN roots r ON r.id = f.root_id WHERE d.file_id = ?",
            (file_id,),
        ).fetchone()
        if row is None:
            return None
        (
            doc_title,
            title,
            description,
            text,
            blob,
            revision,
            crc,
            root_id,
            path,
            mtime_ns,
            root_path,
            namespace,
        ) = row
        if catalog.checksum(text, blob) != crc:
            self._report_damage(file_id)
            return None
        layout = catalog.unpack_layout(blob)
        document = Document(
            doc_title=doc_title,
            title=title,
            text=text.decode(),
            line_numbers=layout.line_numbers,
            sections=layout.sections,
            blocks=layout.blocks,
            pages=layout.pages,
            description=description,
        )
        return DocumentRecord(
            file_id,
            revision,
            root_id,
            os.fsdecode(root_path),
            namespace,
            os.fsdecode(path),
            mtime_ns / 1e9,
            document,
        )

    def _report_damage(self, file_id: int) -> None:
        """Damaged rows are never quoted; the engine reads these files again."""
        if file_id not in self._caches.damaged:
            self._caches.damaged.add(file_id)
            _log.error("stored document damaged file_id=%d", file_id)

    def _roots(self, scope: Scope) -> frozenset[int] | None:
        """Returns the roots a search is restricted to, or None where every root may be cited."""
        rows = self.connection.execute("SELECT id, namespace, suspended_ns FROM roots").fetchall()
        chosen = frozenset(
            root_id
            for root_id, namespace, suspended in rows
            if suspended is None and (scope.namespaces is None or namespace in scope.namespaces)
        )
        return None if len(chosen) == len(rows) else chosen

    def _scopes(self, scope: Scope) -> list[str] | None:
        roots = self._roots(scope)
        return None if roots is None else [keywords.scope_token(root_id) for root_id in sorted(roots)]

    def unmatched_paths(self, scope: Scope) -> list[str]:
        """Returns the path patterns of a scope that no document matches."""
        unmatched = list(scope.paths)
        if unmatched:
            for (path,) in self.connection.execute("SELECT relative_path FROM files WHERE skipped = ''"):
                name = os.fsdecode(path)
                unmatched = [pattern for pattern in unmatched if not path_matches(name, pattern)]
                if not unmatched:
                    break
        return unmatched

    def _allowed_chunks(self, scope: Scope) -> set[int] | None:
        if not scope.paths:
            return None
        files = [
            file_id
            for file_id, path in self.connection.execute(
                "SELECT id, relative_path FROM files WHERE skipped = ''"
            )
            if in_paths(os.fsdecode(path), scope)
        ]
        return {
            row[0]
            for file_id in files
            for row in self.connection.execute("SELECT id FROM chunks WHERE file_id = ?", (file_id,))
        }


def in_paths(relative_path: str, scope: Scope) -> bool:
    """Returns whether a path is one that a scope allows; its namespaces are not looked at."""
    return not scope.paths or any(path_matches(relative_path, pattern) for pattern in scope.paths)


def path_matches(relative_path: str, pattern: str) -> bool:
    """Returns whether a path lies under the folder ``pattern`` names, or matches it as a glob."""
    folder = pattern.strip("/")
    return (
        relative_path == folder
        or relative_path.startswith(f"{folder}/")
        or fnmatch.fnmatchcase(relative_path, pattern)
        or ("/" not in pattern and fnmatch.fnmatchcase(os.path.basename(relative_path), pattern))
    )


_CHUNK_COLUMNS = (
    "SELECT c.id, c.file_id, c.chunk_index, c.start, c.end, c.section, c.line_start, c.line_end, c.page,"
    " c.page_end, c.context, c.digest, c.checksum"
)
CHUNK_ROW = f"{_CHUNK_COLUMNS} FROM chunks c"

_ChunkRow = tuple[int, int, int, int, int, int, int, int, int | None, int | None, str, bytes, int]


def _metadata(row: _ChunkRow, record: DocumentRecord) -> ChunkMetadata:
    _, _, index, start, end, section_index, line_start, line_end, page, page_end, _, _, _ = row
    section = record.document.sections[section_index]
    return ChunkMetadata(
        doc_title=record.document.doc_title,
        section_heading=section.heading
        or (section.heading_path[-1] if section.heading_path else record.document.doc_title),
        last_modified=record.last_modified,
        source_file=os.path.join(record.root_path, record.relative_path),
        chunk_index=index,
        char_count=end - start,
        heading_path=section.heading_path,
        relative_path=record.relative_path,
        line_start=line_start,
        line_end=line_end,
        page=page,
        page_end=page_end,
    )


def _first_behind(blocks: Sequence[Block], start: int) -> int:
    """Returns the first block that ends behind ``start``; blocks are in order and don't overlap."""
    return bisect_right(blocks, start, key=attrgetter("end"))


def _first_at(blocks: Sequence[Block], end: int) -> int:
    """Returns the first block that starts at ``end`` or behind it."""
    return bisect_left(blocks, end, key=attrgetter("start"))


def _stored_chunk(row: _ChunkRow, record: DocumentRecord) -> StoredChunk:
    document = record.document
    start, end = row[3], row[4]
    text = document.text[start:end]
    first_line = document.text.count("\n", 0, start)
    lines = document.line_numbers[first_line : first_line + text.count("\n") + 1]
    blocks = tuple(
        Block(
            block.kind,
            max(block.start, start) - start,
            min(block.end, end) - start,
            block.group,
            min(max(block.header_end, start), end) - start,
        )
        for block in document.blocks[_first_behind(document.blocks, start) : _first_at(document.blocks, end)]
    )
    return StoredChunk(
        id=row[0],
        document_id=row[1],
        namespace=record.namespace,
        title=document.title,
        text=text,
        start=start,
        end=end,
        line_numbers=lines,
        blocks=blocks,
        context=row[10],
        metadata=_metadata(row, record),
        page_starts=document.page_starts(first_line, len(lines)),
    )

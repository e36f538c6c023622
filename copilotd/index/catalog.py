"""The catalog: one SQLite file that holds everything the index knows.

Format (schema version 3; an older one is brought up to date when it is opened)::

    roots      the watched folders
    files      every file a scan found: stat fingerprint, content hash, or why it is skipped
    documents  the cleaned text of each indexed file, once, and its layout (lines, pages, sections, blocks)
    chunks     character spans into a document's text
    windows    slices of a chunk and the key of the vector of each
    vectors    key -> float32 vector; content-addressed, so equal text shares one
    tokens     key -> the signs of the window's token vectors, which late interaction reads; goes with its vector
    pending    key -> text still to embed: the bridge between the two transactions of a file
    keywords   the FTS5 table of :mod:`copilotd.index.keywords`
    meta       generation and fingerprints

Ids are AUTOINCREMENT: none is used again after a deletion, so a vector can't point at another's text.
File names are stored as bytes (``os.fsencode``), since not every name is UTF-8. Documents, chunks and
vectors carry checksums: SQLite has none, and a flipped bit must not be quoted.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from copilotd.errors import IndexTooNew
from copilotd.index import keywords
from copilotd.types import Block, BlockKind, Document, Root, Section

SCHEMA_VERSION = 3
DATABASE_NAME = "index.sqlite3"
_APPLICATION_ID = 0x434F5049  # "COPI": tells file(1) and us whose database this is

# Another process that holds the write lock (a backup, a shell) is waited for this long; then the work is
# tried again later, and questions say what is pending meanwhile.
_LOCK_WAIT_S = 1.0

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE roots(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path BLOB NOT NULL,
  namespace TEXT NOT NULL,
  include TEXT NOT NULL,
  exclude TEXT NOT NULL,
  chunk_size INTEGER,
  chunk_overlap INTEGER,
  suspended_ns INTEGER,
  poll INTEGER NOT NULL DEFAULT 0,
  UNIQUE(path, namespace)
);
CREATE TABLE files(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  root_id INTEGER NOT NULL REFERENCES roots(id),
  relative_path BLOB NOT NULL,
  mtime_ns INTEGER NOT NULL,
  size INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  content_hash TEXT NOT NULL,
  read_ns INTEGER NOT NULL,
  reader TEXT NOT NULL,
  skipped TEXT NOT NULL DEFAULT '',
  warnings TEXT NOT NULL DEFAULT '[]',
  UNIQUE(root_id, relative_path)
);
CREATE TABLE documents(
  file_id INTEGER PRIMARY KEY REFERENCES files(id),
  doc_title TEXT NOT NULL,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  text BLOB NOT NULL,
  layout BLOB NOT NULL,
  planner TEXT NOT NULL,
  revision INTEGER NOT NULL,
  checksum INTEGER NOT NULL
);
CREATE TABLE chunks(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  file_id INTEGER NOT NULL REFERENCES files(id),
  chunk_index INTEGER NOT NULL,
  start INTEGER NOT NULL,
  end INTEGER NOT NULL,
  section INTEGER NOT NULL,
  line_start INTEGER NOT NULL,
  line_end INTEGER NOT NULL,
  page INTEGER,
  page_end INTEGER,
  context TEXT NOT NULL,
  digest BLOB NOT NULL,
  checksum INTEGER NOT NULL
);
CREATE INDEX chunks_by_file ON chunks(file_id, chunk_index);
CREATE TABLE windows(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  chunk_id INTEGER NOT NULL REFERENCES chunks(id),
  start INTEGER NOT NULL,
  end INTEGER NOT NULL,
  key BLOB NOT NULL
);
CREATE INDEX windows_by_chunk ON windows(chunk_id);
CREATE INDEX windows_by_key ON windows(key);
CREATE TABLE vectors(
  key BLOB PRIMARY KEY,
  vector BLOB NOT NULL,
  checksum INTEGER NOT NULL,
  used_ns INTEGER NOT NULL
);
CREATE TABLE pending(key BLOB PRIMARY KEY, text TEXT NOT NULL);
"""

# Beside the vectors, not among them: start-up reads every vector and no tokens.
_TOKENS = (
    "CREATE TABLE tokens(key BLOB PRIMARY KEY, packed BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TRIGGER tokens_go_with_vectors AFTER DELETE ON vectors"
    " BEGIN DELETE FROM tokens WHERE key = old.key; END",
)


# What makes a database of each older version one of the next.
_MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: ("ALTER TABLE roots ADD COLUMN poll INTEGER NOT NULL DEFAULT 0",),
    # Vectors come with tokens now: windows that have none are embedded again.
    2: (*_TOKENS, "DELETE FROM vectors", "UPDATE documents SET planner = ''"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything in a document's text stands; stored as one compressed blob.

    Attributes:
        line_numbers: Source line of each line of the text.
        pages: Page of each line, or None.
        sections: As in Document.
        blocks: As in Document.
    """

    line_numbers: tuple[int, ...]
    pages: tuple[int, ...] | None
    sections: tuple[Section, ...]
    blocks: tuple[Block, ...]


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Opens the database; the caller uses the connection from one thread at a time.

    Raises:
        IndexTooNew: Made by a newer version; nothing was changed.
    """
    uri = f"{path.as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_LOCK_WAIT_S
    )
    if not read_only:
        try:
            # Before anything that writes: even the journal's mode is noted in the file.
            _stored_version(connection)
        except BaseException:
            connection.close()
            raise
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    # The database holds people's documents: what is deleted is overwritten, not left in free pages.
    connection.execute("PRAGMA secure_delete = FAST")
    if not read_only:
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode NORMAL loses at most the last commits on a power cut, never consistency; the
        # start-up sweep finds what they held.
        connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _stored_version(connection: sqlite3.Connection) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise IndexTooNew(
            f"The index was made by a newer version of Docs Copilot (schema {version}; "
            f"this one knows {SCHEMA_VERSION}).",
            "upgrade docs-copilot, or set INDEX_DIR to another folder",
        )
    return version


def prepare(connection: sqlite3.Connection) -> None:
    """Creates the tables in an empty database, brings an older one up to date, refuses a newer or foreign one.

    Raises:
        IndexTooNew: Made by a newer version; nothing was changed.
        sqlite3.DatabaseError: Not a database, or not one of ours.
    """
    version = _stored_version(connection)
    if version == 0:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise sqlite3.DatabaseError("not an index of Docs Copilot")
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        for statement in _TOKENS:
            connection.execute(statement)
        keywords.create(connection)
        connection.execute("INSERT INTO meta VALUES ('generation', '0')")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    elif version < SCHEMA_VERSION:
        # One transaction, so that a crash leaves the old version whole.
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in range(version, SCHEMA_VERSION):
                for statement in _MIGRATIONS[step]:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def get_meta(connection: sqlite3.Connection, key: str, default: str = "") -> str:
    """Returns one value of the ``meta`` table."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return default if row is None else str(row[0])


def set_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Stores one value of the ``meta`` table."""
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value", (key, value)
    )


def read_roots(connection: sqlite3.Connection) -> list[tuple[Root, int | None]]:
    """Returns each root with the time (ns) since which it is suspended, or None."""
    rows = connection.execute(
        "SELECT id, path, namespace, include, exclude, chunk_size, chunk_overlap, suspended_ns,"
        " poll"
        " FROM roots ORDER BY id"
    )
    return [
        (
            Root(
                id_,
                os.fsdecode(path),
                namespace,
                tuple(json.loads(include)),
                tuple(json.loads(exclude)),
                size,
                overlap,
                bool(poll),
            ),
            suspended,
        )
        for id_, path, namespace, include, exclude, size, overlap, suspended, poll in rows
    ]


def pack_layout(document: Document) -> bytes:
    """Serialises where everything in ``document`` stands."""
    payload = {
        "lines": _deltas(document.line_numbers),
        "pages": None if document.pages is None else _deltas(document.pages),
        "sections": [
            [s.heading, s.level, list(s.heading_path), s.start, s.end, s.anchor] for s in document.sections
        ],
        "blocks": [[b.kind.value, b.start, b.end, b.group, b.header_end] for b in document.blocks],
    }
    return zlib.compress(json.dumps(payload, separators=(",", ":")).encode("utf-8", "surrogatepass"), 1)


_KINDS = {kind.value: kind for kind in BlockKind}


def unpack_layout(blob: bytes) -> Layout:
    """Reads what :func:`pack_layout` wrote."""
    payload = json.loads(zlib.decompress(blob))
    return Layout(
        _sums(payload["lines"]),
        None if payload["pages"] is None else _sums(payload["pages"]),
        tuple(
            Section(h, level, tuple(path), start, end, anchor)
            for h, level, path, start, end, anchor in payload["sections"]
        ),
        tuple(Block(_KINDS[kind], *rest) for kind, *rest in payload["blocks"]),
    )


def checksum(*parts: object) -> int:
    """Returns a CRC-32 over the parts, in order; for damage by accident, not by an attacker."""
    value = 0
    for part in parts:
        value = zlib.crc32(
            part if isinstance(part, bytes) else repr(part).encode("utf-8", "surrogatepass"), value
        )
    return value


def _deltas(numbers: Sequence[int]) -> list[int]:
    """Line numbers mostly grow by one: the differences compress to almost nothing."""
    values = array("q", numbers)
    return [b - a for a, b in zip(array("q", [0]) + values[:-1], values, strict=True)] if values else []


def _sums(differences: list[int]) -> tuple[int, ...]:
    total, numbers = 0, []
    for difference in differences:
        total += difference
        numbers.append(total)
    return tuple(numbers)

"""Reads one changed file into the store; the step from an Action to rows."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from copilotd.embed.windows import WindowPlanner
from copilotd.errors import NoText, ParseError
from copilotd.index.store import Store
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.ingest.pdf_ocr import Ocr
from copilotd.text import printable
from copilotd.types import (
    Add,
    Chunk,
    Document,
    IndexedFile,
    Move,
    Root,
    SourceFile,
    StatFingerprint,
    Update,
    Window,
)
from copilotd.update.writer import Writer

_log = logging.getLogger(__name__)

# An editor that truncates before it writes leaves an empty file for a moment; a document that had text
# is believed to be empty only when it has been so for this long.
_SETTLE_NS = 2_000_000_000
# Reasons that lie in the file itself. Any other error (too many open files, a failing disk, a server that is
# away) says nothing of the document: what is indexed of it stays, and it is tried again.
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR})
_TRIES = 4
_PAUSE_S = 0.05


class Outcome(StrEnum):
    """What became of an action."""

    NEW = "new"
    UPDATED = "updated"
    MOVED = "moved"
    REMOVED = "removed"
    TOUCHED = "touched"
    SKIPPED = "skipped"
    GONE = "gone"
    UNSETTLED = "unsettled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of one action.

    Attributes:
        outcome: What became of it.
        known: The file as the catalog knows it now; None where it is gone or unsettled.
        keys: Keys of windows that still need a vector.
    """

    outcome: Outcome
    known: IndexedFile | None = None
    keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits on reading one file.

    Attributes:
        max_chars: MAX_CHUNK_CHARS.
        overlap_chars: CHUNK_OVERLAP_CHARS.
        max_file_bytes: Larger files are skipped.
        seconds: Time limit of a parser that runs in a child process.
        memory_bytes: Memory limit of such a parser.
        ocr: How PDF pages without text are read; None leaves them out.
    """

    max_chars: int = 2000
    overlap_chars: int = 250
    max_file_bytes: int = 20_000_000
    seconds: float = 120.0
    memory_bytes: int = 2048 * 1024 * 1024
    ocr: Ocr | None = None


@dataclass(frozen=True, slots=True)
class PagesRead:
    """How far a long file is."""

    root_id: int
    relative_path: str
    done: int
    total: int

    @property
    def sentence(self) -> str:
        """For a person: ``handbook.pdf: page 40 of 500``."""
        name = printable(self.relative_path.rpartition("/")[2], keep_newlines=False)
        return f"{name}: page {self.done:,} of {self.total:,}"


@dataclass(slots=True)
class FileReader:
    """Applies actions to the store.

    Attributes:
        store: Where to.
        writer: The thread that may write.
        limits: Limits on reading.
        fingerprint: Of parsers, chunker and analyser; stored with each file.
        planner: Cuts chunks into windows; None while no model is on this machine.
        on_change: Told ``(root, relative path)`` when a known document's content has changed.
        reading: How far the file is that is being parsed in a child process; None for a short one.
    """

    store: Store
    writer: Writer
    limits: ReadLimits
    fingerprint: str
    planner: WindowPlanner | None
    on_change: Callable[[Root, str], None] = field(default=lambda root, path: None)
    reading: PagesRead | None = None

    def fingerprint_for(self, root: Root) -> str:
        """Returns what the files of ``root`` must have been read with to be up to date."""
        return f"{self.fingerprint};{self._max_chars(root)};{self._overlap(root)}"

    def fingerprints_for(self, root: Root) -> tuple[str, str]:
        """Returns it for files whose pages all have text, and for those that OCR could help."""
        reader = self.fingerprint_for(root)
        return reader, self._with_ocr(reader)

    def _with_ocr(self, reader: str) -> str:
        return f"{reader};ocr={self.limits.ocr.fingerprint if self.limits.ocr else 'off'}"

    def apply(
        self, root: Root, action: Add | Update | Move, *, urgent: bool, outdated: bool = False
    ) -> Applied:
        """Reads the file of ``action`` and stores what it holds.

        Args:
            root: The root it is under.
            action: What to do.
            urgent: Whether a question waits for it.
            outdated: Whether the content must be parsed again even if it is as before.
        """
        known = None if isinstance(action, Add) else action.indexed
        source = action.source
        reader = self.fingerprint_for(root)
        read_ns = time.time_ns()
        try:
            content, fingerprint = self._read_settled(root, source)
        except (FileNotFoundError, NotADirectoryError):
            return Applied(Outcome.GONE)
        except _Changing:
            return Applied(Outcome.UNSETTLED)
        except (OSError, ParseError) as error:
            if isinstance(error, OSError) and error.errno not in _UNREADABLE:
                raise
            reason = error.message if isinstance(error, ParseError) else _reason(error)
            return self._skip(root, source, reason, "", read_ns, reader, known, urgent)
        source = SourceFile(source.relative_path, fingerprint)
        content_hash = hashlib.blake2b(content, digest_size=20).hexdigest()
        same = known is not None and known.content_hash == content_hash and not outdated
        if known is not None and same and not isinstance(action, Move):
            self.writer.run(lambda: self.store.touch_file(known.id, fingerprint, read_ns), urgent=urgent)
            return Applied(Outcome.TOUCHED, _known(known.id, source, content_hash, read_ns, known.skipped))
        if not content and known is not None and known.fingerprint.size and not self._settled(fingerprint):
            return Applied(Outcome.UNSETTLED)
        try:
            document = self._parse(root, source.relative_path, content)
        except ParseError as error:
            if isinstance(error, NoText):
                reader = self._with_ocr(reader)
            return self._skip(root, source, error.message, content_hash, read_ns, reader, known, urgent)
        if document.scanned:
            reader = self._with_ocr(reader)
        chunks = chunk_document(
            document,
            source_file=os.path.join(root.path, source.relative_path),
            relative_path=source.relative_path,
            last_modified=fingerprint.mtime_ns / 1e9,
            max_chars=self._max_chars(root),
            overlap_chars=self._overlap(root),
        )
        written = self.writer.run(
            lambda: self.store.write_document(
                root,
                source,
                document,
                chunks,
                content_hash=content_hash,
                read_ns=read_ns,
                reader=reader,
                planner=self.planner.fingerprint if self.planner else "",
                plan_windows=self.plan_windows,
                replaces=known.id if known else None,
                reuse_chunks=not outdated,
            ),
            urgent=urgent,
        )
        if known is not None and known.content_hash != content_hash:
            self.on_change(root, source.relative_path)
        outcome = (
            Outcome.NEW
            if known is None or known.skipped
            else Outcome.MOVED
            if isinstance(action, Move) and known.content_hash == content_hash
            else Outcome.UPDATED
        )
        return Applied(outcome, _known(written.file_id, source, content_hash, read_ns, ""), written.keys)

    def _parse(self, root: Root, relative_path: str, content: bytes) -> Document:
        def on_pages(done: int, total: int) -> None:
            self.reading = PagesRead(root.id, relative_path, done, total)

        try:
            return parse_file(
                relative_path,
                content,
                seconds=self.limits.seconds,
                memory_bytes=self.limits.memory_bytes,
                ocr=self.limits.ocr,
                on_pages=on_pages,
            )
        finally:
            reading = self.reading
            if reading and (reading.root_id, reading.relative_path) == (root.id, relative_path):
                self.reading = None

    def plan_windows(self, document: Document, chunk: Chunk) -> list[Window]:
        """Cuts a chunk into windows; none while no model is on this machine."""
        if self.planner is None:
            return []
        return self.planner.plan(
            document.text[chunk.start : chunk.end],
            title=document.title,
            heading_path=document.sections[chunk.section].heading_path,
            context=chunk.context,
        )

    def _skip(
        self,
        root: Root,
        source: SourceFile,
        reason: str,
        content_hash: str,
        read_ns: int,
        reader: str,
        known: IndexedFile | None,
        urgent: bool,
    ) -> Applied:
        file_id = self.writer.run(
            lambda: self.store.write_skipped(
                root,
                source,
                reason,
                content_hash=content_hash,
                read_ns=read_ns,
                reader=reader,
                replaces=known.id if known else None,
            ),
            urgent=urgent,
        )
        _log.warning("skipped file=%s reason=%s", source.relative_path, reason)
        return Applied(Outcome.SKIPPED, _known(file_id, source, content_hash, read_ns, reason))

    def _read_settled(self, root: Root, source: SourceFile) -> tuple[bytes, StatFingerprint]:
        """Returns the content and the fingerprint it was read under, which was the same before and after.

        Raises:
            _Changing: The file is being written.
            OSError: It cannot be read.
            ParseError: It is not a regular file within the root, or too large.
        """
        path = os.path.join(root.path, source.relative_path)
        for _ in range(_TRIES):
            # Since the scan a pipe or a link may have taken the file's place: neither is waited for or followed.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    raise ParseError("not a regular file")
                if not _within(path, root.path):
                    raise ParseError("a link that leads out of the folder")
                if before.st_size > self.limits.max_file_bytes:
                    raise ParseError(f"larger than {self.limits.max_file_bytes / 1e6:g} MB")
                content = file.read(self.limits.max_file_bytes + 1)
                after = os.fstat(file.fileno())
            if _fingerprint(before) == _fingerprint(after) and len(content) == after.st_size:
                return content, _fingerprint(after)
            time.sleep(_PAUSE_S)
        raise _Changing

    @staticmethod
    def _settled(fingerprint: StatFingerprint) -> bool:
        # The earlier of the two: one may lie in the future (``touch -d``), both after the clock was set back.
        return abs(time.time_ns() - min(fingerprint.mtime_ns, fingerprint.ctime_ns)) > _SETTLE_NS

    def _max_chars(self, root: Root) -> int:
        return root.chunk_size or self.limits.max_chars

    def _overlap(self, root: Root) -> int:
        return self.limits.overlap_chars if root.chunk_overlap is None else root.chunk_overlap


class _Changing(Exception):
    """The file changed while it was read."""


def _fingerprint(status: os.stat_result) -> StatFingerprint:
    return StatFingerprint(status.st_mtime_ns, status.st_size, status.st_ctime_ns, status.st_ino)


def _within(path: str, root: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(root).rstrip("/") + "/")


def _known(file_id: int, source: SourceFile, content_hash: str, read_ns: int, skipped: str) -> IndexedFile:
    return IndexedFile(file_id, source.relative_path, source.fingerprint, content_hash, read_ns, skipped)


def _reason(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "no permission to read it"
    return (error.strerror or str(error)).lower()

"""``check`` and ``check --repair``: the index against itself, the files on disk and the model."""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator

import numpy as np

from copilotd.errors import Cancelled
from copilotd.index import check, keywords
from copilotd.index.store import Store
from copilotd.types import CheckReport, Finding, Progress, Reporter
from copilotd.update.embedder import Embedder
from copilotd.update.read import FileReader
from copilotd.update.reconcile import Reconciler
from copilotd.update.writer import Writer

# Windows that are embedded again and compared with what is stored.
_SAMPLED = 32
# Batches of other lengths differ in the last digits; a vector of another text is far from this.
_SAME_COSINE = 0.99


class Auditor:
    """Looks for what is wrong and mends it.

    Args:
        sync: Brings the index up to date as far as it can; returns the paths still pending.
        replan: Plans windows anew where that is due.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        reader: FileReader,
        reconciler: Reconciler,
        embedder: Embedder,
        *,
        sync: Callable[[], tuple[str, ...]],
        replan: Callable[[], None],
    ) -> None:
        self._store = store
        self._writer = writer
        self._reader = reader
        self._reconciler = reconciler
        self._embedder = embedder
        self._sync = sync
        self._replan = replan

    def check(self, repair: bool, reporter: Reporter) -> CheckReport:
        """Checks everything, and mends it where told to.

        Raises:
            Cancelled: The client is gone.
        """
        began = time.monotonic()
        findings, bad_keys = self._look(reporter)
        repaired = False
        if repair and findings:
            self._mend(findings, bad_keys)
            repaired = not self._look(reporter)[0]
        with self._store.read() as view:
            documents = len(view.documents())
        return CheckReport(
            documents, len(self._store.vectors), tuple(findings), repaired, time.monotonic() - began
        )

    def _look(self, reporter: Reporter) -> tuple[list[Finding], list[bytes]]:
        pending = self._sync()
        findings = [Finding("pending", path, "could not be brought up to date") for path in pending]
        planner = self._reader.planner.fingerprint if self._reader.planner else self._store.planner
        findings += self._writer.run(
            lambda: self._store.run_check(lambda connection: list(check.check_database(connection)))
        )
        findings += self._check_documents(planner, reporter)
        findings += self._check_files(reporter)
        with self._store.read() as view:
            vectors = list(check.check_vectors(view.connection))
        vectors += self._check_model({key for key, _ in vectors})
        findings += [finding for _, finding in vectors]
        findings += self._writer.run(
            lambda: self._store.run_check(
                lambda connection: list(check.check_memory(connection, self._store.vectors, planner))
            )
        )
        return findings, [key for key, _ in vectors]

    def _check_documents(self, planner: str, reporter: Reporter) -> Iterator[Finding]:
        with self._store.read() as view:
            rows = view.documents()
            for number, (file_id, path, root, _) in enumerate(rows):
                if number % 50 == 0:
                    self._tell(reporter, "Checking documents…", number, len(rows))
                yield from check.check_document(
                    view, file_id, os.path.join(root, path), planner, self._reader.plan_windows
                )

    def _check_files(self, reporter: Reporter) -> Iterator[Finding]:
        """Reads every file once more: content that changed behind an unchanged stat is found only so."""
        for watch in self._reconciler.watches():
            if watch.suspended_ns is not None:
                continue
            known = list(watch.known.values())
            for number, file in enumerate(known):
                if number % 200 == 0:
                    self._tell(reporter, "Checking files…", number, len(known))
                if not file.content_hash:
                    continue
                path = os.path.join(watch.root.path, file.relative_path)
                try:
                    with open(path, "rb") as source:
                        digest = hashlib.blake2b(source.read(), digest_size=20).hexdigest()
                except FileNotFoundError:
                    yield Finding("file", path, "it is gone", file.id)
                except OSError as error:
                    yield Finding("file", path, f"it can't be read: {error.strerror}", file.id)
                else:
                    if digest != file.content_hash and watch.known.get(file.relative_path) is file:
                        yield Finding("file", path, "its content is not what is indexed", file.id)

    def _check_model(self, bad: set[bytes]) -> list[tuple[bytes, Finding]]:
        """Embeds some windows again: their stored vectors must be those of their text."""
        encoder, planner = self._embedder.encoder, self._reader.planner
        if encoder is None or planner is None:
            return []
        found = []
        with self._store.read() as view:
            files = [row[0] for row in view.documents()]
            for file_id in random.sample(files, min(_SAMPLED, len(files))):
                stored = view.load_document(file_id)
                if stored is None or not stored[2]:
                    continue
                window = next(
                    iter(self._reader.plan_windows(stored[1], random.choice(stored[2])[1])),  # noqa: S311
                    None,
                )
                row = (
                    window
                    and view.connection.execute(
                        "SELECT vector FROM vectors WHERE key = ?", (window.key,)
                    ).fetchone()
                )
                if not window or not row or window.key in bad:
                    continue
                known = np.frombuffer(row[0], np.float32)
                fresh = encoder.encode([window.embedded_text])[0]
                if known.shape != fresh.shape or float(known @ fresh) < _SAME_COSINE:
                    finding = Finding("vector", "", f"vector {window.key.hex()} is not its text's")
                    found.append((window.key, finding))
        return found

    def _mend(self, findings: list[Finding], bad_keys: list[bytes]) -> None:
        def mend(connection: sqlite3.Connection) -> None:
            check.delete_orphans(connection)
            keywords.rebuild(connection)

        self._writer.run(lambda: self._store.repair(mend, bad_keys))
        self._reconciler.reread({finding.file_id for finding in findings if finding.file_id})
        self._replan()
        self._embedder.wake()

    @staticmethod
    def _tell(reporter: Reporter, message: str, done: int, total: int) -> None:
        if reporter.cancelled():
            raise Cancelled("The check was cancelled.")
        reporter.progress(Progress("check", message, done, total))

"""What the catalog counts, read again only after a write: ``status`` then costs no database while nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from copilotd.index.store import Store
from copilotd.update.writer import Writer


@dataclass(frozen=True, slots=True)
class Counts:
    """The catalog's own figures as of one moment.

    Attributes:
        generation: The index generation.
        by_root: (documents, chunks) by root id.
        skipped: (absolute path, reason) of every file that is known but not indexed.
        warnings: (absolute path, warning) of every document that is not wholly readable.
        pending_windows: Windows that wait for a vector.
        pending_documents: Documents they are of.
    """

    generation: int
    by_root: Mapping[int, tuple[int, int]]
    skipped: tuple[tuple[str, str], ...]
    warnings: tuple[tuple[str, str], ...]
    pending_windows: int
    pending_documents: int


class Census:
    """Counts, and remembers until the writer has done something; any thread.

    Args:
        store: The index.
        writer: The one thread that changes it.
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._kept: tuple[int, Counts] | None = None

    def now(self) -> Counts:
        """Returns the figures as of the last finished write, or later."""
        # Before the view: what is written meanwhile then makes the next call count again.
        jobs = self._writer.jobs
        kept = self._kept
        if kept is not None and kept[0] == jobs:
            return kept[1]
        with self._store.read() as view:
            windows, documents = view.pending_counts()
            counts = Counts(
                view.generation,
                view.counts(),
                tuple(view.skipped()),
                tuple(view.warnings()),
                windows,
                documents,
            )
        self._kept = (jobs, counts)
        return counts

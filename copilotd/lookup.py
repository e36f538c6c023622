"""Reads the index as the documents are on disk now: every look is preceded by what makes it true."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import TypeVar

from copilotd.errors import Cancelled, UsageError
from copilotd.index.reader import ReadView, in_paths
from copilotd.index.store import Store
from copilotd.query.question import Clock
from copilotd.text import printable
from copilotd.turns import Turns
from copilotd.types import Freshness, Reporter, Root, Scope
from copilotd.update.background import ReconcileLoop
from copilotd.update.embedder import Embedder
from copilotd.update.index_run import tell_stale
from copilotd.update.reconcile import Reconciler

_Found = TypeVar("_Found")

_PENDING_PATHS = 20
# Looks a question may cost: one, and one more after each round of work that it waited for.
_MAX_LOOKS = 4


class Lookup:
    """Brings the index up to date and searches it.

    Args:
        store: The index.
        reconciler: Looks at the files.
        embedder: Makes vectors; steps aside for a question.
        loop: Knows what is damaged or not yet planned.
    """

    def __init__(self, store: Store, reconciler: Reconciler, embedder: Embedder, loop: ReconcileLoop) -> None:
        self._store = store
        self._reconciler = reconciler
        self._embedder = embedder
        self._loop = loop
        self._turns = Turns()

    def sync(self, budget_s: float, reporter: Reporter, scope: Scope = Scope()) -> Freshness:  # noqa: B008 (frozen)
        """Brings whatever was saved before this call into the index, as far as the time budget goes.

        Args:
            budget_s: Seconds.
            reporter: Told each changed file.
            scope: What is waited for and reported as lacking: one namespace's question waits for no other's files.
        """
        began = time.monotonic()
        deadline = began + budget_s

        unseen: list[Root] = []
        looked = began
        for _ in range(_MAX_LOOKS):
            unseen = [
                watch.root
                for watch in self._reconciler.watches()
                if not self._reconciler.look(
                    watch.root.id,
                    looked,
                    timeout_s=deadline - time.monotonic(),
                    every_file=False,
                    on_stale=tell_stale(reporter),
                )
            ]
            roots = {root.id for root in self._roots_of(scope)}
            waiting = any(self._reconciler.count_backlog(root_id) for root_id in roots)
            if not waiting or time.monotonic() >= deadline:
                break
            self._reconciler.wait_fresh(roots, budget_s, deadline, reporter.cancelled)
            looked = time.monotonic()
        if reporter.cancelled():
            raise Cancelled("The question was cancelled.")
        # Such as a daemon that was killed leaves behind, or the end of a large folder.
        self._embedder.embed_few(lambda: reporter.cancelled() or time.monotonic() >= deadline)
        return self._freshness(unseen, scope)

    def find(
        self,
        search: Callable[[ReadView], _Found],
        scope: Scope,
        budget_s: float,
        reporter: Reporter,
        clock: Clock,
    ) -> tuple[_Found, Freshness]:
        """Brings the index up to date and searches it; rows found damaged are read again before it answers.

        Args:
            search: Searches the view it is given.
            scope: Where it searches.
            budget_s: What bringing it up to date may take, in seconds.
            reporter: Told each changed file.
            clock: Times ``sync`` and ``retrieve``.

        Raises:
            UsageError: Nothing is indexed, or the scope names what there isn't.
            Cancelled: The client is gone.
        """
        with self.question():
            for _ in range(_MAX_LOOKS):
                freshness = self.sync(budget_s, reporter, scope)
                clock.lap("sync")
                with self._turns.take(reporter.cancelled), self._store.read() as view:
                    self.require_roots(scope)
                    self._require_paths(view, scope)
                    found = search(view)
                    freshness = replace(freshness, generation=view.generation)
                clock.lap("retrieve")
                if not self._loop.take_damaged():
                    break
        return found, freshness

    def left_out(self, scope: Scope) -> list[str]:
        """Says which roots are not cited just now: an empty answer must not look like ignorance."""
        return [
            watch.left_out
            for watch in self._reconciler.watches()
            if watch.left_out and (scope.namespaces is None or watch.root.namespace in scope.namespaces)
        ]

    @contextmanager
    def question(self) -> Iterator[None]:
        """Makes bulk work step aside while it is entered."""
        self._embedder.question_begins()
        try:
            yield
        finally:
            self._embedder.question_ends()

    def again(self, search: Callable[[ReadView], _Found]) -> tuple[_Found, int]:
        """Searches once more for the same question, without another look at the files; gives the generation too."""
        with self.question(), self._turns.take(), self._store.read() as view:
            return search(view), view.generation

    def require_roots(self, scope: Scope) -> None:
        """Refuses a question that no folder can answer; costs nothing, so it comes before all waiting.

        Raises:
            UsageError: Nothing is indexed, or there is no such namespace.
        """
        roots = self._reconciler.watches()
        if not roots:
            raise UsageError("No folder is indexed yet.", "copilot index DIR")
        known = {watch.root.namespace for watch in roots}
        unknown = [name for name in scope.namespaces or () if name not in known]
        if unknown:
            raise UsageError(
                f"There is no namespace {printable(unknown[0])!r}.",
                f"known namespaces: {', '.join(sorted(known))}",
            )

    def _require_paths(self, view: ReadView, scope: Scope) -> None:
        # Where files are still to be read, the one that is meant may be among them.
        unmatched = [] if self._reconciler.count_backlog() else view.unmatched_paths(scope)
        if unmatched and len(unmatched) == len(scope.paths):
            raise UsageError(
                f"No document's path matches {printable(unmatched[0])!r}.",
                "paths are below the indexed folder, as sources show them; a folder's name or a glob will do",
            )

    def _roots_of(self, scope: Scope) -> list[Root]:
        return [
            watch.root
            for watch in self._reconciler.watches()
            if scope.namespaces is None or watch.root.namespace in scope.namespaces
        ]

    def _freshness(self, unseen: list[Root], scope: Scope) -> Freshness:
        """Says what a scope of the index lacks: files to read, documents without vectors, roots not looked at."""
        roots = self._roots_of(scope)
        paths = [root.path for root in unseen if root in roots]
        unread = self._reconciler.backlog({root.id for root in roots})
        paths += [path for path in unread if in_paths(path, scope)]
        # Before the view: what is planned meanwhile is then counted here, never missed by both.
        unplanned = self._loop.unplanned
        with self._store.read() as view:
            generation = view.generation
            waiting = view.pending_paths(scope) if self._embedder.encoder is not None else []
            documents = len(waiting) + unplanned
            if documents:
                known = set(paths)
                rest = (path for path in waiting if path not in known)
                return Freshness(
                    generation,
                    len(paths) + documents,
                    tuple(islice(chain(paths, rest), _PENDING_PATHS)),
                    by_words=documents,
                )
        return Freshness(generation, len(paths), tuple(paths[:_PENDING_PATHS]))

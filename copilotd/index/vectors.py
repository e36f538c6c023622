"""The vectors in memory: the one module that knows FAISS.

SQLite holds the truth; this is what finds in it. Traps it steers around: ``IndexIDMap2.reset()`` leaves
a stale map (faiss#5578), so a new index is made instead; an id added twice gives two vectors, so ids
are removed first; ids must be int64; an empty index answers with id -1; searching while adding is
unsafe (faiss#1781), so both take one short lock.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import faiss
import numpy as np

from copilotd.types import DenseHit, Float32Array, Int64Array


def build_index(window_ids: Int64Array, vectors: Float32Array) -> Any:
    """Builds an exact inner-product index.

    Args:
        window_ids: ``(n,)`` int64.
        vectors: ``(n, dim)`` float32, L2-normalised, so that the inner product is the cosine.

    Returns:
        A ``faiss.IndexIDMap2`` over ``faiss.IndexFlatIP``.
    """
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(vectors.shape[1]))
    if len(window_ids):
        index.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(window_ids, dtype=np.int64))
    return index


def best_windows(
    scores: Float32Array, ids: Int64Array, chunk_of: Callable[[int], int], limit: int
) -> list[DenseHit]:
    """Returns the best ``limit`` chunks by their best window.

    Args:
        scores: ``(k,)`` cosines, best first.
        ids: ``(k,)`` window ids; -1 where the index had no more.
        chunk_of: Window id → chunk id.
        limit: At most so many.
    """
    best: dict[int, float] = {}
    for score, window_id in zip(scores.tolist(), ids.tolist(), strict=True):
        if window_id != -1:
            # Windows come best first: the first of a chunk is its best.
            best.setdefault(chunk_of(window_id), score)
    return [DenseHit(chunk_id, score) for chunk_id, score in list(best.items())[:limit]]


class VectorIndex:
    """Windows by vector, chunks by their best window; safe to search from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index: Any = None
        self._chunk_of: dict[int, int] = {}
        self._root_of: dict[int, int] = {}
        self._in_root: Counter[int] = Counter()
        self._windows_of: dict[int, list[int]] = {}
        self._selectors: dict[frozenset[int], tuple[Any, Int64Array]] = {}

    def __len__(self) -> int:
        """Returns the number of windows that have a vector."""
        return len(self._chunk_of)

    @property
    def dimension(self) -> int:
        """Length of a vector; 0 while there is none."""
        return 0 if self._index is None else int(self._index.d)

    def replace_all(self, rows: Sequence[tuple[int, int, int]], vectors: Float32Array) -> None:
        """Starts afresh with ``rows`` of (window id, chunk id, root id) and their ``(n, dim)`` vectors."""
        index = (
            build_index(np.array([row[0] for row in rows], dtype=np.int64), vectors) if len(rows) else None
        )
        with self._lock:
            self._index = index
            self._chunk_of, self._root_of, self._windows_of, self._selectors = {}, {}, {}, {}
            self._in_root.clear()
            self._note(rows)

    def add(self, rows: Sequence[tuple[int, int, int]], vectors: Float32Array) -> None:
        """Adds windows; one that is there already is replaced."""
        if not rows:
            return
        ids = np.array([row[0] for row in rows], dtype=np.int64)
        with self._lock:
            if self._index is not None and self._index.d != vectors.shape[1]:
                raise ValueError(f"vectors of length {vectors.shape[1]} in an index of {self._index.d}")
            known = [window_id for window_id, _, _ in rows if window_id in self._chunk_of]
            if known:
                self._remove(known)
            if self._index is None:
                self._index = build_index(ids, vectors)
            else:
                self._index.add_with_ids(np.ascontiguousarray(vectors), ids)
            self._note(rows)
            self._selectors.clear()

    def remove(self, window_ids: Iterable[int]) -> None:
        """Removes windows; ids that aren't there are no error. One call costs one pass over the index."""
        with self._lock:
            known = [window_id for window_id in window_ids if window_id in self._chunk_of]
            if known:
                self._remove(known)
                self._selectors.clear()

    def search(self, queries: Float32Array, limit: int, roots: frozenset[int] | None) -> list[list[DenseHit]]:
        """Returns for each row of ``queries`` ``(n, dim)`` the best ``limit`` chunks by their best window.

        Args:
            queries: L2-normalised rows.
            limit: Chunks a query.
            roots: Only windows of these roots, restricted before ranking; None for all.
        """
        with self._lock:
            if self._index is None or not self._chunk_of or limit <= 0:
                return [[] for _ in queries]
            parameters, available = self._selection(roots)
            # A chunk has about two windows; more are fetched while too few different chunks came.
            k = min(available, limit * 3)
            # The library shares queries out, not vectors: a second thread has nothing to do but to be waited for.
            # The number is one of the calling thread's.
            faiss.omp_set_num_threads(1)
            while True:
                if k == 0:
                    return [[] for _ in queries]
                scores, ids = self._index.search(np.ascontiguousarray(queries), k, params=parameters)
                results = [
                    best_windows(s, i, self._chunk_of.__getitem__, limit)
                    for s, i in zip(scores, ids, strict=True)
                ]
                if k >= available or all(len(result) >= limit for result in results):
                    return results
                k = min(available, k * 4)

    def score_chunks(self, queries: Float32Array, chunk_ids: Sequence[int]) -> Float32Array:
        """Returns the ``(n_queries, n_chunks)`` best-window cosines; NaN where a chunk has no vector."""
        result = np.full((len(queries), len(chunk_ids)), np.nan, dtype=np.float32)
        with self._lock:
            owners, ids = [], []
            for column, chunk_id in enumerate(chunk_ids):
                for window_id in self._windows_of.get(chunk_id, ()):
                    owners.append(column)
                    ids.append(window_id)
            if not ids:
                return result
            vectors = self._index.reconstruct_batch(np.array(ids, dtype=np.int64))
        cosines = queries @ vectors.T
        for position, column in enumerate(owners):
            result[:, column] = np.fmax(result[:, column], cosines[:, position])
        return result

    def reconstruct(self, window_ids: Sequence[int]) -> Float32Array:
        """Returns the ``(n, dim)`` vectors of windows that are there."""
        with self._lock:
            if not window_ids:
                return np.empty((0, 0), np.float32)
            rows: Float32Array = self._index.reconstruct_batch(np.array(window_ids, dtype=np.int64))
            return rows

    def window_ids(self) -> set[int]:
        """Returns the ids of all windows that have a vector."""
        with self._lock:
            return set(self._chunk_of)

    def _note(self, rows: Iterable[tuple[int, int, int]]) -> None:
        for window_id, chunk_id, root_id in rows:
            self._chunk_of[window_id] = chunk_id
            self._root_of[window_id] = root_id
            self._in_root[root_id] += 1
            self._windows_of.setdefault(chunk_id, []).append(window_id)

    def _remove(self, window_ids: list[int]) -> None:
        self._index.remove_ids(np.array(window_ids, dtype=np.int64))
        for window_id in window_ids:
            chunk_id = self._chunk_of.pop(window_id)
            root_id = self._root_of.pop(window_id)
            self._in_root[root_id] -= 1
            if not self._in_root[root_id]:
                del self._in_root[root_id]
            siblings = self._windows_of[chunk_id]
            siblings.remove(window_id)
            if not siblings:
                del self._windows_of[chunk_id]

    def _selection(self, roots: frozenset[int] | None) -> tuple[Any, int]:
        if roots is None or roots.issuperset(self._in_root):
            return None, len(self._chunk_of)
        if roots not in self._selectors:
            ids = np.array([w for w, root in self._root_of.items() if root in roots], dtype=np.int64)
            self._selectors[roots] = (faiss.IDSelectorBatch(ids), ids)
        selector, ids = self._selectors[roots]
        return faiss.SearchParameters(sel=selector), len(ids)  # type: ignore[call-arg]

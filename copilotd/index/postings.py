"""Keeps where terms occur, from one question to the next.

FTS5 takes 2 microseconds for each chunk that holds a term, and what takes the time are the common words, which
come in question after question.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence

from copilotd.index import keywords
from copilotd.index.keywords import Postings

_Key = tuple[tuple[str, ...] | None, str]

_KEPT = 1_000_000
"""Chunks of all terms together; 16 bytes each."""


class PostingsCache:
    """The postings of the terms asked for last, as of one generation; safe to use from several threads.

    Args:
        kept: Chunks of all terms together.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._lock = threading.Lock()
        self._limit = kept
        self._generation = -1
        self._terms: OrderedDict[_Key, Postings] = OrderedDict()
        self._size = 0

    def find(
        self,
        generation: int,
        connection: sqlite3.Connection,
        terms: Sequence[str],
        scopes: Sequence[str] | None,
    ) -> list[Postings]:
        """Returns :func:`keywords.postings` of each term.

        Args:
            generation: That of the index which ``connection`` sees.
            connection: The catalog's connection, in a read transaction.
            terms: What to look for.
            scopes: Only chunks of these scopes; None for all.
        """
        within = None if scopes is None else tuple(scopes)
        found = []
        for term in terms:
            key = (within, term)
            one = self._kept(generation, key)
            if one is None:
                one = keywords.postings(connection, term, scopes)
                self._keep(generation, key, one)
            found.append(one)
        return found

    def _kept(self, generation: int, key: _Key) -> Postings | None:
        with self._lock:
            if generation > self._generation:
                self._generation, self._size = generation, 0
                self._terms.clear()
            one = self._terms.get(key) if generation == self._generation else None
            if one is not None:
                self._terms.move_to_end(key)
            return one

    def _keep(self, generation: int, key: _Key, one: Postings) -> None:
        with self._lock:
            # A view that was opened before an edit still sees what was then.
            if generation != self._generation or key in self._terms or len(one.chunk_ids) > self._limit:
                return
            self._terms[key] = one
            self._size += _cost(one)
            while self._size > self._limit:
                _, dropped = self._terms.popitem(last=False)
                self._size -= _cost(dropped)


def _cost(one: Postings) -> int:
    # A term that occurs nowhere takes room, too.
    return len(one.chunk_ids) + 50

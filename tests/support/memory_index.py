"""An index without files or threads: ``IndexReader`` on one in-memory database and one array."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pathspec

from copilotd.embed.tokens import pack_tokens
from copilotd.index import keywords
from copilotd.types import (
    DEFAULT_NAMESPACE,
    Chunk,
    DenseHit,
    Document,
    Encoder,
    Float32Array,
    KeywordHit,
    Scope,
    StoredChunk,
    TokenEncoder,
)

WindowTexts = Callable[[Document, Chunk], Sequence[str]]


def whole_chunk(document: Document, chunk: Chunk) -> Sequence[str]:
    """One window a chunk, the in-document title and heading path in front."""
    heading = " > ".join(chunk.metadata.heading_path)
    return [f"{document.title}\n{heading}\n{chunk.context}{document.text[chunk.start : chunk.end]}"]


class MemoryIndex:
    """Holds what it is given; answers every question of ``IndexReader`` by brute force."""

    def __init__(self, encoder: Encoder | None = None, windows: WindowTexts = whole_chunk) -> None:
        self.generation = 0
        self._encoder = encoder
        self._windows = windows
        self._connection = sqlite3.connect(":memory:")
        keywords.create(self._connection)
        self._chunks: dict[int, StoredChunk] = {}
        self._documents: dict[int, list[int]] = {}
        self._roots: dict[str, str] = {}
        self._rows: list[int] = []
        self._pending: list[str] = []
        self._packed: dict[int, bytes] = {}
        self._vectors: Float32Array = np.zeros((0, encoder.dimension if encoder else 0), np.float32)

    def add(
        self, document: Document, chunks: Sequence[Chunk], namespace: str = DEFAULT_NAMESPACE
    ) -> list[int]:
        """Indexes a document and returns the ids of its chunks; vectors follow at the first search."""
        document_id = len(self._documents) + 1
        scope = self._roots.setdefault(namespace, f"r{len(self._roots) + 1}")
        ids = self._documents[document_id] = []
        for chunk in chunks:
            stored = stored_chunk(len(self._chunks) + 1, document_id, namespace, document, chunk)
            self._chunks[stored.id] = stored
            ids.append(stored.id)
            keywords.insert(
                self._connection,
                stored.id,
                scope=scope,
                title=document.title,
                heading=" ".join(stored.metadata.heading_path),
                body=f"{stored.context}\n{stored.text}",
                name=stored.metadata.relative_path,
            )
            if self._encoder is not None:
                texts = list(self._windows(document, chunk))
                self._pending += texts
                self._rows += [stored.id] * len(texts)
        self.generation += 1
        return ids

    def chunk_count(self, scope: Scope = Scope()) -> int:  # noqa: B008 (frozen)
        inside = scope.namespaces
        return sum(1 for chunk in self._chunks.values() if inside is None or chunk.namespace in inside)

    def search_vectors(self, queries: Float32Array, limit: int, scope: Scope) -> list[list[DenseHit]]:
        allowed = sorted(self._allowed(scope))
        scores = self.score_chunks(queries, allowed)
        found = []
        for row in scores:
            order = [i for i in np.argsort(-row, kind="stable")[:limit] if not np.isnan(row[i])]
            found.append([DenseHit(allowed[i], float(row[i])) for i in order])
        return found

    def score_chunks(self, queries: Float32Array, chunk_ids: Sequence[int]) -> Float32Array:
        self._encode_pending()
        best = np.full((len(queries), len(self._chunks) + 1), -np.inf, np.float32)
        np.maximum.at(best.T, np.array(self._rows, np.int64), self._vectors @ queries.T)
        best[np.isneginf(best)] = np.nan
        return best[:, np.array(chunk_ids, np.int64)]

    def search_keywords(self, terms: Sequence[str], limit: int, scope: Scope) -> list[KeywordHit]:
        scopes = self._scopes(scope)
        found = [keywords.postings(self._connection, term, scopes) for term in terms]
        return keywords.best_chunks(found, limit, self._allowed(scope) if scope.paths else None)

    def _scopes(self, scope: Scope) -> list[str] | None:
        if scope.namespaces is None:
            return None
        return [self._roots[name] for name in scope.namespaces if name in self._roots]

    def document_frequencies(self, terms: Sequence[str], scope: Scope = Scope()) -> dict[str, int]:  # noqa: B008
        return keywords.document_frequencies(self._connection, terms, self._scopes(scope))

    def vocabulary(self) -> Mapping[str, int]:
        return keywords.vocabulary(self._connection)

    def load_chunks(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        return {chunk_id: self._chunks[chunk_id] for chunk_id in chunk_ids if chunk_id in self._chunks}

    def neighbours(self, chunk_id: int) -> list[int]:
        return list(self._documents[self._chunks[chunk_id].document_id])

    def packed_tokens(self, chunk_ids: Sequence[int]) -> dict[int, bytes]:
        self._encode_pending()
        return {chunk_id: self._packed[chunk_id] for chunk_id in chunk_ids if chunk_id in self._packed}

    def _encode_pending(self) -> None:
        if self._encoder is None or not self._pending:
            return
        if isinstance(self._encoder, TokenEncoder):
            vectors, tokens = self._encoder.encode_tokens(self._pending)
            for row, of_text in zip(self._rows[-len(tokens) :], tokens, strict=True):
                self._packed[row] = self._packed.get(row, b"") + pack_tokens(of_text.rows)
        else:
            vectors = self._encoder.encode(self._pending)
        self._vectors = np.vstack([self._vectors, vectors])
        self._pending = []

    def _allowed(self, scope: Scope) -> set[int]:
        spec = pathspec.PathSpec.from_lines("gitignore", scope.paths) if scope.paths else None
        return {
            chunk.id
            for chunk in self._chunks.values()
            if (scope.namespaces is None or chunk.namespace in scope.namespaces)
            and (spec is None or spec.match_file(chunk.metadata.relative_path))
        }


def stored_chunk(
    chunk_id: int, document_id: int, namespace: str, document: Document, chunk: Chunk
) -> StoredChunk:
    """What the index would hand back for ``chunk``."""
    first_line = document.text.count("\n", 0, chunk.start)
    text = document.text[chunk.start : chunk.end]
    blocks = tuple(
        replace(
            block,
            start=max(block.start - chunk.start, 0),
            end=min(block.end, chunk.end) - chunk.start,
            header_end=min(max(block.header_end - chunk.start, 0), chunk.end - chunk.start),
        )
        for block in document.blocks
        if block.start < chunk.end and block.end > chunk.start
    )
    return StoredChunk(
        id=chunk_id,
        document_id=document_id,
        namespace=namespace,
        title=document.title,
        text=text,
        start=chunk.start,
        end=chunk.end,
        line_numbers=document.line_numbers[first_line : first_line + text.count("\n") + 1],
        page_starts=document.page_starts(first_line, text.count("\n") + 1),
        blocks=blocks,
        context=chunk.context,
        metadata=chunk.metadata,
    )

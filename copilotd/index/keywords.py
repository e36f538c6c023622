"""The keyword index: one FTS5 table of analysed tokens.

SQLite's tokenizers know neither identifiers nor stems of split names nor scripts without blanks, so
:mod:`copilotd.index.analysis` makes the tokens and FTS5 only cuts at blanks: the ``ascii`` tokenizer
takes every non-ASCII character as part of a token, and each ASCII mark our tokens may hold is named
in ``tokenchars``.

The table keeps its content. SQLite 3.40 has no ``contentless_delete``, and a table without content
can only forget a row when given the row's old tokens.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from copilotd.index.analysis import analyse
from copilotd.types import Float64Array, Int64Array, KeywordHit

_MARKS = "-_./:@+#&,\\"
_SCOPE_MARK = "¦"
"""Starts a scope's token; no analysed token holds it, so a scope can't be mistaken for a word."""

# scope, title, heading, body, name. Tuned on three projects' documents; the optimum is flat.
_WEIGHTS = "0.0, 2.0, 3.0, 1.0, 1.0"


def scope_token(root_id: int) -> str:
    """Returns the scope that stands for a root."""
    return f"r{root_id}"


def create(connection: sqlite3.Connection) -> None:
    """Creates the table and its vocabulary view, where they don't exist."""
    connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS keywords USING fts5("
        f"""scope, title, heading, body, name, tokenize = "ascii tokenchars '{_MARKS}'")"""
    )
    connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS keywords_vocabulary USING fts5vocab(keywords, 'row')"
    )
    connection.execute("INSERT INTO keywords(keywords, rank) VALUES ('rank', ?)", (f"bm25({_WEIGHTS})",))


def insert(
    connection: sqlite3.Connection,
    chunk_id: int,
    *,
    scope: str,
    title: str,
    heading: str,
    body: str,
    name: str,
) -> None:
    """Indexes one chunk.

    Args:
        connection: The catalog's connection, inside the transaction that stores the chunk.
        chunk_id: The row's id.
        scope: What a search may be restricted to; ``r<root id>``.
        title: The title inside the document.
        heading: The heading path.
        body: The chunk's text, with the table header or fence opening that its cut left behind.
        name: The file's name and folders.
    """
    connection.execute(
        "INSERT INTO keywords(rowid, scope, title, heading, body, name) VALUES (?, ?, ?, ?, ?, ?)",
        (chunk_id, *row(scope=scope, title=title, heading=heading, body=body, name=name)),
    )


def row(*, scope: str, title: str, heading: str, body: str, name: str) -> tuple[str, ...]:
    """Returns what is stored of a chunk, in the order of the columns; arguments as in :func:`insert`."""
    return (_SCOPE_MARK + scope, *(" ".join(analyse(text)) for text in (title, heading, body, name)))


def stored_row(connection: sqlite3.Connection, chunk_id: int) -> tuple[str, ...] | None:
    """Returns what is stored of a chunk; None where it isn't there."""
    stored: tuple[str, ...] | None = connection.execute(
        "SELECT scope, title, heading, body, name FROM keywords WHERE rowid = ?", (chunk_id,)
    ).fetchone()
    return stored


def check(connection: sqlite3.Connection) -> str:
    """Compares the inverted index with the rows; returns what is wrong, or nothing. Writes in a transaction."""
    try:
        connection.execute("INSERT INTO keywords(keywords) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        return str(error)
    return ""


def rebuild(connection: sqlite3.Connection) -> None:
    """Makes the inverted index anew from the rows."""
    connection.execute("INSERT INTO keywords(keywords) VALUES ('rebuild')")


def delete(connection: sqlite3.Connection, chunk_ids: Iterable[int]) -> None:
    """Forgets chunks; ids that aren't there are no error."""
    connection.executemany("DELETE FROM keywords WHERE rowid = ?", ((chunk_id,) for chunk_id in chunk_ids))


@dataclass(frozen=True, slots=True)
class Postings:
    """Where one term occurs.

    Attributes:
        chunk_ids: ``(n,)``, ascending.
        scores: ``(n,)``, the term's own BM25 score in each of these chunks.
    """

    chunk_ids: Int64Array
    scores: Float64Array


def postings(connection: sqlite3.Connection, term: str, scopes: Sequence[str] | None) -> Postings:
    """Returns the chunks that hold an analysed term; any text is a term, none of it is query syntax.

    Args:
        connection: The catalog's connection.
        term: What to look for.
        scopes: Only chunks of these scopes; None for all.
    """
    rows: list[tuple[int, float]] = []
    if scopes is None or scopes:
        expression = _quoted(term) if scopes is None else _scoped(_quoted(term), scopes)
        rows = connection.execute(
            "SELECT rowid, -rank FROM keywords WHERE keywords MATCH ? ORDER BY rowid", (expression,)
        ).fetchall()
    return Postings(
        np.fromiter((row[0] for row in rows), np.int64, len(rows)),
        np.fromiter((row[1] for row in rows), np.float64, len(rows)),
    )


def best_chunks(
    found: Sequence[Postings], limit: int, allowed: Collection[int] | None = None
) -> list[KeywordHit]:
    """Returns the best ``limit`` chunks for a question, best first.

    BM25 is a sum over terms: that of a question is what its terms have alone, added up in their order.

    Args:
        found: Of each of the question's terms.
        limit: At most so many.
        allowed: Only these chunks, applied before the limit; None for all.
    """
    if not found:
        return []
    chunk_ids, of_posting = np.unique(np.concatenate([one.chunk_ids for one in found]), return_inverse=True)
    scores = np.bincount(of_posting, np.concatenate([one.scores for one in found]), len(chunk_ids))
    if allowed is not None:
        kept = np.isin(chunk_ids, np.fromiter(allowed, np.int64, len(allowed)))
        chunk_ids, scores = chunk_ids[kept], scores[kept]
    order = np.lexsort((chunk_ids, -scores))[:limit]
    return [
        KeywordHit(chunk_id, score)
        for chunk_id, score in zip(chunk_ids[order].tolist(), scores[order].tolist(), strict=True)
    ]


def document_frequencies(
    connection: sqlite3.Connection, terms: Sequence[str], scopes: Sequence[str] | None = None
) -> dict[str, int]:
    """Returns in how many chunks each analysed term occurs, 0 where in none.

    Args:
        connection: The catalog's connection.
        terms: Tokens as the analyser makes them.
        scopes: Count only chunks of these scopes; None for all.
    """
    found = dict.fromkeys(terms, 0)
    if scopes is not None and not scopes:
        return found
    for term in found:
        if scopes is None:
            row = connection.execute("SELECT doc FROM keywords_vocabulary WHERE term = ?", (term,)).fetchone()
        else:
            row = connection.execute(
                "SELECT count(*) FROM keywords WHERE keywords MATCH ?", (_scoped(_quoted(term), scopes),)
            ).fetchone()
        if row is not None:
            found[term] = int(row[0])
    return found


def vocabulary(connection: sqlite3.Connection) -> dict[str, int]:
    """Returns every analysed term with the number of chunks it occurs in."""
    return {
        term: int(chunks)
        for term, chunks in connection.execute("SELECT term, doc FROM keywords_vocabulary")
        if not term.startswith(_SCOPE_MARK)
    }


def _scoped(expression: str, scopes: Sequence[str]) -> str:
    inside = " OR ".join(_quoted(_SCOPE_MARK + scope) for scope in scopes)
    return f"({inside}) AND ({expression})"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'

"""The extractive answerer: quotes what answers, word for word, with its exact lines. No LLM.

Of each good hit it takes the run of sentences, list items, table rows or fences that covers the
question best (:mod:`copilotd.query.passages`). Weak hits are dropped: a second passage must come
near the first, so that a reader isn't sent to a place that doesn't answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from copilotd.query.citation_stream import render_label
from copilotd.query.passages import Run, best_run
from copilotd.query.prompt import key_of
from copilotd.query.quoting import quoted
from copilotd.text import one_line
from copilotd.types import Citation, Hit, Retrieval, StoredChunk

_PREVIEW_CHARS = 160
_NEAR = 0.93
"""A further hit is quoted when its score reaches this share of the best one's."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Words of a document that answer.

    Attributes:
        text: Verbatim lines of the chunk; rows cut from a table have its header in front.
        chunk: Where they stand.
        line_start: First source line.
        line_end: Last source line.
        score: The hit's fused score.
    """

    text: str
    chunk: StoredChunk
    line_start: int
    line_end: int
    score: float


def extract(retrieval: Retrieval, *, max_passages: int = 3) -> list[Passage]:
    """Returns the passages that answer, the best hit's first; empty where nothing was found."""
    passages: list[Passage] = []
    hits = retrieval.hits
    for hit in hits:
        if len(passages) >= max_passages or (passages and hit.score < _NEAR * hits[0].score):
            break
        run = best_run(hit.chunk, retrieval.rarity)
        if run is None:
            continue
        passage = _passage(hit, run)
        if not any(_overlap(passage, earlier) for earlier in passages):
            passages.append(passage)
    return passages


def compose(passages: Sequence[Passage]) -> tuple[str, list[Citation]]:
    """Returns the answer, safe to show, with a label behind each passage, and the citations of the labels."""
    parts = []
    citations = []
    for number, passage in enumerate(passages):
        key = key_of(number)
        meta = passage.chunk.metadata
        # A mark behind a fence's closing line would reopen it.
        separator = "\n" if "\n" in passage.text else " "
        citation = Citation(
            key=key,
            chunk_id=passage.chunk.id,
            doc_title=meta.doc_title,
            section_heading=meta.section_heading,
            heading_path=meta.heading_path,
            source_file=meta.source_file,
            relative_path=meta.relative_path,
            namespace=passage.chunk.namespace,
            line_start=passage.line_start,
            line_end=passage.line_end,
            page=meta.page,
            score=passage.score,
            preview=one_line(passage.text, _PREVIEW_CHARS),
        )
        # Rendered here and not by the mark scanner: a document's own "[A]" is text, no mark.
        parts.append(f"{quoted(passage.text)}{separator}{render_label(citation)}")
        citations.append(citation)
    return "\n\n".join(parts), citations


def _passage(hit: Hit, run: Run) -> Passage:
    chunk = hit.chunk
    text = chunk.text[run.start : run.end]
    first = chunk.text.count("\n", 0, run.start)
    last = first + text.count("\n")
    if run.header:
        text = f"{run.header}\n{text}"
    return Passage(text, chunk, chunk.line_numbers[first], chunk.line_numbers[last], hit.score)


def _overlap(one: Passage, other: Passage) -> bool:
    return (
        one.chunk.document_id == other.chunk.document_id
        and one.line_start <= other.line_end
        and other.line_start <= one.line_end
    )

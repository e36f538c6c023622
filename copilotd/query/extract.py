"""The extractive answerer: quotes what answers, word for word, with its exact lines. No LLM.

Of each good hit it takes the run of sentences, list items, table rows or fences that covers the
question best (:mod:`copilotd.query.passages`). Weak hits are dropped: a second passage must come
near the first, so that a reader isn't sent to a place that doesn't answer.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from copilotd.index.analysis import analyse, analyse_query
from copilotd.query.citation import citation_of
from copilotd.query.citation_stream import render_label
from copilotd.query.pack import key_of
from copilotd.query.passages import Run, best_run, whole_run
from copilotd.query.quoting import quoted
from copilotd.types import Block, BlockKind, Citation, Hit, Retrieval, StoredChunk

_NEAR = 0.93
"""A further hit is quoted when its score reaches this share of the best one's."""


_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})")
_FENCE_IN_ITEM = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?:`{3}|~{3})")
_INDENTED = re.compile(r"(?:[ >]*(?: {4}|\t).*\n|[ \t>]*\n)*(?:[ >]*(?: {4}|\t).*|[ \t>]*)")
_NAME = re.compile(r"^-|[_.]|[a-z][A-Z]")
_TICKS = re.compile("`{3,}")
_OPENING = re.compile(
    r"\.\.[ \t]+[\w-]+::[ \t]*([\w+#.-]*)[^\n]*"
    r"|\[(?:source|listing)?(?:%\w+)*(?:,[ \t]*([\w+#.-]+))?[^\n]*\]"
    r"|#\+begin_\w+[ \t]*([\w+#.-]*)[^\n]*",
    re.IGNORECASE,
)
"""What opens a listing in reStructuredText, AsciiDoc and Org; the group is its language."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Words of a document that answer.

    Attributes:
        text: Verbatim lines of the chunk; rows cut from a table have its header in front, lines cut from a
            fence its opening and a closing line, other code a fence around it.
        chunk: Where they stand.
        line_start: First source line.
        line_end: Last source line.
        score: The hit's fused score.
        rows_left_out: Rows of the table it was cut from that it does not hold.
    """

    text: str
    chunk: StoredChunk
    line_start: int
    line_end: int
    score: float
    rows_left_out: int = 0


def extract(retrieval: Retrieval, *, max_passages: int = 3, whole: bool = False) -> list[Passage]:
    """Returns the passages that answer, the best hit's first; empty where nothing was found.

    Args:
        retrieval: What was found.
        max_passages: At most so many.
        whole: Quote all of a hit instead of what a person looks over in ten seconds.
    """
    passages: list[Passage] = []
    names = asked_names(retrieval.query)
    hits = _about(names, retrieval.hits)
    for hit in hits:
        if len(passages) >= max_passages or (passages and hit.score < _NEAR * hits[0].score):
            break
        run = whole_run(hit.chunk) if whole else best_run(hit.chunk, retrieval.rarity, names)
        if run is None:
            continue
        passage = _passage(hit, run)
        if not any(overlap(passage, earlier) for earlier in passages):
            passages.append(passage)
    return passages


def asked_names(query: str) -> frozenset[str]:
    """Returns the tokens of the options, settings, versions and identifiers that a question names.

    Not of paths and hyphenated words: they often say what a question is about, not what it asks for.
    """
    return frozenset(
        word.tokens[0]
        for word in analyse_query(query).content
        if word.identifier and "/" not in word.surface and _NAME.search(word.surface)
    )


def _about(names: frozenset[str], hits: Sequence[Hit]) -> Sequence[Hit]:
    """Leaves out hits that don't hold the names asked for, where others do."""
    if not names:
        return hits
    return [hit for hit in hits if not names.isdisjoint(analyse(hit.chunk.text))] or hits


def compose(passages: Sequence[Passage]) -> tuple[str, list[Citation]]:
    """Returns the answer, safe to show, with a label behind each passage, and the citations of the labels."""
    parts = []
    citations = []
    for number, passage in enumerate(passages):
        # A mark behind a fence's closing line would leave the fence open; below a table's row it would be one more.
        separator = "\n" if "\n" in passage.text else " "
        if passage.text.rstrip().rpartition("\n")[2].lstrip(" >").startswith("|"):
            separator = "\n\n"
        lines = passage.line_start, passage.line_end
        citation = citation_of(key_of(number), passage.chunk, passage.score, text=passage.text, lines=lines)
        # Rendered here and not by the mark scanner: a document's own "[A]" is text, no mark.
        note = f" (… {passage.rows_left_out} more rows)" if passage.rows_left_out else ""
        parts.append(f"{quoted(passage.text)}{separator}{render_label(citation)}{note}")
        citations.append(citation)
    return "\n\n".join(parts), citations


def _passage(hit: Hit, run: Run) -> Passage:
    chunk = hit.chunk
    text = _shown(chunk, run.start, run.end)
    first = chunk.text.count("\n", 0, run.start)
    last = first + chunk.text.count("\n", run.start, run.end)
    if run.header:
        text = f"{run.header}\n{text}"
    text = _whole_fences(chunk, run.start, text)
    return Passage(
        text,
        chunk,
        chunk.line_numbers[first],
        chunk.line_numbers[last],
        hit.score,
        _rows_left_out(chunk, run),
    )


def _rows_left_out(chunk: StoredChunk, run: Run) -> int:
    """Returns how many rows of the tables that the run touches stand in the chunk before and behind it."""
    left_out = 0
    for block in chunk.blocks:
        if block.kind is BlockKind.TABLE and block.start < run.end and block.end > run.start:
            for start, end in ((block.header_end, run.start), (run.end, block.end)):
                left_out += sum(
                    1 for line in chunk.text[max(start, block.start) : end].split("\n") if line.strip()
                )
    return left_out


def _shown(chunk: StoredChunk, start: int, end: int) -> str:
    """Returns a quote as Markdown shows it: paragraphs apart, code of other formats in fences.

    In HTML and Word nothing stands between two paragraphs but the end of a line.
    """
    pieces = []
    position = start
    before: Block | None = None
    for block in chunk.blocks:
        first, last = max(block.start, start), min(block.end, end)
        if first >= last:
            continue
        if before is not None and before.kind is block.kind is BlockKind.PARAGRAPH and first - position == 1:
            pieces.append("\n")
        code = chunk.text[first:last]
        if block.kind is BlockKind.CODE:
            code = _fenced(chunk, block, first, last)
        pieces.append(f"{chunk.text[position:first]}{code}")
        position, before = last, block
    return "".join(pieces) + chunk.text[position:end]


def _fenced(chunk: StoredChunk, block: Block, first: int, last: int) -> str:
    """Returns code with fences around it where its format marks it otherwise, such as AsciiDoc or HTML.

    The line that opens a listing there becomes the fence's. Code that is a fence already, or is indented as
    Markdown wants it, stays as it is.
    """
    code = chunk.text[first:last]
    opening = chunk.context if block.start == 0 and chunk.context else chunk.text[block.start : last]
    header = chunk.text[first : block.header_end].strip()
    opened = _OPENING.fullmatch(header) if header else None
    if _FENCE_IN_ITEM.match(opening) or (_INDENTED.fullmatch(code) and not opened):
        return code
    language = ""
    if opened:
        language = next(filter(None, opened.groups()), "")
        code = textwrap.dedent(chunk.text[block.header_end : last].strip("\n"))
    runs = _TICKS.findall(code)
    fence = "`" * max(3, len(max(runs, default="")) + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def _whole_fences(chunk: StoredChunk, start: int, text: str) -> str:
    """Gives a quote that begins or ends inside a fence the fence's own opening and a closing line.

    Without them whatever renders the answer would take code for text, and all that follows for code.
    """
    for block in chunk.blocks:
        if block.kind is BlockKind.CODE and block.start <= start < block.end:
            # The opening stands before the quote, or before the chunk where the cut left it behind.
            before = chunk.text[block.start : block.header_end] if block.header_end <= start else ""
            opening = (before or (chunk.context if block.header_end == block.start else "")).strip("\n")
            if _FENCE.match(opening) and not text.startswith(opening):
                text = f"{opening}\n{text}"
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if not found:
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not line[found.end() :].strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def overlap(one: Passage, other: Passage) -> bool:
    """Returns whether two passages quote a line of the same document."""
    return (
        one.chunk.document_id == other.chunk.document_id
        and one.line_start <= other.line_end
        and other.line_start <= one.line_end
    )

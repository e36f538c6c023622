"""Answers that rest on passages: what is sent, what comes back, and which sources it really names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from copilotd.errors import Cancelled, ProviderError
from copilotd.llm.completion import DEFAULT_MAX_TOKENS, close_stream, get_completion, never_cancelled
from copilotd.query.citation_stream import CitationStream, render_label
from copilotd.query.evidence import Links, Sentences
from copilotd.query.extract import Passage, compose
from copilotd.query.gate import handle_below_threshold
from copilotd.query.prompt import SYSTEM_PROMPT, Packed, key_of, pack, render_prompt
from copilotd.text import one_line
from copilotd.types import (
    DEFAULT_NAMESPACE,
    ChunkMetadata,
    Citation,
    CompletionRequest,
    Finished,
    Hit,
    Message,
    Provider,
    StoredChunk,
    TextDelta,
)

__all__ = [
    "DEFAULT_BUDGET_CHARS",
    "CitationStream",
    "GroundedAnswer",
    "answer_from_passages",
    "build_answer_with_citations",
    "format_citations",
    "make_citations",
    "render_label",
]

# About 6,000 tokens: fits the smallest windows in use (8k) beside system prompt and answer.
DEFAULT_BUDGET_CHARS = 20_000

_PREVIEW_CHARS = 160

_UNKNOWN = re.compile(r"^\W*I (?:don['’]t|do not) know\b", re.IGNORECASE)

# A source of the model's words: given prompt and system prompt, the pieces and the end.
Words = Callable[[str, str], Iterator[TextDelta | Finished]]


@dataclass(frozen=True, slots=True)
class GroundedAnswer:
    """What a model made of the passages.

    Attributes:
        text: Its words with marks rendered; safe to show.
        citations: The passages it marks, in the order of their first mark.
        dropped: Marks that named nothing that was sent.
        finished: How it ended; None where it broke off.
        notices: What the reader must know beside the text.
        unknown: The model says it doesn't know and cites nothing; its words are not shown.
        uncited: The model's words hold no valid mark; they are withheld and ``text`` is empty.
        incomplete: Cut off, broken off or refused.
    """

    text: str
    citations: tuple[Citation, ...]
    dropped: int
    finished: Finished | None
    notices: tuple[str, ...] = ()
    unknown: bool = False
    incomplete: bool = False
    uncited: bool = False


def make_citations(hits: Sequence[Hit]) -> dict[str, Citation]:
    """Returns what the keys ``A``, ``B``… (then ``AA``…) of ``hits``, in their order, stand for."""
    return {key_of(number): _citation(key_of(number), hit) for number, hit in enumerate(hits)}


def _citation(key: str, hit: Hit) -> Citation:
    metadata = hit.chunk.metadata
    return Citation(
        key=key,
        chunk_id=hit.chunk.id,
        doc_title=metadata.doc_title,
        section_heading=metadata.section_heading,
        heading_path=metadata.heading_path,
        source_file=metadata.source_file,
        relative_path=metadata.relative_path,
        namespace=hit.chunk.namespace,
        line_start=metadata.line_start,
        line_end=metadata.line_end,
        page=metadata.page,
        score=hit.score,
        preview=one_line(hit.chunk.text, _PREVIEW_CHARS),
    )


def _sent_citations(packed: Packed) -> dict[str, Citation]:
    """Returns the citations of what was sent: a shortened passage stands only for the lines of it that were."""
    citations = {}
    for passage in packed.passages:
        citation = _citation(passage.key, passage.hit)
        lines = passage.hit.chunk.line_numbers
        if not passage.complete and lines:
            last = min(passage.text.count("\n"), len(lines) - 1)
            citation = replace(citation, line_end=lines[last])
        citations[passage.key] = citation
    return citations


def answer_from_passages(
    query: str,
    hits: Sequence[Hit],
    provider: Provider,
    on_delta: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    budget: int = DEFAULT_BUDGET_CHARS,
    max_tokens: int = DEFAULT_MAX_TOKENS,
) -> GroundedAnswer:
    """Asks ``provider`` to answer from ``hits`` and checks every mark of what it says.

    Args:
        query: The question.
        hits: The passages, most relevant first.
        provider: The LLM.
        on_delta: Sees the checked words as they come.
        cancelled: Asked many times a second; true closes the connection.
        budget: How many characters of passages may be sent.
        max_tokens: Limit of the answer.

    Raises:
        ProviderError: Nothing was answered. Where cited words had come before the failure they are returned
            as an incomplete answer with the failure among its notices.
        Cancelled: ``cancelled()`` turned true.
    """

    def words(prompt: str, system: str) -> Iterator[TextDelta | Finished]:
        request = CompletionRequest(system, (Message("user", prompt),), max_tokens)
        return provider.stream(request, cancelled or never_cancelled)

    return _grounded(query, hits, words, on_delta, budget)


def _grounded(
    query: str, hits: Sequence[Hit], words: Words, on_delta: Callable[[str], None] | None, budget: int
) -> GroundedAnswer:
    packed = pack(hits, budget)
    checked = _Checked(packed, on_delta)
    notices = [packed.notice] if packed.notice else []
    finished: Finished | None = None
    events = words(render_prompt(query, packed), SYSTEM_PROMPT)
    try:
        for event in events:
            if isinstance(event, Finished):
                finished = event
            else:
                checked.feed(event.text)
    except Cancelled:
        raise
    except ProviderError as error:
        checked.close()
        if not checked.cited:
            raise
        notices.append(f"The answer is incomplete. {error.message}")
    else:
        checked.close()
    finally:
        close_stream(events)
    unknown = not checked.cited and bool(_UNKNOWN.match(checked.withheld))
    notices += _notices(finished, checked, unknown)
    return GroundedAnswer(
        checked.text,
        tuple(checked.marks.used),
        checked.marks.dropped,
        finished,
        tuple(notices),
        unknown,
        finished is None or finished.reason != "end",
        not checked.cited and not unknown,
    )


class _Checked:
    """A model's words on their way to the reader; nothing passes before the first valid mark.

    Attributes:
        marks: Which passages they cite.
        sentences: Which of them carry no citation.
    """

    def __init__(self, packed: Packed, on_delta: Callable[[str], None] | None) -> None:
        citations = _sent_citations(packed)
        sources = [text for passage in packed.passages for text in (passage.hit.chunk.context, passage.text)]
        labels = [render_label(citation) for citation in citations.values()]
        self.marks = CitationStream(citations, sources, signals=True)
        self.sentences = Sentences()
        self._links = Links([*sources, *labels])
        self._on_delta = on_delta
        self._shown: list[str] = []
        self._held: list[str] = []

    @property
    def cited(self) -> bool:
        return bool(self.marks.used)

    @property
    def text(self) -> str:
        """What may be shown; empty where nothing is cited."""
        return "".join(self._shown).strip()

    @property
    def withheld(self) -> str:
        return "".join(self._held).strip()

    def feed(self, text: str) -> None:
        self._pass(self.sentences.feed(self._links.feed(self.marks.feed(text))))

    def close(self) -> None:
        rest = self._links.feed(self.marks.close()) + self._links.close()
        self._pass(self.sentences.feed(rest) + self.sentences.close())

    def _pass(self, text: str) -> None:
        self._held.append(text)
        if self.cited and (ready := "".join(self._held)):
            self._held.clear()
            self._shown.append(ready)
            if self._on_delta is not None:
                self._on_delta(ready)


def _notices(finished: Finished | None, checked: _Checked, unknown: bool) -> Iterator[str]:
    if finished is not None and finished.reason == "length":
        yield "The answer was cut at the output limit; MAX_ANSWER_TOKENS raises it."
    if finished is not None and finished.reason == "refusal":
        yield "The model refused to answer further." if checked.cited else "The model refused to answer."
    if dropped := checked.marks.dropped:
        some = f"{dropped} citations name" if dropped > 1 else "1 citation names"
        yield f"{some} nothing that was sent to the model; removed."
    if checked.cited and (last := checked.sentences.trailing):
        yield (
            f"The last {last} sentences carry no citation."
            if last > 1
            else "The last sentence carries no citation."
        )


def build_answer_with_citations(
    query: str,
    retrieved_chunks: Sequence[Mapping[str, Any]],
    *,
    complete: Callable[[str, str], str] | None = None,
    budget: int = DEFAULT_BUDGET_CHARS,
) -> str:
    """Returns the answer to ``query`` from ``retrieved_chunks``, its marks checked and rendered.

    Where the model cites none of them, the best one is quoted instead; where it doesn't know, the answer is
    the refusal.

    Args:
        query: The question.
        retrieved_chunks: ``{"text": str, "metadata": ChunkMetadata, "score": float}`` each, best first.
        complete: Given prompt and system prompt, the model's words; None for :func:`get_completion`.
        budget: How many characters of passages may be sent.

    Raises:
        SettingsError: (a RuntimeError) No provider is set, or its key or model is missing.
        ProviderError: The provider did not give a usable answer.
    """

    def words(prompt: str, system: str) -> Iterator[TextDelta | Finished]:
        ask = complete or get_completion
        yield TextDelta(ask(prompt, system))
        yield Finished("end")

    hits = [_as_hit(number, chunk) for number, chunk in enumerate(retrieved_chunks)]
    answer = _grounded(query, hits, words, None, budget)
    if answer.unknown:
        return handle_below_threshold(query, -1.0, 0.0) or ""
    if answer.uncited and hits:
        return compose([_whole(hits[0])])[0]
    return answer.text


def _whole(hit: Hit) -> Passage:
    metadata = hit.chunk.metadata
    return Passage(hit.chunk.text, hit.chunk, metadata.line_start, metadata.line_end, hit.score)


def _as_hit(number: int, chunk: Mapping[str, Any]) -> Hit:
    metadata: ChunkMetadata = chunk["metadata"]
    text: str = chunk["text"]
    score = float(chunk.get("score", 0.0))
    first, last = metadata.line_start, metadata.line_end
    lines = tuple(min(first + line, last) for line in range(text.count("\n") + 1))
    stored = StoredChunk(number, 0, DEFAULT_NAMESPACE, "", text, 0, len(text), lines, (), "", metadata)
    return Hit(stored, score, score, 0.0)


def format_citations(chunks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns ``doc_title > section_heading`` of each chunk, each once, in order."""
    labels = (f"{chunk['metadata'].doc_title} > {chunk['metadata'].section_heading}" for chunk in chunks)
    return list(dict.fromkeys(labels))

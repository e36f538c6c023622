"""Answers that rest on passages: what is sent, what comes back, and which sources it really names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from copilotd.errors import Cancelled, ProviderError
from copilotd.llm.completion import DEFAULT_MAX_TOKENS, close_stream, get_completion, never_cancelled
from copilotd.query.citation import citation_of
from copilotd.query.citation_stream import CitationStream, render_label
from copilotd.query.evidence import INCOMPLETE, UNVERIFIED, Links
from copilotd.query.extract import Passage, compose
from copilotd.query.gate import handle_below_threshold
from copilotd.query.pack import (
    Packed,
    Siblings,
    fit_history,
    history_tokens,
    key_of,
    pack,
    passage_budget,
    shorten_question,
)
from copilotd.query.prompt import SYSTEM_PROMPT, render_prompt
from copilotd.query.sentences import Sentences
from copilotd.query.support import SupportChecker, heading_of
from copilotd.types import (
    DEFAULT_NAMESPACE,
    ChunkMetadata,
    Citation,
    CitationCheck,
    CompletionRequest,
    Finished,
    Grounding,
    Hit,
    Message,
    Provider,
    StoredChunk,
    Support,
    TextDelta,
)

__all__ = [
    "CitationStream",
    "GroundedAnswer",
    "answer_from_passages",
    "build_answer_with_citations",
    "format_citations",
    "make_citations",
    "render_label",
]


_UNKNOWN = re.compile(r"^\W*I (?:don['’]t|do not) know\b", re.IGNORECASE)

# A source of the model's words: given the user's turn and the system prompt, the pieces and the end.
Words = Callable[[Message, str], Iterator[TextDelta | Finished]]
_AS_SET = Grounding()


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
        unsupported: It cites passages, but they bear out none of its sentences; withheld likewise.
        support: What the check of each sentence found.
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
    unsupported: bool = False
    support: tuple[Support, ...] = ()


def make_citations(hits: Sequence[Hit]) -> dict[str, Citation]:
    """Returns what the keys ``A``, ``B``… (then ``AA``…) of ``hits``, in their order, stand for."""
    return {key_of(n): citation_of(key_of(n), hit.chunk, hit.score) for n, hit in enumerate(hits)}


def _sent_citations(packed: Packed) -> dict[str, Citation]:
    """Returns the citations of what was sent: a shortened passage stands only for the lines of it that were."""
    citations = {}
    for passage in packed.passages:
        chunk = passage.hit.chunk
        lines = chunk.line_numbers
        shown = None
        if not passage.complete and lines:
            shown = lines[0], lines[min(passage.text.count("\n"), len(lines) - 1)]
        citations[passage.key] = citation_of(passage.key, chunk, passage.hit.score, lines=shown)
    return citations


def answer_from_passages(
    query: str,
    hits: Sequence[Hit],
    provider: Provider,
    on_delta: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    grounding: Grounding = _AS_SET,
    siblings: Siblings | None = None,
) -> GroundedAnswer:
    """Asks ``provider`` to answer from ``hits`` and checks every mark and sentence of what it says.

    Args:
        query: The question.
        hits: The passages, most relevant first.
        provider: The LLM.
        on_delta: Sees the checked words as they come.
        cancelled: Asked many times a second; true closes the connection.
        max_tokens: Limit of the answer.
        grounding: The model's window, and how the answer is checked.
        siblings: The chunks of each hit's section; see :func:`copilotd.query.pack.pack`.

    Raises:
        ProviderError: Nothing was answered. Where cited words had come before the failure they are returned
            as an incomplete answer with the failure among its notices.
        Cancelled: ``cancelled()`` turned true.
    """

    def words(turn: Message, system: str) -> Iterator[TextDelta | Finished]:
        if not grounding.follow_ups:
            turn = replace(turn, reused=0)
        request = CompletionRequest(system, (*history, turn), max_tokens)
        return provider.stream(request, cancelled or never_cancelled)

    asked = shorten_question(query, grounding.context_tokens)
    budget = passage_budget(grounding.context_tokens, max_tokens, SYSTEM_PROMPT, asked)
    history = fit_history(grounding.history, budget)
    packed = pack(hits, budget - history_tokens(history), siblings)
    answer = _grounded(asked, packed, words, on_delta, grounding)
    notices = []
    if asked != query:
        notices.append("The question was shortened to fit the model's context.")
    if forgotten := len(grounding.history) - len(history):
        notices.append(
            f"To fit the model's context, {forgotten} earlier messages of the conversation were left out."
        )
    return replace(answer, notices=(*notices, *answer.notices))


def _grounded(
    query: str,
    packed: Packed,
    words: Words,
    on_delta: Callable[[str], None] | None,
    grounding: Grounding,
) -> GroundedAnswer:
    checked = _Checked(packed, on_delta, grounding)
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
        if not checked.holds:
            raise
        notices.append(f"The answer is incomplete. {error.message}")
    else:
        checked.close()
    finally:
        close_stream(events)
    incomplete = finished is None or finished.reason != "end"
    if incomplete:
        checked.mark_incomplete()
    unknown = not checked.cited and bool(_UNKNOWN.match(checked.withheld))
    notices += _notices(finished, checked, unknown)
    return GroundedAnswer(
        checked.text,
        _shown_citations(checked),
        checked.marks.dropped,
        finished,
        tuple(notices),
        unknown,
        incomplete,
        not checked.cited and not unknown,
        checked.cited and not checked.holds,
        tuple(checked.sentences.supports),
    )


def _shown_citations(checked: _Checked) -> tuple[Citation, ...]:
    """Returns the citations that are in the text: a removed sentence takes its own with it."""
    text = checked.text
    return tuple(citation for citation in checked.marks.used if render_label(citation) in text)


class _Checked:
    """A model's words on their way to the reader; nothing passes before the first sentence that holds.

    Attributes:
        marks: Which passages they cite.
        sentences: What became of each sentence.
    """

    def __init__(self, packed: Packed, on_delta: Callable[[str], None] | None, grounding: Grounding) -> None:
        citations = _sent_citations(packed)
        sources = [text for passage in packed.passages for text in (passage.hit.chunk.context, passage.text)]
        labels = [render_label(citation) for citation in citations.values()]
        self.marks = CitationStream(citations, sources, signals=True)
        texts = {
            passage.key: (heading_of(passage.hit), f"{passage.hit.chunk.context}\n{passage.text}")
            for passage in packed.passages
        }
        self._check = check = grounding.check
        checker = SupportChecker(texts, grounding.encoder, overlap=check is not CitationCheck.OFF)
        self.sentences = Sentences(tuple(texts), checker.check, strict=check is CitationCheck.STRICT)
        self._links = Links([*sources, *labels])
        self._on_delta = on_delta
        self._shown: list[str] = []
        self._held: list[str] = []

    @property
    def cited(self) -> bool:
        return bool(self.marks.used)

    @property
    def holds(self) -> bool:
        """Whether there is a sentence that its citation bears out; with the check off, a citation."""
        return self.cited if self._check is CitationCheck.OFF else self.sentences.grounded

    @property
    def text(self) -> str:
        """What may be shown; empty where nothing holds."""
        return "".join(self._shown).strip()

    @property
    def withheld(self) -> str:
        return "".join(self._held).strip()

    def feed(self, text: str) -> None:
        self._pass(self.sentences.feed(self._links.feed(self.marks.feed(text))))

    def close(self) -> None:
        rest = self._links.feed(self.marks.close()) + self._links.close()
        self._pass(self.sentences.feed(rest) + self.sentences.close())

    def mark_incomplete(self) -> None:
        """Says behind what is shown that more was to come, outside of a fence that was left open."""
        if not self.holds:
            return
        shown, fence = "".join(self._shown), self.marks.open_fence
        lines = ["", fence] if fence else [""] if shown.rstrip().endswith(("```", "~~~")) else []
        before = "\n".join([*lines, ""]) if lines else " "
        self._pass((before.lstrip() if shown.endswith("\n") else before) + INCOMPLETE)

    def _pass(self, text: str) -> None:
        self._held.append(text)
        if self.holds and (ready := "".join(self._held)):
            self._held.clear()
            self._shown.append(ready)
            if self._on_delta is not None:
                self._on_delta(ready)


def _notices(finished: Finished | None, checked: _Checked, unknown: bool) -> Iterator[str]:
    if finished is not None and finished.reason == "length":
        yield "The answer was cut at the output limit; MAX_ANSWER_TOKENS raises it."
    if finished is not None and finished.reason == "refusal" and checked.holds:
        yield "The model refused to answer further."
    if dropped := checked.marks.dropped:
        some = f"{dropped} citations name" if dropped > 1 else "1 citation names"
        yield f"{some} nothing that was sent to the model; removed."
    if not checked.holds:
        return
    yield from _check_notices(checked.sentences)
    # The sentence at which an answer was cut off had no time to name its source.
    cut = finished is None or finished.reason != "end"
    if (last := checked.sentences.trailing - cut) > 0:
        yield (
            f"The last {last} sentences carry no citation."
            if last > 1
            else "The last sentence carries no citation."
        )


def _check_notices(sentences: Sentences) -> Iterator[str]:
    failed = [support for support in sentences.supports if not support.supported]
    if removed := sentences.removed:
        some = f"{removed} sentences were" if removed > 1 else "1 sentence was"
        yield f"{some} removed that the passages do not bear out."
    elif failed:
        some = f"{len(failed)} sentences" if len(failed) > 1 else "1 sentence"
        colon = (
            "; what it names stands in none of them, or in another place"
            if any(support.missing for support in failed)
            else ""
        )
        yield f"{UNVERIFIED} marks {some} that the cited passages do not bear out{colon}."
    foreign = sum(support.reason.startswith("in another language") for support in sentences.supports)
    if foreign:
        some = f"{foreign} sentences are" if foreign > 1 else "1 sentence is"
        yield f"{some} in another language than the passages: only numbers and names were checked."


def build_answer_with_citations(
    query: str,
    retrieved_chunks: Sequence[Mapping[str, Any]],
    *,
    complete: Callable[[str, str], str] | None = None,
    grounding: Grounding = _AS_SET,
) -> str:
    """Returns the answer to ``query`` from ``retrieved_chunks``, its marks checked and rendered.

    Where the model cites none of them, the best one is quoted instead; where it doesn't know, or they bear out
    nothing of what it says, the answer is the refusal.

    Args:
        query: The question.
        retrieved_chunks: ``{"text": str, "metadata": ChunkMetadata, "score": float}`` each, best first.
        complete: Given prompt and system prompt, the model's words; None for :func:`get_completion`.
        grounding: The model's window, and how the answer is checked.

    Raises:
        SettingsError: (a RuntimeError) No provider is set, or its key or model is missing.
        ProviderError: The provider did not give a usable answer.
    """

    def words(turn: Message, system: str) -> Iterator[TextDelta | Finished]:
        ask = complete or get_completion
        yield TextDelta(ask(turn.content, system))
        yield Finished("end")

    hits = [_as_hit(number, chunk) for number, chunk in enumerate(retrieved_chunks)]
    budget = passage_budget(grounding.context_tokens, DEFAULT_MAX_TOKENS, SYSTEM_PROMPT, query)
    answer = _grounded(query, pack(hits, budget), words, None, grounding)
    if answer.unknown or answer.unsupported:
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

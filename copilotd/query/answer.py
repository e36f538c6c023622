"""From a verdict to an answer: refuse, quote, or let the LLM speak, with every claim cited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from copilotd.query.cite import answer_from_passages, make_citations, render_label
from copilotd.query.extract import Passage, compose, extract
from copilotd.query.gate import handle_below_threshold
from copilotd.query.pack import Siblings
from copilotd.types import (
    Answer,
    Citation,
    ConfidenceLevel,
    Finished,
    Freshness,
    Grounding,
    Prices,
    Provider,
    Retrieval,
    Usage,
    Verdict,
)

MakeProvider = Callable[[], Provider | None]
Quote = Callable[[Retrieval], Sequence[Passage]]

# Sections named beside a refusal as the nearest ones.
_CLOSEST = 3
_MAX_PASSAGES = 3
_MAX_LONG_PASSAGES = 5
_AS_SET = Grounding()


def best_passages(retrieval: Retrieval) -> Sequence[Passage]:
    """Returns what a plain answer quotes."""
    return extract(retrieval, max_passages=_MAX_PASSAGES)


def whole_passages(retrieval: Retrieval) -> Sequence[Passage]:
    """Returns what a long answer quotes: more passages, and all of each."""
    return extract(retrieval, max_passages=_MAX_LONG_PASSAGES, whole=True)


def answer_question(
    retrieval: Retrieval,
    verdict: Verdict,
    *,
    make_provider: MakeProvider,
    max_tokens: int,
    on_delta: Callable[[str], None] | None,
    cancelled: Callable[[], bool],
    quote: Quote = best_passages,
    grounding: Grounding = _AS_SET,
    siblings: Siblings | None = None,
) -> Answer:
    """Composes the answer to a question from what was retrieved for it.

    Args:
        retrieval: Hits and evidence.
        verdict: The gate's word on them; a refusal costs no LLM call.
        make_provider: Gives the LLM, or None for an extractive answer; called only when it is needed.
        max_tokens: Limit of the LLM's answer.
        on_delta: Sees the answer as it comes.
        cancelled: Whether the client is gone.
        quote: Chooses what is quoted where no model answers.
        grounding: The model's window, and how its answer is checked.
        siblings: The chunks of each hit's section, which a model reads whole where they fit.

    Raises:
        SettingsError: The provider's key or model is missing.
        ProviderError: The provider did not answer.
    """
    refusal = handle_below_threshold(retrieval.query, verdict.confidence if verdict.known else -1.0, 0.0)
    if refusal is not None:
        return _answer(retrieval, verdict, refusal, (), closest=_closest(retrieval))
    provider = make_provider()
    if provider is None:
        return _quote(retrieval, verdict, on_delta, quote)
    grounded = answer_from_passages(
        retrieval.query,
        retrieval.hits,
        provider,
        on_delta,
        cancelled,
        max_tokens=max_tokens,
        grounding=grounding,
        siblings=siblings,
    )
    usage = usage_of(grounded.finished, grounding.prices)
    if grounded.uncited:
        # The law that every claim carries a citation holds for the model's words, too.
        withheld = f"The answer of {provider.name} ({provider.model}) cited nothing and was withheld"
        if grounded.finished is not None and grounded.finished.reason == "refusal":
            withheld = f"{provider.model} ({provider.name}) refused to answer"
        quoted = _quote(retrieval, verdict, on_delta, quote)
        instead = "; the documents are quoted instead." if quoted.citations else "."
        return replace(
            quoted,
            dropped_marks=grounded.dropped,
            usage=usage,
            notices=(*grounded.notices, f"{withheld}{instead}"),
        )
    notices = grounded.notices
    if grounded.unsupported:
        notices = (
            *notices,
            f"The answer of {provider.name} ({provider.model}) was withheld: the passages it cites bear out none of"
            " it. With --extractive the documents are quoted instead.",
        )
    if grounded.unknown:
        notices = (
            *notices,
            f"{provider.model} ({provider.name}) found no answer in the passages it was sent. With --extractive the"
            " documents are quoted instead.",
        )
    if grounded.unknown or grounded.unsupported:
        # The sentence is ours: the model's own could claim anything behind "I don't know".
        reason = (
            "the model found no answer" if grounded.unknown else "the passages bear out nothing of the answer"
        )
        verdict = replace(verdict, known=False, level=ConfidenceLevel.INSUFFICIENT, reason=reason)
        refusal = handle_below_threshold(retrieval.query, -1.0, 0.0) or ""
        answer = _answer(retrieval, verdict, refusal, (), closest=_closest(retrieval))
    else:
        answer = _answer(retrieval, verdict, grounded.text, grounded.citations)
    return replace(
        answer,
        provider=provider.name,
        model=provider.model,
        needs_more=verdict.level is not ConfidenceLevel.HIGH or grounded.incomplete,
        dropped_marks=grounded.dropped,
        notices=notices,
        support=grounded.support,
        usage=usage,
    )


def usage_of(finished: Finished | None, prices: Prices) -> Usage:
    """Returns what an answer cost; no cost where a price or a count it needs is missing."""
    if finished is None:
        return Usage()
    sent, written, cached = finished.input_tokens, finished.output_tokens, finished.cached_tokens
    cost = None
    if (prices.input or prices.output) and sent is not None and written is not None:
        again = cached or 0
        cost = (
            (sent - again) * prices.input + again * (prices.cached or prices.input) + written * prices.output
        ) / 1_000_000
    return Usage(sent, written, cached, cost)


def metric_line(answer: Answer) -> str:
    """Returns the seed's line about an answer, for the log and ``--stats``."""
    labels = ", ".join(dict.fromkeys(render_label(citation) for citation in answer.citations))
    return (
        f"Answer generated | top_score={answer.top_score:.2f} | citations={len(answer.citations)}"
        f" | sources: {labels}"
    )


def _quote(
    retrieval: Retrieval, verdict: Verdict, on_delta: Callable[[str], None] | None, quote: Quote
) -> Answer:
    passages = quote(retrieval)
    if not passages:
        reason = f"no passage can be quoted; {verdict.reason}"
        verdict = replace(verdict, known=False, level=ConfidenceLevel.INSUFFICIENT, reason=reason)
        refusal = handle_below_threshold(retrieval.query, -1.0, 0.0) or ""
        return _answer(retrieval, verdict, refusal, (), closest=_closest(retrieval))
    text, citations = compose(passages)
    if on_delta is not None:
        on_delta(text)
    return _answer(retrieval, verdict, text, citations)


def _answer(
    retrieval: Retrieval,
    verdict: Verdict,
    text: str,
    citations: Sequence[Citation],
    *,
    closest: Sequence[Citation] = (),
) -> Answer:
    return Answer(
        query=retrieval.query,
        text=text,
        citations=tuple(citations),
        verdict=verdict,
        top_score=retrieval.top_score,
        needs_more=verdict.level is not ConfidenceLevel.HIGH,
        missing_topics=(),
        provider="extractive",
        model="",
        freshness=Freshness(0),
        timings_ms={},
        closest=tuple(closest),
    )


def _closest(retrieval: Retrieval) -> tuple[Citation, ...]:
    found: dict[str, Citation] = {}
    for citation in make_citations(retrieval.hits).values():
        found.setdefault(f"{citation.source_file}\0{citation.section_heading}", citation)
    return tuple(found.values())[:_CLOSEST]

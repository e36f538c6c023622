"""An answer that says how complete it is: seed 002's self-aware synthesis.

The model is asked for a :class:`DocAnswer` by the provider's own mechanism for structured output. Its text
goes the way of every model's words: :class:`Drafting` is a provider to :mod:`copilotd.query.answer`, so
each mark and sentence is checked by the same code as in a plain answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, Field

from copilotd.errors import ProviderBadReply
from copilotd.llm.completion import close_stream
from copilotd.llm.structured import complete_structured
from copilotd.text import one_line
from copilotd.types import CompletionRequest, ConfidenceLevel, Finished, Provider, TextDelta

_MOST_TOPICS = 5
_LONGEST_TOPIC = 120
# What the fields beside the answer take.
_FIELD_TOKENS = 256
DRAFT_TOKENS = 800
"""What a draft takes of a model's window beside what a plain answer takes: its rules, its schema, its fields."""

ASSESS = """
You also judge your own answer. confidence is "high" where the passages answer the whole question, "partial" \
where they answer a part of it, "insufficient" where they don't answer it. Set needs_more where looking \
further in the documentation could complete the answer, and name in missing_topics, in a few words each, \
what to look for. A complete answer has needs_more false and no missing_topics.
"""


class DocAnswer(BaseModel):
    """An answer from the passages, with a citation after each statement, and how complete it is."""

    answer: str = Field(description="The answer in Markdown, with [A]-style keys after each statement.")
    citations: list[str] = Field(default_factory=list, description="The keys the answer uses.")
    confidence: ConfidenceLevel = Field(description="high, partial or insufficient.")
    needs_more: bool = Field(description="Whether looking further could complete the answer.")
    missing_topics: list[str] = Field(default_factory=list, description="What to look for.")

    @property
    def topics(self) -> tuple[str, ...]:
        """The missing topics, a few short lines, each once."""
        lines = (one_line(topic, _LONGEST_TOPIC) for topic in self.missing_topics)
        return tuple(dict.fromkeys(line for line in lines if line))[:_MOST_TOPICS]


class NeedsMore(Exception):
    """A draft that its own author calls incomplete, before any of it was shown.

    Attributes:
        draft: The draft.
    """

    def __init__(self, draft: DocAnswer) -> None:
        super().__init__("the draft is incomplete")
        self.draft = draft


def synthesize_answer(
    provider: Provider,
    request: CompletionRequest,
    cancelled: Callable[[], bool],
    on_finished: Callable[[Finished], None] | None = None,
) -> DocAnswer:
    """Returns a model's answer to ``request``, whose passages and rules are a plain answer's, with its own judgement.

    Raises:
        ProviderBadReply: It gave another shape, twice.
        ProviderError: It did not answer.
        Cancelled: ``cancelled()`` turned true.
    """
    *history, question = request.messages
    return complete_structured(
        provider,
        question.content,
        request.system + ASSESS,
        DocAnswer,
        history=history,
        max_tokens=request.max_tokens + _FIELD_TOKENS,
        reused=question.reused,
        cancelled=cancelled,
        on_finished=on_finished,
    )


@dataclass(slots=True)
class Spending:
    """Adds up what the requests of one answer cost.

    Attributes:
        total: Tokens so far; ``reason`` is that of the last request.
    """

    total: Finished = field(default_factory=lambda: Finished("end"))

    def add(self, finished: Finished) -> None:
        """Counts one request."""
        self.total = Finished(
            finished.reason,
            _sum(self.total.input_tokens, finished.input_tokens),
            _sum(self.total.output_tokens, finished.output_tokens),
            _sum(self.total.cached_tokens, finished.cached_tokens),
        )


class Drafting:
    """A provider that answers with a draft which judges itself.

    Attributes:
        draft: What the model gave; None before that, and where it could not.
        problem: Why there is no draft, a sentence.
    """

    def __init__(self, provider: Provider, spending: Spending, *, may_refine: bool) -> None:
        self.name = provider.name
        self.model = provider.model
        self.draft: DocAnswer | None = None
        self.problem = ""
        self._provider = provider
        self._spending = spending
        self._may_refine = may_refine

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        """Yields the draft's answer.

        Raises:
            NeedsMore: The draft is incomplete and may be refined.
            ProviderError: The model did not answer.
        """
        try:
            self.draft = synthesize_answer(self._provider, request, cancelled, self._spending.add)
        except ProviderBadReply as error:
            # A model without structured output still writes good prose.
            self.problem = error.message
            yield from Counted(self._provider, self._spending).stream(request, cancelled)
            return
        if self._may_refine and self.draft.needs_more and self.draft.topics:
            raise NeedsMore(self.draft)
        yield from Spoken(self.draft, self, self._spending).stream(request, cancelled)


class Spoken:
    """A provider whose words are there already: a draft that could not be made more complete."""

    def __init__(self, draft: DocAnswer, provider: Provider, spending: Spending) -> None:
        self.name = provider.name
        self.model = provider.model
        self._draft = draft
        self._spending = spending

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        """Yields the draft's answer."""
        yield TextDelta(self._draft.answer)
        yield self._spending.total


class Counted:
    """A provider whose last word names the tokens of all requests so far."""

    def __init__(self, provider: Provider, spending: Spending) -> None:
        self.name = provider.name
        self.model = provider.model
        self._provider = provider
        self._spending = spending

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        """Yields the provider's words as they come."""
        events = self._provider.stream(request, cancelled)
        try:
            for event in events:
                if isinstance(event, Finished):
                    self._spending.add(event)
                    event = replace(self._spending.total, reason=event.reason)
                yield event
        finally:
            close_stream(events)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other

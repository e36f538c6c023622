"""Answers in a given shape: asked for by each SDK's own mechanism, checked by pydantic, repaired once.

No mechanism is trusted: servers that speak a service's format ignore what they don't know, a schema's
numbers and lengths are mostly not enforced, and an answer can be cut off in the middle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from copilotd.errors import ProviderBadReply
from copilotd.llm.completion import DEFAULT_MAX_TOKENS, complete
from copilotd.text import one_line, printable
from copilotd.types import CompletionRequest, Finished, Message, OutputSchema, Provider

Shape = TypeVar("Shape", bound=BaseModel)

_INSTEAD = "try again, or ask with --extractive, which needs no provider"
_PROBLEMS = 10
_LONGEST_PROBLEM = 200


def complete_structured(
    provider: Provider,
    prompt: str,
    system: str,
    schema: type[Shape],
    *,
    history: Sequence[Message] = (),
    max_tokens: int = DEFAULT_MAX_TOKENS,
    reused: int = 0,
    cancelled: Callable[[], bool] | None = None,
    on_finished: Callable[[Finished], None] | None = None,
) -> Shape:
    """Returns the model's answer to ``prompt`` as a ``schema``.

    Its strings are free of control sequences; they are still a model's words, to be checked like others.

    Args:
        provider: Who answers.
        prompt: The user's turn.
        system: The system prompt.
        schema: The shape; its docstring tells the model what it is for, field descriptions what they hold.
        history: Turns before this one.
        max_tokens: Limit of the answer.
        reused: See :class:`~copilotd.types.Message`.
        cancelled: Asked many times a second; true closes the connection.
        on_finished: Told the end of each request, for its token counts; twice where a repair was needed.

    Raises:
        ProviderBadReply: It refused, was cut at the output limit, or gave another shape twice.
        ProviderError: The provider did not give a usable answer.
        Cancelled: ``cancelled()`` turned true.
    """
    output = OutputSchema(
        schema.__name__, one_line(schema.__doc__ or schema.__name__, 500), schema.model_json_schema()
    )
    messages = (*history, Message("user", prompt, reused))
    problem = ""
    for _ in range(2):
        completion = complete(
            provider, CompletionRequest(system, messages, max_tokens, output), cancelled=cancelled
        )
        if on_finished is not None:
            on_finished(completion.finished)
        if completion.finished.reason == "refusal":
            raise ProviderBadReply(f"{provider.model} ({provider.name}) refused to answer.", _INSTEAD)
        try:
            return _validated(completion.text, schema)
        except ValueError as error:
            if completion.finished.reason == "length":
                raise ProviderBadReply(
                    f"{provider.model} ({provider.name}) reached the output limit before its answer was whole.",
                    f"raise MAX_ANSWER_TOKENS, {_INSTEAD}",
                ) from None
            problem = str(error)
        again = (
            f"That is not what was asked for: {problem}\nAnswer again, with the corrected JSON object alone."
        )
        messages = (*messages, Message("assistant", completion.text), Message("user", again))
    raise ProviderBadReply(
        f"{provider.model} ({provider.name}) did not answer in the shape that was asked for, twice:"
        f" {one_line(problem, _LONGEST_PROBLEM)}",
        f"choose a model that can, {_INSTEAD}",
    )


def _validated(text: str, schema: type[Shape]) -> Shape:
    """Reads the one JSON object in ``text``, which small models wrap in fences and words.

    Raises:
        ValueError: There is none, or it has another shape; the message tells what to correct.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise ValueError("there is no JSON object.")
    try:
        found = json.loads(text[start : end + 1])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {one_line(str(error), _LONGEST_PROBLEM)}.") from None
    try:
        return schema.model_validate(_cleaned(found))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)[:_PROBLEMS]
        raise ValueError(
            "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
        ) from None


def _cleaned(value: Any) -> Any:
    """Removes what JSON's escapes can smuggle past the filters of the stream."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {printable(name): _cleaned(item) for name, item in value.items()}
    return value

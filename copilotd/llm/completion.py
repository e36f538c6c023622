"""One whole answer from a provider: the seed's ``get_completion`` and what stands below it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from copilotd.errors import ProviderBadReply, SettingsError
from copilotd.llm.factory import make_provider
from copilotd.types import CompletionRequest, Finished, Message, Provider, TextDelta

DEFAULT_MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer.

    Attributes:
        text: Its words.
        finished: How it ended.
    """

    text: str
    finished: Finished


def never_cancelled() -> bool:
    """Returns False: for callers whose request nobody can cancel."""
    return False


def complete(
    provider: Provider,
    request: CompletionRequest,
    on_text: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Completion:
    """Joins the provider's stream; ``on_text`` sees each piece as it comes.

    Raises:
        ProviderError: One of its subclasses; pieces may have been given to ``on_text`` before.
        Cancelled: ``cancelled()`` turned true.
    """
    pieces: list[str] = []
    stream = provider.stream(request, cancelled or never_cancelled)
    try:
        for event in stream:
            if isinstance(event, TextDelta):
                pieces.append(event.text)
                if on_text is not None:
                    on_text(event.text)
            else:
                return Completion("".join(pieces), event)
    finally:
        close_stream(stream)
    raise ProviderBadReply(f"The answer of {provider.model} ({provider.name}) broke off.")


def close_stream(stream: Iterator[TextDelta | Finished]) -> None:
    """Closes a provider's stream, and with it its connection; nothing where it is at its end."""
    if isinstance(stream, Generator):
        stream.close()


def get_completion(
    prompt: str,
    system: str = "",
    *,
    provider: Provider | None = None,
    on_text: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    max_tokens: int | None = None,
) -> str:
    """Returns the LLM's answer to ``prompt``.

    Args:
        prompt: The user's turn.
        system: The system prompt.
        provider: Who answers; None for the one the settings of the environment name.
        on_text: Sees each piece as it comes.
        cancelled: Asked many times a second; true closes the connection.
        max_tokens: Limit of the answer; None for the setting, or the default where a provider is given.

    Raises:
        SettingsError: (a RuntimeError) No provider is set, or its key or model is missing.
        ProviderError: The provider did not give a usable answer.
    """
    if provider is None:
        provider, limit = _from_environment()
        max_tokens = max_tokens or limit
    request = CompletionRequest(system, (Message("user", prompt),), max_tokens or DEFAULT_MAX_TOKENS)
    return complete(provider, request, on_text, cancelled).text


def _from_environment() -> tuple[Provider, int]:
    # Only callers without a provider need the settings and what they import.
    from copilotd.settings import load_settings, provider_arguments

    settings = load_settings()
    provider = make_provider(**provider_arguments(settings))
    if provider is None:
        raise SettingsError(
            f"no LLM provider: set LLM_PROVIDER to anthropic, openai or ollama in {settings.copilot_env_file}"
        )
    return provider, settings.max_answer_tokens

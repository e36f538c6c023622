"""A whole answer: the seed's function, from the environment's settings and with a provider given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.llm_servers import OpenAIDialect, serving

from copilotd.errors import ProviderBadReply, SettingsError
from copilotd.llm import Completion, complete, get_completion
from copilotd.types import CompletionRequest, Finished, Message, TextDelta

REQUEST = CompletionRequest("", (Message("user", "?"),))


class Scripted:
    name = "scripted"
    model = "scripted-1"

    def __init__(self, *events: TextDelta | Finished) -> None:
        self.closed = False
        self.requests: list[CompletionRequest] = []
        self._events = events

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        self.requests.append(request)
        try:
            yield from self._events
        finally:
            self.closed = True


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for variable in ("LLM_PROVIDER", "LLM_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    settings_file = tmp_path / "settings.env"
    settings_file.touch(mode=0o600)
    monkeypatch.setenv("COPILOT_ENV_FILE", str(settings_file))
    monkeypatch.setenv("INDEX_DIR", str(tmp_path / "index"))
    return monkeypatch


def test_pieces_are_joined_and_the_end_is_kept() -> None:
    pieces: list[str] = []
    provider = Scripted(TextDelta("one "), TextDelta("two"), Finished("length", 3, 4))
    assert complete(provider, REQUEST, pieces.append) == Completion("one two", Finished("length", 3, 4))
    assert pieces == ["one ", "two"]
    assert provider.closed


def test_a_stream_without_an_end_is_broken_off() -> None:
    with pytest.raises(ProviderBadReply, match="broke off"):
        complete(Scripted(TextDelta("one")), REQUEST)


def test_a_reader_that_fails_closes_the_stream() -> None:
    provider = Scripted(TextDelta("one"), Finished("end"))

    def fail(text: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        complete(provider, REQUEST, fail)
    assert provider.closed


def test_a_given_provider_is_asked_with_prompt_and_system() -> None:
    provider = Scripted(TextDelta("yes"), Finished("end"))
    assert get_completion("why?", "be brief", provider=provider) == "yes"
    assert provider.requests == [CompletionRequest("be brief", (Message("user", "why?"),), 1024)]


def test_without_a_provider_the_environment_decides(environment: pytest.MonkeyPatch) -> None:
    with serving(OpenAIDialect().answer("from the server")) as server:
        environment.setenv("LLM_PROVIDER", "openai")
        environment.setenv("LLM_MODEL", "gpt-test")
        environment.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        environment.setenv("MAX_ANSWER_TOKENS", "99")
        assert get_completion("why?", "be brief") == "from the server"
    assert server.requests[0].body["max_tokens"] == 99


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "LLM_PROVIDER"),
        ({"LLM_PROVIDER": "anthropic", "ANTHROPIC_API_KEY": "sk-test"}, "LLM_MODEL"),
        ({"LLM_PROVIDER": "anthropic", "LLM_MODEL": "m"}, "ANTHROPIC_API_KEY"),
        ({"LLM_PROVIDER": "openai", "LLM_MODEL": "m"}, "OPENAI_API_KEY"),
    ],
)
def test_what_is_missing_is_named_with_its_file(
    environment: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], expected: str
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    with pytest.raises(RuntimeError, match=expected) as caught:
        get_completion("why?")
    assert isinstance(caught.value, SettingsError)
    assert str(tmp_path / "settings.env") in str(caught.value)

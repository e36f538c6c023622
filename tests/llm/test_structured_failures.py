"""Every way a provider fails while it is asked for a shape, through each real SDK against a local server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import BaseModel
from support.llm_servers import DIALECTS, Dialect, LLMServer, OpenAIDialect, Reply, serving

from copilotd.errors import (
    ProviderAuth,
    ProviderBadReply,
    ProviderContextTooLong,
    ProviderError,
    ProviderModelMissing,
    ProviderOverloaded,
    ProviderUnreachable,
)
from copilotd.llm import make_provider
from copilotd.llm.structured import complete_structured

KEY = "sk-test-do-not-show-4711"
GOOD = ('{"queries": ', '["a", "b"]}')


class Shape(BaseModel):
    """What was understood."""

    queries: list[str]


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    chosen: Dialect = request.param
    return chosen


@pytest.fixture(scope="session", autouse=True)
def _sdks_imported() -> None:
    # Up to seconds each on a busy machine; they must not count against the short time limits below.
    import anthropic  # noqa: F401
    import ollama  # noqa: F401
    import openai  # noqa: F401


def ask(server: LLMServer, dialect: Dialect, timeout_s: float = 10.0) -> Shape:
    provider = make_provider(
        dialect.name,
        model="test-model",
        anthropic_api_key=KEY,
        openai_api_key=KEY,
        openai_base_url=f"{server.url}/v1",
        ollama_base_url=server.url,
        timeout_s=timeout_s,
        anthropic_base_url=server.url,
    )
    assert provider is not None
    return complete_structured(provider, "Plan.", "Be brief.", Shape)


def failure(server: LLMServer, dialect: Dialect, timeout_s: float = 10.0) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(server, dialect, timeout_s)
    shown = f"{caught.value.message} {caught.value.hint}"
    assert KEY not in shown
    assert "\n" not in shown
    return caught.value


def half(dialect: Dialect, ending: str = "close", *further: bytes) -> Reply:
    """A shape of which the first half comes, then ``further`` and the ``ending``."""
    whole = dialect.structured(*GOOD)
    return replace(whole, pieces=(*whole.pieces[:-2], *further), ending=ending)


@pytest.mark.parametrize(
    ("status", "kind", "tries"),
    [
        (401, ProviderAuth, 1),
        (403, ProviderAuth, 1),
        (404, ProviderModelMissing, 1),
        (429, ProviderOverloaded, 3),
        (500, ProviderError, 3),
        (529, ProviderOverloaded, 3),
    ],
)
def test_a_status_is_the_error_it_is_without_a_shape(
    dialect: Dialect, status: int, kind: type[ProviderError], tries: int
) -> None:
    with serving(dialect.error(status, headers={"retry-after": "0.01"})) as server:
        error = failure(server, dialect)
    assert type(error) is kind
    assert str(status) in error.message or kind is ProviderModelMissing
    assert len(server.requests) == tries


@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_passing_overload_is_waited_out(dialect: Dialect, status: int) -> None:
    busy = dialect.error(status, headers={"retry-after": "0.05"})
    with serving(busy, dialect.structured(*GOOD)) as server:
        assert ask(server, dialect).queries == ["a", "b"]
    assert len(server.requests) == 2


def test_a_long_retry_after_is_told_and_not_waited_for(dialect: Dialect) -> None:
    with serving(dialect.error(429, headers={"retry-after": "120"})) as server:
        assert "wait 120 s" in failure(server, dialect).hint
    assert len(server.requests) == 1


def test_a_slow_first_byte_within_the_limit(dialect: Dialect) -> None:
    with serving(replace(dialect.structured(*GOOD), delay_s=0.4)) as server:
        assert ask(server, dialect).queries == ["a", "b"]


def test_no_first_byte_is_a_time_out(dialect: Dialect) -> None:
    with serving(replace(dialect.structured(*GOOD), delay_s=30)) as server:
        error = failure(server, dialect, timeout_s=0.5)
        assert server.disconnected.wait(60)
    assert isinstance(error, ProviderUnreachable)
    assert "PROVIDER_TIMEOUT_S" in error.hint


def test_silence_amid_the_json_is_a_time_out(dialect: Dialect) -> None:
    with serving(half(dialect, "hold")) as server:
        error = failure(server, dialect, timeout_s=0.5)
        assert server.disconnected.wait(60)
    assert isinstance(error, ProviderUnreachable)
    assert "nothing more" in error.message


@pytest.mark.parametrize("ending", ["cut", "close"])
def test_json_cut_in_the_middle_is_said_and_not_repaired(dialect: Dialect, ending: str) -> None:
    with serving(half(dialect, ending)) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderBadReply)
    assert "broke off" in error.message
    assert len(server.requests) == 1


def test_an_error_event_amid_the_json_is_said(dialect: Dialect) -> None:
    with serving(half(dialect, "close", dialect.error_in_stream().pieces[-1])) as server:
        error = failure(server, dialect)
    assert "overloaded" in error.message or "busy" in error.message
    assert len(server.requests) == 1


def test_an_error_event_before_the_json_is_retried(dialect: Dialect) -> None:
    with serving(dialect.error_in_stream(), dialect.structured(*GOOD)) as server:
        assert ask(server, dialect).queries == ["a", "b"]


def test_a_malformed_event_is_said(dialect: Dialect) -> None:
    with serving(half(dialect, "close", dialect.malformed().pieces[-1])) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderBadReply)
    assert "cannot be read" in error.message


@pytest.mark.parametrize("pieces", [(), ("",), (" ",)])
def test_an_empty_answer_is_said_to_be_empty(dialect: Dialect, pieces: tuple[str, ...]) -> None:
    with serving(dialect.structured(*pieces)) as server:
        assert "is empty" in failure(server, dialect).message


@pytest.mark.parametrize("refusing", DIALECTS[:2], ids=lambda dialect: dialect.name)
def test_a_refusal_is_said(refusing: Dialect) -> None:
    """Ollama's API has no refusal."""
    with serving(refusing.answer(reason="refusal")) as server:
        error = failure(server, refusing)
    assert "refused" in error.message
    assert len(server.requests) == 1


def test_a_refusal_in_words_of_its_own_is_said() -> None:
    # https://platform.openai.com/docs/guides/structured-outputs: `refusal` instead of `content`.
    dialect = OpenAIDialect()
    said = dialect.answer("I'm sorry, I cannot assist with that request.")
    said = replace(
        said, pieces=tuple(piece.replace(b'"content": "I', b'"refusal": "I') for piece in said.pieces)
    )
    with serving(said) as server:
        error = failure(server, dialect)
    assert "refused" in error.message
    assert len(server.requests) == 1


def test_the_context_limit_is_its_own_error(dialect: Dialect) -> None:
    with serving(dialect.context_limit()) as server:
        assert isinstance(failure(server, dialect), ProviderContextTooLong)


def test_malformed_json_is_repaired_once(dialect: Dialect) -> None:
    with serving(dialect.structured('{"queries": ["a",'), dialect.structured(*GOOD)) as server:
        assert ask(server, dialect).queries == ["a", "b"]
    assert len(server.requests) == 2
    assert "JSON" in server.requests[1].body["messages"][-1]["content"]


def test_a_failure_during_the_repair_is_that_failure(dialect: Dialect) -> None:
    with serving(dialect.structured("[]"), dialect.error(401)) as server:
        assert isinstance(failure(server, dialect), ProviderAuth)
    assert len(server.requests) == 2

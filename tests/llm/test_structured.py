"""Answers in a given shape, through each real SDK's own mechanism."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, Field
from support.llm_servers import DIALECTS, Dialect, OpenAIDialect, Reply, serving

from copilotd.errors import Cancelled, ProviderBadReply, ProviderError
from copilotd.llm import make_provider
from copilotd.llm.structured import complete_structured
from copilotd.types import CompletionRequest, Finished, Message, Provider, TextDelta


class Shape(BaseModel):
    """What was understood."""

    queries: list[str] = Field(min_length=1, max_length=3)
    strategy: str = "broad"


GOOD = '{"queries": ["a", "b"], "strategy": "mixed"}'
BAD = '{"queries": [], "strategy": "mixed"}'


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    chosen: Dialect = request.param
    return chosen


def provider_at(url: str, name: str) -> Provider:
    made = make_provider(
        name,
        model="test-model",
        anthropic_api_key="sk-test-do-not-show-4711",
        openai_api_key="sk-test-do-not-show-4711",
        openai_base_url=f"{url}/v1",
        ollama_base_url=url,
        timeout_s=60.0,
        anthropic_base_url=url,
    )
    assert made is not None
    return made


def ask(url: str, name: str, **options: Any) -> Shape:
    return complete_structured(provider_at(url, name), "Plan.", "Be brief.", Shape, **options)


def test_a_shape_comes_through_the_sdks_own_mechanism(dialect: Dialect) -> None:
    ends: list[Finished] = []
    with serving(dialect.structured(GOOD[:9], GOOD[9:])) as server:
        found = ask(server.url, dialect.name, on_finished=ends.append)
    assert found == Shape(queries=["a", "b"], strategy="mixed")
    body = server.requests[0].body
    if dialect.name == "anthropic":
        assert body["tool_choice"] == {"type": "tool", "name": "Shape"}
        assert body["tools"][0]["input_schema"]["properties"]["queries"]["maxItems"] == 3
        assert body["tools"][0]["description"] == "What was understood."
    elif dialect.name == "openai":
        shape = body["response_format"]["json_schema"]
        assert (shape["name"], shape["strict"]) == ("Shape", True)
        assert shape["schema"]["required"] == ["queries", "strategy"]
        assert shape["schema"]["additionalProperties"] is False
        assert "default" not in json.dumps(shape["schema"])
    else:
        assert body["format"]["properties"]["queries"]["minItems"] == 1
    assert [end.output_tokens for end in ends] == [15]


def test_another_shape_is_repaired_once(dialect: Dialect) -> None:
    with serving(dialect.structured(BAD), dialect.structured(GOOD)) as server:
        assert ask(server.url, dialect.name).queries == ["a", "b"]
    turns = [turn for turn in server.requests[1].body["messages"] if turn["role"] != "system"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"] == BAD
    assert "queries" in turns[2]["content"]


@pytest.mark.parametrize("said", [BAD, "I can't.", '{"queries": ', '{"queries": ["a"]]}', "[" * 5000 + "{}"])
def test_another_shape_twice_is_said(dialect: Dialect, said: str) -> None:
    with serving(dialect.structured(said)) as server, pytest.raises(ProviderBadReply) as caught:
        ask(server.url, dialect.name)
    assert len(server.requests) == 2
    assert "test-model" in caught.value.message
    assert "--extractive" in caught.value.hint


@pytest.mark.parametrize("said", [f"```json\n{GOOD}\n```", f"Here it is: {GOOD} Done."])
def test_what_a_small_model_puts_around_it_is_no_matter(dialect: Dialect, said: str) -> None:
    with serving(dialect.structured(said)) as server:
        assert ask(server.url, dialect.name).strategy == "mixed"


def test_a_shape_cut_at_the_output_limit_is_said(dialect: Dialect) -> None:
    with serving(dialect.structured('{"queries": ["a"', reason="length")) as server:
        if dialect.name == "anthropic":
            end = dialect.structured('{"queries": ["a"').pieces
            cut = tuple(piece.replace(b'"tool_use", "stop_s', b'"max_tokens", "stop_s') for piece in end)
            server._replies = [Reply(headers=dialect.structured("").headers, pieces=cut)]
        with pytest.raises(ProviderBadReply, match="output limit"):
            ask(server.url, dialect.name)
    assert len(server.requests) == 1


def test_a_failure_of_the_provider_stays_one(dialect: Dialect) -> None:
    with serving(dialect.error(401)) as server, pytest.raises(ProviderError, match="401"):
        ask(server.url, dialect.name)


def test_cancelling_reaches_the_provider(dialect: Dialect) -> None:
    with serving(dialect.unfinished("x", ending="hold")) as server:
        with pytest.raises(Cancelled):
            ask(server.url, dialect.name, cancelled=lambda: bool(server.requests))
        assert server.disconnected.wait(60)


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_without_json_schemas_is_asked_for_a_function(status: int) -> None:
    dialect = OpenAIDialect()
    refused = Reply(
        status,
        {"content-type": "application/json"},
        (json.dumps({"detail": [{"loc": ["body", "response_format", "type"], "msg": "no"}]}).encode(),),
    )
    with serving(refused, dialect.function(GOOD[:5], GOOD[5:])) as server:
        assert ask(server.url, "openai").strategy == "mixed"
    function = server.requests[1].body["tool_choice"]["function"]
    assert function == {"name": "Shape"}
    assert "response_format" not in server.requests[1].body


def test_escapes_smuggle_no_control_sequence() -> None:
    said = json.dumps({"queries": ["\x1b[31mred\u202e"], "strategy": "\ue000x"})
    found = complete_structured(Scripted(said), "Plan.", "", Shape)
    assert found.queries == ["[31mred"]
    assert "\ue000" not in found.strategy


class Scripted:
    name = "openai"
    model = "gpt-test"

    def __init__(self, *said: str) -> None:
        self.requests: list[CompletionRequest] = []
        self._said = list(said)

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        self.requests.append(request)
        yield TextDelta(self._said.pop(0))
        yield Finished("refusal" if not self._said and request.max_tokens == 1 else "end")


def test_a_refusal_is_said() -> None:
    with pytest.raises(ProviderBadReply, match="refused"):
        complete_structured(Scripted("No."), "Plan.", "", Shape, max_tokens=1)


def test_history_comes_before_the_prompt() -> None:
    provider = Scripted(GOOD)
    before = (Message("user", "One."), Message("assistant", "Two."))
    complete_structured(provider, "Three.", "", Shape, history=before, reused=3)
    assert provider.requests[0].messages == (*before, Message("user", "Three.", 3))


def test_the_cache_is_asked_for_where_it_can_help() -> None:
    dialect = DIALECTS[0]
    passages, question = "p" * 5000, "Question: so?"
    with serving(dialect.answer("yes")) as server:
        provider = provider_at(server.url, "anthropic")
        for reused in (5000, 100, 0):
            turn = Message("user", passages + question, reused)
            list(provider.stream(CompletionRequest("Be brief.", (turn,)), lambda: False))
    first, short, none = (request.body["messages"][0]["content"] for request in server.requests)
    assert [block["text"] for block in first] == [passages, question]
    assert ["cache_control" in block for block in first] == [True, False]
    assert short == none == passages + question
    assert server.requests[0].body["system"][0]["cache_control"] == {"type": "ephemeral"}


def test_tokens_from_the_cache_are_counted() -> None:
    dialect = DIALECTS[0]
    reply = dialect.answer("yes")
    usage = b'"input_tokens": 25, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 75'
    cached = replace(reply, pieces=tuple(p.replace(b'"input_tokens": 25', usage) for p in reply.pieces))
    with serving(cached) as server:
        events = list(
            provider_at(server.url, "anthropic").stream(
                CompletionRequest("", (Message("user", "so?"),)), lambda: False
            )
        )
    assert events[-1] == Finished("end", 1000, 15, 900)

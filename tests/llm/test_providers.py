"""One contract for all providers, each through its real SDK against a local server."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable

import pytest
from support.llm_servers import DIALECTS, Dialect, LLMServer, Reply, free_port, serving

from copilotd.errors import (
    Cancelled,
    ProviderAuth,
    ProviderBadReply,
    ProviderContextTooLong,
    ProviderError,
    ProviderModelMissing,
    ProviderOverloaded,
    ProviderUnreachable,
)
from copilotd.llm import complete, make_provider
from copilotd.types import CompletionRequest, Finished, Message, Provider, TextDelta

KEY = "sk-test-do-not-show-4711"
MODELS = {"anthropic": "claude-test", "openai": "gpt-test", "ollama": "llama-test"}
REQUEST = CompletionRequest("Be brief.", (Message("user", "What is a chunk?"),), max_tokens=77)


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


def provider_at(url: str, dialect: Dialect, timeout_s: float = 10.0, key: str = KEY) -> Provider:
    made = make_provider(
        dialect.name,
        model=MODELS[dialect.name],
        anthropic_api_key=key,
        openai_api_key=key,
        openai_base_url=f"{url}/v1",
        ollama_base_url=url,
        timeout_s=timeout_s,
        key_file_hint="~/.config/copilot/.env",
        anthropic_base_url=url,
    )
    assert made is not None
    return made


def failure(server: LLMServer, dialect: Dialect, timeout_s: float = 10.0) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        complete(provider_at(server.url, dialect, timeout_s), REQUEST)
    shown = f"{caught.value.message} {caught.value.hint}"
    assert KEY not in shown
    assert "\n" not in shown
    return caught.value


def test_a_stream_is_passed_on_piece_by_piece(dialect: Dialect) -> None:
    with serving(dialect.answer("A chunk ", "is a run ", "of one section.")) as server:
        events = list(provider_at(server.url, dialect).stream(REQUEST, lambda: False))
    assert [event.text for event in events if isinstance(event, TextDelta)] == [
        "A chunk ",
        "is a run ",
        "of one section.",
    ]
    assert events[-1] == Finished("end", 25, 15)
    assert [request.path for request in server.requests] == [dialect.path]


def test_the_request_has_system_turns_model_and_limit(dialect: Dialect) -> None:
    with serving(dialect.answer("yes")) as server:
        complete(provider_at(server.url, dialect), REQUEST)
    body = server.requests[0].body
    text = json.dumps(body)
    assert body["model"] == MODELS[dialect.name]
    assert body["stream"] is True
    assert "Be brief." in text
    assert body["messages"][-1] == {"role": "user", "content": "What is a chunk?"}
    assert "77" in text


def test_words_come_before_the_answer_is_complete(dialect: Dialect) -> None:
    with serving(dialect.unfinished("first", ending="hold")) as server:
        stream = provider_at(server.url, dialect).stream(REQUEST, lambda: False)
        assert next(stream) == TextDelta("first")
        stream.close()  # type: ignore[attr-defined]
        assert server.disconnected.wait(60)


@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_key_names_its_variable(dialect: Dialect, status: int) -> None:
    with serving(dialect.error(status)) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderAuth)
    assert str(status) in error.message
    assert f"{dialect.name.upper()}_API_KEY" in f"{error.message} {error.hint}"
    assert len(server.requests) == 1


def test_a_missing_model_is_named_with_the_next_step(dialect: Dialect) -> None:
    with serving(dialect.error(404)) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderModelMissing)
    assert MODELS[dialect.name] in error.message
    assert ("ollama pull llama-test" if dialect.name == "ollama" else "LLM_MODEL") in error.hint


@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_passing_overload_is_waited_out(dialect: Dialect, status: int) -> None:
    busy = dialect.error(status, headers={"retry-after": "0.2"})
    with serving(busy, dialect.answer("here")) as server:
        began = time.monotonic()
        assert complete(provider_at(server.url, dialect), REQUEST).text == "here"
        assert time.monotonic() - began >= 0.2
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(429, ProviderOverloaded), (529, ProviderOverloaded), (500, ProviderError)]
)
def test_a_lasting_overload_is_said_after_three_tries(
    dialect: Dialect, status: int, kind: type[ProviderError]
) -> None:
    with serving(dialect.error(status, headers={"retry-after": "0.01"})) as server:
        error = failure(server, dialect)
    assert isinstance(error, kind)
    assert str(status) in error.message
    assert "--extractive" in error.hint
    assert len(server.requests) == 3


def test_a_wait_beyond_the_limit_is_not_begun(dialect: Dialect) -> None:
    with serving(dialect.error(429, headers={"retry-after": "120"})) as server:
        began = time.monotonic()
        error = failure(server, dialect)
    assert time.monotonic() - began < 60
    assert "wait 120 s" in error.hint
    assert len(server.requests) == 1


def test_without_retry_after_it_backs_off(dialect: Dialect) -> None:
    with serving(dialect.error(529), dialect.answer("here")) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).text == "here"
        assert len(server.requests) == 2


def test_slow_first_byte_within_the_limit(dialect: Dialect) -> None:
    slow = dialect.answer("late but there")
    with serving(Reply(slow.status, slow.headers, slow.pieces, delay_s=0.4)) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).text == "late but there"


def test_no_first_byte_is_a_time_out(dialect: Dialect) -> None:
    slow = dialect.answer("too late")
    with serving(Reply(slow.status, slow.headers, slow.pieces, delay_s=20)) as server:
        began = time.monotonic()
        error = failure(server, dialect, timeout_s=0.5)
        assert time.monotonic() - began < 15
        assert server.disconnected.wait(2)
    assert isinstance(error, ProviderUnreachable)
    assert "0.5 s" in error.message
    assert error.message.count("127.0.0.1") <= 1, "the address is named once"
    assert "PROVIDER_TIMEOUT_S" in error.hint


def test_silence_in_the_middle_is_a_time_out(dialect: Dialect) -> None:
    with serving(dialect.unfinished("half an", ending="hold")) as server:
        error = failure(server, dialect, timeout_s=0.5)
    assert isinstance(error, ProviderUnreachable)
    assert "nothing more" in error.message


def test_an_answer_that_never_ends_is_stopped(dialect: Dialect) -> None:
    endless = dialect.unfinished(*["la "] * 200, ending="hold")
    with serving(Reply(200, endless.headers, endless.pieces, pause_s=0.1, ending="hold")) as server:
        error = failure(server, dialect, timeout_s=0.3)
    assert "did not finish" in error.message


@pytest.mark.parametrize("ending", ["cut", "close"])
def test_a_cut_in_the_middle_is_said(dialect: Dialect, ending: str) -> None:
    pieces: list[str] = []
    with (
        serving(dialect.unfinished("half an", ending=ending)) as server,
        pytest.raises(ProviderBadReply) as caught,
    ):
        complete(provider_at(server.url, dialect), REQUEST, pieces.append)
    assert pieces == ["half an"]
    assert "broke off" in caught.value.message
    assert len(server.requests) == 1


def test_an_error_inside_the_stream_is_said(dialect: Dialect) -> None:
    with serving(dialect.error_in_stream("half an")) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderError)
    assert "overloaded" in error.message or "busy" in error.message
    assert len(server.requests) == 1


def test_an_error_inside_the_stream_before_any_word_is_retried(dialect: Dialect) -> None:
    with serving(dialect.error_in_stream(), dialect.answer("now")) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).text == "now"


def test_an_empty_answer_is_said_to_be_empty(dialect: Dialect) -> None:
    with serving(dialect.answer("")) as server:
        assert "is empty" in failure(server, dialect).message


def test_an_empty_body_is_said_to_be_empty(dialect: Dialect) -> None:
    with serving(Reply(200, {"content-type": "text/plain"})) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderBadReply)
    assert "empty" in error.message


def test_the_output_limit_is_told(dialect: Dialect) -> None:
    with serving(dialect.answer("cut at the", reason="length")) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).finished.reason == "length"


def test_an_output_limit_before_any_word_names_the_setting(dialect: Dialect) -> None:
    with serving(dialect.answer(reason="length")) as server:
        assert "MAX_ANSWER_TOKENS" in failure(server, dialect).hint


def test_a_refusal_is_told(dialect: Dialect) -> None:
    if dialect.name == "ollama":
        pytest.skip("Ollama's API has no refusal")
    with serving(dialect.answer(reason="refusal")) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).finished.reason == "refusal"


def test_the_context_limit_is_its_own_error(dialect: Dialect) -> None:
    with serving(dialect.context_limit()) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderContextTooLong)
    assert MODELS[dialect.name] in error.message


def test_another_400_is_said_in_our_words_where_a_key_was_sent(dialect: Dialect) -> None:
    with serving(dialect.error(400)) as server:
        error = failure(server, dialect)
    assert type(error) is ProviderError
    assert "(400)" in error.message
    assert ("(400): " in error.message) == (dialect.name == "ollama")


def raw(dialect: Dialect, *bodies: str) -> Reply:
    """A stream whose objects are these, in the frame of the dialect."""
    frame = "{}\n" if dialect.name == "ollama" else "data: {}\n\n"
    if dialect.name == "anthropic":
        frame = "event: content_block_delta\ndata: {}\n\n"
    headers = dialect.answer().headers
    return Reply(200, headers, tuple(frame.replace("{}", body).encode() for body in bodies))


WRONG_TYPES = {
    "openai": [
        '{"choices":[{"delta":{"content":[1,2]}}]}',
        '{"choices":[{"delta":{"content":5}}]}',
        '{"choices":[{"delta":{"content":{"a":1}}}]}',
        '{"choices":[5]}',
        '{"choices":["x"]}',
        '{"choices":5}',
        '{"choices":[{}]}',
        '{"choices":[{"delta":5}]}',
        '{"choices":[{"delta":{"content":"x"},"finish_reason":["stop"]}]}',
        "{}",
        "[]",
        "5",
        "null",
    ],
    "anthropic": [
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":[1,2]}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta"}}',
        '{"type":"content_block_delta","index":0,"delta":null}',
        '{"type":"content_block_delta","index":0,"delta":5}',
        '{"type":"content_block_delta"}',
        '{"type":"message_start","message":null}',
        '{"type":"message_start"}',
        "{}",
        "[]",
        "5",
        "null",
    ],
    "ollama": [
        '{"message":{"role":"assistant","content":[1,2]},"done":false}',
        '{"message":{"role":"assistant","content":5},"done":false}',
        '{"message":null,"done":false}',
        '{"message":5,"done":false}',
        '{"done":false}',
        "{}",
        "[]",
        "5",
        "null",
    ],
}


@pytest.mark.parametrize("amid", [False, True])
def test_wrong_types_and_missing_fields_are_a_bad_reply(dialect: Dialect, amid: bool) -> None:
    start = dialect.unfinished("half an", ending="close").pieces if amid else ()
    for body in WRONG_TYPES[dialect.name]:
        reply = raw(dialect, body)
        with serving(Reply(200, reply.headers, (*start, *reply.pieces))) as server:
            error = failure(server, dialect)
        assert isinstance(error, ProviderBadReply), body
        if not amid:
            assert "closed the connection" not in error.message, body


def test_a_web_page_is_a_reply_that_cannot_be_read(dialect: Dialect) -> None:
    for kind in ("text/html; charset=utf-8", "text/plain"):
        with serving(Reply(200, {"content-type": kind}, (b"<html>\n<p>Log in</p>\n</html>",))) as server:
            error = failure(server, dialect)
        assert isinstance(error, ProviderBadReply)
        assert "cannot be read" in error.message


def test_an_endless_answer_is_cut_like_one_at_its_limit(dialect: Dialect) -> None:
    endless = dialect.unfinished(*["la " * 500] * 100, ending="hold")
    with serving(endless) as server:
        done = complete(provider_at(server.url, dialect), REQUEST)
        assert server.disconnected.wait(2)
    assert done.finished.reason == "length"
    assert len(done.text) == 8 * 77 + 4096


def test_a_line_without_end_is_a_bad_reply(dialect: Dialect) -> None:
    start = dialect.unfinished("half an", ending="close")
    long = (b"data: " + b"x" * 60_000, *[b"x" * 60_000] * 30)
    with serving(Reply(200, start.headers, (*start.pieces, *long), ending="hold")) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderBadReply)
    assert "cannot be read" in error.message


def test_a_compressed_reply_is_not_asked_for_and_not_unpacked(dialect: Dialect) -> None:
    bomb = gzip.compress(b"data: " + b" " * 30_000_000)
    reply = Reply(200, {**dialect.answer().headers, "content-encoding": "gzip"}, (bomb,))
    with serving(reply) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderBadReply)
    asked = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert asked["accept-encoding"] == "identity"


def test_the_key_as_an_answer_is_masked(dialect: Dialect) -> None:
    if dialect.name == "ollama":
        pytest.skip("Ollama is sent no key")
    with serving(dialect.answer("It is ", *KEY, " and ", KEY)) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).text == "It is *** and ***"


def test_thinking_is_not_the_answer(dialect: Dialect) -> None:
    with serving(dialect.answer("<thi", "nk>hm", "</think>", "\n\nSo.")) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).text == "So."
    with serving(dialect.answer("<think>hm", reason="length")) as server:
        assert "MAX_ANSWER_TOKENS" in failure(server, dialect).hint


def test_a_wait_of_days_is_not_repeated(dialect: Dialect) -> None:
    with serving(dialect.error(429, headers={"retry-after": "999999"})) as server:
        assert "try again later" in failure(server, dialect).hint


@pytest.mark.parametrize("texts", [(), ("half an",)])
def test_malformed_json_is_said(dialect: Dialect, texts: tuple[str, ...]) -> None:
    with serving(dialect.malformed(*texts)) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderBadReply)
    assert "cannot be read" in error.message


def test_nothing_listens(dialect: Dialect) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ProviderUnreachable) as caught:
        complete(provider_at(url, dialect), REQUEST)
    assert url in caught.value.message
    assert "not running" in caught.value.message


def test_a_connection_closed_before_any_byte_is_tried_once_more(dialect: Dialect) -> None:
    with serving(Reply(ending="drop"), dialect.answer("second")) as server:
        assert complete(provider_at(server.url, dialect), REQUEST).text == "second"
    assert server.connections == 2


def test_a_connection_always_closed_is_said(dialect: Dialect) -> None:
    with serving(Reply(ending="drop")) as server:
        error = failure(server, dialect)
    assert isinstance(error, ProviderUnreachable)
    assert server.connections == 2


def test_a_redirect_is_not_followed(dialect: Dialect) -> None:
    with serving(dialect.answer("elsewhere")) as other:
        away = Reply(307, {"location": f"{other.url}{dialect.path}"})
        with serving(away) as server:
            error = failure(server, dialect)
        assert other.requests == []
    assert "redirect" in error.message


@pytest.mark.parametrize("texts", [(), ("half an",)], ids=["before", "amid"])
def test_cancelling_closes_the_connection(dialect: Dialect, texts: tuple[str, ...]) -> None:
    cancelled = threading.Event()
    with serving(dialect.unfinished(*texts, ending="hold")) as server:
        timer = threading.Timer(0.3, cancelled.set)
        timer.start()
        with pytest.raises(Cancelled):
            complete(provider_at(server.url, dialect), REQUEST, cancelled=cancelled.is_set)
        assert server.disconnected.wait(2)
        timer.join()


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_an_answer_let_go_midway_leaves_nothing_behind(dialect: Dialect, pieces: int) -> None:
    with serving(dialect.answer("A chunk ", "is a run ", "of one section.")) as server:
        provider = provider_at(server.url, dialect)
        for _ in range(8):
            stream = provider.stream(REQUEST, lambda: False)
            for _ in range(pieces):
                assert isinstance(next(stream), TextDelta)
            stream.close()  # type: ignore[attr-defined]


def test_cancelling_ends_the_wait_between_tries(dialect: Dialect) -> None:
    cancelled = threading.Event()
    with serving(dialect.error(429, headers={"retry-after": "8"})) as server:
        timer = threading.Timer(0.3, cancelled.set)
        timer.start()
        began = time.monotonic()
        with pytest.raises(Cancelled):
            complete(provider_at(server.url, dialect), REQUEST, cancelled=cancelled.is_set)
        assert time.monotonic() - began < 7
        timer.join()


def test_each_question_has_a_fresh_connection(dialect: Dialect) -> None:
    with serving(dialect.answer("one")) as server:
        provider = provider_at(server.url, dialect)
        complete(provider, REQUEST)
        complete(provider, REQUEST)
    assert server.connections == 2


def test_one_provider_serves_several_threads(dialect: Dialect) -> None:
    with serving(dialect.answer("same")) as server:
        provider = provider_at(server.url, dialect)
        texts: list[str] = []
        ask: Callable[[], None] = lambda: texts.append(complete(provider, REQUEST).text)  # noqa: E731
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == ["same"] * 4

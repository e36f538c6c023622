"""Bytes cut anywhere give the same messages; nothing a peer sends raises or grows memory."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd import wire
from copilotd.errors import IndexMissing, ProviderAuth, RootNotFound
from copilotd.wire import Connection, Decoder, Failure, Invalid, Message, Notification, Request, Result

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_params = st.dictionaries(st.text(max_size=8), _json, max_size=4)
_ids = st.integers() | st.text(max_size=8)
_messages = (
    st.builds(Request, _ids, st.text(), _params)
    | st.builds(Notification, st.text(), _params)
    | st.builds(Result, _ids, _params)
)


def encode(message: Message) -> bytes:
    match message:
        case Request(request_id, method, params):
            return wire.encode_request(request_id, method, params)
        case Notification(method, params):
            return wire.encode_notification(method, params)
        case Result(result_id, result):
            return wire.encode_result(result_id, result)
    raise AssertionError(message)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return (data[start:end] for start, end in itertools.pairwise(edges))


def only(line: bytes) -> Message:
    (message,) = Decoder().feed(line + b"\n")
    return message


@given(st.lists(_messages, max_size=5), st.lists(st.integers(min_value=0), max_size=12))
def test_messages_survive_a_split_at_any_byte(messages: list[Message], cuts: list[int]) -> None:
    data = b"".join(map(encode, messages))
    decoder = Decoder()
    assert [out for piece in pieces(data, cuts) for out in decoder.feed(piece)] == messages
    assert not decoder.half_message


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0), max_size=8))
def test_any_bytes_give_the_same_messages_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    whole, parts = Decoder(64), Decoder(64)
    expected = [str(message) for message in whole.feed(data)]
    assert [str(out) for piece in pieces(data, cuts) for out in parts.feed(piece)] == expected
    assert whole.half_message == parts.half_message


@given(_messages)
def test_a_message_is_one_ascii_line_a_terminal_can_show(message: Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line[:-1].decode("ascii").isprintable()


def test_lone_surrogates_cross_the_wire() -> None:
    request = Request(1, "index", {"path": "/docs/caf\udce9"})
    assert Decoder().feed(encode(request)) == [request]


def test_nan_is_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        wire.encode_result(1, {"score": float("nan")})


def test_blank_lines_and_crlf_are_harmless() -> None:
    assert Decoder().feed(b'\n \r\n{"jsonrpc":"2.0","method":"m"}\r\n') == [Notification("m", {})]


@pytest.mark.parametrize(
    ("line", "number", "words"),
    [
        (b"\xff\xfe", wire.PARSE_ERROR, "not UTF-8"),
        (b"{", wire.PARSE_ERROR, "not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":NaN}}', wire.PARSE_ERROR, "NaN"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":1e999}}', wire.PARSE_ERROR, "out of range"),
        (b'{"id":1,"id":2}', wire.PARSE_ERROR, "twice"),
        (b"1" * 5000, wire.PARSE_ERROR, "not JSON"),
        (b"[]", wire.INVALID_REQUEST, "Batches"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', wire.INVALID_REQUEST, "Batches"),
        (b'"hello"', wire.INVALID_REQUEST, "object"),
        (b"[" * 100_000, wire.INVALID_REQUEST, "deeper"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, wire.INVALID_REQUEST, "deeper"),
        (b"{}", wire.INVALID_REQUEST, "jsonrpc"),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', wire.INVALID_REQUEST, "jsonrpc"),
        (b'{"jsonrpc":"2.0","id":1}', wire.INVALID_REQUEST, "'method'"),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', wire.INVALID_REQUEST, "'method'"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', wire.INVALID_PARAMS, "'params'"),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', wire.INVALID_REQUEST, "'id'"),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', wire.INVALID_REQUEST, "'id'"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', wire.INVALID_REQUEST, "'id'"),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', wire.INVALID_REQUEST, "'result'"),
        (b'{"jsonrpc":"2.0","id":1,"result":[]}', wire.INVALID_REQUEST, "'result'"),
        (b'{"jsonrpc":"2.0","result":{}}', wire.INVALID_REQUEST, "'id'"),
        (b'{"jsonrpc":"2.0","id":1,"error":7}', wire.INVALID_REQUEST, "'error'"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"m"}}', wire.INVALID_REQUEST, "'error'"),
    ],
)
def test_what_is_no_message_is_named_and_the_next_line_still_counts(
    line: bytes, number: int, words: str
) -> None:
    bad, good = Decoder().feed(line + b'\n{"jsonrpc":"2.0","id":9,"method":"m"}\n')
    assert isinstance(bad, Invalid)
    assert bad.number == number
    assert words in bad.error.message
    assert good == Request(9, "m", {})


def test_the_id_is_told_where_it_could_be_read() -> None:
    invalid = only(b'{"jsonrpc":"2.0","id":7,"method":"m","params":3}')
    assert isinstance(invalid, Invalid)
    assert invalid.id == 7


def test_many_brackets_inside_a_text_are_not_depth() -> None:
    request = Request(1, "ask", {"query": "[" * 500})
    assert Decoder().feed(encode(request)) == [request]


def test_a_line_too_long_is_told_once_and_costs_no_memory() -> None:
    decoder = Decoder(1000)
    piece = b"x" * 65536
    tracemalloc.start()
    try:
        messages = [message for _ in range(2000) for message in decoder.feed(piece)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (invalid,) = messages
    assert isinstance(invalid, Invalid)
    assert invalid.fatal
    assert peak < 1_000_000
    assert decoder.half_message
    assert decoder.feed(b'\n{"jsonrpc":"2.0","method":"m"}\n') == [Notification("m", {})]


def test_the_limit_is_the_last_length_accepted() -> None:
    line = encode(Notification("m", {"x": "y" * 50}))
    assert Decoder(len(line) - 1).feed(line) == [Notification("m", {"x": "y" * 50})]
    (invalid,) = Decoder(len(line) - 2).feed(line)
    assert isinstance(invalid, Invalid)


def test_an_id_still_in_use_is_refused_and_free_after_its_reply() -> None:
    connection = Connection()
    line = wire.encode_request(1, "ask", {})
    first, second = connection.receive(line + line)
    assert isinstance(first, Request)
    assert isinstance(second, Invalid)
    assert second.id is None
    assert connection.open_requests == 1
    connection.encode_result(1, {})
    assert connection.open_requests == 0
    assert connection.receive(line) == [Request(1, "ask", {})]
    connection.encode_error(1, IndexMissing())
    assert connection.receive(line) == [Request(1, "ask", {})]


def test_an_id_is_not_freed_by_a_reply_that_cannot_be_encoded() -> None:
    connection = Connection()
    connection.receive(wire.encode_request(1, "ask", {}))
    with pytest.raises(ValueError, match="JSON"):
        connection.encode_result(1, {"x": float("inf")})
    assert connection.open_requests == 1


def test_the_daemon_takes_no_replies() -> None:
    (invalid,) = Connection().receive(wire.encode_result(1, {}))
    assert isinstance(invalid, Invalid)


@pytest.mark.parametrize(
    "error", [ProviderAuth("Key rejected.", "Set KEY."), RootNotFound("No.", ""), IndexMissing()]
)
def test_errors_come_back_as_the_class_that_was_raised(error: Any) -> None:
    message = only(wire.encode_error(3, error).rstrip(b"\n"))
    assert isinstance(message, Failure)
    assert message.id == 3
    assert type(message.error) is type(error)
    assert (message.error.message, message.error.hint) == (error.message, error.hint)


def test_a_plain_jsonrpc_error_without_data_is_understood() -> None:
    message = only(
        json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no"}}).encode()
    )
    assert isinstance(message, Failure)
    assert (message.id, message.number, message.error.message) == (None, -32601, "no")

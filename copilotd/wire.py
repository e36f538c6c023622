"""JSON-RPC 2.0, one message a line, without any I/O: bytes in → messages, messages → bytes.

Both sides use it: the daemon through :class:`Connection`, the client through :class:`Decoder`. A line that is
not a message becomes an :class:`Invalid` value instead of an exception, because the peer is untrusted and the
messages around it still count. Memory is bounded: of a line longer than the limit nothing is kept.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple, NoReturn

from copilotd.errors import CopilotError, WireError, error_from_wire, jsonrpc_code

PROTOCOL = 1
"""Version of the methods and their parameters, exchanged by ``hello``."""

OLDEST_PROTOCOL = 1
"""The oldest version that both sides still speak, so that neither has to be upgraded first."""

STARTED_BY = "COPILOT_STARTED_BY"
"""The variable by which a client marks the daemon it starts as one that it may start again."""

MAX_REQUEST_BYTES = 1 << 20
"""Default limit of a line from a client."""

MAX_REPLY_BYTES = 64 << 20
"""Limit of a line from the daemon: a whole document may come back from ``section``."""

MAX_DEPTH = 32
"""Limit of nested arrays and objects; the protocol itself needs four."""

# https://www.jsonrpc.org/specification#error_object
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

JSONObject = dict[str, Any]
RequestId = int | str


class Request(NamedTuple):
    """A call that wants a reply."""

    id: RequestId
    method: str
    params: JSONObject


class Notification(NamedTuple):
    """A message that wants none: ``progress`` and ``delta`` from the daemon, ``cancel`` from the client."""

    method: str
    params: JSONObject


class Result(NamedTuple):
    """The good reply to the request ``id``."""

    id: RequestId
    result: JSONObject


class Failure(NamedTuple):
    """The bad reply; ``id`` is None where the daemon could not tell which request it belongs to."""

    id: RequestId | None
    error: CopilotError
    number: int


class Invalid(NamedTuple):
    """A line that is no message, and what to answer.

    Attributes:
        id: The request's id where it could be read.
        error: Says what is wrong.
        number: JSON-RPC's code.
        fatal: Whether the rest of the stream can't be trusted, so that the connection should be closed.
    """

    id: RequestId | None
    error: WireError
    number: int
    fatal: bool = False


Message = Request | Notification | Result | Failure | Invalid


class Decoder:
    """Cuts a byte stream into messages.

    Args:
        max_bytes: Limit of a line, its newline not counted.
    """

    def __init__(self, max_bytes: int = MAX_REPLY_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._skipping = False

    @property
    def half_message(self) -> bool:
        """Whether a line has begun and not ended yet."""
        return self._skipping or bool(self._buffer)

    def feed(self, data: bytes) -> list[Message]:
        """Takes the next bytes, cut anywhere, and returns the messages they complete, in order."""
        messages: list[Message] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end], messages)
            if self._skipping:
                self._skipping = False
            elif line := bytes(self._buffer).strip(b" \t\r"):
                messages.append(decode(line))
            self._buffer.clear()
            start = end + 1
        self._keep(data[start:], messages)
        return messages

    def _keep(self, piece: bytes, messages: list[Message]) -> None:
        if self._skipping:
            return
        if len(self._buffer) + len(piece) > self._max_bytes:
            self._buffer.clear()
            self._skipping = True
            text = f"The message is longer than {self._max_bytes} bytes."
            error = WireError(text, "MAX_MESSAGE_BYTES sets the limit.")
            messages.append(Invalid(None, error, INVALID_REQUEST, fatal=True))
            return
        self._buffer += piece


class Connection:
    """The daemon's view of one client: what it asked, which requests are still open.

    Args:
        max_bytes: Limit of a line from the client.
    """

    def __init__(self, max_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._decoder = Decoder(max_bytes)
        self._open: set[RequestId] = set()

    @property
    def half_message(self) -> bool:
        """Whether a line has begun and not ended yet."""
        return self._decoder.half_message

    @property
    def open_requests(self) -> int:
        """How many requests have no reply yet."""
        return len(self._open)

    def receive(self, data: bytes) -> list[Request | Notification | Invalid]:
        """Takes the next bytes; each Request returned is open until its reply is encoded here."""
        accepted: list[Request | Notification | Invalid] = []
        for message in self._decoder.feed(data):
            if isinstance(message, Request):
                if message.id in self._open:
                    # No id in the reply: it would be taken for the reply to the request that is running.
                    error = WireError(f"Request id {message.id!r} is still in use on this connection.")
                    accepted.append(Invalid(None, error, INVALID_REQUEST))
                    continue
                self._open.add(message.id)
                accepted.append(message)
            elif isinstance(message, Notification | Invalid):
                accepted.append(message)
            else:
                error = WireError("The daemon takes requests, not replies.")
                accepted.append(Invalid(None, error, INVALID_REQUEST))
        return accepted

    def encode_result(self, request_id: RequestId, result: JSONObject) -> bytes:
        """Encodes the good reply and closes the request."""
        line = encode_result(request_id, result)
        self._open.discard(request_id)
        return line

    def encode_error(
        self, request_id: RequestId | None, error: CopilotError, number: int | None = None
    ) -> bytes:
        """Encodes the bad reply and closes the request."""
        if request_id is not None:
            self._open.discard(request_id)
        return encode_error(request_id, error, number)


def encode_request(request_id: RequestId, method: str, params: JSONObject) -> bytes:
    """Returns the line of a request."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def encode_notification(method: str, params: JSONObject) -> bytes:
    """Returns the line of a notification."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def encode_result(request_id: RequestId, result: JSONObject) -> bytes:
    """Returns the line of a good reply."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: RequestId | None, error: CopilotError, number: int | None = None) -> bytes:
    """Returns the line of a bad reply; ``number`` replaces the one the error's class stands for."""
    data = {"code": error.code, "hint": error.hint}
    body = {"code": jsonrpc_code(error) if number is None else number, "message": error.message, "data": data}
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def _encode(message: JSONObject) -> bytes:
    # ASCII only: file names that are not UTF-8 (lone surrogates) stay legal JSON, and a C1 control
    # character in a document can't act on the terminal of somebody who reads the socket with nc.
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """Returns the message that one line, without its newline, holds."""
    try:
        value = json.loads(
            line.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            object_pairs_hook=_unique_members,
        )
    except UnicodeDecodeError as error:
        return _invalid(None, f"The message is not UTF-8 (byte {error.start}).", PARSE_ERROR)
    except RecursionError:
        return _too_deep()
    except ValueError as error:
        return _invalid(None, f"The message is not JSON: {error}.", PARSE_ERROR)
    if isinstance(value, list):
        return _invalid(None, "Batches are not supported; send one object a line.")
    if not isinstance(value, dict):
        return _invalid(None, "A message is a JSON object.")
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        return _too_deep()
    return _classify(value)


def _classify(value: JSONObject) -> Message:
    request_id = value.get("id")
    if request_id is not None and (isinstance(request_id, bool) or not isinstance(request_id, int | str)):
        return _invalid(None, "'id' is a whole number or a string.")
    if value.get("jsonrpc") != "2.0":
        return _invalid(request_id, "'jsonrpc' must be \"2.0\".")
    if "method" in value:
        return _classify_call(value, request_id)
    if ("result" in value) == ("error" in value):
        return _invalid(request_id, "A message has a 'method', a 'result' or an 'error'.")
    if "error" in value:
        return _classify_failure(value["error"], request_id)
    if request_id is None:
        return _invalid(None, "A result has an 'id'.")
    if not isinstance(value["result"], dict):
        return _invalid(request_id, "'result' is an object.")
    return Result(request_id, value["result"])


def _classify_call(value: JSONObject, request_id: RequestId | None) -> Message:
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str):
        return _invalid(request_id, "'method' is a string.")
    if not isinstance(params, dict):
        return _invalid(request_id, "'params' is an object.", INVALID_PARAMS)
    if "id" not in value:
        return Notification(method, params)
    if request_id is None:
        return _invalid(None, "'id' is a whole number or a string; leave it out for a notification.")
    return Request(request_id, method, params)


def _classify_failure(body: object, request_id: RequestId | None) -> Message:
    if not isinstance(body, dict):
        return _invalid(request_id, "'error' is an object.")
    number, message, data = body.get("code"), body.get("message"), body.get("data")
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(message, str):
        return _invalid(request_id, "'error' has a number 'code' and a text 'message'.")
    details = data if isinstance(data, dict) else {}
    code, hint = details.get("code"), details.get("hint")
    error = error_from_wire(
        code if isinstance(code, str) else "", message, hint if isinstance(hint, str) else ""
    )
    return Failure(request_id, error, number)


def _invalid(request_id: RequestId | None, text: str, number: int = INVALID_REQUEST) -> Invalid:
    return Invalid(request_id, WireError(text), number)


def _too_deep() -> Invalid:
    return _invalid(None, f"The message nests deeper than {MAX_DEPTH} levels.")


def _depth(value: object) -> int:
    deepest, todo = 0, [(value, 1)]
    while todo:
        item, depth = todo.pop()
        if isinstance(item, dict | list):
            deepest = max(deepest, depth)
            todo.extend((child, depth + 1) for child in (item.values() if isinstance(item, dict) else item))
    return deepest


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is out of range")
    return number


def _unique_members(pairs: list[tuple[str, Any]]) -> JSONObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member occurs twice in one object")
    return members

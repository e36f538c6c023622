"""Local HTTP servers that speak the wire formats of the LLM services, scripted reply by reply.

Real sockets on 127.0.0.1, so that the real SDKs run against them. The shapes are those of the public
API references:

- Anthropic Messages: https://platform.claude.com/docs/en/build-with-claude/streaming and …/docs/en/api/errors
- OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat-streaming
- Ollama /api/chat: https://github.com/ollama/ollama/blob/main/docs/api.md
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True)
class Reply:
    """What the server does with one request.

    Attributes:
        status: HTTP status.
        headers: Sent with it.
        pieces: Body, each piece sent as its own chunk.
        delay_s: Wait before the status line.
        pause_s: Wait between pieces.
        ending: ``close`` ends the body properly, ``cut`` drops the connection, ``hold`` sends nothing more
            until the client goes away, ``drop`` closes before the first byte of the reply.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    delay_s: float = 0.0
    pause_s: float = 0.0
    ending: str = "close"


@dataclass(frozen=True)
class Request:
    """What the client sent."""

    path: str
    headers: Mapping[str, str]
    body: Any


Answerer = Callable[[Request], Reply]


class LLMServer:
    """One server; replies are taken from a queue, the last one is repeated. A function makes one from the request."""

    def __init__(self, replies: Iterable[Reply | Answerer]) -> None:
        self.requests: list[Request] = []
        self.disconnected = threading.Event()
        self.connections = 0
        self._replies = list(replies)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def do_POST(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        with self._lock:
            request = Request(handler.path, dict(handler.headers.items()), json.loads(body))
            self.requests.append(request)
            reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        handler.close_connection = True
        try:
            self._send(handler, reply if isinstance(reply, Reply) else reply(request))
        except OSError:
            self.disconnected.set()

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        connection = handler.connection
        if reply.ending == "drop" or not self._wait(connection, reply.delay_s):
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for piece in reply.pieces:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
            if not self._wait(connection, reply.pause_s):
                return
        if reply.ending == "hold":
            self._wait(connection, 30.0)
        elif reply.ending == "close":
            handler.wfile.write(b"0\r\n\r\n")

    def _wait(self, connection: socket.socket, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._stopping.is_set():
            readable, _, _ = select.select([connection], [], [], min(0.02, left))
            if readable and not connection.recv(1024):
                self.disconnected.set()
                return False
        return not self._stopping.is_set()


@contextmanager
def serving(*replies: Reply | Answerer) -> Iterator[LLMServer]:
    """Runs a server that gives ``replies`` in turn."""
    server = LLMServer(replies)
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    """Returns a port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Dialect(Protocol):
    """One service's wire format."""

    name: str
    path: str

    def answer(self, *texts: str, reason: str = "end") -> Reply: ...

    def unfinished(self, *texts: str, ending: str) -> Reply: ...

    def error(self, status: int, *, headers: Mapping[str, str] | None = None) -> Reply: ...

    def context_limit(self) -> Reply: ...

    def error_in_stream(self, *texts: str) -> Reply: ...

    def malformed(self, *texts: str) -> Reply: ...

    def structured(self, *pieces: str, reason: str = "end") -> Reply:
        """An answer in the shape asked for, its JSON in ``pieces``."""
        ...


def _dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


_SSE = {"content-type": "text/event-stream; charset=utf-8"}
_JSON = {"content-type": "application/json"}
_NDJSON = {"content-type": "application/x-ndjson"}


class AnthropicDialect:
    name = "anthropic"
    path = "/v1/messages"

    _TYPES: ClassVar[dict[int, tuple[str, str]]] = {
        401: ("authentication_error", "invalid x-api-key"),
        403: ("permission_error", "Your API key does not have permission to use the specified resource."),
        404: ("not_found_error", "model: claude-test"),
        429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
        500: ("api_error", "Internal server error"),
        529: ("overloaded_error", "Overloaded"),
        400: ("invalid_request_error", "messages: at least one message is required"),
    }

    def _event(self, data: dict[str, Any]) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), _dumps(data))

    def _start(self) -> bytes:
        message: dict[str, Any] = {
            "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "claude-test",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 25, "output_tokens": 1},
        }
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return (
            self._event({"type": "message_start", "message": message})
            + self._event(block)
            + self._event({"type": "ping"})
        )

    def _delta(self, text: str) -> bytes:
        delta = {"type": "text_delta", "text": text}
        return self._event({"type": "content_block_delta", "index": 0, "delta": delta})

    def answer(self, *texts: str, reason: str = "end") -> Reply:
        stop = {"end": "end_turn", "length": "max_tokens", "refusal": "refusal"}[reason]
        end = (
            self._event({"type": "content_block_stop", "index": 0})
            + self._event(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": stop, "stop_sequence": None},
                    "usage": {"output_tokens": 15},
                }
            )
            + self._event({"type": "message_stop"})
        )
        return Reply(headers=_SSE, pieces=(self._start(), *map(self._delta, texts), end))

    def structured(self, *pieces: str, reason: str = "end") -> Reply:
        called = {"type": "tool_use", "id": "toolu_01T1x1fJ34qAmk2tNTrN7Up6", "name": "Shape", "input": {}}
        start = self._start().replace(b'"text": ""', b'"text": "Let me see."')
        start += self._event({"type": "content_block_stop", "index": 0})
        start += self._event({"type": "content_block_start", "index": 1, "content_block": called})
        deltas = (
            self._event(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
            )
            for piece in ("", *pieces)
        )
        end = self.answer(reason=reason).pieces[-1].replace(b'"end_turn"', b'"tool_use"')
        return Reply(headers=_SSE, pieces=(start, *deltas, end.replace(b'"index": 0', b'"index": 1')))

    def unfinished(self, *texts: str, ending: str) -> Reply:
        return Reply(headers=_SSE, pieces=(self._start(), *map(self._delta, texts)), ending=ending)

    def error(self, status: int, *, headers: Mapping[str, str] | None = None) -> Reply:
        kind, message = self._TYPES[status]
        body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEe"}
        return Reply(status, {**_JSON, **(headers or {})}, (_dumps(body),))

    def context_limit(self) -> Reply:
        error = {
            "type": "invalid_request_error",
            "message": "prompt is too long: 212000 tokens > 200000 maximum",
        }
        return Reply(400, _JSON, (_dumps({"type": "error", "error": error}),))

    def error_in_stream(self, *texts: str) -> Reply:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        reply = self.unfinished(*texts, ending="close")
        return replace(reply, pieces=(*reply.pieces, self._event(error)))

    def malformed(self, *texts: str) -> Reply:
        reply = self.unfinished(*texts, ending="close")
        return replace(reply, pieces=(*reply.pieces, b'event: content_block_delta\ndata: {"type": \n\n'))


class OpenAIDialect:
    name = "openai"
    path = "/v1/chat/completions"

    _CODES: ClassVar[dict[int, tuple[str, str, str | None]]] = {
        401: ("Incorrect API key provided: sk-te**********cret.", "invalid_request_error", "invalid_api_key"),
        403: ("You are not allowed to sample from this model", "invalid_request_error", None),
        404: ("The model `gpt-test` does not exist.", "invalid_request_error", "model_not_found"),
        429: ("Rate limit reached for gpt-test on requests per min.", "requests", "rate_limit_exceeded"),
        500: ("The server had an error while processing your request.", "server_error", None),
        529: ("The engine is currently overloaded, please try again later.", "server_error", None),
        400: ("Invalid value for 'messages'.", "invalid_request_error", None),
    }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return self._data(choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    def _data(self, **fields: Any) -> bytes:
        data = {
            "id": "chatcmpl-123",
            "object": "chat.completion.chunk",
            "created": 1694268190,
            "model": "gpt-test",
            "system_fingerprint": "fp_44709d6fcb",
            **fields,
        }
        return b"data: %s\n\n" % _dumps(data)

    def answer(self, *texts: str, reason: str = "end") -> Reply:
        finish = {"end": "stop", "length": "length", "refusal": "content_filter"}[reason]
        usage = {"prompt_tokens": 25, "completion_tokens": 15, "total_tokens": 40}
        reply = self.unfinished(*texts, ending="close")
        end = self._chunk({}, finish) + self._data(choices=[], usage=usage) + b"data: [DONE]\n\n"
        return replace(reply, pieces=(*reply.pieces, end))

    def structured(self, *pieces: str, reason: str = "end") -> Reply:
        return self.answer(*pieces, reason=reason)

    def function(self, *pieces: str) -> Reply:
        """The same from a server that was asked for a function."""
        call = {
            "index": 0,
            "id": "call_abc123",
            "type": "function",
            "function": {"name": "Shape", "arguments": ""},
        }
        first = self._chunk({"role": "assistant", "content": None, "tool_calls": [call]})
        further = [
            self._chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces
        ]
        end = self._chunk({}, "tool_calls") + b"data: [DONE]\n\n"
        return Reply(headers=_SSE, pieces=(first, *further, end))

    def unfinished(self, *texts: str, ending: str) -> Reply:
        first = self._chunk({"role": "assistant", "content": ""})
        return Reply(
            headers=_SSE, pieces=(first, *(self._chunk({"content": text}) for text in texts)), ending=ending
        )

    def error(self, status: int, *, headers: Mapping[str, str] | None = None) -> Reply:
        message, kind, code = self._CODES[status]
        body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
        return Reply(status, {**_JSON, **(headers or {})}, (_dumps(body),))

    def context_limit(self) -> Reply:
        message = (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 10042 tokens. "
            "Please reduce the length of the messages."
        )
        error = {"message": message, "type": "invalid_request_error", "param": "messages"}
        return Reply(400, _JSON, (_dumps({"error": {**error, "code": "context_length_exceeded"}}),))

    def error_in_stream(self, *texts: str) -> Reply:
        error = {"error": {"message": "The server is overloaded", "type": "overloaded_error", "code": None}}
        reply = self.unfinished(*texts, ending="close")
        return replace(reply, pieces=(*reply.pieces, b"data: %s\n\n" % _dumps(error)))

    def malformed(self, *texts: str) -> Reply:
        reply = self.unfinished(*texts, ending="close")
        return replace(reply, pieces=(*reply.pieces, b'data: {"id": \n\n'))


class OllamaDialect:
    name = "ollama"
    path = "/api/chat"

    _ERRORS: ClassVar[dict[int, str]] = {
        400: "invalid options",
        401: "unauthorized",
        403: "this model requires a subscription",
        404: "model 'llama-test' not found",
        429: "too many requests",
        500: "llama runner process has terminated",
        529: "server busy, please try again.",
    }

    def _line(self, content: str, **fields: Any) -> bytes:
        line = {
            "model": "llama-test",
            "created_at": "2023-08-04T08:52:19.385406455-07:00",
            "message": {"role": "assistant", "content": content},
            "done": False,
            **fields,
        }
        return _dumps(line) + b"\n"

    def answer(self, *texts: str, reason: str = "end") -> Reply:
        end = self._line(
            "",
            done=True,
            done_reason={"end": "stop", "length": "length"}[reason],
            total_duration=4883583458,
            load_duration=1334875,
            prompt_eval_count=25,
            prompt_eval_duration=342546000,
            eval_count=15,
            eval_duration=4535599000,
        )
        return Reply(headers=_NDJSON, pieces=(*map(self._line, texts), end))

    def structured(self, *pieces: str, reason: str = "end") -> Reply:
        return self.answer(*pieces, reason=reason)

    def unfinished(self, *texts: str, ending: str) -> Reply:
        return Reply(headers=_NDJSON, pieces=tuple(map(self._line, texts)), ending=ending)

    def error(self, status: int, *, headers: Mapping[str, str] | None = None) -> Reply:
        return Reply(status, {**_JSON, **(headers or {})}, (_dumps({"error": self._ERRORS[status]}),))

    def context_limit(self) -> Reply:
        return Reply(400, _JSON, (_dumps({"error": "the input length exceeds the context length"}),))

    def error_in_stream(self, *texts: str) -> Reply:
        reply = self.unfinished(*texts, ending="close")
        return replace(
            reply, pieces=(*reply.pieces, _dumps({"error": "server busy, please try again."}) + b"\n")
        )

    def malformed(self, *texts: str) -> Reply:
        reply = self.unfinished(*texts, ending="close")
        return replace(reply, pieces=(*reply.pieces, b'{"model": \n'))


DIALECTS: tuple[Dialect, ...] = (AnthropicDialect(), OpenAIDialect(), OllamaDialect())

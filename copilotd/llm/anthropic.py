"""Anthropic's Messages API through its SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from inspect import signature
from types import ModuleType
from typing import Any

from copilotd.llm.bounds import IDENTITY, Meter, tokens, words
from copilotd.llm.failures import Failure, Service, retry_after
from copilotd.llm.streaming import Limits, StreamingProvider, http_library, quiet
from copilotd.types import CompletionRequest, Finished, Message, TextDelta

BASE_URL = "https://api.anthropic.com"

# https://platform.claude.com/docs/en/api/errors; an error inside a 200 stream has only its type.
_STATUS_BY_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

# https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
_CACHED = {"type": "ephemeral"}
# The shortest that is cached has 1,024 tokens (more with some models): below that, asking is useless.
_WORTH_CACHING = 4096

_REASONS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}


class AnthropicProvider(StreamingProvider):
    """Speaks to Anthropic. The address is always given, so the SDK takes none from the environment."""

    def __init__(self, model: str, key: str, base_url: str, limits: Limits, key_file: str) -> None:
        super().__init__(
            Service("anthropic", "Anthropic", model, base_url, "ANTHROPIC_API_KEY", "", key, key_file), limits
        )

    def _sdk(self) -> ModuleType:
        import anthropic

        quiet("anthropic", "httpx", "httpx2", "httpcore", "httpcore2")
        return anthropic

    async def _attempt(
        self, request: CompletionRequest, meter: Meter
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        sdk = self._sdk()
        options: dict[str, Any] = {}
        if "open_telemetry" in signature(sdk.AsyncAnthropic).parameters:
            # The environment could otherwise have the SDK copy prompts into traces.
            options["open_telemetry"] = False
        http = sdk.DefaultAsyncHttpxClient(
            trust_env=self._trust_env, follow_redirects=False, event_hooks=meter.hooks(http_library(sdk))
        )
        async with sdk.AsyncAnthropic(
            api_key=self._service.secret,
            base_url=self._service.address,
            max_retries=0,
            timeout=sdk.Timeout(None, connect=self._limits.connect_s),
            http_client=http,
            default_headers=IDENTITY,
            **options,
        ) as client:
            stream = await client.messages.create(
                model=self.model, max_tokens=request.max_tokens, stream=True, **_body(request)
            )
            async with stream:
                async for event in _events(stream, structured=request.output is not None):
                    yield event

    def _failure(self, error: Exception, *, received: bool) -> Failure:
        sdk = self._sdk()
        if isinstance(error, sdk.APIStatusError):
            body = error.body if isinstance(error.body, dict) else {}
            inner = body.get("error")
            said = inner if isinstance(inner, dict) else {}
            kind = str(said.get("type") or "")
            code = error.status_code if error.status_code >= 300 else _STATUS_BY_TYPE.get(kind, 500)
            return self._service.status(
                code, str(said.get("message") or ""), kind, retry_after(error.response.headers)
            )
        return self._service.transport(error, self._limits.connect_s, received=received)


def _body(request: CompletionRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [_turn(turn) for turn in request.messages]}
    if request.system:
        # The same for every question: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
    if (output := request.output) is not None:
        tool = {"name": output.name, "description": output.description, "input_schema": dict(output.schema)}
        body["tools"] = [tool]
        body["tool_choice"] = {"type": "tool", "name": output.name}
    return body


def _turn(turn: Message) -> dict[str, Any]:
    if turn.reused < _WORTH_CACHING:
        return {"role": turn.role, "content": turn.content}
    again, rest = turn.content[: turn.reused], turn.content[turn.reused :]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": again, "cache_control": _CACHED}]
    # The API refuses a block of blanks.
    return {
        "role": turn.role,
        "content": [*blocks, {"type": "text", "text": rest}] if rest.strip() else blocks,
    }


async def _events(stream: Any, *, structured: bool) -> AsyncGenerator[TextDelta | Finished, None]:
    reason: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached: int | None = None
    wanted, field = ("input_json_delta", "partial_json") if structured else ("text_delta", "text")
    async for event in stream:
        if event.type == "message_start":
            tokens_in, cached = _input(event.message.usage)
        elif event.type == "content_block_delta":
            yield TextDelta(words(getattr(event.delta, field)) if event.delta.type == wanted else "")
        elif event.type == "message_delta":
            reason = event.delta.stop_reason or reason
            tokens_out = tokens(event.usage.output_tokens)
        elif event.type == "message_stop" and reason is not None:
            yield Finished(_REASONS.get(reason, "end"), tokens_in, tokens_out, cached)


def _input(usage: Any) -> tuple[int | None, int | None]:
    """Returns all input tokens and those read from the cache; the API's ``input_tokens`` leaves both caches out."""
    fresh = tokens(usage.input_tokens)
    cached = tokens(getattr(usage, "cache_read_input_tokens", None))
    written = tokens(getattr(usage, "cache_creation_input_tokens", None))
    return (None if fresh is None else fresh + (cached or 0) + (written or 0)), cached

"""OpenAI's Chat Completions API through its SDK, at OpenAI or any server that speaks it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import ModuleType
from typing import Any

from copilotd.llm.bounds import IDENTITY, Meter, tokens, words
from copilotd.llm.failures import Failure, Service, retry_after
from copilotd.llm.streaming import Limits, StreamingProvider, http_library, quiet
from copilotd.types import CompletionRequest, Finished, OutputSchema, TextDelta

BASE_URL = "https://api.openai.com/v1"

# The SDK insists on a key; servers on one's own machine mostly want none.
_NO_KEY = "no-key"

_STATUS_BY_KIND = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "overloaded_error": 503,
}

_FORMAT = "response_format"

_REASONS = {"length": "length", "content_filter": "refusal"}


class OpenAIProvider(StreamingProvider):
    """Speaks Chat Completions. Address, organisation and project of the environment are not used."""

    def __init__(self, model: str, key: str, base_url: str, limits: Limits, key_file: str) -> None:
        official = base_url.rstrip("/") == BASE_URL
        title = "OpenAI" if official else f"The server at {base_url}"
        variable = "" if official else "OPENAI_BASE_URL"
        super().__init__(
            Service("openai", title, model, base_url, "OPENAI_API_KEY", variable, key, key_file), limits
        )
        # OpenAI's newer models refuse `max_tokens`; many other servers know nothing else.
        self._limit_name = "max_completion_tokens" if official else "max_tokens"
        # Servers that know no `response_format` of this kind mostly know functions.
        self._by_function = False

    def _sdk(self) -> ModuleType:
        import openai

        quiet("openai", "httpx", "httpx2", "httpcore", "httpcore2")
        return openai

    async def _attempt(
        self, request: CompletionRequest, meter: Meter
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        sdk = self._sdk()
        http = sdk.DefaultAsyncHttpxClient(
            trust_env=self._trust_env, follow_redirects=False, event_hooks=meter.hooks(http_library(sdk))
        )
        async with sdk.AsyncOpenAI(
            api_key=self._service.secret or _NO_KEY,
            base_url=self._service.address,
            max_retries=0,
            timeout=sdk.Timeout(None, connect=self._limits.connect_s),
            http_client=http,
            default_headers=IDENTITY,
        ) as client:
            # Set by OPENAI_ORG_ID and OPENAI_PROJECT_ID of the environment.
            client.organization = client.project = None
            messages = [{"role": turn.role, "content": turn.content} for turn in request.messages]
            if request.system:
                messages.insert(0, {"role": "system", "content": request.system})
            stream = await client.chat.completions.create(
                model=self.model,
                messages=messages,
                stream=True,
                stream_options={"include_usage": True},
                **{self._limit_name: request.max_tokens},
                **(self._shape(request.output) if request.output else {}),
            )
            async with stream:
                async for event in _events(stream, structured=request.output is not None):
                    yield event

    def _shape(self, output: OutputSchema) -> dict[str, Any]:
        described = {"name": output.name, "description": output.description}
        schema = _strict(output.schema)
        if not self._by_function:
            shape = {**described, "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": shape}}
        function = {**described, "parameters": schema}
        return {
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": output.name}},
        }

    def _failure(self, error: Exception, *, received: bool) -> Failure:
        sdk = self._sdk()
        if isinstance(error, sdk.APIConnectionError):
            return self._service.transport(error, self._limits.connect_s, received=received)
        if isinstance(error, sdk.APIResponseValidationError):
            return self._service.malformed()
        if isinstance(error, sdk.APIError):
            body = error.body if isinstance(error.body, dict) else {}
            kind = str(body.get("code") or body.get("type") or "")
            said = str(body.get("message") or "")
            if not isinstance(error, sdk.APIStatusError):  # an error object inside a 200 stream
                return self._service.status(_STATUS_BY_KIND.get(kind, 500), said, kind)
            failure = self._service.status(error.status_code, said, kind, retry_after(error.response.headers))
            if (
                error.status_code == 400
                and "max_completion_tokens" in said
                and self._limit_name == "max_tokens"
            ):
                self._limit_name = "max_completion_tokens"
                return Failure(failure.error, retryable=True, wait_s=0.0)
            if error.status_code in (400, 422) and not self._by_function and _FORMAT in _all_said(error):
                self._by_function = True
                return Failure(failure.error, retryable=True, wait_s=0.0)
            return failure
        return self._service.transport(error, self._limits.connect_s, received=received)


async def _events(stream: Any, *, structured: bool) -> AsyncGenerator[TextDelta | Finished, None]:
    reason: str | None = None
    refused = False
    usage: Any = None
    async for chunk in stream:
        # The last chunk has the usage and no choice: stream_options of the API reference.
        usage = chunk.usage or usage
        for choice in chunk.choices or ():
            delta = choice.delta
            refusal = words(getattr(delta, "refusal", None))
            refused = refused or bool(refusal)
            called = "".join(
                words(call.function.arguments)
                for call in (getattr(delta, "tool_calls", None) or () if structured else ())
                if call.function is not None
            )
            yield TextDelta((words(delta.content) if delta is not None else "") or refusal or called)
            reason = choice.finish_reason or reason
    if reason is not None:
        end = "refusal" if refused else _REASONS.get(reason, "end")
        yield Finished(
            end,
            tokens(getattr(usage, "prompt_tokens", None)),
            tokens(getattr(usage, "completion_tokens", None)),
            tokens(getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)),
        )


def _all_said(error: Any) -> str:
    """Returns the whole error body: where a server says what it does not know differs."""
    return f"{error.body} {error.message}"


def _strict(schema: Any) -> Any:
    """Returns ``schema`` as strict mode wants it: no further fields, every field required, no defaults.

    https://platform.openai.com/docs/guides/structured-outputs
    """
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    strict = {name: _strict(value) for name, value in schema.items() if name != "default"}
    if isinstance(strict.get("properties"), dict):
        strict |= {"additionalProperties": False, "required": list(strict["properties"])}
    return strict

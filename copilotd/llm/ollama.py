"""Ollama's /api/chat through its client library."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import ModuleType
from typing import Any

from copilotd.llm.bounds import IDENTITY, Meter, tokens, words
from copilotd.llm.failures import Failure, Service, causes, retry_after
from copilotd.llm.streaming import Limits, StreamingProvider, quiet
from copilotd.types import CompletionRequest, Finished, TextDelta

BASE_URL = "http://localhost:11434"

# Ollama cuts a prompt that is longer than `num_ctx` from its front without a word, and its default is
# 2,048 or 4,096 tokens. Steps, because each other value makes it load the model again.
_CONTEXT_STEPS = (4096, 8192, 16384, 32768, 65536, 131072)
_CHARS_PER_TOKEN = 2.5  # low on purpose: code and other scripts than Latin take more tokens


class OllamaProvider(StreamingProvider):
    """Speaks to Ollama. The address is always given, so the library takes none from the environment."""

    def __init__(self, model: str, base_url: str, limits: Limits) -> None:
        service = Service("ollama", "Ollama", model, base_url, "OLLAMA_API_KEY", "OLLAMA_BASE_URL", "", "")
        super().__init__(service, limits)

    def _sdk(self) -> ModuleType:
        import ollama

        quiet("ollama", "httpx", "httpcore")
        return ollama

    async def _attempt(
        self, request: CompletionRequest, meter: Meter
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        import httpx

        sdk = self._sdk()
        limits = self._limits
        client = sdk.AsyncClient(
            host=self._service.address,
            timeout=(limits.connect_s, None, None, limits.connect_s),
            follow_redirects=False,
            trust_env=self._trust_env,
            headers=IDENTITY,
            event_hooks=meter.hooks(httpx),
        )
        async with client:
            messages = [{"role": turn.role, "content": turn.content} for turn in request.messages]
            if request.system:
                messages.insert(0, {"role": "system", "content": request.system})
            stream = await client.chat(
                model=self.model,
                messages=messages,
                stream=True,
                format=None if request.output is None else dict(request.output.schema),
                options={"num_predict": request.max_tokens, "num_ctx": context_tokens(request)},
            )
            async for event in _events(stream):
                yield event

    def _failure(self, error: Exception, *, received: bool) -> Failure:
        sdk = self._sdk()
        if isinstance(error, sdk.ResponseError):
            said = str(error.error)
            code = error.status_code
            if code < 300:  # an error line inside a 200 stream
                code = 404 if "not found" in said.lower() else 500
            # The library drops the headers; the HTTP error it came from still has them.
            responses = [getattr(cause, "response", None) for cause in causes(error)]
            waits = [retry_after(response.headers) for response in responses if response is not None]
            return self._service.status(code, said, wait_s=waits[0] if waits else None)
        return self._service.transport(error, self._limits.connect_s, received=received)


async def _events(stream: Any) -> AsyncGenerator[TextDelta | Finished, None]:
    async for part in stream:
        yield TextDelta(words(part.message.content))
        if part.done:
            reason = "length" if part.done_reason == "length" else "end"
            yield Finished(reason, tokens(part.prompt_eval_count), tokens(part.eval_count))


def context_tokens(request: CompletionRequest) -> int:
    """Returns the ``num_ctx`` that holds the whole request and its answer."""
    chars = len(request.system) + sum(len(turn.content) for turn in request.messages)
    needed = int(chars / _CHARS_PER_TOKEN) + request.max_tokens
    return next((step for step in _CONTEXT_STEPS if step >= needed), needed)

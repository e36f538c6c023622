"""Drives one request: time limits, retries and cancelling, the same for every provider.

A provider describes one attempt as an async generator over its SDK. It is run here step by step on an
event loop of its own, in the caller's thread, because only a task that can be cancelled while it waits
lets go of a connection at once: a blocking read would hold it until the next byte.

Each request opens a fresh connection. A kept-alive one that died during sleep or behind a NAT would
hang instead of failing, and the handshake is small beside the time an LLM takes to begin.

The SDKs' own retries are off: they cannot see the time limit (they would sleep through it and then
report a time-out instead of the overload), they differ between the three, and Ollama's has none.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from copilotd.errors import Cancelled, CopilotError
from copilotd.llm.bounds import Meter
from copilotd.llm.failures import Failure, Service
from copilotd.llm.scrub import Secret, Thinking
from copilotd.text import printable
from copilotd.types import CompletionRequest, Finished, TextDelta

_POLL_S = 0.05  # how late a cancelled request is noticed
_LET_END_S = 1.0  # closing takes no answer of the other side
_BACKOFF_S = 0.5
_BACKOFF_LIMIT_S = 8.0
# A token has about four characters; more than twice that is no answer within the limit any more.
_CHARS_PER_TOKEN = 8
_CHARS_MARGIN = 4096
_HTTP_LIBRARIES = ("httpx", "httpx2")
_JITTER = random.SystemRandom()

_Event = TextDelta | Finished


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a request may take, in seconds.

    Attributes:
        connect_s: Until a connection stands.
        first_s: Until the first sign of life, all attempts and the waits between them together.
        between_s: Between two pieces of the answer.
        total_s: Until the end of the answer.
    """

    connect_s: float
    first_s: float
    between_s: float
    total_s: float

    @classmethod
    def within(cls, timeout_s: float) -> Limits:
        """Returns limits where nobody looks at a silent screen longer than ``timeout_s``."""
        return cls(min(10.0, timeout_s), timeout_s, timeout_s, 5 * timeout_s)


class StreamingProvider(ABC):
    """A :class:`~copilotd.types.Provider` whose subclasses only speak one SDK.

    Attributes:
        name: ``anthropic``, ``openai`` or ``ollama``.
        model: The model's name.
    """

    name: str
    model: str

    def __init__(self, service: Service, limits: Limits) -> None:
        self.name = service.name
        self.model = service.model
        self._service = service
        self._limits = limits
        # Proxies of the environment are used for TLS, where they only see an encrypted tunnel; over plain
        # HTTP (a model on this machine or network) they would be handed the documents.
        self._trust_env = service.address.startswith("https://")

    @abstractmethod
    def _sdk(self) -> ModuleType:
        """Imports the SDK, which costs up to seconds, and quietens its loggers."""

    @abstractmethod
    def _attempt(self, request: CompletionRequest, meter: Meter) -> AsyncGenerator[_Event, None]:
        """Sends the request once and yields what comes, watched by ``meter``; closes everything it opened.

        An empty piece of text is a sign of life: the model is thinking, and silence is counted anew.
        """

    @abstractmethod
    def _failure(self, error: Exception, *, received: bool) -> Failure:
        """Returns what an exception that left :meth:`_attempt` stands for."""

    def stream(self, request: CompletionRequest, cancelled: Callable[[], bool]) -> Iterator[_Event]:
        """Yields the answer as it comes and one Finished at the end; see :class:`~copilotd.types.Provider`.

        Raises:
            ProviderError: The provider did not give a usable answer.
            Cancelled: ``cancelled()`` turned true; the connection is closed.
        """
        self._sdk()  # before the clock starts: on a busy machine the import alone could use up the limit
        began = time.monotonic()
        attempt = 1
        while True:
            run = _Run(self, request, cancelled, began)
            try:
                yield from run.events()
                return
            except _AttemptFailed as failed:
                failure = failed.failure
                wait = failure.wait_s if failure.wait_s is not None else _backoff(attempt)
                in_time = time.monotonic() - began + wait < self._limits.first_s
                if run.received or not failure.retryable or attempt >= failure.attempts or not in_time:
                    raise failure.error from failed.__cause__
            _sleep(wait, cancelled)
            attempt += 1


class _AttemptFailed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


class _Run:
    """One attempt on an event loop of its own."""

    def __init__(
        self,
        provider: StreamingProvider,
        request: CompletionRequest,
        cancelled: Callable[[], bool],
        began: float,
    ) -> None:
        self.received = False
        self._provider = provider
        self._service = provider._service
        self._limits = provider._limits
        self._request = request
        self._cancelled = cancelled
        self._began = began
        self._last = began

    def events(self) -> Iterator[_Event]:
        """Yields the attempt's events, exactly one Finished at the end.

        Raises:
            _AttemptFailed: With what it stands for.
            Cancelled: The caller lost interest.
        """
        loop = asyncio.new_event_loop()
        meter = Meter()
        attempt = self._provider._attempt(self._request, meter)
        thinking, secret = Thinking(), Secret(self._service.secret)
        finished: Finished | None = None
        words = spoke = False
        room = _CHARS_PER_TOKEN * self._request.max_tokens + _CHARS_MARGIN
        try:
            while finished is None and (event := self._next(loop, attempt)) is not None:
                spoke = True
                if isinstance(event, Finished):
                    finished = event
                    text = ""
                else:
                    text = thinking.feed(printable(event.text))
                    self.received = self.received or bool(text.strip())
                    if len(text) > room:
                        text = text[:room]
                        finished = Finished("length")
                    room -= len(text)
                    text = secret.feed(text)
                if finished is not None:
                    text += secret.feed(thinking.close()) + secret.close()
                if text:
                    self.received = True
                    words = words or not text.isspace()
                    yield TextDelta(text)
                # After the yield: the time the reader of the answer takes is not the provider's silence.
                self._last = time.monotonic()
        finally:
            loop.run_until_complete(attempt.aclose())
            loop.run_until_complete(_let_end())
            loop.run_until_complete(loop.shutdown_asyncgens())
            # Not waiting for the executor: a name look-up in it cannot be interrupted.
            loop.close()
        if finished is None and (rest := secret.feed(thinking.close()) + secret.close()):
            yield TextDelta(rest)
        if finished is None and not spoke and meter.received:
            raise _AttemptFailed(self._service.malformed())
        if finished is None:
            raise _AttemptFailed(self._service.broken_off() if words else self._service.empty("end"))
        if not words and finished.reason != "refusal":
            raise _AttemptFailed(self._service.empty(finished.reason))
        yield finished

    def _next(self, loop: asyncio.AbstractEventLoop, attempt: AsyncGenerator[_Event, None]) -> _Event | None:
        async def step() -> _Event | None:
            return await anext(attempt, None)

        task = loop.create_task(step())
        try:
            while not task.done():
                if self._cancelled():
                    raise Cancelled("The question was cancelled.")
                timeout = min(_POLL_S, self._seconds_left())
                loop.run_until_complete(asyncio.wait({task}, timeout=timeout))
        finally:
            if not task.done():
                task.cancel()
                loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        try:
            return task.result()
        except CopilotError:
            raise
        except Exception as error:
            raise _AttemptFailed(self._provider._failure(error, received=self.received)) from error

    def _seconds_left(self) -> float:
        now = time.monotonic()
        limits = self._limits
        silence = ("sent nothing", limits.first_s, self._last)
        if self.received:
            silence = ("sent nothing more", limits.between_s, self._last)
        whole = ("did not finish", limits.total_s, self._began)
        for what, seconds, since in (silence, whole):
            if now - since >= seconds:
                raise _AttemptFailed(self._service.timed_out(what, seconds))
        return min(seconds - (now - since) for _, seconds, since in (silence, whole))


async def _let_end() -> None:
    """Waits for what the SDK left behind.

    A generator of its that nothing refers to any more is closed by a task of the loop's; closing it once more
    meanwhile is an error.
    """
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_LET_END_S)


def _backoff(attempt: int) -> float:
    return min(_BACKOFF_LIMIT_S, _BACKOFF_S * 2.0 ** (attempt - 1)) * _JITTER.uniform(0.5, 1.0)


def _sleep(seconds: float, cancelled: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if cancelled():
            raise Cancelled("The question was cancelled.")
        time.sleep(min(_POLL_S, left))


def quiet(*loggers: str) -> None:
    """Keeps libraries that would log requests, with documents and keys, at warnings.

    Called after an SDK's import, because importing sets its level from the environment (OPENAI_LOG…).
    """
    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)


def http_library(sdk: ModuleType) -> ModuleType:
    """Returns the HTTP library that the client class of ``sdk`` comes from: httpx or httpx2."""
    base = next(
        cls
        for cls in sdk.DefaultAsyncHttpxClient.__mro__
        if cls.__module__.partition(".")[0] in _HTTP_LIBRARIES
    )
    return import_module(base.__module__.partition(".")[0])

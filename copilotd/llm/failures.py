"""What can go wrong between us and an LLM service, as sentences a person understands.

Each sentence names the service, the model, the variable or the address, and the next step; none holds
a key. What a server says is repeated where a person needs it (which model is missing, what does not
fit) and no key is at stake: servers repeat keys whole, in parts, spaced out or reversed.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from copilotd.errors import (
    ProviderAuth,
    ProviderBadReply,
    ProviderContextTooLong,
    ProviderError,
    ProviderModelMissing,
    ProviderOverloaded,
    ProviderUnreachable,
)
from copilotd.text import one_line

# A request is worth repeating after these: https://platform.claude.com/docs/en/api/errors and
# https://platform.openai.com/docs/guides/error-codes (529 is Anthropic's "overloaded").
_RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504, 529})

# How the services say in a 400 that the request does not fit the model.
_TOO_LONG = (
    "prompt is too long",
    "input is too long",
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "exceed context limit",
    "exceeds the available context",
    "too many tokens",
    "reduce the length",
)

_PART = 6

# A longer wait is no advice to a person; servers have been seen to ask for days.
_LONGEST_WAIT = 900.0
_INSTEAD = "or ask with --extractive, which needs no provider"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt.

    Attributes:
        error: What to raise when it is not repeated.
        retryable: Whether another attempt may succeed.
        wait_s: How long the server asks to wait; None where it does not say.
        attempts: How often the request may be tried in all because of this failure.
    """

    error: ProviderError
    retryable: bool = False
    wait_s: float | None = None
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class Service:
    """Who is spoken to, and what its failures are called.

    Attributes:
        name: ``anthropic``, ``openai`` or ``ollama``.
        title: Its name at the start of a sentence.
        model: The model asked for.
        address: The base URL.
        key_variable: Where its key is set.
        address_variable: Where its address is set; empty where it is fixed.
        secret: The key, so that it can be removed from what a server repeats.
        key_file: Where variables are set, for messages.
    """

    name: str
    title: str
    model: str
    address: str
    key_variable: str
    address_variable: str
    secret: str
    key_file: str

    @property
    def _who(self) -> str:
        """The name with the address, once."""
        return self.title if self.address in self.title else f"{self.title} at {self.address}"

    def quoted(self, said: str) -> str:
        """Returns what a server said, short and printable; nothing where it repeats a part of the key."""
        said = one_line(said, 200)
        return "" if self.secret and _holds_part(said, self.secret) else said

    def status(self, code: int, said: str = "", kind: str = "", wait_s: float | None = None) -> Failure:
        """Returns the failure an HTTP status stands for.

        Args:
            code: The status, or the one an error inside a 200 stream corresponds to.
            said: The server's message.
            kind: The server's own name of the error.
            wait_s: Its ``retry-after``.
        """
        lower = f"{kind} {said}".lower()
        too_long = code == 413 or (code in (400, 422, 500) and any(phrase in lower for phrase in _TOO_LONG))
        # Any other message of a server that was given a key may be about the key.
        message = self.quoted(said) if code == 404 or too_long or not self.secret else ""
        detail = f": {message}" if message else ""
        where = f" in {self.key_file}" if self.key_file else ""
        if code in (401, 403):
            return Failure(self._rejected(code, where))
        if 300 <= code < 400:
            hint = f"set {self.address_variable} to the final address" if self.address_variable else ""
            text = f"{self.title} redirects to another address ({code}); documents are not sent there."
            return Failure(ProviderUnreachable(text, hint))
        if too_long:
            text = (
                f"Question and passages do not fit the context window of {self.model} ({self.title}){detail}"
            )
            return Failure(
                ProviderContextTooLong(text, f"lower TOP_K, choose a model with a larger window, {_INSTEAD}")
            )
        if code == 404:
            return Failure(self._model_missing(detail))
        if code == 402 or "insufficient_quota" in lower or "billing" in lower:
            text = f"{self.title} refuses because the account's quota or credit is used up ({code}){detail}"
            return Failure(ProviderOverloaded(text, f"check the plan and billing of the account, {_INSTEAD}"))
        if code in (429, 503, 529):
            what = "limits the rate of requests" if code == 429 else "is overloaded"
            later = "try again in a minute"
            if wait_s:
                later = "try again later" if wait_s > _LONGEST_WAIT else f"wait {math.ceil(wait_s)} s"
            text = f"{self.title} {what} ({code}) for {self.model}{detail}"
            return Failure(ProviderOverloaded(text, f"{later}, {_INSTEAD}"), True, wait_s)
        if code in _RETRYABLE or code >= 500:
            text = f"{self.title} failed on its side ({code}) with {self.model}{detail}"
            return Failure(ProviderError(text, f"try again, {_INSTEAD}"), True, wait_s)
        return Failure(ProviderError(f"{self.title} refused the request to {self.model} ({code}){detail}"))

    def _rejected(self, code: int, where: str) -> ProviderError:
        if not self.secret:
            text = f"{self.title} wants a key ({code}) and none is set."
            return ProviderAuth(text, f"set {self.key_variable}{where}")
        if code == 401:
            text = f"{self.title} rejected the key in {self.key_variable} (401)."
            return ProviderAuth(text, f"check {self.key_variable}{where}")
        text = f"{self.title} does not allow this key to use {self.model} (403)."
        return ProviderAuth(text, f"check the rights of the key in {self.key_variable}{where}, and LLM_MODEL")

    def _model_missing(self, detail: str) -> ProviderError:
        if self.name == "ollama":
            text = f"Ollama at {self.address} does not have the model {self.model}."
            return ProviderModelMissing(text, f"ollama pull {self.model}")
        text = f"{self.title} does not know the model {self.model} (404){detail}"
        also = (
            f"; check that {self.address_variable} is right (most end in /v1)"
            if self.address_variable
            else ""
        )
        return ProviderModelMissing(text, f"set LLM_MODEL to a model your account can use{also}")

    def unreachable(self, error: BaseException) -> Failure:
        """Returns the failure of a connection that could not be made or gave nothing."""
        chain = list(causes(error))
        start = "start it (ollama serve)" if self.name == "ollama" else "check that it is running"
        hint = f"check the network, {_INSTEAD}"
        if self.address_variable:
            hint = f"{start}, check {self.address_variable}, {_INSTEAD}"
        if any(isinstance(cause, ConnectionRefusedError) for cause in chain):
            return Failure(
                ProviderUnreachable(f"{self.title} is not running: {self.address} refuses connections.", hint)
            )
        if any(isinstance(cause, socket.gaierror) for cause in chain):
            text = f"{self.title} cannot be found: the name in {self.address} does not resolve."
            return Failure(ProviderUnreachable(text, hint))
        if any(isinstance(cause, ssl.SSLError) for cause in chain):
            text = f"{self.title} cannot be trusted: the TLS handshake with {self.address} failed."
            return Failure(ProviderUnreachable(text, hint))
        text = f"{self._who} closed the connection before anything was received."
        return Failure(ProviderUnreachable(text, f"try again, {hint}"), retryable=True, attempts=2)

    def timed_out(self, what: str, seconds: float) -> Failure:
        """Returns the failure of a time limit; ``what`` did not happen within ``seconds``."""
        text = f"{self._who} {what} within {seconds:g} s."
        return Failure(ProviderUnreachable(text, f"try again, raise PROVIDER_TIMEOUT_S, {_INSTEAD}"))

    def broken_off(self) -> Failure:
        """Returns the failure of a stream that ended before the answer did."""
        text = f"The answer of {self.model} broke off: {self.title} closed the connection before its end."
        return Failure(ProviderBadReply(text, f"try again, {_INSTEAD}"))

    def malformed(self) -> Failure:
        """Returns the failure of a reply that is not what the API describes."""
        text = f"{self._who} sent a reply that cannot be read as an answer."
        hint = (
            f"check {self.address_variable}, {_INSTEAD}"
            if self.address_variable
            else f"try again, {_INSTEAD}"
        )
        return Failure(ProviderBadReply(text, hint))

    def empty(self, reason: str) -> Failure:
        """Returns the failure of a reply without words; ``reason`` is how it ended."""
        if reason == "length":
            text = f"{self.model} ({self.title}) reached the output limit before its answer began."
            return Failure(ProviderBadReply(text, f"raise MAX_ANSWER_TOKENS, {_INSTEAD}"))
        return Failure(
            ProviderBadReply(f"The answer of {self.model} ({self.title}) is empty.", f"try again, {_INSTEAD}")
        )

    def transport(self, error: BaseException, connect_s: float, *, received: bool) -> Failure:
        """Returns what an error of the HTTP library or of decoding stands for.

        Args:
            error: What was raised below the SDK's own exceptions.
            connect_s: The time limit for connecting.
            received: Whether a part of the answer had arrived.
        """
        chain = list(causes(error))
        # The SDKs bring different HTTP libraries (httpx, httpx2) with the same class names.
        names = {type(cause).__name__ for cause in chain}
        if {"ConnectTimeout", "PoolTimeout"} & names:
            return self.timed_out("could not be connected to", connect_s)
        # A failed certificate is a ValueError, too. The others are what an SDK stumbles into over fields
        # of the wrong type, and over JSON nested too deep.
        stumbled = isinstance(error, (TypeError, AttributeError, LookupError, AssertionError, RecursionError))
        certificate = any(isinstance(cause, ssl.SSLError) for cause in chain)
        if not certificate and (stumbled or any(isinstance(cause, ValueError) for cause in chain)):
            return self.malformed()
        return self.broken_off() if received else self.unreachable(error)


def _holds_part(said: str, secret: str) -> bool:
    """Returns whether six characters of ``secret`` in a row stand in ``said``, spaced, reversed or not."""
    flat, key = (re.sub(r"[\W_]+", "", text).casefold() for text in (said, secret))
    parts = {key[start : start + _PART] for start in range(max(1, len(key) - _PART + 1))}
    return any(part and (part in flat or part[::-1] in flat) for part in parts)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields ``error`` and everything it came from, groups included."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
        waiting += [current.__cause__, current.__context__]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds a server asks to wait, from ``retry-after-ms`` or ``retry-after``."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if not value:
            continue
        try:
            seconds = float(value) * scale
            return max(0.0, seconds) if math.isfinite(seconds) else None
        except ValueError:
            pass
        try:
            moment = parsedate_to_datetime(value)
            return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
        except (ValueError, OverflowError, TypeError):
            continue
    return None

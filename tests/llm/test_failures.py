"""Failures as sentences: what servers say is shortened and cleaned, what they ask for is heard."""

from __future__ import annotations

import math
import socket
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from copilotd.errors import ProviderContextTooLong, ProviderOverloaded, ProviderUnreachable
from copilotd.llm.failures import Service, retry_after

KEY = "sk-abcdef-ghijkl-0123456789"

SERVICE = Service(
    "openai", "OpenAI", "gpt-test", "https://api.openai.com/v1", "OPENAI_API_KEY", "", "sk-key", "F"
)
LOCAL = Service("ollama", "Ollama", "llama", "http://box:11434", "OLLAMA_API_KEY", "OLLAMA_BASE_URL", "", "")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 -2300"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date() -> None:
    later = datetime.now(UTC) + timedelta(seconds=30)
    wait = retry_after({"retry-after": format_datetime(later, usegmt=True)})
    assert wait is not None
    assert 25 < wait <= 30


def test_what_a_server_says_is_short_printable_and_without_the_key() -> None:
    failure = SERVICE.status(400, "bad\x1b[2J key sk-key " + "word " * 100)
    assert "sk-key" not in failure.error.message
    assert "\x1b" not in failure.error.message
    assert len(failure.error.message) < 300


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 422, 429, 500, 503, 529])
@pytest.mark.parametrize(
    "repeated",
    [
        KEY,
        KEY[:9] + "…" + KEY[-8:],
        " ".join(KEY),
        KEY[::-1],
        "-".join(KEY[::-1]),
        KEY.upper(),
        "context length " + KEY[4:],
    ],
)
def test_no_form_of_the_key_is_repeated(code: int, repeated: str) -> None:
    service = replace(SERVICE, secret=KEY)
    error = service.status(code, f"the key is {repeated}, they say").error
    assert "they say" not in f"{error.message} {error.hint}"


def test_what_a_server_without_a_key_says_is_repeated() -> None:
    assert "more system memory" in LOCAL.status(500, "model requires more system memory").error.message
    assert "no such model" in SERVICE.status(404, "no such model").error.message


def test_a_wait_of_less_than_a_second_is_rounded_up() -> None:
    assert "wait 1 s" in SERVICE.status(529, wait_s=0.01).error.hint


@pytest.mark.parametrize("wait", [999_999.0, 901.0, math.inf])
def test_a_wait_nobody_waits_is_not_repeated(wait: float) -> None:
    hint = SERVICE.status(429, wait_s=wait).error.hint
    assert "try again later" in hint
    assert "wait" not in hint.replace("later", "")


@pytest.mark.parametrize(
    "error", [TypeError(), AttributeError(), IndexError(), RecursionError(), ValueError()]
)
@pytest.mark.parametrize("received", [True, False])
def test_a_field_of_the_wrong_type_is_a_reply_that_cannot_be_read(error: Exception, received: bool) -> None:
    assert "cannot be read" in SERVICE.transport(error, 1.0, received=received).error.message


def test_a_bad_certificate_is_no_unreadable_reply() -> None:
    failure = SERVICE.transport(ssl.SSLCertVerificationError(), 1.0, received=False)
    assert "TLS" in failure.error.message


@pytest.mark.parametrize(
    "said",
    [
        "prompt is too long: 212000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens.",
        "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
        "the request exceeds the available context size (4096 tokens)",
        "Input is too long for requested model.",
    ],
)
def test_the_context_limit_is_recognised_in_the_services_own_words(said: str) -> None:
    assert isinstance(SERVICE.status(400, said).error, ProviderContextTooLong)


def test_a_used_up_quota_is_not_retried() -> None:
    failure = SERVICE.status(429, "You exceeded your current quota", "insufficient_quota")
    assert isinstance(failure.error, ProviderOverloaded)
    assert not failure.retryable
    assert "billing" in failure.error.hint


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (ConnectionRefusedError(), "not running"),
        (socket.gaierror(), "does not resolve"),
        (ssl.SSLError(), "TLS"),
        (ConnectionResetError(), "closed the connection"),
    ],
)
def test_why_nothing_was_reached_is_found_below_the_libraries_errors(cause: Exception, words: str) -> None:
    outer = OSError("All connection attempts failed")
    outer.__cause__ = ExceptionGroup("several addresses", [ValueError("other"), cause])
    failure = LOCAL.unreachable(outer)
    assert isinstance(failure.error, ProviderUnreachable)
    assert words in failure.error.message
    assert "http://box:11434" in failure.error.message
    assert "ollama serve" in failure.error.hint
    assert failure.retryable == (words == "closed the connection")

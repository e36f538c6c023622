"""From settings to a provider: what is refused before any request, and what the environment may not change."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from support.llm_servers import AnthropicDialect, OllamaDialect, OpenAIDialect, Reply, serving

from copilotd.errors import ProviderAuth, SettingsError
from copilotd.llm import complete, make_provider
from copilotd.types import CompletionRequest, Message, Provider

FILE = "/home/me/.config/copilot/.env"
REQUEST = CompletionRequest("Be brief.", (Message("user", "the document's secret words"),))


def make(name: str, **changes: str) -> Provider | None:
    arguments = {
        "model": "some-model",
        "anthropic_api_key": "sk-ant-test",
        "openai_api_key": "sk-test",
        "openai_base_url": "",
        "ollama_base_url": "",
        "key_file_hint": FILE,
        **changes,
    }
    return make_provider(name, timeout_s=5.0, **arguments)


def made(name: str, **changes: str) -> Provider:
    provider = make(name, **changes)
    assert provider is not None
    return provider


@pytest.mark.parametrize("name", ["", " ", "extractive", "Extractive"])
def test_no_provider_means_extractive(name: str) -> None:
    assert make(name, model="") is None


@pytest.mark.parametrize("name", ["anthropic", "openai", "ollama", " Anthropic "])
def test_a_provider_knows_its_name_and_model(name: str) -> None:
    provider = made(name)
    assert (provider.name, provider.model) == (name.strip().lower(), "some-model")


def test_an_unknown_provider_is_refused_with_the_choice() -> None:
    with pytest.raises(SettingsError, match="LLM_PROVIDER is 'gemini'") as caught:
        make("gemini")
    assert "anthropic, openai, ollama or extractive" in caught.value.hint


@pytest.mark.parametrize("name", ["anthropic", "openai", "ollama"])
def test_a_missing_model_names_its_variable(name: str) -> None:
    with pytest.raises(RuntimeError, match=f"no model for {name}: set LLM_MODEL in {FILE}"):
        make(name, model=" ")


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_all_that_is_missing_is_named_at_once(name: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        make(name, model="", **{f"{name}_api_key": ""})
    variables = f"LLM_MODEL and {name.upper()}_API_KEY"
    assert str(caught.value) == f"The daemon has no model and no key for {name}: set {variables} in {FILE}"


@pytest.mark.parametrize("key", ["", " ", "\n"])
@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_a_missing_key_names_its_variable_before_any_request(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QRY-26."""
    monkeypatch.setenv(f"{name.upper()}_API_KEY", "sk-of-the-environment")
    with pytest.raises(RuntimeError) as caught:
        make(name, **{f"{name}_api_key": key})
    assert str(caught.value) == f"The daemon has no key for {name}: set {name.upper()}_API_KEY in {FILE}"


@pytest.mark.parametrize("key", ["sk test", "sk-test\nsk-other", "sk-tést", "sk-\x00test"])
@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_a_key_that_cannot_be_one_is_refused_without_showing_it(name: str, key: str) -> None:
    """QRY-27."""
    with pytest.raises(SettingsError, match=f"{name.upper()}_API_KEY has") as caught:
        make(name, **{f"{name}_api_key": key})
    assert "sk" not in f"{caught.value.message}{caught.value.hint}".replace("LLM", "")


@pytest.mark.parametrize("key", ["sk-test\n", " sk-test ", "\tsk-test\r\n"])
def test_blanks_around_a_key_are_removed(key: str) -> None:
    """QRY-27."""
    with serving(AnthropicDialect().answer("yes")) as server:
        complete(made("anthropic", anthropic_api_key=key, anthropic_base_url=server.url), REQUEST)
    headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
    # Which of the two depends on the SDK's version.
    assert headers.get("x-api-key") == "sk-test" or headers.get("authorization") == "Bearer sk-test"
    with serving(OpenAIDialect().answer("yes")) as server:
        complete(made("openai", openai_api_key=key, openai_base_url=f"{server.url}/v1/"), REQUEST)
    headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert headers["authorization"] == "Bearer sk-test"


def test_a_server_of_ones_own_needs_no_key() -> None:
    with serving(OpenAIDialect().answer("yes")) as server:
        assert (
            complete(made("openai", openai_api_key="", openai_base_url=f"{server.url}/v1"), REQUEST).text
            == "yes"
        )


def test_a_server_that_wants_a_key_after_all_is_told_apart() -> None:
    with serving(OpenAIDialect().error(401)) as server, pytest.raises(ProviderAuth) as caught:
        complete(made("openai", openai_api_key="", openai_base_url=f"{server.url}/v1"), REQUEST)
    assert "wants a key (401) and none is set" in caught.value.message
    assert caught.value.hint == f"set OPENAI_API_KEY in {FILE}"


@pytest.mark.parametrize(
    "url", ["localhost:11434", "ftp://host", "http://", "http://me:secret@host", "http://[x"]
)
def test_an_unusable_address_is_refused_without_repeating_it(url: str) -> None:
    for name, variable in (("openai", "OPENAI_BASE_URL"), ("ollama", "OLLAMA_BASE_URL")):
        with pytest.raises(SettingsError, match=variable) as caught:
            make(name, **{variable.lower(): url})
        assert "secret" not in caught.value.message


def test_the_environment_does_not_choose_where_documents_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Reply(500)) as elsewhere:
        for variable in (
            "ANTHROPIC_BASE_URL",
            "OPENAI_BASE_URL",
            "OLLAMA_HOST",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ):
            monkeypatch.setenv(variable, elsewhere.url)
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-environment")
        monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-the-environment")
        with serving(AnthropicDialect().answer("yes")) as server:
            complete(made("anthropic", anthropic_base_url=server.url), REQUEST)
        anthropic_headers = server.requests[0].headers
        with serving(OpenAIDialect().answer("yes")) as server:
            complete(made("openai", openai_base_url=f"{server.url}/v1"), REQUEST)
        openai_headers = server.requests[0].headers
        with serving(OllamaDialect().answer("yes")) as server:
            complete(made("ollama", ollama_base_url=server.url), REQUEST)
        assert elsewhere.connections == 0
    assert "of-the-environment" not in json.dumps([dict(anthropic_headers), dict(openai_headers)])


def test_openai_itself_is_asked_with_its_newer_limit_and_others_with_the_older() -> None:
    with serving(OpenAIDialect().answer("yes")) as server:
        complete(made("openai", openai_base_url=f"{server.url}/v1"), REQUEST)
    assert server.requests[0].body["max_tokens"] == 1024
    assert "max_completion_tokens" not in server.requests[0].body


def test_a_server_that_refuses_the_older_limit_gets_the_newer() -> None:
    message = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    body = {
        "error": {"message": message, "type": "invalid_request_error", "param": "max_tokens", "code": None}
    }
    refusal = Reply(400, {"content-type": "application/json"}, (json.dumps(body).encode(),))
    with serving(refusal, OpenAIDialect().answer("yes")) as server:
        provider = made("openai", openai_base_url=f"{server.url}/v1")
        assert complete(provider, REQUEST).text == "yes"
        assert complete(provider, REQUEST).text == "yes"
    assert [("max_completion_tokens" in request.body) for request in server.requests] == [False, True, True]


def test_ollama_is_given_a_context_that_holds_the_request() -> None:
    with serving(OllamaDialect().answer("yes")) as server:
        provider = made("ollama", ollama_base_url=server.url)
        complete(provider, REQUEST)
        complete(provider, CompletionRequest("", (Message("user", "word " * 8000),), max_tokens=500))
    options = [request.body["options"] for request in server.requests]
    assert options == [{"num_predict": 1024, "num_ctx": 4096}, {"num_predict": 500, "num_ctx": 32768}]


def test_logs_hold_neither_keys_nor_documents(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    monkeypatch.setenv("ANTHROPIC_LOG", "debug")
    with caplog.at_level(logging.DEBUG):
        with serving(AnthropicDialect().answer("yes")) as server:
            complete(made("anthropic", anthropic_base_url=server.url), REQUEST)
        with serving(OpenAIDialect().answer("yes")) as server:
            complete(made("openai", openai_base_url=f"{server.url}/v1"), REQUEST)
        with serving(OllamaDialect().answer("yes")) as server:
            complete(made("ollama", ollama_base_url=server.url), REQUEST)
    assert "secret words" not in caplog.text
    assert "sk-" not in caplog.text


def test_a_provider_costs_no_import_until_it_is_asked() -> None:
    code = (
        "import sys\n"
        "from copilotd.llm import make_provider\n"
        "make_provider('openai', model='m', anthropic_api_key='', openai_api_key='k', openai_base_url='',\n"
        "              ollama_base_url='', timeout_s=1.0)\n"
        "print(sorted({'anthropic', 'openai', 'ollama', 'httpx', 'pydantic'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"

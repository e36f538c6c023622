"""Settings are read once, checked together, and keep their secrets."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dotenv
import pytest
from support.shared import REPOSITORY

from copilotd.api.service import provider_factory
from copilotd.errors import SettingsError
from copilotd.llm import make_provider
from copilotd.paths import find_places
from copilotd.settings import Secret, Settings, load_settings, provider_arguments, setting_names


@pytest.fixture
def env_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The settings file of a home of its own; no setting is in the environment."""
    for name in list(os.environ):
        if name.startswith("XDG_") or name in setting_names():
            monkeypatch.delenv(name)
    with tempfile.TemporaryDirectory(prefix="h") as folder:
        monkeypatch.setenv("HOME", folder)
        file = find_places().env_file
        file.parent.mkdir(parents=True)
        file.touch(mode=0o600)
        yield file


def test_defaults_are_those_of_the_specification(env_file: Path) -> None:
    settings = load_settings()
    assert settings.llm_provider == "extractive"
    assert settings.llm_model == ""
    assert settings.ollama_base_url == "http://localhost:11434"
    assert settings.embed_model == "all-MiniLM-L6-v2"
    assert (settings.top_k, settings.confidence_threshold) == (5, 0.5)
    assert (settings.max_chunk_chars, settings.chunk_overlap_chars) == (2000, 250)
    assert settings.warnings == ()


def test_places_are_the_ones_the_client_computes(env_file: Path) -> None:
    env_file.write_text("INDEX_DIR=idx\nLOG_FILE=my.log\n")
    settings, places = load_settings(), find_places()
    assert settings.index_dir == places.index_dir == env_file.parent / "idx"
    assert settings.copilot_socket == places.socket
    assert settings.log_file == env_file.parent / "my.log"
    assert settings.copilot_env_file == env_file


def test_environment_wins_values_are_trimmed_and_empty_is_unset(
    env_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_file.write_text("TOP_K=7\nLLM_MODEL='  m  '\nMIN_SCORE=\nLOG_LEVEL=debug\n")
    monkeypatch.setenv("TOP_K", " 9\n")
    monkeypatch.setenv("LLM_MODEL", " ")
    settings = load_settings()
    assert (settings.top_k, settings.llm_model, settings.min_score) == (9, "m", 0.0)
    assert settings.log_level == "DEBUG"


def test_a_dollar_in_a_value_is_a_dollar(env_file: Path) -> None:
    env_file.write_text("OPENAI_API_KEY=a${HOME}$b\n")
    assert load_settings().openai_api_key.reveal() == "a${HOME}$b"


def test_the_env_file_of_the_current_directory_is_not_read(
    env_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text(
        "LLM_PROVIDER=openai\nOPENAI_BASE_URL=http://evil.example\nINDEX_DIR=/evil\n"
    )
    expected = load_settings()
    monkeypatch.chdir(tmp_path)
    assert load_settings() == expected


def test_every_wrong_variable_is_named_at_once_with_its_source(
    env_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_file.write_text("LLM_PROVIDER=gpt\nCONFIDENCE_THRESHOLD=1.5\n")
    monkeypatch.setenv("TOP_K", "many")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = caught.value.message
    assert message.startswith("3 settings are wrong:")
    for words in (
        "LLM_PROVIDER must be one of",
        "CONFIDENCE_THRESHOLD",
        "TOP_K",
        "environment",
        str(env_file),
    ):
        assert words in message


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TOP_K", "0"), ("TOP_K", "2.5"), ("CONFIDENCE_THRESHOLD", "nan"), ("MODEL_WAIT_S", "-1"),
        ("REQUEST_TIMEOUT_S", "inf"), ("OLLAMA_BASE_URL", "localhost:11434"), ("OPENAI_BASE_URL", "ftp://x"),
        ("OPENAI_BASE_URL", "http://"), ("OPENAI_BASE_URL", "http://a:99999"), ("LLM_MODEL", "a\x1bb"),
        ("LOG_LEVEL", "loud"), ("MAX_MESSAGE_BYTES", "10"), ("COPILOT_SOCKET", "/" + "s" * 200),
        ("CHUNK_OVERLAP_CHARS", "1500"), ("CITATION_CHECK", "maybe"), ("PRICE_INPUT", "-1"),
        ("MAX_ANSWER_TOKENS", "5000"), ("CONTEXT_TOKENS", "10"), ("COPILOT_ENV_FILE", "/nowhere/.env"),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(
    env_file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=variable) as caught:
        load_settings()
    assert caught.value.message.isprintable()
    assert isinstance(caught.value, RuntimeError)


def test_unknown_names_give_a_warning_with_the_near_name(env_file: Path) -> None:
    env_file.write_text("LLM_PROVDER=openai\nZZZ=1\n")
    near, far = load_settings().warnings
    assert "LLM_PROVDER" in near
    assert "did you mean LLM_PROVIDER?" in near
    assert "ZZZ" in far
    assert "mean" not in far


def test_a_file_open_to_others_gives_a_warning_with_the_remedy(env_file: Path) -> None:
    env_file.chmod(0o644)
    (warning,) = load_settings().warnings
    assert f"chmod 600 {env_file}" in warning


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o640, 0o604])
def test_a_file_with_a_key_that_others_may_write_or_read_gives_a_warning(env_file: Path, mode: int) -> None:
    env_file.write_text("OPENAI_API_KEY=sk-hush\n")
    env_file.chmod(mode)
    (warning,) = load_settings().warnings
    assert f"chmod 600 {env_file}" in warning
    assert "sk-hush" not in warning


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
def test_a_file_of_another_user_is_refused_by_name(env_file: Path) -> None:
    env_file.write_text("LLM_PROVIDER=openai\n")
    os.chown(env_file, 65534, 65534)
    with pytest.raises(SettingsError, match=f"{env_file} belongs to user 65534"):
        load_settings()
    with pytest.raises(SettingsError, match="belongs to user 65534"):
        find_places()


def test_secrets_never_show_themselves(env_file: Path) -> None:
    env_file.write_text("OPENAI_API_KEY=sk-hush\nOPENAI_BASE_URL=http://u:pw9@h/v1/\n")
    settings = load_settings()
    assert "sk-hush" not in repr(settings)
    assert "sk-hush" not in f"{settings.openai_api_key} {settings.openai_api_key!r}"
    assert settings.secrets() == ("sk-hush", "pw9")
    assert not Secret()
    assert Secret("a") == Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1


# ------------------------------------------------------------------------------------ the provider


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("LLM_PROVIDER=openai\n", "LLM_MODEL"),
        ("LLM_PROVIDER=openai\nLLM_MODEL=m\n", "OPENAI_API_KEY"),
        ("LLM_PROVIDER=anthropic\nLLM_MODEL=m\n", "ANTHROPIC_API_KEY"),
        ("LLM_PROVIDER=ollama\n", "LLM_MODEL"),
    ],
)
def test_what_the_provider_lacks_is_a_runtime_error_that_names_variable_and_file(
    env_file: Path, text: str, variable: str
) -> None:
    env_file.write_text(text)
    settings = load_settings()
    with pytest.raises(RuntimeError, match=f"{variable}.*{env_file}"):
        make_provider(**provider_arguments(settings))


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"])
def test_a_missing_key_is_said_of_the_daemon_with_its_file_and_the_command(
    env_file: Path, variable: str
) -> None:
    """The key may well be exported in the shell that asks."""
    env_file.write_text(f"LLM_PROVIDER={variable.partition('_')[0].lower()}\nLLM_MODEL=m\n")
    make = provider_factory(load_settings())
    with pytest.raises(SettingsError) as caught:
        make()
    assert caught.value.message.startswith("The daemon has no key")
    assert f"{variable} in {env_file}" in caught.value.message
    assert "your shell" in caught.value.hint
    assert caught.value.hint.startswith(f"copilot config set {variable} ")


def test_extractive_is_no_provider(env_file: Path) -> None:
    assert make_provider(**provider_arguments(load_settings())) is None


# ------------------------------------------------------------------------------------ .env.example


def example() -> dict[str, str]:
    lines = (REPOSITORY / ".env.example").read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.removeprefix("#").partition("=")
        if equals and name.isupper() and " " not in name:
            found[name] = value
    return found


def test_the_example_file_explains_exactly_the_settings_there_are() -> None:
    assert sorted(example()) == sorted(setting_names())


def test_the_example_file_sets_nothing_as_it_stands() -> None:
    assert not dotenv.dotenv_values(REPOSITORY / ".env.example")


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the paths shown are Linux's")
def test_the_example_file_uncommented_is_the_defaults(env_file: Path) -> None:
    defaults = load_settings()
    values = example()
    assert Path(os.path.expanduser(values.pop("COPILOT_ENV_FILE"))) == defaults.copilot_env_file
    env_file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    assert load_settings() == defaults


def test_every_setting_has_a_range_or_a_place() -> None:
    places = {"index_dir", "copilot_socket", "copilot_env_file", "log_file", "warnings"}
    for field in dataclasses.fields(Settings):
        assert ("parse" in field.metadata) == (field.name not in places), field.name

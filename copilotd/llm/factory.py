"""From settings to a provider, with every problem found before a request is made."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from copilotd.errors import SettingsError
from copilotd.llm import anthropic, ollama, openai
from copilotd.llm.streaming import Limits
from copilotd.types import Provider

PROVIDERS = ("anthropic", "openai", "ollama")


def make_provider(
    name: str,
    *,
    model: str,
    anthropic_api_key: str,
    openai_api_key: str,
    openai_base_url: str,
    ollama_base_url: str,
    timeout_s: float,
    key_file_hint: str = "",
    anthropic_base_url: str = "",
) -> Provider | None:
    """Returns the provider ``name`` stands for, or None where answers are extractive.

    Only what is passed in decides where documents go: base URLs, organisations and profiles that the
    SDKs would take from the environment are not used, redirects are not followed, and proxies of the
    environment are used for TLS only.

    Args:
        name: LLM_PROVIDER; empty or ``extractive`` for none.
        model: LLM_MODEL.
        anthropic_api_key: ANTHROPIC_API_KEY; blanks around it are removed.
        openai_api_key: OPENAI_API_KEY; may be empty where ``openai_base_url`` is set.
        openai_base_url: OPENAI_BASE_URL; empty for OpenAI itself.
        ollama_base_url: OLLAMA_BASE_URL; empty for this machine.
        timeout_s: PROVIDER_TIMEOUT_S, the longest silence.
        key_file_hint: The file in which keys are set, for messages.
        anthropic_base_url: Another address for Anthropic's API.

    Raises:
        SettingsError: Unknown provider; model or key missing, or not usable; names the variable.
    """
    name = name.strip().lower()
    if name in ("", "extractive"):
        return None
    where = f" in {key_file_hint}" if key_file_hint else ""
    if name not in PROVIDERS:
        raise SettingsError(
            f"LLM_PROVIDER is {name!r}, which is not a provider.",
            f"set it to anthropic, openai, ollama or extractive{where}",
        )
    model = model.strip()
    missing = [] if model else [("model", "LLM_MODEL")]
    limits = Limits.within(timeout_s)
    if name == "anthropic":
        key = clean_key(anthropic_api_key, "ANTHROPIC_API_KEY", where)
        if not key:
            missing.append(("key", "ANTHROPIC_API_KEY"))
        _require(name, missing, key_file_hint)
        address = _address(anthropic_base_url or anthropic.BASE_URL, "ANTHROPIC_BASE_URL", where)
        return anthropic.AnthropicProvider(model, key, address, limits, key_file_hint)
    if name == "openai":
        key = clean_key(openai_api_key, "OPENAI_API_KEY", where)
        if not key and not openai_base_url.strip():
            missing.append(("key", "OPENAI_API_KEY"))
        _require(name, missing, key_file_hint)
        address = _address(openai_base_url or openai.BASE_URL, "OPENAI_BASE_URL", where)
        return openai.OpenAIProvider(model, key, address, limits, key_file_hint)
    _require(name, missing, key_file_hint)
    return ollama.OllamaProvider(
        model, _address(ollama_base_url or ollama.BASE_URL, "OLLAMA_BASE_URL", where), limits
    )


def _require(provider: str, missing: Sequence[tuple[str, str]], file: str) -> None:
    """Names everything that is missing at once, and where it goes."""
    if not missing:
        return
    what = f"{' and no '.join(noun for noun, _ in missing)} for {provider}"
    variables = " and ".join(variable for _, variable in missing)
    if not file:
        raise SettingsError(
            f"There is no {what}: set {variables}", "or ask with --extractive, which needs neither"
        )
    # A key is asked for: on a command line others could see it.
    commands = ", ".join(
        f"copilot config set {variable}{' NAME' * (noun == 'model')}" for noun, variable in missing
    )
    raise SettingsError(
        f"The daemon has no {what}: set {variables} in {file}",
        f"{commands} (what your shell exports doesn't reach a daemon that runs)",
    )


def clean_key(key: str, variable: str, where: str = "") -> str:
    """Returns ``key`` without the blanks and newline a file or a paste leaves around it.

    Raises:
        SettingsError: Something inside it cannot be in a key; the key itself is not shown.
    """
    key = key.strip()
    if any(character.isspace() for character in key):
        raise SettingsError(f"{variable} has blanks inside the key.", f"put exactly one key there{where}")
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(
            f"{variable} has characters that no key has (outside ASCII).", f"paste the key again{where}"
        )
    return key


def _address(base_url: str, variable: str, where: str) -> str:
    base_url = base_url.strip().rstrip("/")
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username or parts.password:
        raise SettingsError(
            f"{variable} is not an address that can be used.",
            f"write it as http://host:port or https://host/path, without user or password{where}",
        )
    return base_url

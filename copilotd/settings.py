"""Settings: read once at the edge, from the environment and then the settings file, all problems together.

A ``.env`` of the current directory is never read: a cloned repository must not choose the provider its
reader's documents go to.
"""

from __future__ import annotations

import dataclasses
import difflib
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dotenv

from copilotd import paths
from copilotd.errors import SettingsError
from copilotd.text import one_line, shell_word

PROVIDERS = ("anthropic", "openai", "ollama", "extractive")
ASK_MODES = ("plain", "deep")
CITATION_CHECKS = ("mark", "strict", "off")
OCR_MODES = ("off", "on")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

HIDDEN = "********"
"""What is shown in the place of a key."""


class Secret:
    """A value that shows itself only when asked to; falsy when unset."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        """Returns the value itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Secret('{HIDDEN}')" if self._value else "Secret('')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def _text(value: str) -> str:
    if not value.isprintable():
        raise ValueError("has control characters in it")
    return value


def _one_of(*choices: str, fold: Callable[[str], str] = str.lower) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if fold(value) not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return fold(value)

    return parse


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"must be a whole number from {low} to {high}") from None
        if not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return parse


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            raise ValueError(f"must be a number from {low:g} to {high:g}")
        return number

    return parse


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not value.isprintable() or " " in value:
        raise ValueError("must be a URL such as http://localhost:11434")
    return value.rstrip("/")


def _languages(value: str) -> str:
    # It goes into a command line: nothing that could be an option or a path.
    if not all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) for name in value.split("+")):
        raise ValueError("must be languages as tesseract names them, such as eng or eng+deu")
    return value


def _setting(parse: Callable[[str], object], default: Any, *, live: bool = False) -> Any:
    """A setting; ``live`` where a daemon that runs can take a new value without a restart."""
    return dataclasses.field(default=default, metadata={"parse": parse, "live": live})


_UNSET = Secret()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting; an attribute is the lower-case name of its variable. ``.env.example`` explains each.

    Attributes:
        index_dir: Holds the index.
        copilot_socket: Where the daemon listens.
        copilot_env_file: The settings file that was read, or would have been.
        log_file: The daemon's log.
        warnings: What is odd but no error: unknown names in the file, a file open to others.
    """

    index_dir: Path
    copilot_socket: Path
    copilot_env_file: Path
    log_file: Path

    llm_provider: str = _setting(_one_of(*PROVIDERS), "extractive", live=True)
    llm_model: str = _setting(_text, "", live=True)
    anthropic_api_key: Secret = _setting(Secret, _UNSET, live=True)  # noqa: RUF009 (Secret is immutable)
    anthropic_base_url: str = _setting(_url, "", live=True)
    openai_api_key: Secret = _setting(Secret, _UNSET, live=True)  # noqa: RUF009 (Secret is immutable)
    openai_base_url: str = _setting(_url, "", live=True)
    ollama_base_url: str = _setting(_url, "http://localhost:11434", live=True)
    provider_timeout_s: float = _setting(_number(1, 3600), 60.0, live=True)
    max_answer_tokens: int = _setting(_whole(16, 128_000), 1024, live=True)
    context_tokens: int = _setting(_whole(1024, 10_000_000), 8192, live=True)
    citation_check: str = _setting(_one_of(*CITATION_CHECKS), "mark", live=True)
    price_input: float = _setting(_number(0, 1_000_000), 0.0, live=True)
    price_output: float = _setting(_number(0, 1_000_000), 0.0, live=True)
    price_cached: float = _setting(_number(0, 1_000_000), 0.0, live=True)

    embed_model: str = _setting(_text, "all-MiniLM-L6-v2")
    rerank_model: str = _setting(_text, "")
    model_wait_s: float = _setting(_number(0, 3600), 120.0, live=True)

    top_k: int = _setting(_whole(1, 100), 5, live=True)
    confidence_threshold: float = _setting(_number(0, 1), 0.5, live=True)
    min_score: float = _setting(_number(-1, 1), 0.0, live=True)
    ask_mode: str = _setting(_one_of(*ASK_MODES), "plain", live=True)
    max_conversations: int = _setting(_whole(0, 10_000), 200)

    max_chunk_chars: int = _setting(_whole(100, 100_000), 2000)
    chunk_overlap_chars: int = _setting(_whole(0, 50_000), 250)
    max_file_bytes: int = _setting(_whole(1, 2**40), 20_000_000)
    pdf_seconds: float = _setting(_number(1, 3600), 120.0)
    pdf_memory_mb: int = _setting(_whole(256, 2**20), 2048)
    ocr: str = _setting(_one_of(*OCR_MODES), "off")
    ocr_language: str = _setting(_languages, "eng")
    ocr_seconds: float = _setting(_number(1, 86_400), 1800.0)
    sync_budget_s: float = _setting(_number(0, 600), 2.0, live=True)
    full_look_files: int = _setting(_whole(0, 100_000_000), 10_000)
    reconcile_s: float = _setting(_number(0.1, 86_400), 30.0)
    root_grace_s: float = _setting(_number(0, 31_536_000), 604_800.0)
    vector_cache_mb: int = _setting(_whole(0, 2**20), 256)

    log_level: str = _setting(_one_of(*LOG_LEVELS, fold=str.upper), "INFO", live=True)
    max_message_bytes: int = _setting(_whole(1024, 2**30), 1_048_576, live=True)
    max_connections: int = _setting(_whole(1, 10_000), 256, live=True)
    max_requests: int = _setting(_whole(1, 100_000), 1024, live=True)
    request_timeout_s: float = _setting(_number(1, 86_400), 600.0, live=True)

    warnings: tuple[str, ...] = ()

    def secrets(self) -> tuple[str, ...]:
        """Returns every value that must not be logged: keys, and passwords inside URLs."""
        keys = (self.anthropic_api_key.reveal(), self.openai_api_key.reveal())
        urls = (self.anthropic_base_url, self.openai_base_url, self.ollama_base_url)
        passwords = (urlsplit(url).password for url in urls)
        return tuple(secret for secret in (*keys, *passwords) if secret)


def setting_names() -> tuple[str, ...]:
    """Returns the variable of every setting, in the order of ``.env.example``."""
    return tuple(field.name.upper() for field in dataclasses.fields(Settings) if field.name != "warnings")


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What a look at the environment and the settings file gave.

    Attributes:
        env_file: The settings file that was read, or would have been.
        settings: All of them; None where some are wrong.
        problems: What is wrong, a sentence each.
        warnings: What is odd but no error.
        sources: For each setting that is set: ``environment`` or ``file``.
    """

    env_file: Path
    settings: Settings | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    sources: Mapping[str, str]


def load_settings(env_file: str | None = None) -> Settings:
    """Reads and checks every setting.

    Values are trimmed; an empty one counts as unset. Whether the chosen provider has its key is checked
    when it is used, since searching needs none.

    Args:
        env_file: What ``--env-file`` named; goes before COPILOT_ENV_FILE.

    Raises:
        SettingsError: Names every variable that is wrong, and where it was set.
    """
    reading = read_settings(env_file)
    if reading.settings is None:
        raise _settings_error(reading.problems)
    return reading.settings


def read_settings(env_file: str | None = None) -> Reading:
    """Reads every setting like :func:`load_settings`, and returns what is wrong instead of raising it.

    Raises:
        SettingsError: The settings file can't be read, or the socket's place can't be computed.
    """
    environ = dict(os.environ)
    found = paths.find_places(env_file, environ)
    stored = _read_file(found.env_file)
    # Of paths.py's making, so that the daemon listens where the client looks.
    values: dict[str, Any] = {
        "index_dir": found.index_dir,
        "copilot_socket": found.socket,
        "copilot_env_file": found.env_file,
        "log_file": found.log_file,
    }
    problems: list[str] = []
    sources: dict[str, str] = {}
    for field in dataclasses.fields(Settings):
        variable = field.name.upper()
        text, source = environ.get(variable, "").strip(), "environment"
        if not text:
            text, source = stored.get(variable, "").strip(), "file"
        if not text or variable in ("COPILOT_ENV_FILE", "WARNINGS"):
            continue
        sources[variable] = source
        if "parse" not in field.metadata:
            continue
        try:
            values[field.name] = field.metadata["parse"](text)
        except ValueError as error:
            place = found.env_file if source == "file" else "the environment"
            problems.append(f"{variable} {error}; {place} says '{one_line(text, 60)}'.")
    if not problems and (problem := _check_together(Settings(**values))):
        problems.append(problem)
    warnings = _warnings(found.env_file, stored)
    settings = None if problems else Settings(**values, warnings=warnings)
    return Reading(found.env_file, settings, tuple(problems), warnings, sources)


def merge_live(running: Settings, wanted: Settings) -> tuple[Settings, tuple[str, ...], tuple[str, ...]]:
    """Takes what a running daemon can take from new settings.

    Returns:
        The settings to go on with, the variables that changed in them, and those that differ but need a
        restart.
    """
    differing = [
        field
        for field in dataclasses.fields(Settings)
        if field.name != "warnings" and getattr(running, field.name) != getattr(wanted, field.name)
    ]
    live = [field.name for field in differing if field.metadata.get("live")]
    taken = dataclasses.replace(
        running, warnings=wanted.warnings, **{name: getattr(wanted, name) for name in live}
    )
    waiting = tuple(field.name.upper() for field in differing if field.name not in live)
    return taken, tuple(name.upper() for name in live), waiting


def report_settings(env_file: str | None = None) -> dict[str, Any]:
    """Returns what ``copilotd --check-settings`` prints: problems, warnings, and each value with its source.

    Keys and passwords are hidden.

    Raises:
        SettingsError: As :func:`read_settings`.
    """
    reading = read_settings(env_file)
    return {
        "env_file": str(reading.env_file),
        "problems": list(reading.problems),
        "warnings": list(reading.warnings),
        "settings": {
            field.name.upper(): {
                "value": None if reading.settings is None else _shown(getattr(reading.settings, field.name)),
                "source": reading.sources.get(field.name.upper(), "default"),
                "secret": field.type == "Secret",
                "live": bool(field.metadata.get("live")),
            }
            for field in dataclasses.fields(Settings)
            if field.name != "warnings"
        },
    }


def _shown(value: object) -> object:
    if isinstance(value, Secret):
        return HIDDEN if value else ""
    if isinstance(value, str) and "://" in value and (password := urlsplit(value).password):
        return value.replace(f":{password}@", f":{HIDDEN}@")
    return str(value) if isinstance(value, Path) else value


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}  # find_places has refused one that was named
    # Without interpolation: `$` is legal in keys, and paths.py must read the same without the library.
    bindings = dotenv.dotenv_values(stream=io.StringIO(text), interpolate=False)
    return {name: value for name, value in bindings.items() if value is not None}


def _check_together(settings: Settings) -> str:
    if settings.max_answer_tokens * 2 > settings.context_tokens:
        return (
            f"MAX_ANSWER_TOKENS ({settings.max_answer_tokens}) must be at most half of "
            f"CONTEXT_TOKENS ({settings.context_tokens}), or no passage fits beside the answer."
        )
    if settings.chunk_overlap_chars * 2 > settings.max_chunk_chars:
        return (
            f"CHUNK_OVERLAP_CHARS ({settings.chunk_overlap_chars}) must be at most half of "
            f"MAX_CHUNK_CHARS ({settings.max_chunk_chars})."
        )
    return ""


def _settings_error(problems: Sequence[str]) -> SettingsError:
    hint = "copilot config edit; docs/configuration.md explains every setting."
    if len(problems) == 1:
        return SettingsError(problems[0], hint)
    lines = "".join(f"\n  {problem}" for problem in problems)
    return SettingsError(f"{len(problems)} settings are wrong:{lines}", hint)


def _warnings(path: Path, stored: Mapping[str, str]) -> tuple[str, ...]:
    warnings = []
    known = set(setting_names())
    for name in sorted(set(stored) - known):
        near = difflib.get_close_matches(name.upper(), known, n=1)
        advice = f"; did you mean {near[0]}?" if near else "."
        warnings.append(f"{path}: unknown setting {one_line(name, 60)} is ignored{advice}")
    if "COPILOT_ENV_FILE" in stored:
        warnings.append(f"{path}: COPILOT_ENV_FILE has no effect inside a settings file.")
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        return tuple(warnings)
    if mode & 0o077:
        warnings.append(
            f"{path} is open to other users (mode {mode:04o}); run: chmod 600 {shell_word(str(path))}"
        )
    return tuple(warnings)


def provider_arguments(settings: Settings) -> dict[str, Any]:
    """Returns the arguments of :func:`copilotd.llm.make_provider`, which checks them when they are used."""
    return {
        "name": settings.llm_provider,
        "model": settings.llm_model,
        "anthropic_api_key": settings.anthropic_api_key.reveal(),
        "anthropic_base_url": settings.anthropic_base_url,
        "openai_api_key": settings.openai_api_key.reveal(),
        "openai_base_url": settings.openai_base_url,
        "ollama_base_url": settings.ollama_base_url,
        "timeout_s": settings.provider_timeout_s,
        "key_file_hint": str(settings.copilot_env_file),
    }

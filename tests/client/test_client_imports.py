"""The client stays light: what it imports, and how much of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.client_home import Home, temporary_home
from support.scripted_daemon import ScriptedDaemon, reply

HEAVY = {
    "anthropic", "asyncio", "concurrent", "ctypes", "difflib", "email", "faiss", "http", "logging", "markdown_it",
    "multiprocessing", "numpy", "ollama", "openai", "pathspec", "pdfplumber", "prompt_toolkit", "pydantic",
    "pydantic_settings", "rich", "sentence_transformers", "sqlite3", "ssl", "subprocess", "torch", "tokenizers",
    "unittest", "urllib.request", "watchdog", "yaml",
}  # fmt: skip
# The daemon's modules of which the client may load any.
SHARED = {"copilotd", "copilotd.errors", "copilotd.paths", "copilotd.text", "copilotd.wire"}
# Over what `import click, platformdirs` loads by itself: our own modules, json, socket and what those need.
MODULES_OF_OUR_OWN = 45

PROBE = """
import sys
from copilot_client.cli import main
code = main(sys.argv[1:])
sys.stderr.write("\\n".join(sys.modules))
sys.exit(code)
"""


def modules(home: Home, code: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=home.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.split("\n"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("search", "x"),
        ("search", "x", "--json"),
        ("ask", "x"),
        ("status", "--json"),
    ],
)
def test_nothing_heavy_is_loaded(arguments: tuple[str, ...]) -> None:
    scripts = {
        "search": reply({"query": "x", "hits": []}),
        "ask": reply({"answer": "I don't know.", "known": False}),
        "status": reply({"state": "ready"}),
    }
    base = "import sys, click, platformdirs; platformdirs.user_data_path(); sys.stderr.write('\\n'.join(sys.modules))"
    with temporary_home() as home, ScriptedDaemon(home.socket, scripts):
        loaded = modules(home, PROBE, *arguments)
        without = modules(home, base)
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("copilotd")} <= SHARED
    assert not {name for name in loaded if "site-packages" in name}
    assert len(loaded - without) <= MODULES_OF_OUR_OWN, sorted(loaded - without)


def test_help_and_version_import_no_command() -> None:
    with temporary_home() as home:
        loaded = modules(home, PROBE, "--help") | modules(home, PROBE, "--version")
    assert not {name for name in loaded if name.startswith("copilot_client.commands.")}
    assert not loaded & {"socket", "json", "platformdirs", "copilotd.paths"}

"""Holds the product to the import table of docs/architecture.md, by reading its imports with ``ast``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# A module imports from its own layer and from those above it; names are modules or packages of copilotd.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"__version__", "errors", "types", "text"}),
    frozenset({"paths", "wire"}),
    frozenset({"settings", "logs", "notify", "lock", "units", "daemon_info", "activation", "supervise"}),
    frozenset({"ingest", "embed", "index", "llm"}),
    frozenset({"update", "query", "conversation"}),
    frozenset(
        {"engine", "answering", "lookup", "models_in_use", "turns", "seed", "model_command", "doctor_facts"}
    ),
    frozenset({"api", "server", "session", "listener", "outbox"}),
    frozenset({"backend", "live_settings", "own_handlers", "premises"}),
    frozenset({"daemon"}),
    frozenset({"cli", "__main__"}),
)
# Parts of one layer that don't know each other; `update` is the write path, `query` the read path.
SIBLINGS = (frozenset({"ingest", "embed", "index", "llm"}), frozenset({"update", "query", "conversation"}))

# What the client may see of the daemon's package, and what else it may load.
CLIENT_SEES = frozenset({"__version__", "wire", "paths", "errors", "text"})
CLIENT_THIRD_PARTY = frozenset({"click", "platformdirs"})
# The chat draws and edits; it is loaded when it runs.
CHAT = "copilot_client.chat."
CHAT_THIRD_PARTY = CLIENT_THIRD_PARTY | {"markdown_it", "prompt_toolkit", "rich"}
# The modules both sides load must start fast.
SHARED_BY_BOTH = frozenset({"errors", "text", "paths", "wire"})
SHARED_THIRD_PARTY = frozenset({"platformdirs"})

# Each of these is known to one module only, so that replacing it touches one file.
ONE_HOME = frozenset(
    {
        "anthropic",
        "charset_normalizer",
        "docutils",
        "docx",
        "faiss",
        "ollama",
        "openai",
        "pathspec",
        "pdfplumber",
        "pypdfium2",
        "prompt_toolkit",
        "rapidfuzz",
        "rich",
        "sentence_transformers",
        "snowballstemmer",
        "watchdog",
        "yaml",
    }
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, absolute, and where it is written."""

    importer: str
    target: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.importer}:{self.line}"

    @property
    def library(self) -> str:
        return self.target.split(".")[0]


def imports_below(top: Path, package: str) -> Iterator[Import]:
    """Yields every import of ``package``, those inside functions too, relative ones resolved."""
    for path in sorted((top / package).rglob("*.py")):
        parts = path.relative_to(top).with_suffix("").parts
        module = parts[:-1] if parts[-1] == "__init__" else parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for target in _targets(node, parts[:-1]):
                    yield Import(".".join(module), target, node.lineno)


def _targets(node: ast.Import | ast.ImportFrom, package: tuple[str, ...]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
    module = ".".join(part for part in (base, node.module or "") if part)
    # `from copilotd import wire` names a module, `from copilotd.wire import Request` a name in one.
    return [f"{module}.{alias.name}" for alias in node.names] if module == "copilotd" else [module]


def part_of(module: str) -> str:
    """Returns the part of ``copilotd`` a module belongs to: ``ingest`` for ``copilotd.ingest.scan``."""
    return [*module.split("."), "__version__"][1]


def violations(top: Path) -> list[str]:
    """Returns a sentence for each import below ``top`` that the table forbids."""
    found: list[str] = []
    homes: dict[str, set[str]] = {}
    for item in imports_below(top, "copilotd"):
        if item.library == "copilot_client":
            found.append(f"{item.place}: the daemon imports the client")
        elif item.library == "copilotd":
            found.extend(_layer_violations(item))
        elif part_of(item.importer) in SHARED_BY_BOTH:
            found.extend(_not_light(item, SHARED_THIRD_PARTY))
        if item.library in ONE_HOME:
            homes.setdefault(item.library, set()).add(item.importer)
    for item in imports_below(top, "copilot_client"):
        if item.library == "copilotd":
            if part_of(item.target) not in CLIENT_SEES:
                found.append(f"{item.place}: the client imports {item.target}")
        elif item.library != "copilot_client":
            chat = item.importer.startswith(CHAT)
            found.extend(_not_light(item, CHAT_THIRD_PARTY if chat else CLIENT_THIRD_PARTY))
            if item.library in ONE_HOME:
                homes.setdefault(item.library, set()).add(item.importer)
    return found + _several_homes(homes)


def _layer_violations(item: Import) -> Iterator[str]:
    layer = {name: rank for rank, names in enumerate(LAYERS) for name in names}
    importer, target = part_of(item.importer), part_of(item.target)
    for name in (importer, target):
        if name not in layer:
            yield f"{item.place}: {name} has no layer in the table"
            return
    if layer[target] > layer[importer]:
        yield f"{item.place}: {importer} imports {target}, which stands below it"
    if importer != target and any({importer, target} <= group for group in SIBLINGS):
        yield f"{item.place}: {importer} imports its sibling {target}"


def _not_light(item: Import, allowed: frozenset[str]) -> Iterator[str]:
    if item.library not in sys.stdlib_module_names and item.library not in allowed:
        yield f"{item.place}: imports {item.library}, but must start fast"


def _several_homes(homes: Mapping[str, set[str]]) -> list[str]:
    return [
        f"{library} is known to {len(modules)} modules: {', '.join(sorted(modules))}"
        for library, modules in sorted(homes.items())
        if len(modules) > 1
    ]


def test_every_import_follows_the_table() -> None:
    assert violations(REPOSITORY) == []


def test_the_product_is_really_read() -> None:
    importers = {item.importer for item in imports_below(REPOSITORY, "copilotd")}
    assert "copilotd.errors" in importers
    assert "copilotd.index.keywords" in importers


@pytest.mark.parametrize(
    ("path", "code", "expected"),
    [
        ("copilotd/ingest/scan.py", "from copilotd.index.store import Store", "imports its sibling index"),
        ("copilotd/ingest/scan.py", "from ..index import store", "imports its sibling index"),
        (
            "copilotd/ingest/scan.py",
            "def f() -> None:\n    import copilotd.llm.openai",
            "imports its sibling llm",
        ),
        ("copilotd/update/sync.py", "from copilotd.query.gate import judge", "imports its sibling query"),
        ("copilotd/query/gate.py", "from copilotd import engine", "query imports engine, which stands below"),
        ("copilotd/wire.py", "from copilotd.settings import Settings", "wire imports settings"),
        ("copilotd/wire.py", "import pydantic", "imports pydantic, but must start fast"),
        ("copilotd/engine.py", "from copilot_client.cli import main", "the daemon imports the client"),
        ("copilotd/engine.py", "from copilotd.novelty import thing", "novelty has no layer"),
        ("copilot_client/cli.py", "from copilotd.engine import Engine", "the client imports copilotd.engine"),
        ("copilot_client/cli.py", "from copilotd import engine", "the client imports copilotd.engine"),
        ("copilot_client/cli.py", "import numpy as np", "imports numpy, but must start fast"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, path: str, code: str, expected: str) -> None:
    _write(tmp_path, {path: code})
    assert len(violations(tmp_path)) == 1
    assert expected in violations(tmp_path)[0]


def test_a_library_with_two_homes_is_found(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {"copilotd/index/vectors.py": "import faiss", "copilotd/engine.py": "def f():\n    import faiss"},
    )
    assert violations(tmp_path) == ["faiss is known to 2 modules: copilotd.engine, copilotd.index.vectors"]


def test_allowed_imports_are_left_alone(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "copilotd/index/store.py": "from copilotd.index.catalog import Catalog\nfrom . import vectors",
            "copilotd/query/retrieve.py": "from copilotd.index.keywords import postings\nimport numpy",
            "copilotd/cli.py": "from copilotd import __version__\nfrom copilotd.daemon import run",
            "copilot_client/cli.py": "import click\nfrom copilotd import __version__, wire",
            "copilot_client/render.py": "from copilotd.text import printable",
        },
    )
    assert violations(tmp_path) == []


def test_the_client_starts_without_the_heavy_side() -> None:
    code = (
        "import sys, copilot_client.cli\n"
        "heavy = {'numpy', 'torch', 'faiss', 'pydantic', 'sqlite3', 'rich', 'prompt_toolkit', 'copilotd.types'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def _write(top: Path, files: Mapping[str, str]) -> None:
    for relative, code in files.items():
        target = top / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(code + "\n", encoding="utf-8")


def test_no_possessive_group_in_the_standard_librarys_patterns() -> None:
    """Before Python 3.11.5 they match wrongly (gh-106052); where one is needed, ``regex`` is imported as ``re``."""
    possessive = re.compile(r"[)}][*+?]\+|\(\?>")
    found = []
    for path in sorted((REPOSITORY / "copilotd").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "import regex as re" in source:
            continue
        found += [
            f"{path.name}: {node.value}"
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and possessive.search(node.value)
        ]
    assert found == []

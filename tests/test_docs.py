"""The README and the pages in docs/ tell the truth: their commands are run, their options and links exist.

Every fenced ``sh`` block is run by bash, in order, in one empty home with a real daemon. A ``text``
block right after it is what it must print, numbers aside; ``…`` stands for anything.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from support.pages import anchors, commands, comparable, examples, links, missing_lines

from copilotd.ingest.parse import supported_suffixes
from copilotd.settings import Settings, setting_names

REPOSITORY = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
# These say what is still to come, under names that don't exist yet.
PLANS = {"seed-map.md"}
# tests/test_protocol_doc.py runs this page.
RUN_ELSEWHERE = {"protocol.md"}

# Blocks that can't run here: how they begin → why.
NOT_RUN = {
    "pipx install": "installs into the user's home",
    "uv tool install": "installs into the user's home",
    "pip install": "changes the environment the tests run in",
    "git clone": "needs a network",
    "scripts/": "sets up an environment, and runs these very tests",
    "systemctl": "needs a service manager",
    "copilot service": "needs a service manager; tests/e2e/test_service_systemd.py runs it",
    "launchctl": "needs macOS",
}

pytestmark = pytest.mark.xdist_group("docs")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    home = tmp_path_factory.mktemp("home")
    variables = {
        "HOME": str(home),
        "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
    }
    yield variables
    subprocess.run([BIN / "copilot", "stop"], env=variables, capture_output=True, timeout=60, check=False)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if examples(page) and page.name not in RUN_ELSEWHERE],
    ids=lambda page: page.name,
)
def test_the_commands_run_and_print_what_the_page_shows(
    page: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    for example in examples(page):
        if example.script.startswith(tuple(NOT_RUN)):
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", example.script],
            cwd=tmp_path,
            env={**environment, "PROJECT": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
        )
        where = f"{page.name}:{example.line}\n{example.script}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, where
        assert missing_lines(example.expected, done.stdout) == [], where


@cache
def help_of(program: str, *command: str) -> str:
    done = subprocess.run(
        [BIN / program, *command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200"},
    )
    return done.stdout if done.returncode == 0 else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_and_options_named_exist(page: Path) -> None:
    if page.name in PLANS:
        pytest.skip("names what is still to come")
    for program, words in commands(page):
        command: list[str] = []
        for word in words:
            if not re.fullmatch(r"[a-z]+(-[a-z]+)*", word) or not help_of(program, *command, word):
                break
            command.append(word)
        text = help_of(program, *command)
        first = words[len(command)] if len(words) > len(command) else ""
        if program != "copilotd" and not command:
            assert not re.fullmatch(r"[a-z]+", first), f"{program} has no command {first}"
        for option in (word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)):
            known = f"{text}\n{help_of(program)}" if option in ("--version", "--help") else text
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", known), (
                f"{program} {' '.join(command)} has no {option}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", ["promises.md", "security.md"])
def test_the_tests_a_promise_names_exist(name: str) -> None:
    text = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert files
    missing = [file for file in files if not (REPOSITORY / file).is_file()]
    source = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    missing += [test for test in re.findall(r"`(test_\w+)`", text) if f"def {test}(" not in source]
    assert missing == []


def test_every_setting_is_explained_with_its_default() -> None:
    text = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]*) \| .*\|$", text, re.MULTILINE))
    assert set(rows) == set(setting_names())
    for field in dataclasses.fields(Settings):
        shown = rows.get(field.name.upper(), "").strip("`")
        if isinstance(field.default, int | float):
            assert float(shown) == field.default, field.name
        elif isinstance(field.default, str) and field.default:
            assert shown == field.default, field.name


def test_the_clients_variables_are_explained() -> None:
    """Those that it reads by its own account, none of which is a setting of the daemon."""
    text = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = text.partition("## Settings for the terminal")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`([A-Z_]+)`", table.partition("|---|")[2]))
    sources = "".join(path.read_text() for path in (REPOSITORY / "copilot_client").rglob("*.py"))
    read = set(re.findall(r"environ\.get\(\"([A-Z_]+)\"", sources)) - {"TERM", "PATH"}
    assert read <= explained
    assert {"COPILOT_EDITOR", "VISUAL", "EDITOR"} <= explained
    assert not explained & set(setting_names())


def test_every_format_is_in_the_table() -> None:
    text = (REPOSITORY / "docs" / "formats.md").read_text(encoding="utf-8")
    named = {
        name
        for row in re.findall(r"^\| (`\.[^|]*) \|", text, re.MULTILINE)
        for name in re.findall(r"`(.+?)`", row)
    }
    assert named == set(supported_suffixes())


def test_the_two_commands_open_the_readme() -> None:
    head = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()[:12]
    assert any(line.startswith("scripts/demo") for line in head)
    assert any(line.startswith("scripts/test") for line in head)


def test_shown_output_is_compared_in_order_and_without_numbers() -> None:
    output = "Indexed 12 chunks from 3 files (3 new, 0 unchanged)\n\nSources:\n  1. [a > B] a.md:3-9  0.71\n"
    assert missing_lines(("Indexed 9 chunks from 3 files (3 new, 0 unchanged)", "1. [a > B] …"), output) == []
    assert missing_lines(("Sources:", "Indexed 9 chunks from 3 files (3 new, 0 unchanged)"), output) == [
        "Indexed 9 chunks from 3 files (3 new, 0 unchanged)"
    ]
    assert missing_lines(("Source:",), output) == ["Source:"]
    assert comparable("  a   1.25 b") == "a # b"

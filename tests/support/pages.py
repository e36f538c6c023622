"""Reads the project's own Markdown: its fenced blocks, its links, the commands it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_COMMAND = re.compile(r"(?:^|[\s;&|(/])(copilotd?|docs-copilot)((?: +[^\s|;&)`]+)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced ``sh`` block and, where a ``text`` block follows it, what it prints.

    Attributes:
        script: The commands.
        expected: Lines the output must hold, in this order.
        line: Where the block stands.
    """

    script: str
    expected: tuple[str, ...]
    line: int


def _tokens(path: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))


def examples(path: Path) -> list[Example]:
    """Returns the ``sh`` blocks of a document in order."""
    fences = [token for token in _tokens(path) if token.type == "fence"]
    found = []
    for position, token in enumerate(fences):
        if token.info.strip() != "sh" or token.map is None:
            continue
        following = fences[position + 1] if position + 1 < len(fences) else None
        expected: tuple[str, ...] = ()
        # One blank line, or a short sentence between two blank lines, may stand between the two.
        if (
            following is not None
            and following.map is not None
            and following.info.strip() == "text"
            and following.map[0] - token.map[1] <= 3
        ):
            expected = tuple(line for line in following.content.splitlines() if line.strip())
        found.append(Example(token.content, expected, token.map[0] + 1))
    return found


def comparable(line: str) -> str:
    """Returns ``line`` with what differs from run to run taken out: numbers and runs of blanks."""
    return re.sub(r"\d+(?:\.\d+)?", "#", " ".join(line.split()))


def missing_lines(expected: tuple[str, ...], output: str) -> list[str]:
    """Returns the expected lines that the output does not hold in this order; ``…`` stands for anything."""
    lines = iter([comparable(line) for line in output.splitlines()])
    missing = []
    for wanted in expected:
        pattern = ".*".join(re.escape(part) for part in comparable(wanted).split("…"))
        remaining = list(lines)
        hit = next((i for i, line in enumerate(remaining) if re.fullmatch(pattern, line)), None)
        if hit is None:
            missing.append(wanted)
            lines = iter(remaining)
        else:
            lines = iter(remaining[hit + 1 :])
    return missing


def commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields every ``copilot …`` and ``copilotd …`` in code, as the program and its words."""
    for token in _tokens(path):
        codes = (
            [token.content]
            if token.type == "fence" and token.info.strip() in ("sh", "text", "console")
            else []
        )
        codes += [child.content for child in token.children or () if child.type == "code_inline"]
        for code in codes:
            # Strings may hold anything, option look-alikes among it.
            code = re.sub(r"\"[^\"]*\"|'[^']*'", "TEXT", code)
            for match in _COMMAND.finditer(code):
                yield match[1], match[2].split()


def links(path: Path) -> Iterator[str]:
    """Yields the targets of all links and images that stay inside the project."""
    for token in _tokens(path):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:", target):
                yield target


def anchors(path: Path) -> set[str]:
    """Returns the ids that code forges give to a document's headings."""
    tokens = _tokens(path)
    headings = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

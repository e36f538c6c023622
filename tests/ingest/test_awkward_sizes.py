"""Documents that are one thing over and over, or nested as deep as they are long: time and depth stay in proportion.

What is compared is the CPU time of a document with that of one four times as long: a quadratic mistake
takes sixteen times as long, and a second is allowed to everybody.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable

import pytest
from support.documents import chunks_of
from support.formats import FORMATS, Format

from copilotd.errors import ParseError
from copilotd.ingest.frontmatter import read_front_matter
from copilotd.ingest.rst import _BORDER, _GRID_HEADER

SIZE = 6_000
Make = Callable[[int], str]


def again(unit: str) -> Make:
    return lambda size: unit * (size // len(unit))


def nested(opening: str, closing: str) -> Make:
    def make(size: int) -> str:
        depth = size // len(opening + closing)
        return opening * depth + "x" + closing * depth

    return make


def stairs(line: str, step: int) -> Make:
    """Each line is deeper by ``step`` blanks than the one before it."""

    def make(size: int) -> str:
        lines: list[str] = []
        while size > 0:
            lines.append(" " * (step * len(lines)) + line)
            size -= len(lines[-1]) + 1
        return "\n".join(lines)

    return make


CASES: dict[str, Make] = {
    **{
        f"again {unit!r}": again(unit)
        for unit in (
            "[", "![a](", "*a _b ", "**", "`a ``", "<a ", "<a href=\"", "<!-- ", "</b>", "<A b={{", "<h1>", "{/* ",
            "&#x",
            "> - ", "> a\n\n", "| a ", "- a\n", "- <!--\n", "<div>\n<!--\n\n", "[a]: b\n", "[^a]: b\n",
            "a\n=\n", "# a\n",
            "```\n", "    a\n", ":::a\n", "!!! a\n    ", "a::\n", ".. a::\n   b\n", ".. _a:\n\n", ":a:`", "`a <",
            "|a|_ ",
            "== a\n", "|===\n|a\n", "====\n", "--\n", "link:a[", "<<a,", "* a\n", "#+begin_src\n",
            "#+begin_quote\n", ":A:\n",
            "[[a][", "<ul><li>", "<td>a", "<pre>", "<nav>", "<img alt='a\n'>", "漢", "\u200b", "\r",
        )
    },
    **{
        f"nested {opening!r}": nested(opening, closing)
        for opening, closing in (
            ("[", "](a)"), ("*", "*"), ("<div>\n", "</div>\n"), ("<b>", "</b>"), ("<A>\n", "</A>\n"),
            ("{", "}"), ("> ", ""),
            ("- ", ""), ("<ul><li>", "</li></ul>"), ("<table><tr><td>", "</td></tr></table>"), ("====\n", "====\n"),
            ("#+begin_a\n", "#+end_a\n"),
        )
    },
    **{f"stairs of {line!r}": stairs(line, 2) for line in ("- a",
            "a", "> a", "!!! a", ".. a::", "* a", ":a: b", "| a")},
    "a wide table": lambda size: f"|{'a|' * (size // 4)}\n|{'-|' * (size // 4)}\n",
    "a wide grid": lambda size: "\n".join(
        edge + part * (size // 6) for edge, part in (("+", "-+"), ("|", "a|"), ("+", "-+"))
    ),
    "one line": lambda size: "word " * (size // 5),
    "one word": lambda size: "x" * size,
    "backticks": lambda size: "".join("`" * (length % 300) + " " for length in range(size // 150)),
    "aliases": lambda size: "---\na: &a [x]\n" + "b: [*a, *a]\n" * (size // 12) + "---\nx",
    "dotted keys": lambda size: f"+++\n{'a.' * (size // 2)}b = 1\n+++\nx",
}  # fmt: skip


def seconds(each: Format, text: str) -> float:
    if each.parser.name == "notebook":
        cell = {"cell_type": "markdown", "source": text.splitlines(keepends=True)}
        text = json.dumps({"cells": [cell]}, indent=1)
    begin = time.process_time()
    with contextlib.suppress(ParseError):
        chunks_of(each.parser.parse(text.encode("utf-8", "surrogatepass"), "guide"))
    return time.process_time() - begin


@pytest.mark.timeout(600)
@pytest.mark.parametrize("each", FORMATS, ids=str)
def test_time_grows_with_the_size_alone(each: Format) -> None:
    seconds(each, "x")
    # A notebook's cells are Markdown, whose own turn it is.
    for name, make in list(CASES.items())[:: 3 if each.parser.name == "notebook" else 1]:
        short = seconds(each, make(SIZE))
        assert seconds(each, make(4 * SIZE)) < 1 + 8 * short, name


@pytest.mark.parametrize("text", ["[" * 400_000, '{"a":' * 100_000, '{"cells":[' + "[" * 200_000])
def test_a_notebook_of_brackets_is_refused_at_once(text: str) -> None:
    (each,) = (each for each in FORMATS if each.parser.name == "notebook")
    with pytest.raises(ParseError):
        each.parser.parse(text.encode(), "guide")


def test_borders_of_tables_are_recognised_in_one_pass() -> None:
    begin = time.process_time()
    for text in ("+" + "-+" * 300_000 + "x", "= " * 300_000 + "x", "-" * 300_000 + "x", "+=" * 300_000 + "-"):
        assert not _BORDER.fullmatch(text) or text.endswith("-")
        assert not _GRID_HEADER.fullmatch(text)
    assert time.process_time() - begin < 10


def test_a_front_matter_that_takes_long_to_read_is_left_out_unread() -> None:
    begin = time.process_time()
    front = read_front_matter(f"+++\n{'a.' * 45_000}b = 1\ntitle = 'x'\n+++\ntext")
    assert (front.lines, front.title) == (4, "x")
    assert time.process_time() - begin < 5

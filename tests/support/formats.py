"""The text formats: each with its parser, how its characters are written, a sample, and pieces it reacts to."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from copilotd.ingest.asciidoc import AsciiDocParser
from copilotd.ingest.html import HtmlParser
from copilotd.ingest.markdown import MarkdownParser, MdxParser
from copilotd.ingest.notebook import NotebookParser
from copilotd.ingest.org import OrgParser
from copilotd.ingest.plain import PlainTextParser
from copilotd.ingest.rst import RstParser
from copilotd.types import Parser

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def _json_line(line: str) -> str:
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", lambda match: _escape(match[1]), line)


def _escape(escape: str) -> str:
    if escape[0] == "u" and len(escape) == 5:
        return chr(int(escape[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape, escape)


def _same(line: str) -> str:
    return line


@dataclass(frozen=True)
class Format:
    """A parser, how its characters are written, a sample, and pieces it reacts to."""

    parser: Parser
    sample: str
    pieces: tuple[str, ...]
    read_line: Callable[[str], str] = _same

    def __str__(self) -> str:
        return self.parser.name


def notebook(*cells: tuple[str, str]) -> str:
    """Writes a notebook as Jupyter does."""
    made = [
        {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)} for kind, text in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


RST = (FIXTURES / "formats" / "sphinx.rst").read_text(encoding="utf-8")
ADOC = (FIXTURES / "formats" / "guide.adoc").read_text(encoding="utf-8")
ORG = (FIXTURES / "formats" / "guide.org").read_text(encoding="utf-8")
HTML = (FIXTURES / "formats" / "guide.html").read_text(encoding="utf-8")
NOTEBOOK = (FIXTURES / "formats" / "guide.ipynb").read_text(encoding="utf-8")
MARKDOWN = (
    "# Guide\n\nText `--dry-run`.\n\n- a\n- b\n\n| x |\n|---|\n| 1 |\n\n```sh\nls\n```\n\n## Sub\n\nEnd.\n"
)
MARKS = ("\n", "\n\n", " ", "  ", "    ", "\t", "word", "\N{ZERO WIDTH SPACE}", "\x0c", "\x85", "é", "漢")

FORMATS = [
    Format(MarkdownParser(), MARKDOWN, ("# ", "```", "- ", "| ", "<!-- ", "<b>")),
    Format(MdxParser(), MARKDOWN, ("# ", "<Tab>", "{/*", "*/}", "import x\n")),
    Format(PlainTextParser(), MARKDOWN, ("...",)),
    Format(
        RstParser(),
        RST,
        (
            ".. ",
            "::",
            "====",
            "----",
            "* ",
            ".. note::",
            ":a:",
            "+---+",
            "| ",
            "``",
            ".. |x| ",
            ".. _l:",
            "1. ",
            ".. only:: x",
            ">>> ",
            "-f X",
            "====  ====",
            "   :b: c",
            ".. code::",
            "[1]_",
            "   ",
            "__ x",
            "> ",
        ),
    ),
    Format(
        AsciiDocParser(),
        ADOC,
        (
            "= ",
            "== ",
            "----",
            "====",
            "|===",
            "[source]",
            "* ",
            "+\n",
            "////",
            "[[x]]",
            ".T",
            "::",
            "____",
            "--",
        ),
    ),
    Format(
        OrgParser(),
        ORG,
        (
            "* ",
            "** ",
            "#+BEGIN_SRC",
            "#+END_SRC",
            "#+TITLE: ",
            "- ",
            "| ",
            ":X:",
            ":END:",
            "# ",
            ": ",
            "|--|",
        ),
    ),
    Format(
        HtmlParser(),
        HTML,
        (
            "<p>",
            "</p>",
            "<pre>",
            "</pre>",
            "<h1>",
            "</h1>",
            "<table>",
            "<td>",
            "<main>",
            "</main>",
            "<nav>",
            "<!--",
            "-->",
            "&amp;",
            "&#10;",
            "<script>",
            "<li>",
            "<img alt='x\ny'>",
            "<",
            "</",
            "<![CDATA[",
        ),
        html.unescape,
    ),
    Format(
        NotebookParser(),
        NOTEBOOK,
        ('"', "{", "}", "[", "]", ",", ":", "\\n", "\\", '"cells"', '"source"', "```", "# "),
        _json_line,
    ),
]

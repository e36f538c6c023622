"""The formats but Markdown and reStructuredText, compared with what was put in or with another reading of it.

No second reader of AsciiDoc and Org is at hand, so documents are made whose headings, blocks and lines are known
and written down in each format. HTML and notebooks hold the examples of CommonMark as well.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.documents import FIXTURES, check_chunks, check_document, letters

from copilotd.ingest.asciidoc import AsciiDocParser
from copilotd.ingest.html import HtmlParser
from copilotd.ingest.markdown import MarkdownParser, MdxParser
from copilotd.ingest.notebook import NotebookParser
from copilotd.ingest.org import OrgParser
from copilotd.ingest.rst import RstParser
from copilotd.types import BlockKind, Document, Parser

EXAMPLES = json.loads((FIXTURES / "commonmark.json").read_text(encoding="utf-8"))
RENDERER = MarkdownIt("commonmark").enable("table")


def headings(document: Document) -> list[tuple[int, str]]:
    return [(section.level, section.heading) for section in document.sections if section.level]


def rendered_headings(page: str) -> list[tuple[int, str]]:
    found = re.findall(r"<h([1-6])(?:\s[^>]*)?>(.*?)</h\1>", page, re.DOTALL)
    return [
        (int(level), " ".join(html.unescape(re.sub(r"<[^>]+>", "", inner)).split())) for level, inner in found
    ]


# ------------------------------------------------------------------------- documents made for each format


@dataclass(frozen=True)
class Part:
    """A part of a document: what it is, and its words by line."""

    kind: str
    lines: tuple[str, ...]
    level: int = 0


NAMES = (
    "kiln",
    "E1234x",
    "--dry-run",
    "BORG_REPO",
    "a.b.c",
    "v1.2.3",
    "/etc/x",
    "Größe",
    "漢字",
    "שלום",
    "मार्ग",
)


@st.composite
def documents(draw: st.DrawFn) -> list[Part]:
    """Draws the parts of a document; every word is there once."""
    count = 0

    def words(most: int) -> str:
        nonlocal count
        made = []
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most)):
            count += 1
            made.append(f"{name}{count}z")
        return " ".join(made)

    level = 0
    parts: list[Part] = []
    for kind in draw(
        st.lists(st.sampled_from(("heading", "text", "code", "list", "table", "quote")), max_size=10)
    ):
        if kind == "heading":
            level = draw(st.integers(1, min(level + 1, 5)))
            parts.append(Part(kind, (words(3),), level))
        elif kind == "table":
            rows = draw(st.integers(2, 4))
            parts.append(Part(kind, tuple(f"{words(2)}\t{words(2)}" for _ in range(rows))))
        else:
            lines = draw(st.integers(1, 4))
            parts.append(Part(kind, tuple(words(4) for _ in range(lines))))
    return parts


def as_markdown(part: Part) -> list[str]:
    match part.kind:
        case "heading":
            return [f"{'#' * part.level} {part.lines[0]}"]
        case "code":
            return ["```", *part.lines, "```"]
        case "list":
            return [f"- {line}" for line in part.lines]
        case "quote":
            return [f"> {line}" for line in part.lines]
        case "table":
            first, *rest = (f"| {' | '.join(line.split(chr(9)))} |" for line in part.lines)
            return [first, "|---|---|", *rest]
    return list(part.lines)


def as_rst(part: Part) -> list[str]:
    match part.kind:
        case "heading":
            return [part.lines[0], '=-~^"'[part.level - 1] * (2 * len(part.lines[0]))]
        case "code":
            return [".. code-block:: sh", "", *(f"   {line}" for line in part.lines)]
        case "list":
            return [f"* {line}" for line in part.lines]
        case "quote":
            return ["..", "", *(f"   {line}" for line in part.lines)]
        case "table":
            cells = [line.split("\t") for line in part.lines]
            rows = [f"   * - {row[0]}\n     - {row[1]}".split("\n") for row in cells]
            return [".. list-table::", "   :header-rows: 1", "", *(line for row in rows for line in row)]
    return list(part.lines)


def as_asciidoc(part: Part) -> list[str]:
    match part.kind:
        case "heading":
            return [f"{'=' * part.level} {part.lines[0]}"]
        case "code":
            return ["[source,sh]", "----", *part.lines, "----"]
        case "list":
            return [f"* {line}" for line in part.lines]
        case "quote":
            return ["____", *part.lines, "____"]
        case "table":
            rows = ["|" + " |".join(line.split("\t")) for line in part.lines]
            return ["|===", rows[0], "", *rows[1:], "|==="]
    return list(part.lines)


def as_org(part: Part) -> list[str]:
    match part.kind:
        case "heading":
            return [f"{'*' * part.level} {part.lines[0]}"]
        case "code":
            return ["#+begin_src sh", *part.lines, "#+end_src"]
        case "list":
            return [f"- {line}" for line in part.lines]
        case "quote":
            return ["#+begin_quote", *part.lines, "#+end_quote"]
        case "table":
            first, *rest = (f"| {' | '.join(line.split(chr(9)))} |" for line in part.lines)
            return [first, "|---+---|", *rest]
    return list(part.lines)


def as_html(part: Part) -> list[str]:
    match part.kind:
        case "heading":
            return [f"<h{part.level}>{part.lines[0]}</h{part.level}>"]
        case "code":
            first, *rest = part.lines
            return [f"<pre><code>{first}", *rest, "</code></pre>"]
        case "list":
            return ["<ul>", *(f"<li>{line}</li>" for line in part.lines), "</ul>"]
        case "quote":
            return ["<blockquote><p>", *part.lines, "</p></blockquote>"]
        case "table":
            cells = [line.split("\t") for line in part.lines]
            rows = [f"<tr><th>{cells[0][0]}</th><th>{cells[0][1]}</th></tr>"]
            rows += [f"<tr><td>{row[0]}</td><td>{row[1]}</td></tr>" for row in cells[1:]]
            return ["<table>", *rows, "</table>"]
    return ["<p>", *part.lines, "</p>"]


def as_notebook(parts: list[Part]) -> str:
    cells = []
    for part in parts:
        code = part.kind == "code"
        lines = part.lines if code else as_markdown(part)
        cells.append(
            {
                "cell_type": "code" if code else "markdown",
                "source": "\n".join(lines).splitlines(keepends=True),
            }
        )
    return json.dumps({"cells": cells}, indent=1, ensure_ascii=False)


def joined(write: Callable[[Part], list[str]]) -> Callable[[list[Part]], str]:
    return lambda parts: "\n\n".join("\n".join(write(part)) for part in parts) + "\n"


KINDS = {
    "text": BlockKind.PARAGRAPH,
    "code": BlockKind.CODE,
    "list": BlockKind.LIST_ITEM,
    "table": BlockKind.TABLE,
    "quote": BlockKind.QUOTE,
    "heading": BlockKind.HEADING,
}
WRITERS: dict[str, tuple[Parser, Callable[[list[Part]], str]]] = {
    "markdown": (MarkdownParser(), joined(as_markdown)),
    "mdx": (MdxParser(), joined(as_markdown)),
    "rst": (RstParser(), joined(as_rst)),
    "asciidoc": (AsciiDocParser(), joined(as_asciidoc)),
    "org": (OrgParser(), joined(as_org)),
    "html": (HtmlParser(), joined(as_html)),
    "notebook": (NotebookParser(), as_notebook),
}


@pytest.mark.parametrize(("parser", "write"), WRITERS.values(), ids=WRITERS)
@settings(max_examples=60, deadline=None)
@given(parts=documents())
def test_what_was_put_in_is_read(
    parser: Parser, write: Callable[[list[Part]], str], parts: list[Part]
) -> None:
    source = write(parts)
    document = check_document(parser, source.encode(), str)
    assert document is not None
    assert headings(document) == [(part.level, part.lines[0]) for part in parts if part.kind == "heading"]
    words = [word for part in parts for line in part.lines for word in line.split()]
    lines = source.split("\n")
    place = {
        word: number
        for number, line in enumerate(lines, 1)
        for word in words
        if word in re.split(r"[\s|<>\"\\]+", line)
    }
    read = [
        (word, number)
        for line, number in zip(document.text.split("\n"), document.line_numbers, strict=bool(document.text))
        for word in re.findall(r"[^\s|]*\d+z", line)
    ]
    assert read == [(word, place[word]) for word in words], "each word once, in order, on its line"
    for block in document.blocks:
        text = document.text[block.start : block.end]
        kinds = {KINDS[part.kind] for part in parts for line in part.lines if line.split()[0] in text.split()}
        assert not kinds or block.kind in kinds, (block.kind, text)
    for size in (60, 2000):
        check_chunks(document, max_chars=size, overlap_chars=10)


# ------------------------------------------------------------------------------ the examples of CommonMark

_UNSEEN = re.compile(
    r"<(script|style|template|svg)\b.*?(?:</\1>|\Z)|<!--(?:-?>|.*?(?:-->|\Z))|<[!?][^>]*>|<title>.*?</title>",
    re.DOTALL | re.IGNORECASE,
)
# Tags, and one style sheet, that are never closed: what a browser makes of them is nothing a regular expression tells.
_NEVER_CLOSED = {156, 157, 158, 173, 616}
_ALT = re.compile(r"<img\b[^>]*?\balt=\"([^\"]*)\"[^>]*>")


def seen_of_page(page: str) -> str:
    """Returns the letters of a page in their order, pictures by their alternative text."""
    return letters(html.unescape(re.sub(r"<[^>]*>", " ", _ALT.sub(r" \1 ", _UNSEEN.sub(" ", page)))))


@pytest.mark.parametrize(
    "example",
    [example for example in EXAMPLES if example["example"] not in _NEVER_CLOSED],
    ids=lambda example: str(example["example"]),
)
def test_commonmark_example_as_a_page(example: dict[str, str]) -> None:
    page = RENDERER.render(example["markdown"])
    document = check_document(HtmlParser(), page.encode(), html.unescape)
    assert document is not None
    assert letters(document.text) == seen_of_page(page)
    check_chunks(document, max_chars=40, overlap_chars=10)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["example"]))
def test_commonmark_example_as_a_cell(example: dict[str, str]) -> None:
    text = example["markdown"]
    cells = [
        {"cell_type": "markdown", "source": text.splitlines(keepends=True)},
        {"cell_type": "markdown", "source": "# Next"},
    ]
    document = NotebookParser().parse(json.dumps({"cells": cells}, indent=1).encode(), "guide")
    rendered = [found for found in rendered_headings(RENDERER.render(text)) if found[1]]
    assert headings(document) == [*rendered, (1, "Next")]
    alone = MarkdownParser().parse(text.encode(), "guide")
    assert letters(document.text) == letters(alone.text) + "Next"
    check_chunks(document, max_chars=40, overlap_chars=10)

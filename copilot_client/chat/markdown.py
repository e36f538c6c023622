"""Markdown of an answer to what rich shows: nothing of it is lost, and nothing of it acts.

Links and images of documents and models are shown as text with their address beside it; only the marks of the
answer's own citations become links, to files of this machine. HTML is text. Code is not wrapped, so that it
can be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

# Plain terminal colours, which every theme of a terminal makes readable; none of rich's own backgrounds.
THEME = Theme(
    {
        "markdown.code": "bold",
        "markdown.code_block": "cyan",
        "markdown.link": "none",
        "markdown.link_url": "none",
        "markdown.block_quote": "italic",
        "markdown.item.number": "bold",
        "markdown.item.bullet": "bold",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
    }
)

# Private-use characters, which printable() has replaced in all that comes from outside: they can't be forged.
_OPEN, _CLOSE = "\ue000", "\ue001"
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_LEAST_COLUMN = 8


def console_for(stream: TextIO, *, colour: bool) -> Console:
    """Returns a console that interprets no markup of its own."""
    return Console(
        file=stream,
        theme=THEME,
        no_color=not colour,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )


class AnswerMarkdown(Markdown):
    """An answer.

    Args:
        text: Its Markdown, already printable.
        links: ``[doc_title > section_heading]`` as it stands in the text → where it leads, a ``file:`` address.
    """

    def __init__(self, text: str, links: Mapping[str, str]) -> None:
        super().__init__("", hyperlinks=True, justify="default")
        labels = sorted(links, key=len, reverse=True)
        for number, label in enumerate(labels):
            text = text.replace(label, f"{_OPEN}{number}{_CLOSE}")
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        places = [(label, links[label]) for label in labels]
        self.markup = text
        self.parsed = list(_made_safe(parser.parse(text), places))


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Text(str(self.text).rstrip("\n"), style="markdown.code_block")
        if options.max_width < console.width:
            # Inside a list or quotation longer lines would be cut off.
            code.overflow = "fold"
        else:
            code.no_wrap, code.overflow = True, "ignore"
        yield code


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for item in super().__rich_console__(console, options):
            if isinstance(item, Table):
                if len(item.columns) * _LEAST_COLUMN > options.max_width:
                    yield from self._as_records(item)
                    continue
                for column in item.columns:
                    column.overflow = "fold"
            yield item

    def _as_records(self, table: Table) -> Iterator[Text]:
        """Yields each row as lines of ``heading: cell``: too narrow for columns."""
        headings = [str(column.header) for column in table.columns]
        for row in zip(*(column.cells for column in table.columns), strict=True):
            for heading, cell in zip(headings, row, strict=True):
                yield Text.assemble((f"{heading}: ", "markdown.table.header"), str(cell), overflow="fold")
            yield Text("")


AnswerMarkdown.elements = {
    **Markdown.elements,
    "heading_open": _Heading,
    "fence": _Code,
    "code_block": _Code,
    "table_open": _Table,
}


class Draft:
    """An answer that is still growing, drawn over itself: as much of its end as fits the screen.

    Args:
        console: Where it is drawn.

    Attributes:
        text: What has come so far.
    """

    def __init__(self, console: Console) -> None:
        self.text = ""
        self._live = Live(self, console=console, auto_refresh=False, transient=True)

    def draw(self) -> None:
        """Shows it as it is now."""
        if not self._live.is_started:
            self._live.start()
        self._live.refresh()

    def clear(self) -> None:
        """Takes it off the screen."""
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the last lines."""
        room = max(console.height - 2, 1)
        shown = Text(self.text[-room * max(options.max_width, 1) :], overflow="fold")
        for line in console.render_lines(shown, options, pad=False)[-room:]:
            yield from line
            yield Segment.line()


def print_lines(console: Console, lines: Iterable[str], *, dim: bool = False) -> None:
    """Prints lines, broken between words."""
    for line in lines:
        console.print(Text(line, style="dim" if dim else "", overflow="fold"))


def print_markdown(console: Console, text: str, links: Mapping[str, str]) -> None:
    """Prints an answer; lines of code may be longer than the console is wide."""
    console.print(AnswerMarkdown(text, links), crop=False)


def _made_safe(tokens: Iterable[Token], places: list[tuple[str, str]]) -> Iterator[Token]:
    for token in tokens:
        token.content = _labels_back(token.content, places)
        if token.children is not None:
            token.children = list(_inline(token.children, places))
        yield token


def _inline(tokens: Iterable[Token], places: list[tuple[str, str]]) -> Iterator[Token]:
    address: list[str] = []
    for token in tokens:
        if token.type == "link_open":
            address.append(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            if token.markup != "autolink":
                yield from _words(f" ({address.pop()})", places)
        elif token.type == "image":
            yield from _words(f"{token.content} ({token.attrs.get('src', '')})", places)
        elif token.type == "text":
            yield from _words(token.content, places)
        else:
            token.content = _labels_back(token.content, places)
            yield token


def _words(text: str, places: list[tuple[str, str]]) -> Iterator[Token]:
    position = 0
    for match in _PLACEHOLDER.finditer(text):
        yield Token("text", "", 0, content=text[position : match.start()])
        label, address = places[int(match[1])]
        yield Token("link_open", "a", 1, attrs={"href": address})
        yield Token("text", "", 0, content=label)
        yield Token("link_close", "a", -1)
        position = match.end()
    yield Token("text", "", 0, content=text[position:])


def _labels_back(text: str, places: list[tuple[str, str]]) -> str:
    return _PLACEHOLDER.sub(lambda match: places[int(match[1])][0], text)

"""reStructuredText: docutils finds the structure, the source lines become the text.

As in the other formats the text is kept as it was written, less what no reader of the rendered page sees:
adornments, comments, labels, options of directives, table borders.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import regex as re

from copilotd.ingest import rst_names
from copilotd.ingest.decode import decode
from copilotd.ingest.lines import clean_characters, has_words
from copilotd.ingest.markup import strip_markup
from copilotd.ingest.outline import Leaf, build_document
from copilotd.ingest.rst_outline import Directive, Structure, Title
from copilotd.types import BlockKind, Document

# docutils copies the lines that are left at each list and title: 6 s for 50,000 lines that are nothing else.
_MAX_LINES = 50_000
_ADORNMENT = re.compile(r"\s*([!-/:-@\[-`{-~])\1{2,}\s*")
_BORDER = re.compile(r"(?=[^=-]*+(?:-(?![-=])[^=-]*+)*+(?:=|--|-=))[-=+|\s]++")
_GRID_HEADER = re.compile(r"\s*+\+(?=\+*+=)[=+]++\s*+")
_ROLE = re.compile(r"``(?:[^`]|`(?!`))*+``|:[A-Za-z][\w.:+-]{0,60}:`(?![\s`])((?:[^`\n]|\n(?!\s*[|+]))+)`")
_ROLE_TARGET = re.compile(r"(.+?)\s*<[^<]*>", re.DOTALL)
_INLINE = re.compile(r"``|\*\*|(?<!\w)[*`|]|[*`|](?!\w)")
_OPTION = re.compile(r"\s+:(?P<name>[\w -]+):(?:\s+(?P<value>.*))?")
_FILE_SETTING = re.compile(r":(?:orphan|tocdepth|nocomments|no-?search)\s*:.*", re.IGNORECASE)
_GRID_SPACES = re.compile(r"[ \t]{2,}")
_CELL_SETTING = re.compile(r"(?<=\|) *\.\. (?:rst-)?class:: [^|]*(?=\|)")
_SIMPLE_SPACES = re.compile(r"(?<=\S)[ \t]{3,}")


class RstParser:
    """Reads reStructuredText, with what Sphinx adds to it."""

    name = "rst"
    version = 2
    suffixes: tuple[str, ...] = (".rst", ".rest", ".rst.inc")
    isolated = False

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: The bytes are not text.
        """
        from copilotd.ingest.rst_structure import read_structure

        text = clean_characters(decode(source))
        lines = text.split("\n")
        try:
            structure = read_structure(text) if len(lines) <= _MAX_LINES else Structure(scan_titles(lines))
        except Exception:  # docutils raises anything on what it can't parse, and its text is still text
            structure = Structure(titles=scan_titles(lines))
        return _Cleaner(lines, structure).document(doc_title)


def scan_titles(lines: list[str]) -> list[Title]:
    """Finds titles by their underlines alone, levels by the order of adornments."""
    titles: list[Title] = []
    styles: list[tuple[str, bool]] = []
    for index in range(len(lines) - 1):
        line, below = lines[index], lines[index + 1]
        words = line.strip()
        if not words or not _ADORNMENT.fullmatch(below) or below[0].isspace() or _ADORNMENT.fullmatch(line):
            continue
        overlined = index > 0 and lines[index - 1].rstrip() == below.rstrip()
        above = lines[index - 1].strip() if index else ""
        if len(below.rstrip()) < len(words) or (above and not overlined):
            continue
        style = (below[0], overlined)
        if style not in styles:
            styles.append(style)
        words = _ROLE.sub(_role_text, words)
        titles.append(Title(index + 1, styles.index(style) + 1, _INLINE.sub("", words), overlined))
    return titles


def _role_text(match: re.Match[str]) -> str:
    text: str | None = match[1]
    if text is None:
        return match[0]
    target = _ROLE_TARGET.fullmatch(text)
    shown = target[1] if target else text
    shown = shown.rpartition(".")[2].lstrip("~") if shown.startswith("~") else shown
    # A role that goes over several lines still does, so that each word stays on its own.
    return shown + "\n" * (text.count("\n") - shown.count("\n"))


class _Cleaner:
    """Turns source lines into what a reader sees of them, and the structure into leaves."""

    def __init__(self, lines: list[str], structure: Structure) -> None:
        self._lines = lines
        self._kept: list[str | None] = list(lines)
        self._verbatim: set[int] = set()
        self._structure = structure
        self._starts = dict(structure.starts)
        self._order = sorted({*self._starts, *(title.line for title in structure.titles)})
        self._headers: dict[int, int] = {}

    def document(self, doc_title: str) -> Document:
        """Returns the document."""
        structure = self._structure
        for first, last in structure.literals:
            self._literal(first - 1, last)
        for directive in structure.directives:
            self._directive(directive)
        for first, last in structure.unseen:
            self._drop(first - 1, last)
        for line in structure.tables:
            self._table(line)
        headings = [self._heading(title) for title in structure.titles]
        self._plain_lines()
        leaves = headings + [
            Leaf(kind, line - 1, self._end(line), group, header_lines=self._headers.get(line, 0))
            for line, (kind, group) in self._starts.items()
        ]
        return build_document(doc_title, self._kept, leaves, verbatim=self._verbatim)

    def _end(self, line: int) -> int:
        """Returns the line (0-based) where the block after the one at ``line`` (1-based) starts."""
        following = bisect_right(self._order, line)
        return self._order[following] - 1 if following < len(self._order) else len(self._lines)

    def _drop(self, first: int, end: int) -> None:
        for index in range(first, min(end, len(self._kept))):
            self._kept[index] = None
            self._verbatim.discard(index)

    def _heading(self, title: Title) -> Leaf:
        index = title.line - 1
        self._drop(index + 1, index + 2)
        above = index - 1
        if title.overlined:
            self._drop(above, index)
            above -= 1
        labels = self._structure.labels
        while labels and above >= 0 and not self._lines[above].strip():
            above -= 1
        return Leaf(
            BlockKind.HEADING,
            index,
            index + 1,
            -title.line,
            title.level,
            title.words,
            labels.get(above + 1, ""),
        )

    def _literal(self, first: int, end: int) -> None:
        self._verbatim.update(range(first, min(end, len(self._lines))))
        above = first - 1
        while above >= 0 and not self._lines[above].strip():
            above -= 1
        if above >= 0 and (opening := self._lines[above].rstrip()).endswith("::") and ".. " not in opening:
            self._kept[above] = opening[:-1] if has_words(opening) else None

    def _directive(self, directive: Directive) -> None:
        index, name = directive.line - 1, directive.name
        line = self._lines[index]
        marker = re.search(r"\.\.[ \t]+" + re.escape(name) + r"[ \t]?::[ \t]*", line, re.IGNORECASE)
        if marker is None or "|" in line[: marker.start()]:
            return
        content = directive.content - 1 if directive.content else directive.last
        self._options(index + 1, min(content, directive.last))
        if name in rst_names.CODE and name != "raw":
            self._verbatim.update(range(content, min(directive.last, len(self._lines))))
        if name in rst_names.SHOWN:
            self._headers[directive.line] = 1 if name in rst_names.CODE else 0
            return
        before, rest = line[: marker.start()], line[marker.end() :]
        if name in rst_names.SETTINGS:
            rest = ""
        elif name in rst_names.NAMED:
            shown = line[marker.start() + 2 : line.index("::", marker.start())].strip()
            rest = f"{shown}{':' if name in rst_names.TEXT else ''} {rest}"
        self._kept[index] = (before + rest).rstrip() if has_words(rest) or has_words(before) else None
        if name == "raw":
            self._raw(directive, content)
        elif name in rst_names.TABLES:
            self._header_of_list(directive, content)

    def _options(self, first: int, end: int) -> None:
        shown = True
        for index in range(first, min(end, len(self._lines))):
            line = self._lines[index]
            option = _OPTION.fullmatch(line)
            if option is not None:
                shown = option["name"].lower() in rst_names.SEEN_OPTIONS and bool(option["value"])
                if shown:
                    self._kept[index] = line[: len(line) - len(line.lstrip())] + option["value"]
            if not shown:
                self._drop(index, index + 1)

    def _raw(self, directive: Directive, content: int) -> None:
        last = min(directive.last, len(self._lines))
        if "html" not in directive.argument.lower():
            self._drop(content, last)
            return
        stripped = strip_markup("\n".join(self._lines[content:last]), frozenset()).split("\n")
        for index, line in enumerate(stripped, content):
            self._kept[index] = line.rstrip() if has_words(line) else None

    def _header_of_list(self, directive: Directive, content: int) -> None:
        """Notes the header of a table that is written as a list or as comma-separated values."""
        if directive.name == "csv-table":
            header = next(
                (
                    index
                    for index in range(directive.line, content)
                    if self._lines[index].lstrip().startswith(":header:")
                ),
                0,
            )
            self._headers[directive.line] = header + 1 - (directive.line - 1) if header else 0
        elif (directive.options.get("header-rows") or "0").strip() not in ("", "0"):
            end = content + 1
            while end < directive.last and not self._lines[end].lstrip().startswith("* "):
                end += 1
            self._headers[directive.line] = end - (directive.line - 1)

    def _table(self, line: int) -> None:
        """Drops the borders of a table, and what pads its cells."""
        first = line - 1
        grid = self._lines[first].lstrip().startswith("+")
        spaces = _GRID_SPACES if grid else _SIMPLE_SPACES
        borders: list[int] = []
        header = 0
        for index in range(first, self._end(line)):
            text = self._lines[index]
            if not text.strip():
                if grid:
                    break
                continue
            if grid and ".. " in text:
                text = _CELL_SETTING.sub("", text)
            if not has_words(text) and (grid or _BORDER.fullmatch(text)):
                if _BORDER.fullmatch(text):
                    borders.append(index)
                    header = index if grid and _GRID_HEADER.fullmatch(text) else header
                self._kept[index] = None
                continue
            if self._kept[index] is not None:
                indent = len(text) - len(text.lstrip())
                self._kept[index] = text[:indent] + spaces.sub(" " if grid else "  ", text[indent:].rstrip())
        if not grid and len(borders) > 2:
            header = borders[1]
        if header > first:
            self._headers[line] = header - first

    def _plain_lines(self) -> None:
        """Drops lines that only adorn or set something, and reduces roles to their text."""
        top = True
        for index, line in enumerate(self._kept):
            if line is None or index in self._verbatim or not line:
                continue
            if top and not _FILE_SETTING.fullmatch(line):
                top = False
            if top or (not has_words(line) and _ADORNMENT.fullmatch(line)):
                self._kept[index] = None
        for first, last in self._paragraphs():
            lines = self._kept[first:last]
            text = "\n".join(line for line in lines if line is not None)
            if ":`" in text:
                shown = _ROLE.sub(_role_text, text).split("\n")
                # A line that held nothing but a role's target is not seen.
                self._kept[first:last] = [
                    line if has_words(line) or not has_words(before or "") else None
                    for line, before in zip(shown, lines, strict=True)
                ]

    def _paragraphs(self) -> Iterator[tuple[int, int]]:
        """Yields the runs of kept lines without a blank one, half-open; code is in none."""
        first = 0
        for index, line in enumerate([*self._kept, None]):
            if not line or index in self._verbatim or not line.strip():
                if index > first:
                    yield first, index
                first = index + 1

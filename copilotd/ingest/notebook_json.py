"""The cells of a Jupyter notebook, each piece of their text with the line of the JSON it is written on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import regex as re

from copilotd.errors import ParseError

_TOKEN = re.compile(
    r'[\s,:]*(?:(?P<string>"(?:[^"\\\n]|\\[^\n])*+")|(?P<mark>[{}\[\]])|(?P<other>[^\s,:{}\[\]"]+))'
)
_DAMAGED = "not a Jupyter notebook: its JSON is damaged"
_MAX_DEPTH = 100


@dataclass(slots=True)
class Cell:
    """A cell: its type, and its lines of text with the source line (0-based) each stands on."""

    kind: str = ""
    lines: list[tuple[int, str]] = field(default_factory=list)


def read_cells(text: str) -> tuple[list[Cell], str]:
    """Returns the cells of a notebook and the language of its code.

    Raises:
        ParseError: It is no notebook.
    """
    cells: list[Cell] = []
    language = ""
    for path, value, line in _strings(text):
        if path == ("metadata", "kernelspec", "language") or path == ("metadata", "language_info", "name"):
            language = language or value
            continue
        place = _cell_place(path)
        if place is None:
            continue
        number, rest = place
        while len(cells) <= number:
            cells.append(Cell())
        if rest == ("cell_type",):
            cells[number].kind = value
        elif rest[:1] in (("source",), ("input",)) and len(rest) <= 2:
            _add(cells[number], value, line)
    return cells, language


def _cell_place(path: tuple[str | int, ...]) -> tuple[int, tuple[str | int, ...]] | None:
    """Returns the number of a cell and the way from it; nbformat 3 keeps cells in worksheets."""
    if path[:1] == ("worksheets",) and len(path) > 2:
        path = path[2:]
    if path[:1] != ("cells",) or len(path) < 3 or not isinstance(path[1], int):
        return None
    return path[1], path[2:]


def _add(cell: Cell, value: str, line: int) -> None:
    value = value.replace("\0", "").replace("\r\n", "\n").replace("\r", " ")
    parts = value.split("\n")
    if cell.lines and cell.lines[-1][1].endswith("\n"):
        cell.lines[-1] = (cell.lines[-1][0], cell.lines[-1][1][:-1])
    elif cell.lines:
        last, before = cell.lines[-1]
        if last == line:
            cell.lines.pop()
            parts[0] = before + parts[0]
    for index, part in enumerate(parts):
        end = index == len(parts) - 1
        if end and not part and index:
            cell.lines[-1] = (cell.lines[-1][0], cell.lines[-1][1] + "\n")
        else:
            cell.lines.append((line, part))


def _strings(text: str) -> Iterator[tuple[tuple[str | int, ...], str, int]]:
    """Yields every string value that is not below an output, with its path and line.

    The path holds keys of objects and positions in lists. Nothing here recurses, so depth costs nothing.
    """
    path: list[str | int] = []
    closers: list[str] = []
    keys: list[bool] = []
    position = line = counted = 0
    size = len(text.rstrip())
    while position < size:
        token = _TOKEN.match(text, position)
        if token is None:
            raise ParseError(_DAMAGED)
        position = token.end()
        mark, string = token["mark"], token["string"]
        if not closers and mark != "{":
            raise ParseError(_DAMAGED)
        if mark and mark in "}]":
            if closers.pop() != mark:
                raise ParseError(_DAMAGED)
            path.pop()
            keys.pop()
            if not closers:
                if position < size:
                    raise ParseError(_DAMAGED)
                return
            _after_value(path, closers, keys)
        elif mark:
            if len(closers) >= _MAX_DEPTH:
                raise ParseError(_DAMAGED)
            closers.append("}" if mark == "{" else "]")
            path.append("" if mark == "{" else 0)
            keys.append(mark == "{")
        elif keys[-1]:
            if string is None:
                raise ParseError(_DAMAGED)
            path[-1] = _decoded(string)
            keys[-1] = False
        else:
            if string is not None and "outputs" not in path[2:5]:
                start = token.start("string")
                line += text.count("\n", counted, start)
                counted = start
                yield tuple(path), _decoded(string), line
            _after_value(path, closers, keys)
    raise ParseError(_DAMAGED)


def _after_value(path: list[str | int], closers: list[str], keys: list[bool]) -> None:
    place = path[-1]
    if isinstance(place, int):
        path[-1] = place + 1
    else:
        keys[-1] = closers[-1] == "}"


def _decoded(string: str) -> str:
    try:
        return str(json.loads(string, strict=False))
    except ValueError as error:
        raise ParseError(_DAMAGED) from error

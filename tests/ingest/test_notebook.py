"""Jupyter notebooks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from copilotd.errors import ParseError
from copilotd.ingest.notebook import NotebookParser
from copilotd.types import BlockKind, Document

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "formats"


def parse(text: str) -> Document:
    return NotebookParser().parse(text.encode(), "guide")


def test_cells_stand_on_the_lines_of_the_file() -> None:
    source = (FIXTURES / "guide.ipynb").read_text(encoding="utf-8")
    document = parse(source)
    lines = source.split("\n")
    for words, number in zip(document.text.split("\n"), document.line_numbers, strict=True):
        if words:
            assert json.dumps(words)[1:-1] in lines[number - 1]
    assert [section.heading_path for section in document.sections] == [("Title é",), ("Title é", "Sub")]
    assert "hidden" not in document.text


def test_blocks_are_those_of_the_cells() -> None:
    document = parse((FIXTURES / "guide.ipynb").read_text(encoding="utf-8"))
    found = [(block.kind, document.text[block.start : block.end]) for block in document.blocks]
    assert (BlockKind.CODE, "```sh\nls\n\npwd\n```") in found
    assert (BlockKind.CODE, 'import x\n\nx.run("a")') in found
    table = next(block for block in document.blocks if block.kind is BlockKind.TABLE)
    assert document.text[table.start : table.header_end] == "| a | b |\n|---|---|"


def test_a_cell_written_as_one_string_stands_on_one_line() -> None:
    document = parse('{"cells": [\n{"cell_type": "markdown",\n"source": "# A\\n\\ntext"}\n]}')
    assert (document.text, document.line_numbers) == ("# A text", (3,))
    assert document.sections[0].heading == "A"


def test_an_open_fence_ends_with_its_cell() -> None:
    cells = [{"cell_type": "markdown", "source": [text]} for text in ("```\n# no", "# Yes")]
    document = parse(json.dumps({"cells": cells}, indent=0))
    assert [section.heading for section in document.sections if section.level] == ["Yes"]


def test_the_old_format_has_worksheets() -> None:
    cells = [{"cell_type": "code", "input": ["print(1)"], "outputs": [{"text": ["1"]}]}]
    assert parse(json.dumps({"worksheets": [{"cells": cells}]}, indent=1)).text == "print(1)"


@pytest.mark.parametrize(
    "source",
    [
        "",
        "text",
        "[]",
        '"x"',
        "{",
        '{"a": [}',
        '{"cells": ["a\nb"]}',
        '{"a": 1} x',
        '{"a": "\\x"}',
        "[" * 5_000,
    ],
)
def test_what_is_no_notebook_is_refused(source: str) -> None:
    with pytest.raises(ParseError, match="not a Jupyter notebook"):
        parse(source)


def test_escapes_move_nothing() -> None:
    cell = {"cell_type": "markdown", "source": ["a\r\n", "b\rc\n", "\0\0\0d\u202e\n", "\f\x85e"]}
    document = parse(json.dumps({"cells": [cell]}, indent=1))
    assert document.text == "a\nb c\nd\n  e"
    assert len(set(document.line_numbers)) == 4


def test_a_notebook_without_cells_is_empty() -> None:
    assert parse('{"cells": [], "metadata": {}}').text == ""

"""Identifiers are found as they were typed, in every format, and at the line they stand on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support import pdfs
from support.engines import Recorder, running_engine, search

from copilotd.ingest.pdf import PdfParser

IDENTIFIERS = ("--dry-run", "BORG_REPO", "a.b.c", "E1234", "/etc/kiln/kiln.conf", "v2.13.0-rc1", "-j4")
NEAR = ("dry run", "borg repository", "a and b and c", "E1235", "/etc/glaze/kiln", "v2.14.0", "j 4")
TITLES = [f"Part {number}" for number in range(len(IDENTIFIERS))]
PARTS = [
    (TITLES[index], f"Here the word {IDENTIFIERS[index]} is told of.") for index in range(len(IDENTIFIERS))
] + [(f"Other {index}", f"Here the word {NEAR[index]} is told of.") for index in range(len(NEAR))]


def _joined(heading: str, paragraph: str) -> str:
    return "\n".join(
        heading.format(title, "-" * len(title)) + paragraph.format(text) for title, text in PARTS
    )


FORMATS = {
    "guide.md": _joined("## {0}\n\n", "{}\n"),
    "guide.mdx": _joined("## {0}\n\n<Note>\n", "{}\n</Note>\n"),
    "guide.rst": _joined("{0}\n{1}\n\n", "{}\n"),
    "guide.adoc": _joined("== {0}\n\n", "{}\n"),
    "guide.org": _joined("** {0}\n", "{}\n"),
    "guide.html": "<main>" + _joined("<h2>{0}</h2>\n", "<p>{}</p>") + "</main>",
    "guide.txt": "\n\n".join(text for _, text in PARTS),
    "guide.ipynb": json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": [f"## {title}\n", "\n", text]} for title, text in PARTS
            ]
        },
        indent=1,
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_identifiers_are_found_exactly(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / name).write_text(FORMATS[name])
    lines = FORMATS[name].split("\n")
    with running_engine(tmp_path / "index") as engine:
        size = 200 if name.endswith(".txt") else None
        engine.index_root(str(folder), chunk_size=size, chunk_overlap=0, reporter=Recorder())
        for identifier in IDENTIFIERS:
            hit = search(engine, identifier).hits[0].chunk
            assert identifier in hit.text, (identifier, hit.text)
            cited = lines[hit.metadata.line_start - 1 : hit.metadata.line_end]
            assert any(identifier in line for line in cited), (identifier, cited)


PARTS_A_PAGE = 4


def _pdf() -> bytes:
    def draw(canvas: Any, parts: list[tuple[str, str]]) -> None:
        top = 80.0
        for title, text in parts:
            top = pdfs.write(canvas, [title], size=16, top=top + 20)
            top = pdfs.write(canvas, [text, *pdfs.PROSE], top=top + 10)

    pages = [PARTS[first : first + PARTS_A_PAGE] for first in range(0, len(PARTS), PARTS_A_PAGE)]
    return pdfs.drawn(*[lambda canvas, parts=parts: draw(canvas, parts) for parts in pages])


def _word() -> bytes:
    docx = pytest.importorskip("docx", reason="the extra docx is not installed")
    word = docx.Document()
    for title, text in PARTS:
        word.add_heading(title, 2)
        word.add_paragraph(text)
    target = io.BytesIO()
    word.save(target)
    return target.getvalue()


@pytest.mark.xdist_group("isolate")
@pytest.mark.parametrize("name", ["guide.pdf", "guide.docx"])
def test_identifiers_are_found_exactly_in_what_has_no_lines(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / name).write_bytes(_pdf() if name.endswith(".pdf") else _word())
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(folder), chunk_overlap=0, reporter=Recorder())
        for number, identifier in enumerate(IDENTIFIERS):
            hit = search(engine, identifier).hits[0].chunk
            assert f"Here the word {identifier} is told of." in hit.text, (identifier, hit.text)
            assert hit.metadata.section_heading == TITLES[number]
            if name.endswith(".pdf"):
                page = number // PARTS_A_PAGE + 1
                assert (hit.metadata.page, hit.metadata.page_end) == (page, page)


BROKEN = {
    "BORG_REPO": ("The place is taken from BORG_", "REPO, which is a variable."),
    "--dry-run": ("To see what would happen, add --dry-", "run to the command you typed."),
    "AB-120": ("The spare part is sold under AB-", "120 in every shop of the town."),
}


@pytest.mark.parametrize("identifier", BROKEN)
def test_an_identifier_broken_at_a_lines_end_of_a_pdf_is_whole_again(identifier: str) -> None:
    text = PdfParser().parse(pdfs.of_lines([*BROKEN[identifier], *pdfs.PROSE]), "guide").text
    assert identifier in text.split("\n")[0]

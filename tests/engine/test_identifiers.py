"""Identifiers are found as they were typed, in every format, and at the line they stand on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.engines import Recorder, running_engine, search

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

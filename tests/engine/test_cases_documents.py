"""The MD cases of real bug reports that are about finding words, through the engine; test_markdown has the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.engines import Recorder, running_engine, search

from copilotd.types import IndexReport

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def found(
    tmp_path: Path, query: str, *names: str, chunk_size: int | None = None
) -> tuple[IndexReport, str, tuple[str, ...]]:
    """Indexes fixtures and returns the report, and text and heading path of the best hit."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in names:
        (source,) = FIXTURES.rglob(name)
        shutil.copy(source, folder)
    with running_engine(tmp_path / "index") as engine:
        report = engine.index_root(str(folder), chunk_size=chunk_size, reporter=Recorder())
        hit = search(engine, query).hits[0].chunk
    return report, hit.text, hit.metadata.heading_path


@pytest.mark.parametrize("item", [1, 2048, 3777])
def test_md_27_every_item_of_a_huge_section_is_found(tmp_path: Path, item: int) -> None:
    _, text, path = found(tmp_path, f"item {item} part number changed", "md27_huge_section.md")
    assert f"Item {item}:" in text
    assert path == ("Release notes",)


def test_md_30_a_file_in_another_encoding_costs_its_neighbour_nothing(tmp_path: Path) -> None:
    report, text, _ = found(tmp_path, "neigh-204", "md30_latin1.md", "md30_good_neighbour.md")
    assert (report.new, report.skipped) == (2, ())
    assert "neigh-204" in text


def test_md_31_words_of_utf_16_are_found(tmp_path: Path) -> None:
    _, text, _ = found(tmp_path, "recovery phrase", "md31_utf16le.txt", "md31_utf16be.md")
    assert "amber-otter-12" in text
    assert "\0" not in text


def test_md_36_the_rows_of_a_table_are_found(tmp_path: Path) -> None:
    _, text, path = found(tmp_path, "blue", "md36_rst_table.rst")
    assert "blue  2" in text
    assert path == ("Colours",)


def test_md_39_a_row_of_a_long_table_is_found_with_what_its_columns_mean(tmp_path: Path) -> None:
    _, text, path = found(tmp_path, "torque of P-0777", "md39_wide_table.md", chunk_size=500)
    assert "| P-0777 | 67 Nm |" in text
    assert path == ("Parts",)

"""References to lines and pages that are there, and to those that aren't."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import Recorder, running_engine

from copilotd.engine import Engine
from copilotd.errors import SectionNotFound

FIXTURES = Path(__file__).parents[1] / "fixtures"
TEXT = "# Kiln\n\n## Firing\n\nHeat it slowly.\n\n## Cooling\n\nIt cools for 14 hours.\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text(TEXT)
    (folder / "odd:3").mkdir()
    (folder / "kiln.md:0").write_text("no document")
    (folder / "notes:3.md").write_text("# Odd\n\nA file with a colon.\n")
    (folder / "sample.pdf").write_bytes((FIXTURES / "sample.pdf").read_bytes())
    return folder


@pytest.fixture
def engine(tmp_path: Path, docs: Path) -> Iterator[Engine]:
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        yield engine


@pytest.mark.parametrize(
    ("ref", "heading"),
    [
        ("kiln.md:1", "Kiln"),
        ("kiln.md:2", "Kiln"),
        ("kiln.md:3", "Firing"),
        ("kiln.md:3-9", "Firing"),
        ("kiln.md:9", "Cooling"),
        ("kiln.md:007", "Cooling"),
        ("notes:3.md", "Odd"),
        ("notes:3.md:3", "Odd"),
    ],
)
def test_a_line_names_its_section(engine: Engine, ref: str, heading: str) -> None:
    assert engine.section(ref, None, Recorder()).text.splitlines()[0].lstrip("# ") == heading


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0", "the first is 1"),
        ("000", "the first is 1"),
        ("0-4", "the first is 1"),
        ("12", "There is no line 12 in kiln.md, which has"),
        ("3-999", "There is no line 999 in kiln.md"),
        ("99999999999999999999", "no line"),
        ("9" * 3900, "no line"),
        ("5-2", "run backwards"),
    ],
)
def test_a_line_that_is_not_there_is_refused(engine: Engine, line: str, words: str) -> None:
    with pytest.raises(SectionNotFound) as caught:
        engine.section(f"kiln.md:{line}", None, Recorder())
    assert words in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("line", ["-1", "x", "1-", "-", "1-x", "٣", "+1", "1.5"])
def test_what_is_no_line_number_is_no_reference(engine: Engine, line: str) -> None:
    with pytest.raises(SectionNotFound, match="No indexed section is named"):
        engine.section(f"kiln.md:{line}", None, Recorder())


def test_a_paged_document_has_lines_and_pages(engine: Engine) -> None:
    first = engine.section("sample.pdf p. 1", None, Recorder())
    assert first.page == 1
    # As `copilot section 1` asks for a source of the last answer.
    assert engine.section(f"sample.pdf:{first.line_start}", None, Recorder()) == first
    assert engine.section("sample.pdf pp. 1-1", None, Recorder()) == first
    for ref, words in (
        ("sample.pdf pp. 2-1", "The pages 2-1 run backwards"),
        ("sample.pdf pp. 1-999", "There is no page 999"),
        ("sample.pdf p. 0", "There is no page 0"),
        ("sample.pdf p. 999", "There is no page 999 in sample.pdf, which has"),
        ("sample.pdf:99999", "There is no line 99999"),
        ("kiln.md p. 1", "has no pages"),
    ):
        with pytest.raises(SectionNotFound, match=words):
            engine.section(ref, None, Recorder())


def test_the_home_folder_of_the_daemon_is_nobodys_reference(
    engine: Engine, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(docs))
    with pytest.raises(SectionNotFound):
        engine.section("~/kiln.md:3", None, Recorder())

"""The PDF cases of real bug reports through the engine: what a user sees of each, its neighbours unharmed."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import pdfs
from support.engines import Recorder, ask, found_paths, running_engine, search
from support.shared import SHARED, needs_shared

from copilotd.engine import Engine
from copilotd.types import IndexReport, Scope, StoredChunk

pytestmark = pytest.mark.xdist_group("isolate")

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "pdf"
NEIGHBOURS = {"healthy.md": "The neighbour is called quince-301", "healthy.pdf": "quince-302 is its sister"}
SKIPPED = {
    "pdf09_cid.pdf": "no readable text: its fonts don't say which characters they show",
    "pdf19_html_named.pdf": "not a PDF",
    "pdf19_truncated.pdf": "damaged: it ends too early",
    "pdf19_zero_bytes.pdf": "empty file, not a PDF",
}
NOTED = {
    "pdf18_prev_loop.pdf": "damaged: its object table was rebuilt",
    "pdf19_bad_xref_number.pdf": "damaged: parts of its object table are broken",
    "pdf19_no_mediabox.pdf": "damaged: page 1 without a size, read as US Letter",
    "pdf19_startxref_none.pdf": "damaged: parts of its object table are broken",
    "pdf19_trailer_nul.pdf": "damaged: its object table was rebuilt",
    "pdf20_two_sections.pdf": "damaged: its object table was rebuilt",
}


@dataclass(frozen=True)
class Shelf:
    """An index over a folder with the file of every case, healthy files among them."""

    folder: Path
    engine: Engine
    report: IndexReport

    def first(self, query: str, name: str) -> StoredChunk:
        """The best passage of a file, looking for nothing else."""
        [hit, *_] = search(self.engine, query, scope=Scope(paths=(name,))).hits
        return hit.chunk

    def texts(self, name: str) -> list[str]:
        """What a search for words of many files finds in this one."""
        hits = search(self.engine, "token page cid", top_k=50).hits
        return [hit.chunk.text for hit in hits if hit.chunk.metadata.relative_path == name]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    base = tmp_path_factory.mktemp("cases")
    folder = base / "docs"
    shutil.copytree(FIXTURES, folder)
    put_neighbours(folder)
    with running_engine(base / "index") as engine:
        yield Shelf(folder, engine, engine.index_root(str(folder), reporter=Recorder()))


def put_neighbours(folder: Path) -> None:
    (folder / "healthy.md").write_text(f"# Neighbour\n\n{NEIGHBOURS['healthy.md']}.\n")
    (folder / "healthy.pdf").write_bytes(pdfs.of_lines([f"{NEIGHBOURS['healthy.pdf']}.", *pdfs.PROSE]))


def by_name(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {Path(path).name: told for path, told in pairs}


def test_every_file_is_indexed_or_skipped_with_its_reason(shelf: Shelf) -> None:
    files = {path.name for path in shelf.folder.iterdir()}
    assert by_name(shelf.report.skipped) == SKIPPED
    assert by_name(shelf.report.warnings) == NOTED
    assert shelf.report.new == len(files) - len(SKIPPED)
    status = shelf.engine.status()
    assert by_name(status.skipped) == SKIPPED
    assert by_name(status.warnings) == NOTED
    assert status.pending == 0


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_healthy_neighbours_are_found(shelf: Shelf, name: str) -> None:
    hit = search(shelf.engine, re.findall(r"quince-\d+", NEIGHBOURS[name])[0]).hits[0].chunk
    assert hit.metadata.relative_path == name
    assert NEIGHBOURS[name] in hit.text


def test_a_second_look_reads_nothing_again(shelf: Shelf) -> None:
    report = shelf.engine.index_root(str(shelf.folder), reporter=Recorder())
    assert (report.new, report.updated, report.windows_embedded) == (0, 0, 0)
    assert by_name(report.skipped) == SKIPPED


def test_pdf_08_words_of_letter_spaced_text_are_found(shelf: Shelf) -> None:
    hit = search(shelf.engine, "bile duct").hits[0].chunk
    assert hit.metadata.relative_path == "pdf08_letter_spaced.pdf"
    assert hit.text == "Common bile duct margin report"


def test_pdf_09_what_nobody_can_read_is_neither_stored_nor_shown(shelf: Shelf) -> None:
    assert shelf.texts("pdf09_cid.pdf") == []
    hits = search(shelf.engine, "cid 12", top_k=50).hits
    assert not [hit for hit in hits if "cid:" in hit.chunk.text]


def test_pdf_12_fake_bold_is_found_and_stands_once(shelf: Shelf) -> None:
    hit = search(shelf.engine, "harvest totals").hits[0].chunk
    assert hit.text == "Statement of harvest totals\nPlain body line about apples."


def test_pdf_13_real_doubles_are_found_as_they_stand(shelf: Shelf) -> None:
    hit = search(shelf.engine, "efficient bookkeeping 55 Mill Street").hits[0].chunk
    assert hit.text == "Staff offered efficient bookkeeping\nAddress: 55 Mill Street, kiln 1100"


@pytest.mark.parametrize(
    ("query", "words", "page"),
    [
        ("token rot-00", "Upright line token rot-00", 1),
        ("sideways licence", "Sideways licence text token rot-90\nsecond sideways line", 1),
        ("crates of row two", "Row one has 12 crates\nRow two has 15 crates", 2),
    ],
)
def test_pdf_14_turned_text_is_found_on_its_page(shelf: Shelf, query: str, words: str, page: int) -> None:
    hit = shelf.first(query, "pdf14_rotated.pdf")
    assert words in hit.text
    assert hit.metadata.page is not None
    assert hit.metadata.page <= page <= (hit.metadata.page_end or hit.metadata.page)


def test_pdf_16_dense_pages_are_read_within_little_memory(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    put_neighbours(folder)
    (folder / "many.pdf").write_bytes(pdfs.dense(8))
    with running_engine(tmp_path / "index", pdf_memory_mb=256) as engine:
        report = engine.index_root(str(folder), reporter=Recorder())
        assert (report.new, report.skipped, report.warnings) == (3, (), ())
        hit = search(engine, "page5line33").hits[0].chunk
    assert hit.metadata.page is not None
    assert hit.metadata.page <= 5 <= (hit.metadata.page_end or 0)


@needs_shared
@pytest.mark.shared
@pytest.mark.timeout(900)
def test_pdf_16_the_reported_file_is_read_while_questions_are_answered(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    put_neighbours(folder)
    shutil.copy(SHARED / "cases" / "files" / "pdf16_many_pages.pdf", folder)
    with running_engine(tmp_path / "index", pdf_memory_mb=256, pdf_seconds=600.0) as engine:
        with ThreadPoolExecutor(1) as pool:
            indexing = pool.submit(engine.index_root, str(folder), reporter=Recorder())
            answered = 0
            while not indexing.done():
                if engine.status().reading and search(engine, "quince-301").hits:
                    answered += 1
                time.sleep(0.1)
            report = indexing.result()
        assert (report.new, report.skipped) == (3, ())
        assert answered


def test_pdf_18_a_table_that_points_at_itself_costs_nothing_but_a_note(shelf: Shelf) -> None:
    assert shelf.first("prev-18", "pdf18_prev_loop.pdf").text == "Loop in the xref chain token prev-18"


@pytest.mark.parametrize("name", sorted(name for name in SKIPPED | NOTED if name.startswith("pdf19")))
def test_pdf_19_a_damaged_file_is_read_or_told(shelf: Shelf, name: str) -> None:
    if name in SKIPPED:
        assert not shelf.texts(name)
    else:
        assert re.search(r"token \w+-\d\d", shelf.first("token", name).text)


@pytest.mark.parametrize(
    ("token", "page"), [("one sec-A", 1), ("two sec-A", 2), ("three sec-B", 3), ("four", 4)]
)
def test_pdf_20_each_of_the_four_pages_is_cited(shelf: Shelf, token: str, page: int) -> None:
    hit = shelf.first(f"page {token}", "pdf20_two_sections.pdf")
    assert (hit.metadata.page, hit.metadata.page_end) == (page, page)


@pytest.mark.parametrize("query", ["information panel", "remarkable", "capabilities", "well-known", "AB-120"])
def test_pdf_22_words_broken_at_a_lines_end_are_found(shelf: Shelf, query: str) -> None:
    hits = search(shelf.engine, query, top_k=50).hits
    [hit] = [hit for hit in hits if hit.chunk.metadata.relative_path == "pdf22_hyphen.pdf"]
    assert hit.lexical == max(other.lexical for other in hits) > 0
    assert query in " ".join(hit.chunk.text.split())


def test_pdf_23_the_one_line_answers(shelf: Shelf) -> None:
    answer = ask(shelf.engine, "How many lamps is the answer?", threshold=0.0)
    assert "sixteen lamps" in answer.text
    assert [(citation.relative_path, citation.page) for citation in answer.citations] == [
        ("pdf23_one_line.pdf", 1)
    ]


def test_pdf_24_a_bullet_of_a_private_font_stops_no_search(shelf: Shelf) -> None:
    hit = search(shelf.engine, "check the oil").hits[0].chunk
    assert hit.metadata.relative_path == "pdf24_private_use.pdf"
    assert hit.text == "• Check the oil"


def test_a_skipped_file_is_tried_again_when_it_changes_and_no_earlier(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    put_neighbours(folder)
    for name in SKIPPED:
        shutil.copy(FIXTURES / name, folder)
    with running_engine(tmp_path / "index") as engine:
        assert by_name(engine.index_root(str(folder), reporter=Recorder()).skipped) == SKIPPED
        for name in SKIPPED:
            (folder / name).write_bytes(pdfs.of_lines([f"Mended file {name}.", *pdfs.PROSE]))
        report = engine.index_root(str(folder), reporter=Recorder())
        assert report.skipped == ()
        assert report.new == len(SKIPPED)
        assert SKIPPED.keys() <= set(found_paths(engine, "mended file"))
        # And a healthy one that breaks is not cited any longer.
        shutil.copy(FIXTURES / "pdf19_truncated.pdf", folder / "healthy.pdf")
        report = engine.index_root(str(folder), reporter=Recorder())
        assert by_name(report.skipped) == {"healthy.pdf": SKIPPED["pdf19_truncated.pdf"]}
        hits = search(engine, "quince-302", top_k=50).hits
        assert "healthy.pdf" not in [hit.chunk.metadata.relative_path for hit in hits]


@needs_shared
def test_every_handed_pdf_case_has_a_test() -> None:
    lines = (SHARED / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = {case["id"] for case in map(json.loads, lines) if case["kind"] == "pdf"}
    tested = {f"PDF-{name[9:11]}" for name in globals() if re.match(r"test_pdf_\d\d_", name)}
    assert len(cases) >= 12
    assert cases <= tested

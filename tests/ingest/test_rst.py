"""reStructuredText documents."""

from __future__ import annotations

import html
import io
import re
from collections import Counter
from pathlib import Path

import pytest
from docutils.core import publish_parts
from support.documents import check_chunks, check_document
from support.shared import SHARED, needs_shared

from copilotd.ingest.rst import RstParser, scan_titles
from copilotd.types import BlockKind, Document

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "formats"


def parse(text: str) -> Document:
    document = check_document(RstParser(), text.encode())
    assert document is not None
    check_chunks(document, max_chars=80, overlap_chars=20)
    return document


def paths(document: Document) -> list[str]:
    return [" > ".join(section.heading_path) for section in document.sections if section.level]


def blocks(document: Document) -> list[tuple[BlockKind, str]]:
    return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]


def rendered(source: str) -> str:
    """Returns the HTML that docutils makes."""
    settings = {
        "report_level": 5,
        "halt_level": 5,
        "warning_stream": io.StringIO(),
        "file_insertion_enabled": False,
        "raw_enabled": False,
        "doctitle_xform": False,
        "syntax_highlight": "none",
        "_disable_config": True,
    }
    body: str = publish_parts(source, writer="html5", settings_overrides=settings)["html_body"]
    return body


def rendered_headings(body: str) -> list[str]:
    """Reads the headings from HTML."""
    found = re.findall(r"<h([1-6])>(.*?)</h\1>", body, re.DOTALL)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", "", inner)).split()) for _, inner in found]


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[^\W\d_]+", html.unescape(text).lower()))


def rendered_words(body: str) -> Counter[str]:
    """Counts the words of HTML, without what Sphinx reads and docutils shows; numbers may be docutils' own."""
    text = re.sub(r"<[^>]*>", "", body).replace(":orphan:", "")
    text = re.sub(r":(?:ref|doc|issue|env|option|[a-z]+:[a-z]+):|<dt>orphan.*?</dt>", " ", text)
    # A role's target is not shown: the text before it is.
    return words(re.sub(r"`[^`<>]*&lt;[^`]*&gt;`", " ", text))


def test_md36_table_borders_and_code_are_no_headings() -> None:
    document = parse((FIXTURES / "md36_rst_table.rst").read_text())
    assert paths(document) == ["Colours", "Colours > After"]
    assert document.title == "Colours"
    assert "blue  2" in document.text
    assert "Notes keep their text." in document.text
    assert "# not a title\n   ======" in document.text


def test_a_sphinx_document() -> None:
    document = parse((FIXTURES / "sphinx.rst").read_text())
    assert paths(document) == [
        "The Guide now",
        "The Guide now > Sub",
        "The Guide now > Sub > Deeper",
        "The Guide now > Sub two",
    ]
    assert document.sections[0].anchor == "guide-label"
    for gone in ("zebra", "orphan", "guide-label", "maxdepth", "linenos", "hidden", "x.png", "widths"):
        assert gone not in document.text
    for kept in (
        "Text with a title, --dry-run and ``:ref:`kept```.",
        "note: Mind the gap.",
        "        Shown caption",
        "deprecated 1.2",
        "Literal follows:\n\n   not\n   ===\n\n   a title",
        "| Name | Value |\n| ``red`` | 1 |\n| | more |",
        "code, meaning",
        "E1234, broken",
        ".. include:: other.rst",
        "Raw words",
        "port\n\n   Unknown directives keep their text.",
    ):
        assert kept in document.text


def test_blocks_of_a_sphinx_document() -> None:
    document = parse((FIXTURES / "sphinx.rst").read_text())
    found = blocks(document)
    code = next(text for kind, text in found if kind is BlockKind.CODE and "BORG_REPO" in text)
    assert code.lstrip().startswith(".. code-block:: python")
    tables = [block for block in document.blocks if block.kind is BlockKind.TABLE]
    heads = [document.text[block.start : block.header_end].strip() for block in tables]
    assert heads == ["| Name | Value |", "Prices\n   * - Item\n     - Price", "Codes\n   code, meaning"]
    items = [text for kind, text in found if kind is BlockKind.LIST_ITEM]
    assert "term : classifier\n    Definition of it." in items
    assert "-f FILE, --file=FILE  Read the file." in items
    group = {block.group for block in document.blocks if "first" in document.text[block.start : block.end]}
    note = {block.group for block in document.blocks if "Mind" in document.text[block.start : block.end]}
    assert group == note


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("A\n=\n\nB\n~\n\nC\n=\n", ["A", "A > B", "C"]),
        ("====\nOver\n====\n\nA\n====\n\nB\n----\n", ["Over", "Over > A", "Over > A > B"]),
        ("A ``code`` `link <http://x.y>`_ |s|\n" + "=" * 40, ["A code link s"]),
        ("|N| type\n========\n\n.. |N| replace:: Numeric\n", ["Numeric type"]),
        (".. only:: html\n\n   In\n   --\n\n   Words.\n", ["In"]),
        ("Title\n=====\n\n====  ====\na     b\n====  ====\n1     2\n====  ====\n", ["Title"]),
        ("One\n===\n\nText\n\n----\n\nMore\n", ["One"]),
        ("漢字\n====\n\nx\n", ["漢字"]),
    ],
)
def test_headings(source: str, expected: list[str]) -> None:
    assert paths(parse(source)) == expected


def test_line_numbers_are_those_of_the_source() -> None:
    document = parse(".. comment\n\nT\n=\n\n* a\n\n  .. note::\n\n     inner words\n")
    assert dict(zip(document.text.split("\n"), document.line_numbers, strict=True)) == {
        "T": 3, "": 9, "* a": 6, "  note:": 8, "     inner words": 10,
    }  # fmt: skip


def test_titles_are_found_by_their_underlines_where_docutils_fails() -> None:
    source = "====\nTop\n====\n\nSub :ref:`x <y>`\n----------------\n\ntext\n\n=== ===\na   b\n=== ===\n"
    assert [(title.words, title.level) for title in scan_titles(source.split("\n"))] == [
        ("Top", 1),
        ("Sub x", 2),
    ]


def test_very_long_files_are_read_by_their_lines() -> None:
    source = "Top\n===\n\n" + "line of text\n\n" * 30_000 + "Sub\n---\n\nEnd."
    document = RstParser().parse(source.encode(), "guide")
    assert paths(document) == ["Top", "Top > Sub"]
    assert document.text.endswith("Sub\n\nEnd.")


def test_nothing_is_read_or_run_or_printed(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    document = parse(
        f".. include:: {secret}\n\n.. csv-table::\n   :file: {secret}\n\n.. raw:: html\n   :file: {secret}\n\n"
        ".. nonsense::\n   :a: b\n\n   text\n\n`broken\n\n* x\ny\n"
    )
    assert "hunter2" not in document.text
    assert capfd.readouterr() == ("", "")


@needs_shared
@pytest.mark.shared
def test_a_whole_corpus_keeps_every_word_in_its_place() -> None:
    differing: list[Path] = []
    for path in sorted((SHARED / "eval").glob("*/corpus/**/*.rst")):
        source = path.read_bytes()
        document = check_document(RstParser(), source)
        assert document is not None
        check_chunks(document, max_chars=2000, overlap_chars=250)
        headings = [section.heading for section in document.sections if section.level]
        body = rendered(source.decode().removeprefix(":orphan:"))
        if rendered_headings(body) != headings or rendered_words(body) - words(document.text):
            differing.append(path)
    assert differing == []


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("See :doc:`the\nguide <guide>` now.", "See the\nguide now."),
        ("Clear the :conf:opt:`<user>\n<gui.user>` tag.", "Clear the <user>\n tag."),
        ("Clear :conf:opt:`<user> <gui.user>`.", "Clear <user>."),
        ("Clear :conf:opt:`List<T>\n<types.list>`\n\nand go.", "Clear List<T>\n\nand go."),
        ("A :ref:`a\nb` and ``:ref:`c\nd` ``.", "A a\nb and ``:ref:`c\nd` ``."),
        ("Open :ref:`a\n\nb` here.", "Open :ref:`a\n\nb` here."),
        ("::\n\n   :ref:`a\n   b`", "   :ref:`a\n   b`"),
    ],
)
def test_a_role_over_several_lines_shows_its_text_on_the_lines_it_is_written_on(
    source: str, shown: str
) -> None:
    document = parse(f"Guide\n=====\n\n{source}\n")
    assert document.text.partition("Guide\n\n")[2] == shown


def test_a_role_cut_by_a_table_cell_swallows_no_border() -> None:
    table = "+------+------+\n| a    | b    |\n+======+======+\n| :r:`x| one  |\n| y`   | two  |\n+------+------+\n"
    text = parse(f"Guide\n=====\n\n{table}").text
    assert "one" in text
    assert "two" in text

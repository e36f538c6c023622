"""Documents to chunks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.documents import FIXTURES, check_chunks, chunks_of

from copilotd.ingest.chunk import attach_metadata
from copilotd.ingest.markdown import MarkdownParser
from copilotd.ingest.plain import PlainTextParser
from copilotd.ingest.seed import markdown_chunk_by_section
from copilotd.types import Chunk, Document

ANYTIME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def cut(markdown: str, max_chars: int = 2000, overlap_chars: int = 0) -> list[str]:
    document = MarkdownParser().parse(markdown.encode(), "guide")
    check_chunks(document, max_chars=max_chars, overlap_chars=overlap_chars)
    return texts(document, chunks_of(document, max_chars=max_chars, overlap_chars=overlap_chars))


def texts(document: Document, chunks: list[Chunk]) -> list[str]:
    return [document.text[chunk.start : chunk.end] for chunk in chunks]


def fixture(name: str) -> Document:
    return MarkdownParser().parse((FIXTURES / name).read_bytes(), name[:-3])


# ---------------------------------------------------------------------------------------- sections


def test_each_h1_to_h3_section_is_a_chunk_and_deeper_headings_stay_inside() -> None:
    assert cut("# A\n\n## B\n\ntext\n\n#### C\n\nmore\n\n### D\n\nlast\n") == [
        "# A",
        "## B\n\ntext\n\n#### C\n\nmore",
        "### D\n\nlast",
    ]


def test_a_long_section_is_cut_at_its_deeper_headings_first() -> None:
    body = "word " * 20
    document = MarkdownParser().parse(
        f"## B\n\n{body}\n\n#### C\n\n{body}\n\n##### D\n\nshort\n\n#### E\n\nend\n".encode(), "x"
    )
    chunks = chunks_of(document, max_chars=150)
    assert [chunk.metadata.section_heading for chunk in chunks] == ["B", "C", "E"]
    assert chunks[1].metadata.heading_path == ("B", "C")
    assert "##### D" in texts(document, chunks)[1]


def test_a_bare_heading_joins_the_first_part_below_it_when_its_section_is_cut() -> None:
    body = "word " * 20
    assert [text.split("\n")[0] for text in cut(f"## B\n\n#### C\n\n{body}\n\n#### D\n\n{body}\n", 130)] == [
        "## B",
        "#### D",
    ]


def test_a_file_without_headings_is_named_after_itself() -> None:
    document = MarkdownParser().parse(b"One.\n\nTwo.\n\nThree.\n", "notes")
    (chunk,) = chunks_of(document)
    assert chunk.metadata.section_heading == "notes"
    assert (chunk.metadata.line_start, chunk.metadata.line_end) == (1, 5)


def test_rules_and_comments_at_the_ends_are_not_cited() -> None:
    document = MarkdownParser().parse(b"# A\n\n---\n\ntext\n\n***\n\n<!-- x -->\n\n# B\n", "x")
    assert texts(document, chunks_of(document)) == ["# A\n\n---\n\ntext", "# B"]
    assert chunks_of(document)[0].metadata.line_end == 5


def test_an_empty_document_has_no_chunks() -> None:
    assert chunks_of(MarkdownParser().parse(b"", "x")) == []


# --------------------------------------------------------------------------------- blocks and lines


def test_paragraphs_are_packed_and_whole_ones_repeated() -> None:
    paragraphs = [f"Paragraph {number} has some words." for number in range(6)]
    chunks = cut("\n\n".join(paragraphs), max_chars=110, overlap_chars=40)
    assert chunks[0] == "\n\n".join(paragraphs[:3])
    assert chunks[1] == "\n\n".join(paragraphs[2:5])


def test_nothing_is_repeated_that_is_longer_than_the_overlap_or_a_heading() -> None:
    paragraphs = [f"Paragraph {number} has some words." for number in range(6)]
    chunks = cut("\n\n".join(paragraphs), max_chars=110, overlap_chars=20)
    assert chunks == ["\n\n".join(paragraphs[:3]), "\n\n".join(paragraphs[3:])]
    assert cut("# A\n\n" + "x " * 50, max_chars=101, overlap_chars=50)[1].startswith("x")


def test_a_list_stays_whole_while_it_fits() -> None:
    items = "\n".join(f"- item {number}" for number in range(8))
    assert cut(f"Some words before the list start here.\n\n{items}\n\nAfter.", max_chars=90)[1].startswith(
        items
    )


def test_a_longer_list_is_cut_between_items() -> None:
    items = [f"- item {number} with a few words\n  and a second line" for number in range(10)]
    for chunk in cut("\n".join(items), max_chars=150):
        assert chunk.startswith("- item")
        assert chunk.endswith("second line")


def test_a_fence_is_not_cut_while_it_fits() -> None:
    fence = "```sh\n" + "\n\n".join(f"command {number}" for number in range(8)) + "\n```\n"
    assert fence.strip() in cut(f"{'words ' * 20}\n\n{fence}\n{'After that. ' * 9}", max_chars=130)


def test_a_longer_fence_is_cut_between_lines_and_its_opening_remembered() -> None:
    lines = "\n".join(f"    command {number}" for number in range(40))
    document = MarkdownParser().parse(f"# A\n\n```sh\n{lines}\n```\n".encode(), "x")
    chunks = check_chunks(document, max_chars=200, overlap_chars=0)
    assert [chunk.context for chunk in chunks] == ["", *["```sh"] * (len(chunks) - 1)]
    assert all(text.startswith("    command") for text in texts(document, chunks)[1:])


def test_md39_each_part_of_a_long_table_knows_the_header() -> None:
    document = fixture("md39_wide_table.md")
    chunks = check_chunks(document, max_chars=600, overlap_chars=100)
    assert len(chunks) > 40
    assert {chunk.metadata.heading_path for chunk in chunks} == {("Parts",)}
    header = "| part | torque | note |\n|------|-------:|------|"
    assert all(chunk.context == header for chunk in chunks[1:])
    (row,) = [text for text in texts(document, chunks) if "P-0777" in text]
    assert "| P-0777 | 67 Nm |" in row


def test_md27_a_huge_section_is_cut_and_keeps_its_path() -> None:
    document = fixture("md27_huge_section.md")
    chunks = check_chunks(document, max_chars=2000, overlap_chars=250)
    assert {chunk.metadata.heading_path for chunk in chunks} == {("Release notes",)}
    assert any("Item 3777:" in text for text in texts(document, chunks))


def test_md23_a_fence_in_a_list_keeps_its_indentation() -> None:
    document = fixture("md23_code_indent.md")
    assert "      zones:\n        - top" in texts(document, chunks_of(document))[0]


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("A sentence of some words. " * 100, "."),
        ("word " * 500, "word"),
        ("漢字の文章です。" * 200, "。"),
        ("漢字" * 1000, ("漢", "字")),
        ("x" * 3000, "x"),
    ],
)
def test_one_enormous_line_is_cut_where_it_hurts_least(line: str, ends: str | tuple[str, ...]) -> None:
    chunks = cut(line, max_chars=200)
    assert all(chunk.endswith(ends) for chunk in chunks)
    assert "".join("".join(chunks).split()) == "".join(line.split())


@ANYTIME
@given(
    st.lists(
        st.sampled_from(
            [
                "# H",
                "### H3",
                "#### H4",
                "###### H6",
                "",
                "",
                "- item",
                "text " * 9,
                "| a | b |",
                "|---|---|",
                "```",
                "漢" * 70,
            ]
        ),
        max_size=60,
    ).map("\n".join),
    st.integers(1, 300),
    st.integers(0, 150),
)
def test_chunks_of_any_document_and_any_size(source: str, max_chars: int, overlap_chars: int) -> None:
    for parser in (MarkdownParser(), PlainTextParser()):
        document = parser.parse(source.encode(), "x")
        check_chunks(document, max_chars=max_chars, overlap_chars=overlap_chars)


# ----------------------------------------------------------------------------------- the seed's way


def test_markdown_chunk_by_section_carries_the_seeds_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "setup_guide.md"
    path.write_text(
        "# Setup\n\n## Install\n\nRun it.\n\n## Database Config\n\nSet the URL.\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    found = markdown_chunk_by_section("setup_guide.md")
    assert [meta.section_heading for _, meta in found] == ["Setup", "Install", "Database Config"]
    for index, (text, meta) in enumerate(found):
        assert meta.doc_title == "setup_guide"
        assert meta.last_modified == os.path.getmtime(path)
        assert meta.source_file == str(path)
        assert meta.relative_path == "setup_guide.md"
        assert (meta.chunk_index, meta.char_count) == (index, len(text))


def test_attach_metadata() -> None:
    document = MarkdownParser().parse(b"Text.", "x")
    (chunk,) = chunks_of(document)
    assert attach_metadata("Text.", chunk.metadata) == {"text": "Text.", "metadata": chunk.metadata}

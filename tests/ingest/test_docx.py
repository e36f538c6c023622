"""Word documents."""

from __future__ import annotations

import contextlib
import io
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from support.documents import check_chunks

from copilotd.errors import ParseError
from copilotd.ingest.docx import DocxParser
from copilotd.ingest.parse import parse_file
from copilotd.types import BlockKind, Document

docx = pytest.importorskip("docx", reason="the extra docx is not installed")


def written(fill: Callable[[Any], None]) -> bytes:
    word = docx.Document()
    fill(word)
    target = io.BytesIO()
    word.save(target)
    return target.getvalue()


def guide(word: Any) -> None:
    word.core_properties.title = ""
    word.add_heading("The Guide", 0)
    word.add_paragraph("First words\nsecond line.")
    word.add_heading("Install", 1)
    word.add_paragraph("one", style="List Bullet")
    word.add_paragraph("two", style="List Number")
    table = word.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ["Name", "Value", "port", "8080"], strict=True):
        cell.text = text
    word.add_heading("Deep", 2)
    word.add_paragraph("   ")
    word.add_paragraph("The end.", style="Quote")


def parse(source: bytes) -> Document:
    document = DocxParser().parse(source, "guide")
    check_chunks(document, max_chars=60, overlap_chars=10)
    return document


def test_a_document() -> None:
    document = parse(written(guide))
    assert document.text == (
        "The Guide\n\nFirst words\nsecond line.\n\nInstall\n\n- one\n- two\n\n"
        "| Name | Value |\n| port | 8080 |\n\nDeep\n\nThe end."
    )
    assert document.line_numbers == tuple(range(1, 17))
    assert document.title == "The Guide"
    assert [(section.heading_path, section.level) for section in document.sections] == [
        (("The Guide",), 1),
        (("Install",), 1),
        (("Install", "Deep"), 2),
    ]


def test_blocks_of_a_document() -> None:
    document = parse(written(guide))
    kinds = [block.kind for block in document.blocks]
    assert kinds.count(BlockKind.LIST_ITEM) == 2
    assert kinds[-1] is BlockKind.QUOTE
    table = next(block for block in document.blocks if block.kind is BlockKind.TABLE)
    assert document.text[table.start : table.header_end] == "| Name | Value |"


@pytest.mark.parametrize("source", [b"", b"text", b"PK\x03\x04 damaged"])
def test_what_is_no_word_document_is_refused(source: bytes) -> None:
    with pytest.raises(ParseError, match="not a readable Word document"):
        parse(source)


def test_an_archive_of_something_else_is_refused() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(ParseError, match="not a readable Word document"):
        parse(target.getvalue())


def test_damaged_documents_are_read_or_refused() -> None:
    source = written(guide)
    for place in range(0, len(source), max(1, len(source) // 25)):
        damaged = source[:place] + b"\0\xff\0" + source[place + 3 :]
        with contextlib.suppress(ParseError):
            DocxParser().parse(damaged, "guide")


def test_without_the_extra_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docx", None)
    with pytest.raises(ParseError, match=r"needs the extra: pip install 'docs-copilot\[docx\]'"):
        DocxParser().parse(b"", "guide")


def test_it_is_read_in_a_child_process() -> None:
    assert DocxParser.isolated
    assert "First words" in parse_file("folder/guide.docx", written(guide)).text


def _with_body(body: bytes, head: bytes = b"") -> bytes:
    """Returns a small archive whose document is ``body``, however large."""
    empty = io.BytesIO()
    docx.Document().save(empty)
    target = io.BytesIO()
    with (
        zipfile.ZipFile(empty) as old,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new,
    ):
        for name in old.namelist():
            part = old.read(name)
            if name == "word/document.xml":
                start = part.index(b"<w:body>") + len(b"<w:body>")
                root = part.index(b"<w:document")
                part = (head or part[:root]) + part[root:start] + body + b"</w:body></w:document>"
            new.writestr(name, part)
    return target.getvalue()


ENTITIES = b"<!DOCTYPE z [<!ENTITY a0 'ha'>%s]>" % b"".join(
    b"<!ENTITY a%d '%s'>" % (number + 1, b"&a%d;" % number * 10) for number in range(9)
)


@pytest.mark.xdist_group("isolate")
@pytest.mark.parametrize(
    ("body", "head", "reason"),
    [
        (b" " * 400_000_000, b"", "needed more than 300 MB"),
        (b"<w:p><w:r><w:t>&a9;</w:t></w:r></w:p>", ENTITIES, "not a readable Word document"),
        (b"<w:tbl><w:tr><w:tc>" * 20_000, b"", "not a readable Word document"),
    ],
    ids=["blanks", "entities", "tables in tables"],
)
def test_a_small_file_that_explodes_is_stopped(body: bytes, head: bytes, reason: str) -> None:
    source = _with_body(body, head)
    assert len(source) < 3_000_000
    with pytest.raises(ParseError, match=reason):
        parse_file("bomb.docx", source, seconds=120.0, memory_bytes=300 << 20)
    assert "Fire" in parse_file("next.md", b"# Kiln\n\nFire it.\n").text

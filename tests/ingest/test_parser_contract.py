"""What holds for every parser of a text format, whatever it is given."""

from __future__ import annotations

import html
import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.documents import check_chunks, check_document, chunks_of

from copilotd.errors import ParseError
from copilotd.ingest.asciidoc import AsciiDocParser
from copilotd.ingest.html import HtmlParser
from copilotd.ingest.markdown import MarkdownParser, MdxParser
from copilotd.ingest.notebook import NotebookParser
from copilotd.ingest.org import OrgParser
from copilotd.ingest.parse import PARSERS_FINGERPRINT, parser_for
from copilotd.ingest.plain import PlainTextParser
from copilotd.ingest.rst import RstParser
from copilotd.types import Parser

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ANYTIME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
SECONDS_PER_MEGABYTE = 20


def _json_line(line: str) -> str:
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", lambda match: _escape(match[1]), line)


def _escape(escape: str) -> str:
    if escape[0] == "u" and len(escape) == 5:
        return chr(int(escape[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape, escape)


def _same(line: str) -> str:
    return line


@dataclass(frozen=True)
class Format:
    """A parser, how its characters are written, a sample, and pieces it reacts to."""

    parser: Parser
    sample: str
    pieces: tuple[str, ...]
    read_line: Callable[[str], str] = _same

    def __str__(self) -> str:
        return self.parser.name


def notebook(*cells: tuple[str, str]) -> str:
    """Writes a notebook as Jupyter does."""
    made = [
        {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)} for kind, text in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


RST = (FIXTURES / "formats" / "sphinx.rst").read_text(encoding="utf-8")
ADOC = (FIXTURES / "formats" / "guide.adoc").read_text(encoding="utf-8")
ORG = (FIXTURES / "formats" / "guide.org").read_text(encoding="utf-8")
HTML = (FIXTURES / "formats" / "guide.html").read_text(encoding="utf-8")
NOTEBOOK = (FIXTURES / "formats" / "guide.ipynb").read_text(encoding="utf-8")
MARKDOWN = (
    "# Guide\n\nText `--dry-run`.\n\n- a\n- b\n\n| x |\n|---|\n| 1 |\n\n```sh\nls\n```\n\n## Sub\n\nEnd.\n"
)
MARKS = ("\n", "\n\n", " ", "  ", "    ", "\t", "word", "\N{ZERO WIDTH SPACE}", "\x0c", "\x85", "é", "漢")

FORMATS = [
    Format(MarkdownParser(), MARKDOWN, ("# ", "```", "- ", "| ", "<!-- ", "<b>")),
    Format(MdxParser(), MARKDOWN, ("# ", "<Tab>", "{/*", "*/}", "import x\n")),
    Format(PlainTextParser(), MARKDOWN, ("...",)),
    Format(
        RstParser(),
        RST,
        (
            ".. ",
            "::",
            "====",
            "----",
            "* ",
            ".. note::",
            ":a:",
            "+---+",
            "| ",
            "``",
            ".. |x| ",
            ".. _l:",
            "1. ",
            ".. only:: x",
            ">>> ",
            "-f X",
            "====  ====",
            "   :b: c",
            ".. code::",
            "[1]_",
            "   ",
            "__ x",
            "> ",
        ),
    ),
    Format(
        AsciiDocParser(),
        ADOC,
        (
            "= ",
            "== ",
            "----",
            "====",
            "|===",
            "[source]",
            "* ",
            "+\n",
            "////",
            "[[x]]",
            ".T",
            "::",
            "____",
            "--",
        ),
    ),
    Format(
        OrgParser(),
        ORG,
        (
            "* ",
            "** ",
            "#+BEGIN_SRC",
            "#+END_SRC",
            "#+TITLE: ",
            "- ",
            "| ",
            ":X:",
            ":END:",
            "# ",
            ": ",
            "|--|",
        ),
    ),
    Format(
        HtmlParser(),
        HTML,
        (
            "<p>",
            "</p>",
            "<pre>",
            "</pre>",
            "<h1>",
            "</h1>",
            "<table>",
            "<td>",
            "<main>",
            "</main>",
            "<nav>",
            "<!--",
            "-->",
            "&amp;",
            "&#10;",
            "<script>",
            "<li>",
            "<img alt='x\ny'>",
            "<",
            "</",
            "<![CDATA[",
        ),
        html.unescape,
    ),
    Format(
        NotebookParser(),
        NOTEBOOK,
        ('"', "{", "}", "[", "]", ",", ":", "\\n", "\\", '"cells"', '"source"', "```", "# "),
        _json_line,
    ),
]
EACH = pytest.mark.parametrize("each", FORMATS, ids=str)


@EACH
class TestParser:
    """Every parser keeps these."""

    def test_it_is_found_by_its_suffixes(self, each: Format) -> None:
        assert isinstance(each.parser, Parser)
        for suffix in each.parser.suffixes:
            found = parser_for(f"folder/NAME{suffix.upper()}")
            assert found is not None
            assert found.name == each.parser.name
        assert f"{each.parser.name}={each.parser.version}" in PARSERS_FINGERPRINT

    def test_the_sample_has_its_structure_and_exact_places(self, each: Format) -> None:
        document = check_document(each.parser, each.sample.encode(), each.read_line)
        assert document is not None
        if each.parser.name != "text":
            assert len([section for section in document.sections if section.level]) >= 2
        for size in (60, 200, 2000):
            check_chunks(document, max_chars=size, overlap_chars=size // 5)

    @pytest.mark.parametrize("line_end", ["\r\n", "\r"])
    def test_line_ends_change_nothing(self, each: Format, line_end: str) -> None:
        other = each.parser.parse(each.sample.replace("\n", line_end).encode(), "guide")
        assert other == each.parser.parse(each.sample.encode(), "guide")

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    def test_encodings_change_nothing(self, each: Format, encoding: str) -> None:
        assert each.parser.parse(each.sample.encode(encoding), "guide") == each.parser.parse(
            each.sample.encode(), "guide"
        )

    def test_western_text_without_utf8_is_read(self, each: Format) -> None:
        text = each.parser.parse(each.sample.replace("End.", "Café end.").encode("cp1252"), "guide").text
        assert "Café end." in text

    @pytest.mark.parametrize("source", [b"\x89PNG\r\n\x1a\n\0\0", bytes(range(256)) * 8])
    def test_binary_is_a_parse_error(self, each: Format, source: bytes) -> None:
        with pytest.raises(ParseError):
            each.parser.parse(source, "guide")

    def test_invisible_characters_are_left_out(self, each: Format) -> None:
        source = each.sample.replace("End.", "E\N{ZERO WIDTH SPACE}n\N{RIGHT-TO-LEFT OVERRIDE}d.")
        assert "End." in each.parser.parse(source.encode(), "guide").text

    @ANYTIME
    @given(source=st.binary(max_size=300))
    def test_any_bytes_are_a_document_or_a_parse_error(self, each: Format, source: bytes) -> None:
        check_document(each.parser, source, each.read_line)

    @ANYTIME
    @given(data=st.data())
    def test_any_text_of_the_format_is_whole(self, each: Format, data: st.DataObject) -> None:
        pieces = data.draw(st.lists(st.sampled_from(each.pieces + MARKS), max_size=40))
        document = check_document(each.parser, "".join(pieces).encode(), each.read_line)
        if document is not None:
            check_chunks(document, max_chars=40, overlap_chars=10)

    def test_damaged_samples_are_read_or_refused(self, each: Format) -> None:
        chance = random.Random(4)
        for _ in range(60):
            text = list(each.sample)
            for _ in range(chance.randrange(1, 12)):
                place = chance.randrange(len(text))
                if chance.random() < 0.5:
                    del text[place : place + chance.randrange(1, 30)]
                else:
                    text.insert(place, chance.choice(each.pieces + MARKS))
                if not text:
                    break
            document = check_document(each.parser, "".join(text).encode(), each.read_line)
            if document is not None:
                check_chunks(document, max_chars=120, overlap_chars=30)

    def test_a_megabyte_takes_reasonable_time(self, each: Format) -> None:
        if each.parser.name == "notebook":
            source = notebook(*[("markdown", "# Title\n\nSome words in a cell.\n")] * 5_000)
        else:
            source = (each.sample + "\n\n") * (500_000 // len(each.sample))
        begin = time.process_time()
        document = each.parser.parse(source.encode(), "guide")
        chunks_of(document)
        assert time.process_time() - begin < SECONDS_PER_MEGABYTE * len(source) / 1_000_000

    def test_the_same_piece_again_and_again_takes_no_awkward_time(self, each: Format) -> None:
        for piece in each.pieces:
            for text in (piece * 1_500, (piece + "\n") * 1_500, (piece + "x ") * 1_500):
                begin = time.process_time()
                check = each.parser.parse
                try:
                    check(text.encode(), "guide")
                except ParseError:
                    continue
                finally:
                    assert time.process_time() - begin < 4, piece

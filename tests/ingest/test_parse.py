"""The way from a file's name and bytes to a Document."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.documents import FIXTURES

from copilotd.errors import ParseError
from copilotd.ingest.parse import (
    PARSERS_FINGERPRINT,
    doc_title_of,
    parse_file,
    parser_for,
    supported_suffixes,
)


def test_suffixes_choose_the_parser_whatever_their_case() -> None:
    names = {
        path: parser.name
        for path in ("a.md", "a.MARKDOWN", "b/c.mdx", "d.txt", "e.PDF")
        if (parser := parser_for(path))
    }
    assert names == {
        "a.md": "markdown",
        "a.MARKDOWN": "markdown",
        "b/c.mdx": "mdx",
        "d.txt": "text",
        "e.PDF": "pdf",
    }
    assert {".md", ".markdown", ".mdx", ".txt", ".pdf"} <= set(supported_suffixes())


@pytest.mark.parametrize("path", ["a.exe", "README", ".md", "a.md.bak"])
def test_other_names_have_no_parser(path: str) -> None:
    assert parser_for(path) is None
    with pytest.raises(ParseError, match="no parser"):
        parse_file(path, b"text")


def test_the_fingerprint_names_every_parser() -> None:
    assert PARSERS_FINGERPRINT.startswith("markdown=")
    assert "pdf=" in PARSERS_FINGERPRINT


def test_the_title_is_the_files_name_and_safe_to_show() -> None:
    assert doc_title_of("/docs/setup_guide.md") == "setup_guide"
    assert doc_title_of("/docs/v1.2 notes.md") == "v1.2 notes"
    assert doc_title_of(os.fsdecode(b"/docs/caf\xe9\x1b[31m.md")) == "caf\\xe9[31m"
    assert doc_title_of("/docs/\N{ZERO WIDTH SPACE}.md") == "untitled"


def test_binary_under_a_text_name_is_a_parse_error() -> None:
    with pytest.raises(ParseError):
        parse_file("picture.md", b"\x89PNG\r\n\x1a\n\x00\x00")


def test_a_bad_neighbour_costs_nothing() -> None:
    assert "neigh-204" in parse_file("good.md", (FIXTURES / "md30_good_neighbour.md").read_bytes()).text
    assert "Café rules" in parse_file("bad.md", (FIXTURES / "md30_latin1.md").read_bytes()).text


def test_md29_the_locale_does_not_matter() -> None:
    script = (
        "import sys; from copilotd.ingest.seed import markdown_chunk_by_section as chunks; "
        "sys.stdout.buffer.write(chunks(sys.argv[1])[0][0].encode())"
    )
    path = str(FIXTURES / "md29_utf8_only.md")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script, path], env=environment, capture_output=True, check=True, timeout=60
    )
    assert "Œuvre, naïve, façade" in done.stdout.decode()


def test_heavy_libraries_are_not_loaded_to_read_markdown() -> None:
    script = (
        "import sys, copilotd.ingest.parse; "
        "print([name for name in ('pdfplumber', 'torch', 'charset_normalizer') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=60, text=True
    )
    assert done.stdout.strip() == "[]"

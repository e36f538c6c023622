"""Every parser, given what nobody meant to write: documents of real markup in any order, and damaged files.

A parser returns a document whose places are exact, or raises ParseError. How long it may take is CPU time with
a wide margin, so that a busy machine fails nothing.

``COPILOT_FUZZ=2000`` runs that many examples a parser and longer documents; what CI runs takes seconds. Where
the shared documents stand beside the project, the long run damages those as well.
"""

from __future__ import annotations

import io
import os
import random
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.documents import check_chunks, check_document, letters
from support.formats import FORMATS, MARKS, Format
from support.shared import SHARED

from copilotd.errors import ParseError
from copilotd.ingest.decode import decode
from copilotd.ingest.parse import parse_file
from copilotd.types import Document

EXAMPLES = int(os.environ.get("COPILOT_FUZZ", "0"))
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
CPU_SECONDS = 30
MAX_BYTES = 20_000 if EXAMPLES else 3_000
PDF_SECONDS, PDF_MEMORY = 60.0, 1_500_000_000
MEMORY_BASE, MEMORY_PER_BYTE = 2_000_000, 3_000

pytestmark = pytest.mark.timeout(20 + 10 * EXAMPLES if EXAMPLES > 20 else 240)
EACH = pytest.mark.parametrize("each", FORMATS, ids=str)


def runs(examples: int) -> settings:
    """Settings for so many examples in CI, or for the long run."""
    return settings(max_examples=EXAMPLES or examples, deadline=None, suppress_health_check=list(HealthCheck))


# What documents are made of, beside the pieces that are each format's own.
COMMON = (
    *MARKS,
    "kiln", "E1234", "--dry-run", "BORG_REPO", "a.b.c", "[link](x.md)", "![alt](x.png)", "[ref][r]", "[r]: /u\n",
    "`code`", "``", "**bold**", "*", "_", "\\", "&lt;", "&", "<b>", "</b>", "<br>", "<!-- x -->", "<!--", "-->",
    "<?x", "<!X", "{", "}", "{#id}", "\n# H\n", "\n## H ##\n", "\nH\n===\n", "\nH\n---\n", "\n- a\n", "\n1. a\n",
    "\n> q\n", "\n```py\n", "\n~~~\n", "\n| a | b |\n|---|---|\n| 1 | 2 |\n", "\n!!! note\n\n    ", "\n:::tip\n",
    '\n=== "Tab"\n\n    ', "\n---\n", "\n+++\n", "title: x\n", "<h1 align='center'>", "</h1>", "<Tabs>", "</Tabs>",
    "<Tab title='x'>", "{/* x */}", "\nimport A from 'a'\n", "\nexport const a = {\n", "\r", "\r\n", "\ufeff",
    "\N{LINE SEPARATOR}",
    "\N{SOFT HYPHEN}", "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{ROCKET}", "e\N{COMBINING ACUTE ACCENT}", "مرحبا",
)  # fmt: skip
INDENTS = ("", "", "", " ", "  ", "   ", "    ", "\t", "> ", "- ", "   - ", "* ", "| ", "  :: ")


def of_markup(each: Format) -> st.SearchStrategy[str]:
    """Documents of the format's own pieces, nested and cut anywhere."""
    piece = st.sampled_from(each.pieces) | st.sampled_from(COMMON)
    line = st.builds(
        lambda indent, pieces, gap: indent + gap.join(pieces),
        st.sampled_from(INDENTS),
        st.lists(piece, max_size=5),
        st.sampled_from(("", " ")),
    )
    block = st.lists(line, min_size=1, max_size=6).map("\n".join)
    nested = st.recursive(
        block,
        lambda inner: st.builds(
            lambda indent, text: text.replace("\n", "\n" + indent), st.sampled_from(INDENTS), inner
        ),
        max_leaves=4,
    )
    return st.lists(nested, max_size=8).map("\n\n".join)


@cache
def seeds(suffixes: tuple[str, ...]) -> tuple[bytes, ...]:
    """Real files of a format, the smaller ones; in the long run of the shared documents, too."""
    folders = [FIXTURES, *([SHARED / "eval"] if EXAMPLES and SHARED.is_dir() else [])]
    found = [
        path
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.suffix in suffixes and 0 < path.stat().st_size <= MAX_BYTES
    ]
    return tuple(path.read_bytes() for path in random.Random(8).sample(found, min(len(found), 300)))


def damaged(source: bytes, other: bytes, pieces: tuple[bytes, ...], chance: random.Random) -> bytes:
    """Returns ``source`` after a few accidents: bytes flipped, parts lost, doubled, moved or of another file."""
    data = bytearray(source)
    for _ in range(chance.randrange(1, 10)):
        place = chance.randrange(len(data) + 1)
        end = min(len(data), place + chance.choice((1, 2, 8, 40, 200)))
        match chance.randrange(7):
            case 0:
                del data[place:end]
            case 1:
                data[place:place] = data[place:end] * chance.choice((1, 2, 20))
            case 2:
                data[place:place] = chance.choice(pieces)
            case 3:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 4:
                start = chance.randrange(len(other) + 1)
                data[place:end] = other[start : start + 200]
            case 5:
                data[place:place] = chance.choice(pieces) * chance.choice((2, 30, 300))
            case _:
                del data[place:]
    return bytes(data[: 2 * MAX_BYTES])


def within_time(read: Callable[[], Document | None]) -> Document | None:
    begin = time.process_time()
    document = read()
    assert time.process_time() - begin < CPU_SECONDS
    return document


def check(each: Format, source: bytes, max_chars: int) -> None:
    document = within_time(lambda: check_document(each.parser, source, each.read_line))
    if document is not None:
        check_chunks(document, max_chars=max_chars, overlap_chars=max_chars // 5)


@EACH
@runs(12)
@given(data=st.data())
def test_markup_in_any_order(each: Format, data: st.DataObject) -> None:
    text = data.draw(of_markup(each))
    check(each, text.encode("utf-8", "replace"), data.draw(st.sampled_from((30, 120, 2000))))


@EACH
@runs(8)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_files(each: Format, seed: int) -> None:
    chance = random.Random(seed)
    files = (each.sample.encode(), *seeds(each.parser.suffixes))
    pieces = tuple(piece.encode() for piece in (*each.pieces, *COMMON))
    source = damaged(chance.choice(files), chance.choice(files), pieces, chance)
    check(each, source, chance.choice((60, 500, 2000)))


@EACH
@runs(5)
@given(data=st.data())
def test_one_format_under_anothers_name(each: Format, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(FORMATS))
    check(each, data.draw(of_markup(other)).encode("utf-8", "replace"), 200)


@runs(15)
@given(st.sampled_from(FORMATS).flatmap(of_markup))
def test_plain_text_loses_no_word(text: str) -> None:
    plain = next(each for each in FORMATS if each.parser.name == "text")
    source = text.encode("utf-8", "replace")
    document = check_document(plain.parser, source)
    if document is not None:
        assert letters(document.text) == letters(decode(source)), "each word, once, in order"
        check_chunks(document, max_chars=60, overlap_chars=0)


@EACH
def test_memory_stays_in_proportion(each: Format) -> None:
    each.parser.parse(each.sample.encode(), "guide")  # what is imported or compiled once is not counted
    size = 100_000 if EXAMPLES else 3_000
    for piece in each.pieces:
        for unit in (piece, piece + "\n", piece + "x\n\n") if EXAMPLES else (piece + "\n",):
            source = (unit * (size // len(unit) + 1)).encode()
            tracemalloc.start()
            try:
                document = each.parser.parse(source, "guide")
            except ParseError:
                continue
            finally:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
            assert peak < MEMORY_BASE + MEMORY_PER_BYTE * len(source), piece
            assert len(document.text) <= 2 * len(source) + 100


# ------------------------------------------------------------------- formats read in a child process


def read_in_child(name: str, source: bytes) -> Document | None:
    try:
        return parse_file(name, source, seconds=PDF_SECONDS, memory_bytes=PDF_MEMORY)
    except ParseError:
        return None


@pytest.mark.xdist_group("isolate")
@runs(10)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_pdf_files(seed: int) -> None:
    chance = random.Random(seed)
    files = seeds((".pdf",))
    words = (
        b"obj",
        b"endobj",
        b"stream\n",
        b"/Length 9999999",
        b"/Kids [1 0 R]",
        b"<<",
        b">>",
        b"xref",
        b"%%EOF",
        b"0 0 R",
    )
    source = damaged(chance.choice(files), chance.choice(files), words, chance)
    document = read_in_child("damaged.pdf", source)
    if document is not None and document.text:
        check_chunks(document, max_chars=300, overlap_chars=60)


@pytest.mark.xdist_group("isolate")
@runs(10)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_word_files(seed: int) -> None:
    docx = pytest.importorskip("docx", reason="the extra docx is not installed")
    chance = random.Random(seed)
    word = docx.Document()
    word.add_heading("Kiln", 1)
    word.add_paragraph("Fire it.", style="List Bullet")
    word.add_table(rows=2, cols=2).cell(0, 0).text = "cone"
    target = io.BytesIO()
    word.save(target)
    source = target.getvalue()
    words = (b"<w:p>", b"</w:p>", b"<w:tbl>", b"<w:r><w:t>x</w:t></w:r>", b"&amp;", b"\0")
    if chance.random() < 0.5:
        source = damaged(source, source, words, chance)
    else:
        source = _with_part(source, lambda part: damaged(part, part, words, chance))
    document = read_in_child("damaged.docx", source)
    if document is not None and document.text:
        check_chunks(document, max_chars=300, overlap_chars=60)


def _with_part(archive: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Returns a Word file whose main part is changed, so that what is damaged is not the archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            new.writestr(name, change(part) if name == "word/document.xml" else part)
    return target.getvalue()

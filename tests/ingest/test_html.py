"""HTML pages."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from support.documents import check_chunks, check_document

from copilotd.ingest.html import HtmlParser
from copilotd.types import BlockKind, Document

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "formats"


def parse(text: str) -> Document:
    document = check_document(HtmlParser(), text.encode(), html.unescape)
    assert document is not None
    check_chunks(document, max_chars=80, overlap_chars=20)
    return document


def paths(document: Document) -> list[str]:
    return [" > ".join(section.heading_path) for section in document.sections if section.level]


def blocks(document: Document) -> list[tuple[BlockKind, str]]:
    return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]


def test_the_main_content_of_a_page() -> None:
    document = parse((FIXTURES / "guide.html").read_text(encoding="utf-8"))
    assert (document.title, document.description) == ("Page & Title", "About")
    assert paths(document) == ["The Guide", "The Guide > Sub"]
    assert document.sections[0].anchor == "top"
    for gone in ("SITE", "Nav", "FOOT", "var a", "x{}", "Title", "P"):
        assert gone not in document.text.split()
    assert "continues <here> café." in document.text
    assert "Tail a picture" in document.text


def test_blocks_of_a_page() -> None:
    document = parse((FIXTURES / "guide.html").read_text(encoding="utf-8"))
    found = {text: kind for kind, text in blocks(document)}
    assert found["def f():\n\n    return 1 < 2"] is BlockKind.CODE
    assert found["- one"] is BlockKind.LIST_ITEM
    table = next(block for block in document.blocks if block.kind is BlockKind.TABLE)
    assert document.text[table.start : table.header_end] == "A | B"
    assert document.text[table.start : table.end] == "A | B\n1 | 2\n| 3\n| 4"
    groups = {block.group for block in document.blocks if block.kind is BlockKind.LIST_ITEM}
    assert len(groups) == 1


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<main>a</main><p>outside", "a"),
        ("<div role=main>a</div><p>outside", "a"),
        ("<p>x<article>a</article>\n<article>b</article>", "a\nb"),
        ("<body><header>h</header><p>a<footer>f</footer></body>", "a"),
        ("no tags at all", "no tags at all"),
        ("<p>a<!-- <p>hidden --> b", "a b"),
        ("<p>a <!-- never closed\n<p>b", "a"),
        ("<p>1 < 2 &amp; 3 > 2 a<b</b>", "1 < 2 & 3 > 2 a"),
        ('<p title="a > b">c</p>', "c"),
        ("<p hidden>gone</p><p>a", "a"),
        ("<style>p{}</style><script>if (a</b) {}</script>a", "a"),
        ("<nav>never closed <p>a", "never closed a"),
        ("<p>a&#10;b &#x202e;c", "a b c"),
        ("<p>caf&ea\ufeffcute; &am\N{ZERO WIDTH SPACE}p; &eacute;", "caf&eacute; &amp; é"),
        ("<p>a<scr\N{ZERO WIDTH SPACE}ipt>b</p>", "a b"),
        ("<svg><title>no</title></svg><P CLASS=x>A</P>", "A"),
        ("<img\n alt='one\ntwo'>", "one\ntwo"),
        ("<dl><dt>term</dt>\n<dd>what it is</dd></dl>", "term\nwhat it is"),
    ],
)
def test_what_is_seen(source: str, text: str) -> None:
    assert parse(source).text == text


def test_headings_inside_navigation_are_none_and_links_in_headings_are_words() -> None:
    source = (
        '<nav><h2>Menu</h2></nav>\n<h1>The <a href="#x"><code>x</code></a></h1>\n<h3>Deep\n one</h3>\n<p>t'
    )
    assert paths(parse(source)) == ["The x", "The x > Deep one"]


def test_a_page_on_one_line_keeps_its_words_and_first_heading() -> None:
    document = parse("<h1>One</h1><p>first words<h2>Two</h2><p>second words")
    assert document.text == "One first words Two second words"
    assert paths(document) == ["One"]
    assert blocks(document) == [(BlockKind.PARAGRAPH, document.text)]

"""AsciiDoc documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import check_document

from copilotd.errors import ParseError
from copilotd.ingest.asciidoc import AsciiDocParser
from copilotd.ingest.plain import PlainTextParser
from copilotd.types import BlockKind, Document

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "formats"


def parse(text: str) -> Document:
    document = check_document(AsciiDocParser(), text.encode())
    assert document is not None
    return document


def paths(document: Document) -> list[str]:
    return [" > ".join(section.heading_path) for section in document.sections if section.level]


@pytest.mark.parametrize(
    "kind", ["PGP PUBLIC KEY BLOCK", "PGP SIGNATURE", "CERTIFICATE", "OPENSSH PRIVATE KEY"]
)
def test_an_armoured_key_is_no_document(kind: str) -> None:
    key = f"-----BEGIN {kind}-----\n\nmQENBFxTUHMBCADEs6kE\n=x1Yz\n-----END {kind}-----\n"
    for parser in (AsciiDocParser(), PlainTextParser()):
        with pytest.raises(ParseError, match="a key, signature or certificate"):
            parser.parse((key * 2).encode(), "release")
    # What shows a key, or is signed, has words.
    assert "Import it" in parse(f"{key}\nImport it.\n").text
    signed = (
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nVersion 3 is out.\n-----BEGIN PGP SIGNATURE-----"
    )
    assert "Version 3 is out." in parse(f"{signed}\n\niQEz\n-----END PGP SIGNATURE-----\n").text


def test_a_document() -> None:
    document = parse((FIXTURES / "guide.adoc").read_text(encoding="utf-8"))
    assert (document.title, document.description) == ("The Title Here", "All about it")
    assert paths(document) == [
        "The Title Here",
        "The Title Here > Install now",
        "The Title Here > Install now > Legacy",
    ]
    assert document.sections[1].anchor == "install"
    for gone in ("hidden comment", "block comment", ":toc:", "|===", "----", "ifdef"):
        assert gone not in document.text
    assert "include::other.adoc[]" in document.text
    assert "conditional text" in document.text


def test_blocks_of_a_document() -> None:
    document = parse((FIXTURES / "guide.adoc").read_text(encoding="utf-8"))
    found = [(block.kind, document.text[block.start : block.end]) for block in document.blocks]
    assert (BlockKind.CODE, "[source,bash]\n== not a heading\n# comment\n\nmake") in found
    heads = [
        document.text[block.start : block.header_end]
        for block in document.blocks
        if block.kind is BlockKind.TABLE
    ]
    assert heads == ["|A |B", "|Name |Value"]
    note = {
        block.group
        for block in document.blocks
        if document.text[block.start : block.end] in ("NOTE:", "Inside note.", "* in note")
    }
    assert len(note) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("= A\n\n== B ==\n\n=== C\n\n== D\n", ["A", "A > B", "A > B > C", "A > D"]),
        ("# A\n\n## B\n", ["A", "A > B"]),
        ("Old\n===\n\nSub\n---\n", ["Old", "Old > Sub"]),
        ("----\n== no\n----\n\n== Yes\n", ["Yes"]),
        ("----\n== open block is text\n\n== Yes\n", ["Yes"]),
        ("====\n== In example\n====\n", ["In example"]),
        ("== https://x.y[Link] and `code`\n", ["Link and code"]),
        ("text\n== no heading\n", []),
        ("== C# and *bold* `code` _it_\n", ["C# and bold code it"]),
        ("== snake_case_name ~/.x H~2~O **un**bold\n", ["snake_case_name ~/.x H2O unbold"]),
    ],
)
def test_headings(source: str, expected: list[str]) -> None:
    assert paths(parse(source)) == expected

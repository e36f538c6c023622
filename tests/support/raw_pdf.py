"""PDFs written object by object: what no library would write, and text in any script."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

TEXT = b"BT /F1 12 Tf 60 700 Td (The ledger is kept for seven years.) Tj ET"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
RESOURCES = b"/Resources << /Font << /F1 3 0 R >> >>"


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def bomb(megabytes: int) -> bytes:
    """A stream that unpacks to blanks, hundreds of times its size."""
    blanks = b" " * (1 << 20)
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    # Blocks of a full flush know nothing of each other, so that one may be repeated.
    block = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 1
    for _ in range(megabytes):
        checksum = zlib.adler32(blanks, checksum)
    packed = b"\x78\x01" + block * megabytes + packer.flush() + checksum.to_bytes(4, "big")
    return stream(packed, b"/Filter /FlateDecode")


def page(contents: int, resources: bytes = RESOURCES) -> bytes:
    return b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R %s >>" % (
        contents,
        resources,
    )


def pdf(objects: dict[int, bytes], kids: Iterable[int], catalog: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 3 (which is the font), with a right table of their places."""
    numbers = list(kids)
    pages = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (
        b" ".join(b"%d 0 R" % number for number in numbers),
        len(numbers),
    )
    everything = {1: b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog, 2: pages, 3: FONT, **objects}
    body = bytearray(b"%PDF-1.7\n")
    table = [b"0000000000 65535 f \n"]
    for number in range(1, max(everything) + 1):
        table.append(b"%010d 00000 n \n" % len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, everything.get(number, b"null"))
    place = len(body)
    body += b"xref\n0 %d\n%s" % (len(table), b"".join(table))
    return bytes(body) + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(table), place)


def written(*lines: str, unknown: str = "") -> bytes:
    """A page of lines as they look from left to right, in a font that says which characters it shows.

    Args:
        lines: Each character takes half the font's size.
        unknown: Characters of which the font doesn't say what they are.
    """
    codes = {character: code for code, character in enumerate(sorted(set("".join(lines))), 1)}
    known = [
        b"<%04X> <%s>" % (code, character.encode("utf-16-be").hex().encode())
        for character, code in codes.items()
        if character not in unknown
    ]
    cmap = (
        b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <0000> <FFFF>"
        b" endcodespacerange %d beginbfchar %s endbfchar endcmap end" % (len(known), b" ".join(known))
    )
    font = (
        b"<< /Type /Font /Subtype /Type0 /BaseFont /Any /Encoding /Identity-H /ToUnicode 6 0 R /DescendantFonts"
        b" [<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Any /DW 500"
        b" /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>] >>"
    )
    shown = b"".join(b"<%s> Tj T* " % b"".join(b"%04X" % codes[c] for c in line) for line in lines)
    return pdf(
        {3: font, 4: page(5), 5: stream(b"BT /F1 12 Tf 14 TL 60 700 Td " + shown + b"ET"), 6: stream(cmap)},
        [4],
    )

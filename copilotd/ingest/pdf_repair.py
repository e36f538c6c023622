"""Makes a PDF with a broken object table readable, by telling the reader to look for the objects.

A PDF ends with a table of its objects' places. Where it is missing, loops, is cut off or lacks a
part, pdfminer can scan the file for objects instead, but gives up at the first trailer it meets
and needs one that names the root. So every old trailer is hidden and a new one put at the end.
"""

from __future__ import annotations

import re

_ROOT = re.compile(rb"/Root\s+(\d+\s+\d+)\s+R\b")
_CATALOG = re.compile(rb"(?:^|[\r\n])\s*(\d+\s+\d+)\s+obj\b[^>]{0,400}?/Type\s*/Catalog\b")
_ENCRYPT = re.compile(rb"/Encrypt\s+(\d+\s+\d+)\s+R\b")
_ID = re.compile(rb"/ID\s*(\[\s*<[0-9A-Fa-f\s]*>\s*<[0-9A-Fa-f\s]*>\s*\])")
_INFO = re.compile(rb"/Info\s+(\d+\s+\d+)\s+R\b")


def rebuilt(source: bytes) -> bytes | None:
    """Returns a file with the same objects and a new trailer; None where that can't be done."""
    root = _last(_ROOT, source) or _last(_CATALOG, source)
    if root is None:
        return None
    if b"/Encrypt" in source and _last(_ENCRYPT, source) is None:
        # Without its key nothing of it could be read, and what is read would be noise.
        return None
    entries = b"/Root " + root + b" R"
    for name, pattern, suffix in ((b"Encrypt", _ENCRYPT, b" R"), (b"ID", _ID, b""), (b"Info", _INFO, b" R")):
        value = _last(pattern, source)
        if value is not None:
            entries += b" /" + name + b" " + value + suffix
    body = source.replace(b"startxref", b"startxxxx").replace(b"trailer", b"trailxx")
    # Ends an object the file was cut off in; behind a whole one it means nothing.
    return body + b"\nendstream\nendobj\ntrailer\n<< " + entries + b" >>\n%%EOF\n"


def _last(pattern: re.Pattern[bytes], source: bytes) -> bytes | None:
    found = None
    for match in pattern.finditer(source):
        found = match[1]
    return found

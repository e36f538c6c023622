"""Bytes of a text document to text, whatever encoding and line ends they were written with."""

from __future__ import annotations

import codecs
import re

from copilotd.errors import ParseError

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark starts with the other's
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_SIGNATURES = (
    b"%PDF-",
    b"\x89PNG\r\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"PK\x03\x04",
    b"\x1f\x8b\x08",
    b"\x7fELF",
    b"SQLite format 3\x00",
    b"\xd0\xcf\x11\xe0",
)
_SAMPLE = 65_536
_MAX_CONTROL_SHARE = 0.05
_CONTROL = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MULTIBYTE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}",
)
# A key, signature or certificate in letters: base64 from its first line to its last. Signed text holds its words.
_ARMOUR = re.compile(r"\s*-----BEGIN (?!PGP SIGNED MESSAGE)[A-Z0-9 ]{1,60}-----\s")
_ARMOUR_END = re.compile(r"-----END [A-Z0-9 ]{1,60}-----\s*\Z")
_HIGH = re.compile(rb"[\x80-\xff]")


def decode(source: bytes) -> str:
    """Returns the text of ``source`` with a newline for every line end (LF, CR, CRLF).

    A byte-order mark decides; then UTF-8; then UTF-16 without a mark, told by its zero bytes; then UTF-8
    with a few damaged bytes; then a legacy encoding. NUL characters are dropped.

    Raises:
        ParseError: The bytes are not text, or are a key.
    """
    if source.startswith(_BINARY_SIGNATURES):
        raise ParseError("not a text file, although its name says so")
    text = _to_text(source)
    sample = text[:_SAMPLE]
    nuls = sample.count("\0")
    if len(_CONTROL.findall(sample)) + nuls > max(2, len(sample) * _MAX_CONTROL_SHARE):
        raise ParseError("looks like a binary file, not text")
    if _ARMOUR.match(text) and _ARMOUR_END.search(text, max(0, len(text) - 200)):
        raise ParseError("a key, signature or certificate, not a document")
    if "\0" in text:
        text = text.replace("\0", "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def _to_text(source: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if source.startswith(mark):
            return source[len(mark) :].decode(encoding, errors="replace")
    if wide := _utf16_without_mark(source[:_SAMPLE]):
        return source.decode(wide, errors="replace")
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError:
        return _from_legacy(source)


def _utf16_without_mark(sample: bytes) -> str:
    """Text in a Latin script has a zero in every second byte of UTF-16, and nowhere else."""
    half = len(sample) // 2
    if half < 2 or b"\0" not in sample:
        return ""
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if odd > half * 0.4 and even < half * 0.05:
        return "utf-16-le"
    if even > half * 0.4 and odd < half * 0.05:
        return "utf-16-be"
    return ""


def _from_legacy(source: bytes) -> str:
    sample = source[:_SAMPLE]
    high = len(_HIGH.findall(source))
    well_formed = sum(len(sequence) for sequence in _MULTIBYTE.findall(source))
    if well_formed > high / 2:
        return source.decode("utf-8", errors="replace")
    # In western text a few bytes in a hundred are above 127; the detector is unreliable there
    # and good where most letters are: Cyrillic, Greek, Chinese, Japanese, Korean.
    if len(_HIGH.findall(sample)) > len(sample) * 0.15:
        from charset_normalizer import from_bytes

        best = from_bytes(sample).best()
        if best is not None:
            return source.decode(best.encoding, errors="replace")
    try:
        return source.decode("cp1252")
    except UnicodeDecodeError:
        return source.decode("latin-1")

"""Bytes to text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.errors import ParseError
from copilotd.ingest.decode import decode

GERMAN = "# Menü\n\nDie Küche schließt um 21 Uhr, die Bar später.\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "latin-1"])
def test_common_encodings_give_the_same_text(encoding: str) -> None:
    assert decode(GERMAN.encode(encoding)) == GERMAN


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_recognised_without_a_byte_order_mark(encoding: str) -> None:
    assert decode(GERMAN.encode(encoding)) == GERMAN


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Руководство по установке. Запустите программу и выберите язык интерфейса. " * 5),
        ("shift_jis", "インストール手順。設定ファイルを開いて、ポート番号を変更してください。" * 5),
        ("gb18030", "安装指南。打开配置文件并更改端口号,然后重新启动服务。" * 5),
    ],
)
def test_legacy_encodings_of_other_scripts_are_detected(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding)) == text


def test_one_damaged_byte_does_not_turn_utf8_into_mojibake() -> None:
    source = "Küche, Tür, Straße".encode() + b" \xff end"
    assert decode(source) == "Küche, Tür, Straße \N{REPLACEMENT CHARACTER} end"


def test_all_line_ends_become_newlines_and_keep_the_line_count() -> None:
    assert decode(b"a\r\nb\rc\n\r\nd") == "a\nb\nc\n\nd"


def test_a_stray_nul_is_dropped() -> None:
    assert decode(b"master valve 66\x0020 is open, all is well") == "master valve 6620 is open, all is well"


def test_a_form_feed_or_an_escape_is_still_text() -> None:
    assert "page two" in decode(b"page one\n\x0cpage two \x1b[31mred\x1b[0m\n")


@pytest.mark.parametrize(
    "source",
    [
        b"%PDF-1.7\n",
        b"\x89PNG\r\n\x1a\n",
        b"PK\x03\x04zip",
        bytes(range(256)) * 20,
        b"\x00\x01\x02\x03" * 100,
    ],
)
def test_binary_is_refused_with_a_reason(source: bytes) -> None:
    with pytest.raises(ParseError, match=r"binary|not a text file"):
        decode(source)


@given(st.binary(max_size=400))
def test_any_bytes_give_text_or_a_parse_error(source: bytes) -> None:
    try:
        text = decode(source)
    except ParseError:
        return
    assert "\0" not in text
    assert "\r" not in text


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=200))
def test_utf8_comes_back_unchanged(text: str) -> None:
    source = text.encode()
    if not source.startswith(b"\xef\xbb\xbf"):
        assert decode(source) == text

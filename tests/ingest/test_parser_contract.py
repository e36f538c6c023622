"""What holds for every parser of a text format, whatever it is given."""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.documents import check_chunks, check_document, chunks_of
from support.formats import FORMATS, MARKS, Format, notebook

from copilotd.errors import ParseError
from copilotd.ingest.parse import PARSERS_FINGERPRINT, parser_for
from copilotd.types import Parser

ANYTIME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
SECONDS_PER_MEGABYTE = 20


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

    def test_documents_read_at_once_are_those_read_alone(self, each: Format) -> None:
        sources = [each.sample.replace("End.", f"End {n}.").encode() for n in range(24)]
        alone = [each.parser.parse(source, "guide") for source in sources]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(4) as threads:
                together = list(threads.map(lambda source: each.parser.parse(source, "guide"), sources))
        finally:
            sys.setswitchinterval(interval)
        assert together == alone

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

"""Pages in citations: the range a passage covers, and the very page of what is quoted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import pdfs
from support.engines import Recorder, ask, running_engine, search

from copilotd.engine import Engine

pytestmark = pytest.mark.xdist_group("isolate")

FIRST = (
    "STORING GLAZE",
    "Glaze is kept in closed buckets, because it dries within a week when the",
    "lid is off, and dry glaze has to be ground again before it can be used on",
)
SECOND = (
    "any piece of pottery at all.",
    "",
    *[line for _ in range(7) for line in (*pdfs.PROSE, "")],
    "The quokka shelf holds forty buckets of celadon.",
    "Each bucket carries the date on which it was mixed.",
)
THIRD = ("FIRING", "The kiln is fired on Thursdays at 1240 degrees.", "It cools for two days.")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    base = tmp_path_factory.mktemp("places")
    folder = base / "docs"
    folder.mkdir()
    (folder / "manual.pdf").write_bytes(pdfs.of_lines(FIRST, SECOND, THIRD))
    with running_engine(base / "index") as running:
        running.index_root(str(folder), reporter=Recorder())
        yield running


def test_a_passage_over_two_pages_has_their_range(engine: Engine) -> None:
    hit = search(engine, "quokka shelf").hits[0].chunk
    assert FIRST[-1] in hit.text
    assert SECOND[-2] in hit.text
    assert (hit.metadata.page, hit.metadata.page_end) == (1, 2)
    second = hit.text.split("\n").index(SECOND[0])
    assert hit.page_starts == ((1, 1), (hit.line_numbers[second], 2))


@pytest.mark.parametrize(
    ("question", "words", "pages"),
    [
        ("What holds forty buckets of celadon?", SECOND[-2], (2, 2)),
        ("On which day is the kiln fired?", THIRD[1], (3, 3)),
    ],
)
def test_a_quote_is_cited_with_its_own_page(
    engine: Engine, question: str, words: str, pages: tuple[int, int]
) -> None:
    answer = ask(engine, question, threshold=0.0)
    [citation, *_] = answer.citations
    assert words in answer.text
    assert (citation.page, citation.page_end) == pages


def test_a_section_printed_whole_names_all_its_pages(engine: Engine) -> None:
    section = engine.section("manual > STORING GLAZE", None, Recorder())
    assert (section.page, section.page_end) == (1, 2)
    assert engine.section("manual.pdf pp. 1-2", None, Recorder()) == section
    assert engine.section("manual.pdf p. 2", None, Recorder()) == section
    assert engine.section("manual.pdf p. 3", None, Recorder()).section_heading == "FIRING"

"""What of the passages is sent: the order, the budget in tokens, neighbours and whole sections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.pack import (
    estimate_tokens,
    fit_history,
    history_tokens,
    pack,
    passage_budget,
    section_siblings,
    shorten_question,
)
from copilotd.query.prompt import render_prompt
from copilotd.query.retrieve import retrieve
from copilotd.types import ChunkMetadata, Hit, Message, Scope, StoredChunk

PLENTY = 100_000


def hit(
    text: str, number: int = 1, heading: str = "Install", start: int = 0, document: int = 0, line: int = 1
) -> Hit:
    lines = tuple(range(line, line + text.count("\n") + 1))
    metadata = ChunkMetadata(
        "guide",
        heading,
        1.0,
        "/docs/guide.md",
        number,
        len(text),
        (heading,),
        "guide.md",
        lines[0],
        lines[-1],
    )
    chunk = StoredChunk(
        number, document or number, "default", "", text, start, start + len(text), lines, (), "", metadata
    )
    return Hit(chunk, 1.0 / number, 0.5, 0.0)


@given(st.lists(st.integers(0, 900), max_size=6), st.integers(0, 3000))
def test_what_was_said_is_kept_from_its_end_within_its_share(lengths: list[int], budget: int) -> None:
    history = [
        message
        for number, length in enumerate(lengths)
        for message in (Message("user", f"q{number}"), Message("assistant", "a" * length))
    ]
    kept = fit_history(history, budget)
    assert list(kept) == history[len(history) - len(kept) :]
    assert len(kept) % 2 == 0
    assert history_tokens(kept) <= budget / 4
    if len(kept) < len(history):
        assert history_tokens(history[-len(kept) - 2 :]) > budget // 4


def test_what_does_not_fit_is_cut_or_left_out_and_said() -> None:
    text = "\n\n".join(f"paragraph {number} " + "word " * 30 for number in range(40))
    packed = pack([hit("short", 1), hit(text, 2), hit("more", 3), hit("most", 4)], 700)
    assert [passage.key for passage in packed.passages] == ["A", "B"]
    assert text.startswith(packed.passages[1].text)
    assert not packed.passages[1].complete
    assert packed.left_out == 2
    assert packed.notice == (
        "To fit the model's context, 1 passage was shortened and 2 less relevant were left out."
    )
    prompt = render_prompt("?", packed).content
    assert "(only its beginning)" in prompt
    assert "2 less relevant passages are left out" in prompt


@given(st.lists(st.integers(0, 3000), max_size=12), st.integers(0, 3000))
def test_packing_keeps_the_order_and_the_budget(lengths: list[int], budget: int) -> None:
    hits = [hit("x" * length, number) for number, length in enumerate(lengths, 1)]
    packed = pack(hits, budget)
    assert len(packed.passages) + packed.left_out == len(hits)
    assert [passage.hit for passage in packed.passages] == hits[: len(packed.passages)]
    assert all(passage.complete == (passage.text == passage.hit.chunk.text) for passage in packed.passages)
    assert sum(estimate_tokens(passage.text) for passage in packed.passages) <= max(budget, 131)
    assert bool(packed.notice) == (packed.left_out > 0 or any(not p.complete for p in packed.passages))


def test_no_notice_where_everything_fits() -> None:
    assert pack([hit("a", 1), hit("b", 2)], PLENTY).notice == ""


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_neighbours_of_one_section_become_one_passage(order: tuple[int, ...]) -> None:
    text = "one\ntwo\nthree\nfour\nfive\nsix\n"
    cuts = [(0, 14), (8, 19), (19, 28)]
    chunks = [
        hit(text[start:end], number, start=start, document=9, line=1 + text[:start].count("\n"))
        for number, (start, end) in enumerate(cuts, 1)
    ]
    packed = pack([*(chunks[place] for place in order), hit("else", 4)], PLENTY)
    first, last = packed.passages
    assert first.text == text
    assert (first.hit.chunk.metadata.line_start, first.hit.chunk.metadata.line_end) == (1, 7)
    assert first.hit.chunk.line_numbers == (1, 2, 3, 4, 5, 6, 7)
    assert last.text == "else"


def test_what_only_lies_near_stays_apart() -> None:
    one, other = hit("one", 1, start=0, document=9), hit("two", 2, start=4, document=9)
    assert len(pack([one, other], PLENTY).passages) == 2
    elsewhere = hit("two", 2, "Other", start=3, document=9)
    assert len(pack([one, elsewhere], PLENTY).passages) == 2
    assert len(pack([one, hit("two", 2, start=3, document=8)], PLENTY).passages) == 2


def test_a_section_goes_in_whole_where_everything_fits() -> None:
    text = "".join(f"line {number} of the section\n" for number in range(30))
    middle = len(text) // 3
    pieces = [(0, middle), (middle, 2 * middle), (2 * middle, len(text))]
    chunks = [hit(text[a:b], n, start=a, document=9).chunk for n, (a, b) in enumerate(pieces, 1)]
    siblings = {chunks[1].id: chunks}
    found = hit(text[middle : 2 * middle], 2, start=middle, document=9)
    assert pack([found], PLENTY, siblings).passages[0].text == text
    tight = estimate_tokens(found.chunk.text) + 100
    assert pack([found], tight, siblings).passages[0].text == found.chunk.text


def test_other_scripts_take_more_tokens() -> None:
    assert estimate_tokens("烧制温度是多少" * 10) >= 70
    assert estimate_tokens("word " * 100) < 200
    assert estimate_tokens("ünïcödé") > estimate_tokens("unicode")


def test_the_budget_leaves_room_for_rules_question_and_answer() -> None:
    assert passage_budget(8192, 1024, "x" * 3000) == 8192 - 1024 - 100 - 1001
    assert passage_budget(1000, 900, "x" * 3000) == 0


def test_a_question_that_is_too_long_keeps_both_ends() -> None:
    log = "line of a log " * 2000
    asked = shorten_question(f"Why does it fail? {log} What do I do?", 2048)
    assert asked.startswith("Why does it fail?")
    assert asked.endswith("What do I do?")
    assert "[…]" in asked
    assert estimate_tokens(asked) <= 512
    assert shorten_question("Short?", 2048) == "Short?"


SECTIONS = """# Guide

## Install

First paragraph of the installation. {long}

Second paragraph of the installation. {long}

### Detail

A detail of it. {long}

## Remove

How it is removed. {long}
"""


def test_the_chunks_of_a_hits_own_section_are_its_siblings_and_make_it_whole() -> None:
    source = SECTIONS.replace("{long}", ("Words that fill a line of it. " * 14).strip()).encode()
    document = parse_file("guide.md", source)
    chunks = chunk_document(
        document, source_file="/guide.md", relative_path="guide.md", last_modified=1.0, max_chars=500
    )
    index = MemoryIndex(HashingEncoder())
    index.add(document, chunks)
    hits = retrieve("Second paragraph of the installation", index, HashingEncoder(), Scope(), 1).hits
    assert "Second paragraph" in hits[0].chunk.text
    siblings = section_siblings(index, hits)
    (own,) = siblings.values()
    assert len(own) >= 2
    assert [chunk.start for chunk in own] == sorted(chunk.start for chunk in own)
    assert {chunk.metadata.heading_path for chunk in own} == {hits[0].chunk.metadata.heading_path}
    assert hits[0].chunk.id in [chunk.id for chunk in own]

    whole = pack(hits, PLENTY, siblings).passages[0]
    assert "First paragraph" in whole.text
    assert "Second paragraph" in whole.text
    assert "A detail" not in whole.text
    assert "How it is removed" not in whole.text
    metadata = whole.hit.chunk.metadata
    lines = source.decode().split("\n")
    assert "First paragraph" in "\n".join(lines[metadata.line_start - 1 : metadata.line_end])
    assert len(whole.hit.chunk.line_numbers) == whole.text.count("\n") + 1
    for number, line in zip(whole.hit.chunk.line_numbers, whole.text.split("\n"), strict=True):
        assert lines[number - 1] == line
    assert pack(hits, 200, siblings).passages[0].hit.chunk == hits[0].chunk, (
        "where it doesn't fit, the hit alone"
    )

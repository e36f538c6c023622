"""The extractive answerer: verbatim, in reading order, whole fences and lists, exact lines."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hashing_encoder import HashingEncoder
from support.memory_index import MemoryIndex

from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.extract import Passage, compose, extract
from copilotd.query.retrieve import retrieve
from copilotd.types import Scope

GUIDE = (
    """# Kiln guide

The kiln is a furnace for clay.

## Firing

Clay must be bone dry. Wet clay cracks.

To start the firing, run:

```sh
kiln start --ramp 60

kiln watch
```

The lid stays shut until the temperature falls below ninety degrees.

## Tools

You need:

- gloves of leather
- a pair of tongs
- a pyrometer for the temperature

## Cones

| cone | temperature | use |
|------|-------------|-----|
"""
    + "".join(f"| {n} | {1000 + n * 17} degrees | ware number {n} |\n" for n in range(1, 40))
    + """
## Exit codes

"""
    + " ".join(
        f"Sentence number {n} tells of matter {n} at some length, for readers who like it." for n in range(30)
    )
    + """
An exit status of 107 means that the door was open. """
    + " ".join(f"More of matter {n} follows here, which nobody asked for." for n in range(30))
    + "\n"
)


def answer(question: str, text: str = GUIDE, *, max_passages: int = 3) -> list[Passage]:
    index = MemoryIndex(HashingEncoder())
    document = parse_file("guide.md", text.encode())
    chunks = chunk_document(document, source_file="/guide.md", relative_path="guide.md", last_modified=1.0)
    index.add(document, chunks)
    return extract(retrieve(question, index, HashingEncoder(), Scope(), 5), max_passages=max_passages)


def source_lines(passage: Passage) -> str:
    return "\n".join(GUIDE.split("\n")[passage.line_start - 1 : passage.line_end])


def test_a_fence_comes_whole_and_with_its_introduction() -> None:
    text = answer("how do I start the firing")[0].text
    assert "To start the firing, run:" in text
    assert "```sh\nkiln start --ramp 60\n\nkiln watch\n```" in text


def test_a_list_comes_whole_and_with_its_introduction() -> None:
    text = answer("is a pyrometer needed")[0].text
    assert text.startswith("You need:\n")
    assert [line[2:] for line in text.splitlines() if line.startswith("- ")] == [
        "gloves of leather",
        "a pair of tongs",
        "a pyrometer for the temperature",
    ]


def test_the_row_of_a_long_table_comes_with_its_header() -> None:
    passage = answer("ware number 33")[0]
    assert "| 33 | 1561 degrees | ware number 33 |" in passage.text
    assert passage.text.startswith("| cone | temperature | use |")
    assert len(passage.text.splitlines()) <= 16
    assert "| 33 |" in source_lines(passage)
    assert "| cone |" not in source_lines(passage)


def test_a_long_paragraph_is_cut_to_the_sentences_that_answer() -> None:
    text = answer("exit status 107")[0].text
    assert "An exit status of 107 means that the door was open." in text
    assert len(text) <= 900


def test_a_deeper_heading_leads_to_its_own_text_only() -> None:
    options = "# Options\n\nEvery option can be shortened.\n\n"
    options += "".join(f"#### `--{name}`\n\nSets the {name}.\n\n" for name in ("ramp", "hold", "cone"))
    passages = answer("--hold", options)
    assert passages[0].text == "Sets the hold."
    assert (passages[0].line_start, passages[0].line_end) == (11, 11)


def test_the_heading_is_not_the_answer() -> None:
    for passage in answer("Firing"):
        assert not passage.text.lstrip().startswith("#")


def test_nothing_found_gives_nothing() -> None:
    assert answer("kiln", "") == []
    assert answer("Tools", "# Tools\n") == []
    assert compose([]) == ("", [])


def test_passages_do_not_overlap_and_marks_resolve() -> None:
    passages = answer("kiln temperature degrees", max_passages=3)
    text, citations = compose(passages)
    assert [citation.key for citation in citations] == ["A", "B", "C"][: len(citations)]
    for citation, passage in zip(citations, passages, strict=True):
        assert f"[{citation.label}]" in text
        assert (citation.line_start, citation.line_end) == (passage.line_start, passage.line_end)
        assert citation.label == f"guide > {passage.chunk.metadata.section_heading}"
    spans = sorted((passage.line_start, passage.line_end) for passage in passages)
    assert all(left[1] < right[0] for left, right in pairwise(spans))


def test_a_mark_never_stands_on_a_fence_line() -> None:
    text, _ = compose(answer("kiln watch"))
    assert not any(line.startswith("```") and "[" in line for line in text.splitlines())


_line = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="<>&\\"), max_size=60)
_markdown = st.lists(
    st.one_of(
        _line,
        _line.map(lambda text: f"## {text}"),
        _line.map(lambda text: f"- {text}"),
        _line.map(lambda text: f"    {text}"),
        st.just(""),
        st.just("```"),
        _line.map(lambda text: f"| {text} | kiln |\n|---|---|\n| {text} | 2 |"),
    ),
    max_size=30,
).map("\n".join)


@settings(max_examples=150, deadline=None)
@given(_markdown, st.text(max_size=40))
def test_every_quoted_line_is_in_the_document(text: str, question: str) -> None:
    index = MemoryIndex(HashingEncoder())
    document = parse_file("guide.md", text.encode())
    chunks = chunk_document(
        document, source_file="/g.md", relative_path="g.md", last_modified=1.0, max_chars=300
    )
    index.add(document, chunks)
    number = {line: i for i, line in enumerate(document.line_numbers)}
    lines = document.text.split("\n")
    for passage in extract(retrieve(question, index, HashingEncoder(), Scope(), 5), max_passages=3):
        cited = lines[number[passage.line_start] : number[passage.line_end] + 1]
        quoted = passage.text.split("\n")
        assert passage.text.strip()
        if quoted[-1] not in cited[-1]:
            # A fence that was cut, or that the document never closes, is closed.
            assert set(quoted.pop()) <= set("`~ \t>")
        assert quoted[-1] in cited[-1]
        for line in quoted[-len(cited) :]:
            assert any(line in whole for whole in cited)
        for line in quoted[: -len(cited)]:
            assert line in lines or set(line) == {"`"}


LONG_FENCE = (
    "# Kiln\n\n## Example\n\nAll of it:\n\n```yaml\n"
    + "\n\n".join("\n".join(f"key_{part}_{n}: {part * 10 + n}" for n in range(6)) for part in range(40))
    + "\nlast_key: celadon\n```\n\nThe end.\n"
)


def fence_is_whole(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.startswith("```")]
    return len(lines) % 2 == 0 and all(line == "```" for line in lines[1::2])


@pytest.mark.parametrize("question", ["key_0_3", "key_17_3", "key_38_1", "last_key celadon", "all of it"])
def test_a_quote_from_a_long_fence_is_a_whole_fence(question: str) -> None:
    index = MemoryIndex(HashingEncoder())
    document = parse_file("kiln.md", LONG_FENCE.encode())
    index.add(
        document, chunk_document(document, source_file="/k.md", relative_path="kiln.md", last_modified=1.0)
    )
    passages = extract(retrieve(question, index, HashingEncoder(), Scope(), 5))
    assert passages
    for passage in passages:
        assert fence_is_whole(passage.text), passage.text
    text, _ = compose(passages)
    assert all("[" not in line for line in text.split("\n") if line.startswith("```"))


CODE = "kiln start --ramp 60\n\nkiln watch"
CODE_IN_FORMATS = {
    "guide.adoc": f"= Kiln\n\n== Firing\n\nTo start the firing, run:\n\n[source,sh]\n----\n{CODE}\n----\n",
    "guide.org": f"* Kiln\n** Firing\nTo start the firing, run:\n\n#+BEGIN_SRC sh\n{CODE}\n#+END_SRC\n",
    "guide.html": f"<h1>Kiln</h1>\n<h2>Firing</h2>\n<p>To start the firing, run:</p>\n<pre>{CODE}</pre>\n",
    "guide.rst": "Kiln\n====\n\nFiring\n------\n\nTo start the firing, run:\n\n.. code-block:: sh\n\n   "
    + CODE.replace("\n", "\n   ")
    + "\n",
    "guide.ipynb": json.dumps(
        {
            "cells": [
                {
                    "cell_type": "markdown",
                    "source": ["# Kiln\n", "## Firing\n", "To start the firing, run:"],
                },
                {"cell_type": "code", "source": CODE.splitlines(keepends=True)},
            ]
        },
        indent=1,
    ),
}


@pytest.mark.parametrize("name", CODE_IN_FORMATS)
def test_code_of_every_format_is_quoted_as_code(name: str) -> None:
    index = MemoryIndex(HashingEncoder())
    document = parse_file(name, CODE_IN_FORMATS[name].encode())
    index.add(document, chunk_document(document, source_file="/g", relative_path=name, last_modified=1.0))
    (passage, *_) = extract(retrieve("how to start the firing", index, HashingEncoder(), Scope(), 5))
    fenced = re.search(r"^```\n(.*?)^```$", passage.text, re.DOTALL | re.MULTILINE)
    assert fenced is not None
    assert [line.strip() for line in CODE.split("\n")] == [
        line.strip() for line in fenced[1].rstrip("\n").split("\n")
    ][-3:]
    assert fence_is_whole(passage.text)


def test_a_fence_around_code_is_longer_than_any_in_it() -> None:
    index = MemoryIndex(HashingEncoder())
    page = "<h1>Kiln</h1>\n<p>To fire, write:</p>\n<pre>\ncat guide.md\n```sh\nkiln start\n```\n</pre>\n"
    document = parse_file("guide.html", page.encode())
    index.add(document, chunk_document(document, source_file="/g", relative_path="g", last_modified=1.0))
    (passage,) = extract(retrieve("how to fire kiln start", index, HashingEncoder(), Scope(), 5))
    assert "````\ncat guide.md\n```sh\nkiln start\n```\n````" in passage.text


def test_a_cut_table_says_how_many_rows_are_left_out() -> None:
    passage = answer("temperature of cone 17 ware")[0]
    assert passage.rows_left_out > 0
    text, _ = compose([passage])
    assert text.endswith(f"(… {passage.rows_left_out} more rows)")
    rows = [line for line in passage.text.split("\n") if re.match(r"\| \d", line)]
    assert len(rows) + passage.rows_left_out <= 39


def test_a_whole_table_says_nothing_of_more_rows() -> None:
    table = "# Cones\n\n| cone | use |\n|------|-----|\n| one | ware |\n| two | tiles |\n"
    passage = answer("use of cone two", table)[0]
    assert passage.rows_left_out == 0
    assert "more rows" not in compose([passage])[0]


def test_a_long_answer_quotes_the_whole_section() -> None:
    index = MemoryIndex(HashingEncoder())
    document = parse_file("guide.md", GUIDE.encode())
    chunks = chunk_document(document, source_file="/guide.md", relative_path="guide.md", last_modified=1.0)
    index.add(document, chunks)
    found = retrieve("temperature of cone 17 ware", index, HashingEncoder(), Scope(), 5)
    short, long = extract(found)[0], extract(found, whole=True)[0]
    assert set(short.text.split("\n")) <= set(long.text.split("\n"))
    assert len(long.text) > 2 * len(short.text)
    assert "| 17 |" in short.text

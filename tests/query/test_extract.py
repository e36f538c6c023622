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
from copilotd.query.extract import Passage, asked_names, compose, extract
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
    fenced = re.search(r"^```(\w*)\n(.*?)^```$", passage.text, re.DOTALL | re.MULTILINE)
    assert fenced is not None
    assert fenced[1] == ("" if name.endswith((".html", ".ipynb")) else "sh")
    assert fenced[2].rstrip("\n") == CODE
    assert fence_is_whole(passage.text)


@pytest.mark.parametrize(
    ("name", "opening", "language"),
    [
        ("g.rst", ".. code:: python\n   :linenos:\n\n", "python"),
        ("g.rst", ".. literalinclude-like::\n\n", None),
        ("g.adoc", "[source%linenums,c++]\n", "c++"),
        ("g.adoc", "[,yaml]\n", "yaml"),
        ("g.org", "#+begin_example\n", ""),
    ],
)
def test_what_opens_a_listing_is_no_line_of_its_code(name: str, opening: str, language: str | None) -> None:
    closing = {"g.rst": "", "g.adoc": "----\n", "g.org": "#+end_example\n"}[name]
    title = {"g.rst": "Kiln\n====\n\n", "g.adoc": "= Kiln\n\n", "g.org": "* Kiln\n"}[name]
    indent = "   " if name == "g.rst" else ""
    code = "\n\n".join(f"{indent}step_{n} = heat({n})" for n in range(40))
    fence = "----\n" if name == "g.adoc" else ""
    index = MemoryIndex(HashingEncoder())
    document = parse_file(name, f"{title}Heat the kiln:\n\n{opening}{fence}{code}\n{closing}".encode())
    index.add(document, chunk_document(document, source_file="/g", relative_path=name, last_modified=1.0))
    (passage, *_) = extract(retrieve("how to heat the kiln step_0", index, HashingEncoder(), Scope(), 5))
    if language is not None:
        assert f"```{language}\nstep_0 = heat(0)\n" in passage.text
        assert opening.strip().split("\n")[0] not in passage.text
    assert fence_is_whole(passage.text)


@pytest.mark.parametrize("number", [0, 17, 44, 59])
def test_of_a_long_listing_without_a_blank_line_a_part_is_quoted(number: int) -> None:
    code = "\n".join(f"  <setting{n}>value{n}</setting{n}>" for n in range(60))
    (passage, *_) = answer(
        f"what does setting{number} mean", f"# Kiln\n\n## File\n\nAn example:\n\n```xml\n{code}\n```\n"
    )
    assert f"<setting{number}>" in passage.text
    assert passage.line_end - passage.line_start <= 32
    assert fence_is_whole(passage.text)


def test_paragraphs_that_stand_on_neighbouring_lines_stay_apart() -> None:
    page = "<h1>Kiln</h1>\n<p>To fire the kiln,\nclose it.</p>\n<p>Wait a night.</p>\n<ul>\n<li>Open it.</li>\n</ul>\n"
    index = MemoryIndex(HashingEncoder())
    document = parse_file("guide.html", page.encode())
    index.add(document, chunk_document(document, source_file="/g", relative_path="g", last_modified=1.0))
    (passage,) = extract(retrieve("how to fire the kiln", index, HashingEncoder(), Scope(), 5))
    assert passage.text.startswith("To fire the kiln,\nclose it.\n\nWait a night.\n")


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
    text, _ = compose([passage])
    assert "more rows" not in text
    assert "|\n\n[" in text, "directly below the table the citation would be one more row of it"


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


MANUAL = """# Brindle manual

## What is a kiln?

A kiln is a furnace that fires clay. It has a lid and a pyrometer.

## Options of brindle run

Give these behind the command:

- `--dry-run`: show what would be fired, and fire nothing.
- `--ramp DEGREES`: how fast the temperature rises, in degrees an hour.
- `--hold MINUTES`: how long the highest temperature is kept.
- `--lid-lock`: lock the lid until the clay is cold.

The command says what it does on the terminal, and writes the same to its log, where the times are in UTC.

## Settings

| setting | default | meaning |
|---|---|---|
| `MAX_RAMP` | `150` | the fastest rise that is allowed |
| `LID_TIMEOUT_S` | `30` | how long the lid may stand open |
| `LOG_DIR` | `/var/log/brindle` | where the log is written |

## Start a firing

1. Close the lid.
2. Run `brindle run --ramp 60`.
3. Wait until the pyrometer shows 1200 degrees.

## Errors

### E42: pyrometer not found

The pyrometer is not plugged in, or another program reads it. Plug it in and run `brindle check`.

## Masks

Draw the mask on the picture of the chamber. Every mask has a name, and none of them covers the lid.

Your file then holds the corners of the mask:
"""


def texts(question: str) -> list[str]:
    return [passage.text for passage in answer(question, MANUAL)]


def test_a_definition_comes_as_the_sentence_that_defines() -> None:
    assert texts("what is a kiln?")[0].startswith("A kiln is a furnace that fires clay.")


@pytest.mark.parametrize("question", ["--hold", "what does --hold do", "brindle run --hold MINUTES"])
def test_an_option_comes_as_its_own_item(question: str) -> None:
    assert texts(question)[0] == "- `--hold MINUTES`: how long the highest temperature is kept."


def test_two_options_come_with_what_stands_between_them() -> None:
    assert texts("what is the difference between --ramp and --hold?")[0].splitlines() == [
        "- `--ramp DEGREES`: how fast the temperature rises, in degrees an hour.",
        "- `--hold MINUTES`: how long the highest temperature is kept.",
    ]


@pytest.mark.parametrize("question", ["LID_TIMEOUT_S", "what is the default of LID_TIMEOUT_S?"])
def test_a_setting_comes_as_its_row_below_the_header(question: str) -> None:
    passage = answer(question, MANUAL)[0]
    rows = [line for line in passage.text.splitlines() if "LID_TIMEOUT_S" in line]
    assert rows == ["| `LID_TIMEOUT_S` | `30` | how long the lid may stand open |"]
    assert passage.text.startswith("| setting | default | meaning |")


def test_passages_without_the_option_asked_for_are_left_out() -> None:
    assert all("--dry-run" in text for text in texts("what does --dry-run show of the firing?"))


def test_an_option_that_stands_nowhere_leaves_nothing_out() -> None:
    assert texts("what does --cool-down do to the clay?")


def test_steps_come_whole_and_in_order() -> None:
    assert texts("how do I start a firing?")[0].splitlines() == [
        "1. Close the lid.",
        "2. Run `brindle run --ramp 60`.",
        "3. Wait until the pyrometer shows 1200 degrees.",
    ]


def test_an_error_message_comes_as_its_cause_and_its_cure() -> None:
    text = texts("E42: pyrometer not found")[0]
    assert "not plugged in" in text
    assert "`brindle check`" in text


def test_a_quote_does_not_end_with_what_leads_to_nothing() -> None:
    assert texts("which name has a mask on the picture of the chamber?")[0].endswith("covers the lid.")


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("what does --dry-run do", {"--dry-run"}),
        ("MAX_CHUNK_CHARS default", {"max_chunk_chars"}),
        ("what is autoCommit", {"autocommit"}),
        ("a line for /etc/fstab", set()),
        ("a fine-grained key and/or a token", set()),
        ("how do I start a firing?", set()),
    ],
)
def test_names_are_what_somebody_gave_a_name(question: str, names: set[str]) -> None:
    assert asked_names(question) == names

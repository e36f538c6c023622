"""The MD cases of real bug reports, each through the engine: indexed, asked for, and read as it is printed.

Beside each stand siblings: documents that show the same failure in another form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.engines import found, search
from support.reading import reading
from support.shared import REPOSITORY, SHARED, needs_shared

from copilotd.index.analysis import analyse

FIXTURES = REPOSITORY / "tests" / "fixtures"


def fixture(name: str) -> bytes:
    (path,) = FIXTURES.rglob(name)
    return path.read_bytes()


@dataclass(frozen=True)
class Case:
    """A document, a question, and what its reader sees.

    Attributes:
        id: The case, and behind a dash what its sibling shows.
        file: Name of a fixture, or of the document that ``text`` is.
        question: What is asked.
        source: The line of ``Sources:`` without number and score.
        shown: What is printed, among it each of these.
        hidden: What is not printed and not found.
        outline: Heading paths of the whole document; None where they don't matter.
        text: The document, where it is no fixture.
        encoding: Of the file.
    """

    id: str
    file: str
    question: str
    source: str
    shown: Sequence[str]
    hidden: Sequence[str] = ()
    outline: Sequence[str] | None = None
    text: str | None = None
    encoding: str = "utf-8"

    @property
    def content(self) -> bytes:
        return fixture(self.file) if self.text is None else self.text.encode(self.encoding)


CASES = [
    Case(
        "MD-01",
        "md01_hash_in_fence.md",
        "How do I start brindle?",
        "[md01_hash_in_fence > Install Brindle]  md01_hash_in_fence.md:3-10",
        ["```bash\n# refresh the keg list\nbrindle sync\n# start it\nbrindle up\n```"],
        outline=["Install Brindle", "Install Brindle > Verify"],
    ),
    Case(
        "MD-01-in-a-list-and-a-quote",
        "kegs.md",
        "How do I seal a keg?",
        "[kegs > Sealing]  kegs.md:3-13",
        ["  # seal it\n  keg seal", "> # twice\n> keg seal --again"],
        outline=["Sealing", "Sealing > After"],
        text=(
            "# Sealing\n\n- Run this:\n\n  ```sh\n  # seal it\n  keg seal\n  ```\n\n> ```\n> # twice\n"
            "> keg seal --again\n> ```\n\n## After\n\nRest.\n"
        ),
    ),
    Case(
        "MD-01-indented",
        "kegs.md",
        "keg seal",
        "[kegs > Sealing]  kegs.md:3-4",
        ["    # seal the keg\n"],
        outline=["Sealing"],
        text="# Sealing\n\n    # seal the keg\n    keg seal\n",
    ),
    Case(
        "MD-02",
        "md02_tilde_fence.md",
        "print kiln in Tasks",
        "[md02_tilde_fence > Tasks]  md02_tilde_fence.md:3-6",
        ['~~~python\n# not a heading\nprint("kiln")\n~~~'],
        outline=["Tasks", "Tasks > After the fence"],
    ),
    Case(
        "MD-02-fences-in-fences",
        "t.md",
        "trays firing",
        "[t > Tasks]  t.md:3-8",
        ["~~~~ md `x`\n```\n# trays firing\n~~~\n```\n~~~~"],
        outline=["Tasks", "Tasks > After"],
        text="# Tasks\n\n~~~~ md `x`\n```\n# trays firing\n~~~\n```\n~~~~\n\n## After\n\nEnd.\n",
    ),
    Case(
        "MD-03",
        "md03_fence_edges.md",
        "echo end",
        "[md03_fence_edges > Next]  md03_fence_edges.md:13-17",
        ["# fake-three (this fence never closes)\necho end"],
        outline=["Real", "Real > Next"],
    ),
    Case(
        "MD-03-a-fence-ends-with-its-list",
        "f.md",
        "cooling",
        "[f > Cooling]  f.md:9",
        ["Let it cool."],
        outline=["Firing", "Cooling"],
        text="# Firing\n\n- Do:\n  ```sh\n  # none\n\n# Cooling\n\nLet it cool.\n",
    ),
    Case(
        "MD-03-a-shorter-fence-closes-nothing",
        "f.md",
        "fire slowly",
        "[f > Firing]  f.md:3-7",
        ["```\n# none\nfire slowly\n````"],
        outline=["Firing", "Firing > Next"],
        text="# Firing\n\n````\n```\n# none\nfire slowly\n````\n\n## Next\n\nEnd.\n",
    ),
    Case(
        "MD-05",
        "md05_heading_in_comment.md",
        "What soup is there?",
        "[md05_heading_in_comment > Current dishes]  md05_heading_in_comment.md:11",
        ["Barley soup."],
        hidden=["turnip foam", "Retired dishes"],
        outline=["Menu", "Menu > Current dishes"],
    ),
    Case(
        "MD-05-beside-text-and-in-lists",
        "menu.md",
        "What soup is there?",
        "[menu > Menu]  menu.md:3-5",
        ["Barley  soup.", "- Peas"],
        hidden=["turnip", "Old", "squash"],
        outline=["Menu"],
        text="# Menu\n\nBarley <!-- turnip --> soup.\n\n- Peas\n  <!--\n  ## Old squash\n  -->\n",
    ),
    Case(
        "MD-05-never-closed",
        "menu.md",
        "What soup is there?",
        "[menu > Menu]  menu.md:3",
        ["Barley soup."],
        hidden=["turnip", "Old"],
        outline=["Menu"],
        text="# Menu\n\nBarley soup.\n\n<!--\n\n## Old\n\nturnip\n",
    ),
    Case(
        "MD-05-in-mdx",
        "menu.mdx",
        "What soup is there?",
        "[menu > Menu]  menu.mdx:10",
        ["Barley soup."],
        hidden=["turnip", "Old"],
        outline=["Menu"],
        text="# Menu\n\n{/*\n## Old\n\nturnip foam\n\n*/}\n\nBarley soup.\n",
    ),
    Case(
        "MD-05-in-rst",
        "menu.rst",
        "What soup is there?",
        "[menu > Menu]  menu.rst:11",
        ["Barley soup."],
        hidden=["turnip", "Old"],
        outline=["Menu"],
        text="Menu\n====\n\n..\n   Old\n   ---\n\n   turnip foam\n\n\nBarley soup.\n",
    ),
    Case(
        "MD-12",
        "md12_setext_short.md",
        "How many teeth have the gears?",
        "[md12_setext_short > Gears]  md12_setext_short.md:9",
        ["Forty teeth."],
        outline=["Widgets", "Widgets > Gears"],
    ),
    Case(
        "MD-12-indented-and-spaced",
        "w.md",
        "How many teeth have the gears?",
        "[w > Gears]  w.md:6",
        ["Forty teeth."],
        outline=["Widgets", "Widgets > Gears"],
        text="Widgets\n   =   \n\nGears\n  -\nForty teeth.\n",
    ),
    Case(
        "MD-13",
        "md13_setext_vs_rule.md",
        "text under the two-line title",
        "[md13_setext_vs_rule > Joined title line one line two]  md13_setext_vs_rule.md:14-19",
        ["Text under the two-line title.\n\n- item\n---\n\nAfter list."],
        outline=["Guide", "Joined title line one line two"],
    ),
    Case(
        "MD-13-rules-of-other-kinds",
        "r.md",
        "text behind the rule",
        "[r > Guide]  r.md:3-15",
        ["Text behind the rule."],
        outline=["Guide"],
        text="# Guide\n\n> quote\n---\n\n```\ncode\n```\n---\n\n***\n\n - - -\n\nText behind the rule.\n",
    ),
    Case(
        "MD-14",
        "md14_level_jump.md",
        "How many columns has beta_view?",
        "[md14_level_jump > beta_view]  md14_level_jump.md:11",
        ["Beta has 5 columns."],
        outline=["catalog", "catalog > alpha_view", "catalog > beta_view", "catalog > notes"],
    ),
    Case(
        "MD-14-deepest-first",
        "c.md",
        "How many columns has beta?",
        "[c > beta]  c.md:7",
        ["Five columns in beta."],
        outline=["alpha", "beta", "top", "top > gamma", "top > delta"],
        text=(
            "### alpha\n\nThree columns in alpha.\n\n### beta\n\nFive columns in beta.\n\n# top\n\nx1\n"
            "\n###### gamma\n\nx2\n\n#### delta\n\nx3\n"
        ),
    ),
    Case(
        "MD-14-in-html",
        "c.html",
        "five columns in beta",
        "[c > beta]  c.html:3",
        ["Five columns in beta."],
        outline=["catalog", "catalog > alpha", "catalog > beta", "catalog > notes"],
        text=(
            "<h1>catalog</h1>\n<h3>alpha</h3><p>Three columns in alpha.</p>\n"
            "<h3>beta</h3><p>Five columns in beta.</p>\n<h2>notes</h2><p>End.</p>\n"
        ),
    ),
    Case(
        "MD-15",
        "md15_levels_reset.md",
        "How long do refunds take?",
        "[md15_levels_reset > Refunds]  md15_levels_reset.md:9",
        ["Refunds take nine days."],
        outline=["Ferry handbook", "Ferry handbook > Boarding", "Ferry handbook > Refunds"],
    ),
    Case(
        "MD-15-from-the-sixth-level",
        "f.md",
        "How long do refunds take?",
        "[f > Refunds]  f.md:13",
        ["Refunds take nine days."],
        outline=["A", "A > B", "A > B > C", "A > B > C > D", "Refunds", "Refunds > E"],
        text="# A\n\n## B\n\n#### C\n\n###### D\n\nx\n\n# Refunds\n\nRefunds take nine days.\n\n##### E\n\ny\n",
    ),
    Case(
        "MD-17",
        "md17_separator_in_title.md",
        "Which extension do I call?",
        "[md17_separator_in_title > 24/7 desk > night shift]  md17_separator_in_title.md:5",
        ["Call extension 88."],
        outline=["Support", "Support > 24/7 desk > night shift", "Support > Input / Output"],
    ),
    Case(
        "MD-17-brackets-and-arrows",
        "s.md",
        "Which extension do I call?",
        "[s > [beta] a › b]  s.md:5",
        ["Call extension 88."],
        outline=["Support", "Support > [beta] a › b"],
        text="# Support\n\n## [beta] a › b\n\nCall extension 88.\n",
    ),
    Case(
        "MD-18",
        "md18_preamble.md",
        "What is the master valve code?",
        "[md18_preamble > md18_preamble]  md18_preamble.md:1",
        ["Read this first: the master valve code is 6620."],
        outline=["Valves"],
    ),
    Case(
        "MD-18-behind-front-matter",
        "v.md",
        "What is the master valve code?",
        "[v > v]  v.md:5",
        ["The master valve code is 6620."],
        hidden=["layout: page"],
        outline=["Valves"],
        text="---\ntitle: Valves\nlayout: page\n---\nThe master valve code is 6620.\n\nValves\n------\n\nText.\n",
    ),
    Case(
        "MD-18-without-any-heading",
        "v.adoc",
        "What is the master valve code?",
        "[v > v]  v.adoc:2",
        ["The master valve code is 6620."],
        text="\nThe master valve code is 6620.\n",
    ),
    Case(
        "MD-18-in-rst",
        "v.rst",
        "What is the master valve code?",
        "[v > v]  v.rst:1",
        ["The master valve code is 6620."],
        outline=["Valves"],
        text="The master valve code is 6620.\n\nValves\n======\n\nText.\n",
    ),
    Case(
        "MD-20",
        "md20_inline_headings.md",
        "How do I stop it?",
        "[md20_inline_headings > brindle stop]  md20_inline_headings.md:7",
        ["Stops it."],
        outline=[
            "brindle run",
            "brindle run > brindle stop",
            "brindle run > Config reference and tips",
            "brindle run > 🚀 Launch",
            "brindle run > Closed style",
            "brindle run > C#",
        ],
    ),
    Case(
        "MD-20-images-footnotes-and-tags",
        "h.md",
        "How do I stop it?",
        "[h > Stop now]  h.md:3",
        ["Stops it at once."],
        outline=["Stop now", "Stop now > logo", "Stop now > a_b *c*", "Stop now > Press Ctrl"],
        text=(
            "# [**Stop**](x.md) _now_\n\nStops it at once.\n\n## ![logo](x.png)\n\n1\n\n"
            "## a_b \\*c\\* #\n\n2\n\n## Press <kbd>Ctrl</kbd> ##  \n\n3\n"
        ),
    ),
    Case(
        "MD-20-in-rst",
        "h.rst",
        "How do I stop it?",
        "[h > brindle stop]  h.rst:4",
        ["Stops it at once."],
        outline=["brindle stop", "🚀 Launch the thing"],
        text=(
            "``brindle`` *stop*\n==================\n\nStops it at once.\n\n🚀 Launch `the thing <x>`_\n"
            "==========================\n\nx\n"
        ),
    ),
    Case(
        "MD-23",
        "md23_code_indent.md",
        "kiln config",
        "[md23_code_indent > Config]  md23_code_indent.md:3-13",
        ["    kiln:\n      cone: 6\n      zones:\n        - top\n        - base\n"],
    ),
    Case(
        "MD-23-python-and-blank-lines",
        "c.md",
        "kiln fire function",
        "[c > Config]  c.md:3-9",
        ["```python\ndef kiln():\n    if hot:\n\n        fire()\n\n```"],
        text="# Config\n\n```python\ndef kiln():\n    if hot:\n\n        fire()\n\n```\n",
    ),
    Case(
        "MD-23-a-literal-block-of-rst",
        "c.rst",
        "kiln zones",
        "[c > Config]  c.rst:4-9",
        ["kiln:\n     cone: 6\n     zones:\n       - top"],
        text="Config\n======\n\nPut the kiln zones in place::\n\n   kiln:\n     cone: 6\n     zones:\n       - top\n",
    ),
    Case(
        "MD-23-a-cell",
        "c.ipynb",
        "kiln zones",
        "[c > c]  c.ipynb:6-8",
        ["def kiln():\n    if zones:\n        fire()"],
        text=json.dumps(
            {
                "cells": [
                    {"cell_type": "code", "source": ["def kiln():\n", "    if zones:\n", "        fire()"]}
                ]
            },
            indent=1,
        ),
    ),
    Case(
        "MD-24",
        "md24_tabs_nbsp.md",
        "12 000 EUR",
        "[md24_tabs_nbsp > Makefile]  md24_tabs_nbsp.md:3-8",
        ["all:\n\tcc main.c", "Price: 12 000 EUR per kiln, softhyphen, zerowidth."],
    ),
    Case(
        "MD-24-other-spaces",
        "p.md",
        "price of a kiln",
        "[p > Price]  p.md:3",
        ["12 000 EUR, 5 g of a kiln, wordjoin, right."],
        text="# Price\n\n12\u202f000\u2007EUR,\u30005\u2009g of a kiln, word\u2060join, \u202eright\u202c.\n",
    ),
    Case(
        "MD-29",
        "md29_utf8_only.md",
        "Küche schließt",
        "[md29_utf8_only > Menü für Gäste]  md29_utf8_only.md:3",
        ["Die Küche schließt um 21 Uhr — “pünktlich”. Œuvre, naïve, façade."],
    ),
    Case(
        "MD-30",
        "md30_latin1.md",
        "naïve façade",
        "[md30_latin1 > Café rules]  md30_latin1.md:3",
        ["The naïve façade costs 5 £."],
        encoding="latin-1",
    ),
    Case(
        "MD-30-windows-1252",
        "w.md",
        "façade",
        "[w > Café]  w.md:3",
        ["The “naïve” façade costs 5 € – now."],
        text="# Café\r\n\r\nThe “naïve” façade costs 5 € – now.\r\n",
        encoding="cp1252",
    ),
    Case(
        "MD-31",
        "md31_utf16le.txt",
        "recovery phrase",
        "[md31_utf16le > md31_utf16le]  md31_utf16le.txt:1-3",
        ["The recovery phrase is amber-otter-12."],
        hidden=["\0"],
        encoding="utf-16",
    ),
    Case(
        "MD-31-big-endian",
        "md31_utf16be.md",
        "Big endian value",
        "[md31_utf16be > Big endian]  md31_utf16be.md:3",
        ["Value is 77."],
        hidden=["\0"],
        encoding="utf-16",
    ),
    Case(
        "MD-31-without-a-mark",
        "u.md",
        "recovery phrase",
        "[u > Sheet 🚀]  u.md:3",
        ["The recovery phrase is amber-otter-12."],
        hidden=["\0"],
        outline=["Sheet 🚀"],
        text="# Sheet 🚀\r\n\r\nThe recovery phrase is amber-otter-12.\r\n",
        encoding="utf-16-be",
    ),
    Case(
        "MD-33",
        "md33_component_text.mdx",
        "When do frozen goods ship?",
        "[md33_component_text > Shipping]  md33_component_text.mdx:6-20",
        [
            "Frozen goods ship on Mondays only.",
            "Import duties apply to orders above 150 coins.",
            "desk 4",
            "2 days",
            "Values where a < b are refused.",
        ],
        hidden=["import {", "export const", "hidden remark", "<Note>", "<Tab"],
        outline=["Shipping"],
    ),
    Case(
        "MD-33-sentences-and-statements",
        "s.mdx",
        "What do import duties apply to?",
        "[s > Duties]  s.mdx:11-18",
        [
            "Import duties apply to 150 coins.",
            "import from the 'outside' costs more.",
            "Frozen at 3 < 5 {degrees}.",
        ],
        hidden=["Box", "helper", "boxes", "Cold"],
        outline=["Duties"],
        text=(
            "import {\n  Box,\n} from 'boxes'\nexport function helper() {\n\n  return 1\n}\n\n"
            "# Duties\n\nImport duties apply to 150 coins.\n\nimport from the 'outside' costs more.\n\n"
            '<Box\n  tone="Cold"\n>\n  Frozen at 3 < 5 {degrees}.\n</Box>\n'
        ),
    ),
    Case(
        "MD-36",
        "md36_rst_table.rst",
        "blue",
        "[md36_rst_table > Colours]  md36_rst_table.rst:5-18",
        ["name  code\nred  1\nblue  2", "Notes keep their text.", "```python\n# not a title\n======\n```"],
        outline=["Colours", "Colours > After"],
    ),
    Case(
        "MD-36-grids-and-values",
        "g.rst",
        "What is the code of blue?",
        "[g > Colours]  g.rst:5-7",
        ["| name | code |\n| blue | 2 |"],
        hidden=["+---", "======"],
        outline=["Colours", "Colours > After"],
        text=(
            "Colours\n=======\n\n+------+------+\n| name | code |\n+======+======+\n| blue | 2    |\n"
            "+------+------+\n\n.. csv-table::\n   :header: note, text\n\n   gone, no\n\nAfter\n-----\n"
            "\nEnd.\n"
        ),
    ),
]


def mentioned(found_texts: Sequence[str], words: str) -> bool:
    return any(words in text for text in found_texts)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_answer_shows_the_words_of_the_cited_lines(tmp_path: Path, case: Case) -> None:
    with reading(tmp_path, {case.file: case.content}) as reader:
        # What is told apart is whether the words are there, not whether they are enough.
        answer = reader.ask(case.question, threshold=0.0)
        printed = reader.printed(answer)
        text, _, sources = printed.partition("\n\nSources:\n")
        assert sources.splitlines()[0].rpartition("  ")[0] == f"1. {case.source}"
        for words in case.shown:
            assert words in text
        texts = found(reader.engine, " ".join([case.question, *case.hidden]).replace("\0", ""))
        for words in case.hidden:
            assert words not in printed
            assert not mentioned(texts, words)
        if case.outline is not None:
            assert reader.outline(case.file) == list(case.outline)
        # Whatever a passage shows stands in the lines it cites.
        cited = reader.cited(answer.citations[0], case.encoding)
        assert set(analyse(answer.citations[0].preview)) <= set(analyse(cited))


def test_md_05_what_is_commented_out_answers_nothing(tmp_path: Path) -> None:
    with reading(tmp_path, {"menu.md": fixture("md05_heading_in_comment.md")}) as reader:
        answer = reader.ask("What is the retired dish?")
        assert not answer.verdict.known
        assert answer.citations == ()
        assert "turnip" not in reader.printed(answer)
        assert "turnip" not in reader.section("menu.md")


@pytest.mark.parametrize("name", ["md17_separator_in_title.md", "brackets.md"])
def test_md_17_a_citation_leads_back_to_its_section(tmp_path: Path, name: str) -> None:
    odd = b"# Support\n\n## Fee] [desk > 24/7 > [x]\n\nCall extension 88.\n\n## 24/7\n\nOther.\n"
    with reading(tmp_path, {name: odd if name == "brackets.md" else fixture(name)}) as reader:
        citation = reader.ask("Which extension do I call?", threshold=0.0).citations[0]
        assert len(citation.heading_path) == 2
        for ref in (citation.label, f"[{citation.label}]", f"{name}:{citation.line_start}"):
            assert "Call extension 88." in reader.section(ref)
            assert "Other." not in reader.section(ref)


def test_md_20_what_looks_like_a_heading_and_is_none_is_text(tmp_path: Path) -> None:
    with reading(tmp_path, {"h.md": fixture("md20_inline_headings.md")}) as reader:
        text = reader.section("h.md:27")
        assert "##Not a heading" in text
        assert "####### seven is not a heading" in text


@pytest.mark.parametrize(
    "query",
    [
        "softhyphen",
        "soft\N{SOFT HYPHEN}hyphen",
        "zerowidth",
        "zero\N{ZERO WIDTH SPACE}width",
        "12 000 EUR",
        "kiln",
    ],
)
def test_md_24_invisible_characters_prevent_no_match(tmp_path: Path, query: str) -> None:
    with reading(
        tmp_path, {"a.md": fixture("md24_tabs_nbsp.md"), "b.md": b"# Other\n\nNothing of it.\n"}
    ) as reader:
        best = reader.best(query)
        assert best.chunk.metadata.relative_path == "a.md"
        assert best.lexical > 0


HUGE = {
    "MD-27": fixture("md27_huge_section.md").decode(),
    "MD-27-one-paragraph": "# Release notes\n\n"
    + "\n".join(f"Item {item}: the part number was changed." for item in range(4000)),
    "MD-27-one-list": "# Release notes\n\n"
    + "\n".join(f"- Item {item}: the part number was changed." for item in range(4000)),
    "MD-27-one-line": "# Release notes\n\n"
    + " ".join(f"Item {item}: the part number was changed." for item in range(4000)),
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_md_27_every_item_of_a_huge_section_is_found(tmp_path: Path, text: str) -> None:
    with reading(tmp_path, {"notes.md": text}) as reader:
        assert reader.reports[-1].skipped == ()
        for item in (1, 2048, 3777):
            chunk = search(reader.engine, f"item {item}").hits[0].chunk
            assert f"Item {item}: the part number" in chunk.text
            assert len(chunk.text) <= 2000
            assert chunk.metadata.heading_path == ("Release notes",)
            lines = text.split("\n")[chunk.metadata.line_start - 1 : chunk.metadata.line_end]
            assert any(f"Item {item}: " in line for line in lines)


def test_md_29_a_daemon_without_a_locale_reads_utf8(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from support.reading import reading\n"
        "with reading(Path(sys.argv[2]), {'menu.md': Path(sys.argv[3]).read_bytes()}) as reader:\n"
        "    answer = reader.ask('K\\u00fcche schlie\\u00dft', threshold=0.0)\n"
        "    sys.stdout.buffer.write(reader.printed(answer).encode('utf-8'))\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(REPOSITORY)
    (source,) = FIXTURES.rglob("md29_utf8_only.md")
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", script, str(REPOSITORY / "tests"), str(tmp_path), str(source)],
        env=environment, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "Die Küche schließt um 21 Uhr — “pünktlich”. Œuvre, naïve, façade." in done.stdout.decode()


def test_md_30_a_file_in_another_encoding_costs_its_neighbour_nothing(tmp_path: Path) -> None:
    files = {name: fixture(name) for name in ("md30_latin1.md", "md30_good_neighbour.md")}
    with reading(tmp_path, files) as reader:
        assert (reader.reports[-1].new, reader.reports[-1].skipped) == (2, ())
        assert "neigh-204" in reader.printed(reader.ask("neigh-204", threshold=0.0))


def test_md_31_both_files_of_utf_16_stand_side_by_side(tmp_path: Path) -> None:
    files = {name: fixture(name) for name in ("md31_utf16le.txt", "md31_utf16be.md")}
    with reading(tmp_path, files) as reader:
        assert reader.reports[-1].skipped == ()
        assert "amber-otter-12" in reader.best("recovery phrase").chunk.text
        assert "\0" not in "".join(found(reader.engine, "recovery phrase value"))


ROWS = [(f"P-{row:04}", f"{row % 90 + 10} Nm") for row in range(900)]
LONG = {
    "MD-39": ("parts.md", fixture("md39_wide_table.md").decode(), "| part | torque | note |"),
    "MD-39-grid": (
        "parts.rst",
        "Parts\n=====\n\n+--------+--------+\n| part   | torque |\n+========+========+\n"
        + "".join(f"| {part} | {torque}  |\n+--------+--------+\n" for part, torque in ROWS),
        "| part | torque |",
    ),
    "MD-39-simple": (
        "parts.rst",
        "Parts\n=====\n\n======  ======\npart    torque\n======  ======\n"
        + "".join(f"{part}  {torque}\n" for part, torque in ROWS)
        + "======  ======\n",
        "part  torque",
    ),
    "MD-39-asciidoc": (
        "parts.adoc",
        "= Parts\n\n|===\n|part |torque\n\n" + "".join(f"|{part} |{torque}\n" for part, torque in ROWS) + "|===\n",
        "|part |torque",
    ),
    "MD-39-org": (
        "parts.org",
        (
"* Parts\n\n| part | torque |\n|------+--------|\n"
) + "".join((
f"| {part} | {torque} |\n"
) for part, torque in ROWS),
        "| part | torque |",
    ),
    "MD-39-html": (
        "parts.html",
        "<h1>Parts</h1>\n<table>\n<tr><th>part</th><th>torque</th></tr>\n"
        + "".join(f"<tr><td>{part}</td><td>{torque}</td></tr>\n" for part, torque in ROWS)
        + "</table>\n",
        "part | torque",
    ),
    "MD-39-notebook": (
        "parts.ipynb",
        json.dumps(
            {
                "cells": [
                    {
                        "cell_type": "markdown",
                        "source": ["# Parts\n", "\n", "| part | torque |\n", "|---|---|\n"]
                        + [f"| {part} | {torque} |\n" for part, torque in ROWS],
                    }
                ]
            },
            indent=1,
        ),
        "| part | torque |",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "header"), LONG.values(), ids=LONG)
def test_md_39_a_row_of_a_long_table_is_found_with_what_its_columns_mean(
    tmp_path: Path, name: str, text: str, header: str
) -> None:
    with reading(tmp_path, {name: text}, chunk_size=500) as reader:
        hit = reader.best("torque of P-0777").chunk
        assert "P-0777" in hit.text
        assert "67 Nm" in hit.text
        assert header not in hit.text
        assert header in hit.context
        assert hit.metadata.heading_path == ("Parts",)
        answer = reader.ask("torque of P-0777", threshold=0.0)
        printed = reader.printed(answer)
        assert header in printed
        assert "67 Nm" in printed
        cited = reader.cited(answer.citations[0])
        assert "P-0777" in cited
        assert "torque" not in cited, "what is repeated is not cited"


def test_md_39_a_long_fence_is_found_with_its_opening(tmp_path: Path) -> None:
    lines = "\n".join(f"    step_{number}()" for number in range(400))
    text = f"# Steps\n\n```python title='steps.py'\ndef run():\n{lines}\n```\n"
    with reading(tmp_path, {"steps.md": text}, chunk_size=500) as reader:
        hit = reader.best("step_333").chunk
        assert "    step_333()" in hit.text
        assert "```" not in hit.text
        assert hit.context == "```python title='steps.py'"
        answer = reader.ask("step_333", threshold=0.0)
        assert "```python title='steps.py'\n" in reader.printed(answer)
        assert "```" not in reader.cited(answer.citations[0])


def covered() -> set[str]:
    names = [case.id for case in CASES] + [*HUGE, *LONG]
    return {name[:5] for name in names}


@needs_shared
@pytest.mark.shared
def test_every_case_about_text_is_here() -> None:
    lines = (SHARED / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if case["id"].startswith("MD-")]
    assert {case["id"] for case in cases} == covered()
    for case in cases:
        for name in case["files"]:
            assert fixture(name) == (SHARED / "cases" / "files" / name).read_bytes(), name

"""Markdown and MDX documents."""

from __future__ import annotations

import html
import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.documents import FIXTURES, check_chunks, check_document
from support.shared import SHARED, needs_shared

from copilotd.ingest.lines import clean_characters
from copilotd.ingest.markdown import MarkdownParser, MdxParser
from copilotd.types import BlockKind, Chunk, Document, Parser

EXAMPLES = json.loads((FIXTURES / "commonmark.json").read_text(encoding="utf-8"))
ANYTIME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def parse(text: str, *, mdx: bool = False) -> Document:
    parser = MdxParser() if mdx else MarkdownParser()
    document = check_document(parser, text.encode())
    assert document is not None
    return document


def parse_fixture(name: str) -> Document:
    parser = MdxParser() if name.endswith(".mdx") else MarkdownParser()
    return parser.parse((FIXTURES / name).read_bytes(), name.rpartition(".")[0])


def headings(document: Document) -> list[str]:
    return [section.heading for section in document.sections if section.level]


def paths(document: Document) -> list[str]:
    return [" > ".join(section.heading_path) for section in document.sections if section.level]


def section_text(document: Document, heading: str) -> str:
    section = next(section for section in document.sections if section.heading == heading)
    return document.text[section.start : section.end]


def blocks(document: Document) -> list[tuple[BlockKind, str]]:
    return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]


def rendered_headings(markdown: str) -> list[str]:
    """Reads the headings from the HTML that markdown-it makes."""
    rendered = MarkdownIt("commonmark").enable("table").render(markdown)
    found = re.findall(r"<h([1-6])(?:\s[^>]*)?>(.*?)</h\1>", rendered, re.DOTALL)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", "", inner)).split()) for _, inner in found]


_UNSEEN = re.compile(r"<(script|style)\b.*?(?:</\1>|\Z)|<!--.*?-->|<!--.*\Z", re.DOTALL | re.IGNORECASE)


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[^\W_]+", clean_characters(html.unescape(text))))


def rendered_words(markdown: str) -> Counter[str]:
    """Counts the words a reader sees of the HTML that markdown-it makes."""
    rendered = _UNSEEN.sub(" ", MarkdownIt("commonmark").enable("table").render(markdown))
    # A comment in what CommonMark takes for code is one for those who indent admonitions and tabs.
    return words(_UNSEEN.sub(" ", html.unescape(re.sub(r"<[^>]*>", " ", rendered))))


def visible_runs(markdown: str) -> list[tuple[int, int, Counter[str]]]:
    """Returns first and last line of each paragraph, heading, cell and code block, and the words seen of it."""
    runs: list[tuple[int, int, Counter[str]]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.map is None or token.type not in ("inline", "fence", "code_block"):
            continue
        children = token.children if token.type == "inline" and token.children is not None else [token]
        seen = " ".join(
            "".join(child.content for child in image.children or [])
            if image.type == "image"
            else image.content
            for image in children
            if image.type != "html_inline"
        )
        if "<" not in seen:  # tags and comments in what CommonMark takes for code are another matter
            runs.append((token.map[0] + 1, token.map[1], words(seen.replace("\n", " "))))
    return runs


def check_citations(markdown: str, chunks: list[Chunk], document: Document, skipped: int = 0) -> None:
    """Asserts that a chunk holds the words of whatever its cited lines show whole.

    Args:
        markdown: The source without its front matter.
        chunks: The document's.
        document: What was read.
        skipped: Lines of front matter.
    """
    runs = visible_runs(markdown)
    whole = f"\n{document.text}\n"
    for chunk in chunks:
        text = words(document.text[chunk.start : chunk.end])
        begin, end = chunk.metadata.line_start, chunk.metadata.line_end
        # A line that is longer than a chunk is in several.
        begin += whole[: chunk.start + 1].rpartition("\n")[2].strip() != ""
        end -= whole[chunk.end + 1 :].partition("\n")[0].strip() != ""
        for first, last, seen in runs:
            if begin <= first + skipped and last + skipped <= end:
                assert not seen - text, (first, last)


@pytest.mark.parametrize("parser", [MarkdownParser(), MdxParser()])
def test_it_is_a_parser(parser: Parser) -> None:
    assert isinstance(parser, Parser)


# ------------------------------------------------------------------------------- reported failures


def test_md01_comments_in_a_fence_are_no_headings() -> None:
    document = parse_fixture("md01_hash_in_fence.md")
    assert paths(document) == ["Install Brindle", "Install Brindle > Verify"]
    assert "brindle up\n```" in section_text(document, "Install Brindle")


def test_md02_tilde_fences() -> None:
    document = parse_fixture("md02_tilde_fence.md")
    assert paths(document) == ["Tasks", "Tasks > After the fence"]
    assert "# not a heading" in section_text(document, "Tasks")


def test_md03_odd_and_unclosed_fences() -> None:
    document = parse_fixture("md03_fence_edges.md")
    assert headings(document) == ["Real", "Next"]
    assert document.text.endswith("echo end")


def test_md05_comments_hide_headings_and_words() -> None:
    document = parse_fixture("md05_heading_in_comment.md")
    assert headings(document) == ["Menu", "Current dishes"]
    assert "turnip" not in document.text


def test_md12_short_setext_underlines() -> None:
    document = parse_fixture("md12_setext_short.md")
    assert [(section.heading, section.level) for section in document.sections] == [
        ("Widgets", 1),
        ("Gears", 2),
    ]


def test_md13_rules_are_no_underlines_and_titles_may_span_lines() -> None:
    document = parse_fixture("md13_setext_vs_rule.md")
    assert headings(document) == ["Guide", "Joined title line one line two"]


def test_md14_a_jump_in_level_leaves_siblings_beside_each_other() -> None:
    assert paths(parse_fixture("md14_level_jump.md")) == [
        "catalog",
        "catalog > alpha_view",
        "catalog > beta_view",
        "catalog > notes",
    ]


def test_md15_a_shallower_heading_ends_the_deeper_path() -> None:
    assert paths(parse_fixture("md15_levels_reset.md"))[-1] == "Ferry handbook > Refunds"


def test_md17_separators_in_a_title_stay_in_the_title() -> None:
    document = parse_fixture("md17_separator_in_title.md")
    assert document.sections[1].heading_path == ("Support", "24/7 desk > night shift")


def test_md18_text_before_the_first_heading_belongs_to_the_document() -> None:
    document = parse_fixture("md18_preamble.md")
    first = document.sections[0]
    assert (first.heading, first.level, first.heading_path) == ("md18_preamble", 0, ())
    assert "6620" in document.text[first.start : first.end]


def test_md20_headings_lose_their_markup_and_keep_their_words() -> None:
    document = parse_fixture("md20_inline_headings.md")
    assert headings(document) == [
        "brindle run",
        "brindle stop",
        "Config reference and tips",
        "🚀 Launch",
        "Closed style",
        "C#",
    ]
    assert "##Not a heading" in document.text
    assert "####### seven" in document.text


def test_md23_indentation_in_code_stays() -> None:
    assert (
        "    kiln:\n      cone: 6\n      zones:\n        - top" in parse_fixture("md23_code_indent.md").text
    )


def test_md24_tabs_stay_and_odd_spaces_do_not_glue_words() -> None:
    text = parse_fixture("md24_tabs_nbsp.md").text
    assert "all:\n\tcc main.c" in text
    assert "12 000 EUR per kiln" in text
    assert "softhyphen, zerowidth" in text


def test_md30_latin1() -> None:
    assert headings(parse_fixture("md30_latin1.md")) == ["Café rules"]


def test_md31_utf16() -> None:
    document = parse_fixture("md31_utf16be.md")
    assert "Value is 77." in document.text
    assert "\0" not in document.text


def test_md33_component_text_stays_and_statements_go() -> None:
    document = parse_fixture("md33_component_text.mdx")
    for words in ("Mondays", "150 coins", "desk 4", "2 days", "a < b", "Air"):
        assert words in document.text
    for words in ("import {", "export const", "hidden remark", "<Note>", "<Tab"):
        assert words not in document.text
    assert document.line_numbers[document.text.split("\n").index("Values where a < b are refused.")] == 20


# ------------------------------------------------------------------------------------ front matter


def test_yaml_front_matter_gives_title_and_description() -> None:
    document = parse("---\ntitle: The guide\ndescription: What to do\ntags: [a]\n---\n# Heading\n\nText.\n")
    assert (document.title, document.description) == ("The guide", "What to do")
    assert document.text == "# Heading\n\nText."
    assert document.line_numbers[0] == 6


def test_toml_front_matter() -> None:
    document = parse('+++\ntitle = "The guide"\n+++\n\nText.\n')
    assert document.title == "The guide"
    assert document.text == "Text."


@pytest.mark.parametrize(
    "body",
    [
        'title: "never closed',
        "title: Guide\n\tbad: tab",
        "title: a: b: c",
        "a: &a [*a]\ntitle: x",
        "title: !!python/name:os.system",
    ],
)
def test_a_broken_front_matter_does_not_cost_the_document(body: str) -> None:
    document = parse(f"---\n{body}\n---\n# Heading\n\nText.\n")
    assert headings(document) == ["Heading"]
    assert document.text.startswith("# Heading")


def test_a_rule_at_the_top_is_no_front_matter() -> None:
    document = parse("---\n\nJust prose here.\n\n---\n\nMore.\n")
    assert "Just prose here." in document.text


def test_an_unclosed_front_matter_is_text() -> None:
    assert "title: x" in parse("---\ntitle: x\n\nText.\n").text


def test_the_first_h1_is_the_title_where_no_front_matter_gives_one() -> None:
    assert parse("## Before\n\n# The *title*\n\n# Other\n").title == "The title"
    assert parse("## Only deeper\n").title == ""


# ---------------------------------------------------------------------------------------- headings


@pytest.mark.parametrize(
    ("source", "heading", "anchor"),
    [
        ("## Set up {#set-up}", "Set up", "set-up"),
        ("## Set up {: #set-up .wide }", "Set up", "set-up"),
        ("## Set up { data-toc-label='x' }", "Set up", ""),
        ("Set up {#set-up}\n---", "Set up", "set-up"),
        ('## <a name="set-up"></a>Set up', "Set up", "set-up"),
        ("## Set up {/* #set-up */}", "Set up", "set-up"),
        ("## Use {braces} and #hash", "Use {braces} and #hash", ""),
        ("## `a<b>c` \\*not em\\* &amp; <file>", "a<b>c *not em* & <file>", ""),
        ("## ![logo](x.png) Name<br>two", "logo Name two", ""),
        ("## [ref][x] snake_case_name\n\n[x]: https://example.invalid", "ref snake_case_name", ""),
        (
            "## soft\N{SOFT HYPHEN}hyphen\N{NO-BREAK SPACE}space\N{RIGHT-TO-LEFT OVERRIDE}",
            "softhyphen space",
            "",
        ),
    ],
)
def test_a_headings_words_and_anchor(source: str, heading: str, anchor: str) -> None:
    section = parse(source + "\n\nText.\n").sections[0]
    assert (section.heading, section.anchor) == (heading, anchor)


def test_an_empty_heading_names_nothing() -> None:
    document = parse("# Guide\n\n##\n\nText.\n")
    assert document.sections[1].heading_path == ("Guide",)
    assert check_chunks(document, max_chars=2000, overlap_chars=0)[-1].metadata.section_heading == "Guide"


@pytest.mark.parametrize("mdx", [False, True])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('<h1 align="center">Name <b>of</b> it</h1>\n\nText.', [("Name of it", 1, "")]),
        (
            '<h1 align="center">\n  <img src="x.png" alt="Logo">\n  The &amp; a_b_c\n</h1>\n<p>Text.</p>\n\n## Sub\n',
            [("Logo The & a_b_c", 1, ""), ("Sub", 2, "")],
        ),
        ('<div>\n\n<h2 class="x" id="the-name">Name</h2>\n\n</div>', [("Name", 2, "the-name")]),
        ("<h2>\n\n**Bold** `code`\n\n</h2>\n\nText.", [("Bold code", 2, "")]),
        ("<H2>One</H2>\n<h3>Two</h3>\nText.", [("One", 2, ""), ("Two", 3, "")]),
        ("- <h3>Item</h3>\n  text\n", [("Item", 3, "")]),
        ("<!--\n<h1>Old</h1>\n-->\n\nText.", []),
        ("<!-- <h1>Old</h1> -->\n\nText.", []),
        ("```\n<h1>Code</h1>\n```", []),
        ("In `<h1>code</h1>` and text <h2>there</h2>.", []),
        ("<h2>Label</h2> and text", []),
        ("<h1><img src='x.png'></h1>\n\nText.", []),
        ("<h1>never closed\n\nText.", []),
        ("<h2>One\n\n## Other</h2>", [("Other", 2, "")]),
    ],
)
def test_headings_written_as_html(mdx: bool, source: str, expected: list[tuple[str, int, str]]) -> None:
    document = parse(source, mdx=mdx)
    check_chunks(document, max_chars=20, overlap_chars=5)
    found = [
        (section.heading, section.level, section.anchor) for section in document.sections if section.level
    ]
    assert found == expected


def test_a_centred_title_is_the_documents_title_on_its_own_lines() -> None:
    document = parse(
        '<div>\n<h1 align="center">\n  The Name\n</h1>\n<p>What it is.</p>\n</div>\n\n## Use\n\nText.\n'
    )
    assert document.title == "The Name"
    assert section_text(document, "The Name") == "  The Name\nWhat it is.\n\n"
    assert document.line_numbers[0] == 3


# ---------------------------------------------------------------------------- comments, HTML, JSX


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Before <!-- hidden --> after.", "Before  after."),
        ("Before <!-- hid\nden --> after.", "Before\nafter."),
        ("Shown.\n\n<!-- hidden\n\n# hidden, too\n", "Shown."),
        ("> <!-- hidden\n> too\n\nShown.", "Shown."),
        ("<div>\n<!-- hidden\n\n## Old\n\n- old\n\n-->\n</div>\n\nShown.", "Shown."),
        ("<div>\n<!-- never closed\n\n## Shown", "<!-- never closed\n\n## Shown"),
        ("<script>\n<!--\n</script>\n\n## Shown\n\n<!-- x -->", "## Shown"),
        ("`<!-- shown -->` in code", "`<!-- shown -->` in code"),
        ("```html\n<!-- shown -->\n```", "```html\n<!-- shown -->\n```"),
        ("    <!-- shown -->", "    <!-- shown -->"),
        ("<div>\n<b>bold</b> words\n</div>", "bold words"),
        ("<table><tr><td>a</td><td>b</td></tr></table>", "a  b"),
        ("Press <kbd>Ctrl</kbd>+<kbd>C</kbd>.", "Press Ctrl+C."),
        ("<script>\nvar hidden = 1;\n</script>\n\nShown.", "Shown."),
        ("Replace <your name> and <camera_id> there.", "Replace <your name> and <camera_id> there."),
        ("a <b and c> d", "a <b and c> d"),
        (
            "See <https://example.invalid> or <me@example.invalid>.",
            "See <https://example.invalid> or <me@example.invalid>.",
        ),
        ('<img src="x.png" alt="The dial">', "The dial"),
        ("<img src=x.png alt=Dial>", "Dial"),
        ("| a<br>b | c |\n|---|---|\n| `<i>` | <i>d</i> |", "| a b | c |\n|---|---|\n| `<i>` | d |"),
        ("\\<b> is a tag", "\\<b> is a tag"),
    ],
)
def test_what_a_reader_does_not_see_is_left_out(source: str, text: str) -> None:
    assert parse(source).text == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import A from 'a'\nimport {\n  B,\n  C\n} from \"b\";\nimport 'c.css'\n\nText.", "Text."),
        ("export const x = {\n  a: [1,\n\n 2],\n}\n\nText.", "Text."),
        ("export default function Page() {\n  return 1\n}\n\nText.", "Text."),
        ("import duties are paid from 'petty cash' only.", "import duties are paid from 'petty cash' only."),
        ("export the list, then import it.", "export the list, then import it."),
        ("export PATH=/opt/bin", "export PATH=/opt/bin"),
        ("```js\nimport A from 'a'\n<Tab>\n```", "```js\nimport A from 'a'\n<Tab>\n```"),
        ("{/* one\n\n# two */}\n\nText.", "Text."),
        ("Some {/* hidden */} text.", "Some  text."),
        ('<Card\n  title="Shown title"\n  items={[{a: 1}]}\n/>\n\nText.', "  Shown title\n\nText."),
        ('<Faq question={"Is it \\"new\\"?"}>\n\nYes.\n\n</Faq>', 'Is it "new"?\n\nYes.'),
        ("<Tabs>\n<Tab>\n## Inner\n</Tab>\n</Tabs>", "## Inner"),
        ("<>\nFragment words\n</>", "Fragment words"),
        ("Values a < b and c > d stay.", "Values a < b and c > d stay."),
    ],
)
def test_mdx_syntax_goes_and_its_words_stay(source: str, text: str) -> None:
    assert parse(source, mdx=True).text == text


def test_mdx_syntax_in_markdown_files_as_docusaurus_writes_them() -> None:
    document = parse(
        "import Tabs from '@theme/Tabs';\n\n# Guide\n\nGo to <Nav path=\"Settings > Users\" />.\n\n"
        '<Tabs>\n<Tab value="a">\n\nText <HOST>.\n\n</Tab>\n</Tabs>\n'
    )
    assert document.text == "# Guide\n\nGo to  Settings > Users .\n\nText <HOST>."


# ------------------------------------------------------------------------- admonitions, tabs, lists


def test_a_fence_in_an_admonition_or_tab_is_code() -> None:
    document = parse(
        '!!! note "Mind"\n\n    ```sh\n    # no heading\n    ls\n    ```\n\n'
        '=== "Linux"\n\n    ```\n\n    # none\n    ```\n'
    )
    assert headings(document) == []
    assert [kind for kind, _ in blocks(document)] == [
        BlockKind.PARAGRAPH,
        BlockKind.CODE,
        BlockKind.PARAGRAPH,
        BlockKind.CODE,
    ]
    first, second, third, fourth = document.blocks
    assert first.group == second.group != third.group == fourth.group


@pytest.mark.parametrize(
    "source",
    [
        ":::note Title\n\nInside.\n\n:::\n\nOutside.",
        "> [!NOTE]\n> Inside.\n\nOutside.",
        "??? tip\n    Inside.\n\nOutside.",
        "- One\n- Inside.\n\nOutside.",
    ],
)
def test_an_admonition_or_list_is_one_group(source: str) -> None:
    document = parse(source)
    inside = {
        block.group for block in document.blocks if "Outside" not in document.text[block.start : block.end]
    }
    outside = next(block for block in document.blocks if "Outside" in document.text[block.start : block.end])
    assert len(inside) == 1
    assert outside.group not in inside
    assert "Inside." in document.text


def test_a_tables_header_and_a_fences_opening_are_known() -> None:
    document = parse("| a | b |\n|---|---|\n| 1 | 2 |\n\n```py title='x'\ncode\n```\n\nText.\n")
    heads = [document.text[block.start : block.header_end] for block in document.blocks]
    assert heads == ["| a | b |\n|---|---|", "```py title='x'", ""]


def test_snippets_links_and_footnotes_are_shown_as_they_are() -> None:
    source = '--8<-- "other.md"\n\nNote[^1] and [link].\n\n[^1]: The note.\n\n[link]: https://example.invalid "Title"'
    assert parse(source).text == source


def test_blank_lines_are_kept_once_and_all_of_them_in_code() -> None:
    document = parse("\n\nA\n\n\n\nB\n\n```\na\n\n\nb\n```\n\n\n")
    assert document.text == "A\n\nB\n\n```\na\n\n\nb\n```"
    assert document.line_numbers == (3, 4, 7, 8, 9, 10, 11, 12, 13, 14)


def test_a_document_without_words_is_empty() -> None:
    document = parse("---\ntitle: x\n---\n\n<!-- nothing -->\n")
    assert (document.text, document.sections, document.blocks, document.title) == ("", (), (), "x")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_numbers_do_not_depend_on_the_line_ends(line_end: str) -> None:
    source = line_end.join(["# A", "", "b", "<!-- c", "d -->", "e"]).encode()
    assert MarkdownParser().parse(source, "x").line_numbers == (1, 2, 3, 6)


# ------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["example"]))
def test_commonmark_example(example: dict[str, str]) -> None:
    source = example["markdown"]
    document = parse(source)
    assert headings(document) == rendered_headings(source)
    assert rendered_words(source) - words(document.text) == Counter()
    for size in (40, 2000):
        chunks = check_chunks(document, max_chars=size, overlap_chars=size // 4)
        check_citations(source, chunks, document)
    check_document(MdxParser(), source.encode())


SNIPPETS = """
alpha beta_x C# --dry-run 漢字 🚀 `code` <b> </b> <Tab> </Tab> <X/> <!-- --> {/* */} ``` ~~~ # ## #### - 1. > | :::
!!! --- === import export from 'x' { } [a]: \\ <script> </script> +++
"""
WORDS = st.sampled_from([*SNIPPETS.split(), "\t", "\x0c", "\N{NO-BREAK SPACE}", "\N{SOFT HYPHEN}"])
LINES = st.builds(
    lambda indent, words, gap: indent + gap.join(words),
    st.sampled_from(["", "", "", "  ", "    ", "> ", "- ", "# ", "#### ", "```", "| "]),
    st.lists(WORDS, max_size=6),
    st.sampled_from([" ", " ", " | ", ""]),
)
DOCUMENTS = st.lists(LINES, max_size=25).map("\n".join)


@ANYTIME
@given(DOCUMENTS, st.integers(30, 200), st.integers(0, 60))
@example("# \\```", 30, 0)
@example("a \\```x`` b ``` <b>c</b>", 30, 0)
def test_every_document_is_whole_and_every_place_exact(text: str, max_chars: int, overlap_chars: int) -> None:
    for parser in (MarkdownParser(), MdxParser()):
        document = check_document(parser, text.encode())
        if document is not None:
            check_chunks(document, max_chars=max_chars, overlap_chars=min(overlap_chars, max_chars // 2))


@ANYTIME
@given(
    st.one_of(
        st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))
    )
)
def test_any_bytes_are_a_document_or_a_parse_error(source: bytes) -> None:
    check_document(MarkdownParser(), source)
    check_document(MdxParser(), source)


@pytest.mark.parametrize(
    "source",
    [
        "word " * 100_000,
        "漢字" * 100_000,
        "<A x={" * 20_000,
        "<a " * 50_000,
        "x <!-- " * 30_000,
        "{/*\n\n" * 10_000,
        "# " + "*a _b " * 20_000,
        "".join("`" * (length % 50) + " " for length in range(10_000)),
        "import {a\n\n" * 5_000,
        "export const a = {\n\n" * 1_000 + "<A/>",
        "".join("    " * depth + "!!! note\n" for depth in range(100)),
        "> " * 2_000 + "x",
        "- item\n" * 10_000,
        "<h1>" * 20_000,
        "<h1>word " * 20_000 + "</h1>",
        "<!A " * 30_000,
        "x <? " * 30_000,
        "| a | b |\n|---|---|\n" + "| c | d |\n" * 10_000,
    ],
    ids=lambda source: source[:12].strip(),
)
def test_awkward_input_takes_no_awkward_time(source: str) -> None:
    begin = time.process_time()
    MarkdownParser().parse(source.encode(), "x")
    MdxParser().parse(source.encode(), "x")
    assert time.process_time() - begin < 10


CORPUS = sorted(
    path for suffix in ("md", "mdx") for path in (SHARED / "eval").glob(f"*/corpus/**/*.{suffix}")
)
# The largest set is many short passages of one kind: a fifth of them shows as much.
CORPUS = [path for index, path in enumerate(CORPUS) if "mtrag-pool" not in path.parts or index % 5 == 0]
# Differences that are meant: attribute lists are anchors here, and unknown tags are placeholders.
MEANT = re.compile(r"\s*\{[^}]*\}$|</?\w[^>]*>")


def plain(found: list[str]) -> list[str]:
    return [MEANT.sub("", heading) for heading in found]


# Statements and tags of MDX that CommonMark takes for text.
STATEMENTS = re.compile(
    r"^import\b.*?['\"];?[ \t]*$|^export const\b.*?(?:\n\n|\Z)|<[A-Z]\w*\s[^>]*>", re.DOTALL | re.MULTILINE
)


def differences(parser: MarkdownParser, files: list[Path]) -> list[tuple[Path, object]]:
    """Reads whole files, checks every place, and compares headings and visible words with markdown-it's."""
    found: list[tuple[Path, object]] = []
    for path in files:
        source = path.read_bytes()
        document = check_document(parser, source)
        assert document is not None
        chunks = check_chunks(document, max_chars=2000, overlap_chars=250)
        body = re.sub(r"\A---\n.*?\n---\n", "", source.decode(), flags=re.DOTALL)
        if not isinstance(parser, MdxParser):
            shown = STATEMENTS.sub(lambda match: "\n" * match[0].count("\n"), body)
            check_citations(shown, chunks, document, source.decode().count("\n") - body.count("\n"))
        if plain(rendered_headings(body)) != plain(headings(document)):
            found.append((path, headings(document)))
        if lost := rendered_words(STATEMENTS.sub("", body)) - words(document.text):
            found.append((path, lost))
    return found


@needs_shared
@pytest.mark.shared
def test_whole_corpora_keep_every_word_in_its_place() -> None:
    assert differences(MarkdownParser(), CORPUS) == []


@needs_shared
@pytest.mark.shared
def test_a_corpus_of_mdx_keeps_every_word_in_its_place() -> None:
    assert differences(MdxParser(), [path for path in CORPUS if "frigate" in path.parts]) == []

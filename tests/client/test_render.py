"""Daemon JSON to text: what people see, and what must never reach their terminal."""

from __future__ import annotations

import io
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_client import render
from copilot_client.progress import ProgressBar, WaitingLine, progress_line
from copilot_client.terminal import Style, display_width, file_uri, fit, style_for

PLAIN = Style()
RICH = Style(colour=True, links=True, width=80)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def place(**changes: Any) -> dict[str, Any]:
    return {
        "doc_title": "setup_guide",
        "section_heading": "Database Config",
        "heading_path": ["Setup", "Database Config"],
        "path": "/home/me/docs/setup_guide.md",
        "relative_path": "setup_guide.md",
        "namespace": "default",
        "line_start": 12,
        "line_end": 18,
        "page": None,
        **changes,
    }


def answer(**changes: Any) -> dict[str, Any]:
    return {
        "query": "how is the database configured?",
        "answer": "Set DATABASE_URL. [setup_guide > Database Config]",
        "known": True,
        "confidence": 0.9,
        "top_score": 0.741,
        "confidence_level": "high",
        "citations": [{"key": "A", "score": 0.834, "preview": "Set DATABASE_URL", **place()}],
        "needs_more": False,
        "missing_topics": [],
        "provider": "extractive",
        "model": "",
        "freshness": {"generation": 3, "pending": 0, "pending_paths": []},
        "timings_ms": {"retrieve": 4.2, "total": 9.8},
        **changes,
    }


def test_sources_follow_an_empty_line_and_are_numbered() -> None:
    assert render.answer_sources(answer(), PLAIN) == [
        "",
        "Sources:",
        "1. [setup_guide > Database Config]  setup_guide.md:12-18  0.83",
    ]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "setup_guide.md:12-18"),
        ({"line_end": 12}, "setup_guide.md:12"),
        ({"page": 3}, "setup_guide.md p. 3"),
        ({"page": 3, "page_end": 3}, "setup_guide.md p. 3"),
        ({"page": 3, "page_end": 5}, "setup_guide.md pp. 3-5"),
        ({"page": "\x1b[2J3", "page_end": None}, "setup_guide.md p. [2J3"),
        ({"relative_path": None}, "/home/me/docs/setup_guide.md:12-18"),
        ({"line_start": None}, "setup_guide.md"),
    ],
)
def test_location(changes: dict[str, Any], shown: str) -> None:
    assert render.location(place(**changes)) == shown


def test_a_refusal_has_no_sources_only_the_nearest_sections() -> None:
    refusal = answer(known=False, answer="I don't have enough information.", citations=[], closest=[])
    assert render.answer_sources(refusal, PLAIN) == []
    refusal["closest"] = [place()]
    assert render.answer_sources(refusal, PLAIN) == [
        "",
        "Closest sections (not an answer):",
        "1. [setup_guide > Database Config]  setup_guide.md:12-18",
    ]


def test_namespaces_are_named_only_where_they_differ() -> None:
    one = {"key": "A", "score": 0.8, **place()}
    other = {"key": "B", "score": 0.7, **place(namespace="api")}
    assert "(api)" not in "\n".join(render.answer_sources(answer(citations=[one]), PLAIN))
    lines = render.answer_sources(answer(citations=[one, other]), PLAIN)
    assert lines[2].endswith("0.80  (default)")
    assert lines[3].endswith("0.70  (api)")


def test_metric_line_is_the_seeds() -> None:
    two = [{"key": key, "score": 0.8, **place()} for key in "AB"]
    assert render.answer_stats(answer(citations=two)) == [
        "Answer generated | top_score=0.74 | citations=2 | sources: [setup_guide > Database Config]",
        "Timings: retrieve 4.2 ms, total 9.8 ms",
    ]
    assert render.answer_stats(answer(known=False, timings_ms={})) == ["Not answered | top_score=0.74"]


def test_tokens_and_costs_are_told_where_they_are_known() -> None:
    usage = {"tokens_in": 1000, "tokens_out": 50, "cached": None, "cost": None}
    assert "Tokens: in 1000, out 50" in render.answer_stats(answer(usage=usage))
    paid = {**usage, "cached": 900, "cost": 0.00123}
    assert "Tokens: in 1000, out 50, cached 900, cost 0.001230" in render.answer_stats(answer(usage=paid))
    assert not any(line.startswith("Tokens") for line in render.answer_stats(answer(usage=None)))


def test_links_and_colours_only_where_the_style_allows_them() -> None:
    line = render.answer_sources(answer(), RICH)[2]
    assert "\x1b]8;;file:///home/me/docs/setup_guide.md\x1b\\" in line
    assert "\x1b[1m[setup_guide > Database Config]\x1b[0m" in line
    links_only = render.answer_sources(answer(), Style(links=True))[2]
    assert "\x1b]8;;" in links_only
    assert "\x1b[" not in links_only
    assert "\x1b" not in render.answer_sources(answer(), PLAIN)[2]


@pytest.mark.parametrize(
    "uri", ["http://evil/x", "file:///a\x1b]8;;", "file:///a b", "file://host/x", "javascript:1"]
)
def test_only_plain_file_links_are_made(uri: str) -> None:
    assert RICH.link("x", uri) == "x"


def test_uri_of_a_path_is_percent_encoded() -> None:
    assert file_uri("/a b/ü\udcff#.md") == "file:///a%20b/%C3%BC%FF%23.md"
    assert render.place_uri(place(path_uri="file:///x%FF.md")) == "file:///x%FF.md"
    assert render.place_uri(place(path="relative.md")) == ""


def test_search_hits_show_three_lines_without_the_heading_again() -> None:
    text = "## Database Config\n\nOne\n\n    Two\nThree\nFour\n"
    result = {"query": "database", "hits": [{**place(), "text": text, "score": 0.5}]}
    assert render.search_hits(result, PLAIN) == [
        "1. [setup_guide > Database Config]  setup_guide.md:12-18  0.50",
        "   One",
        "       Two",
        "   Three",
    ]
    assert render.search_hits({"query": "zz", "hits": []}, PLAIN) == ["Nothing found for 'zz'."]


def test_previews_fit_the_terminal_also_in_wide_characters() -> None:
    result = {"query": "q", "hits": [{**place(), "text": "データベース" * 30, "score": 0.5}]}
    preview = render.search_hits(result, Style(width=40))[1]
    assert display_width(preview) <= 40
    assert preview.endswith("…")


def test_answers_are_never_wrapped() -> None:
    code = "    " + "x = 1; " * 60 + "\n    done"
    assert render.answer_text(answer(answer=code)) == code


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "Indexed 23 chunks from 4 files (2 new, 2 unchanged)"),
        (
            {"updated": 1, "moved": 3, "removed": 4, "skipped": [{"path": "a.pdf", "reason": "encrypted"}]},
            "Indexed 23 chunks from 4 files (2 new, 2 unchanged, 1 updated, 3 moved, 4 removed, 1 skipped)",
        ),
    ],
)
def test_index_summary_is_the_seeds_line(changes: dict[str, Any], line: str) -> None:
    report = {
        "files": 4,
        "chunks": 23,
        "new": 2,
        "unchanged": 2,
        "updated": 0,
        "moved": 0,
        "removed": 0,
        **changes,
    }
    assert render.index_summary(report) == line


def test_index_report_names_each_skipped_file() -> None:
    report = {"files": 1, "new": 1, "chunks": 2, "skipped": [{"path": "b\x1b[2J.pdf", "reason": "encrypted"}]}
    assert render.index_report(report, "/d")[1:] == ["Skipped b[2J.pdf: encrypted"]


def test_nothing_to_index_lists_what_can_be_read() -> None:
    report = {"files": 0, "new": 0, "chunks": 0, "skipped": [], "suffixes": [".md", ".pdf", ".txt"]}
    assert render.index_report(report, "/d") == [
        "No .md or .pdf files found in /d.",
        "Supported: .md .pdf .txt",
    ]


@pytest.mark.parametrize("score", [-0.0004, -0.02])
def test_a_score_below_nothing_is_shown_as_nothing(score: float) -> None:
    place = {
        "doc_title": "z",
        "section_heading": "Zebra",
        "relative_path": "z.md",
        "line_start": 1,
        "line_end": 3,
    }
    refused = answer(known=False, closest=[{"key": "A", **place, "score": score}])
    assert render.answer_sources(refused, PLAIN)[-1].endswith("z.md:1-3  0.00")


def test_freshness_is_told_only_while_something_is_pending() -> None:
    assert render.freshness_line(answer()) == []
    pending = {"pending": 5, "pending_paths": ["a.md", "b.md", "c.md", "d.md"]}
    assert render.freshness_line({"freshness": pending}) == [
        "Not yet in this answer: 5 changed files (a.md, b.md, c.md, …)."
    ]
    assert render.freshness_line(
        {"freshness": {"pending": 4, "pending_paths": ["a.md", "b.md", "c.md"], "by_words": 3}}
    ) == [
        "Not yet in this answer: 1 changed file (a.md).",
        "Found by words only so far, while vectors are made: 3 documents (b.md, c.md, …).",
    ]
    assert render.freshness_line({"freshness": {"pending": 1}}) == ["Not yet in this answer: 1 changed file."]


def test_notices_and_corrections() -> None:
    result = {"notices": ["The model is loading;\nkeywords only."], "corrections": {"databse": "database"}}
    assert render.notices(result) == [
        "The model is loading; keywords only.",
        "Searched for 'database' instead of 'databse'.",
    ]


def test_gaps() -> None:
    assert render.answer_gaps(answer(missing_topics=["Windows"])) == [
        "The documentation may not cover: Windows."
    ]
    assert render.answer_gaps(answer(known=False, missing_topics=["Windows"])) == []


def test_roots_are_aligned() -> None:
    root = {
        "path": "/docs",
        "namespace": "default",
        "documents": 1,
        "chunks": 12,
        "watch": "events",
        "state": "ok",
    }
    gone = {
        **root,
        "path": "/日本",
        "namespace": "x",
        "documents": 1234,
        "state": "missing",
        "exclude": ["*.txt"],
    }
    assert render.roots({"roots": [root, gone]}, PLAIN) == [
        "/docs  default  1 document, 12 chunks       events",
        "/日本  x        1,234 documents, 12 chunks  missing, events",
        "    exclude: *.txt",
    ]
    assert render.roots({"roots": []}, PLAIN) == ["No folder is indexed yet. Add one: copilot index DIR"]


def test_status_shows_what_is_odd_about_the_settings() -> None:
    lines = render.status(
        {"warnings": ["/c/.env is open to other users;\x1b[2J run: chmod 600 /c/.env"]}, PLAIN
    )
    assert lines[lines.index("Settings") + 1] == "  /c/.env is open to other users;[2J run: chmod 600 /c/.env"


def test_status_tells_everything() -> None:
    result = {
        "pid": 17, "version": "0.1.0", "state": "indexing", "model": {"name": "mini", "loaded": False, "error": ""},
        "roots": [], "documents": 3, "chunks": 1, "windows": 40, "embedded_total": 40, "pending": 2,
        "pending_windows": 9, "generation": 8, "skipped": [{"path": "/d/a.pdf", "reason": "encrypted"}],
        "errors": ["disk full"], "memory_bytes": 512_000_000, "uptime_s": 3725.2, "socket": "/s", "index_dir": "/i",
        "provider": "anthropic", "llm_model": "m", "log_file": "/l",
    }  # fmt: skip
    assert render.status(result, PLAIN) == [
        "Daemon    indexing, pid 17, version 0.1.0",
        "Up        1 h 2 min, 512 MB of memory",
        "Model     mini, not loaded yet",
        "Answers   anthropic m",
        "Index     3 documents, 1 chunk, 40 windows, generation 8",
        "Pending   2 files, 9 windows",
        "Embedded  40 windows since start",
        "Folder    /i",
        "Socket    /s",
        "Log       /l",
        "",
        "Roots",
        "  No folder is indexed yet. Add one: copilot index DIR",
        "",
        "Skipped",
        "  /d/a.pdf: encrypted",
        "",
        "Recent errors",
        "  disk full",
    ]
    broken = render.status({**result, "model": {"name": "mini", "error": "hash differs"}}, PLAIN)
    assert "Model     mini, failed: hash differs" in broken


def test_forgotten() -> None:
    result = {"forgotten": [{"path": "/d", "namespace": "api", "documents": 2}]}
    assert render.forgotten(result) == ["Forgot /d (api): 2 documents. The files themselves are untouched."]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3725, "1 h 2 min"), (90000, "1 d 1 h"), (None, "0 s")],
)
def test_duration(seconds: float | None, shown: str) -> None:
    assert render.duration(seconds) == shown


def test_size() -> None:
    assert [render.size(number) for number in (None, 999, 1000, 1_500_000_000)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1.5 GB",
    ]


hostile = st.text(st.characters(codec=None), max_size=40)


@given(hostile, hostile, hostile)
def test_no_control_sequence_of_a_document_gets_through(title: str, heading: str, text: str) -> None:
    where = place(doc_title=title, section_heading=heading, relative_path=text, path=text, namespace=title)
    shown = answer(answer=text, citations=[{"key": "A", "score": 1.0, **where}], missing_topics=[heading])
    lines = [
        render.answer_text(shown),
        *render.answer_sources(shown, PLAIN),
        *render.answer_stats(shown),
        *render.answer_gaps(shown),
        *render.search_hits({"query": text, "hits": [{**where, "text": text, "score": 1.0}]}, PLAIN),
        *render.section({**where, "text": text}, PLAIN),
        *render.roots({"roots": [{"path": title, "namespace": heading, "include": [text]}]}, PLAIN),
        *render.index_report({"skipped": [{"path": title, "reason": heading}]}, text),
    ]
    categories = {unicodedata.category(character) for character in "".join(lines) if character not in "\n\t"}
    assert not categories & {"Cc", "Cs", "Co"}
    assert not set("".join(lines)) & set("\x1b\x07\x9b\x9d\r\u202e\u2066")


@given(hostile)
def test_json_keeps_its_value_and_hides_control_characters(text: str) -> None:
    shown = render.json_text({"text": text})
    assert json.loads(shown) == {"text": text}
    assert not set(shown) & {chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x202E, 0x2066)}
    shown.encode("utf-8")
    assert render.json_text({"text": text}, ascii_only=True).isascii()


def test_json_hides_no_sentence_in_tag_characters() -> None:
    hidden = "".join(chr(0xE0000 + ord(character)) for character in "obey") + "\u180e\u2061\ufff9"
    shown = render.json_text({"text": f"fees{hidden} 👩\u200d👧"})
    assert json.loads(shown) == {"text": f"fees{hidden} 👩\u200d👧"}
    assert not set(hidden) & set(shown)
    assert "👩\u200d👧" in shown


@given(st.text(), st.integers(1, 60))
def test_fit_never_exceeds_its_columns(text: str, columns: int) -> None:
    assert display_width(fit(text, columns)) <= columns


@pytest.mark.parametrize(
    ("environ", "colour", "links"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({}, False, False),
    ],
)
def test_style_of_a_terminal(environ: dict[str, str], colour: bool, links: bool) -> None:
    style = style_for(Terminal(), environ)
    assert (style.colour, style.links) == (colour, links)


def test_style_of_a_pipe_is_plain() -> None:
    assert style_for(io.StringIO(), {"TERM": "xterm", "COLUMNS": "70"}) == Style(width=70)
    closed = io.StringIO()
    closed.close()
    assert not style_for(closed, {"TERM": "xterm"}).links


def test_progress_line() -> None:
    step = {
        "stage": "embed", "files_done": 12, "files_total": 40, "windows_done": 450, "windows_total": 900, "eta_s": 62.0,
    }  # fmt: skip
    assert progress_line(step) == "[############------------]  12/40 files  450/900 windows  1 min 2 s left"
    assert progress_line({"stage": "scan", "message": "Looking"}) == "Looking"
    assert progress_line({"stage": "scan", "files_done": 3}) == "[------------------------]  3 files"
    assert progress_line({"stage": "scan"}) == "scan"


def test_bar_draws_over_itself_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    terminal, now = Terminal(), iter([0.0, 0.01, 1.0])
    bar = ProgressBar(terminal, lambda: next(now))
    for done in (1, 2, 3):
        bar.update({"files_done": done, "files_total": 3})
    bar.close()
    frames = terminal.getvalue().split("\r")
    assert [frame.strip() for frame in frames] == [
        "", "[########----------------]  1/3 files", "[########################]  3/3 files", "", "",
    ]  # fmt: skip
    assert max(map(len, frames)) < 60


def test_bar_is_silent_in_a_pipe() -> None:
    pipe = io.StringIO()
    bar = ProgressBar(pipe)
    bar.update({"files_done": 1, "files_total": 2})
    bar.close()
    assert pipe.getvalue() == ""


def test_waiting_tells_each_sentence_once() -> None:
    pipe = io.StringIO()
    waiting = WaitingLine(pipe)
    for _ in range(2):
        waiting.update({"stage": "sync", "message": "Stale index detected: a.md changed. Re-indexing."})
    waiting.update({"stage": "answer", "message": "passing by"})
    waiting.close()
    assert pipe.getvalue() == "Stale index detected: a.md changed. Re-indexing.\n"

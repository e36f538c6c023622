"""Answers drawn as Markdown: nothing is lost, and nothing of documents or models acts on the terminal."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from copilot_client.chat.markdown import THEME, Draft, print_lines, print_markdown
from copilot_client.chat.rich_screen import citation_links
from copilotd.text import printable

LABEL = "[my_doc > Using *stars* & `ticks`]"
URI = "file:///docs/my_doc.md"
CITATION = {
    "doc_title": "my_doc", "section_heading": "Using *stars* & `ticks`", "path": "/docs/my_doc.md",
    "path_uri": URI, "line_start": 1, "line_end": 2,
}  # fmt: skip


def drawn(text: str, *, width: int = 80, links: dict[str, str] | None = None) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream, theme=THEME, width=width, force_terminal=True, color_system="standard", markup=False,
        highlight=False, emoji=False,
    )  # fmt: skip
    print_markdown(console, text, links or {})
    return stream.getvalue()


def plain(text: str, *, width: int = 80, links: dict[str, str] | None = None) -> str:
    shown = drawn(text, width=width, links=links)
    return re.sub(r"\x1b\[[\d;]*m|\x1b\]8;[^\x1b]*\x1b\\", "", shown)


def test_citations_become_links_whatever_is_in_them() -> None:
    shown = drawn(f"Do it. {LABEL}", links={LABEL: URI})
    assert re.search(rf"\x1b\]8;id=\d+;{re.escape(URI)}\x1b\\", shown)
    assert LABEL in plain(f"Do it. {LABEL}", links={LABEL: URI})


def test_citations_inside_code_stay_as_they_are() -> None:
    text = f"`{LABEL[:-9]}`\n\n```\n{LABEL}\n```\n\n| a |\n|---|\n| {LABEL} |\n"
    assert plain(text, links={LABEL: URI}).count(LABEL) == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[click](https://evil.example/x)", "click (https://evil.example/x)"),
        ("![pixel](https://evil.example/p.png)", "pixel (https://evil.example/p.png)"),
        ("<https://evil.example/>", "https://evil.example/"),
        ("[own](file:///etc/passwd)", "[own](file:///etc/passwd)"),
        ("[ref][1]\n\n[1]: https://evil.example", "ref (https://evil.example)"),
    ],
)
def test_links_of_others_are_text(text: str, shown: str) -> None:
    assert shown in plain(text)
    assert "\x1b]8" not in drawn(text)


def test_html_and_markup_of_the_renderer_are_text() -> None:
    text = "Use --port <port>, not [bold]this[/bold] or :smile:.\n\n<script>alert(1)</script>"
    shown = plain(text)
    assert "--port <port>, not [bold]this[/bold] or :smile:." in shown
    assert "<script>alert(1)</script>" in shown


def test_long_code_is_not_broken() -> None:
    line = "borg extract " + "x" * 200
    assert line in plain(f"```sh\n{line}\n```", width=40)
    listed = plain(f"- item\n\n  ```sh\n  {line}\n  ```\n", width=40)
    assert line.replace(" ", "") in re.sub(r"\s", "", listed)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_table_keeps_its_words_at_any_width(width: int) -> None:
    rows = "\n".join(f"| option{n} | {'verylongvalue' * 3}{n} | some words about it |" for n in range(3))
    shown = re.sub(r"\s", "", plain(f"| a | b | c |\n|---|---|---|\n{rows}\n", width=width))
    assert "…" not in shown
    for n in range(3):
        assert f"option{n}" in shown


def test_headings_stand_left() -> None:
    assert plain("# Title\n\ntext").lstrip("\n").startswith("Title")


def test_a_link_that_would_leave_this_machine_is_none() -> None:
    assert citation_links({"citations": [CITATION]}) == {LABEL: URI}
    for uri in ("https://evil.example/", "file:///a b", "file:///x\x1b\\", "javascript:alert(1)"):
        assert citation_links({"citations": [{**CITATION, "path_uri": uri}]}) == {}


def test_a_draft_shows_its_end_and_leaves_nothing() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=40, height=5, force_terminal=True, markup=False)
    draft = Draft(console)
    draft.clear()
    draft.text = "\n".join(f"line {number}" for number in range(50))
    draft.draw()
    assert "line 49" in stream.getvalue()
    assert "line 10\n" not in stream.getvalue()
    draft.clear()
    assert "\x1b[2K" in stream.getvalue()


def test_lines_are_broken_between_words() -> None:
    stream = io.StringIO()
    print_lines(Console(file=stream, width=20, markup=False), ["one two three four five six"])
    assert stream.getvalue().split("\n")[0].rstrip() == "one two three four"


@given(st.text(alphabet="ab *_`#>[]()!|\n-1.~<&\\\ue000\ue0010", max_size=120))
def test_any_answer_can_be_drawn(text: str) -> None:
    text = printable(text)
    assert "\ue000" not in drawn(text, width=30, links={"[a]": URI, "[b]": URI})

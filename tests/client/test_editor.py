"""Opening a source: which words an editor gets, which link a terminal, and what is said where neither works."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.client_home import temporary_home
from support.scripted_daemon import ScriptedDaemon, reply

from copilot_client.editor import open_place
from copilot_client.editors import editor_command, link, link_pattern, name_of, viewer_command
from copilot_client.render import answer_sources
from copilot_client.terminal import Style
from copilotd.errors import CopilotError, UsageError

PATH = "/docs/a b;$(x).md"
RECORDER = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word" >> "$0.part"; done
mv "$0.part" "$0.words"
exit {code}
"""


def fake(folder: Path, name: str, code: int = 0) -> Path:
    """Makes a program that writes down what it is given."""
    program = folder / name
    program.write_text(RECORDER.format(code=code))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def words(program: Path) -> list[str]:
    """Returns what a program made by :func:`fake` was given, once it has run."""
    written = program.with_name(f"{program.name}.words")
    end = time.monotonic() + 60
    while not written.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return written.read_text().splitlines()


@pytest.mark.parametrize(
    ("editor", "command"),
    [
        ("vim", ["vim", "+7", PATH]),
        ("/usr/bin/nvim -R", ["/usr/bin/nvim", "-R", "+7", PATH]),
        ("emacsclient -n", ["emacsclient", "-n", "+7", PATH]),
        ("nano", ["nano", "+7", PATH]),
        ("unheard-of", ["unheard-of", "+7", PATH]),
        ("code --wait", ["code", "--wait", "--goto", f"{PATH}:7"]),
        ("vscode", ["code", "--goto", f"{PATH}:7"]),
        ("cursor", ["cursor", "--goto", f"{PATH}:7"]),
        ("zed", ["zed", f"{PATH}:7"]),
        ("subl -w", ["subl", "-w", f"{PATH}:7"]),
        ("sublime", ["subl", f"{PATH}:7"]),
        ("hx", ["hx", f"{PATH}:7"]),
        ("idea", ["idea", "--line", "7", PATH]),
        ("kate", ["kate", "--line", "7", PATH]),
        ("ed --at={line} '{path}'", ["ed", "--at=7", PATH]),
        ("'/opt/my editor/vim'", ["/opt/my editor/vim", "+7", PATH]),
    ],
)
def test_how_an_editor_is_told_the_line(editor: str, command: list[str]) -> None:
    assert editor_command(editor, PATH, 7) == command


def test_an_editor_without_a_line_gets_the_path() -> None:
    assert editor_command("code", PATH, None) == ["code", PATH]
    assert editor_command("x {path} {line}", PATH, None) == ["x", PATH, "1"]


@pytest.mark.parametrize("editor", ["vim '", "", "  "])
def test_what_names_no_command_is_a_value_error(editor: str) -> None:
    with pytest.raises(ValueError, match=r"quot|command"):
        editor_command(editor, PATH, 7)


@pytest.mark.parametrize(
    ("viewer", "command"),
    [
        ("evince", ["evince", "-p", "3", "/x.pdf"]),
        ("okular --unique", ["okular", "--unique", "-p", "3", "/x.pdf"]),
        ("zathura", ["zathura", "-P", "3", "/x.pdf"]),
        ("xdg-open", ["xdg-open", "/x.pdf"]),
    ],
)
def test_how_a_viewer_is_told_the_page(viewer: str, command: list[str]) -> None:
    assert viewer_command(viewer, "/x.pdf", 3) == command


@pytest.mark.parametrize(
    ("editor", "expected"),
    [
        ("code --wait", "vscode://file/a%20b/%C3%BC.md:7"),
        ("vscode", "vscode://file/a%20b/%C3%BC.md:7"),
        ("cursor", "cursor://file/a%20b/%C3%BC.md:7"),
        ("zed", "zed://file/a%20b/%C3%BC.md:7"),
        ("idea", "idea://open?file=/a%20b/%C3%BC.md&line=7"),
        ("my://x?f={path}&l={line}", "my://x?f=/a%20b/%C3%BC.md&l=7"),
    ],
)
def test_links_of_editors(editor: str, expected: str) -> None:
    assert link(link_pattern(editor), "/a b/ü.md", 7) == expected


@pytest.mark.parametrize("editor", ["vim", "", "'", "my://{path}\x1b]8;;", "my://{path} x", "my://ü{path}"])
def test_editors_without_links_of_their_own(editor: str) -> None:
    assert link_pattern(editor) == ""


def test_the_name_of_an_editor() -> None:
    assert [name_of(editor) for editor in ("/usr/bin/code --wait", "vscode", "", "'")] == [
        "code",
        "code",
        "",
        "",
    ]


# ------------------------------------------------------------------------------ links in Sources


def source(path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "doc_title": "guide", "section_heading": "Use", "path": str(path), "path_uri": path.as_uri(),
        "relative_path": path.name, "namespace": "default", "line_start": 7, "line_end": 9, "page": None, **changes,
    }  # fmt: skip


def linked(style: Style, **changes: Any) -> str:
    return answer_sources({"known": True, "citations": [source(Path("/d/a b.md"), **changes)]}, style)[2]


def test_sources_link_to_the_line_where_the_editor_takes_links() -> None:
    style = Style(links=True, editor_link=link_pattern("code"))
    assert "\x1b]8;;vscode://file/d/a%20b.md:7\x1b\\" in linked(style)
    assert "\x1b]8;;file:///d/a%20b.md#page=3\x1b\\" in linked(style, page=3), "an editor doesn't show a PDF"
    assert "\x1b]8;;file:///d/a%20b.md\x1b\\" in linked(Style(links=True))
    assert "\x1b" not in linked(Style(editor_link=link_pattern("code")))


@pytest.mark.parametrize("page", [None, 3])
@pytest.mark.parametrize("uri", ["http://evil/x", "file:///a\x1b]8;;", "javascript:1", ""])
def test_a_link_to_a_place_is_made_of_plain_file_links_only(uri: str, page: int | None) -> None:
    assert "\x1b" not in Style(links=True, editor_link=link_pattern("code")).link_to_place(
        "x", uri, line=7, page=page
    )


# --------------------------------------------------------------------------------- running editors


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    path = tmp_path / "a b;$(touch owned).md"
    path.write_text("# Use\n")
    return path


def test_the_editor_is_run_without_a_shell(tmp_path: Path, guide: Path) -> None:
    vim = fake(tmp_path, "vim")
    open_place(source(guide), {"EDITOR": str(vim), "PATH": os.environ["PATH"]})
    assert words(vim) == ["+7", str(guide)]
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "environ",
    [
        {"COPILOT_EDITOR": "{0}/vim", "VISUAL": "{0}/other", "EDITOR": "{0}/other"},
        {"VISUAL": "{0}/vim", "EDITOR": "{0}/other"},
        {"COPILOT_EDITOR": " ", "VISUAL": "", "EDITOR": "{0}/vim"},
    ],
)
def test_which_editor_goes_first(tmp_path: Path, guide: Path, environ: dict[str, str]) -> None:
    vim, other = fake(tmp_path, "vim"), fake(tmp_path, "other")
    open_place(source(guide), {name: value.format(tmp_path) for name, value in environ.items()})
    assert words(vim) == ["+7", str(guide)]
    assert not Path(f"{other}.words").exists()


def test_what_is_said_where_it_cannot_be_opened(tmp_path: Path, guide: Path) -> None:
    with pytest.raises(UsageError, match="No editor is set") as none:
        open_place(source(guide), {})
    assert "--editor" in none.value.hint
    with pytest.raises(UsageError, match="is not there any more"):
        open_place(source(tmp_path / "gone.md"), {"EDITOR": "vim"})
    with pytest.raises(CopilotError, match="can't be run"):
        open_place(source(guide), {"EDITOR": str(tmp_path / "missing")})
    with pytest.raises(CopilotError, match="can't be run"):
        open_place(source(guide), {"EDITOR": "vim '"})
    with pytest.raises(CopilotError, match="ended with code 3"):
        open_place(source(guide), {"EDITOR": str(fake(tmp_path, "vim", code=3))})


def section(
    program: Path, place: dict[str, Any], *arguments: str, env: dict[str, str]
) -> tuple[int, str, str]:
    with temporary_home() as home:
        answer = {"answer": "x", "known": True, "citations": [{"key": "A", "score": 0.5, **place}]}
        scripts = {"section": reply({**place, "line_start": 1, "page": 1, "text": "x"}), "ask": reply(answer)}
        if place["page"] is None:
            scripts["section"] = reply({**place, "line_start": 1, "text": "x"})
        with ScriptedDaemon(home.socket, scripts):
            home.run("ask", "how")
            done = home.run("section", *arguments, env=env)
    if done.code == 0:
        words(program)
    return done.code, done.out, done.err


@pytest.mark.parametrize(
    ("arguments", "line"), [(("{0}:12-18", "--open"), 12), (("1", "-o"), 7), (("guide > Use", "--open"), 1)]
)
def test_section_opens_the_line_that_was_asked_for(
    tmp_path: Path, guide: Path, arguments: tuple[str, ...], line: int
) -> None:
    subl = fake(tmp_path, "subl")
    named = [argument.format(guide) for argument in arguments]
    assert section(subl, source(guide), *named, env={"EDITOR": str(subl)}) == (0, "", "")
    assert words(subl) == [f"{guide}:{line}"]


def test_section_with_an_editor_needs_no_other_option(tmp_path: Path, guide: Path) -> None:
    zed = fake(tmp_path, "zed")
    assert section(zed, source(guide), "1", "--editor", str(zed), env={"EDITOR": "missing"}) == (0, "", "")
    assert words(zed) == [f"{guide}:7"]


def test_section_opens_a_pdf_at_the_page_in_a_viewer(tmp_path: Path) -> None:
    manual = tmp_path / "manual.pdf"
    manual.write_bytes(b"%PDF-1.4")
    evince = fake(tmp_path, "evince")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "EDITOR": "missing"}
    for reference, page in (("1", 3), (f"{manual} p. 5", 5), (f"{manual} pp. 5-6", 5)):
        Path(f"{evince}.words").unlink(missing_ok=True)
        assert section(evince, source(manual, page=3), reference, "--open", env=env) == (0, "", "")
        assert words(evince) == ["-p", str(page), str(manual)]


def test_a_pdf_goes_to_what_the_desktop_opens_it_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = tmp_path / "manual.pdf"
    manual.write_bytes(b"%PDF-1.4")
    desktop = fake(tmp_path, "open" if sys.platform == "darwin" else "xdg-open")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    open_place(source(manual, page=3), {"PATH": str(tmp_path), "EDITOR": "vim", "COPILOT_EDITOR": "code"})
    assert words(desktop) == [str(manual)]


def test_a_pattern_of_links_is_opened_by_the_desktop(
    tmp_path: Path, guide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desktop = fake(tmp_path, "open" if sys.platform == "darwin" else "xdg-open")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    open_place(source(guide), editor="my://x{path}:{line}")
    assert words(desktop) == [f"my://x{guide.as_uri()[7:]}:7"]


def test_section_says_that_no_editor_is_set(tmp_path: Path, guide: Path) -> None:
    code, out, err = section(guide, source(guide), "1", "--open", env={})
    assert (code, out) == (2, "")
    assert "No editor is set." in err
    assert "--editor" in err

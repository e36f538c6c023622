from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copilotd.ingest.ignore import FolderRules, Patterns, Rules
from copilotd.ingest.scan import Scanner
from copilotd.types import Root

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def rules(gitignore: str = "", copilotignore: str = "", exclude: tuple[str, ...] = ()) -> Rules:
    found = FolderRules(own=Patterns(copilotignore.split("\n")), git=Patterns(gitignore.split("\n")))
    return Rules(Patterns(exclude)).inside("", found)


def ignored(rules: Rules, path: str) -> bool:
    """Asks from the top down, as a walk does; a trailing slash means a folder."""
    parts = path.rstrip("/").split("/")
    for depth in range(1, len(parts) + 1):
        is_folder = depth < len(parts) or path.endswith("/")
        if rules.ignores("/".join(parts[:depth]), is_folder=is_folder):
            return True
    return False


@pytest.mark.parametrize(
    ("gitignore", "path", "expected"),
    [
        ("build/", "build/a.md", True),
        ("build/", "pkg/build/a.md", True),
        ("build/", "build", False),
        ("/build/", "pkg/build/a.md", False),
        ("pkg/build", "x/pkg/build/a.md", False),
        ("*.md", "a/b/c.md", True),
        ("*.md\n!keep.md", "a/keep.md", False),
        ("docs/\n!docs/keep.md", "docs/keep.md", True),
        ("docs/*\n!docs/keep.md", "docs/keep.md", False),
        ("docs/**\n!docs/keep.md", "docs/keep.md", False),
        ("docs/**", "docs/", False),
        ("docs/**", "docs/a/b.md", True),
        ("**/out", "a/b/out/c.md", True),
        ("a/**/z.md", "a/z.md", True),
        ("a/**/z.md", "a/b/c/z.md", True),
        ("*", "a.md", True),
        ("/*\n!/docs/", "docs/a/b.md", False),
        ("/*\n!/docs/", "other/a.md", True),
        ("foo\\ ", "foo ", True),
        ("foo   ", "foo", True),
        ("foo\r", "foo", True),
        ("# foo", "# foo", False),
        ("\\#foo", "#foo", True),
        ("\\!foo", "!foo", True),
        ("a[0-9].md", "a7.md", True),
        ("a[!0-9].md", "a7.md", False),
        ("a[[:digit:]].md", "a7.md", True),
        ("[z-a].md\nb.md", "b.md", True),
        ("[a\nb.md", "b.md", True),
        ("trailing\\\nb.md", "b.md", True),
        ("/", "a.md", False),
        ("", "a.md", False),
    ],
)
def test_gitignore_patterns(gitignore: str, path: str, expected: bool) -> None:
    assert ignored(rules(gitignore), path) is expected


@pytest.mark.parametrize(
    "path",
    [
        ".git/config.md",
        "sub/.git/x.md",
        ".hg/x.md",
        "CVS/x.md",
        ".venv/z.md",
        ".hidden.md",
        "node_modules/p/README.md",
        "a.md~",
        ".#a.md",
        "#a.md#",
        ".a.md.swp",
        "4913",
        "~$a.md",
        "a.md.tmp",
    ],
)
def test_what_nobody_wrote_is_left_out_without_any_ignore_file(path: str) -> None:
    assert ignored(rules(), path)


def test_patterns_made_to_take_for_ever_are_left_out() -> None:
    name = "a" * 250
    found = rules("*a" * 40 + "b\n" + "**/a/" * 30 + "b\n!keep\n")
    began = time.perf_counter()
    assert not ignored(found, f"{name}/{name}/{name}.md")
    assert time.perf_counter() - began < 20


def test_copilotignore_decides_before_gitignore_and_hidden_names() -> None:
    found = rules(gitignore="generated/\n*.txt", copilotignore="!generated/\n!.github/\ndrafts/\n!.git/")
    assert not ignored(found, "generated/a.md")
    assert not ignored(found, ".github/CONTRIBUTING.md")
    assert ignored(found, "drafts/a.md")
    assert ignored(found, "a.txt")
    assert ignored(found, ".git/a.md")


def test_exclude_wins_over_everything() -> None:
    found = rules(copilotignore="!secret/", exclude=("secret/", "*.tmp.md"))
    assert ignored(found, "secret/a.md")
    assert ignored(found, "a.tmp.md")
    assert not ignored(found, "a.md")


def test_a_nearer_file_that_brings_a_folder_back_says_nothing_of_what_is_in_it() -> None:
    outer = Rules(Patterns(())).inside("", FolderRules(git=Patterns(["*.md"])))
    inner = outer.inside("a", FolderRules(git=Patterns(["!docs/"])))
    assert not inner.ignores("a/docs", is_folder=True)
    assert inner.ignores("a/docs/x.md", is_folder=False)


def test_patterns_cover_what_lies_below_a_matched_folder() -> None:
    patterns = Patterns(["docs/", "*.txt", "!docs/private/"])
    assert patterns.covers("docs/a/b.md")
    assert patterns.covers("x/y.txt")
    assert not patterns.covers("docs/private/b.md")
    assert not patterns.covers("src/a.md")


PLAIN_SEGMENT = st.sampled_from(["a", "b", "c", "x.md", "y.md", "a b", "\\a", "x\\.md"])
GLOB_SEGMENT = st.sampled_from(["*", "**", "***", "*.md", "?.md", "?", "??", "a*", "*b", "a?"])
RANGE_SEGMENT = st.sampled_from(
    ["[ab]", "[!a]", "[^b]", "x.m[a-d]", "[xy].md", "[[:alpha:]]", "[a-]", "[z-a]"]
)
SEGMENT = st.one_of(PLAIN_SEGMENT, GLOB_SEGMENT, RANGE_SEGMENT)
LINE = st.builds(
    lambda negated, rooted, segments, folder, tail: (
        ("!" if negated else "")
        + ("/" if rooted else "")
        + "/".join(segments)
        + ("/" if folder else "")
        + tail
    ),
    st.booleans(),
    st.booleans(),
    st.lists(SEGMENT, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["", "", "", " ", "  ", "\r"]),
)
IGNORE_FILE = st.lists(
    st.one_of(LINE, LINE, LINE, st.sampled_from(["", "# a", "/", "!", "[a"])), max_size=5
).map("\n".join)
FOLDERS = ("", "a", "b", "a/a", "a/b", "a/b/c", "b/a", "b/c", "b/c/a", "a b")
DOCUMENTS = tuple(
    f"{folder}/{name}".removeprefix("/") for folder in FOLDERS for name in ("x.md", "y.md", "a.md", "ab.md")
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    for document in DOCUMENTS:
        (top / document).parent.mkdir(parents=True, exist_ok=True)
        (top / document).write_text("text")
    return top


def git_lists(top: Path) -> list[str]:
    """What git would offer to add."""
    command = ["git", "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=top, check=True, capture_output=True).stdout
    return sorted(path for path in listed.decode().split("\0") if path.endswith(".md"))


@needs_git
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(files=st.dictionaries(st.sampled_from([*FOLDERS, ".git/info"]), IGNORE_FILE, max_size=4))
def test_a_scan_finds_what_git_finds(repository: Path, files: dict[str, str]) -> None:
    written = []
    try:
        for folder, text in files.items():
            path = repository / folder / ("exclude" if folder == ".git/info" else ".gitignore")
            path.write_bytes(text.encode())
            written.append(path)
        scanner = Scanner(Root(1, str(repository)), suffixes=[".md"], max_file_bytes=1_000_000)
        found = sorted(scanner.scan().files)
        assert found == git_lists(repository)
        assert found == sorted(document for document in DOCUMENTS if scanner.accepts(document))
        for below in ("a", "b"):
            inner = Scanner(Root(2, str(repository / below)), suffixes=[".md"], max_file_bytes=1_000_000)
            if any(document.startswith(f"{below}/") for document in found):
                assert sorted(f"{below}/{path}" for path in inner.scan().files) == [
                    document for document in found if document.startswith(f"{below}/")
                ]
    finally:
        for path in written:
            path.unlink()

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.shared import REPOSITORY, SHARED, needs_shared

from copilotd.ingest.cookie import Cookies
from copilotd.ingest.plan import plan
from copilotd.ingest.scan import Changes, Scanner
from copilotd.ingest.watch import Watcher
from copilotd.types import IndexedFile, Root, RootState, Update

MAX_BYTES = 1_000_000
PAST_NS = 1_000_000_000_000_000_000

as_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="becoming another user takes root, whom permissions don't hold",
)


def scanner(path: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> Scanner:
    root = Root(1, str(path), include=include, exclude=exclude)
    return Scanner(root, suffixes=[".md", ".markdown", ".txt"], max_file_bytes=MAX_BYTES)


def settled_scanner(path: Path) -> Scanner:
    """One for which two seconds have passed since anything changed."""
    time.sleep(0.012)  # longer than a tick of the kernel's clock
    return Scanner(
        Root(1, str(path)),
        suffixes=[".md"],
        max_file_bytes=MAX_BYTES,
        clock_ns=lambda: time.time_ns() + 10_000_000_000,
    )


def write(path: Path, text: str = "text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tree(top: Path, *paths: str) -> Path:
    for path in paths:
        write(top / path)
    return top


def found(scanner: Scanner) -> list[str]:
    """Looks twice, incrementally and afresh, which must agree."""
    incremental, full = scanner.scan(), scanner.scan(full=True)
    assert incremental.files == full.files
    assert incremental.problems == full.problems
    return sorted(incremental.files)


def age(top: Path) -> None:
    """Makes every listing old enough to be trusted."""
    for folder, _, names in os.walk(top):
        for name in [*names, "."]:
            os.utime(os.path.join(folder, name), ns=(PAST_NS, PAST_NS))


# --------------------------------------------------------------------------------- what is found


def test_documents_are_found_with_their_fingerprints(tmp_path: Path) -> None:
    tree(tmp_path, "a.md", "sub/B.MD", "sub/deep/c.markdown", "sub/code.py", "LICENSE")
    result = scanner(tmp_path).scan()
    assert result.state is RootState.OK
    assert sorted(result.files) == ["a.md", "sub/B.MD", "sub/deep/c.markdown"]
    assert result.problems == ()
    status = (tmp_path / "a.md").stat()
    fingerprint = result.files["a.md"].fingerprint
    assert fingerprint.mtime_ns == status.st_mtime_ns
    assert fingerprint.ctime_ns == status.st_ctime_ns
    assert (fingerprint.size, fingerprint.inode) == (status.st_size, status.st_ino)


def test_nothing_changed_costs_one_stat_each_and_gives_the_same_object(tmp_path: Path) -> None:
    tree(tmp_path, *(f"d{index % 7}/f{index}.md" for index in range(50)))
    looking = scanner(tmp_path)
    looking.scan()
    time.sleep(2.1)
    before = looking.scan()
    after = looking.scan()
    assert after.files is before.files
    assert after.stats == {"stats": 50 + 8, "listings": 0}


def test_large_files_are_left_out_with_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "large.md", "x" * (MAX_BYTES + 1))
    looking = scanner(tmp_path)
    assert looking.scan().files == {}
    assert looking.scan().problems == (("large.md", "larger than 1 MB"),)
    path.write_text("small now")
    assert found(looking) == ["large.md"]
    assert looking.scan().problems == ()
    path.write_text("x" * (MAX_BYTES + 1))
    assert found(looking) == []


def test_include_and_exclude(tmp_path: Path) -> None:
    tree(tmp_path, "docs/a.md", "docs/deep/b.md", "docs/drafts/c.md", "src/d.md", "README.md", "notes.txt")
    assert found(scanner(tmp_path, include=("docs/", "/README.md"))) == [
        "README.md",
        "docs/a.md",
        "docs/deep/b.md",
        "docs/drafts/c.md",
    ]
    assert found(scanner(tmp_path, include=("*.md",), exclude=("drafts/", "/src"))) == [
        "README.md",
        "docs/a.md",
        "docs/deep/b.md",
    ]
    assert found(scanner(tmp_path, include=("*.py",))) == []


def test_editor_files_are_never_documents(tmp_path: Path) -> None:
    tree(
        tmp_path, "a.md", "a.md~", "#a.md#", ".a.md.swp", "4913", "a.md.tmp", "~$a.md", ".goutputstream-X.md"
    )
    (tmp_path / ".#a.md").symlink_to("user@host.1234")
    result = scanner(tmp_path).scan()
    assert sorted(result.files) == ["a.md"]
    assert result.problems == ()


def test_only_what_people_wrote_and_none_of_it_below_ignored_folders(tmp_path: Path) -> None:
    """WAT-29."""
    tree(tmp_path, "node_modules/p/README.md", ".git/x.md", "custom-out/y.md", ".venv/z.md", "docs/a.md")
    tree(
        tmp_path,
        "env/pyvenv.cfg",
        "env/lib/x.md",
        "cache/CACHEDIR.TAG",
        "cache/x.md",
        "pkg/node_modules/q/R.md",
    )
    write(tmp_path / ".gitignore", "custom-out/\n")
    looking = scanner(tmp_path)
    assert found(looking) == ["docs/a.md"]
    assert list(looking.folders()) == ["", "docs", "pkg"]
    for path in (
        "custom-out/y.md",
        "custom-out/deep/new.md",
        "node_modules/p/README.md",
        ".git/x.md",
        "env/lib/x.md",
    ):
        assert not looking.accepts(path)
        assert not scanner(tmp_path).accepts(path)  # also before anything was looked at
    assert looking.accepts("docs/new.md")
    assert looking.accepts("not/yet/there.md")
    assert not looking.accepts("docs/code.py")
    assert looking.accepts_folder("docs")
    assert not looking.accepts_folder("custom-out")
    assert not looking.accepts_folder("env")


@needs_shared
def test_nested_ignore_files_of_the_shared_case(tmp_path: Path) -> None:
    """WAT-27."""
    case = shutil.copytree(SHARED / "cases" / "files" / "w27_nested_ignore", tmp_path / "case")
    assert found(scanner(case)) == ["pkg/guide.md"]


def test_the_ignore_files_above_a_root_reach_into_it(tmp_path: Path) -> None:
    docs = tree(tmp_path / "repo" / "docs", "a.md", "old/b.md", "gen/c.md", "own.md", "x.md").resolve()
    repository = docs.parent
    write(repository / ".git" / "info" / "exclude", "own.md\n")
    write(repository / ".gitignore", "old/\n/docs/gen\n")
    write(tmp_path / ".gitignore", "*.md\n")  # outside the repository: none of its business
    looking = scanner(docs)
    assert found(looking) == ["a.md", "x.md"]
    write(repository / ".gitignore", "x.md\n")
    assert found(looking) == ["a.md", "gen/c.md", "old/b.md"]
    (repository / ".gitignore").unlink()
    write(repository / ".copilotignore", "/docs/old/\n")
    assert found(looking) == ["a.md", "gen/c.md", "x.md"]
    shutil.rmtree(repository / ".git")
    (tmp_path / ".git").mkdir()
    assert found(looking) == []  # now the file at the top of the larger repository counts


def test_a_root_that_is_itself_ignored_by_its_repository_is_indexed_all_the_same(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / ".gitignore", "build/\n")
    assert found(scanner(tree(tmp_path / "build" / "site", "a.md"))) == ["a.md"]


def test_a_repository_inside_another_follows_its_own_rules(tmp_path: Path) -> None:
    tree(tmp_path, ".git/HEAD", "a.txt", "sub/.git/HEAD", "sub/a.txt", "sub/b.md", "work/a.txt")
    write(tmp_path / ".gitignore", "*.txt\n")
    write(tmp_path / "sub" / ".gitignore", "b.md\n")
    assert found(scanner(tmp_path)) == ["sub/a.txt"]


def test_the_excludes_of_a_linked_worktree(tmp_path: Path) -> None:
    write(tmp_path / "main" / ".git" / "info" / "exclude", "own.md\n")
    write(tmp_path / "main" / ".git" / "worktrees" / "w" / "commondir", "../..\n")
    tree(tmp_path / "w", "own.md", "a.md")
    write(tmp_path / "w" / ".git", f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    assert found(scanner(tmp_path / "w")) == ["a.md"]


def test_ignore_files_that_are_no_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / ".copilotignore").symlink_to("/dev/zero")
    assert found(scanner(tree(tmp_path, "a.md"))) == ["a.md"]


@pytest.mark.parametrize("aged", [False, True])
def test_changes_of_ignore_files_are_seen(tmp_path: Path, aged: bool) -> None:
    tree(tmp_path, "a/x.md", "a/b/y.md", "c/z.md", ".git/HEAD")
    looking = scanner(tmp_path)
    looking.scan()
    for path, text, expected in (
        (".gitignore", "b/\n", ["a/x.md", "c/z.md"]),
        (".gitignore", "c/\n", ["a/b/y.md", "a/x.md"]),
        ("a/.gitignore", "!/b\n*.md\n", []),
        ("a/.gitignore", "x.md\n", ["a/b/y.md"]),
        ("a/b/.copilotignore", "!z\ny*\n", []),
        (".git/info/exclude", "x.md\n", []),
    ):
        write(tmp_path / path, text)
        if aged:
            age(tmp_path)
        assert found(looking) == expected
    (tmp_path / ".gitignore").unlink()
    shutil.rmtree(tmp_path / "a" / ".gitignore", ignore_errors=True)
    (tmp_path / "a" / ".gitignore").unlink()
    (tmp_path / "a" / "b" / ".copilotignore").unlink()
    assert found(looking) == ["a/b/y.md", "c/z.md"]


# ------------------------------------------------------------------------- what is not followed


def test_links_that_lead_outside_are_left_out_and_told(tmp_path: Path) -> None:
    """WAT-23."""
    tree(tmp_path, "private/secret.md", "docs/a.md", "docs-2/b.md")
    docs = tmp_path / "docs"
    (docs / "h.md").symlink_to("/etc/hostname")
    (docs / "p").symlink_to(tmp_path / "private")
    (docs / "s.md").symlink_to("../private/secret.md")
    (docs / "near.md").symlink_to("../docs-2/b.md")  # a sibling whose name starts alike
    result = scanner(docs).scan()
    assert sorted(result.files) == ["a.md"]
    assert result.problems == tuple(
        (name, "symbolic link that leads outside the root; not followed")
        for name in ("h.md", "near.md", "p", "s.md")
    )


def test_links_inside_are_indexed_once_and_loops_end(tmp_path: Path) -> None:
    tree(tmp_path, "docs/a.md", "docs/sub/b.md")
    (tmp_path / "docs" / "again.md").symlink_to("a.md")
    (tmp_path / "docs" / "copy").symlink_to("sub")
    (tmp_path / "docs" / "loop").symlink_to(".")
    (tmp_path / "docs" / "sub" / "up").symlink_to("../..")
    (tmp_path / "docs" / "self.md").symlink_to("self.md")
    (tmp_path / "docs" / "broken.md").symlink_to("nowhere.md")
    looking = scanner(tmp_path)
    assert found(looking) == ["docs/a.md", "docs/sub/b.md"]
    assert looking.scan().problems == ()


def test_pipes_sockets_devices_and_folders_with_a_documents_name(tmp_path: Path) -> None:
    """WAT-26: none is opened, so the look comes back at once."""
    tree(tmp_path, "a.md", "d.md/inside.md")
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "z.md").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.md"))
        looking = scanner(tmp_path)
        result = looking.scan()
        assert found(looking) == ["a.md", "d.md/inside.md"]
    assert dict(result.problems)["pipe.md"] == "not a regular file"
    assert dict(result.problems)["s.md"] == "not a regular file"


def test_a_document_replaced_by_a_pipe_and_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a.md")
    looking = scanner(tmp_path)
    assert found(looking) == ["a.md"]
    path.unlink()
    os.mkfifo(path)
    assert found(looking) == []
    path.unlink()
    write(path)
    assert found(looking) == ["a.md"]


def test_a_folder_replaced_by_a_link_to_elsewhere(tmp_path: Path) -> None:
    tree(tmp_path, "docs/sub/a.md", "other/b.md")
    looking = scanner(tmp_path / "docs")
    assert found(looking) == ["sub/a.md"]
    shutil.rmtree(tmp_path / "docs" / "sub")
    (tmp_path / "docs" / "sub").symlink_to("../other")
    assert found(looking) == []
    assert list(looking.folders()) == [""]


def test_a_root_behind_a_symlink_keeps_its_path(tmp_path: Path) -> None:
    tree(tmp_path, "real/docs/a.md")
    (tmp_path / "link").symlink_to("real/docs")
    looking = scanner(tmp_path / "link")
    assert found(looking) == ["a.md"]
    (tmp_path / "real" / "docs" / "same.md").symlink_to(tmp_path / "real" / "docs" / "a.md")
    assert found(looking) == ["a.md"]
    assert looking.scan().problems == ()


# ------------------------------------------------------------------------------------------ names


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """WAT-30."""
    for name in (b"caf\xe9.md", b"\xff\xfe/in\x80side.md"):
        path = os.path.join(os.fsencode(tmp_path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"text")
    looking = scanner(tmp_path)
    assert found(looking) == sorted([os.fsdecode(b"caf\xe9.md"), os.fsdecode(b"\xff\xfe/in\x80side.md")])
    write(tmp_path / ".gitignore").write_bytes(b"caf\xe9*\n")
    assert found(looking) == [os.fsdecode(b"\xff\xfe/in\x80side.md")]


def test_names_that_look_alike_stay_apart(tmp_path: Path) -> None:
    """WAT-31."""
    names = [
        "a b.md",
        "a_b.md",
        "a-b.md",
        "a%b.md",
        "a*b.md",
        "A B.md",
        "a\nb.md",
        "[a]b.md",
        "{x}.md",
        "a\\b.md",
        "\u00e9.md",
        "e\u0301.md",
    ]
    assert found(scanner(tree(tmp_path, *names))) == sorted(names)


def test_five_hundred_folders_in_one_another(tmp_path: Path) -> None:
    depth = 500
    document = "d/" * depth + "a.md"
    for level in range(1, depth + 1):
        os.mkdir(tmp_path / ("d/" * level))
    write(tmp_path / document)
    assert scanner(tmp_path).accepts(document)
    assert found(scanner(tmp_path)) == [document]
    assert sum(1 for _ in scanner(tmp_path).folders()) == depth + 1


# ------------------------------------------------------------------------------ what changes


def test_an_edit_of_the_same_length_under_the_old_time(tmp_path: Path) -> None:
    """WAT-15: the time of the last status change shows it."""
    path = write(tmp_path / "a.md", "AAAA")
    looking = scanner(tmp_path)
    before = looking.scan().files["a.md"]
    time.sleep(0.02)
    path.write_text("BBBB")
    os.utime(path, ns=(before.fingerprint.mtime_ns, before.fingerprint.mtime_ns))
    after = looking.scan().files["a.md"]
    assert after.fingerprint.mtime_ns == before.fingerprint.mtime_ns
    assert after.fingerprint.ctime_ns != before.fingerprint.ctime_ns


def test_an_edit_in_the_same_tick_is_read_again(tmp_path: Path) -> None:
    """WAT-15 where no time shows it: whatever was read just after a write is read once more."""
    write(tmp_path / "a.md", "AAAA")
    looking = scanner(tmp_path)
    result = looking.scan()
    read_ns = time.time_ns()
    known = IndexedFile(1, "a.md", result.files["a.md"].fingerprint, "hash", read_ns)
    assert plan({"a.md": known}, looking.scan(), now_ns=time.time_ns()) == [
        Update(known, result.files["a.md"])
    ]


def test_another_file_of_the_same_size_with_an_old_time(tmp_path: Path) -> None:
    """WAT-16."""
    write(tmp_path / "a.md", "AAAA")
    looking = scanner(tmp_path)
    before = looking.scan().files["a.md"]
    other = write(tmp_path / "other.txt", "BBBB")
    os.utime(other, ns=(PAST_NS, PAST_NS))
    os.replace(other, tmp_path / "a.md")
    assert looking.scan().files["a.md"] != before


def test_backup_rename_and_write_anew(tmp_path: Path) -> None:
    """WAT-02 at every point between the steps."""
    path = write(tmp_path / "d.md", "old")
    looking = scanner(tmp_path)
    assert found(looking) == ["d.md"]
    path.rename(tmp_path / "d.md~")
    assert looking.scan().state is RootState.EMPTIED
    path.write_text("new")
    assert found(looking) == ["d.md"]
    (tmp_path / "d.md~").unlink()
    assert found(looking) == ["d.md"]


def test_folders_moved_in_out_and_around(tmp_path: Path) -> None:
    """WAT-04, WAT-05, WAT-32."""
    docs = tree(tmp_path, "docs/rep/rep/f.md", "docs/x.md", "out/box/sub/a.md") / "docs"
    looking = scanner(docs)
    assert found(looking) == ["rep/rep/f.md", "x.md"]
    (docs / "rep").rename(docs / "new")
    assert found(looking) == ["new/rep/f.md", "x.md"]
    (tmp_path / "out" / "box").rename(docs / "box")
    assert found(looking) == ["box/sub/a.md", "new/rep/f.md", "x.md"]
    (docs / "box").rename(tmp_path / "gone")
    write(tmp_path / "gone" / "sub" / "a.md", "edited outside")
    assert found(looking) == ["new/rep/f.md", "x.md"]
    (docs / "new").rename(docs / "spare")
    (docs / "spare" / "rep").rename(docs / "new")
    assert found(looking) == ["new/f.md", "x.md"]


# ---------------------------------------------------------------------------- roots and permissions


def test_the_states_of_a_root(tmp_path: Path) -> None:
    """WAT-08."""
    docs = tmp_path / "docs"
    looking = scanner(docs)
    assert looking.scan().state is RootState.MISSING
    tree(docs, *(f"{index}.md" for index in range(20)))
    assert looking.scan().state is RootState.OK
    docs.rename(tmp_path / "away")
    assert looking.scan().state is RootState.MISSING
    docs.mkdir()  # the mount point without its mount
    for full in (False, True):
        assert looking.scan(full).state is RootState.EMPTIED
        assert looking.scan(full, known_count=0).state is RootState.OK
    docs.rmdir()
    (tmp_path / "away").rename(docs)
    result = looking.scan()
    assert result.state is RootState.OK
    assert len(result.files) == 20
    shutil.rmtree(docs)
    write(docs)
    assert looking.scan().state is RootState.MISSING


def test_a_new_scanner_is_told_how_many_documents_were_known(tmp_path: Path) -> None:
    assert scanner(tmp_path).scan().state is RootState.OK
    assert scanner(tmp_path).scan(known_count=3).state is RootState.EMPTIED


UNREADABLE = """
import os, pathlib, sys
from copilotd.ingest.cookie import Cookies
from copilotd.ingest.plan import plan
from copilotd.ingest.scan import Changes, Scanner
from copilotd.ingest.watch import Watcher
from copilotd.types import IndexedFile, Root, RootState

os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
top = pathlib.Path(sys.argv[1])
looking = Scanner(Root(1, str(top)), suffixes=[".md"], max_file_bytes=1000)

def catalog(result):
    return {path: IndexedFile(1, path, file.fingerprint, "hash", 2**62) for path, file in result.files.items()}

for name in ("a.md", "secret/s.md", "secret/deep/t.md"):
    (top / name).parent.mkdir(parents=True, exist_ok=True)
    (top / name).write_text("text")
before = looking.scan()
assert len(before.files) == 3

for mode in (0o000, 0o600, 0o100):  # nothing; names without their files; files without their names
    (top / "secret").chmod(mode)
    for full in (False, False, True):
        result = looking.scan(full)
        assert sorted(result.files) == ["a.md"], (oct(mode), result)
        assert "secret" in result.unreadable_dirs, result
        assert any(path == "secret" for path, _ in result.problems), result
        assert plan(catalog(before), result, now_ns=2**61) == [], result
        assert list(looking.folders())[:1] == [""]
    (top / "secret").chmod(0o755)
    result = looking.scan()
    assert result.files.keys() == before.files.keys(), result
    assert not result.problems and not result.unreadable_dirs
(top / "a.md").chmod(0)  # a file that cannot be read is still listed: reading it tells why
result = looking.scan()
assert "a.md" in result.files
assert result.files["a.md"] != before.files["a.md"]  # so that giving it back is a change again
top.chmod(0)
assert looking.scan().state is RootState.UNREADABLE
top.chmod(0o311)
assert looking.scan(known_count=3).state is RootState.UNREADABLE
assert plan(catalog(before), looking.scan(known_count=3), now_ns=2**61) == []
top.chmod(0o755)
assert looking.scan().files.keys() == before.files.keys()
(top / ".gitignore").write_text("secret/")
(top / ".gitignore").chmod(0)
result = looking.scan()
assert result.problems == ((".gitignore", "ignore file cannot be read: Permission denied"),), result
assert len(result.files) == 3
(top / ".gitignore").chmod(0o644)
assert sorted(looking.scan().files) == ["a.md"]
"""


@as_root
def test_unreadable_folders_files_and_roots_are_tried_again(tmp_path: Path) -> None:
    """WAT-08, WAT-12, WAT-13, as a user whom permissions hold."""
    run_as_nobody(UNREADABLE)


def run_as_nobody(program: str) -> None:
    nobody = 65534
    top = Path(tempfile.mkdtemp())  # pytest's own folders cannot be entered by others
    try:
        os.chown(top, nobody, nobody)
        ran = subprocess.run(
            [sys.executable, "-c", program, str(top), str(nobody)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(top)
    assert ran.returncode == 0, ran.stderr


# ------------------------------------------------------------------------ whatever happens in between

FOLDERS = ["", "a", "b", "a/a", "a/b", "b/c", "node_modules"]
NAMES = ["x.md", "y.md", "z.txt", "code.py", ".hidden.md"]
IGNORED = ["", "x.md\n", "a/\n", "/b\n", "*.md\n!y.md\n", "**/c/**\n"]


def test_a_look_at_named_changes_costs_no_more_than_they(tmp_path: Path) -> None:
    tree(tmp_path, *(f"{folder}/{number}.md" for folder in "abc" for number in range(20)))
    looks = settled_scanner(tmp_path)
    before = looks.scan().files
    assert looks.scan(changes=Changes()).stats == {"stats": 0, "listings": 0}
    write(tmp_path / "b" / "7.md", "edited")
    write(tmp_path / "c" / "7.md", "edited unseen")
    result = looks.scan(changes=Changes(frozenset({"b/7.md"})))
    assert result.stats == {"stats": 2, "listings": 0}
    assert {path for path, file in result.files.items() if file != before[path]} == {"b/7.md"}
    assert {path for path, file in looks.scan().files.items() if file != before[path]} == {"b/7.md", "c/7.md"}


def test_a_new_folder_that_is_named_is_taken_in_whole(tmp_path: Path) -> None:
    tree(tmp_path, "a/0.md")
    looks = settled_scanner(tmp_path)
    looks.scan()
    tree(tmp_path, "new/deep/1.md", "new/2.md")
    changes = Changes(folders=frozenset({"new"}))
    assert sorted(looks.scan(changes=changes).files) == ["a/0.md", "new/2.md", "new/deep/1.md"]
    shutil.rmtree(tmp_path / "new")
    assert sorted(looks.scan(changes=changes).files) == ["a/0.md"]


CLOSED = """
import os, sys
from pathlib import Path
from copilotd.ingest.scan import Changes, Scanner
from copilotd.types import Root

top, user = Path(sys.argv[1]), int(sys.argv[2])
os.setgid(user)
os.setuid(user)
for path in (top / "a" / "0.md", top / "b" / "1.md"):
    path.parent.mkdir()
    path.write_text("text")
looks = Scanner(Root(1, str(top)), suffixes=[".md"], max_file_bytes=1000)
assert len(looks.scan().files) == 2
(top / "b").chmod(0o400)
for changes in (Changes(folders=frozenset({"b"})), Changes()):
    assert looks.scan(changes=changes).unreadable_dirs == ("b",)
(top / "b").chmod(0o700)
assert len(looks.scan(changes=Changes(folders=frozenset({"b"}))).files) == 2
"""


@as_root
def test_a_folder_that_stays_closed_stays_unreadable_when_nothing_is_named() -> None:
    run_as_nobody(CLOSED)


class ChangingTree(RuleBasedStateMachine):
    """Any changes between two looks: the incremental look equals one from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.outside = Path(tempfile.mkdtemp())
        self.top = self.outside / "top"
        self.top.mkdir()
        self.ahead_ns = 0
        self.scanner = Scanner(
            Root(1, str(self.top)),
            suffixes=[".md", ".txt"],
            max_file_bytes=MAX_BYTES,
            clock_ns=lambda: time.time_ns() + self.ahead_ns,
        )

    def teardown(self) -> None:
        shutil.rmtree(self.outside)

    @rule(
        folder=st.sampled_from(FOLDERS), name=st.sampled_from(NAMES), text=st.sampled_from(["", "one", "two"])
    )
    def write(self, folder: str, name: str, text: str) -> None:
        path = self.top / folder / name
        blocked = any(parent.is_file() or parent.is_symlink() for parent in path.parents)
        if not blocked and not path.is_dir() and not path.is_fifo():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    @rule(
        folder=st.sampled_from(FOLDERS),
        name=st.sampled_from([".gitignore", ".copilotignore"]),
        text=st.sampled_from(IGNORED),
    )
    def write_ignore_file(self, folder: str, name: str, text: str) -> None:
        self.write(folder, name, text)

    @rule(folder=st.sampled_from(["", "a", "b"]))
    def make_repository(self, folder: str) -> None:
        self.write(f"{folder}/.git/info".removeprefix("/"), "exclude", "y.md\n")

    @rule(
        folder=st.sampled_from(FOLDERS),
        name=st.sampled_from([*NAMES, ".gitignore", ".copilotignore", ".git"]),
    )
    def delete(self, folder: str, name: str) -> None:
        path = self.top / folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    @rule(folder=st.sampled_from(FOLDERS[1:]))
    def delete_folder(self, folder: str) -> None:
        shutil.rmtree(self.top / folder, ignore_errors=True)

    @rule(source=st.sampled_from(FOLDERS[1:]), goal=st.sampled_from(FOLDERS[1:]), aside=st.booleans())
    def move_folder(self, source: str, goal: str, aside: bool) -> None:
        from_path = self.top / source
        to_path = self.outside / goal.replace("/", "-") if aside else self.top / goal
        if (
            from_path.is_dir()
            and not to_path.exists()
            and to_path.parent.is_dir()
            and from_path not in to_path.parents
        ):
            from_path.rename(to_path)

    @rule(name=st.sampled_from(["a", "b", "a-a"]), goal=st.sampled_from(FOLDERS[1:]))
    def bring_back(self, name: str, goal: str) -> None:
        if (
            (self.outside / name).is_dir()
            and not (self.top / goal).exists()
            and (self.top / goal).parent.is_dir()
        ):
            (self.outside / name).rename(self.top / goal)

    @rule(
        source=st.sampled_from(NAMES),
        goal=st.sampled_from(NAMES),
        folder=st.sampled_from(FOLDERS),
        other=st.sampled_from(FOLDERS),
    )
    def rename(self, source: str, goal: str, folder: str, other: str) -> None:
        if (
            (self.top / folder / source).is_file()
            and (self.top / other).is_dir()
            and not (self.top / other / goal).is_dir()
        ):
            (self.top / folder / source).replace(self.top / other / goal)

    @rule(
        folder=st.sampled_from(FOLDERS),
        kind=st.sampled_from(["link in", "link out", "pipe", "folder", "marker"]),
    )
    def make_odd_entry(self, folder: str, kind: str) -> None:
        parent = self.top / folder
        path = parent / ("pyvenv.cfg" if kind == "marker" else "x.md")
        if not parent.is_dir() or os.path.lexists(path):
            return
        match kind:
            case "link in":
                path.symlink_to(self.top / "y.md")
            case "link out":
                path.symlink_to(self.outside)
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case _:
                path.write_text("home = /usr")

    @rule(folder=st.sampled_from(FOLDERS), name=st.sampled_from(["", *NAMES]))
    def set_old_time(self, folder: str, name: str) -> None:
        if (self.top / folder / name).exists():
            os.utime(self.top / folder / name, ns=(PAST_NS, PAST_NS))

    @rule()
    def replace_the_root(self) -> None:
        if not (self.outside / "spare").exists():
            (self.outside / "spare").mkdir()
        self.top.rename(self.outside / "gone")
        (self.outside / "spare").rename(self.top)
        (self.outside / "gone").rename(self.outside / "spare")

    @rule()
    def let_listings_settle(self) -> None:
        """Stands for two seconds of quiet: what was listed before is trusted from here on."""
        self.ahead_ns = 10_000_000_000
        self.scanner.scan()
        self.ahead_ns = 0
        time.sleep(0.012)  # longer than a tick of the kernel's clock

    @invariant()
    def an_incremental_look_equals_one_from_scratch(self) -> None:
        result = self.scanner.scan()
        fresh = scanner(self.top).scan(known_count=1)
        assert result.files == fresh.files
        assert result.problems == fresh.problems
        assert list(self.scanner.folders()) == list(scanner(self.top).folders())
        assert all(self.scanner.accepts(path) for path in result.files)


class WatchedTree(ChangingTree):
    """The same, looked at only where a watcher was told that something changed."""

    def __init__(self) -> None:
        super().__init__()
        self.watcher = Watcher(lambda _: None, cookies=Cookies(self.outside / "cookies"))
        self.watcher.add(self.scanner.root, self.scanner)
        self.watcher.start()

    def teardown(self) -> None:
        self.watcher.close()
        super().teardown()

    @rule()
    def let_listings_settle(self) -> None:
        self.ahead_ns = 10_000_000_000
        self.scanner.scan(changes=self.watcher.changes(1, 60))
        self.ahead_ns = 0
        time.sleep(0.012)

    @invariant()
    def an_incremental_look_equals_one_from_scratch(self) -> None:
        changes = self.watcher.changes(1, 60)
        result = self.scanner.scan(changes=changes)
        fresh = scanner(self.top).scan(known_count=1)
        assert result.files == fresh.files
        assert result.problems == fresh.problems


TestChangingTree = ChangingTree.TestCase
TestWatchedTree = WatchedTree.TestCase
TestWatchedTree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestChangingTree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)

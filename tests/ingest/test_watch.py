from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.shared import REPOSITORY

from copilotd.ingest.cookie import Cookies
from copilotd.ingest.events import Change, Event, TreeSource
from copilotd.ingest.scan import Changes, Scanner
from copilotd.ingest.watch import Watcher
from copilotd.types import Root

LINUX_ONLY = pytest.mark.skipif(not Path("/proc/self/fdinfo").is_dir(), reason="inotify is Linux's")


class Wakes:
    """Collects wakes, and lets a test wait for the next one."""

    def __init__(self) -> None:
        self.times: list[tuple[int, float]] = []
        self._came = threading.Condition()

    def __call__(self, root_id: int) -> None:
        with self._came:
            self.times.append((root_id, time.monotonic()))
            self._came.notify_all()

    def count(self, root_id: int = 1) -> int:
        return sum(1 for woken, _ in self.times if woken == root_id)

    def wait_beyond(self, count: int, root_id: int = 1, seconds: float = 60.0) -> bool:
        with self._came:
            return self._came.wait_for(lambda: self.count(root_id) > count, seconds)


class Watching:
    """A watcher over one root, ready when it has set up its watches and gone quiet."""

    def __init__(self, watcher: Watcher, wakes: Wakes, scanner: Scanner) -> None:
        self.watcher = watcher
        self.wakes = wakes
        self.scanner = scanner

    def wakes_on(self, action: Callable[[], object], seconds: float = 60.0) -> bool:
        """Whether ``action`` leads to a wake; leaves the watcher quiet."""
        self.settle()
        before = self.wakes.count()
        action()
        woken = self.wakes.wait_beyond(before, seconds=seconds)
        self.scanner.scan()
        return woken

    def settle(self, quiet_s: float = 0.35) -> None:
        while not self.wakes.times or time.monotonic() - self.wakes.times[-1][1] < quiet_s:
            time.sleep(0.02)

    def sees(self, *paths: str) -> bool:
        return sorted(self.scanner.scan().files) == sorted(paths)


def make_scanner(path: Path, root_id: int = 1) -> Scanner:
    return Scanner(Root(root_id, str(path)), suffixes=[".md", ".txt"], max_file_bytes=1_000_000)


def write(path: Path, text: str = "text\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def inotify_watches() -> int:
    """Counts this process's inotify watches, as the kernel lists them."""
    count = 0
    for entry in os.listdir("/proc/self/fdinfo"):
        try:
            count += Path(f"/proc/self/fdinfo/{entry}").read_text().count("inotify wd:")
        except FileNotFoundError:
            continue
    return count


@pytest.fixture
def start() -> Iterator[Callable[..., Watching]]:
    watchers: list[Watcher] = []

    def make(path: Path, **options: object) -> Watching:
        wakes = Wakes()
        poll = bool(options.pop("poll", False))
        watcher = Watcher(wakes, **options)  # type: ignore[arg-type]
        watchers.append(watcher)
        scanner = make_scanner(path)
        watcher.add(scanner.root, scanner, poll=poll)
        watcher.start()
        watching = Watching(watcher, wakes, scanner)
        assert wakes.wait_beyond(0)
        scanner.scan()
        return watching

    yield make
    for watcher in watchers:
        watcher.close()


def test_writing_creating_renaming_deleting_and_chmod_wake(
    start: Callable[..., Watching], tmp_path: Path
) -> None:
    document = tmp_path / "guide" / "a.md"
    write(document)
    watching = start(tmp_path)
    assert watching.watcher.health(1) == "events"
    assert watching.wakes_on(lambda: document.write_text("new"))
    assert watching.wakes_on(lambda: write(tmp_path / "guide" / "b.md"))
    assert watching.wakes_on(lambda: document.rename(tmp_path / "c.md"))
    assert watching.wakes_on((tmp_path / "c.md").unlink)
    assert watching.wakes_on(lambda: (tmp_path / "guide" / "b.md").chmod(0o600))
    assert watching.sees("guide/b.md")


def test_reading_and_what_is_no_document_do_not_wake(start: Callable[..., Watching], tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "drafts/\nsecret.md\n")
    for name in ("a.md", "secret.md", "drafts/x.md", "node_modules/p/README.md", ".hidden/x.md"):
        write(tmp_path / name)
    watching = start(tmp_path)

    def noise() -> None:
        (tmp_path / "a.md").read_text()
        list(os.scandir(tmp_path))
        for name in ("code.py", "a.md~", ".a.md.swp", "#a.md#", "4913", "x.tmp", "secret.md", "drafts/y.md"):
            write(tmp_path / name)
        write(tmp_path / "node_modules" / "p" / "CHANGES.md")
        write(tmp_path / ".hidden" / "y.md")

    assert not watching.wakes_on(noise, seconds=0.6)


def test_an_atomic_save_wakes_and_the_document_keeps_its_name(
    start: Callable[..., Watching], tmp_path: Path
) -> None:
    write(tmp_path / "d.md", "old")
    watching = start(tmp_path)

    def save() -> None:
        write(tmp_path / ".d.md.tmp123", "new")
        os.replace(tmp_path / ".d.md.tmp123", tmp_path / "d.md")

    assert watching.wakes_on(save)
    assert watching.sees("d.md")


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.3])
def test_backup_and_rename_leaves_the_document_under_its_name(
    start: Callable[..., Watching], tmp_path: Path, pause_s: float
) -> None:
    """WAT-02."""
    document = tmp_path / "d.md"
    write(document, "old")
    watching = start(tmp_path)

    def save() -> None:
        document.rename(tmp_path / "d.md~")
        time.sleep(pause_s)
        document.write_text("new text")
        time.sleep(pause_s)
        (tmp_path / "d.md~").unlink()

    assert watching.wakes_on(save)
    watching.settle()
    assert watching.sees("d.md")
    assert watching.scanner.scan().files["d.md"].fingerprint.size == len("new text")


def test_a_folder_moved_in_is_watched_below(start: Callable[..., Watching], tmp_path: Path) -> None:
    """WAT-04."""
    docs = tmp_path / "docs"
    write(docs / "x.md")
    write(tmp_path / "out" / "box" / "sub" / "a.md")
    watching = start(docs)
    assert watching.wakes_on(lambda: (tmp_path / "out" / "box").rename(docs / "box"))
    assert watching.sees("x.md", "box/sub/a.md")
    assert watching.wakes_on(lambda: write(docs / "box" / "sub" / "a.md", "edited"))
    assert watching.wakes_on(lambda: write(docs / "box" / "sub" / "b.md"))
    assert watching.sees("x.md", "box/sub/a.md", "box/sub/b.md")


def test_a_folder_moved_out_is_gone_and_no_longer_watched(
    start: Callable[..., Watching], tmp_path: Path
) -> None:
    """WAT-05."""
    docs, elsewhere = tmp_path / "docs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("x.md", "box/a.md", "box/deep/b.md"):
        write(docs / name)
    watching = start(docs)
    assert watching.wakes_on(lambda: (docs / "box").rename(elsewhere / "box"))
    assert watching.sees("x.md")
    assert not watching.wakes_on(lambda: write(elsewhere / "box" / "a.md", "edited outside"), seconds=0.5)
    assert not watching.wakes_on(lambda: write(elsewhere / "box" / "deep" / "b.md", "edited"), seconds=0.5)
    assert watching.sees("x.md")


def test_a_renamed_folder_whose_name_occurs_twice(start: Callable[..., Watching], tmp_path: Path) -> None:
    """WAT-32."""
    write(tmp_path / "rep" / "rep" / "f.md")
    watching = start(tmp_path)
    assert watching.wakes_on(lambda: (tmp_path / "rep").rename(tmp_path / "new"))
    assert watching.sees("new/rep/f.md")
    assert watching.wakes_on(lambda: write(tmp_path / "new" / "rep" / "f.md", "edited"))


def test_new_folders_that_are_filled_at_once(start: Callable[..., Watching], tmp_path: Path) -> None:
    watching = start(tmp_path)

    def fill() -> None:
        for index in range(30):
            write(tmp_path / f"d{index}" / "deep" / "er" / "f.md")

    assert watching.wakes_on(fill)
    watching.settle()
    assert len(watching.scanner.scan().files) == 30
    for index in (0, 29):
        assert watching.wakes_on(partial(write, tmp_path / f"d{index}" / "deep" / "er" / "f.md", "new"))


@LINUX_ONLY
def test_ignored_folders_get_no_watch(start: Callable[..., Watching], tmp_path: Path) -> None:
    """WAT-29."""
    docs = tmp_path / "docs"
    write(docs / ".gitignore", "custom-out/\n")
    for name in ("node_modules/p/README.md", ".git/x.md", "custom-out/deep/y.md", ".venv/z.md", "docs/a.md"):
        write(docs / name)
    before = inotify_watches()
    watching = start(docs)
    assert eventually(lambda: inotify_watches() - before == 2)  # the root and docs/
    assert watching.sees("docs/a.md")
    watching.watcher.remove(1)
    assert eventually(lambda: inotify_watches() == before)


@LINUX_ONLY
def test_a_changed_ignore_file_moves_the_watches(start: Callable[..., Watching], tmp_path: Path) -> None:
    write(tmp_path / "out" / "y.md")
    before = inotify_watches()
    watching = start(tmp_path)
    assert eventually(lambda: inotify_watches() - before == 2)
    assert watching.wakes_on(lambda: write(tmp_path / ".copilotignore", "out/\n"))
    assert eventually(lambda: inotify_watches() - before == 1)
    assert watching.wakes_on((tmp_path / ".copilotignore").unlink)
    assert eventually(lambda: inotify_watches() - before == 2)
    assert watching.wakes_on(lambda: write(tmp_path / "out" / "y.md", "edited"))


def test_a_root_deleted_and_made_again(start: Callable[..., Watching], tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.md")
    watching = start(docs)
    assert watching.wakes_on(lambda: shutil.rmtree(docs))
    assert eventually(lambda: watching.watcher.health(1) == f"polling: {docs} is not there")
    assert watching.wakes_on(lambda: write(docs / "b.md"))
    assert eventually(lambda: watching.watcher.health(1) == "events")
    assert watching.wakes_on(lambda: write(docs / "sub" / "c.md"))
    assert watching.sees("b.md", "sub/c.md")


def test_a_root_replaced_by_another_folder(start: Callable[..., Watching], tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.md")
    write(tmp_path / "other" / "b.md")
    watching = start(docs)

    def swap() -> None:
        docs.rename(tmp_path / "old")
        (tmp_path / "other").rename(docs)

    assert watching.wakes_on(swap)
    assert eventually(lambda: watching.wakes_on(lambda: write(docs / "b.md", str(time.time())), seconds=0.5))
    assert not watching.wakes_on(lambda: write(tmp_path / "old" / "a.md", "outside"), seconds=0.5)


def test_a_root_that_is_absent_at_the_start(start: Callable[..., Watching], tmp_path: Path) -> None:
    docs = tmp_path / "later" / "docs"
    watching = start(docs)
    assert watching.watcher.health(1).startswith("polling: ")
    write(docs / "a.md")
    assert eventually(lambda: watching.watcher.health(1) == "events")
    assert watching.wakes_on(lambda: write(docs / "a.md", "edited"))


def test_a_root_on_a_path_through_a_symlink(start: Callable[..., Watching], tmp_path: Path) -> None:
    write(tmp_path / "real" / "docs" / "a.md")
    write(tmp_path / "real2" / "docs" / "b.md")
    link = tmp_path / "link"
    link.symlink_to("real")
    for docs in (link / "docs", tmp_path / "direct"):
        if docs.name == "direct":
            docs.symlink_to("real/docs")
        watching = start(docs)
        assert watching.watcher.health(1) == "events"
        assert watching.wakes_on(partial(write, docs / "a.md", str(docs)))
    watching = start(link / "docs")
    link.unlink()
    link.symlink_to("real2")
    assert eventually(lambda: watching.sees("b.md"))
    assert eventually(
        lambda: watching.wakes_on(lambda: write(link / "docs" / "b.md", str(time.time())), seconds=0.5)
    )


def test_a_burst_is_gathered_and_a_steady_stream_neither_starves_nor_spins(
    start: Callable[..., Watching], tmp_path: Path
) -> None:
    """WAT-21 at the watcher: two seconds of writes every 50 ms."""
    watching = start(tmp_path)
    watching.settle()
    before, began = watching.wakes.count(), time.monotonic()
    while time.monotonic() - began < 2.2:
        write(tmp_path / "noise.md", str(time.time()))
        time.sleep(0.03)
    during = [when - began for _, when in watching.wakes.times[before:]]
    assert during
    assert during[0] < 1.6
    assert len(during) <= 8


def test_two_namespaces_on_one_folder_are_woken_both(tmp_path: Path) -> None:
    write(tmp_path / "a.md")
    wakes = Wakes()
    watcher = Watcher(wakes)
    watcher.start()
    for root_id in (1, 2):
        scanner = make_scanner(tmp_path, root_id)
        watcher.add(scanner.root, scanner)
    assert wakes.wait_beyond(0, 1)
    assert wakes.wait_beyond(0, 2)
    time.sleep(0.3)
    before = (wakes.count(1), wakes.count(2))
    write(tmp_path / "a.md", "edited")
    assert wakes.wait_beyond(before[0], 1)
    assert wakes.wait_beyond(before[1], 2)
    watcher.remove(1)
    time.sleep(0.3)
    before = (wakes.count(1), wakes.count(2))
    write(tmp_path / "a.md", "again")
    assert wakes.wait_beyond(before[1], 2)
    assert wakes.count(1) == before[0]
    assert watcher.health(1) == "failed: not a watched root"
    watcher.close()


class LimitedSource:
    """A source with a limit, as the kernel has one; otherwise silent."""

    recursive = False

    def __init__(self, limit: int, error: int = errno.ENOSPC) -> None:
        self.limit = limit
        self.error = error
        self.tokens: set[int] = set()
        self.last = 0
        self.dead = False
        self.closed = False

    def watch(self, path: str, *, follow: bool) -> int:
        if len(self.tokens) >= self.limit:
            raise OSError(self.error, os.strerror(self.error))
        self.last += 1
        self.tokens.add(self.last)
        return self.last

    def unwatch(self, tokens: Collection[int]) -> None:
        self.tokens.difference_update(tokens)

    def is_alive(self) -> bool:
        return not self.dead

    def close(self) -> None:
        self.closed = True


def test_the_watch_limit_turns_a_root_to_polling_and_says_how_to_raise_it(
    start: Callable[..., Watching], tmp_path: Path
) -> None:
    """WAT-09."""
    for index in range(60):
        write(tmp_path / f"d{index}" / "a.md")
    source = LimitedSource(20)
    watching = start(tmp_path, open_source=lambda deliver: source, poll_s=0.1)
    health = watching.watcher.health(1)
    assert health.startswith("polling: the system's limit")
    assert "sudo sysctl fs.inotify.max_user_watches=" in health
    assert not source.tokens  # what does not suffice is given back to other programs
    count = watching.wakes.count()
    assert watching.wakes.wait_beyond(count + 3)


def test_other_roots_keep_their_watches_at_the_limit(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    write(small / "a.md")
    for index in range(30):
        write(large / f"d{index}" / "a.md")
    source = LimitedSource(10)
    wakes = Wakes()
    watcher = Watcher(wakes, open_source=lambda deliver: source)
    for root_id, path in ((1, small), (2, large)):
        scanner = make_scanner(path, root_id)
        watcher.add(scanner.root, scanner)
    watcher.start()
    assert wakes.wait_beyond(0, 2)
    assert watcher.health(1) == "events"
    assert watcher.health(2).startswith("polling: ")
    watcher.close()


def test_no_inotify_instance_left_turns_to_polling(start: Callable[..., Watching], tmp_path: Path) -> None:
    def refuse(deliver: Callable[[Event], None]) -> LimitedSource:
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    watching = start(tmp_path, open_source=refuse, poll_s=0.1)
    assert "fs.inotify.max_user_instances" in watching.watcher.health(1)
    count = watching.wakes.count()
    assert watching.wakes.wait_beyond(count + 2)


def test_a_dead_source_is_replaced(start: Callable[..., Watching], tmp_path: Path) -> None:
    sources: list[LimitedSource] = []

    def open_another(deliver: Callable[[Event], None]) -> LimitedSource:
        sources.append(LimitedSource(100))
        return sources[-1]

    watching = start(tmp_path, open_source=open_another)
    count = watching.wakes.count()
    sources[0].dead = True
    assert watching.wakes.wait_beyond(count)
    assert sources[0].closed
    assert len(sources) == 2
    assert sources[1].tokens
    assert watching.watcher.health(1) == "events"


def test_an_overflowed_queue_rearms_and_wakes(start: Callable[..., Watching], tmp_path: Path) -> None:
    write(tmp_path / "sub" / "a.md")
    source = LimitedSource(100)
    delivered: list[Callable[[Event], None]] = []

    def open_it(deliver: Callable[[Event], None]) -> LimitedSource:
        delivered.append(deliver)
        return source

    watching = start(tmp_path, open_source=open_it)
    assert watching.wakes_on(lambda: delivered[0](Event(1, "", True, Change.OVERFLOW)))
    assert source.tokens == {3, 4}


def test_a_polled_root_is_woken_by_the_clock(start: Callable[..., Watching], tmp_path: Path) -> None:
    watching = start(tmp_path, poll=True, poll_s=0.1)
    assert watching.watcher.health(1) == "polling: as asked for"
    count = watching.wakes.count()
    assert watching.wakes.wait_beyond(count + 3)


def test_a_tree_source_serves_systems_with_recursive_watches(
    start: Callable[..., Watching], tmp_path: Path
) -> None:
    """What macOS uses (FSEvents), run here over the recursive observer watchdog has on this system."""
    docs = tmp_path / "docs"
    write(docs / "sub" / "a.md")
    write(docs / ".gitignore", "out/\n")
    write(docs / "out" / "o.md")
    link = tmp_path / "link"
    link.symlink_to("docs")
    watching = start(link, open_source=TreeSource)
    assert watching.watcher.health(1) == "events"
    assert watching.wakes_on(lambda: write(docs / "sub" / "a.md", "edited"))
    assert watching.wakes_on(lambda: (docs / "sub").rename(docs / "new"))
    assert watching.wakes_on(lambda: write(docs / "new" / "deep" / "b.md"))
    assert not watching.wakes_on(lambda: write(docs / "out" / "o.md", "edited"), seconds=0.5)
    assert not watching.wakes_on((docs / "sub" / "a.md").exists, seconds=0.5)
    assert watching.wakes_on(lambda: shutil.rmtree(docs))
    write(docs / "again.md")
    assert eventually(lambda: watching.watcher.health(1) == "events")
    assert watching.wakes_on(lambda: write(docs / "again.md", "edited"))


def test_a_failing_wake_does_not_end_the_watch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls = Wakes()

    def fail(root_id: int) -> None:
        calls(root_id)
        raise RuntimeError("the engine is in trouble")

    watcher = Watcher(fail)
    scanner = make_scanner(tmp_path)
    watcher.add(scanner.root, scanner)
    watcher.start()
    assert calls.wait_beyond(0)
    write(tmp_path / "a.md")
    assert calls.wait_beyond(1)
    assert watcher.health(1) == "events"
    watcher.close()
    assert "waking root 1 failed" in caplog.text


def test_a_thread_that_dies_is_started_again_and_watches_everything_anew(tmp_path: Path) -> None:
    wakes = Wakes()
    deaths: list[str] = []

    def die_once(root_id: int) -> None:
        if not deaths:
            raise SystemExit
        wakes(root_id)

    watcher = Watcher(die_once, on_death=deaths.append)
    scanner = make_scanner(tmp_path)
    watcher.add(scanner.root, scanner)
    watcher.start()
    # The root is woken once more, since nobody knows what was lost.
    assert wakes.wait_beyond(0)
    assert deaths == ["The watcher thread failed (SystemExit) and was started again."]
    before = wakes.count()
    write(tmp_path / "below" / "a.md")
    assert wakes.wait_beyond(before)
    assert watcher.health(1) == "events"
    watcher.close()


@LINUX_ONLY
def test_close_is_quick_idempotent_and_leaves_nothing(tmp_path: Path) -> None:
    for index in range(50):
        write(tmp_path / f"d{index}" / "a.md")
    before, threads = inotify_watches(), threading.active_count()
    wakes = Wakes()
    watcher = Watcher(wakes)
    scanner = make_scanner(tmp_path)
    watcher.start()
    watcher.start()
    watcher.add(scanner.root, scanner)
    assert wakes.wait_beyond(0)
    assert inotify_watches() - before == 51
    began = time.monotonic()
    watcher.close()
    watcher.close()
    assert time.monotonic() - began < 30
    assert inotify_watches() == before
    assert threading.active_count() == threads
    Watcher(wakes).close()


BECOMES_READABLE = """
import os, pathlib, sys, threading
from copilotd.ingest.scan import Changes, Scanner
from copilotd.ingest.watch import Watcher
from copilotd.types import Root

os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
top = pathlib.Path(sys.argv[1])
(top / "secret").mkdir()
(top / "secret").chmod(0)
scanner = Scanner(Root(1, str(top)), suffixes=[".md"], max_file_bytes=1000)
woken = threading.Semaphore(0)
watcher = Watcher(lambda root_id: woken.release())
watcher.add(scanner.root, scanner)
watcher.start()
assert woken.acquire(timeout=60)
assert watcher.health(1) == "events"
assert scanner.scan().unreadable_dirs == ("secret",)
(top / "secret").chmod(0o755)
assert woken.acquire(timeout=60)
(top / "secret" / "s.md").write_text("hi")
assert woken.acquire(timeout=60)
assert list(scanner.scan().files) == ["secret/s.md"]
watcher.close()
"""


@LINUX_ONLY
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root, whom permissions don't hold")
def test_an_unreadable_folder_that_becomes_readable_is_watched() -> None:
    """WAT-12, as a user whom permissions hold."""
    nobody = 65534
    top = Path(tempfile.mkdtemp())  # pytest's own folders cannot be entered by others
    try:
        os.chown(top, nobody, nobody)
        ran = subprocess.run(
            [sys.executable, "-c", BECOMES_READABLE, str(top), str(nobody)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(top)
    assert ran.returncode == 0, ran.stderr


# ------------------------------------------------------------------------------------ what has changed


@pytest.fixture
def cookies(tmp_path_factory: pytest.TempPathFactory) -> Cookies:
    return Cookies(tmp_path_factory.mktemp("index") / "cookies")


@LINUX_ONLY
def test_changes_are_unknown_first_and_then_all_that_happened(
    start: Callable[..., Watching], tmp_path: Path, cookies: Cookies
) -> None:
    for name in "abc":
        write(tmp_path / "sub" / f"{name}.md")
    watcher = start(tmp_path, cookies=cookies).watcher
    assert watcher.changes(1, 60) is None
    assert watcher.changes(1, 60) == Changes()
    write(tmp_path / "sub" / "a.md", "edited")
    write(tmp_path / "sub" / "ignored.bin")
    (tmp_path / "sub" / "b.md").unlink()
    write(tmp_path / "new" / "deep" / "c.md")
    changes = watcher.changes(1, 60)
    assert changes is not None
    assert {"sub/a.md", "sub/b.md"} <= changes.files
    assert "new" in changes.folders
    assert watcher.changes(1, 60) == Changes()
    assert list(cookies.folder.iterdir()) == []


@LINUX_ONLY
@pytest.mark.parametrize("upset", ["rules", "root", "distrust"])
def test_changes_are_unknown_after_what_upsets_the_watches(
    start: Callable[..., Watching], tmp_path: Path, cookies: Cookies, upset: str
) -> None:
    top = tmp_path / "top"
    write(top / "sub" / "a.md")
    watcher = start(top, cookies=cookies).watcher
    watcher.changes(1, 60)
    assert watcher.changes(1, 60) == Changes()
    if upset == "rules":
        write(top / "sub" / ".gitignore", "b.md\n")
    elif upset == "root":
        top.rename(tmp_path / "old")
        write(top / "sub" / "b.md")
    else:
        watcher.distrust(1)
    assert watcher.changes(1, 60) is None
    assert eventually(lambda: watcher.changes(1, 60) == Changes())


def test_changes_are_unknown_after_an_overflow(
    start: Callable[..., Watching], tmp_path: Path, cookies: Cookies
) -> None:
    delivered: list[Callable[[Event], None]] = []

    class Echo(LimitedSource):
        """Tells of each cookie, and of nothing else."""

        def watch(self, path: str, *, follow: bool) -> int:
            token = super().watch(path, follow=follow)
            if path == str(cookies.folder):
                threading.Thread(target=self.tell, args=(token,), daemon=True).start()
            return token

        def tell(self, token: int) -> None:
            told: set[str] = set()
            while not self.closed:
                for path in cookies.folder.iterdir():
                    if path.name not in told:
                        told.add(path.name)
                        delivered[0](Event(token, path.name, False, Change.APPEARED))
                time.sleep(0.001)

    def open_it(deliver: Callable[[Event], None]) -> LimitedSource:
        delivered.append(deliver)
        return Echo(100)

    watcher = start(tmp_path, open_source=open_it, cookies=cookies).watcher
    assert eventually(lambda: watcher.changes(1, 60) == Changes())
    # The root's token: the cookies' folder was watched first.
    delivered[0](Event(2, "", True, Change.OVERFLOW))
    assert watcher.changes(1, 60) is None
    assert eventually(lambda: watcher.changes(1, 60) == Changes())


def test_changes_are_unknown_where_no_cookie_comes_back(
    start: Callable[..., Watching], tmp_path: Path, cookies: Cookies
) -> None:
    silent = start(tmp_path, open_source=lambda _: LimitedSource(100), cookies=cookies)
    assert silent.watcher.changes(1, 0.01) is None
    polled = start(tmp_path, poll=True, cookies=cookies)
    assert polled.watcher.changes(1, 60) is None
    assert start(tmp_path).watcher.changes(1, 60) is None
    assert polled.watcher.changes(7, 60) is None


@LINUX_ONLY
def test_more_changes_than_are_worth_telling_apart_are_unknown(
    start: Callable[..., Watching], tmp_path: Path, cookies: Cookies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilotd.ingest.watch._MAX_CHANGES", 20)
    watcher = start(tmp_path, cookies=cookies).watcher
    watcher.changes(1, 60)
    for number in range(30):
        write(tmp_path / f"{number}.md")
    assert watcher.changes(1, 60) is None
    assert watcher.changes(1, 60) == Changes()


@LINUX_ONLY
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_changes_are_unknown_where_something_is_mounted_below(
    start: Callable[..., Watching], tmp_path: Path, cookies: Cookies
) -> None:
    write(tmp_path / "disk" / "a.md")
    watcher = start(tmp_path, cookies=cookies).watcher
    watcher.changes(1, 60)
    assert watcher.changes(1, 60) == Changes()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "disk"], check=False)
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        assert watcher.changes(1, 60) is None
        assert watcher.changes(1, 60) is None
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)

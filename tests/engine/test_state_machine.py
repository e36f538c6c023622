"""A real folder and a real index, changed in every way at random: after each step the index equals a fresh one.

``COPILOT_STATE_MACHINE=200`` runs that many examples, each longer; what CI runs takes about half a minute.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from support.engines import Recorder, found_paths, running_engine
from support.hashing_encoder import HashingEncoder
from support.index_snapshot import check_files, check_vectors, snapshot, store_of

from copilotd.engine import Engine
from copilotd.types import Encoder, Float32Array, RootState

EXAMPLES = int(os.environ.get("COPILOT_STATE_MACHINE", "0"))

NAMES = ["a.md", "b.md", "c.txt", "d.rst", "sub/a.md", "sub/deep/e.md", "box/a.md", "box/f.txt"]
FOLDERS = ["sub", "sub/deep", "box", "new", "new/inner"]
WORDS = ("kiln", "glaze", "celadon", "wheel")
names = st.sampled_from(NAMES)
folders = st.sampled_from(FOLDERS)
headings = st.sampled_from(["# Kiln", "## Firing", "### Glaze", "## Firing", "Wheel\n====="])
sentences = st.lists(
    st.sampled_from([*WORDS, "hot", "cold", "the", "é", "日本"]), min_size=1, max_size=8
).map(lambda words: " ".join(words) + ".")
paragraphs = st.lists(st.one_of(headings, sentences), min_size=1, max_size=9)
texts = paragraphs.map(lambda parts: "\n\n".join(parts) + "\n")


class BreakingEncoder(HashingEncoder):
    """Fails while it is told to."""

    broken = False

    def encode(self, texts: Sequence[str]) -> Float32Array:
        if self.broken:
            raise MemoryError("no memory left for the model")
        return super().encode(texts)


class IndexMachine(RuleBasedStateMachine):
    """The folder is the model; a second index, built from scratch, says what the first must hold."""

    how: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="copilot-machine-"))
        self.docs = self.place / "docs"
        self.away = self.place / "away"
        self.docs.mkdir()
        self.encoder = BreakingEncoder()
        self.stack = ExitStack()
        self.starts = 0
        self.engine = self.start(self.place / "index", self.encoder)
        self.engine.index_root(str(self.docs), reporter=Recorder())

    def start(self, folder: Path, encoder: Encoder) -> Engine:
        return self.stack.enter_context(
            running_engine(
                folder,
                encoder=encoder,
                max_chunk_chars=120,
                chunk_overlap_chars=20,
                root_grace_s=3600.0,
                **self.how,
            )
        )

    def teardown(self) -> None:
        self.stack.close()
        shutil.rmtree(self.place)

    def path(self, name: str) -> Path:
        path = self.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def here(self) -> bool:
        return not self.away.exists()

    def existing(self, name: str) -> Path | None:
        path = self.docs / name
        return path if path.is_file() else None

    # ------------------------------------------------------------------------------------- edits

    @initialize(content=texts)
    def begin(self, content: str) -> None:
        self.path("a.md").write_text(content)
        self.path("sub/keep.md").write_text("# Keep\n\nAlways here.\n")

    @precondition(lambda self: self.here)
    @rule(name=names, content=texts)
    def write(self, name: str, content: str) -> None:
        if not self.path(name).is_dir():
            self.path(name).write_text(content)

    @precondition(lambda self: self.here)
    @rule(name=names, content=texts)
    def replace(self, name: str, content: str) -> None:
        """As editors and git do it: a new file is moved over the old one."""
        new = self.path(name).with_suffix(".new~")
        new.write_text(content)
        new.replace(self.path(name))

    @precondition(lambda self: self.here)
    @rule(name=names, more=sentences)
    def append(self, name: str, more: str) -> None:
        if path := self.existing(name):
            with path.open("a") as file:
                file.write(f"\n{more}\n")

    @precondition(lambda self: self.here)
    @rule(name=names, fraction=st.sampled_from([0.0, 0.3, 0.7]))
    def truncate(self, name: str, fraction: float) -> None:
        if path := self.existing(name):
            os.truncate(path, int(path.stat().st_size * fraction))
            # An old time makes an empty file believable at once; that it is waited for is tested elsewhere.
            os.utime(path, (1_000_000_000, 1_000_000_000))

    @precondition(lambda self: self.here)
    @rule(name=names)
    def touch(self, name: str) -> None:
        if path := self.existing(name):
            path.touch()

    @precondition(lambda self: self.here)
    @rule(name=names, letter=st.sampled_from("xyz"))
    def edit_in_secret(self, name: str, letter: str) -> None:
        """Same length, same mtime."""
        if path := self.existing(name):
            status = path.stat()
            content = path.read_bytes()
            path.write_bytes(content.replace(b"kiln", b"kil" + letter.encode()))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    @precondition(lambda self: self.here)
    @rule(name=names)
    def revert_twice(self, name: str) -> None:
        """A content that comes back has the same hash under another stat."""
        if path := self.existing(name):
            content = path.read_bytes()
            path.write_bytes(b"# Interlude\n\nNothing.\n")
            self.engine.sync(0.0, Recorder())
            path.write_bytes(content)

    @precondition(lambda self: self.here)
    @rule(name=names, other=names)
    def rename(self, name: str, other: str) -> None:
        if path := self.existing(name):
            path.rename(self.path(other))

    @precondition(lambda self: self.here)
    @rule(name=names, other=names)
    def swap(self, name: str, other: str) -> None:
        one, two = self.existing(name), self.existing(other)
        if one and two and one != two:
            one.rename(self.docs / "between")
            two.rename(one)
            (self.docs / "between").rename(two)

    @precondition(lambda self: self.here)
    @rule(name=names)
    def rename_while_it_is_read(self, name: str) -> None:
        """A chain of renames with looks in between that wait for nobody."""
        if path := self.existing(name):
            first, second = path.with_name("chain1.md"), path.with_name("chain2.md")
            path.rename(first)
            self.engine.sync(0.0, Recorder())
            first.rename(second)
            path.write_text("# Instead\n\nAnother glaze.\n")
            self.engine.sync(0.0, Recorder())
            second.rename(first)

    @precondition(lambda self: self.here)
    @rule(folder=folders, other=folders)
    def move_folder(self, folder: str, other: str) -> None:
        source, target = self.docs / folder, self.docs / other
        if source.is_dir() and not target.exists() and not other.startswith(folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)

    @precondition(lambda self: self.here)
    @rule(name=names)
    def delete(self, name: str) -> None:
        if path := self.existing(name):
            path.unlink()

    @precondition(lambda self: self.here)
    @rule(folder=folders)
    def delete_folder(self, folder: str) -> None:
        if folder != "sub":
            shutil.rmtree(self.docs / folder, ignore_errors=True)

    @precondition(lambda self: self.here)
    @rule(pattern=st.sampled_from(["", "box/", "*.txt", "sub/deep/"]))
    def ignore(self, pattern: str) -> None:
        (self.docs / ".copilotignore").write_text(pattern)

    @precondition(lambda self: self.here)
    @rule(include=st.sampled_from([(), ("*.md",), ("sub/**",)]), size=st.sampled_from([None, 200]))
    def change_rules(self, include: tuple[str, ...], size: int | None) -> None:
        self.options = {"include": include, "chunk_size": size}
        self.engine.index_root(str(self.docs), include=include, chunk_size=size, reporter=Recorder())

    options: dict[str, object] = {}  # noqa: RUF012 (replaced, never changed)

    # ------------------------------------------------------------------------- failures and starts

    @rule()
    def restart(self) -> None:
        self.engine.close()
        self.engine = self.start(self.place / "index", self.encoder)

    @precondition(lambda self: self.here)
    @rule(name=names, content=texts, after=st.integers(0, 60), restart=st.booleans())
    def fail_to_write(self, name: str, content: str, after: int, restart: bool) -> None:
        """The database refuses every statement from some point on, COMMIT included, as a full disk does."""
        connection = store_of(self.engine)._connection
        left = after

        def authorize(*_: object) -> int:
            nonlocal left
            left -= 1
            return sqlite3.SQLITE_OK if left > 0 else sqlite3.SQLITE_DENY

        if not self.path(name).is_dir():
            self.path(name).write_text(content)
        self.path("sub/keep.md").touch()
        connection.set_authorizer(authorize)
        try:
            freshness = self.engine.sync(1.0, Recorder())
            assert freshness.pending or left > 0, "what failed is named"
        finally:
            connection.set_authorizer(None)
        if restart:
            self.restart()

    @precondition(lambda self: self.here)
    @rule(name=names, content=texts, restart=st.booleans())
    def fail_to_embed(self, name: str, content: str, restart: bool) -> None:
        """The words are stored, their vectors are not: what a kill between the two transactions leaves."""
        if self.path(name).is_dir():
            return
        self.path(name).write_text(content)
        self.encoder.broken = True
        self.engine.sync(1.0, Recorder())
        if restart:
            self.engine.close()
        self.encoder.broken = False
        if restart:
            self.engine = self.start(self.place / "index", self.encoder)
        else:
            self.engine._embedder._postponed.clear()

    @precondition(lambda self: self.here)
    @rule(restart=st.booleans())
    def vanish(self, restart: bool) -> None:
        self.docs.rename(self.away)
        if restart:
            self.restart()

    @precondition(lambda self: not self.here)
    @rule(restart=st.booleans())
    def come_back(self, restart: bool) -> None:
        before = self.engine.status().embedded_total
        self.away.rename(self.docs)
        if restart:
            self.restart()
        self.settle()
        assert self.engine.status().embedded_total == (0 if restart else before)

    # --------------------------------------------------------------------------------- what holds

    def settle(self) -> None:
        until = time.monotonic() + 60
        while (freshness := self.engine.sync(5.0, Recorder())).pending:
            assert time.monotonic() < until, freshness
            self.engine._embedder.wake()
            time.sleep(0.01)

    @invariant()
    def the_index_equals_a_fresh_one(self) -> None:
        self.settle()
        check_vectors(self.engine, WORDS)
        if not self.here:
            assert found_paths(self.engine, "kiln glaze keep") == []
            assert self.engine.roots()[0].state is RootState.MISSING
            return
        emptied = self.engine.roots()[0].state is RootState.EMPTIED
        if not emptied:
            check_files(self.engine)
        self.starts += 1
        folder = self.place / f"fresh{self.starts}"
        with running_engine(
            folder, encoder=HashingEncoder(), max_chunk_chars=120, chunk_overlap_chars=20
        ) as fresh:
            fresh.index_root(str(self.docs), reporter=Recorder(), **self.options)  # type: ignore[arg-type]
            if emptied:
                # What the rules let in was moved away: kept for the grace time, and not cited.
                assert fresh.status().documents == 0
                assert found_paths(self.engine, "kiln glaze keep") == []
                return
            expected = snapshot(fresh, WORDS, WORDS)
            actual = snapshot(self.engine, WORDS, WORDS)
        shutil.rmtree(folder)
        assert actual["documents"].keys() == expected["documents"].keys()
        assert actual == expected


class WatchedIndexMachine(IndexMachine):
    """The same where questions look only at what the watcher names, and its threads look between them."""

    how: ClassVar[dict[str, Any]] = {"background": True, "full_look_files": 0, "reconcile_s": 3600.0}


IndexMachine.TestCase.settings = settings(
    max_examples=EXAMPLES or 15,
    stateful_step_count=30 if EXAMPLES else 12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
WatchedIndexMachine.TestCase.settings = IndexMachine.TestCase.settings
TestIndexMachine = IndexMachine.TestCase
TestWatchedIndexMachine = WatchedIndexMachine.TestCase

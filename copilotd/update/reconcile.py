"""Keeps the index equal to the folders: looks, plans, and has workers apply what differs.

Nothing here reacts to an event: an event, a question, a timer and a start all lead to the same *look*
(scan and plan) of a root. What a look finds goes to the workers, newest first, so that the file saved a
moment ago does not wait behind a thousand others. Text has one worker and formats that are parsed in a
child process another, since a long PDF must not hold up an edited note.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from copilotd.errors import ShuttingDown
from copilotd.index.store import Store, StoredRoot
from copilotd.ingest.parse import parser_for, supported_suffixes
from copilotd.ingest.plan import plan
from copilotd.ingest.scan import Scanner
from copilotd.ingest.watch import Watcher
from copilotd.supervise import Worker
from copilotd.text import printable
from copilotd.types import Add, IndexedFile, Move, Remove, Root, RootState, ScanResult, SourceFile, Update
from copilotd.update.embedder import Embedder
from copilotd.update.read import Applied, FileReader, Outcome
from copilotd.update.writer import Writer

_log = logging.getLogger(__name__)

Key = tuple[int, str]
"""A root's id and a path below it."""

# A look that finds more than this is bulk work: it goes on in the background, and a question waits for
# it only where its rate so far says that it ends within the question's time budget.
_BULK = 64
# An unsettled file (empty after truncation, still being written) is looked at again after this time.
_UNSETTLED_RETRY_S = 0.5
# After an error of ours (a full disk, say) the file is tried again after this time.
_FAILED_RETRY_S = 10.0
# How long forgetting a root waits for its files that are with a worker; what they give later is not stored.
_FORGET_WAIT_S = 1.0
# For so long, at least, this process has seen a root away before it takes the stored date's word for the rest: a
# machine without a battery for its clock starts in another year.
_SEEN_AWAY_NS = 3_600_000_000_000
# How long the watcher may take to catch up, before looking at each file is the quicker way.
_COOKIE_S = 0.2
# What an urgent file may embed on the worker's own thread; more is left to the background.
_EMBED_AT_ONCE = 256


@dataclass(slots=True)
class Work:
    """One action that waits for a worker, or is with one.

    Attributes:
        root: The root it is under.
        action: What to do.
        outdated: Whether it must be parsed again although its content may be as before.
        bulk: Whether it came with many others.
        started: Monotonic time at which a worker took it; 0 while it waits.
    """

    root: Root
    action: Add | Update | Move
    outdated: bool = False
    bulk: bool = False
    started: float = 0.0


@dataclass(slots=True)
class RootWatch:
    """What is remembered of a root between looks.

    Attributes:
        root: The root.
        scanner: Looks at it.
        suspended_ns: Since when it is not cited, as stored.
        away: How long that was when this process first saw it away, ns, and when that was, monotonic. What
            passes while the process runs is counted from there, so that setting the clock removes nothing.
        known: What the catalog holds, by relative path.
        outdated: Ids of files that must be parsed again.
        outdated_at: Monotonic time since when; what a worker took before it doesn't count.
        lock: Held during a look.
        looked_at: Monotonic time at which the last look began.
        state: How the root looked then.
        problems: What the scan could not take in.
        settled_files: A scan that left nothing to do.
        changes: Grows with each change of ``known`` by a worker.
        unsettled: Paths that could not be brought up to date yet.
        hidden: Ids of files that are gone, but whose removal could not be stored yet, by path.
        removed: Another watch took its place, or the root is forgotten.
    """

    root: Root
    scanner: Scanner
    suspended_ns: int | None
    known: dict[str, IndexedFile]
    outdated: set[int]
    lock: threading.Lock = field(default_factory=threading.Lock)
    outdated_at: float = -1.0
    looked_at: float = -1.0
    state: RootState = RootState.OK
    problems: tuple[tuple[str, str], ...] = ()
    settled_files: Mapping[str, SourceFile] | None = None
    changes: int = 0
    unsettled: set[str] = field(default_factory=set)
    hidden: dict[str, int] = field(default_factory=dict)
    away: tuple[int, float] | None = None
    removed: bool = False

    @property
    def left_out(self) -> str:
        """Says that its documents are not cited just now; empty where they are, or there are none."""
        if self.suspended_ns is None or not self.known:
            return ""
        return f"{printable(self.root.path)} is {self.state.value}: its documents are left out."


class Tally:
    """Counts what became of a root's files from its creation on; how ``index`` knows what it did."""

    def __init__(self, root_id: int | None) -> None:
        self.root_id = root_id
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.keys: dict[bytes, None] = {}

    def note(self, root_id: int, outcome: Outcome, keys: Iterable[bytes] = (), times: int = 1) -> None:
        """Counts one outcome, if it is of this tally's root."""
        if self.root_id in (None, root_id):
            self.outcomes[outcome] += times
            self.keys.update(dict.fromkeys(keys))


class Reconciler:
    """Owns the roots' state and the workers that read files."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        reader: FileReader,
        embedder: Embedder,
        *,
        max_file_bytes: int,
        grace_s: float,
        full_look_files: int,
        on_error: Callable[[str], None],
    ) -> None:
        self._store = store
        self._writer = writer
        self._reader = reader
        self._embedder = embedder
        self._max_file_bytes = max_file_bytes
        self._grace_ns = int(grace_s * 1e9)
        self._full_look_files = full_look_files
        self._watcher: Watcher | None = None
        self._on_error = on_error
        self._condition = threading.Condition()
        self._watches: dict[int, RootWatch] = {}
        self._todo: dict[Key, Work] = {}
        self._working: dict[Key, Work] = {}
        self._lanes: dict[bool, list[tuple[tuple[bool, int], int, Key]]] = {False: [], True: []}
        self._order = itertools.count()
        self._tallies: list[Tally] = []
        self._applied = 0
        self._rate_since = 0.0
        self._rate_applied = 0
        self._retry_at: dict[int, float] = {}
        self._in_hand: dict[bool, Key] = {}
        self._stopping = False
        self._workers = [
            Worker(
                f"reader-{name}",
                partial(self._run, isolated),
                on_death=on_error,
                mend=partial(self._drop_in_hand, isolated),
            )
            for isolated, name in ((False, "text"), (True, "isolated"))
        ]
        for stored in store.roots():
            self.add_root(stored)

    def trust(self, watcher: Watcher) -> None:
        """Lets a healthy watcher stand in for the look at each file of a large root."""
        self._watcher = watcher

    def start(self) -> None:
        """Starts the workers."""
        for worker in self._workers:
            worker.start()

    def stop(self, timeout_s: float) -> bool:
        """Stops after the files at hand; returns whether all workers ended in time."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        until = time.monotonic() + timeout_s
        ended = [worker.join(until - time.monotonic()) for worker in self._workers]
        return all(ended)

    # --------------------------------------------------------------------------------------- roots

    def add_root(self, stored: StoredRoot) -> RootWatch:
        """Takes a root in, or a known one with other rules; its first look comes with the next :meth:`look`."""
        root = stored.root
        with self._condition:
            before = self._watches.get(root.id)
        # A look by the old rules must not go on beside one by the new.
        with before.lock if before is not None else nullcontext():
            scanner = Scanner(root, suffixes=supported_suffixes(), max_file_bytes=self._max_file_bytes)
            with self._condition:
                watch = RootWatch(
                    root=root,
                    scanner=scanner,
                    suspended_ns=stored.suspended_ns if before is None else before.suspended_ns,
                    known=self._store.files(root.id),
                    outdated=self._store.outdated_files(root.id, *self._reader.fingerprints_for(root)),
                    hidden={} if before is None else before.hidden,
                )
                if before is not None:
                    before.removed = True
                self._watches[root.id] = watch
        return watch

    def remove_root(self, root_id: int) -> int:
        """Forgets a root and returns how many documents it had."""
        with self._condition:
            watch = self._watches.pop(root_id, None)
            if watch is None:
                return 0
            watch.removed = True
            for key in [key for key in self._todo if key[0] == root_id]:
                del self._todo[key]
            until = time.monotonic() + _FORGET_WAIT_S
            while any(key[0] == root_id for key in self._working) and time.monotonic() < until:
                self._condition.wait(0.1)
        with watch.lock:
            return self._writer.run(lambda: self._store.remove_root(root_id))

    def watches(self) -> list[RootWatch]:
        """Returns all roots in the order they were added."""
        with self._condition:
            return list(self._watches.values())

    def outdate_all(self) -> None:
        """Marks every file to be read and parsed again."""
        for watch in self.watches():
            with watch.lock:
                watch.outdated = {file.id for file in watch.known.values()}
                watch.outdated_at = time.monotonic()
                watch.settled_files = None

    def reread(self, file_ids: Iterable[int]) -> None:
        """Marks these files to be read again, whatever their stat says."""
        wanted = set(file_ids)
        for watch in self.watches():
            with watch.lock:
                found = {file.id for file in watch.known.values() if file.id in wanted}
                if found:
                    watch.outdated |= found
                    watch.outdated_at = time.monotonic()
                    watch.settled_files = None

    # --------------------------------------------------------------------------------------- looks

    def look(
        self,
        root_id: int,
        began: float,
        *,
        timeout_s: float = 3600.0,
        full: bool = False,
        every_file: bool = True,
        on_stale: Callable[[str], None] | None = None,
    ) -> bool:
        """Scans a root and queues what differs, unless somebody did since ``began``.

        Args:
            root_id: Which root.
            began: Monotonic time; a look that started at or after it is as good as this one.
            timeout_s: How long to wait for somebody else's look.
            full: List every folder and trust nothing remembered.
            every_file: Look at each file; else a large root's watcher may say which to look at.
            on_stale: Told each changed file's name.

        Returns:
            Whether the root was looked at since ``began``, and what had to be stored at once was.
        """
        until = time.monotonic() + timeout_s
        while True:
            with self._condition:
                watch = self._watches.get(root_id)
            if watch is None:
                return True
            if not watch.lock.acquire(timeout=max(0.0, until - time.monotonic())):
                return False
            try:
                if watch.removed:
                    continue
                if watch.looked_at < began:
                    started = time.monotonic()
                    stale = self._look(watch, full, every_file)
                    watch.looked_at = started
                    for name in stale:
                        _log.info("Stale index detected: %s changed. Re-indexing.", name)
                        if on_stale is not None:
                            on_stale(name)
                return True
            except (sqlite3.Error, OSError) as error:
                # A full disk, a lock from outside: the caller must not take the root for up to date.
                _log.exception("look failed path=%s", watch.root.path)
                self._on_error(f"{watch.root.path}: {error}")
                return False
            finally:
                watch.lock.release()

    def _scan(self, watch: RootWatch, full: bool, every_file: bool, known_count: int) -> ScanResult:
        watcher = self._watcher
        if watcher is None or full or every_file or known_count <= self._full_look_files:
            return watch.scanner.scan(full, known_count=known_count)
        changes = watcher.changes(watch.root.id, _COOKIE_S)
        try:
            return watch.scanner.scan(known_count=known_count, changes=changes)
        except BaseException:
            watcher.distrust(watch.root.id)
            raise

    def _look(self, watch: RootWatch, full: bool, every_file: bool) -> list[str]:
        """Scans and plans; returns the names of changed files."""
        with self._condition:
            # Files that could not be read count as well, until a full look tells them apart.
            known_count = (
                sum(1 for file in watch.known.values() if not file.skipped) if full else len(watch.known)
            )
        scanned = self._scan(watch, full, every_file, known_count)
        if scanned.state is RootState.EMPTIED and not any(map(watch.scanner.accepts, watch.known)):
            # Nothing vanished: the rules leave out what there was.
            scanned = watch.scanner.scan(full, known_count=0)
        watch.problems = scanned.problems
        self._note_state(watch, scanned)
        if scanned.state is not RootState.OK:
            watch.settled_files = None
            return []
        if watch.hidden:
            self._show_what_came_back(watch, scanned)
        if scanned.files is watch.settled_files and not full:
            return []
        with self._condition:
            known_files = dict(watch.known)
            changes = watch.changes
        actions = plan(known_files, scanned, now_ns=time.time_ns())
        removes = [action for action in actions if isinstance(action, Remove)]
        if removes:
            self._remove(watch, removes)
        work = {
            action.source.relative_path: Work(watch.root, action)
            for action in actions
            if not isinstance(action, Remove)
        }
        for path, known in known_files.items():
            if known.id in watch.outdated and (source := scanned.files.get(path)) is not None:
                before = work.get(path)
                action = before.action if before else Update(known, source)
                work[path] = Work(watch.root, action, outdated=True)
        with self._condition:
            # A look that leaves nothing to do need not be planned again until the scan differs, unless a worker
            # finished meanwhile: what it read may have gone since.
            settled = not actions and not work and watch.changes == changes
            watch.settled_files = scanned.files if settled else None
        return self._queue(watch, work)

    def _note_state(self, watch: RootWatch, scanned: ScanResult) -> None:
        """Stops or resumes citing a root; a root that stays away longer than the grace time is emptied."""
        watch.state = scanned.state
        root_id = watch.root.id
        if scanned.state is RootState.OK:
            if watch.suspended_ns is not None:
                self._writer.run(lambda: self._store.resume_root(root_id))
                watch.suspended_ns = watch.away = None
                _log.info("root is back path=%s", watch.root.path)
            return
        with self._condition:
            for key in [key for key in self._todo if key[0] == root_id]:
                del self._todo[key]
            watch.unsettled.clear()
            self._condition.notify_all()
            known = list(watch.known.values())
        if not known:
            return
        now_ns = time.time_ns()
        if watch.suspended_ns is None:
            try:
                self._writer.run(lambda: self._store.suspend_root(root_id, now_ns))
            except sqlite3.Error:
                self._hide(watch, known)
                raise
            watch.suspended_ns = now_ns
            _log.warning(
                "root is %s, its documents are not cited path=%s", scanned.state.value, watch.root.path
            )
        elif self._grace_is_over(watch, now_ns - watch.suspended_ns):
            _log.warning(
                "root stayed %s, its documents are removed path=%s", scanned.state.value, watch.root.path
            )
            self._remove(watch, [Remove(file) for file in known])

    def _grace_is_over(self, watch: RootWatch, stored_ns: int) -> bool:
        now = time.monotonic()
        if watch.away is None:
            watch.away = (max(0, stored_ns), now)
        before_ns, since = watch.away
        seen_ns = int((now - since) * 1e9)
        return before_ns + seen_ns >= self._grace_ns and seen_ns >= min(self._grace_ns, _SEEN_AWAY_NS)

    def _hide(self, watch: RootWatch, files: Iterable[IndexedFile]) -> None:
        """What is gone is not cited, even while a full disk keeps its rows from being deleted."""
        gone = {file.relative_path: file.id for file in files}
        watch.hidden.update(gone)
        self._store.hide(gone.values())

    def _show_what_came_back(self, watch: RootWatch, scanned: ScanResult) -> None:
        back = [path for path in watch.hidden if path in scanned.files]
        self._store.show([watch.hidden.pop(path) for path in back])

    def _remove(self, watch: RootWatch, removes: list[Remove]) -> None:
        ids = [action.indexed.id for action in removes]
        try:
            self._writer.run(lambda: self._store.remove_files(ids))
        except sqlite3.Error:
            self._hide(watch, [action.indexed for action in removes])
            raise
        documents = sum(1 for action in removes if not action.indexed.skipped)
        with self._condition:
            for action in removes:
                watch.known.pop(action.indexed.relative_path, None)
                watch.unsettled.discard(action.indexed.relative_path)
                watch.hidden.pop(action.indexed.relative_path, None)
            for tally in self._tallies:
                tally.note(watch.root.id, Outcome.REMOVED, times=documents)
        _log.info("removed documents=%d path=%s", documents, watch.root.path)

    def _queue(self, watch: RootWatch, work: Mapping[str, Work]) -> list[str]:
        """Gives the work to the workers; returns the names of changed files that were not waiting already."""
        stale: list[str] = []
        root_id = watch.root.id
        with self._condition:
            for key in [key for key in self._todo if key[0] == root_id and key[1] not in work]:
                del self._todo[key]
            watch.unsettled.intersection_update(work)
            # Only what is new counts: one edit is not bulk work because thousands of files wait already.
            bulk = sum(1 for path, item in work.items() if self._is_new((root_id, path), item)) > _BULK
            if not self._todo and not self._working:
                self._rate_since, self._rate_applied = time.monotonic(), 0
            for path, item in work.items():
                if watch.removed or not self._still_due(watch, path, item):
                    continue
                key = (root_id, path)
                working = self._working.get(key)
                if (
                    working is not None
                    and working.action.source == item.action.source
                    and not (item.outdated and working.started < watch.outdated_at)
                ):
                    continue
                waiting = self._todo.get(key)
                if waiting is not None and waiting.action.source == item.action.source:
                    item.bulk = waiting.bulk
                else:
                    item.bulk = bulk
                    self._enqueue(key, item)
                    if _is_stale(item.action):
                        stale.append(path.rpartition("/")[2])
                self._todo[key] = item
            self._condition.notify_all()
        return stale

    def _is_new(self, key: Key, item: Work) -> bool:
        before = self._todo.get(key) or self._working.get(key)
        return before is None or before.action.source != item.action.source

    @staticmethod
    def _still_due(watch: RootWatch, path: str, item: Work) -> bool:
        """A worker may have finished this very file since the plan was made."""
        known = watch.known.get(path)
        if known is None or not isinstance(item.action, Add):
            return True
        item.action = Update(known, item.action.source)
        return known.fingerprint != item.action.source.fingerprint

    def _enqueue(self, key: Key, work: Work) -> None:
        # Edits before bulk work, and newest first: what was saved a moment ago is what the next question is about.
        # Tools that keep old times (cp -p, rsync -a) can't set ctime.
        stat = work.action.source.fingerprint
        priority = (work.bulk, -max(stat.mtime_ns, stat.ctime_ns))
        heapq.heappush(self._lanes[self._is_isolated(key[1])], (priority, next(self._order), key))

    @staticmethod
    def _is_isolated(path: str) -> bool:
        parser = parser_for(path)
        return parser is not None and parser.isolated

    # ------------------------------------------------------------------------------------- waiting

    def open_tally(self, root_id: int | None) -> Tally:
        """Starts counting what becomes of a root's files; None counts for all roots."""
        tally = Tally(root_id)
        with self._condition:
            self._tallies.append(tally)
        return tally

    def close_tally(self, tally: Tally) -> None:
        """Stops counting."""
        with self._condition:
            self._tallies.remove(tally)

    def backlog(self, root_ids: Collection[int]) -> list[str]:
        """Returns the paths of these roots' files that differ from the index, unsettled ones too; bulk work last."""
        with self._condition:
            items = [*self._working.items(), *self._todo.items()]
            mine = [(key[1], item.bulk) for key, item in items if key[0] in root_ids]
            paths = [path for path, bulk in mine if not bulk]
            for watch in self._watches.values():
                if watch.root.id in root_ids:
                    paths += watch.unsettled
            paths += [path for path, bulk in mine if bulk]
            return list(dict.fromkeys(paths))

    def count_backlog(self, root_id: int | None = None) -> int:
        """Returns how many files :meth:`backlog` names, without making the list."""
        with self._condition:
            if root_id is None:
                waiting = len(self._todo) + sum(1 for key in self._working if key not in self._todo)
            else:
                waiting = sum(1 for key in self._todo if key[0] == root_id)
                waiting += sum(1 for key in self._working if key[0] == root_id and key not in self._todo)
            return waiting + sum(
                1
                for watch in self._watches.values()
                if root_id in (None, watch.root.id)
                for path in watch.unsettled
                if (watch.root.id, path) not in self._todo and (watch.root.id, path) not in self._working
            )

    def reading(self, root_id: int | None = None) -> str:
        """Says how far the long file is that is being read, if it is of the root; empty where there is none."""
        reading = self._reader.reading
        return reading.sentence if reading and root_id in (None, reading.root_id) else ""

    def wait_idle(self, root_id: int | None, keep_waiting: Callable[[], bool]) -> bool:
        """Waits until nothing of a root waits for a worker, as long as ``keep_waiting`` says so."""
        with self._condition:
            while any(root_id in (None, key[0]) for key in itertools.chain(self._working, self._todo)):
                if self._stopping or not keep_waiting():
                    return False
                self._condition.wait(0.1)
        return True

    def wait_fresh(
        self, root_ids: Collection[int], budget_s: float, deadline: float, cancelled: Callable[[], bool]
    ) -> None:
        """Waits for what changed lately; for bulk work only where it will be done by ``deadline``.

        Args:
            root_ids: Whose files are waited for.
            budget_s: A file that has been with a worker for longer than this (a long PDF) is not waited for.
            deadline: Monotonic time.
            cancelled: Whether the waiting is for nobody.
        """
        with self._condition:
            while not self._stopping and not cancelled():
                now = time.monotonic()
                left = deadline - now
                items = [
                    item
                    for key, item in itertools.chain(self._todo.items(), self._working.items())
                    if key[0] in root_ids and (not item.started or now - item.started < budget_s)
                ]
                bulk = sum(1 for item in items if item.bulk)
                if left <= 0 or not items or (bulk == len(items) and not self._ends_within(bulk, left)):
                    return
                self._condition.wait(min(left, 0.1))

    def _ends_within(self, items: int, seconds: float) -> bool:
        elapsed = time.monotonic() - self._rate_since
        if self._rate_applied < 20 or elapsed <= 0:
            # No rate is known yet; text takes about 5 ms a file.
            return items * 0.005 < seconds
        return items / (self._rate_applied / elapsed) < seconds

    # ------------------------------------------------------------------------------------- workers

    def due_roots(self) -> list[int]:
        """Returns the roots whose unsettled files are to be looked at again by now."""
        now = time.monotonic()
        with self._condition:
            due = [root_id for root_id, at in self._retry_at.items() if at <= now]
            for root_id in due:
                del self._retry_at[root_id]
            return due

    def _run(self, isolated: bool) -> None:
        while True:
            taken = self._take(isolated)
            if taken is None:
                return
            key, work = taken
            applied = Applied(Outcome.FAILED)
            try:
                applied = self._reader.apply(
                    work.root, work.action, urgent=not work.bulk, outdated=work.outdated
                )
            except ShuttingDown:
                return
            except Exception as error:
                if self._is_watched(key[0]):
                    _log.exception("could not index file=%s", key[1])
                    self._on_error(f"{key[1]}: {error}")
            finally:
                self._finish(key, work, applied)

    def _take(self, isolated: bool) -> tuple[Key, Work] | None:
        lane = self._lanes[isolated]
        with self._condition:
            while not self._stopping:
                while lane:
                    _, _, key = heapq.heappop(lane)
                    if key in self._working:
                        # Another version of the same file is being read: this one comes after it.
                        continue
                    work = self._todo.pop(key, None)
                    if work is not None:
                        self._bring_up_to_date(key, work)
                        work.started = time.monotonic()
                        self._working[key] = work
                        self._in_hand[isolated] = key
                        return key, work
                self._condition.wait(1.0)
        return None

    def _drop_in_hand(self, isolated: bool) -> None:
        """Gives back the file that a reader died of, to be tried again later."""
        with self._condition:
            key = self._in_hand.pop(isolated, None)
            if key is None or self._working.pop(key, None) is None:
                return
            watch = self._watches.get(key[0])
            if watch is not None:
                watch.unsettled.add(key[1])
                watch.settled_files = None
                self._retry_at[key[0]] = time.monotonic() + _FAILED_RETRY_S
            if key in self._todo:
                self._enqueue(key, self._todo[key])
            self._condition.notify_all()

    def _bring_up_to_date(self, key: Key, work: Work) -> None:
        """Bases the work on what the catalog knows by now: other work may have been done since the look.

        Else a file that changed and changed back would be compared with the content before both changes, and
        a second rename would drag along the row of the first.
        """
        watch = self._watches.get(key[0])
        if watch is None:
            return
        work.root = watch.root
        action = work.action
        if isinstance(action, Move):
            old = action.indexed.relative_path
            if watch.known.get(old) == action.indexed and (key[0], old) not in self._working:
                return
        known = watch.known.get(key[1])
        work.action = Add(action.source) if known is None else Update(known, action.source)
        work.outdated = work.outdated or (known is not None and known.id in watch.outdated)

    def _is_watched(self, root_id: int) -> bool:
        with self._condition:
            return root_id in self._watches

    def _finish(self, key: Key, work: Work, applied: Applied) -> None:
        if applied.keys and not work.bulk and len(applied.keys) <= _EMBED_AT_ONCE and self._embedder.encoder:
            try:
                self._embedder.embed_now(applied.keys)
            except Exception as error:
                _log.exception("could not embed file=%s", key[1])
                self._on_error(f"{key[1]}: {error}")
        elif applied.keys:
            self._embedder.wake()
        with self._condition:
            watch = self._watches.get(key[0])
            if watch is not None:
                self._remember(watch, key[1], work, applied)
            del self._working[key]
            self._applied += 1
            self._rate_applied += 1
            for tally in self._tallies:
                tally.note(key[0], applied.outcome, applied.keys)
            if key in self._todo:
                self._enqueue(key, self._todo[key])
            self._condition.notify_all()

    def _remember(self, watch: RootWatch, path: str, work: Work, applied: Applied) -> None:
        action = work.action
        watch.unsettled.discard(path)
        # What was scanned while this file was being read may not have seen it go.
        watch.settled_files = None
        watch.changes += 1
        if applied.outcome in (Outcome.UNSETTLED, Outcome.FAILED):
            watch.unsettled.add(path)
            delay = _UNSETTLED_RETRY_S if applied.outcome is Outcome.UNSETTLED else _FAILED_RETRY_S
            self._retry_at[watch.root.id] = time.monotonic() + delay
        if applied.known is None:
            return
        if isinstance(action, Move):
            watch.known.pop(action.indexed.relative_path, None)
        if work.outdated and not isinstance(action, Add) and work.started >= watch.outdated_at:
            watch.outdated.discard(action.indexed.id)
        if self._reader.fingerprint_for(work.root) != self._reader.fingerprint_for(watch.root):
            # The root's chunk size was changed while the file was being read.
            watch.outdated.add(applied.known.id)
        watch.known[path] = applied.known


def _is_stale(action: Add | Update | Move) -> bool:
    return isinstance(action, Update) and action.indexed.fingerprint != action.source.fingerprint

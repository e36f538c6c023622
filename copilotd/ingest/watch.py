"""Wakes the engine when something may have changed below a root.

Nothing is read or decided here: a wake only means that a look is worth its price, and a missed one is made
good by the next periodic look. One thread takes the notices in their order, keeps a watch on every
accepted folder, and gathers bursts: a root is woken when it has been quiet for 100 ms, and a second after
the first notice at the latest, so that a steady stream neither starves nor spins.

It also keeps what the notices were about: while every accepted folder of a root is watched and no notice was
lost, that is all there is to look at.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from copilotd.ingest.cookie import Cookies
from copilotd.ingest.events import Change, Event, EventSource, open_source
from copilotd.ingest.ignore import IGNORE_FILES, MARKER_FILES
from copilotd.ingest.scan import Changes, Scanner
from copilotd.supervise import Worker
from copilotd.text import printable
from copilotd.types import Root

_log = logging.getLogger(__name__)

_QUIET_S = 0.1
_LONGEST_S = 1.0
# How often a root's own existence and the source's threads are looked at.
_CHECK_S = 1.0
_RETRY_LIMIT_S = 60.0
# Beyond this a full look costs less than telling the changes apart.
_MAX_CHANGES = 10_000

_RULE_NAMES = frozenset({*IGNORE_FILES, *MARKER_FILES, ".git"})
# File systems whose changes can be made by another machine, which no local notice tells of.
_NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "davfs", "glusterfs"}
    | {"9p", "virtiofs", "vboxsf", "prl_fs", "fuse.vmhgfs-fuse"}
    | {"fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.davfs2", "fuse.glusterfs"}
)


class _Watched:
    """A root and its watches; only the watcher's thread changes it."""

    def __init__(self, root: Root, scanner: Scanner, poll: bool) -> None:
        self.root = root
        self.scanner = scanner
        self.poll_reason = "as asked for" if poll else ""
        self.health = "polling: watches are not set up yet"
        self.tokens: dict[str, int] = {}
        self.identity: tuple[int, int] | None = None
        self.retry_at = 0.0
        self.next_poll = 0.0
        self.first_notice: float | None = None
        self.last_notice = 0.0
        self.rearm = False
        # Of these the looking threads take what has come together.
        self.lock = threading.Lock()
        self.complete = False
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def distrust(self) -> None:
        """What happened is not known; only a full look tells."""
        with self.lock:
            self.complete = False
            self.files.clear()
            self.folders.clear()

    def note(self, path: str, *, is_folder: bool) -> None:
        with self.lock:
            if not self.complete:
                return
            (self.folders if is_folder else self.files).add(path)
            overfull = len(self.files) + len(self.folders) > _MAX_CHANGES
        if overfull:
            self.distrust()

    def take(self) -> Changes | None:
        """Takes what has come together; from now on everything is noted."""
        with self.lock:
            complete, self.complete = self.complete, True
            changes = Changes(frozenset(self.files), frozenset(self.folders))
            self.files.clear()
            self.folders.clear()
        return changes if complete else None

    def notice(self) -> None:
        now = time.monotonic()
        self.last_notice = now
        if self.first_notice is None:
            self.first_notice = now

    def due_at(self) -> float | None:
        if self.first_notice is None:
            return None
        return min(self.last_notice + _QUIET_S, self.first_notice + _LONGEST_S)


class Watcher:
    """Watches any number of roots and wakes with their ids.

    Args:
        on_wake: Called with a root's id, on the watcher's thread; should only set something.
        poll_s: How often roots without notices are woken.
        on_death: Told where the watcher's thread died and was started again.
        cookies: What tells that all notices of earlier changes were taken; without it none are trusted.
        open_source: Opens where the notices come from.
    """

    def __init__(
        self,
        on_wake: Callable[[int], None],
        *,
        poll_s: float = 5.0,
        on_death: Callable[[str], None] = lambda _: None,
        cookies: Cookies | None = None,
        open_source: Callable[[Callable[[Event], None]], EventSource] = open_source,
    ) -> None:
        self._on_wake = on_wake
        self._poll_s = poll_s
        self._on_death = on_death
        self._cookies = cookies
        self._cookie_token = 0
        self._open_source = open_source
        self._source: EventSource | None = None
        self._source_error = ""
        self._source_retry_at = 0.0
        self._roots: dict[int, _Watched] = {}
        self._folder_of: dict[int, tuple[_Watched, str]] = {}
        self._inbox: deque[Event | tuple[int, _Watched | None]] = deque()
        self._filled = threading.Condition()
        self._closing = False
        self._thread: Worker | None = None

    def start(self) -> None:
        """Starts the watcher's thread; a second call does nothing."""
        if self._thread is None and not self._closing:
            self._thread = Worker("watcher", self._run, on_death=self._on_death, mend=self._watch_anew)
            self._thread.start()

    def add(self, root: Root, scanner: Scanner, *, poll: bool = False) -> None:
        """Watches a root, which need not be there yet; it is woken as soon as its watches are set up.

        Args:
            root: The root; one with the same id is replaced.
            scanner: Says which folders and files belong to the index.
            poll: Wake by the clock only, for file systems without notices.
        """
        watched = _Watched(root, scanner, poll)
        self._roots[root.id] = watched
        self._put((root.id, watched))

    def remove(self, root_id: int) -> None:
        """Ends the watch of a root; an unknown one is fine."""
        self._roots.pop(root_id, None)
        self._put((root_id, None))

    def health(self, root_id: int) -> str:
        """Says how a root is watched: ``events``, ``polling: <reason>`` or ``failed: <reason>``."""
        watched = self._roots.get(root_id)
        if watched is None:
            return "failed: not a watched root"
        return watched.health

    def changes(self, root_id: int, timeout_s: float) -> Changes | None:
        """Takes what has changed below a root since the last call, up to now.

        Returns:
            All changes, or None where they are not known: then, too, the next call tells what came after
            this one, so a full look must follow.
        """
        watched = self._roots.get(root_id)
        if watched is None or self._cookies is None:
            return None
        if not (self._is_whole(watched) and self._cookies.wait(timeout_s) and self._is_whole(watched)):
            watched.distrust()
            return None
        return watched.take()

    def distrust(self, root_id: int) -> None:
        """Makes the next call of :meth:`changes` ask for a full look: what was taken could not be used."""
        watched = self._roots.get(root_id)
        if watched is not None:
            watched.distrust()

    def _is_whole(self, watched: _Watched) -> bool:
        """Whether notices come from everywhere below a root."""
        source = self._source
        return (
            source is not None
            and not source.recursive
            and bool(self._cookie_token)
            and watched.health == "events"
            and _identity(watched.root.path) == watched.identity
            and not _holds_mounts(watched.root.path)
        )

    def close(self) -> None:
        """Ends everything; may be called again."""
        with self._filled:
            self._closing = True
            self._filled.notify()
        if self._thread is not None:
            self._thread.join(2.0)

    # ------------------------------------------------------------------------ the watcher's thread

    def _put(self, item: Event | tuple[int, _Watched | None]) -> None:
        with self._filled:
            self._inbox.append(item)
            self._filled.notify()

    def _run(self) -> None:
        current: dict[int, _Watched] = {}
        next_check = 0.0
        while True:
            with self._filled:
                if not self._inbox and not self._closing:
                    self._filled.wait(self._time_left(current, next_check))
                if self._closing:
                    break
                items = list(self._inbox)
                self._inbox.clear()
            self._take(items, current)
            if time.monotonic() >= next_check:
                self._check(current)
                next_check = time.monotonic() + _CHECK_S
            self._wake(current)
        if self._source is not None:
            self._source.close()

    def _time_left(self, current: dict[int, _Watched], next_check: float) -> float:
        due = [next_check]
        for watched in current.values():
            due_at = watched.due_at()
            if due_at is not None:
                due.append(due_at)
            if watched.health != "events":
                due.append(watched.next_poll)
        return max(0.0, min(due) - time.monotonic())

    def _take(self, items: list[Event | tuple[int, _Watched | None]], current: dict[int, _Watched]) -> None:
        repeated: set[Event] = set()
        cookies: list[str] = []
        for item in items:
            if isinstance(item, tuple):
                root_id, watched = item
                before = current.pop(root_id, None)
                if before is not None:
                    self._disarm(before)
                if watched is not None:
                    current[root_id] = watched
                    self._arm_root(watched)
            elif item.token == self._cookie_token and item.change is Change.LOST:
                self._cookie_token = 0
            elif item.token == self._cookie_token:
                cookies.append(item.name)
            elif item not in repeated:
                if item.change is Change.CHANGED:
                    repeated.add(item)
                self._take_event(item)
        for watched in current.values():
            if watched.rearm:
                watched.rearm = False
                self._arm_root(watched)
        # Only now is everything noted, and watched, that came before them.
        if self._cookies is not None:
            for name in cookies:
                self._cookies.take(name)

    def _take_event(self, event: Event) -> None:
        place = self._folder_of.get(event.token)
        if place is None:
            return
        watched, folder = place
        if event.change is Change.OVERFLOW:
            # Folders may have been replaced unseen, so no watch can be trusted.
            self._disarm(watched)
            watched.distrust()
            watched.rearm = True
            return
        if event.change is Change.LOST:
            self._lose(watched, folder)
            return
        path = f"{folder}/{event.name}" if folder and event.name else folder or event.name
        name = path.rpartition("/")[2]
        if not event.name:
            watched.note(folder, is_folder=True)
            watched.notice()
        elif name in _RULE_NAMES:
            watched.distrust()
            watched.rearm = True
            watched.notice()
        elif event.is_folder:
            self._take_folder(watched, path, event.change)
        elif watched.scanner.accepts(path):
            watched.note(path, is_folder=False)
            watched.notice()

    def _take_folder(self, watched: _Watched, path: str, change: Change) -> None:
        if not watched.scanner.accepts_folder(path):
            return
        if change is not Change.CHANGED:
            self._disarm(watched, path)
        if change is not Change.GONE:
            self._arm(watched, path)
        watched.note(path, is_folder=True)
        watched.notice()

    def _lose(self, watched: _Watched, folder: str) -> None:
        self._disarm(watched, folder)
        watched.distrust()
        if not folder:
            watched.identity = None
            watched.health = f"polling: {printable(watched.root.path)} is not there"
        watched.notice()

    def _check(self, current: dict[int, _Watched]) -> None:
        """Looks for what sends no notice: dead threads, roots that came, went or were replaced."""
        if self._source is not None and not self._source.is_alive():
            _log.warning("the thread that receives file system events has died; watching starts anew")
            self._close_source(current.values())
        for watched in current.values():
            if time.monotonic() >= watched.retry_at and _identity(watched.root.path) != watched.identity:
                self._disarm(watched)
                self._arm_root(watched)

    def _close_source(self, watched_roots: Iterable[_Watched]) -> None:
        """Forgets every watch; each root gets new ones when it is looked at."""
        self._folder_of.clear()
        if self._source is not None:
            self._source.close()
            self._source = None
        self._cookie_token = 0
        for watched in watched_roots:
            watched.distrust()
            watched.tokens.clear()
            watched.identity = None
            watched.retry_at = 0.0

    def _watch_anew(self) -> None:
        """After the thread died: what it had in hand is not known, so nothing that was noted is trusted."""
        roots = dict(self._roots)
        self._close_source(roots.values())
        for root_id, watched in roots.items():
            self._put((root_id, watched))

    def _wake(self, current: dict[int, _Watched]) -> None:
        for root_id, watched in current.items():
            now = time.monotonic()
            due_at = watched.due_at()
            polled = watched.health != "events" and now >= watched.next_poll
            if not polled and (due_at is None or now < due_at):
                continue
            watched.first_notice = None
            watched.next_poll = now + self._poll_s
            try:
                self._on_wake(root_id)
            except Exception:
                _log.exception("waking root %d failed", root_id)

    # ------------------------------------------------------------------------------------ watches

    def _arm_root(self, watched: _Watched) -> None:
        """Puts a watch on each accepted folder and takes it off the others."""
        path = watched.root.path
        watched.poll_reason = watched.poll_reason or _network_type(path)
        watched.identity = _identity(path)
        watched.distrust()
        watched.notice()
        if watched.poll_reason:
            watched.health = f"polling: {watched.poll_reason}"
        elif watched.identity is None:
            self._disarm(watched)
            watched.health = f"polling: {printable(path)} is not there"
        elif self._source is None and not self._open():
            watched.identity = None
            watched.retry_at = self._source_retry_at
            watched.health = f"polling: {self._source_error}"
        else:
            watched.health = "events"
            self._arm(watched, "")
            # A look that began while watches were set up may have been too early for some folder.
            watched.distrust()

    def _open(self) -> bool:
        if time.monotonic() < self._source_retry_at:
            return False
        try:
            self._source = self._open_source(self._put)
        except OSError as error:
            self._source_error = _limit_reason(error)
            self._source_retry_at = time.monotonic() + _RETRY_LIMIT_S
            return False
        self._watch_cookies(self._source)
        return True

    def _watch_cookies(self, source: EventSource) -> None:
        if self._cookies is None or source.recursive:
            return
        try:
            self._cookies.prepare()
            self._cookie_token = source.watch(str(self._cookies.folder), follow=False)
        except OSError as error:
            _log.warning("questions take a full look at every root: %s", error)

    def _arm(self, watched: _Watched, below: str) -> None:
        source = self._source
        if source is None or watched.health != "events":
            return
        if source.recursive and (below or "" in watched.tokens):
            return
        accepted: set[str] = set()
        for folder in [""] if source.recursive else watched.scanner.folders(below):
            accepted.add(folder)
            if folder in watched.tokens:
                continue
            path = f"{watched.root.path.rstrip('/')}/{folder}" if folder else watched.root.path
            try:
                token = source.watch(path, follow=not folder)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                    continue  # gone again, or unreadable: its parent tells when that changes
                self._disarm(watched)
                watched.identity = None
                watched.retry_at = time.monotonic() + _RETRY_LIMIT_S
                watched.health = f"polling: {_limit_reason(error)}"
                _log.warning("%s is polled: %s", printable(watched.root.path), _limit_reason(error))
                return
            watched.tokens[folder] = token
            self._folder_of[token] = (watched, folder)
        for folder in _below(watched.tokens, below):
            if folder not in accepted:
                self._disarm(watched, folder)

    def _disarm(self, watched: _Watched, below: str = "") -> None:
        tokens = [watched.tokens.pop(folder) for folder in _below(watched.tokens, below)]
        for token in tokens:
            self._folder_of.pop(token, None)
        if self._source is not None and tokens:
            self._source.unwatch(tokens)


def _below(folders: dict[str, int], top: str) -> list[str]:
    """The folders from ``top`` down, itself included."""
    if not top:
        return list(folders)
    return [folder for folder in folders if folder == top or folder.startswith(f"{top}/")]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _limit_reason(error: OSError) -> str:
    for number, name, what in (
        (errno.ENOSPC, "max_user_watches", "watches"),
        (errno.EMFILE, "max_user_instances", "instances"),
    ):
        if error.errno == number:
            try:
                limit = f" of {Path(f'/proc/sys/fs/inotify/{name}').read_text().strip()}"
            except OSError:
                limit = ""
            return (
                f"the system's limit{limit} inotify {what} is reached; "
                f"raise it with `sudo sysctl fs.inotify.{name}=524288`"
            )
    return f"events are not available: {error.strerror or error}"


def _mounts() -> dict[str, str]:
    """Returns the file system's type by mount point, each with a slash at its end; empty where nobody knows."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return {}
    mounts: dict[str, str] = {}
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mounts[fields.split()[4].replace("\\040", " ").rstrip("/") + "/"] = rest.split()[0]
    return mounts


def _holds_mounts(path: str) -> bool:
    """Whether another file system is mounted below a path: what is under it sends its notices elsewhere."""
    real_path = os.path.realpath(path) + "/"
    return any(mount.startswith(real_path) and mount != real_path for mount in _mounts())


def _network_type(path: str) -> str:
    """Says why a path's file system cannot be trusted to send notices; empty where it can."""
    real_path = os.path.realpath(path) + "/"
    mounts = _mounts()
    mount = max((mount for mount in mounts if real_path.startswith(mount)), key=len, default="")
    kind = mounts.get(mount, "")
    return f"no events for changes made by other machines on {kind}" if kind in _NETWORK_TYPES else ""

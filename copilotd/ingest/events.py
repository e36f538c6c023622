"""The file system's notices, from watchdog: the one module that knows it.

An :class:`EventSource` says that something happened at a name; it never says that something is there. On
Linux each folder gets an inotify watch of its own, because watchdog's recursive watches include
ignored folders as well (``node_modules`` alone can use up the system's limit). The masks leave out opening
and closing after reading, so our own reading is never an event. Elsewhere one recursive watch covers
a whole tree.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

if sys.platform == "linux":
    from watchdog.observers.inotify_c import (
        CallbackId,
        InotifyConstants,
        InotifyEvent,
        InotifyFD,
        Mask,
        WatchDescriptor,
    )


class Change(Enum):
    """What happened."""

    APPEARED = "appeared"
    GONE = "gone"
    CHANGED = "changed"
    LOST = "lost"  # the watched folder itself is gone, and the watch with it
    OVERFLOW = "overflow"  # notices were dropped; anything may have happened


@dataclass(frozen=True, slots=True)
class Event:
    """One notice.

    Attributes:
        token: Which watch it comes from.
        name: Path below the watched folder; empty for the folder itself.
        is_folder: Whether the name is a folder's.
        change: What happened.
    """

    token: int
    name: str
    is_folder: bool
    change: Change


class EventSource(Protocol):
    """Where notices come from. They are delivered on a thread of the source's own.

    Attributes:
        recursive: Whether one watch covers everything below its folder.
    """

    recursive: bool

    def watch(self, path: str, *, follow: bool) -> int:
        """Watches a folder and returns a token for it.

        Args:
            path: The folder.
            follow: Whether the path may be a symlink.

        Raises:
            OSError: ENOSPC or EMFILE at the system's limits, EACCES, ENOENT, ENOTDIR.
        """
        ...

    def unwatch(self, tokens: Collection[int]) -> None:
        """Ends watches; tokens of lost watches are fine."""
        ...

    def is_alive(self) -> bool:
        """Whether notices can still arrive."""
        ...

    def close(self) -> None:
        """Ends all watches."""
        ...


def open_source(deliver: Callable[[Event], None]) -> EventSource:
    """Opens this system's source of notices.

    Raises:
        OSError: EMFILE where the user has no inotify instance left.
    """
    return FolderSource(deliver) if sys.platform == "linux" else TreeSource(deliver)


if sys.platform == "linux":
    _SELF = InotifyConstants.IN_DELETE_SELF | InotifyConstants.IN_MOVE_SELF
    _APPEARED = InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVED_TO
    _GONE = InotifyConstants.IN_DELETE | InotifyConstants.IN_MOVED_FROM
    _CHANGED = InotifyConstants.IN_MODIFY | InotifyConstants.IN_CLOSE_WRITE | InotifyConstants.IN_ATTRIB
    _FLAGS = InotifyConstants.IN_ONLYDIR | InotifyConstants.IN_EXCL_UNLINK

    class FolderSource:
        """One inotify watch for each folder."""

        recursive = False

        def __init__(self, deliver: Callable[[Event], None]) -> None:
            self._deliver = deliver
            self._tokens = itertools.count(1)
            self._descriptors: dict[int, WatchDescriptor] = {}
            self._closed = False
            self._inotify = InotifyFD()
            self._inotify.start()

        def watch(self, path: str, *, follow: bool) -> int:
            """Watches one folder."""
            token = next(self._tokens)
            flags = _FLAGS if follow else _FLAGS | InotifyConstants.IN_DONT_FOLLOW
            callback = _Callback(token, self._pass_on)
            descriptor = self._inotify.add_callback(
                os.fsencode(path),
                Mask(_SELF | _APPEARED | _GONE | _CHANGED | flags),
                callback,
                CallbackId(token),
            )
            if descriptor == -1:  # watchdog 7 keeps EACCES to itself
                self._inotify.remove_callbacks([(descriptor, CallbackId(token))])
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            self._descriptors[token] = descriptor
            return token

        def unwatch(self, tokens: Collection[int]) -> None:
            """Ends watches."""
            known = [(self._descriptors.pop(token), token) for token in tokens if token in self._descriptors]
            self._inotify.remove_callbacks([(descriptor, CallbackId(token)) for descriptor, token in known])

        def is_alive(self) -> bool:
            """Whether the reading thread still runs."""
            return self._inotify.is_alive()

        def close(self) -> None:
            """Ends all watches."""
            if not self._closed:
                self._closed = True
                self._inotify.stop()
                self._inotify.join(1.0)

        def _pass_on(self, event: Event) -> None:
            if not self._closed:
                self._deliver(event)

    @dataclass(frozen=True, slots=True)
    class _Callback:
        token: int
        deliver: Callable[[Event], None]

        def on_event(self, event: InotifyEvent) -> None:
            mask = event.mask
            if mask & _SELF:
                change = Change.LOST
            elif mask & _APPEARED:
                change = Change.APPEARED
            elif mask & _GONE:
                change = Change.GONE
            else:
                change = Change.CHANGED
            is_folder = bool(mask & InotifyConstants.IN_ISDIR)
            self.deliver(Event(self.token, os.fsdecode(event.name), is_folder, change))

        def on_watch_deleted(self, wd: WatchDescriptor) -> None:
            self.deliver(Event(self.token, "", True, Change.LOST))

        def on_queue_overflow(self) -> None:
            self.deliver(Event(self.token, "", True, Change.OVERFLOW))


class TreeSource:
    """One recursive watch for a whole tree: FSEvents on macOS, whatever watchdog has elsewhere."""

    recursive = True

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._tokens = itertools.count(1)
        self._watches: dict[int, ObservedWatch] = {}
        self._observer = Observer()
        self._observer.start()

    def watch(self, path: str, *, follow: bool) -> int:
        """Watches the tree below ``path``; notices carry the path with its symlinks resolved."""
        token = next(self._tokens)
        real_path = os.path.realpath(path) if follow else path
        handler = _Handler(token, real_path, self._deliver)
        self._watches[token] = self._observer.schedule(handler, real_path, recursive=True)
        return token

    def unwatch(self, tokens: Collection[int]) -> None:
        """Ends watches."""
        for token in tokens:
            watch = self._watches.pop(token, None)
            if watch is not None:
                self._observer.unschedule(watch)

    def is_alive(self) -> bool:
        """Whether the observer and each of its emitters still run."""
        return self._observer.is_alive() and all(emitter.is_alive() for emitter in self._observer.emitters)

    def close(self) -> None:
        """Ends all watches."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join(1.0)


class _Handler(FileSystemEventHandler):
    _KINDS: ClassVar = {"created": Change.APPEARED, "deleted": Change.GONE}
    _OWN_READS: ClassVar = frozenset({"opened", "closed_no_write"})

    def __init__(self, token: int, path: str, deliver: Callable[[Event], None]) -> None:
        self._token = token
        self._path = path
        self._deliver = deliver

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type in self._OWN_READS:
            return
        if event.event_type == "moved":
            self._tell(event.src_path, event.is_directory, Change.GONE)
            self._tell(event.dest_path, event.is_directory, Change.APPEARED)
        else:
            change = self._KINDS.get(event.event_type, Change.CHANGED)
            self._tell(event.src_path, event.is_directory, change)

    def _tell(self, path: str | bytes, is_folder: bool, change: Change) -> None:
        path = os.fsdecode(path)
        if path == self._path:
            self._deliver(
                Event(self._token, "", True, Change.LOST if change is Change.GONE else Change.CHANGED)
            )
        elif path.startswith(self._path.rstrip("/") + "/"):
            self._deliver(Event(self._token, path[len(self._path.rstrip("/")) + 1 :], is_folder, change))

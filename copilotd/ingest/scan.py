"""Looks at a root: which documents are there, under which stat fingerprints.

The scanner remembers what it saw. The next look takes one ``lstat`` for every folder and every
document it knows, and lists again only those folders whose own time stamps, or whose ignore files,
changed. A folder whose time stamp is not clearly older than the moment it was listed is listed again
too: something may have come or gone within the same tick of the file system's clock.

Where a healthy watcher says what has changed since the last look, only that is looked at.

Nothing is opened here but folders and ignore files. Symbolic links below the root are not followed: what
a link inside the root points to is found under its own name, and what lies outside is none of our business.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from copilotd.ingest.ignore import (
    IGNORE_FILES,
    MARKER_FILES,
    FolderRules,
    OuterRules,
    Patterns,
    Rules,
    read_folder_rules,
    read_outer_rules,
)
from copilotd.types import Root, RootState, ScanResult, SourceFile, StatFingerprint

# FAT keeps times in steps of 2 s, the coarsest of the file systems in use.
_RACY_NS = 2_000_000_000

_RULE_NAMES = frozenset({*IGNORE_FILES, ".git"})
# Our own shortage says nothing of the folder.
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

# Absolute path, then mtime_ns, size, ctime_ns and inode of the last look.
_Document = tuple[str, int, int, int, int]
_UNSEEN = (0, -1, 0, 0)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a watcher was told of since the last look, by relative path.

    Attributes:
        files: Documents that came, went or changed.
        folders: Folders that came, went, moved or changed; everything below them may have.
    """

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


class _Folder:
    """What one listing of a folder found.

    Attributes:
        absolute: Its path.
        above: The rules it was judged by.
        rules: The rules inside it.
        found: The ignore files in it.
        stamp: mtime_ns, ctime_ns, inode and device just before the listing.
        settled: Whether an unchanged stamp proves an unchanged listing.
        closed: A tool's marker file says that nothing in it was written by people.
        error: Why it could not be listed.
    """

    __slots__ = (
        "above",
        "absolute",
        "closed",
        "documents",
        "error",
        "found",
        "problems",
        "rules",
        "settled",
        "stamp",
        "subfolders",
    )

    def __init__(self, absolute: str, above: Rules) -> None:
        self.absolute = absolute
        self.above = above
        self.rules = above
        self.found = FolderRules()
        self.stamp = (0, 0, 0, 0)
        self.settled = False
        self.closed = False
        self.error = ""
        self.documents: list[_Document] = []
        self.subfolders: list[str] = []
        self.problems: list[tuple[str, str]] = []


class Scanner:
    """Finds the documents of one root. Several threads may use it.

    Args:
        root: The folder and its globs.
        suffixes: Lower-case suffixes with their dot.
        max_file_bytes: Larger files are left out and reported.
        clock_ns: The wall clock that file times are compared with.
    """

    def __init__(
        self,
        root: Root,
        *,
        suffixes: Collection[str],
        max_file_bytes: int,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.root = root
        self._suffixes = tuple(suffixes)
        self._max_file_bytes = max_file_bytes
        self._clock_ns = clock_ns
        self._include = Patterns(root.include)
        self._prefix = root.path.rstrip("/") + "/"
        self._lock = threading.Lock()
        self._outer: OuterRules | None = None
        self._folders: dict[str, _Folder] = {}
        # Handed out with each result, so never changed in place.
        self._files: dict[str, SourceFile] = {}
        self._gone: list[str] = []
        self._too_large: dict[str, str] = {}
        self._last_count = 0
        # Folders listed by the look at hand.
        self._listed: set[str] = set()

    def scan(
        self, full: bool = False, *, known_count: int | None = None, changes: Changes | None = None
    ) -> ScanResult:
        """Looks at the root.

        Args:
            full: List every folder and trust nothing remembered.
            changes: All that has changed since the last look; None where nobody knows.
            known_count: How many documents are known from before; where none are found any more the
                state is EMPTIED. None takes the count of the last look that found any; 0 accepts an
                empty root as it is.
        """
        with self._lock:
            counts = {"stats": 0, "listings": 0}
            self._listed.clear()
            touched = None if full or changes is None else self._touched(changes)
            state = self._look_at_root()
            if state is RootState.OK:
                self._look_at_folders(full, counts, touched)
                top = self._folders.get("")
                if top is None:
                    state = RootState.MISSING
                elif top.error:
                    state = RootState.UNREADABLE
            if state is not RootState.OK:
                self._folders, self._files, self._too_large, self._outer = {}, {}, {}, None
                return ScanResult(state, {}, stats=counts)
            unreadable = self._look_at_documents(counts, touched)
            if self._files:
                self._last_count = len(self._files)
            elif (self._last_count if known_count is None else known_count) and not unreadable:
                state = RootState.EMPTIED
            return ScanResult(
                state, self._files, self._problems(unreadable), tuple(sorted(unreadable)), counts
            )

    def accepts(self, relative_path: str) -> bool:
        """Whether a document of this name belongs to the index; it need not exist (any more)."""
        folder, _, name = relative_path.rpartition("/")
        if not name.lower().endswith(self._suffixes):
            return False
        rules = self._rules_inside(folder)
        return rules is not None and self._accepts_document(relative_path, rules)

    def accepts_folder(self, relative_path: str) -> bool:
        """Whether documents in this folder belong to the index; ``""`` is the root itself."""
        return self._rules_inside(relative_path) is not None

    def folders(self, below: str = "") -> Iterator[str]:
        """Lists the accepted folders from ``below`` down, itself first, as they are right now."""
        above = self._rules_above(below)
        pending = [] if above is None else [(below, above)]
        while pending:
            path, above = pending.pop()
            folder = self._list(path, above)
            if folder is None or folder.closed:
                continue
            yield path
            # Whoever watches what was yielded misses nothing: what came meanwhile is listed now.
            if _may_differ(path, folder):
                folder = self._list(path, above) or folder
            pending.extend((subfolder, folder.rules) for subfolder in reversed(folder.subfolders))

    # ------------------------------------------------------------------------------------ rules

    def _accepts_document(self, path: str, rules: Rules) -> bool:
        return not rules.ignores(path, is_folder=False) and (not self._include or self._include.covers(path))

    def _rules_inside(self, path: str) -> Rules | None:
        """The rules inside a folder, which may be unknown yet; None where it is ignored."""
        unknown: list[str] = []
        while (known := self._folders.get(path)) is None:
            unknown.append(path)
            if not path:
                break
            path = path.rpartition("/")[0]
        if known is not None and known.closed:
            return None
        rules = self._rules_outside() if known is None else known.rules
        for folder in reversed(unknown):
            absolute = self._absolute(folder)
            if folder and (
                rules.ignores(folder, is_folder=True)
                or any(os.path.lexists(f"{absolute}/{name}") for name in MARKER_FILES)
            ):
                return None
            names = [name for name in _RULE_NAMES if os.path.lexists(f"{absolute}/{name}")]
            rules = rules.inside(folder, read_folder_rules(absolute, names))
        return rules

    def _rules_above(self, path: str) -> Rules | None:
        """The rules a folder is judged by; None where it, or a folder above it, is ignored."""
        if not path:
            return self._rules_outside()
        above = self._rules_inside(path.rpartition("/")[0])
        return None if above is None or above.ignores(path, is_folder=True) else above

    def _rules_outside(self) -> Rules:
        outer = self._outer
        return (outer or self._read_outer_rules()).rules

    def _read_outer_rules(self) -> OuterRules:
        return read_outer_rules(os.path.realpath(self.root.path), self.root.exclude)

    def _absolute(self, path: str) -> str:
        return self._prefix + path if path else self.root.path

    # ---------------------------------------------------------------------------------- folders

    def _look_at_root(self) -> RootState:
        try:
            status = os.stat(self.root.path)
        except OSError as error:
            return RootState.MISSING if error.errno in _VANISHED else RootState.UNREADABLE
        return RootState.OK if stat.S_ISDIR(status.st_mode) else RootState.MISSING

    def _touched(self, changes: Changes) -> dict[str, frozenset[str] | None]:
        """Sorts changes by folder: the documents to look at there, by absolute path, or None for all of them."""
        files: dict[str, set[str]] = {}
        for path in changes.files:
            files.setdefault(path.rpartition("/")[0], set()).add(self._prefix + path)
        touched: dict[str, frozenset[str] | None] = {
            path: frozenset(documents) for path, documents in files.items()
        }
        for path in changes.folders:
            if path:
                # What came or went changed the folder above.
                touched.setdefault(path.rpartition("/")[0], frozenset())
        pending = list(changes.folders)
        while pending:
            path = pending.pop()
            folder = self._folders.get(path)
            if folder is not None:
                touched[path] = None
                pending.extend(folder.subfolders)
        return touched

    def _look_at_folders(
        self, full: bool, counts: dict[str, int], touched: Mapping[str, frozenset[str] | None] | None
    ) -> None:
        if full or self._outer is None or self._outer.changed(os.path.realpath(self.root.path)):
            self._outer = self._read_outer_rules()
            self._folders, self._files, self._too_large = {}, {}, {}
            self._visit("", self._outer.rules, counts)
            return
        if touched is None:
            looked_at = self._folders
        else:
            looked_at = {
                path: folder
                for path, folder in self._folders.items()
                if path in touched or not folder.settled
            }
        counts["stats"] += len(looked_at)
        # Folders above come first, because what is found there may settle the matter for those below.
        for path in sorted(path for path, folder in looked_at.items() if _may_differ(path, folder)):
            folder = self._folders.get(path)
            if folder is not None:
                parent = self._folders[path.rpartition("/")[0]] if path else None
                self._visit(path, self._outer.rules if parent is None else parent.rules, counts)

    def _visit(self, path: str, above: Rules, counts: dict[str, int]) -> None:
        """Lists a folder, and those below it that are new or whose rules changed."""
        pending = [(path, above)]
        while pending:
            path, above = pending.pop()
            counts["listings"] += 1
            self._listed.add(path)
            folder = self._list(path, above)
            before = self._folders.get(path)
            if folder is None:
                self._forget(path)
                parent = self._folders.get(path.rpartition("/")[0])
                if path and parent is not None:
                    parent.subfolders = [subfolder for subfolder in parent.subfolders if subfolder != path]
                    parent.settled = False
                continue
            if before is not None:
                for subfolder in set(before.subfolders).difference(folder.subfolders):
                    self._forget(subfolder)
                known = {document[0]: document for document in before.documents}
                folder.documents = [known.pop(document[0], document) for document in folder.documents]
                self._drop_documents(known)
            self._folders[path] = folder
            for subfolder in folder.subfolders:
                child = self._folders.get(subfolder)
                if child is None or child.above != folder.rules:
                    pending.append((subfolder, folder.rules))

    def _list(self, path: str, above: Rules) -> _Folder | None:
        """Lists one folder; None where it is no longer there, or no longer a folder."""
        folder = _Folder(self._absolute(path), above)
        listed_ns = self._clock_ns()
        try:
            # No symlink can slip in between the look at the folder and its listing.
            handle = os.open(folder.absolute, os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if path else 0))
        except OSError as error:
            if error.errno in _VANISHED:
                return None
            if error.errno in _OURS:
                raise
            folder.error = f"folder cannot be read: {error.strerror}"
            return folder
        try:
            status = os.fstat(handle)
            with os.scandir(handle) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
                self._sort_entries(folder, path, entries)
        except OSError as error:
            folder.error = f"folder cannot be read: {error.strerror}"
            folder.documents, folder.subfolders = [], []
            return folder
        finally:
            os.close(handle)
        folder.stamp = _stamp(status)
        newest_ns = max(status.st_mtime_ns, status.st_ctime_ns, folder.found.newest_ns)
        folder.settled = newest_ns < listed_ns - _RACY_NS
        return folder

    def _sort_entries(self, folder: _Folder, path: str, entries: list[os.DirEntry[str]]) -> None:
        names = {entry.name for entry in entries}
        if path and not names.isdisjoint(MARKER_FILES):
            folder.closed = True
            return
        folder.found = read_folder_rules(folder.absolute, names & _RULE_NAMES)
        folder.rules = rules = folder.above.inside(path, folder.found)
        below = f"{path}/" if path else ""
        for file, reason in folder.found.problems:
            folder.problems.append((file.removeprefix(self._prefix), reason))
        for entry in entries:
            name = entry.name
            relative = below + name
            if entry.is_dir(follow_symlinks=False):
                if not rules.ignores(relative, is_folder=True):
                    folder.subfolders.append(relative)
                continue
            is_link = entry.is_symlink()
            is_document = name.lower().endswith(self._suffixes)
            if not (is_document or is_link) or not self._accepts_document(relative, rules):
                continue
            if entry.is_file(follow_symlinks=False):
                folder.documents.append((self._prefix + relative, *_UNSEEN))
            elif not is_link:
                folder.problems.append((relative, "not a regular file"))
            elif (is_document or os.path.isdir(folder.absolute + "/" + name)) and self._leads_outside(
                relative
            ):
                folder.problems.append((relative, "symbolic link that leads outside the root; not followed"))

    def _leads_outside(self, path: str) -> bool:
        root = os.path.realpath(self.root.path).rstrip("/") + "/"
        return not f"{os.path.realpath(self._prefix + path)}/".startswith(root)

    def _forget(self, path: str) -> None:
        """Drops a folder and everything below it from the memory."""
        pending = [path]
        while pending:
            folder = self._folders.pop(pending.pop(), None)
            if folder is not None:
                self._drop_documents(document[0] for document in folder.documents)
                pending.extend(folder.subfolders)

    def _drop_documents(self, absolute_paths: Iterable[str]) -> None:
        self._gone.extend(path[len(self._prefix) :] for path in absolute_paths)

    # -------------------------------------------------------------------------------- documents

    def _look_at_documents(
        self, counts: dict[str, int], touched: Mapping[str, frozenset[str] | None] | None
    ) -> set[str]:
        """Takes a fresh ``lstat`` of every document, or of the touched; returns the folders that denied one."""
        lstat = os.lstat
        denied: set[str] = set()
        changed: dict[str, os.stat_result] = {}
        if touched is None:
            looked_at: Iterable[str] = self._folders
        else:
            looked_at = self._folders.keys() & (touched.keys() | self._listed)
        for folder_path in looked_at:
            folder = self._folders[folder_path]
            documents = folder.documents
            wanted = None if touched is None or folder_path in self._listed else touched[folder_path]
            counts["stats"] += len(documents) if wanted is None else len(wanted)
            for index, (path, mtime_ns, size, ctime_ns, inode) in enumerate(documents):
                if wanted is not None and path not in wanted:
                    continue
                try:
                    status = lstat(path)
                except OSError as error:
                    documents[index] = (path, *_UNSEEN)
                    folder.settled = False
                    self._drop_documents((path,))
                    if error.errno not in _VANISHED:
                        denied.add(folder_path)
                    continue
                if (
                    status.st_mtime_ns != mtime_ns
                    or status.st_ctime_ns != ctime_ns
                    or status.st_size != size
                    or status.st_ino != inode
                ):
                    if stat.S_ISREG(status.st_mode):
                        changed[path[len(self._prefix) :]] = status
                        documents[index] = (
                            path,
                            status.st_mtime_ns,
                            status.st_size,
                            status.st_ctime_ns,
                            status.st_ino,
                        )
                    else:  # replaced since the listing; the next one sorts it out
                        documents[index] = (path, *_UNSEEN)
                        folder.settled = False
                        self._drop_documents((path,))
        if changed or self._gone:
            self._take_over(changed)
        unreadable = {path for path, folder in self._folders.items() if folder.error}
        return unreadable | denied

    def _take_over(self, changed: dict[str, os.stat_result]) -> None:
        files = dict(self._files)
        for path in self._gone:
            files.pop(path, None)
            self._too_large.pop(path, None)
        self._gone.clear()
        for path, status in changed.items():
            if status.st_size > self._max_file_bytes:
                files.pop(path, None)
                self._too_large[path] = f"larger than {self._max_file_bytes / 1_000_000:g} MB"
                continue
            self._too_large.pop(path, None)
            fingerprint = StatFingerprint(
                status.st_mtime_ns, status.st_size, status.st_ctime_ns, status.st_ino
            )
            files[path] = SourceFile(path, fingerprint)
        self._files = files

    def _problems(self, unreadable: set[str]) -> tuple[tuple[str, str], ...]:
        problems = list(self._too_large.items())
        for path, folder in self._folders.items():
            problems.extend(folder.problems)
            if path in unreadable:
                problems.append((path, folder.error or "files in this folder cannot be looked at"))
        return tuple(sorted(problems))


def _may_differ(path: str, folder: _Folder) -> bool:
    if not folder.settled:
        return True
    try:
        status = os.lstat(folder.absolute) if path else os.stat(folder.absolute)
    except OSError:
        return True
    return _stamp(status) != folder.stamp or (bool(folder.found.stamps) and folder.found.changed())


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)

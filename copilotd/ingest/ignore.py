"""What is left out of an index: the same answer for the scan and for the watcher.

A path is looked at from the top down, and an ignored folder ends the matter for everything below
it, as in git. The first of these that has an opinion decides:

1. version control folders and what editors leave behind while saving: never read;
2. the root's ``exclude`` globs;
3. ``.copilotignore``, nearest folder first; its ``!pattern`` also brings back what 4 and 5 leave out;
4. hidden names and folders of installed packages;
5. ``.gitignore``, nearest folder first up to the repository's top, then ``.git/info/exclude``.
   A repository inside another one follows its own rules only.

Patterns are pathspec's, one by one, because git asks each file *in turn* and a pattern for a folder
says nothing of its own about what lies inside: ``!docs/`` in one file must not hide ``*.md`` of
the file above it. (``PathSpec.match_file`` lets a pattern speak for everything below its match.)
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

IGNORE_FILES = (".gitignore", ".copilotignore")

_VCS_FOLDERS = frozenset({".git", ".hg", ".svn", ".bzr", "_darcs", ".jj", ".sl", "CVS"})
_PACKAGE_FOLDERS = frozenset(
    {"node_modules", "bower_components", "jspm_packages", "__pycache__", "__pypackages__"}
)
# Files by which a folder says that it is made by a tool: a virtual environment (PEP 405), a cache
# (https://bford.info/cachedir/).
MARKER_FILES = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
# Backup, swap and lock files: Emacs ``x~``, ``#x#`` and ``.#x``, Vim ``.x.swp`` and its write test
# ``4913``, Office ``~$x``, and the temporary names of atomic saves.
_EDITOR_FILE = re.compile(
    r".*~|\.#.*|#.*#|~\$.*|.*\.(?:sw[a-z]|tmp|bak|orig|part|crdownload)|4913", re.DOTALL
)

_MAX_RULE_BYTES = 1_000_000
# Matching takes time to the power of the wildcards, and ignore files come with strangers' repositories.
_MAX_WILDCARDS = 4

_POSIX_CLASSES = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:blank:]": " \t",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9A-Fa-f",
    "[:space:]": " \t\r\n\v\f",
}


@dataclass(frozen=True, slots=True)
class _Pattern:
    regex: re.Pattern[str] | None  # None matches everything
    ignores: bool
    folders_only: bool


class Patterns:
    """The patterns of one ignore file; the last one that matches decides.

    Args:
        lines: Lines in gitignore syntax. One that git would not understand matches nothing, nor does
            one with more wildcards than could be matched in time.
    """

    __slots__ = ("_reversed", "lines")

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        parsed = [pattern for line in self.lines if (pattern := _parse(line)) is not None]
        self._reversed = tuple(reversed(parsed))

    def __bool__(self) -> bool:
        return bool(self._reversed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Patterns) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.lines)

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Says whether ``path`` itself is ignored (True), brought back (False) or not mentioned (None).

        Args:
            path: Relative to the folder the patterns belong to, no slash at the end.
            is_folder: Whether it is a folder; patterns that end in a slash match nothing else.
        """
        for pattern in self._reversed:
            if (is_folder or not pattern.folders_only) and (
                pattern.regex is None or pattern.regex.fullmatch(path) is not None
            ):
                return pattern.ignores
        return None

    def covers(self, path: str) -> bool:
        """Whether the file ``path`` or a folder it lies in is matched."""
        covered = False
        end = path.find("/")
        while True:
            part, is_folder = (path, False) if end < 0 else (path[:end], True)
            verdict = self.verdict(part, is_folder=is_folder)
            if verdict is not None:
                covered = verdict
            if not is_folder:
                return covered
            end = path.find("/", end + 1)


def _parse(line: str) -> _Pattern | None:
    line = line.removesuffix("\r")
    body = line.rstrip(" ")
    if len(body) < len(line) and (len(body) - len(body.rstrip("\\"))) % 2:
        body += " "  # the backslash keeps one blank
    if not body or body.startswith("#"):
        return None
    ignores = not body.startswith("!")
    body = body.removeprefix("!")
    folders_only = body.endswith("/")
    body = body.removesuffix("/")
    if not body or body.startswith("//") or body.endswith("/"):
        return None
    body = re.sub(r"(?:(?<=^)|(?<=/))\*{3,}(?=/|$)", "**", body)  # more stars are no more than two
    parts = body.removeprefix("/").split("/")
    if all(part == "**" for part in parts[:-1]) and parts[-1] in ("*", "**") and body != "/*":
        return _Pattern(None, ignores, folders_only)
    if parts.count("**") > _MAX_WILDCARDS or any(part.count("*") > _MAX_WILDCARDS for part in parts):
        return None
    if parts[-1] == "**":
        body += "/*"  # what is inside, at any depth, but not the folder itself
    for name, characters in _POSIX_CLASSES.items():
        body = body.replace(name, characters)
    if body[0] in "!#":
        body = "\\" + body
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # "[[" in a pattern is the file's own affair
            regex = GitIgnoreSpecPattern(body).regex
    except (ValueError, re.error):
        return None
    return None if regex is None else _Pattern(regex, ignores, folders_only)


@dataclass(frozen=True, slots=True)
class _Level:
    """Patterns of one folder; the path they see is ``prefix + path[strip:]``."""

    patterns: Patterns
    prefix: str
    strip: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force directly inside one folder of a root. Immutable, so threads may share them."""

    exclude: Patterns
    own: tuple[_Level, ...] = ()
    git: tuple[_Level, ...] = ()

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether ``path`` is left out, given that the folder it lies in is not.

        Args:
            path: Relative to the root.
            is_folder: Whether it is a folder.
        """
        name = path.rpartition("/")[2]
        if name in _VCS_FOLDERS or (not is_folder and _EDITOR_FILE.fullmatch(name)):
            return True
        if self.exclude and self.exclude.verdict(path, is_folder=is_folder):
            return True
        verdict = _ask(self.own, path, is_folder)
        if verdict is not None:
            return verdict
        if name.startswith(".") or (is_folder and name in _PACKAGE_FOLDERS):
            return True
        return bool(_ask(self.git, path, is_folder))

    def inside(self, folder: str, found: FolderRules) -> Rules:
        """The rules inside ``folder``, which brings ``found`` with it."""
        strip = len(folder) + 1 if folder else 0
        own = (_Level(found.own, "", strip), *self.own) if found.own else self.own
        git = self.git
        if found.repository:
            git = (_Level(found.info_exclude, "", strip),) if found.info_exclude else ()
        if found.git:
            git = (_Level(found.git, "", strip), *git)
        return self if own is self.own and git is self.git else Rules(self.exclude, own, git)


def _ask(levels: tuple[_Level, ...], path: str, is_folder: bool) -> bool | None:
    for level in levels:
        verdict = level.patterns.verdict(level.prefix + path[level.strip :], is_folder=is_folder)
        if verdict is not None:
            return verdict
    return None


_NOTHING = Patterns(())
Stamp = tuple[int, int, int, int, int]


def stamp(path: str) -> Stamp | None:
    """What ``lstat`` says of a rule file: mode, mtime, ctime, size, inode; None where there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


@dataclass(frozen=True, slots=True)
class FolderRules:
    """The ignore files that stand in one folder.

    Attributes:
        own: ``.copilotignore``.
        git: ``.gitignore``.
        info_exclude: ``.git/info/exclude``.
        repository: Whether the folder is the top of a repository.
        stamps: Path and stamp of each file these rules were read from, or would be read from.
        problems: ``(path, reason)`` of ignore files that could not be read.
    """

    own: Patterns = _NOTHING
    git: Patterns = _NOTHING
    info_exclude: Patterns = _NOTHING
    repository: bool = False
    stamps: tuple[tuple[str, Stamp | None], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()

    def changed(self) -> bool:
        """Whether one of the files looks different now."""
        return any(stamp(path) != before for path, before in self.stamps)

    @property
    def newest_ns(self) -> int:
        """The latest time stamp among the files."""
        return max((max(s[1], s[2]) for _, s in self.stamps if s is not None), default=0)


def read_folder_rules(folder: str, names: Iterable[str]) -> FolderRules:
    """Reads the ignore files of a folder.

    Args:
        folder: Absolute path.
        names: The names in it, as far as they may matter here.
    """
    names = set(names)
    repository = ".git" in names
    if not repository and names.isdisjoint(IGNORE_FILES):
        return FolderRules()
    stamps: list[tuple[str, Stamp | None]] = []
    problems: list[tuple[str, str]] = []

    def read(path: str) -> Patterns:
        before = stamp(path)
        stamps.append((path, before))
        # Git doesn't follow a linked .gitignore either, and opening a FIFO would wait for ever.
        if before is None or not stat.S_ISREG(before[0]):
            return _NOTHING
        try:
            with open(path, "rb") as file:
                text = os.fsdecode(file.read(_MAX_RULE_BYTES).removeprefix(b"\xef\xbb\xbf"))
        except OSError as error:
            problems.append((path, f"ignore file cannot be read: {error.strerror}"))
            return _NOTHING
        return Patterns(text.split("\n"))

    return FolderRules(
        own=read(f"{folder}/.copilotignore") if ".copilotignore" in names else _NOTHING,
        git=read(f"{folder}/.gitignore") if ".gitignore" in names else _NOTHING,
        info_exclude=read(f"{_common_git_folder(f'{folder}/.git')}/info/exclude") if repository else _NOTHING,
        repository=repository,
        stamps=tuple(stamps),
        problems=tuple(problems),
    )


def _common_git_folder(git: str) -> str:
    """Follows the ``.git`` file of a linked worktree or submodule to where ``info/`` is."""
    status = stamp(git)
    if status is None or not stat.S_ISREG(status[0]):
        return git
    folder = os.path.join(os.path.dirname(git), _first_line(git).removeprefix("gitdir:").strip())
    return os.path.join(folder, _first_line(f"{folder}/commondir"))


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(4096)).strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class OuterRules:
    """The ignore files above a root, up to the top of the repository it lies in.

    Attributes:
        rules: What they say inside the root.
        folders: The folders they came from, with what was found there.
    """

    rules: Rules
    folders: tuple[tuple[str, FolderRules], ...] = field(default=(), compare=False)

    def changed(self, real_root: str) -> bool:
        """Whether another look would find other files."""
        return tuple(_folders_above(real_root)) != tuple(folder for folder, _ in self.folders) or any(
            found.changed() for _, found in self.folders
        )


def _folders_above(real_root: str) -> list[str]:
    """The folders from a repository's top down to the root's parent; none outside a repository."""
    if os.path.lexists(f"{real_root}/.git"):
        return []
    above: list[str] = []
    folder = real_root
    while (parent := os.path.dirname(folder)) != folder:
        above.append(parent)
        if os.path.lexists(f"{parent.rstrip('/')}/.git"):
            return above[::-1]
        folder = parent
    return []


def read_outer_rules(real_root: str, exclude: Iterable[str]) -> OuterRules:
    """Reads the rules that reach a root from outside, and its own ``exclude`` globs.

    Args:
        real_root: The root without symlinks in its path.
        exclude: The root's globs.
    """
    own: list[_Level] = []
    git: list[_Level] = []
    folders: list[tuple[str, FolderRules]] = []
    for folder in _folders_above(real_root):
        # Ignore files may appear later; their absence is stamped too, by asking for every name.
        names = {*IGNORE_FILES, *((".git",) if not folders else ())}
        found = read_folder_rules(folder, names)
        folders.append((folder, found))
        prefix = real_root[len(folder.rstrip("/")) + 1 :] + "/"
        for patterns, levels in ((found.info_exclude, git), (found.git, git), (found.own, own)):
            if patterns:
                levels.insert(0, _Level(patterns, prefix, 0))
    return OuterRules(Rules(Patterns(exclude), tuple(own), tuple(git)), tuple(folders))

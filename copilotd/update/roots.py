"""Which folders may become roots."""

from __future__ import annotations

import os
from collections.abc import Sequence

from copilotd.errors import RootNotFound, RootOverlap, UsageError
from copilotd.text import one_line, printable, shell_word
from copilotd.types import Root


def check_root(
    path: str,
    namespace: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    chunk_size: int | None,
    chunk_overlap: int | None,
    poll: bool,
    *,
    watched: Sequence[Root],
    default_size: int,
    default_overlap: int,
) -> Root:
    """Returns the root that was asked for, its path as an earlier root of the same folder spells it.

    Args:
        path: The folder; absolute.
        namespace: What it belongs to.
        include: Globs of what is taken in; empty for everything.
        exclude: Globs of what is left out.
        chunk_size: Most characters of a chunk; None for the setting.
        chunk_overlap: Characters that neighbours share; None for the setting.
        poll: Whether to look at it from time to time only.
        watched: The roots there are.
        default_size: MAX_CHUNK_CHARS.
        default_overlap: CHUNK_OVERLAP_CHARS.

    Raises:
        RootNotFound: There is no such folder.
        RootOverlap: It lies inside another root of the namespace, or holds one.
        UsageError: A name or number makes no sense.
    """
    absolute = absolute_path(path)
    if os.path.isfile(absolute):
        raise UsageError(
            f"{printable(absolute)} is a file, not a folder.",
            f"index its folder: copilot index {shell_word(os.path.dirname(absolute))}",
        )
    if not os.path.isdir(absolute):
        raise RootNotFound(f"There is no folder {one_line(absolute, 300)}.", "check the spelling")
    if not os.access(absolute, os.R_OK | os.X_OK):
        raise UsageError(
            f"There is no permission to read {printable(absolute)}.", f"chmod u+rx {shell_word(absolute)}"
        )
    if not namespace or not all(c.isalnum() or c in "-_." for c in namespace):
        raise UsageError(
            f"{printable(namespace)!r} can't be a namespace.", "use letters, digits, dashes and dots"
        )
    size = chunk_size or default_size
    overlap = default_overlap if chunk_overlap is None else chunk_overlap
    if size < 100 or overlap < 0 or overlap * 2 > size:
        raise UsageError(
            f"A chunk of {size} characters can't overlap by {overlap}.",
            "at least 100 characters a chunk, and at most half of them repeated",
        )
    real = os.path.realpath(absolute)
    for root in watched:
        other = os.path.realpath(root.path)
        if root.namespace != namespace or other == real:
            continue
        if real.startswith(other.rstrip("/") + "/") or other.startswith(real.rstrip("/") + "/"):
            inner, outer = (absolute, root.path) if len(real) > len(other) else (root.path, absolute)
            raise RootOverlap(
                f"{printable(inner)} lies inside {printable(outer)}: its documents would be indexed twice.",
                f"copilot forget {shell_word(root.path)} first, or use another --namespace",
            )
    same = next(
        (
            root.path
            for root in watched
            if root.namespace == namespace and os.path.realpath(root.path) == real
        ),
        absolute,
    )
    return Root(0, same, namespace, include, exclude, chunk_size, chunk_overlap, poll)


def absolute_path(path: str) -> str:
    """Returns ``path`` normalised.

    Raises:
        UsageError: It is empty, relative or can't be a path.
    """
    if not path.strip():
        raise UsageError("No folder was named.", "copilot index DIR")
    if "\0" in path:
        raise UsageError("A path can't hold a NUL character.")
    # `~` is the caller's: whose home it means is for the shell or the client to say.
    if not os.path.isabs(path):
        raise UsageError(f"{one_line(path, 300)} is not an absolute path.", "the client sends absolute paths")
    return os.path.normpath(path)


def same_root(one: Root, other: Root) -> bool:
    """Returns whether both are the same folder in the same namespace."""
    return one.path == other.path and one.namespace == other.namespace

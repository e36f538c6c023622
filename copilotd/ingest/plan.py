"""Compares what the catalog knows with what a scan found. Pure: nothing is read, nothing is changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from copilotd.types import (
    Action,
    Add,
    IndexedFile,
    Move,
    Remove,
    RootState,
    ScanResult,
    SourceFile,
    StatFingerprint,
    Update,
)

# The kernel stamps files with the time of its last tick, up to 10 ms ago (CONFIG_HZ=100).
_TICK_NS = 20_000_000
# Times without a fraction may come from a file system that has none; FAT counts in steps of 2 s.
_COARSE_TICK_NS = 2_000_000_000
_SECOND_NS = 1_000_000_000


def plan(indexed: Mapping[str, IndexedFile], scanned: ScanResult, *, now_ns: int) -> list[Action]:
    """Returns what makes the catalog equal to the scan, each kind in the order of its paths.

    Removes come first, so that a name is free before it is taken again; then moves, updates and adds.
    "Could not look" is not "gone": a root that is missing, unreadable or suddenly empty gives no action
    at all, and nothing below an unreadable folder is removed.

    Args:
        indexed: The catalog's files of this root, by relative path.
        scanned: The scan of this root.
        now_ns: Wall clock, ns.
    """
    if scanned.state is not RootState.OK:
        return []
    unseen = tuple(f"{folder}/" for folder in scanned.unreadable_dirs)
    gone = [
        indexed[path] for path in sorted(indexed.keys() - scanned.files.keys()) if not path.startswith(unseen)
    ]
    fresh = [scanned.files[path] for path in sorted(scanned.files.keys() - indexed.keys())]
    moves = _pair_moves(gone, fresh)
    moved_from = {move.indexed.relative_path for move in moves}
    moved_to = {move.source.relative_path for move in moves}
    updates = [
        Update(known, source)
        for path, known in indexed.items()
        if (source := scanned.files.get(path)) is not None and _must_be_read(known, source, now_ns)
    ]
    updates.sort(key=lambda update: update.source.relative_path)
    return [
        *(Remove(known) for known in gone if known.relative_path not in moved_from),
        *moves,
        *updates,
        *(Add(source) for source in fresh if source.relative_path not in moved_to),
    ]


def is_racy(fingerprint: StatFingerprint, read_ns: int, *, now_ns: int) -> bool:
    """Whether the file may have changed after it was read without its fingerprint showing it.

    That takes a write within the tick in which the file was stamped last, so a stamp clearly older
    than the reading is proof. ctime decides, because nobody can set it; one in the future means that
    the clock went back, and proves nothing until the clock has caught up. mtime counts as well, for
    file systems whose ctime is the time of creation, unless it lies in the future: no write since then can
    have given such a time (``touch -d``), so it is no sign of one.

    Args:
        fingerprint: What the file was read under.
        read_ns: Wall clock when the reading began, ns.
        now_ns: Wall clock, ns.
    """
    tick_ns = _TICK_NS if fingerprint.mtime_ns % _SECOND_NS else _COARSE_TICK_NS
    settled_before = read_ns - tick_ns
    return fingerprint.ctime_ns >= settled_before or settled_before <= fingerprint.mtime_ns <= now_ns


def _must_be_read(known: IndexedFile, source: SourceFile, now_ns: int) -> bool:
    # The catalog usually holds the scanner's own object, and this runs for every file at every question.
    same = known.fingerprint is source.fingerprint or known.fingerprint == source.fingerprint
    # Without a hash the last reading failed; what failed may work now, whatever stat says.
    return not same or not known.content_hash or is_racy(known.fingerprint, known.read_ns, now_ns=now_ns)


def _pair_moves(gone: list[IndexedFile], fresh: list[SourceFile]) -> list[Move]:
    """Pairs vanished with new paths that share inode, size and mtime, in the order of the new paths."""
    by_identity: defaultdict[tuple[int, int, int], list[IndexedFile]] = defaultdict(list)
    for known in reversed(gone):
        by_identity[_identity(known.fingerprint)].append(known)
    return [
        Move(candidates.pop(), source)
        for source in fresh
        if (candidates := by_identity.get(_identity(source.fingerprint)))
    ]


def _identity(fingerprint: StatFingerprint) -> tuple[int, int, int]:
    return (fingerprint.inode, fingerprint.size, fingerprint.mtime_ns)

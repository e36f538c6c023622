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
    gone: list[IndexedFile] = []
    updates: list[Update] = []
    files = scanned.files
    # This runs for every file at every question, so the common case is tested first and in line: the
    # scanner's own object, read long after it was stamped.
    for path, known in indexed.items():
        source = files.get(path)
        if source is None:
            gone.append(known)
            continue
        fingerprint = known.fingerprint
        if fingerprint is source.fingerprint or fingerprint == source.fingerprint:
            settled_before = known.read_ns - _COARSE_TICK_NS
            settled = fingerprint.ctime_ns < settled_before and fingerprint.mtime_ns < settled_before
            # Without a hash the last reading failed; what failed may work now, whatever stat says.
            if known.content_hash and (settled or not is_racy(fingerprint, known.read_ns, now_ns=now_ns)):
                continue
        updates.append(Update(known, source))
    fresh: list[SourceFile] = []
    if len(files) > len(indexed) - len(gone):
        fresh = [files[path] for path in sorted(files.keys() - indexed.keys())]
    unseen = tuple(f"{folder}/" for folder in scanned.unreadable_dirs)
    gone = [known for known in gone if not known.relative_path.startswith(unseen)]
    gone.sort(key=lambda known: known.relative_path)
    updates.sort(key=lambda update: update.source.relative_path)
    moves = _pair_moves(gone, fresh)
    moved_from = {move.indexed.relative_path for move in moves}
    moved_to = {move.source.relative_path for move in moves}
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

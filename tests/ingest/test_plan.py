from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.ingest.plan import is_racy, plan
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

SECOND = 1_000_000_000
NOW = 1_790_000_000 * SECOND + 123_456_789
LONG_AGO = NOW - 3600 * SECOND


def fingerprint(
    inode: int = 1, size: int = 10, mtime_ns: int = LONG_AGO, ctime_ns: int = LONG_AGO
) -> StatFingerprint:
    return StatFingerprint(mtime_ns=mtime_ns, size=size, ctime_ns=ctime_ns, inode=inode)


def known(path: str, stat: StatFingerprint, *, read_ns: int = NOW, content_hash: str = "hash") -> IndexedFile:
    return IndexedFile(stat.inode, path, stat, content_hash, read_ns)


def indexed(*files: IndexedFile) -> dict[str, IndexedFile]:
    return {file.relative_path: file for file in files}


def scan_of(files: Mapping[str, StatFingerprint], **other: object) -> ScanResult:
    sources = {path: SourceFile(path, stat) for path, stat in files.items()}
    return replace(ScanResult(RootState.OK, sources), **other)  # type: ignore[arg-type]


def test_unchanged_files_give_no_action() -> None:
    assert plan(indexed(known("a.md", fingerprint())), scan_of({"a.md": fingerprint()}), now_ns=NOW) == []


def test_each_kind_of_difference() -> None:
    before = indexed(
        known("gone.md", fingerprint(1)), known("kept.md", fingerprint(2)), known("old.md", fingerprint(3))
    )
    after = scan_of(
        {"new.md": fingerprint(4), "kept.md": fingerprint(2, size=11), "renamed.md": fingerprint(3)}
    )
    assert plan(before, after, now_ns=NOW) == [
        Remove(before["gone.md"]),
        Move(before["old.md"], after.files["renamed.md"]),
        Update(before["kept.md"], after.files["kept.md"]),
        Add(after.files["new.md"]),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        fingerprint(size=11),
        fingerprint(mtime_ns=LONG_AGO + 1),
        fingerprint(
            mtime_ns=978_307_200 * SECOND
        ),  # WAT-16: cp -p, rsync -a, tar: an older time is a change too
        fingerprint(
            ctime_ns=LONG_AGO + 1
        ),  # WAT-13, WAT-15: chmod, or content under an mtime that was set back
        fingerprint(inode=2),
    ],
)
def test_any_difference_of_the_fingerprint_is_an_update(changed: StatFingerprint) -> None:
    before = indexed(known("a.md", fingerprint()))
    assert plan(before, scan_of({"a.md": changed}), now_ns=NOW) == [
        Update(before["a.md"], SourceFile("a.md", changed))
    ]


def test_a_failed_reading_is_tried_again_and_a_skipped_document_is_not() -> None:
    failed = known("a.md", fingerprint(1), content_hash="")
    skipped = replace(known("b.md", fingerprint(2)), skipped="no text")
    scanned = scan_of({"a.md": fingerprint(1), "b.md": fingerprint(2)})
    assert plan(indexed(failed, skipped), scanned, now_ns=NOW) == [Update(failed, scanned.files["a.md"])]


@pytest.mark.parametrize(
    ("mtime_ns", "ctime_ns", "racy"),
    [
        (NOW - SECOND, NOW - SECOND, False),
        (NOW - 5_000_000, NOW - 5_000_000, True),
        (LONG_AGO, NOW - 5_000_000, True),  # the time of modification was set back after writing
        (NOW - 5_000_000, LONG_AGO, True),  # a file system whose ctime is the time of creation
        (LONG_AGO, NOW + 60 * SECOND, True),  # the clock went back
        (NOW + 60 * SECOND, LONG_AGO, False),  # touch -d tomorrow: no writing gives that time
        (NOW // SECOND * SECOND - SECOND, NOW // SECOND * SECOND - SECOND, True),  # whole seconds only
        (NOW // SECOND * SECOND - 3 * SECOND, NOW // SECOND * SECOND - 3 * SECOND, False),
    ],
)
def test_a_fingerprint_is_racy_until_it_is_clearly_older_than_the_reading(
    mtime_ns: int, ctime_ns: int, racy: bool
) -> None:
    stat = fingerprint(mtime_ns=mtime_ns, ctime_ns=ctime_ns)
    assert is_racy(stat, NOW, now_ns=NOW) is racy
    before = known("a.md", stat, read_ns=NOW)
    expected = [Update(before, SourceFile("a.md", stat))] if racy else []
    assert plan(indexed(before), scan_of({"a.md": stat}), now_ns=NOW) == expected


def test_a_later_reading_settles_a_racy_fingerprint() -> None:
    """WAT-15: read within the tick of the last write, then once more, then never again."""
    stat = fingerprint(mtime_ns=NOW, ctime_ns=NOW)
    later = NOW + SECOND
    scanned = scan_of({"a.md": stat})
    assert plan(indexed(known("a.md", stat, read_ns=NOW)), scanned, now_ns=later) != []
    assert plan(indexed(known("a.md", stat, read_ns=later)), scanned, now_ns=later) == []


@pytest.mark.parametrize("state", [RootState.MISSING, RootState.UNREADABLE, RootState.EMPTIED])
def test_could_not_look_is_not_gone(state: RootState) -> None:
    """WAT-08."""
    before = indexed(*(known(f"{index}.md", fingerprint(index)) for index in range(1, 201)))
    assert plan(before, ScanResult(state, {}), now_ns=NOW) == []


def test_nothing_below_an_unreadable_folder_is_removed() -> None:
    before = indexed(
        known("secret/a.md", fingerprint(1)),
        known("secret/deep/b.md", fingerprint(2)),
        known("secretary/c.md", fingerprint(3)),
        known("d.md", fingerprint(4)),
    )
    scanned = scan_of({"moved.md": fingerprint(1), "d.md": fingerprint(4)}, unreadable_dirs=("secret",))
    assert plan(before, scanned, now_ns=NOW) == [
        Remove(before["secretary/c.md"]),
        Add(scanned.files["moved.md"]),
    ]


def test_hard_links_are_paired_one_to_one() -> None:
    before = indexed(known("a.md", fingerprint(7)), known("b.md", fingerprint(7)))
    scanned = scan_of({"x.md": fingerprint(7), "y.md": fingerprint(7), "z.md": fingerprint(7)})
    assert plan(before, scanned, now_ns=NOW) == [
        Move(before["a.md"], scanned.files["x.md"]),
        Move(before["b.md"], scanned.files["y.md"]),
        Add(scanned.files["z.md"]),
    ]


def test_a_new_link_to_a_file_that_stays_is_an_addition() -> None:
    before = indexed(known("a.md", fingerprint(7)))
    scanned = scan_of({"a.md": fingerprint(7), "b.md": fingerprint(7)})
    assert plan(before, scanned, now_ns=NOW) == [Add(scanned.files["b.md"])]


def test_a_reused_inode_with_other_size_or_time_is_no_move() -> None:
    before = indexed(known("a.md", fingerprint(7, size=10)))
    scanned = scan_of({"b.md": fingerprint(7, size=11)})
    assert plan(before, scanned, now_ns=NOW) == [Remove(before["a.md"]), Add(scanned.files["b.md"])]


def test_a_renamed_folder_moves_what_is_in_it() -> None:
    """WAT-32."""
    before = indexed(known("rep/rep/f.md", fingerprint(1)), known("rep/g.md", fingerprint(2)))
    scanned = scan_of({"new/rep/f.md": fingerprint(1), "new/g.md": fingerprint(2)})
    assert plan(before, scanned, now_ns=NOW) == [
        Move(before["rep/g.md"], scanned.files["new/g.md"]),
        Move(before["rep/rep/f.md"], scanned.files["new/rep/f.md"]),
    ]


PATHS = st.sampled_from(
    [f"{folder}{name}" for folder in ("", "a/", "a/b/", "c/") for name in ("x.md", "y.md", "a b.md")]
)
TIMES = st.sampled_from(
    [LONG_AGO, LONG_AGO + 1, NOW - 10_000_000, NOW - SECOND, NOW + 5 * SECOND, LONG_AGO // SECOND * SECOND]
)
STATS = st.builds(
    StatFingerprint, mtime_ns=TIMES, size=st.integers(0, 2), ctime_ns=TIMES, inode=st.integers(1, 6)
)
CATALOGS = st.dictionaries(
    PATHS, st.tuples(STATS, st.sampled_from(["", "hash"]), st.sampled_from([NOW, LONG_AGO]))
)


def catalog_of(entries: Mapping[str, tuple[StatFingerprint, str, int]]) -> dict[str, IndexedFile]:
    numbers = count(1)
    return {
        path: IndexedFile(next(numbers), path, stat, content_hash, read_ns)
        for path, (stat, content_hash, read_ns) in entries.items()
    }


def apply(catalog: Mapping[str, IndexedFile], actions: list[Action], read_ns: int) -> dict[str, IndexedFile]:
    """Does what the engine does, refusing what would tear a catalog."""
    result = dict(catalog)
    numbers = count(max((file.id for file in catalog.values()), default=0) + 1)
    for action in actions:
        if isinstance(action, Remove | Move):
            assert result.pop(action.indexed.relative_path) == action.indexed
        elif isinstance(action, Update):
            assert result[action.source.relative_path] == action.indexed
        if isinstance(action, Add | Move):
            assert action.source.relative_path not in result
        if not isinstance(action, Remove):
            source = action.source
            number = next(numbers) if isinstance(action, Add) else action.indexed.id
            result[source.relative_path] = IndexedFile(
                number, source.relative_path, source.fingerprint, "hash", read_ns
            )
    return result


@given(CATALOGS, st.dictionaries(PATHS, STATS), st.sets(st.sampled_from(["a", "a/b", "c"])))
def test_applying_the_plan_makes_the_catalog_equal_to_the_scan(
    entries: Mapping[str, tuple[StatFingerprint, str, int]],
    files: Mapping[str, StatFingerprint],
    denied: set[str],
) -> None:
    below = tuple(f"{folder}/" for folder in denied)
    visible = {path: stat for path, stat in files.items() if not path.startswith(below)}
    scanned = scan_of(visible, unreadable_dirs=tuple(sorted(denied)))
    catalog = catalog_of(entries)
    actions = plan(catalog, scanned, now_ns=NOW)
    later = NOW + 3600 * SECOND
    result = apply(catalog, actions, later)
    kept = {path: file.fingerprint for path, file in catalog.items() if path.startswith(below)}
    assert {path: file.fingerprint for path, file in result.items()} == {**visible, **kept}
    assert len({file.id for file in result.values()}) == len(result)
    # A time that was set ahead has come by now, so such a file is read once more; then all is settled.
    settled = apply(result, plan(result, scanned, now_ns=later), later)
    assert plan(settled, scanned, now_ns=later) == []


@given(CATALOGS, st.dictionaries(PATHS, STATS))
def test_the_order_of_the_mappings_does_not_matter(
    entries: Mapping[str, tuple[StatFingerprint, str, int]], files: Mapping[str, StatFingerprint]
) -> None:
    catalog = catalog_of(entries)
    backwards = dict(reversed(catalog.items()))
    files_backwards = dict(reversed(list(files.items())))
    assert plan(catalog, scan_of(files), now_ns=NOW) == plan(backwards, scan_of(files_backwards), now_ns=NOW)

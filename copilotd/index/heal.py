"""Opens the database; one that is damaged is kept aside and a new one begun."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from pathlib import Path

from copilotd.errors import IndexError_
from copilotd.index import catalog

_log = logging.getLogger(__name__)

# Damaged databases kept for whoever wants to look into them; older ones go.
_KEPT = 2


def open_or_heal(path: Path) -> tuple[sqlite3.Connection, str]:
    """Opens or creates a database.

    Returns:
        The connection, and what a person should know; empty where all is well.

    Raises:
        IndexTooNew: Made by a newer version; nothing was changed.
        IndexError_: It can't be opened for a reason that is no damage.
    """
    try:
        return _open(path), ""
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise IndexError_(
                f"The index {path} can't be opened: {error}.",
                "nothing was changed; check the folder's permissions, the space left, and who else has it open",
            ) from None
        aside = _put_aside(path)
        _log.error("index damaged error=%s kept=%s", error, aside)
        note = f"The index was damaged ({error}); it was kept as {aside.name} and is built anew."
        return _open(path), note


def _open(path: Path) -> sqlite3.Connection:
    connection = catalog.connect(path)
    try:
        os.chmod(path, 0o600)
        catalog.prepare(connection)
        result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            raise sqlite3.DatabaseError(result)
    except BaseException:
        connection.close()
        raise
    return connection


def _put_aside(path: Path) -> Path:
    pattern = f"{path.name}.damaged-*"
    earlier = sorted(item for item in path.parent.glob(pattern) if not item.name.endswith(("-wal", "-shm")))
    for old in earlier[: max(0, len(earlier) - _KEPT + 1)]:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{old}{suffix}").unlink(missing_ok=True)
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    for suffix in ("", "-wal", "-shm"):
        damaged = Path(f"{path}{suffix}")
        if damaged.exists():
            damaged.rename(f"{aside}{suffix}")
    return aside


# SQLITE_CORRUPT and SQLITE_NOTADB; a lock, a full disk or a permission is no reason to begin anew.
_DAMAGE_CODES = frozenset({11, 26})


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return not isinstance(error, sqlite3.OperationalError) if code is None else code & 0xFF in _DAMAGE_CODES

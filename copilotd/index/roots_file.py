"""``roots.json``: the roots once more, beside the database, should that be lost."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from copilotd.types import Root

_NAME = "roots.json"


def load_roots(folder: Path) -> list[Root]:
    """Reads the roots; none where the file is missing or makes no sense."""
    try:
        saved = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        return [
            Root(
                0,
                os.fsdecode(bytes.fromhex(item["path"])),
                item["namespace"],
                tuple(item["include"]),
                tuple(item["exclude"]),
                item["chunk_size"],
                item["chunk_overlap"],
                bool(item.get("poll", False)),
            )
            for item in saved
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def save_roots(folder: Path, roots: Sequence[Root]) -> None:
    """Writes the roots, all at once.

    Raises:
        OSError: It can't be written.
    """
    payload = [
        {
            "path": os.fsencode(root.path).hex(),
            "namespace": root.namespace,
            "include": root.include,
            "exclude": root.exclude,
            "chunk_size": root.chunk_size,
            "chunk_overlap": root.chunk_overlap,
            "poll": root.poll,
        }
        for root in roots
    ]
    temporary = folder / f"{_NAME}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
        json.dump(payload, file)
    temporary.replace(folder / _NAME)

"""Where the chat remembers what was typed: a private file, one an index, of bounded length."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from copilotd.errors import CopilotError
from copilotd.paths import Places, ensure_private_directory

KEPT_BYTES = 256_000


def history_file(places: Places) -> Path:
    """Returns the file; what was asked of one index is not offered while another is asked."""
    # The log's name carries the index it belongs to.
    import hashlib  # loads OpenSSL, which few commands need

    digest = hashlib.sha256(os.fsencode(os.path.realpath(places.index_dir))).hexdigest()[:12]
    return places.state_dir / f"chat-{digest}.history"


def open_history(places: Places) -> Path | None:
    """Makes the file private and short; returns None where that can't be done, and nothing is remembered."""
    path = history_file(places)
    with contextlib.suppress(OSError, CopilotError):
        ensure_private_directory(path.parent, tighten=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "rb") as file:
            os.fchmod(descriptor, 0o600)
            source = file.read()
        if len(source) > KEPT_BYTES:
            _shorten(path, source)
        return path
    return None


def _shorten(path: Path, source: bytes) -> None:
    # An entry begins with a comment line behind an empty one.
    start = source.find(b"\n\n#", len(source) - KEPT_BYTES // 2)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(source[start + 1 :] if start >= 0 else b"")
    os.replace(part, path)

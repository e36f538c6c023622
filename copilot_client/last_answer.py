"""The sources of the last answer, so that ``copilot section 2`` knows what 2 is."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from copilotd.errors import CopilotError, SectionNotFound
from copilotd.paths import Places, ensure_private_directory

FILE_NAME = "last_answer.json"
_KEPT = (
    "doc_title", "section_heading", "path", "path_uri", "namespace", "line_start", "line_end", "page", "page_end",
)  # fmt: skip


def save_sources(places: Places, answer: Mapping[str, Any]) -> None:
    """Remembers the numbered places of an answer; a folder that can't be written costs only this."""
    numbered = answer.get("citations") or answer.get("closest") or ()
    sources = [{name: place.get(name) for name in _KEPT} for place in numbered]
    # The question stays out of the file: places are in the index anyway, what was asked is nowhere.
    text = json.dumps({"sources": sources})
    path = places.state_dir / FILE_NAME
    part = path.with_name(f".{FILE_NAME}.{os.getpid()}")
    with contextlib.suppress(OSError, CopilotError):
        ensure_private_directory(places.state_dir, tighten=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(part, path)


def source_reference(places: Places, number: int) -> tuple[str, str | None]:
    """Returns the reference (``path:line``) and namespace of a numbered source.

    Raises:
        SectionNotFound: There was no answer yet, or it had fewer sources.
    """
    source = _source(places, number)
    uri = str(source.get("path_uri") or "")
    # `path` is made printable and may name no file; the link holds the real bytes.
    path = os.fsdecode(unquote_to_bytes(uri[7:])) if uri.startswith("file:///") else str(source.get("path"))
    line = source.get("line_start")
    return (path if line is None else f"{path}:{line}"), source.get("namespace")


def source_page(places: Places, number: int) -> int | None:
    """Returns the page of a numbered source; None for formats without pages.

    Raises:
        SectionNotFound: There was no answer yet, or it had fewer sources.
    """
    page = _source(places, number).get("page")
    return page if isinstance(page, int) else None


def _source(places: Places, number: int) -> dict[str, Any]:
    sources = _load(places.state_dir / FILE_NAME)
    if not 1 <= number <= len(sources):
        had = (
            f"The last answer had {len(sources)} numbered source{'s' * (len(sources) != 1)}."
            if sources
            else "There is no last answer."
        )
        raise SectionNotFound(f"No source {number}. {had}", 'copilot ask "…", then: copilot section 1')
    return sources[number - 1]


def _load(path: Path) -> list[dict[str, Any]]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    sources = value.get("sources") if isinstance(value, dict) else None
    return [source for source in sources if isinstance(source, dict)] if isinstance(sources, list) else []

"""The outline of a PDF, as pdfminer gives its objects. Imported when a PDF is read, not before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdfminer.pdftypes import resolve1
from pdfminer.psparser import PSLiteral
from pdfminer.utils import decode_text

from copilotd.ingest.pdf_headings import Bookmark

_MAX_BOOKMARKS = 5_000


def bookmarks(document: Any, page_numbers: Mapping[Any, int]) -> list[Bookmark]:
    """Walks the outline without recursion: real ones have thousands of siblings, bad ones loop.

    Args:
        document: A PDFDocument.
        page_numbers: Page numbers by the object number of the page.
    """
    found: list[Bookmark] = []
    seen: set[int] = set()
    try:
        stack = [(resolve1(document.catalog.get("Outlines")).get("First"), 1)]
        while stack and len(found) < _MAX_BOOKMARKS:
            reference, level = stack.pop()
            entry = resolve1(reference)
            identity = getattr(reference, "objid", id(entry))
            if not isinstance(entry, dict) or identity in seen:
                continue
            seen.add(identity)
            title = resolve1(entry.get("Title"))
            if isinstance(title, bytes):
                target = entry.get("Dest") or (resolve1(entry.get("A")) or {}).get("D")
                page = _target_page(document, target, page_numbers)
                found.append(Bookmark(decode_text(title).strip(), level, page))
            stack += [(entry.get("Next"), level), (entry.get("First"), level + 1)]
    except MemoryError:
        raise
    except Exception:
        # An outline is a help, not the text: what was read of it so far is used.
        return found
    return found


def _target_page(document: Any, target: Any, page_numbers: Mapping[Any, int]) -> int | None:
    target = resolve1(target)
    if isinstance(target, PSLiteral):
        target = target.name
    if isinstance(target, str | bytes):
        target = resolve1(document.get_dest(target))
    if isinstance(target, dict):
        target = resolve1(target.get("D"))
    if isinstance(target, list) and target:
        return page_numbers.get(getattr(target[0], "objid", None))
    return None

"""References between the objects of a PDF that lead nowhere. Imported when a PDF is read, not before."""

from __future__ import annotations

from typing import Any

from pdfminer.pdftypes import PDFObjRef

_MAX_HOPS = 30


def end_loops(document: Any) -> None:
    """Makes an object that is nothing but a reference to itself, by whatever way round, be no object.

    pdfminer follows such references for ever.

    Args:
        document: A PDFDocument.
    """
    get = document.getobj

    def bounded(identity: int) -> Any:
        found = get(identity)
        for _ in range(_MAX_HOPS):
            if not isinstance(found, PDFObjRef):
                return found
            found = get(found.objid)
        return None

    document.getobj = bounded

"""The page tree of a PDF, walked without recursion. Imported when a PDF is read, not before.

A tree may be thousands of levels deep, hold itself, or lack a part; each page that is there is found once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pdfminer.pdfpage import PDFPage
from pdfminer.pdftypes import PDFObjRef, resolve1
from pdfminer.psparser import PSLiteral

_MAX_NODES = 200_000
_BROKEN = "a part of its page tree is missing or broken"

_Node = dict[str, Any]


def page_objects(document: Any, problems: list[str]) -> Iterator[PDFPage]:
    """Yields the pages in their order. A page without a size that makes sense has no ``MediaBox`` among its attributes.

    Args:
        document: A PDFDocument.
        problems: Gets a sentence's end where a part is broken.

    Raises:
        MemoryError: One of its parts needs too much.
    """
    found = False
    for identity, attributes in _walked(document, problems):
        found = True
        yield _page(document, identity, attributes)
    if not found:
        for identity, attributes in _without_tree(document):
            yield _page(document, identity, attributes)


def _page(document: Any, identity: Any, attributes: _Node) -> PDFPage:
    if not _is_box(attributes.get("MediaBox")):
        attributes.pop("MediaBox", None)
    try:
        return PDFPage(document, identity, attributes, None)
    except MemoryError:
        raise
    except Exception:
        # It keeps its place, so that the pages behind it keep their numbers.
        return PDFPage(document, identity, {}, None)


def _walked(document: Any, problems: list[str]) -> Iterator[tuple[Any, _Node]]:
    stack = [(document.catalog.get("Pages"), _inheritable(document.catalog))]
    seen: set[Any] = set()
    for _ in range(_MAX_NODES):
        if not stack:
            return
        reference, above = stack.pop()
        identity = reference.objid if isinstance(reference, PDFObjRef) else id(reference)
        if reference is None or identity in seen:
            continue
        seen.add(identity)
        node = _resolved(reference)
        kids = _resolved(node.get("Kids")) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            if _BROKEN not in problems:
                problems.append(_BROKEN)
        elif isinstance(kids, list) and _type(node) != "Page":
            inherited = {**above, **_inheritable(node)}
            stack += [(kid, inherited) for kid in reversed(kids)]
        elif _type(node) == "Page" or (not _type(node) and "Contents" in node):
            yield identity, {**above, **node}
    problems.append(f"its page tree has more than {_MAX_NODES:,} parts")


def _without_tree(document: Any) -> Iterator[tuple[Any, _Node]]:
    """Yields what calls itself a page, in the order of the object table, where there is no tree."""
    for xref in document.xrefs:
        for identity in xref.get_objids():
            node = _resolved(PDFObjRef(document, identity))
            if isinstance(node, dict) and _type(node) == "Page":
                yield identity, dict(node)


def _inheritable(node: _Node) -> _Node:
    return {name: node[name] for name in PDFPage.INHERITABLE_ATTRS if name in node}


def _resolved(thing: Any) -> Any:
    """Returns what a reference leads to; None for what isn't there or can't be read."""
    try:
        return resolve1(thing)
    except MemoryError:
        raise
    except Exception:
        return None


def _type(node: _Node) -> str:
    """Its type's name; some files write the key in small letters."""
    kind = _resolved(node.get("Type", node.get("type")))
    return kind.name if isinstance(kind, PSLiteral) and isinstance(kind.name, str) else ""


def _is_box(value: Any) -> bool:
    """Whether it is a rectangle one could print: four numbers and some room between them."""
    corners = _resolved(value)
    if not isinstance(corners, list) or len(corners) != 4:
        return False
    numbers = [_resolved(corner) for corner in corners]
    if not all(isinstance(number, int | float) and abs(number) < 1e9 for number in numbers):
        return False
    return math.isfinite(sum(numbers)) and numbers[0] != numbers[2] and numbers[1] != numbers[3]

"""HTML to a list of tags and texts with their source lines; the part of a page that is its content.

The standard library's parser reads it, because of the well-kept ones it alone tells the place of every
piece of text, not just of the tags; it also mends nothing, so nothing moves.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from html.parser import HTMLParser

from copilotd.ingest.outline import names

VOID = names("area base br col embed hr img input link meta param source track wbr")
_SKIPPED = names("""
    script style template noscript svg math iframe object canvas video audio nav aside button select datalist
    dialog form head
    """)
_PAGE_FRAME = names("header footer")
_SKIPPED_ROLES = names("navigation banner contentinfo search complementary menu menubar toolbar")
_SKIPPED_CLASSES = names("""
    headerlink hash-link anchor-link sphinxsidebar related breadcrumb breadcrumbs theme-doc-breadcrumbs
    md-sidebar md-header md-footer skip-link pagination-nav sidebar
    """)


@dataclass(slots=True)
class Event:
    """A start tag, an end tag, or a piece of text.

    Attributes:
        kind: ``start``, ``end`` or ``text``.
        name: The tag's name, or the text with its character references resolved.
        line: Source line (0-based) it starts on.
        attributes: Of a start tag.
        last: Index of the end tag that closes a start tag; its own index where none does.
        raw: A start tag as it was written.
    """

    kind: str
    name: str
    line: int
    attributes: dict[str, str]
    last: int = 0
    raw: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.events: list[Event] = []

    def _add(self, kind: str, name: str, attributes: dict[str, str] | None = None) -> None:
        self.events.append(Event(kind, name, self.getpos()[0] - 1, attributes or {}, len(self.events)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, {name: value or "" for name, value in reversed(attrs)})
        self.events[-1].raw = self.get_starttag_text() or ""

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text", data)

    def handle_entityref(self, name: str) -> None:
        self._add("text", html.unescape(f"&{name};").replace("\n", " "))

    def handle_charref(self, name: str) -> None:
        self._add("text", html.unescape(f"&#{name};").replace("\n", " "))


def read_events(text: str) -> list[Event]:
    """Returns the tags and texts of a page, in order; comments and declarations are left out."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    opened: dict[str, list[int]] = {}
    for index, event in enumerate(reader.events):
        if event.kind == "start" and event.name not in VOID:
            opened.setdefault(event.name, []).append(index)
        elif event.kind == "end" and opened.get(event.name):
            reader.events[opened[event.name].pop()].last = index
    return reader.events


def content_spans(events: list[Event]) -> list[tuple[int, int]]:
    """Returns which events are the page's content: ``<main>``, else its articles, else its body."""
    for wanted in (_is_main, _is_article, _is_body):
        spans: list[tuple[int, int]] = []
        for index, event in enumerate(events):
            inside = spans and index < spans[-1][1]
            if event.kind == "start" and not inside and event.last > index and wanted(event):
                spans.append((index, event.last + 1))
        if spans:
            return spans
    return [(0, len(events))]


def is_skipped(event: Event, *, in_content: bool) -> bool:
    """Tells whether an element is not part of what is read; ``in_content`` inside main or article."""
    name, attributes = event.name, event.attributes
    if name in _SKIPPED or (name in _PAGE_FRAME and not in_content):
        return True
    if not attributes:
        return False
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or attributes.get("role", "") in _SKIPPED_ROLES
        or not _SKIPPED_CLASSES.isdisjoint(attributes.get("class", "").split())
    )


def _is_main(event: Event) -> bool:
    return event.name == "main" or event.attributes.get("role") == "main"


def _is_article(event: Event) -> bool:
    return event.name == "article"


def _is_body(event: Event) -> bool:
    return event.name == "body"

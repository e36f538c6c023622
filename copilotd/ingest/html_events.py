"""HTML to a list of tags and texts with their source lines; the part of a page that is its content.

Read here because no well-kept parser does it: lxml, selectolax and Beautiful Soup tell the lines of tags but
not of text, and move what they mend; the standard library's parser takes quadratic time on open comments and
tags (29 s for 200 kB of ``<!--``, Python 3.11, 2026-11-30).
"""

from __future__ import annotations

import html
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import regex as re

from copilotd.ingest.lines import clean_characters
from copilotd.ingest.outline import names

_TAG_NAME = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*+)")
_TAG_REST = re.compile(r"(?:[^\"'>]|\"[^\"]*+\"|'[^']*+')*+>")
_ATTRIBUTE = re.compile(r"(?P<name>[^\s\"'<>/=]+)(?:\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"'<>]+))?")
_RAW_END = re.compile(r"</(script|style|textarea|title)\b", re.IGNORECASE)
_RAW_TEXT = frozenset(("script", "style", "textarea", "title"))
_MAX_TAG = 4_000

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


def read_events(text: str) -> list[Event]:
    """Returns the tags and texts of a page, in order; comments and declarations are left out."""
    events = list(_events(text))
    opened: dict[str, list[int]] = {}
    for index, event in enumerate(events):
        event.last = index
        if event.kind == "start" and event.name not in VOID:
            opened.setdefault(event.name, []).append(index)
        elif event.kind == "end" and opened.get(event.name):
            events[opened[event.name].pop()].last = index
    return events


def _events(text: str) -> Iterator[Event]:
    raw_ends: dict[str, list[int]] = {}
    for match in _RAW_END.finditer(text):
        raw_ends.setdefault(match[1].lower(), []).append(match.start())
    lines = _Lines(text)
    kept = position = 0
    while (start := text.find("<", position)) >= 0:
        end, tag = _markup_at(text, start)
        if not end:
            position = start + 1
            continue
        if kept < start:
            yield from _texts(text[kept:start], lines.of(kept))
        kept = position = end
        if tag is None:
            continue
        name = tag["name"].lower()
        if tag["close"]:
            yield Event("end", name, lines.of(start), {})
            continue
        raw = text[start:end]
        attributes = {
            part["name"].lower(): html.unescape((part["value"] or "").strip("\"'"))
            for part in _ATTRIBUTE.finditer(raw, tag.end() - start)
        }
        yield Event("start", name, lines.of(start), attributes, raw=raw)
        if name in _RAW_TEXT and (ends := raw_ends.get(name)):
            following = bisect_left(ends, end)
            if following < len(ends):
                if name in ("textarea", "title"):
                    yield from _texts(text[end : ends[following]], lines.of(end))
                kept = position = ends[following]
    if kept < len(text):
        yield from _texts(text[kept:], lines.of(kept))


def _markup_at(text: str, start: int) -> tuple[int, re.Match[str] | None]:
    """Returns where the markup that starts at ``<`` ends, and its match if it is a tag; 0 where it is text."""
    if text.startswith("<!--", start):
        end = text.find("-->", start + 2)
        # An open comment hides the rest of the page, as it does in a browser.
        return (end + 3 if end >= 0 else len(text)), None
    if text.startswith(("<!", "<?"), start):
        return (text.find(">", start) + 1) or len(text), None
    tag = _TAG_NAME.match(text, start)
    if tag is None:
        return 0, None
    rest = _TAG_REST.match(text, tag.end(), tag.end() + _MAX_TAG)
    # A quote that is never closed would hide the rest of the page.
    end = rest.end() if rest else text.find(">", tag.end()) + 1
    return (end or len(text)), tag


class _Lines:
    """Line numbers (0-based) of places that only move forward."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = self._line = 0

    def of(self, place: int) -> int:
        """Returns the line of ``place``."""
        self._line += self._text.count("\n", self._place, place)
        self._place = max(place, self._place)
        return self._line


def _texts(text: str, line: int) -> Iterator[Event]:
    """Yields text line by line, so that a character reference for a newline moves nothing."""
    for number, part in enumerate(text.split("\n")):
        if number:
            yield Event("text", "\n", line + number - 1, {})
        if part:
            # Cleaned behind its references: an invisible character keeps one from being read, and one may stand for it.
            seen = html.unescape(part).replace("\n", " ") if "&" in part else part
            yield Event("text", clean_characters(seen), line + number, {})


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

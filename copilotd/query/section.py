"""Finds one section by the reference a citation gives: ``path[:line]``, ``path p. N`` or ``doc_title > heading``."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right

from copilotd.errors import SectionNotFound, UsageError
from copilotd.index.reader import DocumentRecord, ReadView
from copilotd.text import one_line, shell_word
from copilotd.types import Section, SectionText

_LINES = re.compile(r"(?P<path>.+):(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?", re.DOTALL)
# As sources of paged documents are printed: `manual.pdf p. 3`, `manual.pdf pp. 3-4`.
_PAGES = re.compile(r"(?P<path>.+) pp?\. (?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?", re.DOTALL)


def find_section(view: ReadView, ref: str, namespace: str | None) -> SectionText:
    """Returns the section ``ref`` names, with everything below its heading.

    Args:
        view: The index.
        ref: A path below a root or an absolute one, with ``:line`` or ``:first-last`` behind it where a
            line is meant, `` p. N`` or `` pp. M-N`` for pages; or a label as it stands between the brackets of
            a citation.
        namespace: Only there; None for all.

    Raises:
        UsageError: Nothing is asked for.
        SectionNotFound: Nothing indexed has this name, or the document has no such line.
    """
    ref = ref.strip()
    if ref.startswith("[") and ref.endswith("]") and " > " in ref:
        ref = ref[1:-1]
    if not ref:
        raise UsageError(
            "No section was named.", 'copilot section PATH:LINE, or copilot section "document > section"'
        )
    found = _by_path(view, ref, namespace) or _by_label(view, ref, namespace)
    if found is None:
        raise SectionNotFound(
            f"No indexed section is named '{one_line(ref, 200)}'.",
            "copy the part in brackets from an answer's sources, or give PATH:LINE",
        )
    return found


def _by_path(view: ReadView, ref: str, namespace: str | None) -> SectionText | None:
    # A file may be called `notes:3`: its whole name goes before a line of the file `notes`.
    whole = _record(view, ref, namespace)
    if whole is not None:
        return _section_at(whole, None)
    match = _LINES.fullmatch(ref) or _PAGES.fullmatch(ref)
    record = _record(view, match["path"], namespace) if match else None
    if match is None or record is None:
        return None
    name, document = one_line(match["path"], 200), record.document
    first, last = _number(match["first"]), _number(match["last"] or match["first"])
    if match.re is _PAGES:
        if document.pages is None:
            raise SectionNotFound(f"{name} has no pages.", f"copilot section {shell_word(name)}:LINE")
        places, unit = document.pages, "page"
    else:
        places, unit = document.line_numbers, "line"
    highest = max(places, default=0)
    if first < 1:
        raise SectionNotFound(
            f"There is no {unit} 0 in {name}: the first is 1.", f"copilot section {shell_word(name)}"
        )
    if last < first:
        raise SectionNotFound(
            f"The {unit}s {match['first'][:20]}-{match['last'][:20]} run backwards.",
            f"copilot section {shell_word(name)}",
        )
    if last > highest:
        wanted = match["last"] or match["first"]
        raise SectionNotFound(
            f"There is no {unit} {one_line(wanted, 20)} in {name}, which has {highest} {unit}s.",
            f"copilot section {shell_word(name)}",
        )
    return _section_at(
        record, bisect_left(places, first) if unit == "page" else bisect_right(places, first) - 1
    )


def _number(digits: str) -> int:
    # Python refuses to read thousands of digits; no document has so many lines.
    return int(digits) if len(digits) < 10 else 10**10


def _record(view: ReadView, name: str, namespace: str | None) -> DocumentRecord | None:
    for file_id, relative_path, root_path, space in view.documents():
        if namespace in (None, space) and name in (relative_path, os.path.join(root_path, relative_path)):
            record = view.load_record(file_id)
            if record is not None:
                return record
    return None


def _by_label(view: ReadView, label: str, namespace: str | None) -> SectionText | None:
    for file_id, doc_title, space in view.titles():
        if namespace not in (None, space) or not (label == doc_title or label.startswith(f"{doc_title} > ")):
            continue
        record = view.load_record(file_id)
        if record is None:
            continue
        heading = label[len(doc_title) + 3 :]
        for section in record.document.sections:
            if heading in (section.heading, " > ".join(section.heading_path)):
                return _cut(record, section)
        if heading in ("", doc_title):
            return _section_at(record, None)
    return None


def _section_at(record: DocumentRecord, index: int | None) -> SectionText:
    """Returns the section that holds a line of the text, counted from 0, or the whole document."""
    document = record.document
    if index is None or not document.sections:
        whole = Section("", 0, (), 0, len(document.text))
        return _cut(record, whole)
    offset = sum(len(text) + 1 for text in document.text.split("\n")[: max(index, 0)])
    section = next((s for s in document.sections if s.start <= offset < s.end), document.sections[-1])
    return _cut(record, section)


def _cut(record: DocumentRecord, section: Section) -> SectionText:
    document = record.document
    end = section.end
    if section.level:
        # A section whole includes its subsections.
        for later in document.sections:
            if later.start >= section.end and end == later.start and later.level > section.level:
                end = later.end
    text = document.text[section.start : end].rstrip()
    first = document.text.count("\n", 0, section.start)
    last = first + text.count("\n")
    lines = document.line_numbers or (1,)
    return SectionText(
        doc_title=document.doc_title,
        section_heading=section.heading or document.doc_title,
        heading_path=section.heading_path,
        source_file=os.path.join(record.root_path, record.relative_path),
        relative_path=record.relative_path,
        namespace=record.namespace,
        line_start=lines[min(first, len(lines) - 1)],
        line_end=lines[min(last, len(lines) - 1)],
        page=document.pages[first] if document.pages else None,
        text=text,
        page_end=document.pages[min(last, len(document.pages) - 1)] if document.pages else None,
    )

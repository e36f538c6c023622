"""Finds one section by the reference a citation gives: ``path[:line]`` or ``doc_title > section_heading``."""

from __future__ import annotations

import os

from copilotd.errors import SectionNotFound, UsageError
from copilotd.index.reader import DocumentRecord, ReadView
from copilotd.types import Section, SectionText


def find_section(view: ReadView, ref: str, namespace: str | None) -> SectionText:
    """Returns the section ``ref`` names, with everything below its heading.

    Args:
        view: The index.
        ref: A path below a root or an absolute one, with ``:line`` or ``:first-last`` behind it where a
            line is meant; or a label as it stands between the brackets of a citation.
        namespace: Only there; None for all.

    Raises:
        UsageError: Nothing is asked for.
        SectionNotFound: Nothing indexed has this name.
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
            f"No indexed section is named {ref!r}.",
            "copy the part in brackets from an answer's sources, or give PATH:LINE",
        )
    return found


def _by_path(view: ReadView, ref: str, namespace: str | None) -> SectionText | None:
    path, _, lines = ref.rpartition(":")
    first = lines.split("-")[0]
    candidates: list[tuple[str, int | None]] = [(ref, None)]
    if path and first.isdecimal():
        candidates.insert(0, (path, int(first)))
    for name, line in candidates:
        wanted = os.path.expanduser(name)
        for file_id, relative_path, root_path, space in view.documents():
            if namespace in (None, space) and wanted in (
                relative_path,
                os.path.join(root_path, relative_path),
            ):
                record = view.load_record(file_id)
                if record is not None:
                    return _section_at(record, line)
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


def _section_at(record: DocumentRecord, line: int | None) -> SectionText:
    """Returns the section that holds a source line (a page, for paged formats), or the whole document."""
    document = record.document
    if line is None or not document.sections:
        whole = Section("", 0, (), 0, len(document.text))
        return _cut(record, whole)
    places = document.pages or document.line_numbers
    index = max((i for i, place in enumerate(places) if place <= line), default=0)
    offset = sum(len(text) + 1 for text in document.text.split("\n")[:index])
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
    )

"""A conversation as Markdown, for saving and reading."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from copilot_client.render import pages
from copilotd.text import bracketed, one_line, printable


def as_markdown(conversation: Mapping[str, Any]) -> str:
    """Returns a conversation of the daemon as a Markdown document."""
    lines = [f"# {_line(conversation.get('title')) or 'Conversation'}", ""]
    lines += [f"{moment(conversation.get('created'))}, conversation {_line(conversation.get('id'))}", ""]
    if forgotten := int(conversation.get("forgotten") or 0):
        lines += [f"The first {forgotten} of its questions are no longer kept.", ""]
    for turn in conversation.get("messages") or ():
        lines += [f"## {_line(turn.get('question'))}", ""]
        asked_as = _line(turn.get("asked_as"))
        if asked_as and asked_as != _line(turn.get("question")):
            lines += [f"*Asked as: {asked_as}*", ""]
        lines += [printable(str(turn.get("answer") or "")).strip(), ""]
        sources = list(turn.get("sources") or ())
        if sources:
            lines += ["Sources:", ""]
            lines += [f"{number}. {_source(source)}" for number, source in enumerate(sources, 1)]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def moment(seconds: object) -> str:
    """Returns ``2026-05-04 13:37`` in local time; empty for what is no time."""
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        return ""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _source(source: Mapping[str, Any]) -> str:
    label = bracketed(f"{_line(source.get('doc_title'))} > {_line(source.get('section_heading'))}")
    path, page = _line(source.get("path")), source.get("page")
    place = f"{path} {pages(source)}" if page is not None else f"{path}:{source.get('line_start')}"
    return f"{label} {place}"


def _line(value: object) -> str:
    return "" if value is None else one_line(str(value), 2000)

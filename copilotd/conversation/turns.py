"""What a conversation is made of: turns, each a question with its answer and where that came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilotd.text import one_line, printable

CONTEXT_TURNS = 3
"""Turns a follow-up is understood by: a turn is two messages, and the seed looks at the last six."""

MAX_ANSWER_CHARS = 20_000
"""Of an answer; what is longer is cut when it is kept, with an ellipsis."""
MAX_QUESTION_CHARS = 20_000
MAX_SOURCES = 20
MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Source:
    """A place an answer rested on.

    Attributes:
        doc_title: The file's name without suffix.
        section_heading: The heading.
        path: Absolute path, printable.
        line_start: First line.
        line_end: Last line.
        page: First page, or None.
        page_end: Last page, or None.
    """

    doc_title: str
    section_heading: str
    path: str
    line_start: int
    line_end: int
    page: int | None = None
    page_end: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer.

    Attributes:
        question: As it was typed.
        asked_as: The standalone question that was searched for; equal to ``question`` unless it followed up.
        answer: The rendered answer, or the refusal.
        known: Whether the documents answered it.
        sources: What the answer cites.
        namespaces: What it was restricted to; empty for all.
        paths: Likewise, globs.
        provider: Who answered.
        model: Its model; empty for extractive.
        at: Seconds since 1970.
    """

    question: str
    asked_as: str
    answer: str
    known: bool
    sources: tuple[Source, ...] = ()
    namespaces: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    provider: str = "extractive"
    model: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in the order they were taken.

    Attributes:
        id: Its name; letters and digits.
        created: Seconds since 1970.
        turns: Oldest first.
        forgotten: How many of its oldest turns were dropped to keep it small.
    """

    id: str
    created: float
    turns: tuple[Turn, ...] = ()
    forgotten: int = 0

    @property
    def updated(self) -> float:
        """When its last turn was taken; when it began where there is none."""
        return self.turns[-1].at if self.turns else self.created

    @property
    def title(self) -> str:
        """Its first question, on one line."""
        return one_line(self.turns[0].question, MAX_TITLE_CHARS) if self.turns else ""

    @property
    def context(self) -> tuple[Turn, ...]:
        """The turns a follow-up is understood by."""
        return self.turns[-CONTEXT_TURNS:]


def turn_json(turn: Turn) -> dict[str, Any]:
    """Returns a turn as it is stored and sent."""
    return {
        "question": turn.question,
        "asked_as": turn.asked_as,
        "answer": turn.answer,
        "known": turn.known,
        "sources": [
            {
                "doc_title": source.doc_title,
                "section_heading": source.section_heading,
                "path": source.path,
                "line_start": source.line_start,
                "line_end": source.line_end,
                "page": source.page,
                "page_end": source.page_end,
            }
            for source in turn.sources
        ],
        "namespaces": list(turn.namespaces),
        "paths": list(turn.paths),
        "provider": turn.provider,
        "model": turn.model,
        "at": turn.at,
    }


def read_turn(value: object) -> Turn:
    """Returns the turn of :func:`turn_json`.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(value, Mapping):
        raise ValueError("a turn is no object")
    sources = value.get("sources")
    if not isinstance(sources, list):
        raise ValueError("a turn's sources are no list")
    return Turn(
        question=_text(value, "question"),
        asked_as=_text(value, "asked_as"),
        answer=_text(value, "answer"),
        known=value.get("known") is True,
        sources=tuple(map(_read_source, sources[:MAX_SOURCES])),
        namespaces=_names(value, "namespaces"),
        paths=_names(value, "paths"),
        provider=_text(value, "provider"),
        model=_text(value, "model"),
        at=_number(value, "at"),
    )


def _read_source(value: object) -> Source:
    if not isinstance(value, Mapping):
        raise ValueError("a source is no object")
    page, page_end = value.get("page"), value.get("page_end")
    return Source(
        _text(value, "doc_title"),
        _text(value, "section_heading"),
        _text(value, "path"),
        int(_number(value, "line_start")),
        int(_number(value, "line_end")),
        None if page is None else int(_number(value, "page")),
        None if page_end is None else int(_number(value, "page_end")),
    )


def _text(value: Mapping[Any, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise ValueError(f"{name} is no text")
    # The file may have been edited: what comes out of it goes to terminals and prompts.
    return printable(text)


def _names(value: Mapping[Any, Any], name: str) -> tuple[str, ...]:
    names = value.get(name)
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        raise ValueError(f"{name} is no list of texts")
    return tuple(names)


def _number(value: Mapping[Any, Any], name: str) -> float:
    number = value.get(name)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{name} is no number")
    if not abs(number) < 1e15:
        raise ValueError(f"{name} is out of range")
    return number

"""What is found in a reStructuredText document, in source lines; read_structure fills it, RstParser uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from copilotd.types import BlockKind


@dataclass(frozen=True, slots=True)
class Title:
    """A section title: its line (1-based), its level from 1, its words, and its id where it has one."""

    line: int
    level: int
    words: str
    overlined: bool


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive: its name, first and last line (1-based), and where its content starts (0: nowhere)."""

    name: str
    line: int
    last: int
    content: int
    options: Mapping[str, str | None]
    argument: str


@dataclass(slots=True)
class Structure:
    """What docutils found, by source lines (1-based).

    Attributes:
        titles: Section titles.
        directives: Directives outside tables.
        starts: Where blocks start: line to kind and group.
        literals: First and last line of literal blocks.
        tables: First lines of grid and simple tables.
        unseen: First and last line of comments and of link targets without a URL.
        substitutions: Name (lower-case) to the text that stands for it.
        labels: Last line to name of a link target.
    """

    titles: list[Title] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)
    starts: dict[int, tuple[BlockKind, int]] = field(default_factory=dict)
    literals: list[tuple[int, int]] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)
    unseen: list[tuple[int, int]] = field(default_factory=list)
    substitutions: dict[str, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)

"""The metadata block in front of a document: YAML between ``---`` or TOML between ``+++``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import yaml

_FENCE = re.compile(r"(?P<mark>---|\+\+\+)[ \t]*\n")
_KEY = re.compile(r"^[\w\"'][\w .\"'-]*\s*[:=]", re.MULTILINE)
_LINE = r"^{key}\s*[:=]\s*(?P<value>\S.*)$"
_MAX_CHARS = 100_000
# tomllib takes quadratic time on a key of many parts: 20 s for 45,000.
_LONG_LINE = re.compile(r"[^\n]{4000}")
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What is used of a front matter.

    Attributes:
        lines: How many lines of the file it takes, its fences included; 0 where there is none.
        title: The document's title.
        description: What the document is about.
    """

    lines: int = 0
    title: str = ""
    description: str = ""


def read_front_matter(text: str) -> FrontMatter:
    """Reads the front matter of ``text``.

    One that is not valid YAML or TOML is still left out of the text, and its title is read line by line.
    A rule at the top followed by prose and another rule is not a front matter.
    """
    opening = _FENCE.match(text)
    if not opening:
        return FrontMatter()
    mark = opening["mark"]
    closing = re.compile(
        rf"^(?:{re.escape(mark)}{'|[.]{3}' if mark == '---' else ''})[ \t]*$", re.MULTILINE
    ).search(text, opening.end())
    if not closing:
        return FrontMatter()
    body = text[opening.end() : closing.start()]
    values = _load(body, mark)
    if not values and not _KEY.search(body):
        return FrontMatter()
    lines = text.count("\n", 0, closing.end()) + 1
    return FrontMatter(lines, _string(values, body, "title"), _string(values, body, "description"))


def _load(body: str, mark: str) -> Mapping[Any, Any]:
    if len(body) > _MAX_CHARS or (mark == "+++" and _LONG_LINE.search(body)):
        return {}
    try:
        loaded = tomllib.loads(body) if mark == "+++" else yaml.load(body, _LOADER)  # noqa: S506 (a safe loader)
    except (
        yaml.YAMLError,
        tomllib.TOMLDecodeError,
        ValueError,
        TypeError,
        RecursionError,
        KeyError,
        IndexError,
    ):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _string(values: Mapping[Any, Any], body: str, key: str) -> str:
    value = values.get(key, values.get(key.capitalize()))
    if value is None and not values:
        line = re.search(_LINE.format(key=key), body[:_MAX_CHARS], re.MULTILINE | re.IGNORECASE)
        value = line["value"].strip().strip("\"'") if line else None
    if isinstance(value, str | int | float | date) and not isinstance(value, bool):
        return " ".join(str(value).split())
    return ""

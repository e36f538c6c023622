"""Writing results: lines or JSON to stdout, everything beside them to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from copilot_client.render import json_text
from copilot_client.terminal import Style, is_terminal, style_for
from copilotd.text import printable


def stdout_style() -> Style:
    """Returns what stdout can show."""
    return style_for(sys.stdout)


def write_lines(lines: Iterable[str]) -> None:
    """Writes a result for people."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def write_json(result: Mapping[str, Any]) -> None:
    """Writes a result for programs: one line in a pipe, indented on a terminal."""
    # "_" carries what every reply has (version, generation); it is the wire's, not the result's.
    shown = {name: value for name, value in result.items() if name != "_"}
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    text = json_text(shown, ascii_only=encoding != "utf8", indent=2 if is_terminal(sys.stdout) else None)
    sys.stdout.write(text + "\n")


def tell(lines: Iterable[str]) -> None:
    """Writes what isn't the result (notices, pending work) to stderr, after what stdout already has.

    What of it could act on a terminal is taken out here, since much of it names files.
    """
    text = "".join(f"{printable(line)}\n" for line in lines)
    if text:
        sys.stdout.flush()
        sys.stderr.write(text)
        sys.stderr.flush()

"""``copilot logs``: the daemon's log, without the daemon."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path

import click

from copilot_client.options import Whole
from copilot_client.output import write_lines
from copilotd.errors import CopilotError
from copilotd.paths import find_places
from copilotd.text import printable

EXAMPLES = """\b
Examples:
  copilot logs                 the last 50 lines
  copilot logs -n 500 | grep event=ask
  copilot logs -f              and what comes
"""

_LOOK_EVERY_S = 0.25


@click.command(epilog=EXAMPLES)
@click.option(
    "--lines", "-n", type=Whole(0), metavar="N", default=50, show_default=True, help="How many lines."
)
@click.option("--follow", "-f", is_flag=True, help="Keep printing what is written; Ctrl-C ends it.")
def logs(lines: int, follow: bool) -> None:
    """Prints the end of the daemon's log."""
    path = find_places().log_file
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            last = deque(file, maxlen=lines)
            position = file.tell()
    except FileNotFoundError:
        raise CopilotError(
            f"There is no log yet at {printable(str(path))}.", "copilot start: the daemon writes one"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise CopilotError(
            f"{printable(str(path))} can't be read: {reason}.", "check its permissions"
        ) from None
    # Not above: what goes wrong with the output is no trouble with the log.
    write_lines([_shown(line) for line in last])
    while follow:
        sys.stdout.flush()
        time.sleep(_LOOK_EVERY_S)
        position = _print_from(path, position)


def _print_from(path: Path, position: int) -> int:
    """Prints what stands behind ``position``; begins anew where the log was rotated. Returns the new end."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            file.seek(position if os.fstat(file.fileno()).st_size >= position else 0)
            news, end = file.read(), file.tell()
    except OSError:
        return 0
    write_lines([_shown(line) for line in news.splitlines()])
    return end


def _shown(line: str) -> str:
    return printable(line.rstrip("\n"), keep_newlines=False)

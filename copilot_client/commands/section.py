"""``copilot section``."""

from __future__ import annotations

import os
import re

import click

from copilot_client import render
from copilot_client.last_answer import source_reference
from copilot_client.options import absolute_path, json_option, no_start_option
from copilot_client.output import stdout_style, write_json, write_lines
from copilot_client.request import daemon_places, request
from copilotd.errors import UsageError
from copilotd.paths import Places

EXAMPLES = """\b
Examples:
  copilot section 2                               source 2 of the last answer
  copilot section docs/setup.md:40
  copilot section "setup_guide > Database Config"
"""

# `path:12-18`, as `Sources:` prints it, means the section that holds its first line.
_LINES = re.compile(r"(?P<path>.+?)(?::(?P<line>\d+(?:-\d+)?))?")


@click.command(epilog=EXAMPLES)
@click.argument("reference", metavar="REF")
@click.option("--namespace", "-n", metavar="NAME", help="Where several namespaces hold the document.")
@json_option
@no_start_option
def section(reference: str, namespace: str | None, as_json: bool, no_start: bool) -> None:
    """Prints a section whole.

    REF is the number of a source of the last answer, a path with or without a line, or a label such as
    "setup_guide > Database Config".
    """
    places = daemon_places()
    ref, remembered = _resolve(places, reference.strip())
    result = request(
        "section", {"ref": ref, "namespace": namespace or remembered}, start=not no_start, places=places
    )
    if as_json:
        write_json(result)
    else:
        write_lines(render.section(result, stdout_style()))


def _resolve(places: Places, reference: str) -> tuple[str, str | None]:
    if not reference:
        raise UsageError("The reference is empty.", "copilot section --help")
    if reference.isdecimal() and not os.path.exists(reference):
        return source_reference(places, int(reference))
    if reference.startswith("[") and reference.endswith("]") and ">" in reference:
        return reference[1:-1].strip(), None
    match = _LINES.fullmatch(reference)
    if match is not None:
        # Relative to here where such a file exists, else as the daemon knows it: below a root.
        path, line = match["path"], match["line"]
        if os.path.isfile(os.path.expanduser(path)):
            path = absolute_path(path)
        return (f"{path}:{line}" if line else path), None
    return reference, None

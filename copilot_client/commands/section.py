"""``copilot section``."""

from __future__ import annotations

import os
import re

import click

from copilot_client import render
from copilot_client.last_answer import source_page, source_reference
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
  copilot section 1 --open                        in your editor, at its line
  copilot section 1 --editor code
"""

# `path:12-18` and `path pp. 3-4`, as `Sources:` prints them, mean the section that holds the first line or page.
_PLACE = re.compile(
    r"(?P<path>.+?)(?P<place>:(?P<line>\d{1,9})(?:-\d{1,9})?| pp?\. (?P<page>\d{1,9})(?:-\d{1,9})?)?",
    re.DOTALL,
)


@click.command(epilog=EXAMPLES)
@click.argument("reference", metavar="REF")
@click.option("--namespace", "-n", metavar="NAME", help="Where several namespaces hold the document.")
@click.option("--open", "-o", "opened", is_flag=True, help="Open it in your editor; a PDF in a viewer.")
@click.option(
    "--editor",
    metavar="COMMAND",
    default="",
    help="Open it in this one instead of COPILOT_EDITOR, VISUAL or EDITOR.",
)
@json_option
@no_start_option
def section(
    reference: str, namespace: str | None, opened: bool, editor: str, as_json: bool, no_start: bool
) -> None:
    """Prints a section whole, or opens it at its line.

    REF is the number of a source of the last answer, a path with or without a line, or a label such as
    "setup_guide > Database Config".
    """
    places = daemon_places()
    ref, remembered = _resolve(places, reference.strip())
    result = request(
        "section", {"ref": ref, "namespace": namespace or remembered}, start=not no_start, places=places
    )
    if opened or editor:
        from copilot_client.editor import open_place

        open_place({**result, **_named(places, reference.strip(), ref)}, editor=editor)
    elif as_json:
        write_json(result)
    else:
        write_lines(render.section(result, stdout_style()))


def _named(places: Places, reference: str, ref: str) -> dict[str, int | None]:
    """Returns the line or page that was asked for; the section may begin before it."""
    match = _PLACE.fullmatch(ref)
    if match is None or not match["place"]:
        return {}
    if match["page"]:
        return {"page": int(match["page"])}
    named: dict[str, int | None] = {"line_start": int(match["line"])}
    if reference.isdecimal() and not os.path.exists(reference):
        named["page"] = source_page(places, int(reference))
    return named


def _resolve(places: Places, reference: str) -> tuple[str, str | None]:
    if not reference:
        raise UsageError("The reference is empty.", "copilot section --help")
    if reference.isdecimal() and not os.path.exists(reference):
        return source_reference(places, int(reference))
    if reference.startswith("[") and reference.endswith("]") and ">" in reference:
        return reference[1:-1].strip(), None
    match = _PLACE.fullmatch(reference)
    if match is not None:
        # Relative to here where such a file exists, else as the daemon knows it: below a root.
        path = match["path"]
        if os.path.isfile(os.path.expanduser(path)):
            path = absolute_path(path)
        return path + (match["place"] or ""), None
    return reference, None

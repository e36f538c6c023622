"""``copilot check``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from copilot_client.options import json_option, no_start_option
from copilot_client.output import write_json, write_lines
from copilot_client.progress import ProgressBar
from copilot_client.request import request
from copilotd.text import count, printable

EXAMPLES = """\b
Examples:
  copilot check
  copilot check --repair
"""


@click.command(epilog=EXAMPLES)
@click.option("--repair", is_flag=True, help="Mend what is found, by reading or embedding it again.")
@json_option
@no_start_option
def check(repair: bool, as_json: bool, no_start: bool) -> None:
    """Verifies the whole index against itself, your files and the model.

    Exit code 0: nothing is wrong (any more); 1: something is.
    """
    bar = ProgressBar(sys.stderr)
    try:
        report = request(
            "check",
            {"repair": True} if repair else {},
            start=not no_start,
            on_progress=bar.update,
            seconds=None,
        )
    finally:
        bar.close()
    if as_json:
        write_json(report)
    else:
        write_lines(_lines(report))
    if not (report["clean"] or report["repaired"]):
        raise click.exceptions.Exit(1)


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    for finding in report["findings"]:
        where = f"{printable(finding['path'])}: " if finding["path"] else ""
        yield f"{printable(finding['kind'])}: {where}{printable(finding['detail'])}"
    checked = f"{count(report['documents'], 'document')} and {count(report['windows'], 'vector')} checked"
    if report["clean"]:
        yield f"{checked}: all is well."
    elif report["repaired"]:
        yield f"{checked}: everything found was mended."
    else:
        yield f"{checked}: {count(len(report['findings']), 'finding')}."
        yield "Next: copilot check --repair"

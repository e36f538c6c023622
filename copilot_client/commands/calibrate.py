"""``copilot calibrate``."""

from __future__ import annotations

import sys

import click

from copilot_client.options import json_option, no_start_option
from copilot_client.output import write_json, write_lines
from copilot_client.progress import ProgressBar
from copilot_client.request import request

EXAMPLES = """\b
Examples:
  copilot calibrate
"""


@click.command(epilog=EXAMPLES)
@json_option
@no_start_option
def calibrate(as_json: bool, no_start: bool) -> None:
    """Fits the confidence for the embedding model that EMBED_MODEL names, on your documents.

    The bundled model needs none. Questions are made of your documents' sections; nothing leaves this machine.
    """
    bar = ProgressBar(sys.stderr)
    try:
        report = request("calibrate", {}, start=not no_start, on_progress=bar.update, seconds=None)
    finally:
        bar.close()
    if as_json:
        write_json(report)
    else:
        write_lines(
            [
                f"Fitted on {report['questions']} generated questions; it tells them from near misses in "
                f"{report['auroc']:.0%} of pairs."
            ]
        )

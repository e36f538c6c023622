"""``copilot status``."""

from __future__ import annotations

import click

from copilot_client import render
from copilot_client.options import json_option
from copilot_client.output import stdout_style, write_json, write_lines
from copilot_client.request import request

STATUS_S = 30.0

EXAMPLES = """\b
Examples:
  copilot status
  copilot status --json | jq .pending
"""


@click.command(epilog=EXAMPLES)
@json_option
def status(as_json: bool) -> None:
    """Shows the daemon's state: roots, index, pending work, model, memory, recent errors.

    Never starts the daemon; exit 3 where it isn't running.
    """
    result = request("status", {}, seconds=STATUS_S)
    if as_json:
        write_json(result)
    else:
        write_lines(render.status(result, stdout_style()))

"""``copilot roots`` and ``copilot forget``."""

from __future__ import annotations

import click

from copilot_client import render
from copilot_client.options import absolute_path, json_option, no_start_option
from copilot_client.output import stdout_style, write_json, write_lines
from copilot_client.request import request

ROOTS_EXAMPLES = """\b
Examples:
  copilot roots
  copilot roots --json
"""
FORGET_EXAMPLES = """\b
Examples:
  copilot forget ~/work/docs
  copilot forget ~/work/docs --namespace api
"""


@click.command(epilog=ROOTS_EXAMPLES)
@json_option
@no_start_option
def roots(as_json: bool, no_start: bool) -> None:
    """Lists the indexed folders: namespace, size, and how each is watched."""
    result = request("roots", {}, start=not no_start)
    if as_json:
        write_json(result)
    else:
        write_lines(render.roots(result, stdout_style()))


@click.command(epilog=FORGET_EXAMPLES)
@click.argument("directory", metavar="DIR")
@click.option("--namespace", "-n", metavar="NAME", help="Only there; without it, in every namespace.")
@json_option
@no_start_option
def forget(directory: str, namespace: str | None, as_json: bool, no_start: bool) -> None:
    """Removes the folder DIR from the index. The files themselves stay as they are."""
    result = request("forget", {"path": absolute_path(directory), "namespace": namespace}, start=not no_start)
    if as_json:
        write_json(result)
    else:
        write_lines(render.forgotten(result))

"""``copilot search``."""

from __future__ import annotations

import sys

import click

from copilot_client import render
from copilot_client.explain import explanation
from copilot_client.options import json_option, no_start_option, read_query, scope_options
from copilot_client.output import stdout_style, tell, write_json, write_lines
from copilot_client.progress import WaitingLine
from copilot_client.request import request

EXAMPLES = """\b
Examples:
  copilot search restore backup
  copilot search "DATABASE_URL" --top-k 10 --json
  copilot search restore backup --explain
"""


@click.command(epilog=EXAMPLES)
@click.argument("query", nargs=-1, required=True)
@scope_options
@click.option("--explain", is_flag=True, help="Show the parts of each hit's score and what was searched.")
@json_option
@no_start_option
def search(
    query: tuple[str, ...],
    namespaces: tuple[str, ...],
    paths: tuple[str, ...],
    top_k: int | None,
    explain: bool,
    as_json: bool,
    no_start: bool,
) -> None:
    """Lists the passages that fit QUERY best, without composing an answer."""
    params = {
        "query": read_query(query, "search restore backup"),
        "namespaces": list(namespaces) or None,
        "paths": list(paths) or None,
        "top_k": top_k,
    }
    waiting = WaitingLine(sys.stderr)
    try:
        result = request("search", params, start=not no_start, on_progress=waiting.update)
    finally:
        waiting.close()
    if as_json:
        write_json(result)
        return
    style = stdout_style()
    write_lines(render.search_hits(result, style))
    if explain:
        write_lines(["", *explanation(result, style)])
    tell([*render.notices(result), *render.freshness_line(result)])

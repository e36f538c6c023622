"""``copilot index`` and ``copilot rebuild``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from copilot_client import render
from copilot_client.options import Whole, absolute_path, json_option, no_start_option
from copilot_client.output import tell, write_json, write_lines
from copilot_client.progress import ProgressBar
from copilot_client.request import connect, daemon_places
from copilot_client.terminal import is_terminal
from copilotd.errors import RootNotFound, UsageError
from copilotd.text import printable, shell_word

INDEX_EXAMPLES = """\b
Examples:
  copilot index ~/work/docs
  copilot index . --namespace api --include '*.md' --exclude 'archive/'
"""
REBUILD_EXAMPLES = """\b
Examples:
  copilot rebuild
  copilot rebuild --fresh-vectors
"""


@click.command(epilog=INDEX_EXAMPLES)
@click.argument("directory", metavar="DIR")
@click.option("--namespace", "-n", metavar="NAME", help="Documents of different namespaces never mix.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files that match; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No files that match; repeatable.")
@click.option("--chunk-size", type=Whole(100, 100_000), metavar="N", help="Longest passage, in characters.")
@click.option("--chunk-overlap", type=Whole(0, 50_000), metavar="N", help="Characters that passages share.")
@click.option("--poll", is_flag=True, help="Look by the clock: for shares that send no notices.")
@click.option("--yes", "-y", is_flag=True, help="Index the whole home folder or disk without asking.")
@json_option
@no_start_option
def index(
    directory: str,
    namespace: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    chunk_size: int | None,
    chunk_overlap: int | None,
    poll: bool,
    yes: bool,
    as_json: bool,
    no_start: bool,
) -> None:
    """Indexes the documents below DIR and keeps watching it.

    Doing it again for the same folder costs only what has changed.
    """
    path = _checked_directory(directory)
    if not all(glob.strip() for glob in (*include, *exclude)):
        raise UsageError("A glob is empty.", "copilot index DIR --include '*.md'")
    if not yes:
        _confirm_large(path)
    params = {
        "path": path,
        "namespace": namespace,
        "include": list(include) or None,
        "exclude": list(exclude) or None,
        "chunk_size": chunk_size,
        "chunk_overlap": chunk_overlap,
        "poll": poll or None,
    }
    _run("index", params, path, as_json=as_json, start=not no_start)


@click.command(epilog=REBUILD_EXAMPLES)
@click.option("--fresh-vectors", is_flag=True, help="Embed unchanged text again too; slow.")
@json_option
@no_start_option
def rebuild(fresh_vectors: bool, as_json: bool, no_start: bool) -> None:
    """Reads and splits every document again; vectors of unchanged text are kept."""
    _run(
        "rebuild", {"fresh_vectors": fresh_vectors or None}, "any folder", as_json=as_json, start=not no_start
    )


def _run(method: str, params: Mapping[str, Any], directory: str, *, as_json: bool, start: bool) -> None:
    bar = ProgressBar(sys.stderr)
    connection = connect(daemon_places(), start=start)
    try:
        report = connection.call(method, params, on_progress=bar.update)
    except KeyboardInterrupt:
        bar.close()
        tell(["", "The daemon goes on indexing in the background; see: copilot status"])
        raise click.exceptions.Exit(130) from None
    finally:
        bar.close()
        connection.close()
    if as_json:
        write_json(report)
    else:
        write_lines(render.index_report(report, directory))
        tell([*render.notices(report), *render.freshness_line(report)])


def _checked_directory(directory: str) -> str:
    path = absolute_path(directory)
    if not directory.strip():
        raise UsageError("The folder's name is empty.", "copilot index DIR")
    if not os.path.exists(path):
        raise RootNotFound(f"There is no folder {printable(path)}.", "copilot index DIR")
    if not os.path.isdir(path):
        folder = shell_word(os.path.dirname(path))
        raise UsageError(f"{printable(path)} is a file, not a folder.", f"copilot index {folder}")
    return path


def _confirm_large(path: str) -> None:
    """Asks before a home folder, or one that holds it, is indexed (tobi/qmd#684)."""
    home = os.path.realpath(os.path.expanduser("~"))
    if os.path.commonpath([os.path.realpath(path), home]) != os.path.realpath(path):
        return
    what = f"{printable(path)} holds your whole home folder"
    if not is_terminal(sys.stdin):
        raise UsageError(
            f"{what}; it is not indexed without --yes.",
            f"copilot index DIR, or: copilot index {shell_word(path)} --yes",
        )
    click.confirm(f"{what}. Index it?", abort=True, err=True)

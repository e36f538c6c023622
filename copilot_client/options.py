"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from copilotd.errors import UsageError

Command = Callable[..., Any]


class Whole(click.IntRange):
    """A whole number within bounds; what isn't one is told as that, and not as no "integer range"."""

    name = "whole number"


class Number(click.FloatRange):
    """A number within bounds."""

    name = "number"


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
no_start_option = click.option(
    "--no-start", is_flag=True, help="Fail (exit 3) where the daemon isn't running instead of starting it."
)


def scope_options(command: Command) -> Command:
    """Adds ``--namespace``, ``--path`` and ``--top-k``."""
    command = click.option(
        "--top-k", type=Whole(1, 100), metavar="N", help="Passages to use (default: TOP_K)."
    )(command)
    command = click.option(
        "--path",
        "paths",
        multiple=True,
        metavar="GLOB",
        help="Only documents whose path matches; repeatable.",
    )(command)
    return click.option(
        "--namespace",
        "-n",
        "namespaces",
        multiple=True,
        metavar="NAME",
        help="Only this namespace; repeatable.",
    )(command)


def read_query(words: tuple[str, ...], example: str = 'ask "how do I restore a backup?"') -> str:
    """Returns the question: the words joined, or stdin for a single ``-``.

    Args:
        words: As they were typed.
        example: What to type instead of nothing.

    Raises:
        UsageError: It is empty.
    """
    typed = os.fsencode(" ".join(words))
    source: bytes = sys.stdin.buffer.read() if typed == b"-" else typed
    query = source.decode("utf-8", "replace").strip()
    if not query:
        raise UsageError("The question is empty.", f"copilot {example}")
    return query


def absolute_path(path: str) -> str:
    """Returns ``path`` from the current folder, ``~`` expanded, symlinks kept."""
    return os.path.abspath(os.path.expanduser(path))

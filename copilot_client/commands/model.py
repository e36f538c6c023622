"""``copilot model``: handed to ``copilotd model``, which alone knows models."""

from __future__ import annotations

import os
import sys

import click

from copilot_client.launch import daemon_command, daemon_environment
from copilot_client.options import json_option

EXAMPLES = """\b
Examples:
  copilot model list
  copilot model pull intfloat/e5-small-v2      the only command that downloads
  copilot model verify
"""


@click.group(epilog=EXAMPLES)
def model() -> None:
    """Lists the installed embedding models, fetches another, or verifies the hashes."""


@model.command("list", epilog="Example: copilot model list")
@json_option
def list_models(as_json: bool) -> None:
    """Lists the models on this machine; a star marks the one in use."""
    _hand_over("list", as_json)


@model.command(epilog="Example: copilot model pull intfloat/e5-small-v2")
@click.argument("name")
@json_option
def pull(name: str, as_json: bool) -> None:
    """Downloads a model from the model hub."""
    _hand_over("pull", as_json, name)


@model.command(epilog="Example: copilot model verify")
@click.argument("name", required=False)
@json_option
def verify(name: str | None, as_json: bool) -> None:
    """Checks the hashes of the files of one model, or of all."""
    _hand_over("verify", as_json, *([name] if name else []))


def _hand_over(action: str, as_json: bool, *arguments: str) -> None:
    sys.stdout.flush()
    # Behind "--" a name that begins with a dash is no option.
    behind = ("--", *arguments) if arguments else ()
    command = daemon_command("model", action, *(["--json"] if as_json else []), *behind)
    os.execve(command[0], command, daemon_environment())  # noqa: S606

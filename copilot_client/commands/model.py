"""``copilot model``: handed to ``copilotd model``, which alone knows models."""

from __future__ import annotations

import os
import sys

import click

from copilot_client.launch import daemon_command, daemon_environment

EXAMPLES = """\b
Examples:
  copilot model list
  copilot model pull intfloat/e5-small-v2      the only command that downloads
  copilot model verify
"""


@click.command(epilog=EXAMPLES, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("action", type=click.Choice(["list", "pull", "verify"]))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def model(action: str, arguments: tuple[str, ...]) -> None:
    """Lists the installed embedding models, fetches another, or verifies the hashes."""
    sys.stdout.flush()
    command = daemon_command("model", action, *arguments)
    os.execve(command[0], command, daemon_environment())  # noqa: S606

"""``copilot conversations``."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from copilot_client import render
from copilot_client.conversation_text import as_markdown, moment
from copilot_client.history import history_file
from copilot_client.options import json_option, no_start_option
from copilot_client.output import stdout_style, tell, write_json, write_lines
from copilot_client.request import daemon_places, request
from copilotd.errors import UsageError
from copilotd.text import count, one_line

EXAMPLES = """\b
Examples:
  copilot conversations
  copilot conversations show last
  copilot conversations export 1f3a > answers.md
  copilot conversations delete --all
"""


@click.group(invoke_without_command=True, epilog=EXAMPLES)
@json_option
@no_start_option
@click.pass_context
def conversations(ctx: click.Context, as_json: bool, no_start: bool) -> None:
    """Lists what was asked before; shows, exports or deletes it.

    An ID may be shortened; "last" is the latest one. Conversations are kept on this machine only.
    """
    if ctx.invoked_subcommand is None:
        _list(as_json, no_start)


@conversations.command("list")
@json_option
@no_start_option
def list_conversations(as_json: bool, no_start: bool) -> None:
    """Lists the conversations, the latest first."""
    _list(as_json, no_start)


@conversations.command()
@click.argument("conversation", metavar="ID", default="last")
@json_option
@no_start_option
def show(conversation: str, as_json: bool, no_start: bool) -> None:
    """Prints a conversation."""
    _print(conversation, as_json, no_start)


@conversations.command(short_help="Prints a conversation for a file: Markdown, or JSON.")
@click.argument("conversation", metavar="ID", default="last")
@json_option
@no_start_option
def export(conversation: str, as_json: bool, no_start: bool) -> None:
    """Prints a conversation as Markdown, or with --json as JSON, for a file."""
    _print(conversation, as_json, no_start)


@conversations.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Delete all of them, and the chat's typed history.")
@json_option
@no_start_option
def delete(ids: tuple[str, ...], everything: bool, as_json: bool, no_start: bool) -> None:
    """Deletes conversations."""
    if bool(ids) == everything:
        raise UsageError("Name the conversations to delete, or --all.", "copilot conversations")
    places = daemon_places()
    params = {"all": True} if everything else {"ids": [_resolve(name, no_start) for name in ids]}
    result = request("delete_conversations", params, start=not no_start, places=places)
    if everything:
        with suppress(FileNotFoundError):
            os.unlink(history_file(places))
    if as_json:
        write_json(result)
    else:
        write_lines([f"Deleted {count(int(result.get('deleted') or 0), 'conversation')}."])


def _list(as_json: bool, no_start: bool) -> None:
    result = request("conversations", {}, start=not no_start)
    if as_json:
        write_json(result)
        return
    found = list(result.get("conversations") or ())
    style = stdout_style()
    write_lines(
        [
            f"{style.bold(one_line(str(item.get('id')), 20))}  {style.dim(moment(item.get('updated')))}"
            f"  {count(int(item.get('turns') or 0), 'question')}"
            f"  {one_line(str(item.get('title') or ''), 200)}"
            for item in found
        ]
        or ["There are no conversations yet."]
    )
    tell(render.notices(result))


def _print(name: str, as_json: bool, no_start: bool) -> None:
    result = request("conversation", {"id": _resolve(name, no_start)}, start=not no_start)
    if as_json:
        write_json(result)
    else:
        sys.stdout.write(as_markdown(result))


def _resolve(name: str, no_start: bool) -> str:
    """Returns the id that was meant, refusing what can be none before it is sent."""
    if name == "last":
        found = request("conversations", {}, start=not no_start).get("conversations") or ()
        if not found:
            raise UsageError("There is no conversation yet.", 'copilot ask "…" begins one')
        return str(found[0]["id"])
    if not (name.isascii() and name.isalnum()) or len(name) > 40:
        raise UsageError(
            f"{one_line(name, 40)!r} is no conversation's id.", "copilot conversations lists them"
        )
    return name.lower()

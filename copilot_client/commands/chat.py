"""``copilot chat``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from copilot_client import cli
from copilot_client.last_answer import save_sources
from copilot_client.options import no_start_option, scope_options
from copilot_client.request import daemon_places, request
from copilot_client.terminal import is_terminal
from copilotd.paths import Places
from copilotd.text import count

EXAMPLES = """\b
Examples:
  copilot chat
  copilot chat --continue -n borg
  printf 'how do I restore a backup\\nand on Windows?\\n' | copilot chat
"""


@click.command(epilog=EXAMPLES)
@scope_options
@click.option("--continue", "-c", "go_on", is_flag=True, help="Go on with the last conversation.")
@click.option("--extractive", is_flag=True, help="Quote the documents; use no LLM even where one is set.")
@click.option("--deep/--plain", "deep", default=None, help="Deep answers (default: ASK_MODE).")
@no_start_option
@click.pass_context
def chat(
    ctx: click.Context,
    namespaces: tuple[str, ...],
    paths: tuple[str, ...],
    top_k: int | None,
    go_on: bool,
    extractive: bool,
    deep: bool | None,
    no_start: bool,
) -> None:
    """Talks with your documents: follow-ups are understood by what was said before.

    Reads a question a line where the input is no terminal. /help in the chat lists its commands.
    """
    # What follows loads rich and prompt_toolkit, which no other command needs.
    from copilot_client.chat.session import Asking, Chat

    places = daemon_places()

    def daemon(
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: Callable[[Mapping[str, Any]], None] | None = None,
        on_delta: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        return request(
            method, params, start=not no_start, places=places, on_progress=on_progress, on_delta=on_delta
        )

    asking = Asking(list(namespaces), list(paths), top_k, extractive, deep, "last" if go_on else "new")
    typed = is_terminal(sys.stdin)
    screen = _screen()
    if typed:
        screen.notice(_greeting(daemon("roots", {})))
    session = Chat(
        daemon,
        screen,
        asking,
        open_source=_open_source,
        remember=lambda answer: save_sources(places, answer),
        exit_code=cli.exit_code,
    )
    ctx.exit(session.run(_reader(places), patient=typed))


def _capable() -> bool:
    return is_terminal(sys.stdout) and os.environ.get("TERM", "") not in ("", "dumb")


def _screen() -> Any:
    if _capable():
        from copilot_client.chat.rich_screen import RichScreen

        return RichScreen(sys.stdout)
    from copilot_client.chat.screen import PlainScreen

    return PlainScreen(sys.stdout)


def _reader(places: Places) -> Any:
    if _capable() and is_terminal(sys.stdin):
        from copilot_client.chat.prompt import PromptReader
        from copilot_client.history import open_history

        return PromptReader(open_history(places))
    from copilot_client.chat.reading import LineReader

    return LineReader(sys.stdin)


def _greeting(roots: Mapping[str, Any]) -> list[str]:
    found = list(roots.get("roots") or ())
    if not found:
        return ["No folder is indexed yet. Add one: copilot index DIR"]
    documents = sum(int(root.get("documents") or 0) for root in found)
    return [f"{count(documents, 'document')}. /help lists the commands, Ctrl-D leaves."]


def _open_source(place: Mapping[str, Any]) -> None:
    from copilot_client.editor import open_place

    open_place(place)

"""What was typed: a question, or one of the chat's own commands."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

COMMANDS: dict[str, tuple[str, str]] = {
    "sources": ("", "list the sources of the last answer again"),
    "open": ("N", "open source N in your editor"),
    "new": ("", "begin a new conversation"),
    "save": ("FILE", "write the conversation to FILE: Markdown, or JSON for .json"),
    "namespace": ("[NAME]", "answer from this namespace only; * for all of them"),
    "deep": ("", "switch deep answers on or off"),
    "help": ("", "show this"),
    "quit": ("", "leave (so does Ctrl-D)"),
}
"""Each command with its argument and what it does."""

# A path such as /etc/fstab is no command: what follows the name is a blank or the end.
_COMMAND = re.compile(r"/([A-Za-z?][\w-]*)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A line that begins with a slash.

    Attributes:
        name: Without the slash, lower case; it may be unknown.
        argument: What stands behind it.
    """

    name: str
    argument: str


def read_line(text: str) -> Command | str:
    """Returns the command a line is, or the question; empty for a blank line."""
    text = text.strip()
    match = _COMMAND.fullmatch(text)
    if match is None:
        # A doubled slash is a question that begins with one.
        return text[1:] if text.startswith("//") else text
    return Command(match[1].lower(), (match[2] or "").strip())


def unknown_command(name: str) -> str:
    """Returns what to say about a command that isn't there."""
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f"did you mean /{near[0]}?" if near else "/help lists the commands."
    return f"There is no command /{name}; {meant} A question that begins with / is asked with //."


def help_lines() -> list[str]:
    """Returns the commands and keys."""
    rows = [(f"/{name} {argument}".rstrip(), does) for name, (argument, does) in COMMANDS.items()]
    rows += [
        ("Alt-Enter", "begin another line; so does a \\ at the end of one"),
        ("Ctrl-C", "cancel the answer that is coming, or clear what was typed"),
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {does}" for name, does in rows]

"""The input line of a terminal: editing, history, several lines. The one module that knows prompt_toolkit."""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from copilot_client.chat.lines import COMMANDS
from copilotd.text import printable


class PromptReader:
    """Reads from the terminal this process runs in.

    Args:
        history: Where typed lines are kept; None for this run only.
    """

    def __init__(self, history: Path | None) -> None:
        # Without it prompt_toolkit asks the terminal where the cursor is; some never answer.
        os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")
        kept: History = InMemoryHistory() if history is None else FileHistory(str(history))
        commands: Completer = WordCompleter([f"/{name}" for name in COMMANDS], sentence=True)
        self._session: PromptSession[str] = PromptSession(
            history=kept,
            multiline=True,
            key_bindings=_keys(),
            completer=commands,
            complete_while_typing=Condition(lambda: self._session.default_buffer.text.startswith("/")),
            prompt_continuation="  ",
            reserve_space_for_menu=0,
        )

    def read(self, prompt: str) -> str | None:
        """Returns what was typed; None for Ctrl-D on an empty line."""
        try:
            return self._session.prompt(printable(prompt, keep_newlines=False))
        except EOFError:
            return None


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys

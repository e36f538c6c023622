"""One chat: what each line does, whatever it was typed into and wherever the answer goes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from copilot_client import render
from copilot_client.chat.lines import Command, help_lines, read_line, unknown_command
from copilot_client.chat.reading import Reader
from copilot_client.chat.screen import Screen
from copilot_client.conversation_text import as_markdown
from copilot_client.output import stdout_style
from copilotd.errors import ConversationNotFound, CopilotError, UsageError
from copilotd.text import one_line, printable


class Daemon(Protocol):
    """Sends one request; see :func:`copilot_client.request.request`."""

    def __call__(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: Callable[[Mapping[str, Any]], None] | None = None,
        on_delta: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Returns the result."""
        ...


@dataclass(slots=True)
class Asking:
    """How questions are asked; the chat's own commands change it.

    Attributes:
        namespaces: What they are answered from; empty for everything.
        paths: Likewise, globs.
        top_k: Passages to use; None for the setting.
        extractive: Without the LLM.
        deep: Deep answers; None for the setting.
        conversation: Where it goes on: an id, ``last`` or ``new``.
    """

    namespaces: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    top_k: int | None = None
    extractive: bool = False
    deep: bool | None = None
    conversation: str = "new"

    def params(self, question: str) -> dict[str, Any]:
        """Returns the parameters of ``ask``."""
        return {
            "query": question,
            "namespaces": self.namespaces,
            "paths": self.paths,
            "top_k": self.top_k,
            "extractive": self.extractive or None,
            "deep": self.deep,
            "stream": True,
            "conversation": self.conversation,
        }


class Chat:
    """A conversation with the daemon, line by line.

    Args:
        daemon: Sends requests.
        screen: Where answers go.
        asking: How questions are asked at first.
        open_source: Opens a source of an answer in an editor.
        remember: Told each answer, so that other commands know its sources.
        exit_code: The exit code an error stands for.
    """

    def __init__(
        self,
        daemon: Daemon,
        screen: Screen,
        asking: Asking,
        *,
        open_source: Callable[[Mapping[str, Any]], None],
        remember: Callable[[Mapping[str, Any]], None],
        exit_code: Callable[[CopilotError], int],
    ) -> None:
        self._daemon = daemon
        self._screen = screen
        self._asking = asking
        self._open_source = open_source
        self._remember = remember
        self._exit_code = exit_code
        self._answer: Mapping[str, Any] = {}
        self._commands: dict[str, Callable[[str], None]] = {
            "sources": self._sources,
            "open": self._open,
            "new": self._new,
            "save": self._save,
            "namespace": self._namespace,
            "deep": self._deep,
            "help": lambda _: self._screen.lines(help_lines()),
        }

    def run(self, reader: Reader, *, patient: bool) -> int:
        """Answers until the input ends.

        Args:
            reader: Where the lines come from.
            patient: Go on after Ctrl-C, as a person expects; a script is ended by it.

        Returns:
            The exit code: 0, or where it isn't patient that of the last line that failed.
        """
        code = 0
        while True:
            try:
                text = reader.read(self.prompt)
                if text is None:
                    return code
                line = read_line(text)
                if isinstance(line, Command) and line.name in ("quit", "exit", "q"):
                    return code
                self._take(line)
            except KeyboardInterrupt:
                if not patient:
                    raise
                self._screen.notice(["", "Cancelled. Ctrl-D leaves."])
            except CopilotError as error:
                # A person has seen it and gone on; a script only sees the code.
                code = 0 if patient else self._exit_code(error)
                lines = [f"Error: {printable(error.message)}"]
                self._screen.notice(lines + ([f"  Next: {printable(error.hint)}"] if error.hint else []))

    @property
    def prompt(self) -> str:
        """What stands before the input."""
        names = ", ".join(self._asking.namespaces)
        marks = [*([one_line(names, 40)] if names else []), *(["deep"] if self._asking.deep else [])]
        return f"{' '.join(marks)}> "

    def _take(self, line: Command | str) -> None:
        if isinstance(line, str):
            if line:
                self._ask(line)
            return
        command = self._commands.get(line.name)
        if command is None:
            raise UsageError(unknown_command(line.name))
        command(line.argument)

    def _ask(self, question: str) -> None:
        try:
            answer = self._request(question)
        except ConversationNotFound as error:
            if self._asking.conversation in ("new", "last"):
                raise
            self._screen.notice([f"{printable(error.message)} A new one is begun."])
            self._asking.conversation = "new"
            answer = self._request(question)
        self._answer = answer
        self._asking.conversation = str(answer.get("conversation") or self._asking.conversation)
        self._remember(answer)

    def _request(self, question: str) -> dict[str, Any]:
        view = self._screen.answer()
        try:
            answer = self._daemon(
                "ask", self._asking.params(question), on_progress=view.progress, on_delta=view.delta
            )
        except BaseException:
            view.abandon()
            raise
        view.finish(answer)
        return answer

    # ------------------------------------------------------------------------------------ commands

    def _sources(self, _: str) -> None:
        lines = render.answer_sources(self._answer, stdout_style())
        self._screen.lines(lines[1:] or ["The last answer has no sources."])

    def _open(self, argument: str) -> None:
        places = list(self._answer.get("citations") or self._answer.get("closest") or ())
        if not argument.isdecimal() or not 1 <= int(argument) <= len(places):
            had = f"1 to {len(places)}" if len(places) > 1 else "1" if places else "none yet"
            raise UsageError(f"/open takes the number of a source of the last answer: {had}.", "/sources")
        self._open_source(places[int(argument) - 1])

    def _new(self, _: str) -> None:
        self._asking.conversation = "new"
        self._answer = {}
        self._screen.lines(["A new conversation."])

    def _save(self, argument: str) -> None:
        if not argument:
            raise UsageError("/save takes the name of a file.", "/save answers.md")
        if self._asking.conversation in ("new", "last"):
            raise UsageError("There is nothing to save yet.", "ask a question first")
        conversation = self._daemon("conversation", {"id": self._asking.conversation})
        shown = {name: value for name, value in conversation.items() if name != "_"}
        path = Path(os.path.expanduser(argument))
        text = json.dumps(shown, indent=2) + "\n" if path.suffix == ".json" else as_markdown(shown)
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise UsageError(f"{printable(str(path))} is there already.", "choose another name") from None
        except OSError as error:
            raise UsageError(
                f"{printable(str(path))} can't be written: {error.strerror}.", "choose another name"
            ) from None
        self._screen.lines([f"Saved to {printable(str(path))}."])

    def _namespace(self, argument: str) -> None:
        known = sorted({str(root.get("namespace")) for root in self._daemon("roots", {}).get("roots") or ()})
        names = ", ".join(one_line(name, 60) for name in known) or "none yet"
        if argument == "*":
            self._asking.namespaces = []
        elif argument in known:
            self._asking.namespaces = [argument]
        elif argument:
            raise UsageError(
                f"There is no namespace {one_line(argument, 60)!r}. Known: {names}.", "/namespace NAME"
            )
        now = ", ".join(self._asking.namespaces) or "all namespaces"
        self._screen.lines([f"Answering from {one_line(now, 200)}. Known: {names}."])

    def _deep(self, _: str) -> None:
        self._asking.deep = not self._asking.deep
        self._screen.lines([f"Deep answers are {'on' if self._asking.deep else 'off'}."])

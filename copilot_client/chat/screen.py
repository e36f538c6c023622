"""Where the chat writes: plain text for pipes and simple terminals; :mod:`copilot_client.chat.rich_screen` else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TextIO

from copilot_client import render
from copilot_client.commands.ask import AnswerWriter
from copilot_client.output import stdout_style, tell, write_lines
from copilot_client.progress import WaitingLine


class AnswerView(Protocol):
    """One answer as it comes."""

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Shows what the answer waits for."""
        ...

    def delta(self, text: str) -> None:
        """Shows a piece of it."""
        ...

    def finish(self, answer: Mapping[str, Any]) -> None:
        """Shows it whole, with its sources."""
        ...

    def abandon(self) -> None:
        """Leaves what had come, since an error or Ctrl-C ended it."""
        ...


class Screen(Protocol):
    """Where answers and notices go."""

    def answer(self) -> AnswerView:
        """Begins an answer."""
        ...

    def lines(self, lines: Iterable[str]) -> None:
        """Writes lines that were asked for; they are safe to print."""
        ...

    def notice(self, lines: Iterable[str]) -> None:
        """Writes what went wrong or is worth knowing, likewise safe."""
        ...


class PlainScreen:
    """Prints answers as ``copilot ask`` does.

    Args:
        stream: Where they go.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def answer(self) -> AnswerView:
        """Begins an answer."""
        return PlainAnswer(self._stream)

    def lines(self, lines: Iterable[str]) -> None:
        """Writes lines that were asked for."""
        write_lines(lines)
        self._stream.flush()

    def notice(self, lines: Iterable[str]) -> None:
        """Writes what went wrong or is worth knowing to stderr."""
        tell(lines)


class PlainAnswer:
    """An answer as plain text, written as it comes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting = WaitingLine(sys.stderr)
        self._writer = AnswerWriter(stream, self._waiting)

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Shows what the answer waits for."""
        self._waiting.update(progress)

    def delta(self, text: str) -> None:
        """Writes a piece of it."""
        self._writer.delta(text)

    def finish(self, answer: Mapping[str, Any]) -> None:
        """Writes what is still missing of it, and its sources."""
        self._writer.finish(render.answer_text(answer))
        write_lines([*render.answer_sources(answer, stdout_style()), ""])
        tell(remarks(answer))
        self._stream.flush()

    def abandon(self) -> None:
        """Ends the line that was cut off."""
        self._writer.abandon()


def remarks(answer: Mapping[str, Any]) -> list[str]:
    """Returns what the reader must know beside an answer."""
    return [*render.answer_gaps(answer), *render.notices(answer), *render.freshness_line(answer)]

"""Answers on a terminal: as they come in plain letters, then whole as Markdown with links to their sources."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from copilot_client import render
from copilot_client.chat.markdown import Draft, console_for, print_lines, print_markdown
from copilot_client.chat.screen import AnswerView, remarks
from copilot_client.output import stdout_style, write_lines
from copilot_client.progress import WaitingLine
from copilot_client.terminal import is_file_uri
from copilotd.text import printable

_FRAME_S = 0.08


class RichScreen:
    """Draws on a terminal.

    Args:
        stream: The terminal.
        clock: Seconds, for the frame rate.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    def answer(self) -> AnswerView:
        """Begins an answer."""
        return RichAnswer(self._stream, self._clock)

    def lines(self, lines: Iterable[str]) -> None:
        """Writes lines that were asked for."""
        write_lines(lines)
        self._stream.flush()

    def notice(self, lines: Iterable[str]) -> None:
        """Writes what went wrong or is worth knowing."""
        print_lines(console_for(self._stream, colour=stdout_style().colour), lines)


class RichAnswer:
    """An answer on a terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._style = stdout_style()
        self._console = console_for(stream, colour=self._style.colour)
        self._waiting = WaitingLine(sys.stderr)
        self._draft = Draft(self._console)
        self._drawn = float("-inf")

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Shows what the answer waits for; a follow-up's standalone form stays on the screen."""
        if progress.get("stage") == "question":
            self._waiting.close()
            asked_as = printable(str(progress.get("message")), keep_newlines=False)
            print_lines(self._console, [asked_as], dim=True)
        elif not self._draft.text:
            self._waiting.update(progress)

    def delta(self, text: str) -> None:
        """Draws what has come so far."""
        self._waiting.close()
        self._draft.text += printable(text)
        now = self._clock()
        if now - self._drawn >= _FRAME_S:
            self._drawn = now
            self._draft.draw()

    def finish(self, answer: Mapping[str, Any]) -> None:
        """Replaces the draft by the answer as Markdown, with its sources."""
        self._clear()
        print_markdown(self._console, render.answer_text(answer), citation_links(answer))
        write_lines(render.answer_sources(answer, self._style))
        self._stream.flush()
        print_lines(self._console, remarks(answer), dim=True)
        print_lines(self._console, [""])

    def abandon(self) -> None:
        """Leaves what had come, marked as incomplete."""
        self._clear()
        if self._draft.text.strip():
            write_lines([self._draft.text.rstrip(), self._style.dim("(incomplete)"), ""])
            self._stream.flush()

    def _clear(self) -> None:
        self._waiting.close()
        self._draft.clear()


def citation_links(answer: Mapping[str, Any]) -> dict[str, str]:
    """Returns each citation as it stands in the answer, with the address of its file where that is safe."""
    links: dict[str, str] = {}
    for citation in answer.get("citations") or ():
        uri = render.place_uri(citation)
        if is_file_uri(uri):
            links.setdefault(render.label(citation), uri)
    return links

"""Where questions come from: lines of a pipe or a simple terminal; :mod:`copilot_client.chat.prompt` else."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from copilot_client.terminal import is_terminal


class Reader(Protocol):
    """Gives what is typed."""

    def read(self, prompt: str) -> str | None:
        """Returns the next question or command, perhaps of several lines; None at the end.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        ...


class LineReader:
    """Reads a line each; a backslash at its end joins the next one.

    Args:
        stream: Where the lines come from.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._asks = is_terminal(stream)

    def read(self, prompt: str) -> str | None:
        """Returns the next line or lines; None at the end of the stream."""
        lines: list[str] = []
        while True:
            if self._asks:
                sys.stderr.write(prompt if not lines else "  ")
                sys.stderr.flush()
            line = self._stream.readline()
            if not line:
                return "\n".join(lines) if lines else None
            line = line.rstrip("\r\n")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

"""Long work on stderr: a bar on a terminal, nothing or plain sentences in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from copilot_client.render import duration
from copilot_client.terminal import display_width, fit, is_terminal, style_for
from copilotd.text import one_line

BAR_COLUMNS = 24
FRAME_S = 0.08

# Sentences that stay on the screen and also go to a pipe; others only pass by on a terminal.
LASTING_STAGES = frozenset({"model", "sync", "question"})


class TransientLine:
    """The last line of a terminal, drawn over itself with a carriage return; silent elsewhere.

    Args:
        stream: Where to draw, usually stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.enabled = is_terminal(stream)
        self._columns = style_for(stream).width
        self._drawn = 0

    def draw(self, text: str) -> None:
        """Shows ``text`` in place of what stood there."""
        if not self.enabled:
            return
        # The last column stays free: a character there makes some terminals wrap.
        text = fit(text, max(self._columns - 1, 10))
        width = display_width(text)
        self._write("\r" + text + " " * max(0, self._drawn - width))
        self._drawn = width

    def clear(self) -> None:
        """Empties the line, so that other output starts on a clean one."""
        if self._drawn:
            self._write("\r" + " " * self._drawn + "\r")
            self._drawn = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class ProgressBar:
    """Draws ``progress`` notifications as a bar: files, windows, time left.

    Args:
        stream: Where to draw.
        clock: Seconds, for the frame rate.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = TransientLine(stream)
        self._clock = clock
        self._last_frame = float("-inf")

    def update(self, progress: Mapping[str, Any]) -> None:
        """Shows one step; steps faster than the frame rate are left out."""
        now = self._clock()
        if not self._line.enabled or now - self._last_frame < FRAME_S:
            return
        self._last_frame = now
        self._line.draw(progress_line(progress))

    def close(self) -> None:
        """Takes the bar off the screen."""
        self._line.clear()


class WaitingLine:
    """What a question waits for: sentences of the daemon, each once.

    Args:
        stream: Where to write, usually stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = TransientLine(stream)
        self._told: set[str] = set()

    def update(self, progress: Mapping[str, Any]) -> None:
        """Shows one step."""
        message = one_line(str(progress.get("message") or ""), 300)
        lasting = progress.get("stage") in LASTING_STAGES
        if lasting and message and message not in self._told:
            self._told.add(message)
            self._line.clear()
            self._stream.write(message + "\n")
            self._stream.flush()
        elif message and not lasting:
            self._line.draw(message)

    def close(self) -> None:
        """Takes the passing line off the screen."""
        self._line.clear()


def progress_line(progress: Mapping[str, Any]) -> str:
    """Returns ``[######------]  12/40 files  340/900 windows  1 min 2 s left``."""
    files, windows = _pair(progress, "files"), _pair(progress, "windows")
    parts = [_bar(_fraction(progress))] if files or windows else []
    parts += [f"{pair} {name}" for pair, name in ((files, "files"), (windows, "windows")) if pair]
    eta = progress.get("eta_s")
    if eta is not None:
        parts.append(f"{duration(float(eta))} left")
    message = one_line(str(progress.get("message") or ""), 200)
    if message:
        parts.append(message)
    return "  ".join(parts) or one_line(str(progress.get("stage") or "working"), 40)


def _pair(progress: Mapping[str, Any], name: str) -> str:
    done, total = progress.get(f"{name}_done") or 0, progress.get(f"{name}_total")
    if total is None:
        return f"{int(done):,}" if done else ""
    return f"{int(done):,}/{int(total):,}" if total else ""


def _fraction(progress: Mapping[str, Any]) -> float:
    """Embedding takes nearly all of the time, so windows count where their number is known."""
    for name in ("windows", "files"):
        done, total = progress.get(f"{name}_done") or 0, progress.get(f"{name}_total")
        if total:
            return min(1.0, max(0.0, float(done) / float(total)))
    return 0.0


def _bar(fraction: float) -> str:
    filled = round(fraction * BAR_COLUMNS)
    return f"[{'#' * filled}{'-' * (BAR_COLUMNS - filled)}]"

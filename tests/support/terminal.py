"""A program on a terminal of its own: what is typed, and what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path

_CONTROL = re.compile(
    rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, hyperlinks among them
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\x1b[@-Z\\-_=>78]"
)


class Terminal:
    """Runs a command on a pseudo-terminal and collects its output.

    Attributes:
        raw: Every byte that came.
    """

    def __init__(
        self, command: list[str], env: Mapping[str, str], cwd: Path, *, columns: int = 80, lines: int = 24
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.raw = b""
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def shown(self) -> str:
        """What came, without escape sequences and carriage returns."""
        return _CONTROL.sub(b"", self.raw).replace(b"\r", b"").decode("utf-8", "replace")

    def type(self, keys: str) -> None:
        """Presses keys."""
        os.write(self._master, keys.encode())

    def wait_for(self, text: str, *, times: int = 1, seconds: float = 60.0) -> str:
        """Waits until ``text`` was shown so many times, and returns all that is shown."""
        deadline = time.monotonic() + seconds
        while (shown := self.shown).count(text) < times:
            if time.monotonic() > deadline or not self._reader.is_alive():
                shown = self.shown
                if shown.count(text) >= times:
                    return shown
                raise AssertionError(f"{text!r} was shown {shown.count(text)} times, not {times}: {shown}")
            time.sleep(0.02)
        return shown

    def wait_until_gone(self, seconds: float = 60.0) -> int:
        """Waits for the program's end and returns its exit code."""
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code

    def leave(self, seconds: float = 120.0) -> int:
        """Presses Ctrl-D until the program ends, as a person does whose first press came before the prompt."""
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            self.type("\x04")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        return self.wait_until_gone()

    def close(self) -> None:
        """Ends the program where it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(60)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self.raw += data


def _take_terminal() -> None:
    # Ctrl-C reaches only the foreground group of the terminal a session controls.
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

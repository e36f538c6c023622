"""A real daemon process with a home of its own, around the service of ``fake_daemon.py``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from support.shared import REPOSITORY

from copilotd import wire


class Process:
    """A daemon process with a home of its own."""

    def __init__(self, home: Path, mode: str = "", *arguments: str, **environment: str) -> None:
        self.home = home
        self.socket_path = Path(
            environment.get("COPILOT_SOCKET", home / ".local/state/copilot/copilotd.sock")
        )
        self.index = Path(environment.get("INDEX_DIR", home / ".local/share/copilot/index"))
        self.log = home / ".local/state/copilot/log/copilotd.log"
        variables = {"HOME": str(home), "PATH": os.environ["PATH"], "FAKE_MODE": mode}
        variables |= {"PYTHONPATH": str(REPOSITORY), **environment}
        self.process = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "tests/support/fake_daemon.py"), *arguments],
            env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip

    def connect(self, seconds: float = 60.0) -> socket.socket:
        deadline = time.monotonic() + seconds
        while True:
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(60)
            try:
                peer.connect(str(self.socket_path))
                return peer
            except OSError:
                peer.close()
                if self.process.poll() is not None:
                    raise AssertionError(self.process.communicate()[1]) from None
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def call(self, method: str, **params: object) -> wire.Message:
        with self.connect() as peer:
            return exchange(peer, method, **params)

    def wait_for_log(self, text: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not (self.log.exists() and text in self.log.read_text()):
            assert time.monotonic() < deadline, f"{text!r} never came"
            time.sleep(0.01)

    def end(self, seconds: float = 60.0) -> tuple[int, str]:
        """Waits for the end; returns exit code and stderr."""
        _, stderr = self.process.communicate(timeout=seconds)
        return self.process.returncode, stderr

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, float]:
        """Sends a signal; returns exit code, stderr and the seconds it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        code, stderr = self.end()
        return code, stderr, time.monotonic() - started


def exchange(peer: socket.socket, method: str, **params: object) -> wire.Message:
    """Sends one request and returns its reply, past any notification."""
    peer.sendall(wire.encode_request(1, method, dict(params)))
    decoder = wire.Decoder()
    while data := peer.recv(65536):
        for message in decoder.feed(data):
            if not isinstance(message, wire.Notification):
                return message
    raise AssertionError("hung up without a reply")


def result(message: wire.Message) -> wire.JSONObject:
    assert isinstance(message, wire.Result), message
    return message.result

"""A home folder of its own for the client, and shell-like calls in it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_RAISED = re.compile(r"event=request_failed|level=ERROR logger=asyncio")


@dataclass(frozen=True)
class Home:
    """A home folder of its own, with a short path so that the socket fits."""

    path: Path
    env: dict[str, str]

    @property
    def socket(self) -> Path:
        return self.path / "s" / "copilot" / "copilotd.sock"

    @property
    def state(self) -> Path:
        return self.path / "s" / "copilot"

    @property
    def lock(self) -> Path:
        return self.path / "d" / "copilot" / "index" / "copilotd.lock"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "copilot_client", *arguments]

    def run(
        self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Transcript:
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            env={**self.env, **(env or {})},
            cwd=cwd or self.path,
            timeout=150,
            check=False,
        )
        return Transcript(done.returncode, done.stdout.decode(), done.stderr.decode())


@dataclass(frozen=True)
class Transcript:
    code: int
    out: str
    err: str


@contextlib.contextmanager
def temporary_home() -> Iterator[Home]:
    """Makes a home; at its end no request of a daemon in it may have met an exception that nobody foresaw."""
    path = Path(tempfile.mkdtemp(prefix="cc-", dir="/tmp"))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(path / "h"),
        "XDG_STATE_HOME": str(path / "s"),
        "XDG_DATA_HOME": str(path / "d"),
        "XDG_CONFIG_HOME": str(path / "c"),
        "XDG_CACHE_HOME": str(path / "a"),
        "PYTHONPATH": str(REPOSITORY),
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "error",
    }
    (path / "h").mkdir()
    for name in ("s", "d"):
        (path / name / "copilot").mkdir(parents=True, mode=0o700)
    home = Home(path, env)
    try:
        yield home
        logs = [log.read_text(errors="replace") for log in home.state.glob("log/copilotd.log*")]
    finally:
        shutil.rmtree(path, ignore_errors=True)
    raised = [log[max(0, found.start() - 200) :][:8000] for log in logs if (found := _RAISED.search(log))]
    assert not raised, "\n".join(raised)

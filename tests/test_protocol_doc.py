"""``docs/protocol.md`` is executed and compared with the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon_process import Process
from support.shared import REPOSITORY

from copilotd import wire
from copilotd.errors import JSONRPC_CODES
from copilotd.server import Limits

PAGE = (REPOSITORY / "docs" / "protocol.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def daemon() -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="p") as home:
        process = Process(Path(home))
        process.call("echo")
        yield process
        process.stop()


def run_example(script: str, daemon: Process) -> str:
    environment = {"HOME": str(daemon.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    environment["COPILOT_SOCKET"] = str(daemon.socket_path)
    done = subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_example_shows_the_status(daemon: Process) -> None:
    assert json.loads(run_example(EXAMPLES[0], daemon))["pid"] == daemon.process.pid


@pytest.mark.skipif(shutil.which("nc") is None, reason="nc is not installed")
def test_the_nc_example_says_hello(daemon: Process) -> None:
    (message,) = wire.Decoder().feed(run_example(EXAMPLES[1], daemon).encode())
    assert isinstance(message, wire.Result)
    assert message.result["pid"] == daemon.process.pid


def test_every_error_is_listed_with_its_number() -> None:
    listed = re.findall(r"^\| (-?\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    expected = {(str(number), cls.code) for cls, number in JSONRPC_CODES.items()}
    expected |= {(str(wire.INVALID_REQUEST), "wire"), (str(wire.METHOD_NOT_FOUND), "usage")}
    assert len(listed) == len(set(listed))
    assert set(listed) == expected


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    for words in (
        f"`MAX_CONNECTIONS` ({limits.connections})",
        f"`MAX_REQUESTS` ({limits.all_requests})",
        f"`REQUEST_TIMEOUT_S` ({limits.request_s:g})",
        f"on one connection | {limits.open_requests} |",
        f"its newline | {limits.message_s:g} |",
        f"sent to it | {limits.write_s:g} |",
        f"no request | {limits.idle_s:g} |",
        f"nesting | {wire.MAX_DEPTH} |",
        f"reply | {wire.MAX_REPLY_BYTES >> 20} MiB |",
    ):
        assert words in PAGE
    assert f"This page is protocol **{wire.PROTOCOL}**" in PAGE

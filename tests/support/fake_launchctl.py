"""A stand-in for macOS's ``launchctl``: keeps the jobs of one domain, runs them as processes, and notes each call.

It does what launchctl(1) says of ``print``, ``enable``, ``bootstrap``, ``bootout`` and ``kickstart``, but for holding
the job's sockets: instead, a start waits until the job listens by itself.
"""

from __future__ import annotations

import json
import os
import plistlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 60.0


def install(folder: Path) -> Path:
    """Makes ``folder/launchctl``; returns the file its calls are noted in, one JSON list a line."""
    folder.mkdir(exist_ok=True)
    command = folder / "launchctl"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        f"from support.fake_launchctl import main\nsys.exit(main({str(folder)!r}, sys.argv[1:]))\n"
    )
    command.chmod(0o755)
    return folder / "calls"


def main(folder: str, arguments: list[str]) -> int:
    """Carries out one call."""
    with open(f"{folder}/calls", "a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    store = Path(folder, "jobs.json")
    jobs: dict[str, dict[str, Any]] = json.loads(store.read_text()) if store.exists() else {}
    domain = f"gui/{os.getuid()}"
    verb, target = arguments[0], arguments[-1]
    code = 0
    if verb == "print":
        code = 0 if target == domain else _print(jobs, target)
    elif verb == "bootstrap":
        job = plistlib.loads(Path(target).read_bytes())
        name = f"{domain}/{job['Label']}"
        code = 5 if name in jobs else 0
        if code == 0:
            jobs[name] = {"job": job, "pid": _start(job) if job.get("RunAtLoad") else 0}
        else:
            print("Bootstrap failed: 5: Input/output error", file=sys.stderr)
    elif verb == "bootout":
        code = 0 if target in jobs else 3
        if code == 0:
            _end(jobs.pop(target)["pid"])
        else:
            print("Boot-out failed: 3: No such process", file=sys.stderr)
    elif verb == "kickstart":
        known = jobs.get(target)
        code = 0 if known else 113
        if known:
            if "-k" in arguments:
                _end(known["pid"])
            if not _runs(known["pid"]):
                known["pid"] = _start(known["job"])
    elif verb != "enable":
        code = 64
    store.write_text(json.dumps(jobs))
    return code


def _print(jobs: dict[str, dict[str, Any]], target: str) -> int:
    if target not in jobs:
        print(f'Could not find service "{target}" in domain', file=sys.stderr)
        return 113
    pid = jobs[target]["pid"]
    lines = [f"\tpid = {pid}"] if _runs(pid) else ["\tlast exit code = 9"]
    print(f"{target} = {{", *lines, "}", sep="\n")
    return 0


def _start(job: dict[str, Any]) -> int:
    # launchd opens these before it runs the program, and runs nothing where their folder is missing.
    output = os.open(job["StandardErrorPath"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    process = subprocess.Popen(
        job["ProgramArguments"],
        env={
            "HOME": os.environ["HOME"],
            "PATH": "/usr/bin:/bin",
            "XPC_SERVICE_NAME": job["Label"],
            **job["EnvironmentVariables"],
        },
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        umask=job["Umask"],
        start_new_session=True,
    )
    path = job["Sockets"]["Listeners"]["SockPathName"]
    _wait(lambda: _listens(path) or process.poll() is not None)
    process.returncode = 0  # it goes on without this process
    return process.pid


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def _end(pid: int) -> None:
    if _runs(pid):
        os.kill(pid, signal.SIGTERM)
        _wait(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return pid > 1 and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _wait(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)

"""``copilot service``: the daemon under systemd's user instance or launchd."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections import deque
from typing import Any

import click

from copilot_client.connection import Connection, DaemonUnavailable
from copilot_client.launch import run_copilotd, stop_daemon
from copilot_client.options import Whole, json_option
from copilot_client.output import tell, write_json, write_lines
from copilot_client.request import daemon_places
from copilot_client.service.manager import (
    MANAGERS,
    Manager,
    ServiceFailed,
    ServiceState,
    find_manager,
    write_file,
)
from copilotd.errors import CopilotError, SettingsError
from copilotd.paths import Places
from copilotd.text import printable

EXAMPLES = """\b
Examples:
  copilot service install      run the daemon now and at each login
  copilot service status
  copilot service logs -f
  copilot service uninstall    the index and the settings stay
"""

EXIT_NOT_RUNNING = 3
_VERSION_S = 60.0

_WORDS = {
    "running": "The daemon runs",
    "starting": "The daemon is starting",
    "waiting": "The daemon isn't running; the first question starts it",
    "failed": "The daemon failed",
    "stopped": "The daemon isn't running",
}

manager_option = click.option(
    "--manager", type=click.Choice(MANAGERS), help="Which service manager (default: the one of this system)."
)


@click.group(epilog=EXAMPLES)
def service() -> None:
    """Installs, removes and shows the daemon as a service of this user."""


@service.command(
    short_help="Runs the daemon now, at each login, and after a crash.",
    epilog="Example: copilot service install",
)
@manager_option
@json_option
def install(manager: str | None, as_json: bool) -> None:
    """Runs the daemon as a service: now, at each login, and again after a crash.

    Can be run again, for instance after an upgrade or a move; it changes only what differs.
    """
    places, chosen = daemon_places(), find_manager(manager or "")
    chosen.require()
    command = _command_that_starts()
    warnings = _check_settings()
    texts = {kind: run_copilotd("--print-unit", kind) for kind in chosen.kinds()}
    try:
        written = [write_file(chosen.kinds()[kind], text) for kind, text in texts.items()]
    except OSError as error:
        raise CopilotError(f"{printable(str(error.filename))} can't be written: {error.strerror}.") from None
    changed = any(written)
    took_over = _stop_unmanaged(places, chosen)
    if changed or took_over or chosen.state().state not in ("running", "starting"):
        chosen.load()
    state = _await_answer(places, chosen)
    if as_json:
        notes = [*warnings, *chosen.notes()]
        write_json({**dataclasses.asdict(state), "changed": changed, "command": command, "notes": notes})
        return
    done = "Installed" if changed else "Installed already"
    write_lines([f"{done}: {', '.join(map(printable, state.files))}", _sentence(state)])
    tell([*warnings, *chosen.notes()])


@service.command(epilog="Example: copilot service uninstall")
@manager_option
@json_option
def uninstall(manager: str | None, as_json: bool) -> None:
    """Stops the service and removes its files. The index and the settings stay."""
    places, chosen = daemon_places(), find_manager(manager or "")
    files = [str(path) for path in chosen.kinds().values() if path.is_file()]
    if files:
        chosen.unload()
    if as_json:
        write_json({"manager": chosen.name, "removed": files})
    elif files:
        write_lines([f"Removed: {', '.join(map(printable, files))}"])
        tell([f"The index stays in {places.index_dir}, the settings in {places.env_file}."])
    else:
        write_lines(["The service is not installed."])


@service.command(short_help="Shows how the service is.", epilog="Example: copilot service status --json")
@manager_option
@json_option
@click.pass_context
def status(context: click.Context, manager: str | None, as_json: bool) -> None:
    """Shows how the service is; exit code 3 where the daemon doesn't run under it."""
    chosen = find_manager(manager or "")
    state = chosen.state()
    outdated = state.installed and _outdated(chosen)
    if as_json:
        write_json({**dataclasses.asdict(state), "outdated": outdated})
    elif not state.installed:
        write_lines(["The service is not installed.", "  Next: copilot service install"])
    else:
        write_lines(
            [
                _sentence(state),
                f"  manager   {state.manager}, {'starts at login' if state.enabled else 'not enabled'}",
                f"  files     {', '.join(map(printable, state.files))}",
                *([f"  restarts  {state.restarts}"] if state.restarts else []),
            ]
        )
        if outdated:
            tell(["The files are those of another installation or version. Next: copilot service install"])
        if state.state == "failed":
            tell(["Next: copilot service logs"])
    if state.state not in ("running", "starting", "waiting"):
        context.exit(EXIT_NOT_RUNNING)


@service.command(epilog="Example: copilot service logs -n 200")
@click.option(
    "--lines", "-n", type=Whole(0), metavar="N", default=50, show_default=True, help="How many lines."
)
@click.option("--follow", "-f", is_flag=True, help="Keep printing what is written; Ctrl-C ends it.")
@manager_option
def logs(lines: int, follow: bool, manager: str | None) -> None:
    """Prints what the service manager kept of the daemon's output.

    That has what the daemon said before its own log was open, too; `copilot logs` shows that log.
    """
    command = find_manager(manager or "").journal(lines, follow=follow)
    if command and follow:
        os.execvp(command[0], list(command))  # noqa: S606
    shown = []
    if command:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        shown = done.stdout.decode("utf-8", "replace").splitlines()
    if shown:
        write_lines([printable(line, keep_newlines=False) for line in shown])
        return
    path = daemon_places().log_file
    tell([f"The service manager kept no output; this is the daemon's own log, {path}:"])
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            last = deque(file, lines)
    except OSError as error:
        raise CopilotError(
            f"{printable(str(path))} can't be read: {error.strerror}.", "copilot service status"
        ) from None
    write_lines([printable(line.rstrip("\n"), keep_newlines=False) for line in last])


def _command_that_starts() -> list[str]:
    """Returns the command a manager will run, once it is sure that it works without this shell.

    Raises:
        CopilotError: It needs something that only this shell has.
    """
    command: list[str] = json.loads(run_copilotd("--print-unit", "command"))
    bare = {name: os.environ[name] for name in ("HOME", "USER", "LANG") if name in os.environ}
    try:
        done = subprocess.run(
            [*command, "--version"],
            env={**bare, "PATH": "/usr/local/bin:/usr/bin:/bin"},
            cwd="/",
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_S,
            check=False,
        )
        works = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if not works:
        raise CopilotError(
            f"A service can't start this installation: {printable(' '.join(command))} needs your shell's settings.",
            "install it first: pipx install . (or: uv tool install .)",
        )
    return command


def _check_settings() -> list[str]:
    """Returns what to know about the settings.

    Raises:
        SettingsError: Some are wrong, so that the daemon could not start.
    """
    report: dict[str, Any] = json.loads(run_copilotd("--check-settings", codes=(0, 3)))
    if problems := report["problems"]:
        raise SettingsError("\n  ".join(["The daemon could not start:", *problems]), "copilot config edit")
    # The places travel with the unit; anything else, keys above all, must not.
    places = ("INDEX_DIR", "COPILOT_SOCKET", "LOG_FILE")
    here = [
        name
        for name, setting in report["settings"].items()
        if setting["source"] == "environment" and name not in places
    ]
    only = f"Set in this shell alone, so the service doesn't see it: {', '.join(here)}. Next: copilot config set NAME"
    return [*report["warnings"], *([only] if here else [])]


def _stop_unmanaged(places: Places, manager: Manager) -> bool:
    """Stops a daemon that runs, but not under ``manager``; returns whether there was one."""
    try:
        with Connection.open(places.socket) as connection:
            if connection.managers or connection.hello().get("started_by") == manager.name:
                return False
    except DaemonUnavailable:
        return False
    stop_daemon(places)
    return True


def _await_answer(places: Places, manager: Manager) -> ServiceState:
    try:
        with Connection.open(places.socket) as connection:
            connection.hello()
    except CopilotError as error:
        raise ServiceFailed(
            f"The service is installed, but: {error.message}", "copilot service logs"
        ) from None
    return manager.state()


def _outdated(manager: Manager) -> bool:
    return any(
        path.is_file() and path.read_bytes() != os.fsencode(run_copilotd("--print-unit", kind))
        for kind, path in manager.kinds().items()
    )


def _sentence(state: ServiceState) -> str:
    who = f" (pid {state.pid})" if state.pid else ""
    note = f": {printable(state.note)}" if state.note else ""
    return f"{_WORDS[state.state]}{who}{note}."

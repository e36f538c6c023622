"""``copilot config``: the settings file, checked by the daemon's own rules before it is written."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from copilot_client import settings_file
from copilot_client.commands.reload import reload_daemon, reload_lines
from copilot_client.connection import DaemonUnavailable
from copilot_client.launch import daemon_environment, run_copilotd
from copilot_client.options import json_option
from copilot_client.output import tell, write_json, write_lines
from copilotd.errors import CopilotError, SettingsError, UsageError
from copilotd.paths import find_env_file
from copilotd.text import one_line, printable

EXAMPLES = """\b
Examples:
  copilot config list
  copilot config set TOP_K 8
  copilot config set ANTHROPIC_API_KEY            asks, without showing it
  pass show anthropic | copilot config set ANTHROPIC_API_KEY
  copilot config edit
"""

# What find_places takes into account beside the settings: it stays as in the daemon's own environment.
_NEVER_IN_THE_FILE = "COPILOT_ENV_FILE"

Report = Mapping[str, Any]


@click.group(epilog=EXAMPLES)
def config() -> None:
    """Shows and changes the settings. Keys and passwords are never printed."""


@config.command(epilog="Example: copilot config path")
def path() -> None:
    """Prints where the settings file is, or would be."""
    write_lines([printable(str(_file()), keep_newlines=False)])


@config.command("list", epilog="Example: copilot config list --all")
@click.option("--all", "everything", is_flag=True, help="Also those that have their default.")
@json_option
def list_settings(everything: bool, as_json: bool) -> None:
    """Lists the settings in use, and where each comes from."""
    report = _report()
    if as_json:
        write_json(report)
        return
    settings = {
        name: setting
        for name, setting in report["settings"].items()
        if everything or setting["source"] != "default"
    }
    width = max(map(len, settings), default=0)
    write_lines([f"{name:<{width}}  {_line(setting)}" for name, setting in settings.items()])
    if not settings:
        tell(["Everything has its default; copilot config list --all shows them."])
    tell(report["warnings"])
    if report["problems"]:
        raise _wrong(report["problems"])


@config.command(epilog="Example: copilot config get TOP_K")
@click.argument("name")
@json_option
def get(name: str, as_json: bool) -> None:
    """Prints the value of a setting that is in use: set, or its default."""
    report = _report()
    variable = _known(name, report)
    setting = report["settings"][variable]
    if setting["value"] is None:
        raise _wrong(report["problems"])
    if as_json:
        write_json({"name": variable, **setting})
    else:
        write_lines([printable(str(setting["value"]), keep_newlines=False)])


@config.command("set", epilog=EXAMPLES)
@click.argument("name")
@click.argument("value", required=False)
@json_option
def set_setting(name: str, value: str | None, as_json: bool) -> None:
    """Sets a setting in the settings file, and tells the daemon.

    Without VALUE it is asked for, or read from standard input. A key has to come that way: other users of this
    machine can see what is on a command line.
    """
    report = _report(file_only=True)
    variable = _known(name, report)
    secret = report["settings"][variable]["secret"]
    if value is not None and (secret or _has_password(value)):
        raise UsageError(
            f"{variable} can't be given on the command line, where other users can see it.",
            f"copilot config set {variable} (it asks), or: … | copilot config set {variable}",
        )
    text = (_read_value(variable, secret=secret) if value is None else value).strip()
    if not text:
        raise UsageError(f"{variable}: the value is empty.", f"copilot config unset {variable}")
    _change(report, lambda old: settings_file.set_value(old, variable, text), variable, as_json=as_json)


@config.command(
    short_help="Takes a setting out of the settings file.", epilog="Example: copilot config unset TOP_K"
)
@click.argument("name")
@json_option
def unset(name: str, as_json: bool) -> None:
    """Takes a setting out of the settings file, so that its default counts again."""
    report = _report(file_only=True)
    stored = settings_file.stored_values(settings_file.read_text(_file()))
    # What no version knows, or this one no more, can be taken out too.
    variable = name if name in stored else _known(name, report)
    if variable not in stored:
        tell([f"{variable} is not set in {_file()}."])
        return
    _change(report, lambda old: settings_file.unset_value(old, variable), variable, as_json=as_json)


@config.command(
    short_help="Opens the settings file in your editor.", epilog="Example: EDITOR=nano copilot config edit"
)
def edit() -> None:
    """Opens the settings file in your editor, and checks it before it is used."""
    editor = next((os.environ[name] for name in ("VISUAL", "EDITOR") if os.environ.get(name, "").strip()), "")
    if not editor:
        raise UsageError("No editor is set.", "export EDITOR=nano, or the name of another editor")
    with settings_file.locked(_file()) as real:
        old = settings_file.read_text(real)
        with settings_file.draft(real, old) as beside:
            while True:
                _run_editor(editor, beside)
                new = settings_file.read_text(beside)
                problems = _problems_of(beside, real)
                if not problems or new == old:
                    break
                tell([*problems, ""])
                if not sys.stdin.isatty() or not click.confirm("Edit it again?", default=True, err=True):
                    raise _wrong(problems, f"{_file()} was left as it was.")
            if new == old:
                tell(["Nothing was changed."])
                return
            settings_file.adopt(beside, real)
    write_lines([f"Written: {printable(str(_file()))}"])
    _tell_daemon()


# ---------------------------------------------------------------------------------------------- parts


def _change(before: Report, change: Any, variable: str, *, as_json: bool) -> None:
    """Changes the file, unless that would make it worse."""
    with settings_file.locked(_file()) as real:
        opened = settings_file.is_open_to_others(real)
        text = change(settings_file.read_text(real))
        with settings_file.draft(real, text) as beside:
            problems = _problems_of(beside, real)
            # One wrong setting must not keep another from being mended.
            fresh = [
                problem
                for problem in problems
                if problem not in before["problems"] or problem.startswith(f"{variable} ")
            ]
            if fresh:
                raise _wrong(fresh, f"{_file()} was left as it was.")
            settings_file.adopt(beside, real)
    notes = [f"Still wrong: {problem}" for problem in problems]
    if opened:
        notes.append(f"{_file()} was open to other users; now only you can read it.")
    if os.environ.get(variable, "").strip():
        notes.append(f"{variable} is set in this shell's environment too, and that goes before the file.")
    if as_json:
        write_json({"name": variable, "file": str(_file()), "notes": notes, "daemon": _reloaded()})
        return
    write_lines([f"Written: {printable(str(_file()))}"])
    tell(notes)
    _tell_daemon()


def _tell_daemon() -> None:
    try:
        write_lines(reload_lines(reload_daemon()))
    except DaemonUnavailable:
        tell(["The daemon isn't running; it reads the file when it starts."])
    except CopilotError as error:
        tell([error.message])


def _reloaded() -> dict[str, Any] | None:
    try:
        return {name: value for name, value in reload_daemon().items() if name != "_"}
    except CopilotError:
        return None


def _file() -> Path:
    return find_env_file(None, os.environ)


def _report(*, file_only: bool = False) -> Report:
    environment = _without_settings() if file_only else None
    report: Report = json.loads(run_copilotd("--check-settings", environment=environment, codes=(0, 3)))
    return report


def _problems_of(beside: Path, real: Path) -> list[str]:
    arguments = ("--check-settings", "--env-file", str(beside))
    report: Report = json.loads(run_copilotd(*arguments, environment=_without_settings(), codes=(0, 3)))
    return [problem.replace(str(beside), str(_file())) for problem in report["problems"]]


@cache
def _without_settings() -> dict[str, str]:
    """Returns an environment in which only the file counts: a value in this shell must not hide a wrong one."""
    named = os.environ.get(_NEVER_IN_THE_FILE, "")
    names = json.loads(run_copilotd("--check-settings", codes=(0, 3)))["settings"]
    environment = {name: value for name, value in daemon_environment().items() if name not in names}
    return {**environment, **({_NEVER_IN_THE_FILE: str(_file())} if named else {})}


def _known(name: str, report: Report) -> str:
    variable = name.strip().upper()
    if variable in report["settings"] and variable != _NEVER_IN_THE_FILE:
        return variable
    import difflib

    near = difflib.get_close_matches(variable, report["settings"], n=1)
    raise UsageError(
        f"There is no setting {one_line(name, 60)!r}." + (f" Did you mean {near[0]}?" if near else ""),
        "copilot config list --all",
    )


def _read_value(variable: str, *, secret: bool) -> str:
    if sys.stdin.isatty():
        answer: str = click.prompt(variable, hide_input=secret, err=True)
        return answer
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{variable}: the value is not UTF-8.") from None


def _has_password(value: str) -> bool:
    try:
        return "://" in value and bool(urlsplit(value).password)
    except ValueError:
        return False


def _run_editor(editor: str, path: Path) -> None:
    import subprocess

    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise CopilotError(
            f"The editor {one_line(editor, 100)!r} can't be run: {error}.", "export EDITOR=nano"
        ) from None
    if code:
        raise CopilotError(
            f"The editor {one_line(editor, 100)!r} ended with code {code}; nothing was changed."
        )


def _line(setting: Mapping[str, Any]) -> str:
    value = printable(str(setting["value"]), keep_newlines=False) if setting["value"] is not None else "?"
    return f"{value or '-'}  ({setting['source']})"


def _wrong(problems: list[str], more: str = "") -> SettingsError:
    lines = [printable(problem) for problem in problems]
    head = [] if len(lines) == 1 else [f"{len(lines)} settings are wrong:"]
    message = "\n  ".join([*head, *lines, *([more] if more else [])])
    return SettingsError(message, "copilot config edit; docs/configuration.md explains every setting")

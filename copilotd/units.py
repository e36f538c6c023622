"""The files for a service manager, with the absolute paths of this installation filled in."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

LAUNCHD_LABEL = "io.github.docs-copilot.copilotd"

_SYSTEMD_FILE = "copilotd.service"
_LAUNCHD_FILE = f"{LAUNCHD_LABEL}.plist"


def daemon_command(env_file: str | None = None) -> list[str]:
    """Returns the command that starts this installation's daemon (venv, pipx, uv tool, checkout)."""
    # sys.executable is not resolved: through its symlink a virtual environment would be lost.
    script = Path(sys.executable).with_name("copilotd")
    command = [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "copilotd"]
    return [*command, "--env-file", os.path.abspath(env_file)] if env_file else command


def systemd_unit(command: Sequence[str]) -> str:
    """Returns ``copilotd.service`` for ``command``."""
    template = _read("systemd", _SYSTEMD_FILE).decode("utf-8")
    return template.replace("@COMMAND@", " ".join(map(_quote_for_systemd, command)))


def launchd_plist(command: Sequence[str], log_folder: Path) -> str:
    """Returns the launchd property list for ``command``.

    The log itself rotates in ``log_folder``; launchd's own file there only gets what is said before it opens.
    """
    import plistlib  # here, since the daemon that starts needs none of it

    job = plistlib.loads(_read("launchd", _LAUNCHD_FILE))
    job["ProgramArguments"] = [*command, "--quiet"]
    job["StandardOutPath"] = job["StandardErrorPath"] = str(log_folder / "copilotd.stderr.log")
    return plistlib.dumps(job, sort_keys=False).decode("utf-8")


def _quote_for_systemd(argument: str) -> str:
    # systemd.service(5), "COMMAND LINES": % and $ are doubled, the rest is C-style inside double quotes.
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(character in escaped for character in " \t'\"\\;") else escaped


def _read(folder: str, name: str) -> bytes:
    """Reads a file as it is installed, or from the checkout."""
    here = Path(__file__).parent
    installed = here / "service_files" / name
    return (installed if installed.is_file() else here.parent / folder / name).read_bytes()

"""The files for a service manager, with the absolute paths of this installation filled in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHD_LABEL = "io.github.docs-copilot.copilotd"
LAUNCHD_SOCKETS = "Listeners"
"""The name of our entry under ``Sockets``, which the daemon asks launchd for."""

PLACE_VARIABLES = (
    "COPILOT_SOCKET",
    "INDEX_DIR",
    "LOG_FILE",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
"""What decides where client and daemon meet; a service manager doesn't have them from the shell."""

_SYSTEMD_SERVICE = "copilotd.service"
_SYSTEMD_SOCKET = "copilotd.socket"
_LAUNCHD_FILE = f"{LAUNCHD_LABEL}.plist"


def daemon_command(env_file: str | None = None) -> list[str]:
    """Returns the command that starts this installation's daemon (venv, pipx, uv tool, checkout)."""
    # sys.executable is not resolved: through its symlink a virtual environment would be lost.
    script = Path(sys.executable).with_name("copilotd")
    command = [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "copilotd"]
    return [*command, "--env-file", os.path.abspath(env_file)] if env_file else command


def place_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of ``environ`` that a service needs to use the same places as this shell."""
    return {
        name: os.path.abspath(os.path.expanduser(value))
        for name in PLACE_VARIABLES
        if (value := environ.get(name, "").strip())
    }


def systemd_unit(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Returns ``copilotd.service`` for ``command``, which sees ``environment`` as well."""
    template = _read("systemd", _SYSTEMD_SERVICE).decode("utf-8")
    lines = "".join(
        f"Environment={_quote_for_systemd(f'{name}={value}', always=True, dollar='$')}\n"
        for name, value in (environment or {}).items()
    )
    return template.replace("@COMMAND@", " ".join(map(_quote_for_systemd, command))).replace(
        "@ENVIRONMENT@\n", lines
    )


def systemd_socket(socket: Path) -> str:
    """Returns ``copilotd.socket`` for the path the client connects to."""
    # ListenStream= takes the rest of the line as it is, but for specifiers.
    return (
        _read("systemd", _SYSTEMD_SOCKET).decode("utf-8").replace("@SOCKET@", str(socket).replace("%", "%%"))
    )


def launchd_plist(
    command: Sequence[str], log_folder: Path, socket: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Returns the launchd property list for ``command``.

    The log itself rotates in ``log_folder``; launchd's own file there only gets what is said before it opens.
    """
    import plistlib  # here, since the daemon that starts needs none of it

    job = plistlib.loads(_read("launchd", _LAUNCHD_FILE))
    job["ProgramArguments"] = [*command, "--quiet"]
    job["EnvironmentVariables"] = dict(environment or {})
    job["Sockets"][LAUNCHD_SOCKETS]["SockPathName"] = str(socket)
    job["StandardOutPath"] = job["StandardErrorPath"] = str(log_folder / "copilotd.stderr.log")
    return plistlib.dumps(job, sort_keys=False).decode("utf-8")


def _quote_for_systemd(argument: str, *, always: bool = False, dollar: str = "$$") -> str:
    # systemd.service(5), "COMMAND LINES": % and $ are doubled, the rest is C-style inside double quotes.
    # In Environment= a $ has no special meaning (systemd.exec(5)).
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", dollar)
    quoted = always or any(character in escaped for character in " \t'\"\\;")
    return f'"{escaped}"' if quoted else escaped


def _read(folder: str, name: str) -> bytes:
    """Reads a file as it is installed, or from the checkout."""
    here = Path(__file__).parent
    installed = here / "service_files" / name
    return (installed if installed.is_file() else here.parent / folder / name).read_bytes()

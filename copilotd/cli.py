"""``copilotd``: the daemon's own command. People mostly meet it through ``copilot start``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from copilotd import __version__, activation, units
from copilotd.errors import CopilotError
from copilotd.paths import Places, find_places
from copilotd.text import printable

if TYPE_CHECKING:
    import socket

    from copilotd.backend import BuildService

_SWITCH_S = 0.001
"""Instead of Python's 5 ms."""

_EPILOG = """\
exit status:
  0  stopped in an orderly way
  1  failed; starting again may help
  2  wrong use of this command
  3  can't start as things are: a setting, an index in use, an index of a newer version

example:
  copilotd --env-file ~/work/copilot.env
"""


def main(arguments: Sequence[str] | None = None, build: BuildService | None = None) -> NoReturn:
    """Runs the command and ends the process; see :func:`run`."""
    code = run(arguments, build)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: the interpreter would wait for worker threads that are stuck in native code.
    os._exit(code)


def run(arguments: Sequence[str] | None = None, build: BuildService | None = None) -> int:
    """Runs the command.

    Args:
        arguments: Those of the command line; None for the process's own.
        build: Makes the service behind the socket; None for the product's.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["model"]:
            from copilotd import model_command

            return model_command.run(words[1:])
        if words == ["doctor-facts"]:
            from copilotd import doctor_facts

            return doctor_facts.run()
        options = _parser().parse_args(words)
    except SystemExit as ending:
        return int(ending.code or 0)
    try:
        if options.print_unit:
            return _print_unit(options.print_unit, options.env_file)
        if options.check_settings:
            return _check_settings(options.env_file)
        return _serve(options.env_file, build, quiet=options.quiet)
    except CopilotError as error:
        _say(error)
        code = 3
    # launchd has no RestartPreventExitStatus: under its label "never" has to look like success.
    return 0 if os.environ.get("XPC_SERVICE_NAME") == units.LAUNCHD_LABEL else code


def _parser() -> argparse.ArgumentParser:
    try:
        file = f"the settings file (default: {find_places().env_file})"
    except CopilotError:
        file = "the settings file"
    parser = argparse.ArgumentParser(
        prog="copilotd",
        description="Keeps your documentation in memory and answers `copilot` over a Unix socket.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--env-file", metavar="FILE", help=file.replace("%", "%%"))
    parser.add_argument("--foreground", action="store_true", help="stay in the foreground (it always does)")
    parser.add_argument("--quiet", action="store_true", help="log to the file only, not to stderr")
    parser.add_argument(
        "--print-unit", choices=tuple(_UNITS), help="print a file for a service manager and end"
    )
    parser.add_argument(
        "--check-settings", action="store_true", help="print what the settings are, as JSON, and end"
    )
    parser.add_argument("--version", action="version", version=f"copilotd {__version__}")
    return parser


def _print_unit(kind: str, env_file: str | None) -> int:
    named = env_file or os.environ.get("COPILOT_ENV_FILE", "").strip() or None
    sys.stdout.write(_UNITS[kind](find_places(named), named))
    return 0


def _service_unit(places: Places, env_file: str | None) -> str:
    return units.systemd_unit(units.daemon_command(env_file), units.place_environment(os.environ))


def _socket_unit(places: Places, env_file: str | None) -> str:
    return units.systemd_socket(places.socket)


def _property_list(places: Places, env_file: str | None) -> str:
    command, environment = units.daemon_command(env_file), units.place_environment(os.environ)
    return units.launchd_plist(command, places.log_file.parent, places.socket, environment)


def _command(places: Places, env_file: str | None) -> str:
    import json

    return json.dumps(units.daemon_command(env_file)) + "\n"


_UNITS = {
    "systemd": _service_unit,
    "systemd-socket": _socket_unit,
    "launchd": _property_list,
    "command": _command,
}


def _check_settings(env_file: str | None) -> int:
    import json

    from copilotd.settings import report_settings

    report = report_settings(env_file)
    print(json.dumps(report))
    return 3 if report["problems"] else 0


def _serve(env_file: str | None, build: BuildService | None, *, quiet: bool) -> int:
    # Before anything imports the model's library: no probing of the hub, and no worker processes that
    # would be forked after its threads have started.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Before FAISS is imported, too; see load_encoder.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Before numpy is: its BLAS has a second thread spin after each of a question's small products, which took as
    # much processor time as the question itself, and each product waits until that thread has a core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A thread that has something to say waits for those that compute: so long, each time one of them has its turn.
    sys.setswitchinterval(_SWITCH_S)
    if env_file:
        os.environ["COPILOT_ENV_FILE"] = os.path.abspath(os.path.expanduser(env_file))
    os.umask(0o077)
    inherited = activation.take_socket(os.environ)
    try:
        return _serve_on(inherited, build, quiet=quiet)
    except CopilotError as error:
        if inherited is not None:
            activation.refuse_waiting(inherited, error)
        raise


def _serve_on(inherited: socket.socket | None, build: BuildService | None, *, quiet: bool) -> int:
    from copilotd.backend import build_service
    from copilotd.daemon import EXIT_NEVER, Daemon
    from copilotd.logs import Logs
    from copilotd.settings import load_settings

    settings = load_settings()
    daemon = Daemon(settings, build or build_service, inherited=inherited)
    daemon.startup()
    # After the lock: two daemons that start at once must not rotate one file.
    logs = Logs(settings.log_file, level=settings.log_level, secrets=settings.secrets(), stderr=not quiet)
    daemon.on_reload = lambda fresh: logs.use(fresh.log_level, fresh.secrets())
    try:
        code = daemon.run()
        if daemon.failure is not None and code:
            _say(daemon.failure)
            if inherited is not None and code == EXIT_NEVER:
                activation.refuse_waiting(inherited, daemon.failure)
        return code
    except Exception:
        logging.getLogger("copilotd").exception("event=daemon_failed")
        print("copilotd: failed; the log has the details: " + str(settings.log_file), file=sys.stderr)
        return 1
    finally:
        daemon.shutdown()
        logs.close()


def _say(error: CopilotError) -> None:
    text = f"copilotd: {error.message}" + (f"\n  {error.hint}" if error.hint else "")
    print(printable(text), file=sys.stderr)


if __name__ == "__main__":
    main()

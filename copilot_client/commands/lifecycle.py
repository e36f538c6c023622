"""``copilot start``, ``stop`` and ``restart``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from copilot_client.connection import Connection, ConnectionLost, DaemonUnavailable, NotRunning
from copilot_client.launch import START_S, UNKNOWN_PID, start_daemon, start_failure, stop_daemon
from copilot_client.options import json_option
from copilot_client.output import tell, write_json, write_lines
from copilot_client.request import daemon_places
from copilot_client.service.manager import installed_manager
from copilotd.errors import CopilotError, could_not_start
from copilotd.paths import Places

START_EXAMPLES = "Example: copilot start"
STOP_EXAMPLES = "Example: copilot stop --json"
RESTART_EXAMPLES = "Example: copilot restart"


@click.command(epilog=START_EXAMPLES)
@json_option
def start(as_json: bool) -> None:
    """Starts the daemon and waits until it answers; does nothing where it runs already."""
    places = daemon_places()
    try:
        connection, started = Connection.open(places.socket), False
    except NotRunning:
        tell(["Starting the daemon…"])
        connection, started = start_daemon(places), True
    _report(_greet(connection, places), as_json=as_json, started=started)


@click.command(epilog=STOP_EXAMPLES)
@json_option
def stop(as_json: bool) -> None:
    """Stops the daemon and waits until it is gone. Nothing indexed is lost."""
    stopped = _stop(daemon_places())
    if as_json:
        write_json(stopped or {"stopped": False})
    else:
        write_lines([_stopped_sentence(stopped)])


@click.command(epilog=RESTART_EXAMPLES)
@json_option
def restart(as_json: bool) -> None:
    """Stops the daemon where it runs, and starts it."""
    places = daemon_places()
    manager = installed_manager(places)
    if manager is not None and manager.restart():
        _report(_greet(Connection.open(places.socket), places), as_json=as_json, started=True)
        return
    stopped = _stop(places)
    if not as_json:
        write_lines([_stopped_sentence(stopped)])
    _report(_greet(start_daemon(places), places), as_json=as_json, started=True)


def _greet(connection: Connection, places: Places) -> Mapping[str, Any]:
    """Returns what the daemon says of itself, once it is sure that it stays."""
    with connection:
        said = connection.hello()
        if said.get("state") == "starting":
            # The socket opens before the index: this is answered when that is open too, or can't be.
            try:
                connection.call("roots", {}, seconds=START_S)
            except ConnectionLost:
                raise start_failure(places) from None
            except DaemonUnavailable:
                raise
            except CopilotError as error:
                raise DaemonUnavailable(could_not_start(error.message), error.hint) from None
    return said


def _stop(places: Places) -> dict[str, Any] | None:
    manager = installed_manager(places)
    pid = manager.state().pid if manager is not None else None
    if manager is not None and manager.stop():
        # It would start the daemon again for the next client; this is the stop that lasts.
        return {"stopped": True, "pid": pid, "by": manager.name}
    try:
        pid, way = stop_daemon(places)
    except NotRunning:
        return None
    return {"stopped": True, "pid": pid or None, "by": way}


def _stopped_sentence(stopped: dict[str, Any] | None) -> str:
    if stopped is None:
        return "The daemon is not running."
    who = f"The daemon (pid {stopped['pid']})" if stopped["pid"] not in (UNKNOWN_PID, None) else "The daemon"
    return f"{who} has stopped" + (" after SIGTERM." if stopped["by"] == "signal" else ".")


def _report(said: Any, *, as_json: bool, started: bool) -> None:
    if as_json:
        write_json({**said, "started": started})
    else:
        already = "runs" if started else "already runs"
        write_lines([f"The daemon {already} (pid {said.get('pid')}, version {said.get('version')})."])

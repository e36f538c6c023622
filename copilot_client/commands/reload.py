"""``copilot reload``: the daemon reads its settings anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from copilot_client.connection import Connection, NotRunning, OtherVersion, is_older
from copilot_client.options import json_option
from copilot_client.output import tell, write_json, write_lines
from copilot_client.request import daemon_places
from copilotd.errors import UsageError
from copilotd.text import printable

EXAMPLES = "Example: copilot reload"

RELOAD_S = 30.0


@click.command(epilog=EXAMPLES)
@json_option
def reload(as_json: bool) -> None:
    """Makes the daemon read its settings file again, without a restart.

    Where a setting is wrong, the daemon goes on with the old ones. Settings that need a restart are named.
    """
    taken = reload_daemon()
    if as_json:
        write_json(taken)
        return
    write_lines(reload_lines(taken))
    tell(taken.get("warnings", []))


def reload_daemon() -> dict[str, Any]:
    """Makes a running daemon read its settings.

    Raises:
        DaemonUnavailable: There is none.
        SettingsError: Some are wrong; it goes on with the old ones.
    """
    places = daemon_places()
    with Connection.open(places.socket) as connection:
        if connection.managers:
            # It would be started just to hear that; it reads the settings then anyway.
            raise NotRunning(places.socket, "The daemon is not running; the next question starts it.")
        try:
            return connection.call("reload", {}, seconds=RELOAD_S)
        except UsageError as error:
            if not is_older(connection.hello()):
                raise
            raise OtherVersion(
                f"The daemon is of an older version and can't reload: {error.message}"
            ) from None


def reload_lines(taken: Mapping[str, Any]) -> list[str]:
    """Returns what a reload changed, for people."""
    changed, waiting = taken.get("changed", []), taken.get("needs_restart", [])
    lines = [f"In use now: {printable(', '.join(changed))}"] if changed else []
    if waiting:
        lines.append(f"In use after a restart: {printable(', '.join(waiting))}. Next: copilot restart")
    return lines or ["Nothing has changed."]

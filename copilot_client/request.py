"""One request to the daemon, which is started first where that is wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from copilot_client.connection import (
    Connection,
    ConnectionLost,
    DaemonUnavailable,
    Listener,
    NotRunning,
    OlderDaemon,
    OtherVersion,
    Starting,
    is_older,
    may_replace,
)
from copilot_client.output import tell
from copilotd.errors import SettingsError, ShuttingDown
from copilotd.paths import Places, find_places

# A little above the daemon's own REQUEST_TIMEOUT_S, so that its sentence comes first.
ANSWER_S = 630.0


def daemon_places() -> Places:
    """Returns where the daemon is.

    Raises:
        DaemonUnavailable: The settings don't tell; the daemon could not start with them either.
    """
    try:
        return find_places()
    except SettingsError as error:
        raise DaemonUnavailable(error.message, error.hint) from None


def connect(places: Places, *, start: bool) -> Connection:
    """Connects to the daemon; where it isn't running, starts it if ``start``.

    Raises:
        DaemonUnavailable: There is none, or it didn't come up.
    """
    try:
        return Connection.open(places.socket)
    except NotRunning:
        from copilot_client.launch import lock_holder, start_daemon

        if start:
            tell(["Starting the daemon…"])
            return start_daemon(places)
        holder = lock_holder(places.lock_file)
        if holder is not None:
            raise Starting(holder) from None
        raise


def _tell_if_older(said: Mapping[str, Any]) -> None:
    if is_older(said):
        tell([f"The daemon is still version {said.get('version')}. Next: copilot restart"])


def request(
    method: str,
    params: Mapping[str, Any],
    *,
    start: bool = False,
    places: Places | None = None,
    on_progress: Listener | None = None,
    on_delta: Callable[[str], None] | None = None,
    seconds: float | None = ANSWER_S,
) -> dict[str, Any]:
    """Sends one request over a connection of its own and returns the result; see Connection.call."""
    places = places or daemon_places()
    with connect(places, start=start) as connection:
        # Only what may start a daemon may start it again.
        connection.replaces_older = start
        connection.on_hello = _tell_if_older if start else None
        try:
            return connection.call(
                method, params, on_progress=on_progress, on_delta=on_delta, seconds=seconds
            )
        except (OlderDaemon, OtherVersion) as error:
            if not start or (isinstance(error, OtherVersion) and not may_replace(error.said)):
                raise
            older = True
        except (ShuttingDown, ConnectionLost) as error:
            older = False
            # One that never answered a greeting has done nothing: a daemon that was killed a moment ago still
            # takes connections until the system has cleared it away.
            if not start or (isinstance(error, ConnectionLost) and connection.greeted):
                raise
    from copilot_client.launch import stop_daemon, wait_until_gone

    if older:
        tell(["Restarting the daemon, which is of an older version…"])
        with contextlib.suppress(NotRunning):
            stop_daemon(places)
    # It is stopping: wait for its end, then ask the next one.
    wait_until_gone(places)
    with connect(places, start=True) as connection:
        return connection.call(method, params, on_progress=on_progress, on_delta=on_delta, seconds=seconds)

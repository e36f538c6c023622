"""Telling systemd how the daemon is: sd_notify(3) by the standard library."""

from __future__ import annotations

import contextlib
import os
import socket

from copilotd.text import one_line


def notify(**fields: object) -> None:
    """Sends fields such as ``READY=1`` to the service manager; without one, nothing happens.

    A manager that can't be reached is no reason to stop answering, so errors are ignored.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    text = "\n".join(f"{name}={one_line(str(value), 200)}" for name, value in fields.items())
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(text.encode(), address)


def watchdog_interval() -> float | None:
    """Returns how often WATCHDOG=1 is due, in seconds: half of what the manager allows; None if not at all."""
    try:
        microseconds = int(os.environ.get("WATCHDOG_USEC", ""))
        meant_for = int(os.environ.get("WATCHDOG_PID", "") or os.getpid())
    except ValueError:
        return None
    if microseconds <= 0 or meant_for != os.getpid():
        return None
    return microseconds / 2_000_000

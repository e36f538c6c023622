"""What stands behind the socket, as the daemon sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from copilotd.daemon_info import DaemonInfo
from copilotd.server import Handler
from copilotd.settings import Settings


class Service(Protocol):
    """What stands behind the socket."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Method → handler."""
        ...

    def lost(self) -> bool:
        """Whether what it keeps its data in was removed or replaced from outside; quick."""
        ...

    def use(self, settings: Settings) -> None:
        """Takes settings that differ in what can change while it runs; any thread, quick."""
        ...

    def describe(self) -> str:
        """Says in a line what it is doing; called in a thread."""
        ...

    def close(self) -> None:
        """Saves and lets go of everything; called once, in a thread of its own, cut off after two seconds."""
        ...


BuildService = Callable[[Settings, DaemonInfo], Service]


def build_service(settings: Settings, info: DaemonInfo) -> Service:
    """Builds the product; runs in a worker thread since it imports heavy libraries."""
    from copilotd.api import service as api

    return api.build(settings, info)

"""The methods that the daemon answers itself, with or without the service behind it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from copilotd import __version__
from copilotd.daemon_info import DaemonInfo
from copilotd.errors import UsageError
from copilotd.server import Handler, RequestContext
from copilotd.settings import Settings
from copilotd.text import one_line
from copilotd.wire import OLDEST_PROTOCOL, PROTOCOL, JSONObject

_COUNTS = (
    "documents",
    "chunks",
    "windows",
    "embedded_total",
    "pending",
    "pending_windows",
    "generation",
)
_LISTS = ("roots", "skipped")


@dataclass(frozen=True, slots=True)
class OwnHandlers:
    """``hello``, ``reload``, ``shutdown``, and ``status`` while the service is being built.

    Attributes:
        info: Facts about the process.
        settings: Gives those in use.
        state: Gives ``starting``, ``ready`` or ``stopping``.
        reload: Reads the settings anew.
        stop: Begins an orderly shutdown.
    """

    info: DaemonInfo
    settings: Callable[[], Settings]
    state: Callable[[], str]
    reload: Callable[[], Awaitable[JSONObject]]
    stop: Callable[[], None]

    @property
    def always(self) -> dict[str, Handler]:
        """Method → handler, as long as the daemon runs."""
        return {"hello": self._hello, "reload": self._reload, "shutdown": self._shutdown}

    @property
    def early(self) -> dict[str, Handler]:
        """Method → handler until the service is there."""
        return {"status": self._status, **self.always}

    async def _hello(self, params: JSONObject, context: RequestContext) -> JSONObject:
        unknown = set(params) - {"client", "version", "protocol"}
        if unknown:
            raise UsageError(f"hello has no parameter '{one_line(', '.join(sorted(unknown)), 200)}'.")
        return {
            "server": "copilotd",
            "version": __version__,
            "protocol": PROTOCOL,
            "oldest_protocol": OLDEST_PROTOCOL,
            "started_by": self.info.started_by,
            "pid": os.getpid(),
            "state": self.state(),
        }

    async def _status(self, params: JSONObject, context: RequestContext) -> JSONObject:
        _refuse_parameters("status", params)
        settings = self.settings()
        return {
            **self.info.facts(),
            "state": "stopping" if self.state() == "stopping" else "starting",
            "model": {"name": settings.embed_model, "loaded": False, "fingerprint": "", "error": ""},
            "provider": settings.llm_provider,
            "llm_model": settings.llm_model,
            **dict.fromkeys(_COUNTS, 0),
            **{name: [] for name in _LISTS},
            "errors": list(self.info.problems()),
            "warnings": list(self.info.warnings()),
        }

    async def _reload(self, params: JSONObject, context: RequestContext) -> JSONObject:
        _refuse_parameters("reload", params)
        return await self.reload()

    async def _shutdown(self, params: JSONObject, context: RequestContext) -> JSONObject:
        _refuse_parameters("shutdown", params)
        self.stop()
        return {"stopping": True}


def _refuse_parameters(method: str, params: JSONObject) -> None:
    if params:
        raise UsageError(f"{method} takes no parameters.")

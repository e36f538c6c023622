"""A real daemon around a service that does what the test says: ``python fake_daemon.py MODE``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping

from copilotd.cli import main
from copilotd.daemon_info import DaemonInfo
from copilotd.errors import IndexTooNew
from copilotd.server import Handler, RequestContext
from copilotd.settings import Settings
from copilotd.wire import JSONObject

MODE = os.environ.get("FAKE_MODE", "")


class FakeService:
    """Answers ``echo`` and ``wait``, and closes as MODE says."""

    def __init__(self, info: DaemonInfo) -> None:
        self._info = info
        self._top_k = 0

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"echo": self.echo, "wait": self.wait, "status": self.status}

    async def echo(self, params: JSONObject, context: RequestContext) -> JSONObject:
        return params

    async def wait(self, params: JSONObject, context: RequestContext) -> JSONObject:
        def work() -> None:
            if MODE == "deaf":
                time.sleep(60)
            context.cancelled.wait(60)

        await asyncio.to_thread(work)
        return {}

    async def status(self, params: JSONObject, context: RequestContext) -> JSONObject:
        return {
            **self._info.facts(), "state": "ready", "top_k": self._top_k,
            "errors": list(self._info.problems()), "warnings": list(self._info.warnings()),
        }  # fmt: skip

    def lost(self) -> bool:
        return False

    def use(self, settings: Settings) -> None:
        self._top_k = settings.top_k

    def describe(self) -> str:
        return f"Ready, {self._top_k} passages"

    def close(self) -> None:
        if MODE == "stuck":
            time.sleep(60)
        if MODE == "close_fails":
            raise OSError("disk full")
        (self._info.index_dir / "closed").touch()


def build(settings: Settings, info: DaemonInfo) -> FakeService:
    if MODE in ("slow", "very_slow"):
        info.announce("Loading the model…")
        time.sleep(3.0 if MODE == "slow" else 60)
    if MODE == "too_new":
        raise IndexTooNew("The index was made by a newer version.", "Upgrade.")
    if MODE == "broken":
        raise RuntimeError("no luck")
    return FakeService(info)


if __name__ == "__main__":
    main(sys.argv[1:], build=build)

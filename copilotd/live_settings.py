"""The settings of a running daemon: read anew on SIGHUP or ``reload``, as far as they can change meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from copilotd.errors import SettingsError
from copilotd.settings import Settings, load_settings, merge_live
from copilotd.wire import JSONObject

log = logging.getLogger(__name__)


class LiveSettings:
    """What the settings are now, and what is odd about them.

    Args:
        settings: Those of the start.

    Attributes:
        now: Those in use.
        problem: Why the last reload was refused; empty where it was not.
    """

    def __init__(self, settings: Settings) -> None:
        self.now = settings
        self.problem = ""
        self._waiting: tuple[str, ...] = ()
        self._reloading = asyncio.Lock()

    def warnings(self) -> tuple[str, ...]:
        """Returns what is odd about the settings, a sentence each; any thread."""
        if not self._waiting:
            return self.now.warnings
        waiting = f"{', '.join(self._waiting)}: changed, and used after a restart. Run: copilot restart"
        return (*self.now.warnings, waiting)

    async def reload(self, take: Callable[[Settings], None]) -> JSONObject:
        """Reads them anew and gives those that can change now to ``take``; returns what changed.

        Raises:
            SettingsError: They are wrong; the old ones stay.
        """
        async with self._reloading:
            try:
                wanted = await asyncio.to_thread(load_settings)
            except SettingsError as error:
                self.problem = f"The settings were not reloaded: {error.message}"
                log.error("event=reload_failed reason=%r", error.message)
                raise SettingsError(
                    f"{error.message}\nThe daemon goes on with the old ones.", error.hint
                ) from None
            self.problem = ""
            self.now, changed, self._waiting = merge_live(self.now, wanted)
            take(self.now)
        log.info(
            "event=reload changed=%s needs_restart=%s",
            ",".join(changed) or "-",
            ",".join(self._waiting) or "-",
        )
        for warning in self.now.warnings:
            log.warning("event=settings note=%r", warning)
        return {
            "changed": list(changed),
            "needs_restart": list(self._waiting),
            "warnings": list(self.now.warnings),
        }

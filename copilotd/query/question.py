"""A question as it is taken in: its text checked, its stages timed."""

from __future__ import annotations

import time

from copilotd.errors import UsageError
from copilotd.text import printable

_MAX_QUESTION_CHARS = 20_000


def checked_question(text: str) -> str:
    """Returns a question on one line, without what can't be printed.

    Raises:
        UsageError: It is empty or too long.
    """
    query = " ".join(printable(text).split())
    if not query:
        raise UsageError("The question is empty.", 'copilot ask "how do I …?"')
    if len(query) > _MAX_QUESTION_CHARS:
        raise UsageError(
            f"The question has {len(query)} characters; {_MAX_QUESTION_CHARS} are the limit.",
            "ask about the part that matters, for instance the error message alone",
        )
    return query


class Clock:
    """Times the stages of a question, in milliseconds.

    Attributes:
        laps: Milliseconds by stage.
    """

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Ends a stage; one that comes again is added up."""
        now = time.perf_counter()
        self.laps[stage] = round(self.laps.get(stage, 0.0) + (now - self._last) * 1000, 3)
        self._last = now

    def total(self) -> float:
        """Returns milliseconds since the question began."""
        return round((time.perf_counter() - self._started) * 1000, 3)

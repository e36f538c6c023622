"""Bounds on what a server may send: bytes in all, bytes a line, and nothing compressed.

The SDKs read whatever comes. A line without end, a reply without end or a few kilobytes that unpack to
gigabytes would fill the memory of a daemon that serves others, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

# No service sends a piece of an answer as long as this.
LONGEST_LINE = 1_000_000
# Room for the thoughts of a reasoning model, which come as a few hundred bytes a token.
LONGEST_REPLY = 32_000_000

IDENTITY = {"Accept-Encoding": "identity"}


class UnreadableReply(ValueError):
    """What came is not a reply of the API that was asked."""


class Meter:
    """Watches one reply.

    Attributes:
        received: Whether its body held anything but blanks.
    """

    def __init__(self) -> None:
        self.received = False
        self._total = 0
        self._line = 0

    def count(self, piece: bytes) -> None:
        """Counts a piece of the body.

        Raises:
            UnreadableReply: It, or a line of it, is longer than any real one.
        """
        self.received = self.received or not piece.isspace()
        self._total += len(piece)
        lines = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for number, line in enumerate(lines):
            self._line = self._line + len(line) if number == 0 else len(line)
            if self._line > LONGEST_LINE:
                raise UnreadableReply("a line of the reply is too long")
        if self._total > LONGEST_REPLY:
            raise UnreadableReply("the reply is too long")

    def hooks(self, http: ModuleType) -> dict[str, list[Callable[[Any], Awaitable[None]]]]:
        """Returns the event hooks that put this watch on a client of the HTTP library ``http``."""
        meter = self

        class Watched(http.AsyncByteStream):  # type: ignore[misc, name-defined]
            def __init__(self, stream: Any) -> None:
                self._stream = stream

            async def __aiter__(self) -> Any:
                async for piece in self._stream:
                    meter.count(piece)
                    yield piece

            async def aclose(self) -> None:
                await self._stream.aclose()

        async def watch(response: Any) -> None:
            if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise UnreadableReply("the reply is compressed, which was not asked for")
            if response.status_code == 200 and "html" in response.headers.get("content-type", "").lower():
                raise UnreadableReply("the reply is a web page")
            response.stream = Watched(response.stream)

        return {"response": [watch]}


def words(value: object) -> str:
    """Returns the text of a field, which may be absent.

    Raises:
        UnreadableReply: It is something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableReply("a text of the reply is none")
    return value


def tokens(value: object) -> int | None:
    """Returns a count of tokens; None where the server gives none that is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None

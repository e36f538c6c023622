"""What is taken out of a model's words before anybody sees them: its thinking and our key.

Both decide the same however the text was cut into pieces.
"""

from __future__ import annotations

import re

_OPENED = re.compile(r"\s*<(think|thinking|reasoning|thought)>", re.IGNORECASE)
_TAGS = ("<think>", "<thinking>", "<reasoning>", "<thought>")

# Servers on one's own machine take any word as a key ("ollama", "not-needed"): replacing such a word would
# damage answers and protect nothing.
_SHORTEST_SECRET = 12


class Thinking:
    """Drops the ``<think>…</think>`` blocks that an answer of a reasoning model begins with."""

    def __init__(self) -> None:
        self._buffer = ""
        self._closing = ""
        self._passed = False
        self._dropped = False

    def feed(self, text: str) -> str:
        """Takes a piece and returns what of it belongs to the answer by now."""
        if self._passed:
            return text
        self._buffer += text
        while True:
            if self._closing:
                end = self._buffer.lower().find(self._closing)
                if end < 0:
                    # What was thought needs no keeping, but its end tag may be here in part.
                    self._buffer = self._buffer[-len(self._closing) :]
                    return ""
                self._buffer = self._buffer[end + len(self._closing) :]
                self._closing = ""
                self._dropped = True
            opened = _OPENED.match(self._buffer)
            if opened is None:
                break
            self._closing = f"</{opened[1].lower()}>"
            self._buffer = self._buffer[opened.end() :]
        begun = self._buffer.lstrip().lower()
        if any(tag.startswith(begun) for tag in _TAGS):
            return ""
        return self._pass()

    def close(self) -> str:
        """Returns the rest; a thought that never ended is none of it."""
        return "" if self._passed or self._closing else self._pass()

    def _pass(self) -> str:
        self._passed = True
        rest, self._buffer = self._buffer, ""
        return rest.lstrip() if self._dropped else rest


class Secret:
    """Shows a key that a server sends as an answer as ``***``."""

    def __init__(self, secret: str) -> None:
        self._secret = secret if len(secret) >= _SHORTEST_SECRET else ""
        self._buffer = ""

    def feed(self, text: str) -> str:
        """Takes a piece and returns what can be shown by now."""
        if not self._secret:
            return text
        self._buffer = (self._buffer + text).replace(self._secret, "***")
        keep = next(
            (
                length
                for length in range(min(len(self._secret) - 1, len(self._buffer)), 0, -1)
                if self._secret.startswith(self._buffer[-length:])
            ),
            0,
        )
        ready = self._buffer[: len(self._buffer) - keep]
        self._buffer = self._buffer[len(ready) :]
        return ready

    def close(self) -> str:
        """Returns the rest."""
        rest, self._buffer = self._buffer, ""
        return rest

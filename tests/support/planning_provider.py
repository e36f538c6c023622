"""A provider that plans, drafts and writes from scripts, and remembers what it was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from copilotd.errors import Cancelled
from copilotd.types import CompletionRequest, Finished, TextDelta

PLAN = {"queries": ["firing temperature", "kiln heat", "glaze melting"], "strategy": "broad"}


def draft(answer: str, *missing: str, confidence: str = "high") -> dict[str, Any]:
    return {
        "answer": answer,
        "citations": [],
        "confidence": "partial" if missing else confidence,
        "needs_more": bool(missing),
        "missing_topics": list(missing),
    }


class PlanningProvider:
    """Answers each kind of request with the next of its scripts; the last one is repeated.

    Args:
        plans: JSON objects or raw texts.
        drafts: Likewise.
        prose: Texts. Anywhere, ``[@words]`` stands for the key of the passage with these words.
        while_asked: Called at each request, before it is answered.
    """

    name = "openai"
    model = "gpt-test"

    def __init__(
        self,
        *,
        plans: list[Any] | None = None,
        drafts: list[Any] | None = None,
        prose: list[str] | None = None,
        while_asked: Callable[[], None] = lambda: None,
    ) -> None:
        self.requests: list[CompletionRequest] = []
        self._scripts = {"PlannedQueries": plans or [PLAN], "DocAnswer": drafts or [], "": prose or []}
        self._while_asked = while_asked

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        self.requests.append(request)
        self._while_asked()
        if cancelled():
            raise Cancelled("The request was cancelled.")
        scripts = self._scripts[request.output.name if request.output else ""]
        script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
        words = script if isinstance(script, str) else json.dumps(script)
        words = re.sub(r"\[@(.+?)\]", lambda mark: f"[{_key(request, mark[1])}]", words)
        for start in range(0, len(words), 7):
            yield TextDelta(words[start : start + 7])
        yield Finished("end", 100, 10)

    @property
    def kinds(self) -> list[str]:
        """What was asked for, in order: the names of the shapes, ``prose`` for none."""
        return [request.output.name if request.output else "prose" for request in self.requests]


def _key(request: CompletionRequest, words: str) -> str:
    prompt = request.messages[-1].content
    head = prompt[: prompt.index(words)].rpartition("=== passage")[2]
    return head.partition("[")[2].partition("]")[0]

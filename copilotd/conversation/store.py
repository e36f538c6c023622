"""Where conversations are kept: a JSON file each, in a private folder inside the index folder.

One folder an index, so that nothing said about one reaches another. One daemon owns an index, so a lock of
this process is enough. A file is written whole beside its place and renamed into it: a process that is
killed leaves the old one or the new one, never half of one. What can't be read is renamed to
``*.damaged`` and said once; the others go on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copilotd.conversation.turns import (
    MAX_ANSWER_CHARS,
    MAX_QUESTION_CHARS,
    Conversation,
    Turn,
    read_turn,
    turn_json,
)
from copilotd.errors import ConversationNotFound, CopilotError
from copilotd.paths import ensure_private_directory
from copilotd.text import one_line

_log = logging.getLogger(__name__)

FORMAT = 1
FOLDER = "conversations"

MAX_TURNS = 100
MAX_BYTES = 1 << 20
"""Of one conversation; its oldest turns make room."""

_SUFFIX = ".json"
_OURS = (_SUFFIX, ".damaged", ".part")
_OVERHEAD = 1024
_ID_BYTES = 6
_ID_CHARS = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of a list of conversations."""

    id: str
    title: str
    turns: int
    created: float
    updated: float


class Conversations:
    """The conversations of one index.

    Args:
        folder: Where their files are; made when the first one is kept.
        keep: How many are kept; with 0 nothing is written, and the last ones live in memory only.
        clock: Seconds since 1970.
    """

    def __init__(self, folder: Path, *, keep: int, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._keep = keep
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: dict[str, Conversation] = {}
        self._known: dict[str, tuple[tuple[int, int, int], Summary]] = {}
        self._notices: list[str] = []

    def begin(self) -> Conversation:
        """Returns a new conversation; it is kept once it has a turn."""
        return Conversation(secrets.token_hex(_ID_BYTES), self._clock())

    def get(self, conversation_id: str) -> Conversation:
        """Returns a conversation by its id or the unambiguous beginning of it.

        Raises:
            ConversationNotFound: There is none, or there are several.
        """
        with self._lock:
            return self._load(self._resolve(conversation_id))

    def last(self) -> Conversation:
        """Returns the one with the latest turn.

        Raises:
            ConversationNotFound: There is none.
        """
        with self._lock:
            for summary in self._listed():
                return self._load(summary.id)
        raise ConversationNotFound("There is no conversation to continue.", 'copilot ask "…" begins one')

    def add(self, conversation: Conversation, turn: Turn) -> Conversation:
        """Appends a turn and keeps the conversation; returns it as it is now.

        Another chat may have appended to it meanwhile; both turns stay. One that was deleted meanwhile begins
        anew with this turn.

        Raises:
            OSError: It can't be written.
        """
        turn = replace(
            turn,
            question=_cut(turn.question, MAX_QUESTION_CHARS),
            asked_as=_cut(turn.asked_as, MAX_QUESTION_CHARS),
            answer=_cut(turn.answer, MAX_ANSWER_CHARS),
            at=turn.at or self._clock(),
        )
        with self._lock:
            try:
                conversation = self._load(conversation.id)
            except ConversationNotFound:
                # Deleted while the answer was being made: what was deleted must not come back with it.
                conversation = replace(conversation, turns=(), forgotten=0)
            kept = _bounded(replace(conversation, turns=(*conversation.turns, turn)))
            self._write(kept)
            self._drop_surplus(kept.id)
        return kept

    def summaries(self) -> list[Summary]:
        """Returns all of them, the one with the latest turn first."""
        with self._lock:
            return self._listed()

    def delete(self, conversation_ids: tuple[str, ...] | None) -> int:
        """Deletes some, or with None all of them, damaged ones included; returns how many.

        Raises:
            ConversationNotFound: One of the ids names none; nothing is deleted then.
        """
        with self._lock:
            if conversation_ids is not None:
                ids = {self._resolve(conversation_id) for conversation_id in conversation_ids}
                for conversation_id in ids:
                    self._remove(conversation_id)
                return len(ids)
            count = len(self._listed())
            self._memory.clear()
            self._known.clear()
            with contextlib.suppress(FileNotFoundError):
                for path in sorted(self._folder.iterdir()):
                    if path.suffix in _OURS:
                        path.unlink()
            return count

    def take_notices(self) -> list[str]:
        """Returns what somebody should be told, each sentence once."""
        with self._lock:
            told, self._notices = self._notices, []
        return told

    # ------------------------------------------------------------------------------- under the lock

    def _resolve(self, conversation_id: str) -> str:
        known = [summary.id for summary in self._listed() if summary.id.startswith(conversation_id.lower())]
        if conversation_id and len(known) == 1:
            return known[0]
        shown = one_line(conversation_id, 40)
        what = (
            f"{shown!r} begins {len(known)} conversations" if known else f"There is no conversation {shown!r}"
        )
        raise ConversationNotFound(f"{what}.", "copilot conversations lists them")

    def _listed(self) -> list[Summary]:
        summaries = [summary_of(conversation) for conversation in self._memory.values()]
        found: dict[str, tuple[tuple[int, int, int], Summary]] = {}
        for conversation_id, stamp in self._files():
            known = self._known.get(conversation_id)
            if known is None or known[0] != stamp:
                with contextlib.suppress(ConversationNotFound):
                    found[conversation_id] = stamp, summary_of(self._load(conversation_id))
            else:
                found[conversation_id] = known
        self._known = found
        summaries += [summary for _, summary in found.values()]
        return sorted(summaries, key=lambda summary: (summary.updated, summary.id), reverse=True)

    def _files(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        try:
            entries = sorted(os.scandir(self._folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            name = entry.name.removesuffix(_SUFFIX)
            if entry.name.endswith(_SUFFIX) and _is_id(name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield name, (status.st_mtime_ns, status.st_size, status.st_ino)

    def _load(self, conversation_id: str) -> Conversation:
        if conversation_id in self._memory:
            return self._memory[conversation_id]
        path = self._path(conversation_id)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, "rb") as file:
                source = file.read(2 * MAX_BYTES)
            return _read(conversation_id, source)
        except FileNotFoundError:
            raise ConversationNotFound(
                f"There is no conversation {conversation_id!r}.", "copilot conversations"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            self._set_aside(path, error)
            raise ConversationNotFound(
                f"The conversation {conversation_id} is damaged and was set aside.", "begin another one"
            ) from None

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = path.with_suffix(".damaged")
        with contextlib.suppress(OSError):
            path.rename(aside)
        sentence = f"A stored conversation is damaged; it was kept as {aside}."
        _log.warning("event=conversation_damaged path=%s error=%s", aside, one_line(str(error), 200))
        self._notices.append(sentence)

    def _write(self, conversation: Conversation) -> None:
        if not self._keep:
            self._memory.pop(conversation.id, None)
            self._memory[conversation.id] = conversation
            return
        path = self._path(conversation.id)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            ensure_private_directory(self._folder, tighten=True)
        except CopilotError as error:
            raise OSError(error.message) from None
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(_dump(conversation))
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _drop_surplus(self, newest: str) -> None:
        """Drops the oldest; those of one question first, so that a script doesn't push out what was talked over."""
        limit = self._keep or _IN_MEMORY
        summaries = [summary for summary in self._listed() if summary.id != newest]
        surplus = len(summaries) + 1 - limit
        if surplus > 0:
            summaries.sort(key=lambda summary: (summary.turns > 1, summary.updated))
            for summary in summaries[:surplus]:
                self._remove(summary.id)

    def _remove(self, conversation_id: str) -> None:
        self._memory.pop(conversation_id, None)
        self._known.pop(conversation_id, None)
        self._path(conversation_id).unlink(missing_ok=True)

    def _path(self, conversation_id: str) -> Path:
        return self._folder / f"{conversation_id}{_SUFFIX}"


_IN_MEMORY = 20


def summary_of(conversation: Conversation) -> Summary:
    """Returns the line a list shows of a conversation."""
    turns = len(conversation.turns) + conversation.forgotten
    return Summary(conversation.id, conversation.title, turns, conversation.created, conversation.updated)


def _is_id(name: str) -> bool:
    return len(name) == 2 * _ID_BYTES and _ID_CHARS.issuperset(name)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _bounded(conversation: Conversation) -> Conversation:
    turns = conversation.turns
    sizes = [len(json.dumps(turn_json(turn))) for turn in turns]
    room = MAX_BYTES - _OVERHEAD
    gone = max(0, len(turns) - MAX_TURNS)
    while gone < len(turns) - 1 and sum(sizes[gone:]) + 2 * len(turns) > room:
        gone += 1
    return replace(conversation, turns=turns[gone:], forgotten=conversation.forgotten + gone)


def _dump(conversation: Conversation) -> bytes:
    value: dict[str, Any] = {
        "format": FORMAT,
        "created": conversation.created,
        "forgotten": conversation.forgotten,
        "turns": [turn_json(turn) for turn in conversation.turns],
    }
    return json.dumps(value).encode()


def _read(conversation_id: str, source: bytes) -> Conversation:
    value = json.loads(source)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError("not a conversation of this format")
    created, forgotten, turns = value.get("created"), value.get("forgotten"), value.get("turns")
    if not isinstance(created, int | float) or not isinstance(forgotten, int) or not isinstance(turns, list):
        raise ValueError("not a conversation")
    return Conversation(conversation_id, float(created), tuple(map(read_turn, turns)), forgotten)

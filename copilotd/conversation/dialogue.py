"""A question as a part of a conversation: made standalone, answered like any other, and kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from copilotd.conversation.followup import rarity_in, stand_alone
from copilotd.conversation.rewrite import rewrite
from copilotd.conversation.store import Conversations
from copilotd.conversation.turns import MAX_SOURCES, Conversation, Source, Turn
from copilotd.text import one_line, printable
from copilotd.types import (
    Answer,
    AskRequest,
    IndexReader,
    Message,
    Progress,
    Provider,
    Reporter,
    Scope,
)

_log = logging.getLogger(__name__)

NEW, LAST = "new", "last"
"""Instead of a conversation's id."""

# Of each message that a model is given as context: with three turns about 700 tokens.
_MAX_QUESTION_CHARS = 300
_MAX_ANSWER_CHARS = 600

MakeProvider = Callable[[], Provider | None]
AnswerAlone = Callable[[AskRequest, Reporter, MakeProvider], Answer]
Reading = Callable[[], AbstractContextManager[IndexReader]]


class Dialogue:
    """Answers questions as parts of conversations.

    Args:
        conversations: Where they are kept.
        reading: Opens a view of the index.
        make_provider: Gives the language model, or None.
        answer: Answers a standalone question.
    """

    def __init__(
        self, conversations: Conversations, reading: Reading, make_provider: MakeProvider, answer: AnswerAlone
    ) -> None:
        self._conversations = conversations
        self._reading = reading
        self._make_provider = make_provider
        self._answer = answer

    def ask(self, request: AskRequest, reporter: Reporter) -> Answer:
        """Answers a question of the conversation that it names, and keeps both.

        A question that failed or was cancelled isn't kept.

        Raises:
            UsageError: There is no such conversation.
            CopilotError: As for a question alone.
        """
        conversation = self._open(request.conversation)
        turns = conversation.context
        if request.keep_scope and turns:
            request = replace(request, scope=Scope(turns[-1].namespaces or None, turns[-1].paths))
        question = request.query
        query, notices = self._standalone(question, turns, request, reporter)
        if query != question:
            reporter.progress(Progress("question", f"Asked as: {query}"))
        history = _history(turns, request.scope)
        answer = self._answer(
            replace(request, query=query, conversation="", history=history), reporter, self._make_provider
        )
        turn = Turn(
            question=question,
            asked_as=query,
            answer=answer.text,
            known=answer.verdict.known,
            sources=_sources(answer),
            namespaces=request.scope.namespaces or (),
            paths=request.scope.paths,
            provider=answer.provider,
            model=answer.model,
        )
        kept = conversation.id
        try:
            self._conversations.add(conversation, turn)
        except OSError as error:
            kept = conversation.id if turns else ""
            _log.error("event=conversation_not_kept error=%s", error)
            reason = one_line(error.strerror or str(error), 200)
            notices.append(f"This question and its answer could not be kept: {reason}.")
        return replace(
            answer,
            query=question,
            asked_as="" if query == question else query,
            conversation=kept,
            notices=(*notices, *self._conversations.take_notices(), *answer.notices),
        )

    def _open(self, name: str) -> Conversation:
        if name == NEW:
            return self._conversations.begin()
        return self._conversations.last() if name == LAST else self._conversations.get(name)

    def _standalone(
        self, question: str, turns: Sequence[Turn], request: AskRequest, reporter: Reporter
    ) -> tuple[str, list[str]]:
        if not turns:
            return question, []
        with self._reading() as view:
            by_words = stand_alone(question, turns, rarity_in(view, request.scope))
        provider = None if request.extractive else self._make_provider()
        if provider is None:
            return by_words.query, []
        told = [turn if _same_scope(turn, request.scope) else replace(turn, answer="") for turn in turns]
        made, notice = rewrite(question, told, by_words, provider, reporter.cancelled)
        return made.query, [notice] if notice else []


def _history(turns: Sequence[Turn], scope: Scope) -> tuple[Message, ...]:
    """Returns the last messages for the model; only of turns whose documents the question may be answered from."""
    messages: list[Message] = []
    for turn in turns:
        if turn.known and _same_scope(turn, scope):
            messages.append(Message("user", one_line(turn.asked_as, _MAX_QUESTION_CHARS)))
            messages.append(Message("assistant", one_line(turn.answer, _MAX_ANSWER_CHARS)))
    return tuple(messages)


def _same_scope(turn: Turn, scope: Scope) -> bool:
    return (turn.namespaces or None, turn.paths) == (scope.namespaces, scope.paths)


def _sources(answer: Answer) -> tuple[Source, ...]:
    return tuple(
        Source(
            printable(citation.doc_title, keep_newlines=False),
            printable(citation.section_heading, keep_newlines=False),
            printable(citation.source_file, keep_newlines=False),
            citation.line_start,
            citation.line_end,
            citation.page,
            citation.page_end,
        )
        for citation in answer.citations[:MAX_SOURCES]
    )

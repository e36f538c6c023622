"""Conversations through the engine: follow-ups, their scope, and what is kept of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.engines import Recorder, located, running_engine
from support.hashing_encoder import HashingEncoder

from copilotd.engine import Engine
from copilotd.errors import Cancelled, ConversationNotFound
from copilotd.settings import load_settings
from copilotd.types import Answer, AskRequest, CompletionRequest, Finished, Scope, TextDelta

DOCS = {
    "backup.md": "# Backup\n\n## Restore a backup\n\nRestore a backup with borg extract.\n\n"
    "## Restore a backup on Windows\n\nOn Windows, restore a backup from the WSL shell.\n",
    "port.md": "# Port\n\n## Change the port\n\nChange the port in config.toml.\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in DOCS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def engine(tmp_path: Path, docs: Path) -> Iterator[Engine]:
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        yield engine


def ask(engine: Engine, query: str, conversation: str = "last", **options: object) -> Answer:
    request = AskRequest(query, conversation=conversation, threshold=0.0)
    return engine.ask(replace(request, **options), Recorder())  # type: ignore[arg-type]


def test_a_follow_up_is_searched_as_a_question_of_its_own(engine: Engine) -> None:
    first = ask(engine, "How do I restore a backup?", "new")
    assert (first.asked_as, len(first.conversation)) == ("", 12)
    recorder = Recorder()
    request = AskRequest("and on Windows?", conversation=first.conversation, threshold=0.0)
    second = engine.ask(request, recorder)
    assert second.query == "and on Windows?"
    assert second.asked_as == "How do I restore a backup on Windows?"
    assert "Asked as: How do I restore a backup on Windows?" in recorder.messages
    assert "WSL" in second.text
    assert second.conversation == first.conversation
    kept = engine.conversations.get(first.conversation)
    assert [turn.asked_as for turn in kept.turns] == ["How do I restore a backup?", second.asked_as]
    assert kept.turns[1].sources[0].doc_title == "backup"


def test_a_question_without_a_conversation_is_kept_nowhere(engine: Engine, tmp_path: Path) -> None:
    answer = engine.ask(AskRequest("How do I restore a backup?"), Recorder())
    assert (answer.conversation, answer.asked_as) == ("", "")
    assert engine.conversations.summaries() == []
    assert not (tmp_path / "index" / "conversations").exists()


def test_a_new_topic_is_not_polluted(engine: Engine) -> None:
    ask(engine, "How do I restore a backup?", "new")
    answer = ask(engine, "How do I change the port?")
    assert answer.asked_as == ""
    assert "config.toml" in answer.text


def test_a_follow_up_keeps_the_scope_unless_it_names_one(engine: Engine) -> None:
    ask(engine, "How do I restore a backup?", "new", scope=Scope(None, ("backup.md",)))
    kept = ask(engine, "How do I change the port?", keep_scope=True)
    assert {citation.doc_title for citation in (*kept.citations, *kept.closest)} == {"backup"}
    given = ask(engine, "How do I change the port?", scope=Scope())
    assert given.citations[0].doc_title == "port"


def test_an_unknown_conversation_is_said(engine: Engine) -> None:
    with pytest.raises(ConversationNotFound):
        ask(engine, "why?", "last")
    with pytest.raises(ConversationNotFound):
        ask(engine, "why?", "0123456789ab")


def test_another_index_does_not_go_on_with_it(engine: Engine, tmp_path: Path, docs: Path) -> None:
    first = ask(engine, "How do I restore a backup?", "new")
    with running_engine(tmp_path / "other") as other:
        other.index_root(str(docs), reporter=Recorder())
        for name in ("last", first.conversation):
            with pytest.raises(ConversationNotFound):
                ask(other, "and on Windows?", name)


def test_it_outlives_the_engine(engine: Engine, tmp_path: Path) -> None:
    first = ask(engine, "How do I restore a backup?", "new")
    engine.close()
    with running_engine(tmp_path / "index") as again:
        assert ask(again, "and on Windows?").conversation == first.conversation


def test_what_cannot_be_kept_is_answered_and_said(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "index" / "conversations"
    folder.write_text("not a folder")
    answer = ask(engine, "How do I restore a backup?", "new")
    assert answer.verdict.known
    assert answer.conversation == ""
    assert any("could not be kept" in notice for notice in answer.notices)


def test_damage_is_said_beside_the_next_answer(engine: Engine, tmp_path: Path) -> None:
    ask(engine, "How do I restore a backup?", "new")
    (path,) = (tmp_path / "index" / "conversations").iterdir()
    path.write_text("{")
    with pytest.raises(ConversationNotFound):
        ask(engine, "and on Windows?")
    answer = ask(engine, "How do I change the port?", "new")
    assert any(".damaged" in notice for notice in answer.notices)


class Model:
    """Answers with the first passage's key; rewrites follow-ups as it is told."""

    name, model = "openai", "test"

    def __init__(self, rewriting: str = "") -> None:
        self.rewriting = rewriting
        self.requests: list[CompletionRequest] = []
        self.holding = threading.Event()
        self.hold = False

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        self.requests.append(request)
        rewrites = "Last question:" in request.messages[-1].content
        if self.hold and not rewrites:
            yield TextDelta("Restore ")
            self.holding.set()
            while not cancelled():
                threading.Event().wait(0.01)
            raise Cancelled("gone")
        passage = "Restore a backup with borg extract. [A]"
        yield TextDelta(self.rewriting if rewrites else passage)
        yield Finished("end")


@pytest.fixture
def model() -> Model:
    return Model("How do I restore a backup on Windows?")


@pytest.fixture
def spoken(tmp_path: Path, docs: Path, model: Model) -> Iterator[Engine]:
    encoder = HashingEncoder()
    engine = Engine(
        replace(load_settings(), index_dir=tmp_path / "index"),
        make_provider=lambda: model,
        load=lambda _: encoder,
        locate=located(encoder.name, encoder.fingerprint),
        background=False,
    )
    engine.start()
    engine.index_root(str(docs), reporter=Recorder())
    yield engine
    engine.close()


def test_the_model_rewrites_and_is_told_what_was_said(spoken: Engine, model: Model) -> None:
    ask(spoken, "How do I restore a backup?", "new")
    answer = ask(spoken, "and on Windows?")
    assert answer.asked_as == "How do I restore a backup on Windows?"
    last = model.requests[-1].messages
    assert [message.role for message in last] == ["user", "assistant", "user"]
    assert last[0].content == "How do I restore a backup?"
    assert "Question: How do I restore a backup on Windows?" in last[-1].content


def test_the_last_six_messages_are_the_context(spoken: Engine, model: Model) -> None:
    ask(spoken, "How do I restore a backup number 0?", "new")
    for number in range(1, 6):
        ask(spoken, f"How do I restore a backup number {number}?")
    messages = model.requests[-1].messages
    assert len(messages) == 7
    assert "number 2" in messages[0].content


def test_what_was_said_makes_room_for_the_passages_and_is_left_out_with_a_notice(
    spoken: Engine, model: Model
) -> None:
    ask(spoken, "How do I restore a backup number 0?", "new")
    for number in range(1, 4):
        ask(spoken, f"How do I restore a backup number {number}?")
    assert [len(request.messages) for request in model.requests][-1] == 7
    spoken.settings = replace(spoken.settings, context_tokens=1280, max_answer_tokens=500)
    answer = ask(spoken, "How do I restore a backup number 4?")
    messages = model.requests[-1].messages
    assert len(messages) < 7
    left_out = 7 - len(messages)
    said = f"To fit the model's context, {left_out} earlier messages of the conversation were left out."
    assert said in answer.notices
    assert all(message.reused == 0 for message in messages), "nothing of it is the same in the next request"


def test_a_deep_answer_is_told_what_was_said_once(spoken: Engine, model: Model) -> None:
    ask(spoken, "How do I restore a backup?", "new")
    ask(spoken, "How do I restore a backup from the shell?", deep=True)
    told = {
        request.output.name: [message.content for message in request.messages]
        for request in reversed(model.requests)
        if request.output is not None
    }
    assert "How do I restore a backup?" not in told["PlannedQueries"]
    assert told["DocAnswer"].count("How do I restore a backup?") == 1


def test_the_model_completes_no_question_where_nothing_was_answered(spoken: Engine, model: Model) -> None:
    assert not ask(spoken, "How do I restore a backup?", "new", threshold=1.0).verdict.known
    assert not ask(spoken, "and on Windows?", threshold=1.0).verdict.known
    assert model.requests == [], "no evidence, no call"


def test_answers_from_other_documents_are_not_told_for_completing(spoken: Engine, model: Model) -> None:
    ask(spoken, "How do I restore a backup?", "new", scope=Scope(None, ("backup.md",)))
    ask(spoken, "and on Windows?", scope=Scope())
    (rewriting,) = (r for r in model.requests if "Last question:" in r.messages[-1].content)
    assert "How do I restore a backup?" in rewriting.messages[0].content
    assert "borg extract" not in rewriting.messages[0].content


def test_extractive_answers_ask_no_model(spoken: Engine, model: Model) -> None:
    ask(spoken, "How do I restore a backup?", "new", extractive=True)
    answer = ask(spoken, "and on Windows?", extractive=True)
    assert answer.asked_as == "How do I restore a backup on Windows?"
    assert model.requests == []


def test_what_was_said_of_other_documents_is_not_told(spoken: Engine, model: Model) -> None:
    ask(spoken, "How do I restore a backup?", "new", scope=Scope(None, ("backup.md",)))
    ask(spoken, "How do I restore a backup from the shell?", scope=Scope())
    assert len(model.requests[-1].messages) == 1


def test_a_cancelled_question_is_not_kept(spoken: Engine, model: Model) -> None:
    first = ask(spoken, "How do I restore a backup?", "new")
    model.hold = True
    recorder = Recorder()
    ended: list[BaseException] = []

    def talk() -> None:
        try:
            spoken.ask(AskRequest("and on Windows?", conversation="last", threshold=0.0), recorder)
        except Cancelled as error:
            ended.append(error)

    thread = threading.Thread(target=talk)
    thread.start()
    assert model.holding.wait(60)
    recorder.gone = True
    thread.join(60)
    assert len(ended) == 1
    assert len(spoken.conversations.get(first.conversation).turns) == 1


def test_nothing_of_it_is_open_to_others(engine: Engine, tmp_path: Path) -> None:
    ask(engine, "How do I restore a backup?", "new")
    (path,) = (tmp_path / "index" / "conversations").iterdir()
    assert os.stat(path).st_mode & 0o077 == 0
    assert os.stat(path.parent).st_mode & 0o077 == 0

"""Deep questions through the engine: edits, settings, time, freshness taken once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.engines import Recorder, ask, located, running_engine
from support.hashing_encoder import HashingEncoder
from support.planning_provider import PlanningProvider, draft

from copilotd.engine import Engine
from copilotd.errors import UsageError
from copilotd.settings import load_settings
from copilotd.types import AskRequest, Context, Scope

KILN = "# Kiln\n\n## Firing\n\nFire the kiln at 1240 degrees for nine hours.\n"
GLAZE = "# Glaze\n\n## Celadon\n\nCeladon needs iron oxide and a reducing flame.\n"
QUESTION = "How many degrees is the kiln fired at and what does celadon need?"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text(KILN)
    (folder / "glaze.md").write_text(GLAZE)
    return folder


def test_both_halves_are_answered_and_every_step_is_timed(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        recorder = Recorder()
        answer = engine.ask(AskRequest(QUESTION, deep=True, threshold=0.05), recorder)
    assert "1240 degrees" in answer.text
    assert "iron oxide" in answer.text
    assert recorder.text == answer.text
    assert {"sync", "plan", "retrieve", "gate", "answer", "total"} <= set(answer.timings_ms)
    assert [step.stage for step in recorder.steps if step.stage in ("plan", "retrieve")] == [
        "plan",
        "retrieve",
    ]
    assert answer.deep is not None
    assert answer.deep.queries[0] == QUESTION


def test_a_refusal_of_several_questions_at_once_names_the_way(tmp_path: Path, docs: Path) -> None:
    several = "Fired at how many degrees? Who won the football cup last year in Paris?"
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        plain = ask(engine, several, threshold=0.9)
        assert not plain.verdict.known
        assert any("--deep" in notice for notice in plain.notices)
        for question, deep in ((several, True), ("Who won the football cup?", False)):
            assert not any("--deep" in n for n in ask(engine, question, deep=deep, threshold=0.9).notices)


def test_an_edit_before_a_deep_question_is_in_its_answer(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        (docs / "kiln.md").write_text(KILN.replace("1240", "1300"))
        recorder = Recorder()
        answer = engine.ask(AskRequest("How hot is the kiln fired?", deep=True, threshold=0.1), recorder)
        assert "1300 degrees" in answer.text
        assert recorder.messages.count("Stale index detected: kiln.md changed. Re-indexing.") == 1
        (docs / "kiln.md").unlink()
        gone = ask(engine, "How hot is the kiln fired?", deep=True, threshold=0.0)
        assert not any(citation.relative_path == "kiln.md" for citation in (*gone.citations, *gone.closest))


def test_the_setting_chooses_the_mode_and_the_request_goes_before_it(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", ask_mode="deep") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        assert ask(engine, QUESTION).deep is not None
        assert ask(engine, QUESTION, deep=False).deep is None
    with running_engine(tmp_path / "index") as engine:
        assert ask(engine, QUESTION).deep is None
        documents = ask(engine, QUESTION, deep=True, context=Context.DOCUMENTS, top_documents=1)
        assert documents.deep is not None
        assert documents.deep.context is Context.DOCUMENTS
        assert len(documents.deep.documents) == 1


def test_a_namespace_restricts_every_query(tmp_path: Path, docs: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "celadon.md").write_text(GLAZE.replace("iron oxide", "copper"))
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        engine.index_root(str(other), namespace="other", reporter=Recorder())
        answer = ask(engine, QUESTION, deep=True, scope=Scope(("other",)), threshold=0.0)
        assert answer.deep is not None
        assert {path for path, _ in answer.deep.documents} <= {"celadon.md"}
        with pytest.raises(UsageError, match="no namespace"):
            ask(engine, QUESTION, deep=True, scope=Scope(("nowhere",)))


def test_a_floor_above_every_similarity_refuses(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        answer = ask(engine, QUESTION, deep=True, threshold=0.0, min_score=0.999)
        assert not answer.verdict.known
        assert answer.citations == ()


def test_a_document_edited_while_the_model_plans_is_not_cited_as_it_was(tmp_path: Path, docs: Path) -> None:
    def edit() -> None:
        if provider.kinds == ["PlannedQueries"]:
            (docs / "kiln.md").write_text(KILN.replace("1240", "1300"))
            engine.sync(60.0, Recorder())

    provider = PlanningProvider(drafts=[draft("Celadon needs iron oxide [@iron oxide].")], while_asked=edit)
    encoder = HashingEncoder()
    engine = Engine(
        replace(load_settings(), index_dir=tmp_path / "index"),
        make_provider=lambda: provider,
        load=lambda _: encoder,
        locate=located(),
        background=False,
    )
    engine.start()
    try:
        engine.index_root(str(docs), reporter=Recorder())
        answer = ask(engine, QUESTION, deep=True, threshold=0.0, context=Context.CHUNKS)
        assert "iron oxide [glaze > Celadon]" in answer.text
        prompt = provider.requests[-1].messages[-1].content
        assert "1240" not in prompt
        assert answer.freshness.generation == engine.generation
    finally:
        engine.close()

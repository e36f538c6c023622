"""What ``status`` counts is read again after each write, and only then."""

from __future__ import annotations

from pathlib import Path

from support.engines import Recorder, running_engine

from copilotd.update.census import Census


def test_it_counts_again_after_a_write_and_not_before(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# A\n\nAlpha.\n", encoding="utf-8")
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        census = Census(engine._store, engine._writer)
        first = census.now()
        assert sum(documents for documents, _ in first.by_root.values()) == 1
        assert census.now() is first
        (docs / "b.md").write_text("# B\n\nBeta.\n", encoding="utf-8")
        engine.sync(60, Recorder())
        second = census.now()
        assert sum(documents for documents, _ in second.by_root.values()) == 2
        assert second.generation > first.generation
        assert engine.generation == engine.status().generation == census.now().generation


def test_what_a_write_did_is_counted_by_whoever_waited_for_it(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        for number in range(30):
            (docs / f"{number}.md").write_text(f"# N{number}\n\nText {number}.\n", encoding="utf-8")
            engine.sync(60, Recorder())
            assert engine.status().documents == number + 1

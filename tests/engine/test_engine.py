"""The engine through its public methods: index, ask, edit, ask again."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.engines import Recorder, ask, found, found_paths, running_engine, search
from support.hashing_encoder import HashingEncoder

from copilotd.embed.models import LocatedModel
from copilotd.engine import Engine
from copilotd.errors import (
    Cancelled,
    ModelError,
    ModelLoading,
    RootNotFound,
    RootOverlap,
    SectionNotFound,
    UsageError,
)
from copilotd.types import AskRequest, Encoder, Float32Array, RootState, Scope, SearchRequest

GUIDE = """# Kiln guide

## Firing

Fire the kiln at 1240 degrees for nine hours.

## Cooling

Let the kiln cool for two days before the door is opened.
"""

GLAZE = """# Glazes

## Celadon

Celadon needs iron oxide and a reducing flame.
"""


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text(GUIDE)
    (folder / "glaze.md").write_text(GLAZE)
    return folder


def index(engine: Engine, folder: Path, **options: object) -> object:
    return engine.index_root(str(folder), reporter=Recorder(), **options)  # type: ignore[arg-type]


def test_indexing_reports_what_it_did_and_a_second_time_does_nothing(tmp_path: Path, docs: Path) -> None:
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        first = engine.index_root(str(docs), reporter=Recorder())
        embedded = len(encoder.encoded)
        second = engine.index_root(str(docs), reporter=Recorder())

    assert (first.files, first.new, first.unchanged) == (2, 2, 0)
    assert first.chunks == 5
    assert first.windows_embedded > 0
    assert (second.files, second.new, second.updated, second.unchanged) == (2, 0, 0, 2)
    assert second.windows_embedded == 0
    assert len(encoder.encoded) == embedded


def test_an_answer_cites_the_lines_it_quotes(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        answer = ask(engine, "how hot should I fire the kiln", threshold=0.0)

    assert "1240 degrees" in answer.text
    assert "[kiln > Firing]" in answer.text
    citation = answer.citations[0]
    assert (citation.relative_path, citation.line_start, citation.line_end) == ("kiln.md", 5, 5)
    assert answer.freshness.pending == 0


def test_a_saved_edit_is_in_the_next_answer_and_costs_only_its_windows(tmp_path: Path, docs: Path) -> None:
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        before = len(encoder.encoded)
        (docs / "kiln.md").write_text(GUIDE.replace("1240", "1305"))
        recorder = Recorder()
        answer = engine.ask(AskRequest("how hot should I fire the kiln", threshold=0.0), recorder)
        embedded = [text for text in encoder.encoded[before:] if "degrees" in text]
        others = [
            text for text in encoder.encoded[before:] if "degrees" not in text and "how hot" not in text
        ]

    assert "1305 degrees" in answer.text
    assert "Stale index detected: kiln.md changed. Re-indexing." in recorder.messages
    assert len(embedded) == 1
    assert others == []


def test_a_deleted_document_is_never_cited_again(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        assert "glaze.md" in found_paths(engine, "celadon iron oxide")
        (docs / "glaze.md").unlink()
        assert "glaze.md" not in found_paths(engine, "celadon iron oxide")
        assert engine.status().documents == 1


@pytest.mark.parametrize("target", ["renamed.md", "sub/kiln.md"])
def test_a_renamed_document_costs_no_embedding(tmp_path: Path, docs: Path, target: str) -> None:
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        index(engine, docs)
        (docs / "sub").mkdir()
        before = engine.status().embedded_total
        (docs / "kiln.md").rename(docs / target)
        paths = found_paths(engine, "fire the kiln degrees")
        report = engine.index_root(str(docs), reporter=Recorder())
        embedded = engine.status().embedded_total - before

    assert target in paths
    assert "kiln.md" not in paths
    assert embedded == 0
    assert report.files == 2


def test_a_touched_document_costs_no_embedding(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        before = engine.status().embedded_total
        os.utime(docs / "kiln.md", (1, 1))
        found(engine, "kiln")
        assert engine.status().embedded_total == before


def test_same_length_edit_with_the_old_mtime_is_found(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        kiln = docs / "kiln.md"
        status = kiln.stat()
        kiln.write_text(GUIDE.replace("1240", "1999"))
        os.utime(kiln, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert any("1999" in text for text in found(engine, "fire the kiln degrees"))


def test_changes_made_while_stopped_are_found_at_the_next_start(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
    (docs / "glaze.md").unlink()
    (docs / "kiln.md").rename(docs / "oven.md")
    (docs / "new.md").write_text("# Wheel\n\nCentre the clay on the wheel.\n")
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder, background=True) as engine:
        assert engine.wait_until_swept(20)
        assert set(found_paths(engine, "kiln clay wheel celadon")) == {"oven.md", "new.md"}
        assert engine.status().embedded_total == 1


def test_refusal_names_the_query_and_the_closest_sections(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        answer = ask(engine, "who won the football cup", threshold=1.0)

    assert answer.text == (
        "I don't have enough information to answer 'who won the football cup'. "
        "The documentation may not cover this topic."
    )
    assert not answer.verdict.known
    assert answer.citations == ()


def test_no_root_yet_is_an_error_with_the_next_command(tmp_path: Path) -> None:
    with running_engine(tmp_path / "index") as engine, pytest.raises(UsageError) as caught:
        ask(engine, "anything")
    assert caught.value.hint == "copilot index DIR"


@pytest.mark.parametrize("question", ["", "   ", "\n", "\x00", "x" * 20_001])
def test_questions_that_are_none(tmp_path: Path, docs: Path, question: str) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        with pytest.raises(UsageError):
            ask(engine, question)


def test_namespaces_do_not_mix_and_an_unknown_one_is_named(tmp_path: Path, docs: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "kiln.md").write_text("# Lime kiln\n\nBurn lime in the kiln.\n")
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs, namespace="pottery")
        index(engine, other, namespace="lime")
        pottery = search(engine, "kiln", scope=Scope(("pottery",)), top_k=50)
        assert {hit.chunk.namespace for hit in pottery.hits} == {"pottery"}
        both = search(engine, "kiln", top_k=50)
        assert {hit.chunk.namespace for hit in both.hits} == {"pottery", "lime"}
        with pytest.raises(UsageError, match="glass") as caught:
            search(engine, "kiln", scope=Scope(("glass",)))
        assert "lime, pottery" in caught.value.hint


def test_a_path_filter_restricts_before_ranking(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "big").mkdir(parents=True)
    (docs / "small").mkdir()
    for number in range(80):
        (docs / "big" / f"{number}.md").write_text(f"# Note {number}\n\nThe kiln kiln kiln is hot.\n")
    (docs / "small" / "one.md").write_text("# Small\n\nA kiln stands in the yard.\n")
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        hits = search(engine, "kiln", scope=Scope(paths=("small/",)), top_k=5).hits
    assert [hit.chunk.metadata.relative_path for hit in hits] == ["small/one.md"]


@pytest.mark.parametrize("inner_first", [True, False])
def test_a_root_inside_another_is_refused(tmp_path: Path, docs: Path, inner_first: bool) -> None:
    inner = docs / "inner"
    inner.mkdir()
    first, second = (inner, docs) if inner_first else (docs, inner)
    with running_engine(tmp_path / "index") as engine:
        index(engine, first)
        with pytest.raises(RootOverlap):
            index(engine, second)
        index(engine, second, namespace="elsewhere")


def test_bad_roots(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        with pytest.raises(RootNotFound):
            index(engine, tmp_path / "nowhere")
        with pytest.raises(UsageError, match="is a file"):
            index(engine, docs / "kiln.md")
        with pytest.raises(UsageError):
            index(engine, docs, namespace="../x")
        with pytest.raises(UsageError):
            index(engine, docs, chunk_size=200, chunk_overlap=150)
        with pytest.raises(RootNotFound):
            engine.forget(str(docs), None)


def test_forgetting_a_root_removes_its_documents(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        [(root, documents)] = engine.forget(str(docs), None)
        assert (root.path, documents) == (str(docs), 2)
        assert engine.status().chunks == engine.status().windows == 0
        report = engine.index_root(str(docs), reporter=Recorder())
        assert report.new == 2
        assert report.windows_embedded == 0, "the vectors of the same text were kept"


def test_rebuild_reads_everything_and_embeds_only_when_told(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        report = engine.rebuild(False, Recorder())
        assert (report.files, report.updated, report.windows_embedded) == (2, 2, 0)
        windows = engine.status().windows
        fresh = engine.rebuild(True, Recorder())
        assert fresh.windows_embedded == windows == engine.status().windows


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_root_that_vanishes_is_not_cited_and_comes_back_for_free(
    tmp_path: Path, docs: Path, how: str
) -> None:
    aside = tmp_path / "aside"
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        shutil.move(docs, aside)
        if how == "emptied":
            docs.mkdir()
        assert found(engine, "kiln") == []
        assert engine.roots()[0].state in (RootState.MISSING, RootState.EMPTIED)
        before = engine.status().embedded_total
        if how == "emptied":
            docs.rmdir()
        shutil.move(aside, docs)
        assert found(engine, "kiln")
        assert engine.status().embedded_total == before
        assert engine.roots()[0].documents == 2


def test_the_grace_time_ends(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", root_grace_s=0.0) as engine:
        index(engine, docs)
        shutil.rmtree(docs)
        for _ in range(3):
            assert found(engine, "kiln") == []
        assert engine.status().documents == 0


def test_skipped_files_are_named_with_their_reason_and_tried_again(tmp_path: Path, docs: Path) -> None:
    bad = docs / "broken.pdf"
    bad.write_bytes(b"")
    with running_engine(tmp_path / "index") as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert [(Path(path).name, bool(reason)) for path, reason in report.skipped] == [("broken.pdf", True)]
        bad.unlink()
        report = engine.index_root(str(docs), reporter=Recorder())
        assert report.skipped == ()


def test_sections_by_path_line_label_and_document(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        recorder = Recorder()
        by_label = engine.section("kiln > Cooling", None, recorder)
        assert by_label.text.startswith("## Cooling")
        assert (by_label.line_start, by_label.line_end) == (7, 9)
        assert engine.section("[kiln > Cooling]", None, recorder) == by_label
        assert engine.section("kiln.md:8", None, recorder) == by_label
        assert engine.section(f"{docs}/kiln.md:9-9", None, recorder) == by_label
        assert engine.section("kiln.md", None, recorder).text.count("##") == 2
        assert "Firing" in engine.section("kiln > Kiln guide", None, recorder).text
        for missing in ("kiln > Nothing", "none.md", "none.md:4"):
            with pytest.raises(SectionNotFound):
                engine.section(missing, None, recorder)
        with pytest.raises(UsageError):
            engine.section("  ", None, recorder)


def test_search_answers_by_words_while_the_model_loads_and_ask_waits(tmp_path: Path, docs: Path) -> None:
    release = threading.Event()

    def slow(_: LocatedModel) -> Encoder:
        release.wait(20)
        return HashingEncoder()

    with running_engine(tmp_path / "index", load=slow, model_wait_s=0.5) as engine:
        recorder = Recorder()
        indexer = threading.Thread(
            target=lambda: engine.index_root(str(docs), reporter=recorder), name="indexer", daemon=True
        )
        indexer.start()
        until = time.monotonic() + 60
        while engine.status().documents != 2 and time.monotonic() < until:
            time.sleep(0.02)
        result = search(engine, "celadon")
        assert result.hits[0].dense is None
        assert "words only" in result.notices[0]
        (tmp_path / "empty").mkdir()
        assert engine.index_root(str(tmp_path / "empty"), reporter=recorder).notices == ()
        with pytest.raises(ModelLoading):
            ask(engine, "celadon")
        release.set()
        indexer.join(20)
        assert not indexer.is_alive()
        assert search(engine, "celadon").notices == ()
        assert ask(engine, "celadon iron", threshold=0.0).verdict.known


def test_a_question_that_no_folder_can_answer_does_not_wait_for_the_model(tmp_path: Path, docs: Path) -> None:
    release = threading.Event()

    def slow(_: LocatedModel) -> Encoder:
        release.wait(20)
        return HashingEncoder()

    with running_engine(tmp_path / "index", load=slow, model_wait_s=60.0) as engine:
        with pytest.raises(UsageError, match="No folder is indexed yet"):
            ask(engine, "celadon")
        (tmp_path / "empty").mkdir()
        engine.index_root(str(tmp_path / "empty"), reporter=Recorder())
        with pytest.raises(UsageError, match="There is no namespace 'wiki'"):
            ask(engine, "celadon", scope=Scope(namespaces=("wiki",)))
        assert not engine.status().model_loaded
        release.set()


def test_without_a_model_words_are_searched_and_that_is_said(tmp_path: Path, docs: Path) -> None:
    def broken(_: LocatedModel) -> Encoder:
        raise ModelError("The model is damaged.", "reinstall")

    with running_engine(tmp_path / "index", load=broken) as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert report.files == 2
        assert "damaged" in report.notices[0]
        answer = ask(engine, "celadon iron oxide", threshold=0.0)
        assert "damaged" in answer.notices[0]
        with pytest.raises(ModelError, match=r"Words alone find no answer.*The model is damaged"):
            ask(engine, "Who won the football match yesterday?")
        assert engine.status().model_error == "The model is damaged."


class SlowBehind(HashingEncoder):
    """Takes its time on the thread that embeds in the background."""

    def encode(self, texts: Sequence[str]) -> Float32Array:
        if threading.current_thread().name == "embedder":
            time.sleep(0.3)
        return super().encode(texts)


def test_a_question_waits_for_the_few_vectors_that_a_killed_daemon_left_to_make(
    tmp_path: Path, docs: Path
) -> None:
    def broken(_: LocatedModel) -> Encoder:
        raise ModelError("The model is damaged.", "reinstall")

    (docs / "clay.md").write_text(
        "# Clay\n" + "".join(f"\n## Sort {n}\n\nClay {n} is grey.\n" for n in range(20))
    )
    with running_engine(tmp_path / "index", load=broken) as engine:
        index(engine, docs)
    with running_engine(tmp_path / "index", encoder=SlowBehind(), sync_budget_s=60.0) as engine:
        answer = ask(engine, "celadon iron", threshold=0.0)
        assert (answer.freshness.pending, answer.freshness.by_words) == (0, 0)
        assert engine.status().windows == engine.status().embedded_total > 20
    for n in range(60):
        (docs / f"more{n}.md").write_text(f"# More {n}\n\nMore of clay {n}.\n")
    with running_engine(tmp_path / "index", load=broken) as engine:
        index(engine, docs)
    with running_engine(tmp_path / "index", encoder=SlowBehind(), sync_budget_s=60.0) as engine:
        assert ask(engine, "celadon iron", threshold=0.0).freshness.by_words > 0, "for many it doesn't"


def test_another_model_embeds_everything_anew_and_never_mixes(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        windows = engine.status().windows
    other = HashingEncoder()
    other.name, other.fingerprint, other.dimension = "other", "other-1", 32
    with running_engine(tmp_path / "index", encoder=other) as engine:
        report = engine.index_root(str(docs), reporter=Recorder())
        assert report.files == 2
        until = time.monotonic() + 60
        while engine.status().pending_windows and time.monotonic() < until:
            time.sleep(0.02)
        assert engine.status().windows == windows
        assert engine.status().embedded_total == windows
        assert search(engine, "celadon").hits[0].chunk.metadata.relative_path == "glaze.md"
    same = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=same) as engine:
        assert engine.status().windows == windows
        assert engine.status().embedded_total == 0, "the first model's vectors were kept"


def test_a_cancelled_index_goes_on_and_says_so(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        recorder = Recorder()
        recorder.gone = True
        with pytest.raises(Cancelled, match="background"):
            engine.index_root(str(docs), reporter=recorder)
        assert engine.index_root(str(docs), reporter=Recorder()).files == 2


def test_two_index_runs_at_once_do_the_work_once(tmp_path: Path, docs: Path) -> None:
    encoder = HashingEncoder()
    with running_engine(tmp_path / "index", encoder=encoder) as engine:
        reports: list[object] = []
        threads = [
            threading.Thread(target=lambda: reports.append(engine.index_root(str(docs), reporter=Recorder())))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(reports) == 4
        assert len(encoder.encoded) == len(set(encoder.encoded)) == engine.status().windows


def test_an_empty_folder_is_fine(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    with running_engine(tmp_path / "index") as engine:
        report = engine.index_root(str(tmp_path / "docs"), reporter=Recorder())
    assert (report.files, report.chunks) == (0, 0)
    assert ".md" in report.suffixes


@pytest.mark.parametrize(("include", "exclude"), [(("*.pdf",), ()), ((), ("*.md",))])
def test_rules_that_leave_out_every_document_remove_them(
    tmp_path: Path, docs: Path, include: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        report = engine.index_root(str(docs), reporter=Recorder(), include=include, exclude=exclude)
        assert (report.files, report.removed, report.notices) == (0, 2, ())
        assert engine.roots()[0].state is RootState.OK
        assert found_paths(engine, "celadon") == []
        assert engine.index_root(str(docs), reporter=Recorder()).new == 2
        assert "glaze.md" in found_paths(engine, "celadon")


def test_indexing_a_folder_whose_documents_vanished_says_that_they_are_left_out(
    tmp_path: Path, docs: Path
) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        for document in docs.iterdir():
            document.unlink()
        assert engine.index_root(str(docs), reporter=Recorder()).notices == (
            f"{docs} is emptied: its documents are left out.",
        )


def test_an_emptied_file_is_believed_only_after_a_while(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        (docs / "glaze.md").write_text("")
        result = engine.search(SearchRequest("celadon"), Recorder())
        assert result.freshness.pending == 1
        assert result.freshness.pending_paths == ("glaze.md",)
        os.utime(docs / "glaze.md", (1, 1))
        assert "glaze.md" not in found_paths(engine, "celadon")


def test_names_that_are_not_utf8_are_indexed_and_printed_safely(tmp_path: Path, docs: Path) -> None:
    (docs / os.fsdecode(b"caf\xe9.md")).write_text("# Latte\n\nFoam the milk.\n")
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        answer = ask(engine, "foam the milk", threshold=0.0)
    assert answer.citations[0].doc_title == "caf\\xe9"
    assert "[caf\\xe9 > Latte]" in answer.text


def test_confidence_in_one_namespace_does_not_depend_on_the_others(tmp_path: Path, docs: Path) -> None:
    query = "how hot should I fire the kiln"
    scope = Scope(("pottery",))
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs, namespace="pottery")
        alone = search(engine, query, scope=scope)
        other = tmp_path / "other"
        other.mkdir()
        for number in range(20):
            (other / f"{number}.md").write_text(f"# Page {number}\n\nFire the kiln hot, number {number}.\n")
        index(engine, other, namespace="noise")
        together = search(engine, query, scope=scope)
    assert together.verdict == alone.verdict
    assert [hit.chunk.text for hit in together.hits] == [hit.chunk.text for hit in alone.hits]


def test_a_path_that_matches_nothing_is_told_and_not_an_unknown(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        index(engine, docs)
        with pytest.raises(UsageError, match=r"No document's path matches 'nowhere/\*'"):
            search(engine, "kiln", scope=Scope(paths=("nowhere/*",)))
        assert search(engine, "kiln", scope=Scope(paths=("nowhere/*", "*.md"))).hits

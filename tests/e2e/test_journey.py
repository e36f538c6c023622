"""The whole path with the real client, socket, daemon and model: index, ask, edit, delete, stop, start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home
from support.llm_servers import AnthropicDialect, Dialect, OllamaDialect, OpenAIDialect, serving
from support.shared import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("journey")]

FIXTURES = REPOSITORY / "tests" / "fixtures" / "docs"
PLACE = {
    "doc_title", "section_heading", "heading_path", "path", "relative_path", "namespace", "line_start",
    "line_end", "page",
}  # fmt: skip
REFUSAL = "I don't have enough information to answer '{}'. The documentation may not cover this topic."


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Home]:
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        yield home
        home.run("stop")


@pytest.fixture
def home(shared_home: Home) -> Home:
    """The one daemon of this module, with its documents as they were."""
    docs = shared_home.path / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    shutil.copytree(FIXTURES, docs)
    done = shared_home.run("index", "docs")
    assert done.code == 0, done.err
    return shared_home


def ask(home: Home, question: str, *options: str) -> dict[str, object]:
    done = home.run("ask", "--json", *options, "--", question)
    assert done.code == 0, done.out + done.err
    result: dict[str, object] = json.loads(done.out)
    return result


def status(home: Home) -> dict[str, object]:
    result: dict[str, object] = json.loads(home.run("status", "--json").out)
    return result


def test_an_answer_is_printed_with_its_sources(home: Home) -> None:
    done = home.run("ask", "How do I configure the database connection?")
    assert done.code == 0
    answer, _, sources = done.out.partition("\n\nSources:\n")
    assert "DATABASE_URL" in answer
    assert "[setup_guide > Database Config]" in answer
    assert sources.startswith("1. [setup_guide > Database Config]  setup_guide.md:")


def test_the_json_shapes_are_the_promised_ones(home: Home) -> None:
    answer = ask(home, "How do I configure the database connection?")
    assert {
        "query", "answer", "citations", "known", "confidence", "top_score", "confidence_level", "needs_more",
        "missing_topics", "provider", "model", "freshness", "timings_ms",
    } <= answer.keys()  # fmt: skip
    assert answer["known"] is True
    assert answer["provider"] == "extractive"
    for citation in answer["citations"]:  # type: ignore[attr-defined]
        assert PLACE | {"key", "score", "preview"} <= citation.keys()
        lines = (home.path / "docs" / citation["relative_path"]).read_text().splitlines()
        cited = "\n".join(lines[citation["line_start"] - 1 : citation["line_end"]])
        assert citation["preview"].split("…")[0].split()[0] in cited
    hits = json.loads(home.run("search", "--json", "database").out)
    assert {"query", "hits", "freshness"} <= hits.keys()
    assert PLACE | {"text", "score", "scores"} <= hits["hits"][0].keys()
    assert {"dense", "lexical"} <= hits["hits"][0]["scores"].keys()
    assert {"generation", "pending"} <= hits["freshness"].keys()
    assert {
        "pid", "version", "protocol", "state", "model", "roots", "documents", "chunks", "windows",
        "embedded_total", "pending", "generation", "skipped", "errors", "memory_bytes", "uptime_s", "socket",
        "index_dir",
    } <= status(home).keys()  # fmt: skip
    report = json.loads(home.run("index", "--json", "docs").out)
    assert {
        "files", "new", "updated", "moved", "removed", "unchanged", "chunks", "windows_embedded", "skipped", "seconds",
    } <= report.keys()  # fmt: skip
    assert report["windows_embedded"] == 0


def test_a_question_the_documents_do_not_answer_is_refused(home: Home) -> None:
    question = "Who won the football world cup in 1998?"
    done = home.run("ask", question)
    assert done.code == 0
    assert done.out.splitlines()[0] == REFUSAL.format(question)
    assert "Sources:" not in done.out
    answer = ask(home, question)
    assert (answer["known"], answer["citations"], answer["confidence_level"]) == (False, [], "insufficient")


def test_save_and_ask_then_delete(home: Home) -> None:
    page = home.path / "docs" / "backup.md"
    for port in (7001, 7002):
        page.write_text(
            f"# Backup\n\n## Replication port\n\nThe replication server listens on port {port}.\n"
        )
        answer = ask(home, "which port does the replication server listen on?")
        assert str(port) in str(answer["answer"])
        assert answer["freshness"]["pending"] == 0  # type: ignore[index]
    page.unlink()
    answer = ask(home, "which port does the replication server listen on?")
    assert "7002" not in json.dumps(answer)


def test_changes_while_the_daemon_is_stopped_are_swept_up(home: Home) -> None:
    page = home.path / "docs" / "old.md"
    page.write_text("# Kiln\n\n## Firing\n\nFire the kiln at 1240 degrees.\n")
    ask(home, "how hot is the kiln fired?")
    assert home.run("stop").code == 0
    page.rename(home.path / "docs" / "new.md")
    (home.path / "docs" / "glaze.md").write_text("# Glaze\n\n## Celadon\n\nCeladon needs iron oxide.\n")
    answer = ask(home, "how hot is the kiln fired?")
    assert {citation["relative_path"] for citation in answer["citations"]} == {"new.md"}  # type: ignore[attr-defined]
    assert "iron" in str(ask(home, "what does celadon need?")["answer"])
    facts = status(home)
    assert facts["embedded_total"] == 2, "only the two sections of the new document cost an embedding"


def test_a_kill_loses_nothing(home: Home) -> None:
    os.kill(int(str(status(home)["pid"])), signal.SIGKILL)
    answer = ask(home, "How do I configure the database connection?")
    assert answer["known"] is True
    assert status(home)["embedded_total"] == 0


def test_a_source_is_shown_whole_by_its_number(home: Home) -> None:
    home.run("ask", "How do I configure the database connection?")
    done = home.run("section", "1")
    assert done.code == 0
    assert "## Database Config" in done.out
    assert home.run("section", "setup_guide > Database Config").out == done.out
    assert home.run("section", "setup_guide > Nothing").code == 2


def test_a_question_comes_from_stdin_and_may_start_with_dashes(home: Home) -> None:
    by_pipe = home.run("ask", "-", stdin=b"How do I configure the database connection?\n")
    assert "DATABASE_URL" in by_pipe.out
    assert home.run("search", "--", "--dry-run").code == 0


def test_a_root_is_forgotten(home: Home) -> None:
    other = home.path / "other"
    other.mkdir(exist_ok=True)
    (other / "zebra.md").write_text("# Zebra\n\n## Stripes\n\nZebras have black stripes.\n")
    assert home.run("index", "other", "--namespace", "animals").code == 0
    assert "zebra.md" in home.run("search", "zebra stripes", "--namespace", "animals").out
    assert "zebra.md" not in home.run("search", "zebra stripes", "--namespace", "default").out
    assert home.run("forget", "other").code == 0
    assert "zebra.md" not in home.run("search", "zebra stripes").out


def test_rebuild_keeps_the_vectors(home: Home) -> None:
    done = home.run("rebuild", "--json")
    assert done.code == 0
    assert json.loads(done.out)["windows_embedded"] == 0


@pytest.mark.parametrize(
    "dialect", [AnthropicDialect(), OpenAIDialect(), OllamaDialect()], ids=lambda d: d.name
)
def test_a_provider_answers_with_checked_citations(home: Home, dialect: Dialect) -> None:
    reply = dialect.answer("Set ", "DATABASE", "_URL [A", "]. Magic helps too [", "Z].")
    with serving(reply) as server:
        base = {
            "anthropic": {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-test-1"},
            "openai": {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test-1"},
            "ollama": {"OLLAMA_BASE_URL": server.url},
        }[dialect.name]
        env = {"LLM_PROVIDER": dialect.name, "LLM_MODEL": "test-model", **base}
        home.run("stop")
        try:
            done = home.run("ask", "How do I configure the database connection?", env=env)
            assert done.code == 0, done.err
            assert "Set DATABASE_URL [setup_guide > Database Config]. Magic helps too." in done.out
            assert len(server.requests) == 1
            refused = home.run("ask", "Who won the football world cup in 1998?", env=env)
            assert refused.out.startswith("I don't have enough information")
            assert len(server.requests) == 1, "a refusal costs no call"
        finally:
            home.run("stop")
    log = (home.state / "log" / "copilotd.log").read_text()
    assert "sk-test-1" not in log


def test_a_missing_key_is_named_and_searching_goes_on(home: Home) -> None:
    home.run("stop")
    env = {"LLM_PROVIDER": "anthropic", "LLM_MODEL": "m"}
    try:
        done = home.run("ask", "How do I configure the database connection?", env=env)
        assert done.code == 1
        assert "ANTHROPIC_API_KEY" in done.err
        assert home.run("search", "database").code == 0
        assert "DATABASE_URL" in home.run("ask", "--extractive", "How do I configure the database?").out
    finally:
        home.run("stop")


def test_sigterm_while_indexing_ends_in_time_and_the_work_goes_on_later(home: Home) -> None:
    many = home.path / "many"
    many.mkdir()
    for number in range(60):
        body = "\n\n".join(
            f"## Part {part}\n\nNumber {number} part {part} is about kilns." for part in range(3)
        )
        (many / f"{number}.md").write_text(f"# Page {number}\n\n{body}\n")
    indexing = subprocess.Popen(
        home.command("index", "many", "--namespace", "many"),
        env=home.env,
        cwd=home.path,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while int(str(status(home)["pending_windows"])) < 50 and time.monotonic() < until:
        time.sleep(0.1)
    pid = int(str(status(home)["pid"]))
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    while Path(f"/proc/{pid}").exists() and time.monotonic() - began < 10:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()
    indexing.wait(20)
    assert home.run("search", "number 7 part 3 kilns", "--namespace", "many").code == 0
    done = home.run("index", "many", "--namespace", "many", "--json")
    report = json.loads(done.out)
    assert (report["files"], report["chunks"]) == (60, 240)
    facts = status(home)
    assert (facts["pending"], facts["pending_windows"]) == (0, 0)
    home.run("forget", "many")


def test_skipped_files_are_named(home: Home) -> None:
    (home.path / "docs" / "scan.pdf").write_bytes(b"")
    (home.path / "docs" / "page.pdf").write_bytes(b"<html>not a pdf</html>")
    done = home.run("index", "docs")
    assert done.code == 0
    assert "2 skipped)" in done.out
    assert "scan.pdf: empty file" in done.out
    assert "page.pdf: not a PDF" in done.out
    assert "scan.pdf" in home.run("status").out


def test_pdf_23_and_24_a_line_of_a_pdf_answers_on_any_terminal(home: Home) -> None:
    for name in ("pdf23_one_line.pdf", "pdf24_private_use.pdf"):
        shutil.copy(REPOSITORY / "tests" / "fixtures" / "pdf" / name, home.path / "docs")
    assert home.run("index", "docs").code == 0
    answer = ask(home, "What is the answer about sixteen lamps?", "--threshold", "0")
    assert "sixteen lamps" in str(answer["answer"])
    assert answer["citations"][0]["page"] == answer["citations"][0]["page_end"] == 1  # type: ignore[index]
    done = home.run("search", "check the oil", env={"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.out.isascii()) == (0, True)
    assert "? Check the oil" in done.out
    assert "pdf24_private_use.pdf p. 1" in done.out


def test_an_empty_folder_and_wrong_ones(home: Home) -> None:
    (home.path / "empty").mkdir()
    done = home.run("index", "empty", "--namespace", "empty")
    assert (done.code, done.out.splitlines()[0]) == (
        0,
        f"No .md or .pdf files found in {home.path / 'empty'}.",
    )
    assert ".txt" in done.out
    assert home.run("index", "nowhere").code == 2
    assert home.run("index", "docs/setup_guide.md").code == 2
    assert home.run("index").code == 2
    assert home.run("ask", "").code == 2


def test_a_second_daemon_says_who_holds_the_index(home: Home) -> None:
    pid = status(home)["pid"]
    done = subprocess.run(
        [*home.command()[:2], "copilotd.cli"],
        env=home.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert str(pid) in done.stderr

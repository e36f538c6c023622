"""The `copilot` command as transcripts: what is typed, what is printed where, which exit code."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.client_home import Home, temporary_home
from support.scripted_daemon import Script, ScriptedDaemon, Speaker, failure, reply, until_gone

from copilot_client.cli import GROUPS, cli
from copilotd import wire
from copilotd.errors import (
    Busy,
    IndexLocked,
    IndexMissing,
    IndexTooNew,
    ModelLoading,
    ProviderAuth,
    RootNotFound,
    SectionNotFound,
    ShuttingDown,
)

PLACE = {
    "doc_title": "setup_guide",
    "section_heading": "Database Config",
    "heading_path": ["Setup", "Database Config"],
    "path": "/docs/setup_guide.md",
    "path_uri": "file:///docs/setup_guide.md",
    "relative_path": "setup_guide.md",
    "namespace": "default",
    "line_start": 12,
    "line_end": 18,
    "page": None,
}
SENTENCE = "Set DATABASE_URL to a postgres:// address. [setup_guide > Database Config]"
ANSWER: dict[str, Any] = {
    "query": "how",
    "answer": SENTENCE,
    "known": True,
    "top_score": 0.741,
    "citations": [{"key": "A", "score": 0.83, "preview": "Set", **PLACE}],
    "freshness": {"generation": 3, "pending": 0, "pending_paths": []},
    "timings_ms": {"total": 9.0},
}
PRINTED = f"{SENTENCE}\n\nSources:\n1. [setup_guide > Database Config]  setup_guide.md:12-18  0.83\n"
REFUSAL = "I don't have enough information to answer 'how'. The documentation may not cover this topic."
STATUS = {
    "pid": 1,
    "version": "0.1.0",
    "state": "ready",
    "model": {"name": "mini", "loaded": True},
    "roots": [],
}
REPORT = {"files": 4, "chunks": 23, "new": 2, "unchanged": 2, "skipped": [], "suffixes": [".md", ".pdf"]}


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home() as home:
        yield home


def scripted(home: Home, **scripts: Script) -> ScriptedDaemon:
    return ScriptedDaemon(home.socket, scripts)


# ------------------------------------------------------------------------------------------- ask


def test_ask_prints_answer_empty_line_and_sources(home: Home) -> None:
    with scripted(home, ask=reply(ANSWER)) as daemon:
        done = home.run("ask", "how", "do", "I", "set", "it")
    assert (done.code, done.out, done.err) == (0, PRINTED, "")
    assert daemon.request("ask").params == {"query": "how do I set it", "stream": True, "conversation": "new"}


@pytest.mark.parametrize(
    "pieces",
    [
        [SENTENCE],
        [SENTENCE[:9], SENTENCE[9:30], SENTENCE[30:]],
        list(SENTENCE),
        [SENTENCE[:20]],
        [SENTENCE, "\n", "\n"],
        ["Set ", "", "DATABASE_URL ", "to"],
    ],
)
def test_a_streamed_answer_is_printed_once(home: Home, pieces: list[str]) -> None:
    with scripted(home, ask=reply(ANSWER, deltas=pieces)):
        assert home.run("ask", "how").out == PRINTED


def test_pieces_appear_before_the_answer_is_whole(home: Home) -> None:
    def script(request: wire.Request, speaker: Speaker) -> None:
        speaker.delta("Set ")
        speaker.gone.wait(10)

    with scripted(home, ask=script):
        process = subprocess.Popen(home.command("ask", "how"), env=home.env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as out:
            assert out.read(3) == b"Set"
            process.kill()
        process.wait()


def test_an_answer_the_final_check_changed_is_shown_whole(home: Home) -> None:
    with scripted(home, ask=reply(ANSWER, deltas=["Set something else"])):
        done = home.run("ask", "how")
    assert done.out == "Set something else\n" + PRINTED
    assert "changed by the final check" in done.err


def test_a_refusal_is_the_sentence_alone(home: Home) -> None:
    refusal = {**ANSWER, "answer": REFUSAL, "known": False, "citations": []}
    with scripted(home, ask=reply(refusal)):
        done = home.run("ask", "how")
    assert (done.code, done.out, done.err) == (0, REFUSAL + "\n", "")
    with scripted(home, ask=reply({**refusal, "closest": [PLACE]})):
        done = home.run("ask", "how", "--stats")
    assert done.out == (
        f"{REFUSAL}\n\nClosest sections (not an answer):\n1. [setup_guide > Database Config]  setup_guide.md:12-18\n"
        "\nNot answered | top_score=0.74\nTimings: total 9.0 ms\n"
    )


def test_stats_and_what_is_said_beside_the_answer(home: Home) -> None:
    beside = {
        "notices": ["The answer was cut off."],
        "missing_topics": ["Windows"],
        "freshness": {"pending": 1, "pending_paths": ["a.md"]},
    }
    with scripted(home, ask=reply({**ANSWER, **beside})):
        done = home.run("ask", "how", "--stats")
    assert done.out == PRINTED + (
        "\nAnswer generated | top_score=0.74 | citations=1 | sources: [setup_guide > Database Config]\n"
        "Timings: total 9.0 ms\n"
    )
    assert done.err == (
        "The documentation may not cover: Windows.\nThe answer was cut off.\n"
        "Not yet in this answer: 1 changed file (a.md).\n"
    )


def test_all_options_of_ask_reach_the_daemon(home: Home) -> None:
    with scripted(home, ask=reply(ANSWER, deltas=["ignored"])) as daemon:
        done = home.run(
            "ask", "how", "-n", "a", "--namespace", "b", "--path", "x/*.md", "--top-k", "3", "--threshold", "0.4",
            "--extractive", "--no-stream",
        )  # fmt: skip
    assert done.out == PRINTED
    assert daemon.request("ask").params == {
        "query": "how", "namespaces": ["a", "b"], "paths": ["x/*.md"], "top_k": 3, "threshold": 0.4,
        "extractive": True, "stream": False, "conversation": "new",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "stdin", "query"),
    [
        (("-",), "  wie geht dás?\n".encode(), "wie geht dás?"),
        (("-",), b"broken \xff utf-8", "broken \N{REPLACEMENT CHARACTER} utf-8"),
        (("--", "--dry-run", "what?"), b"", "--dry-run what?"),
        (("--", "--json"), b"", "--json"),
        (("what is", "--no-stream", "this"), b"", "what is this"),
        (("a", "-"), b"", "a -"),
    ],
)
def test_where_a_question_may_come_from(
    home: Home, arguments: tuple[str, ...], stdin: bytes, query: str
) -> None:
    with scripted(home, ask=reply(ANSWER)) as daemon:
        done = home.run("ask", *arguments, stdin=stdin)
    assert done.code == 0
    assert daemon.request("ask").params["query"] == query


def test_ask_json_is_the_daemons_object_on_one_line(home: Home) -> None:
    with scripted(home, ask=reply({**ANSWER, "answer": "日本 \x1b[2J\u202e"}, deltas=["x"])) as daemon:
        done = home.run("ask", "how", "--json")
    assert done.out.count("\n") == 1
    assert "日本 \\u001b[2J\\u202e" in done.out
    assert json.loads(done.out) == {**ANSWER, "answer": "日本 \x1b[2J\u202e"}
    assert daemon.request("ask").params["stream"] is False


def test_what_ask_waits_for_is_told_on_stderr(home: Home) -> None:
    progress = [
        {"stage": "sync", "message": "Stale index detected: a.md changed. Re-indexing."},
        {"stage": "answer", "message": "passing"},
    ]
    with scripted(home, ask=reply(ANSWER, progress=progress)):
        done = home.run("ask", "how")
    assert (done.out, done.err) == (PRINTED, "Stale index detected: a.md changed. Re-indexing.\n")


def test_an_error_in_the_middle_ends_the_line_first(home: Home) -> None:
    def script(request: wire.Request, speaker: Speaker) -> None:
        speaker.delta("Set ")
        speaker.fail(ProviderAuth("The key was rejected.", "Check ANTHROPIC_API_KEY in /c/.env"))

    with scripted(home, ask=script):
        done = home.run("ask", "how")
    assert (done.code, done.out) == (1, "Set\n")
    assert done.err == "Error: The key was rejected.\n  Next: Check ANTHROPIC_API_KEY in /c/.env\n"


# -------------------------------------------------------------------- exit codes, errors as JSON


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProviderAuth("no"), 1),
        (ModelLoading("no"), 1),
        (IndexMissing(), 1),
        (RootNotFound("no"), 2),
        (SectionNotFound("no"), 2),
        (Busy("no"), 3),
        (ShuttingDown("no"), 3),
        (IndexLocked("no"), 3),
        (IndexTooNew("no"), 3),
    ],
)
def test_exit_codes(home: Home, error: Any, code: int) -> None:
    with scripted(home, search=failure(error)):
        assert home.run("search", "x", "--no-start").code == code
        done = home.run("search", "x", "--no-start", "--json")
    assert (done.code, done.err) == (code, "")
    assert json.loads(done.out) == {
        "error": {"code": error.code, "message": error.message, "hint": error.hint}
    }


@pytest.mark.parametrize(
    "arguments",
    [("ask", "x", "--no-start"), ("search", "x", "--no-start"), ("roots", "--no-start"), ("status",)],
)
def test_without_a_daemon(home: Home, arguments: tuple[str, ...]) -> None:
    done = home.run(*arguments)
    assert (done.code, done.out) == (3, "")
    assert (
        done.err == f"Error: The daemon is not running (no socket at {home.socket}).\n  Next: copilot start\n"
    )
    done = home.run(*arguments, "--json")
    assert done.code == 3
    assert json.loads(done.out)["error"]["code"] == "not_running"


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask",),
        ("ask", " "),
        ("index",),
        ("nonsense",),
        ("ask", "x", "--top-k", "0"),
        ("ask", "x", "--threshold", "2"),
    ],
)
def test_usage_errors(home: Home, arguments: tuple[str, ...]) -> None:
    done = home.run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err
    done = home.run(*arguments, "--json")
    assert done.code == 2
    assert json.loads(done.out)["error"]["code"] == "usage"
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("sttaus",), "Did you mean status?"),
        (("serach", "x"), "Did you mean search?"),
        (("aks", "x"), "Did you mean ask?"),
        (("search", ""), "Next: copilot search restore"),
        (("index", ".", "--chunk-size", "5"), "100<=x<=100000"),
        (("index", ".", "--include", ""), "A glob is empty."),
        (("ask", "x", "--top-k", "abc"), "'abc' is not a valid whole number."),
        (("ask", "x", "--threshold", "abc"), "'abc' is not a valid number."),
        (("model", "pul"), "No such command"),
        (("model", "pull"), "Missing argument 'NAME'"),
        (("ask", "--dry-run", "what", "is", "it"), "copilot ask -- --dry-run …"),
        (("search", "-q"), "copilot search -- -q …"),
    ],
)
def test_a_slip_of_the_keyboard_is_told_what_was_meant(
    home: Home, arguments: tuple[str, ...], hint: str
) -> None:
    done = home.run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err


@pytest.mark.parametrize("arguments", [("list",), ("verify",), ("verify", "all-MiniLM-L6-v2")])
def test_the_models_on_this_machine_are_listed_and_verified(home: Home, arguments: tuple[str, ...]) -> None:
    done = home.run("model", *arguments, "--json")
    assert (done.code, json.loads(done.out)["models"][0]["name"]) == (0, "all-MiniLM-L6-v2")
    shown = home.run("model", *arguments)
    assert (shown.code, "all-MiniLM-L6-v2" in shown.out) == (0, True)


def test_a_model_that_is_not_here_is_an_error_with_what_helps(home: Home) -> None:
    done = home.run("model", "verify", "--", "-x/y z")
    assert (done.code, done.out) == (1, "")
    assert "Next: copilot model pull '-x/y z'" in done.err


def test_a_command_to_copy_is_quoted_for_the_shell(home: Home) -> None:
    folder = home.path / "my 'old' docs"
    folder.mkdir()
    (folder / "a.md").touch()
    said = home.run("index", str(folder / "a.md")).err
    _, _, command = said.rstrip("\n").partition("Next: ")
    assert shlex.split(command) == ["copilot", "index", str(folder)]


@pytest.mark.parametrize("group", ["service", "config", "conversations", "model"])
def test_a_group_lists_its_commands_in_whole_sentences(home: Home, group: str) -> None:
    done = home.run(group, "--help")
    assert done.code == 0
    assert not [line for line in done.out.splitlines() if line.startswith("  ") and line.endswith("...")]


# ---------------------------------------------------------------------------------------- search


def test_search(home: Home) -> None:
    hits = [{**PLACE, "text": "Database Config\nSet DATABASE_URL.\n", "score": 0.5, "scores": {}}]
    result = {"query": "url", "hits": hits, "corrections": {"databse": "database"}}
    with scripted(home, search=reply(result)) as daemon:
        done = home.run("search", "data", "url", "-n", "a", "--top-k", "2")
        assert json.loads(home.run("search", "url", "--json").out) == result
    assert (
        done.out == "1. [setup_guide > Database Config]  setup_guide.md:12-18  0.50\n   Set DATABASE_URL.\n"
    )
    assert done.err == "Searched for 'database' instead of 'databse'.\n"
    params = next(request.params for request in daemon.requests if request.method == "search")
    assert params == {"query": "data url", "namespaces": ["a"], "top_k": 2}


# ----------------------------------------------------------------------------------------- index


def test_index_ends_with_the_seeds_line_and_the_skipped_files(home: Home) -> None:
    docs = home.path / "docs"
    docs.mkdir()
    report = {**REPORT, "skipped": [{"path": "b.pdf", "reason": "encrypted"}]}
    progress = [{"stage": "embed", "files_done": 1, "files_total": 4}]
    with scripted(home, index=reply(report, progress=progress)) as daemon:
        done = home.run(
            "index", "docs", "-n", "api", "--include", "*.md", "--include", "*.pdf", "--exclude", "old/",
            "--chunk-size", "900", "--chunk-overlap", "90",
        )  # fmt: skip
        assert json.loads(home.run("index", str(docs), "--json").out) == report
    assert done.out == (
        "Indexed 23 chunks from 4 files (2 new, 2 unchanged, 1 skipped)\nSkipped b.pdf: encrypted\n"
    )
    assert (done.code, done.err) == (0, "")
    params = next(request.params for request in daemon.requests if request.method == "index")
    assert params == {
        "path": str(docs), "namespace": "api", "include": ["*.md", "*.pdf"], "exclude": ["old/"], "chunk_size": 900,
        "chunk_overlap": 90,
    }  # fmt: skip


def test_index_without_documents(home: Home) -> None:
    empty = {
        "files": 0,
        "chunks": 0,
        "new": 0,
        "unchanged": 0,
        "skipped": [],
        "suffixes": [".md", ".pdf", ".txt"],
    }
    with scripted(home, index=reply(empty)):
        done = home.run("index", str(home.path / "h" / ".."), "--yes")
    assert done.code == 0
    assert done.out == f"No .md or .pdf files found in {home.path}.\nSupported: .md .pdf .txt\n"


def test_index_keeps_a_symlink_as_it_was_named(home: Home) -> None:
    (home.path / "real").mkdir()
    (home.path / "link").symlink_to("real")
    with scripted(home, index=reply(REPORT)) as daemon:
        home.run("index", "link")
    assert daemon.request("index").params["path"] == str(home.path / "link")


def test_index_of_what_is_no_folder(home: Home) -> None:
    file = home.path / "a.md"
    file.write_text("x")
    done = home.run("index", "a.md")
    assert (done.code, done.err) == (
        2, f"Error: {file} is a file, not a folder.\n  Next: copilot index {home.path}\n"
    )  # fmt: skip
    done = home.run("index", "none")
    assert (done.code, done.err.splitlines()[0]) == (2, f"Error: There is no folder {home.path}/none.")


@pytest.mark.parametrize("directory", ["~", "/", "."])
def test_a_whole_home_folder_is_not_indexed_by_accident(home: Home, directory: str) -> None:
    with scripted(home, index=reply(REPORT)) as daemon:
        done = home.run("index", directory, cwd=home.path / "h")
        assert done.code == 2
        assert "home folder" in done.err
        assert "--yes" in done.err
        assert daemon.requests == []
        assert home.run("index", directory, "--yes", cwd=home.path / "h").code == 0


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 130)])
def test_a_terminal_is_asked_first(home: Home, typed: bytes, code: int) -> None:
    with scripted(home, index=reply(REPORT)) as daemon:
        done = on_terminal(home, "index", "~", typed=typed)
    assert done.code == code
    assert "Index it? [y/N]" in done.shown
    assert bool(daemon.requests) is (code == 0)


def test_ctrl_c_on_index_leaves_the_daemon_at_work(home: Home) -> None:
    with scripted(home, index=until_gone):
        process = subprocess.Popen(
            home.command("index", str(home.path / "s")),
            env=home.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        interrupt_when_busy(process, home)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"goes on indexing in the background" in err
    assert b"Traceback" not in err


def test_ctrl_c_on_ask_cancels_quietly(home: Home) -> None:
    def script(request: wire.Request, speaker: Speaker) -> None:
        speaker.delta("Set ")
        until_gone(request, speaker)

    with scripted(home, ask=script) as daemon:
        process = subprocess.Popen(
            home.command("ask", "x"), env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.read(3) == b"Set"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        daemon.await_notification("cancel")
    assert (process.returncode, out, err.strip()) == (130, b"\n", b"")


def interrupt_when_busy(process: subprocess.Popen[bytes], home: Home, seconds: float = 60.0) -> None:
    """Sends Ctrl-C once the request has surely been sent."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        # The client sleeps in recv() when it has nothing left to do but wait.
        with contextlib.suppress(OSError):
            if (
                Path(f"/proc/{process.pid}/wchan").exists()
                and Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "S"
            ):
                break
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)


# -------------------------------------------------------------------------- roots, section, others


def test_roots_forget_rebuild(home: Home) -> None:
    root = {
        "path": "/d",
        "namespace": "default",
        "documents": 2,
        "chunks": 9,
        "watch": "events",
        "state": "ok",
    }
    with scripted(
        home,
        roots=reply({"roots": [root]}),
        forget=reply({"forgotten": [{"path": "/d", "namespace": "default", "documents": 2}]}),
        rebuild=reply(REPORT),
    ) as daemon:
        assert home.run("roots").out == "/d  default  2 documents, 9 chunks  events\n"
        assert json.loads(home.run("roots", "--json").out) == {"roots": [root]}
        assert home.run("forget", "d", "-n", "api").out.startswith("Forgot /d (default): 2 documents.")
        assert (
            home.run("rebuild", "--fresh-vectors").out
            == "Indexed 23 chunks from 4 files (2 new, 2 unchanged)\n"
        )
    assert daemon.request("forget").params == {"path": str(home.path / "d"), "namespace": "api"}
    assert daemon.request("rebuild").params == {"fresh_vectors": True}


def test_section_by_the_number_of_a_source(home: Home) -> None:
    second = {
        **PLACE,
        "path": "/docs/\\xff.md",
        "path_uri": "file:///docs/%FF.md",
        "namespace": "api",
        "line_start": 3,
    }
    two = {**ANSWER, "citations": [*ANSWER["citations"], {"key": "B", "score": 0.5, **second}]}
    with scripted(
        home, ask=reply(two), section=reply({**PLACE, "text": "## Database Config\n\nSet it.\n"})
    ) as daemon:
        home.run("ask", "how")
        done = home.run("section", "2")
        ref = daemon.request("section").params
        missing = home.run("section", "3")
    assert (
        done.out == "[setup_guide > Database Config]  setup_guide.md:12-18\n\n## Database Config\n\nSet it.\n"
    )
    assert ref == {"ref": "/docs/\udcff.md:3", "namespace": "api"}
    assert (missing.code, missing.out) == (2, "")
    assert "The last answer had 2 numbered sources." in missing.err
    remembered = home.state / "last_answer.json"
    assert stat.S_IMODE(remembered.stat().st_mode) == 0o600
    assert "how" not in remembered.read_text()


@pytest.mark.parametrize(
    ("reference", "ref"),
    [
        ("guide.md", "guide.md"),
        ("sub/guide.md:12-18", "sub/guide.md:12-18"),
        ("sub/guide.pdf p. 3", "sub/guide.pdf p. 3"),
        ("here.md:4", "{home}/here.md:4"),
        ("setup_guide > Database Config", "setup_guide > Database Config"),
        ("[setup_guide > Database Config]", "setup_guide > Database Config"),
        ("a > Step: 2", "a > Step: 2"),
    ],
)
def test_references(home: Home, reference: str, ref: str) -> None:
    (home.path / "here.md").write_text("x")
    with scripted(home, section=reply({**PLACE, "text": "x"})) as daemon:
        home.run("section", reference)
    assert daemon.request("section").params == {"ref": ref.format(home=home.path)}


def test_section_without_an_answer_before(home: Home) -> None:
    done = home.run("section", "1")
    assert done.code == 2
    assert "There is no last answer." in done.err


@pytest.mark.parametrize("stored", [b"", b"[]", b'{"sources": 3}', b"\xff", b'{"sources": [7]}'])
def test_a_damaged_memory_of_the_last_answer_is_none(home: Home, stored: bytes) -> None:
    (home.state / "last_answer.json").write_bytes(stored)
    assert "There is no last answer." in home.run("section", "1").err


def test_logs(home: Home) -> None:
    none = home.run("logs")
    assert none.code == 1
    assert "There is no log yet" in none.err
    log = home.state / "log" / "copilotd.log"
    log.parent.mkdir()
    log.write_bytes(b"one\ntwo \x1b[2Jclear\n\xffthree\n")
    assert home.run("logs", "-n", "2").out == "two [2Jclear\n\N{REPLACEMENT CHARACTER}three\n"
    follower = subprocess.Popen(
        home.command("logs", "-f"), env=home.env, cwd=home.path, stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    shown = [follower.stdout.readline() for _ in range(3)]
    assert shown[0] == "one\n"
    with log.open("a") as file:
        file.write("four\n")
    assert follower.stdout.readline() == "four\n"
    log.write_text("anew\n")
    assert follower.stdout.readline() == "anew\n"
    follower.terminate()
    follower.communicate(timeout=60)


def test_status(home: Home) -> None:
    with scripted(home, status=reply(STATUS)):
        done = home.run("status")
        assert json.loads(home.run("status", "--json").out) == STATUS
    assert done.code == 0
    assert done.out.startswith("Daemon    ready, pid 1, version 0.1.0\n")


FINDING = {"kind": "text", "path": "/d/a.md", "detail": "the stored text is\x1b[31m damaged"}


@pytest.mark.parametrize(
    ("arguments", "report", "code", "last"),
    [
        ((), {"clean": True, "findings": []}, 0, "3 documents and 9 vectors checked: all is well."),
        ((), {"clean": False, "findings": [FINDING]}, 1, "Next: copilot check --repair"),
        (
            ("--repair",),
            {"clean": False, "repaired": True, "findings": [FINDING]},
            0,
            "3 documents and 9 vectors checked: everything found was mended.",
        ),
    ],
)
def test_check_tells_each_finding_and_whether_it_was_mended(
    home: Home, arguments: tuple[str, ...], report: dict[str, object], code: int, last: str
) -> None:
    whole = {"repaired": False, "documents": 3, "windows": 9, "seconds": 0.1, **report}
    with scripted(home, check=reply(whole)) as daemon:
        done = home.run("check", *arguments)
        as_json = home.run("check", *arguments, "--json")
    assert (done.code, done.out.splitlines()[-1]) == (code, last)
    assert ("text: /d/a.md: the stored text is" in done.out) == bool(report["findings"])
    assert "\x1b" not in done.out
    assert (as_json.code, json.loads(as_json.out)) == (code, whole)
    assert daemon.request("check").params == ({"repair": True} if arguments else {})


def test_calibrate_says_what_it_was_fitted_on(home: Home) -> None:
    report = {"model": "f00", "questions": 80, "auroc": 0.873}
    with scripted(home, calibrate=reply(report)):
        done = home.run("calibrate")
        as_json = home.run("calibrate", "--json")
    assert (done.code, done.out) == (
        0,
        "Fitted on 80 generated questions; it tells them from near misses in 87% of pairs.\n",
    )
    assert json.loads(as_json.out) == report


def test_a_folder_without_notices_can_be_polled(home: Home) -> None:
    (home.path / "share").mkdir()
    with scripted(home, index=reply({"files": 0, "chunks": 0})) as daemon:
        home.run("index", "share", "--poll")
    assert daemon.request("index").params["poll"] is True


def test_stop_waits_until_the_daemon_is_gone(home: Home) -> None:
    with scripted(home) as daemon:
        done = home.run("stop")
        assert daemon.stopped.is_set()
    assert (done.code, done.out) == (0, f"The daemon (pid {os.getpid()}) has stopped.\n")
    done = home.run("stop")
    assert (done.code, done.out) == (0, "The daemon is not running.\n")
    assert json.loads(home.run("stop", "--json").out) == {"stopped": False}


def test_start_of_a_daemon_that_runs(home: Home) -> None:
    with scripted(home):
        done = home.run("start")
        said = json.loads(home.run("start", "--json").out)
    assert done.out == f"The daemon already runs (pid {os.getpid()}, version 0.1.0).\n"
    assert said == {
        "server": "copilotd", "version": "0.1.0", "protocol": 1, "pid": os.getpid(), "state": "ready", "started": False,
    }  # fmt: skip


# ------------------------------------------------------------------------------- help and version


def test_every_command_has_help_with_an_example() -> None:
    runner = CliRunner()
    overview = runner.invoke(cli, [])
    assert overview.exit_code == 0
    for title, commands in GROUPS:
        assert f"{title}:" in overview.output
        for name, _, summary in commands:
            assert summary in overview.output
            shown = runner.invoke(cli, [name, "--help"])
            assert shown.exit_code == 0
            assert "Example" in shown.output
            assert f"copilot {name}" in shown.output


def test_version(home: Home) -> None:
    assert home.run("--version").out == "copilot 0.1.0\n"


# ------------------------------------------------------------------- terminals, pipes, encodings


class Screen:
    def __init__(self, code: int, shown: str) -> None:
        self.code = code
        self.shown = shown


def on_terminal(home: Home, *arguments: str, typed: bytes = b"", env: dict[str, str] | None = None) -> Screen:
    """Runs a command on a pseudo-terminal and returns what it showed there."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        home.command(*arguments), env={**home.env, "TERM": "xterm", "COLUMNS": "80", **(env or {})}, cwd=home.path,
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    os.write(controller, typed)
    shown = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([controller], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(controller, 65536)
        except OSError:
            break  # EIO: the last holder of the terminal is gone
        if not data:
            break
        shown += data
    process.wait(10)
    os.close(controller)
    return Screen(process.returncode, shown.decode().replace("\r\n", "\n"))


LINK = "\x1b]8;;file:///docs/setup_guide.md\x1b\\"


def test_on_a_terminal_sources_are_links(home: Home) -> None:
    with scripted(home, ask=reply(ANSWER, deltas=[SENTENCE[:10]])):
        screen = on_terminal(home, "ask", "how")
    assert screen.code == 0
    assert screen.shown.startswith(
        SENTENCE + "\n\nSources:\n1. \x1b[1m[setup_guide > Database Config]\x1b[0m  "
    )
    assert LINK in screen.shown


def test_no_color_leaves_links_and_dumb_leaves_nothing(home: Home) -> None:
    with scripted(home, ask=reply(ANSWER)):
        plain = on_terminal(home, "ask", "how", env={"NO_COLOR": "1"}).shown
        dumb = on_terminal(home, "ask", "how", env={"TERM": "dumb"}).shown
    assert LINK in plain
    assert "\x1b[" not in plain
    assert dumb == PRINTED


def test_the_bar_is_drawn_on_a_terminal_and_gone_at_the_end(home: Home) -> None:
    (home.path / "docs").mkdir()
    progress = [
        {
            "stage": "embed",
            "files_done": 1,
            "files_total": 4,
            "windows_done": 2,
            "windows_total": 4,
            "eta_s": 3,
        }
    ]
    with scripted(home, index=reply(REPORT, progress=progress)):
        screen = on_terminal(home, "index", "docs")
    assert "\r[############------------]  1/4 files  2/4 windows  3 s left" in screen.shown
    assert screen.shown.split("\r")[-1] == "Indexed 23 chunks from 4 files (2 new, 2 unchanged)\n"


def test_json_on_a_terminal_is_indented(home: Home) -> None:
    with scripted(home, status=reply(STATUS)):
        shown = on_terminal(home, "status", "--json").shown
    assert json.loads(shown) == STATUS
    assert '\n  "pid": 1' in shown


@pytest.mark.parametrize(
    "env", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
def test_an_ascii_terminal_gets_replacements(home: Home, env: dict[str, str]) -> None:
    bullet = {**ANSWER, "answer": "\uf0b7 check the öil", "notices": ["schön"]}
    with scripted(home, ask=reply(bullet, deltas=["\uf0b7 check "])):
        done = home.run("ask", "how", env=env)
        assert (done.code, done.out.splitlines()[0]) == (0, "? check the ?il")
        assert json.loads(home.run("ask", "how", "--json", env=env).out)["answer"] == bullet["answer"]


@pytest.mark.parametrize("arguments", ["status", "status --json", "search x"])
def test_a_reader_that_goes_away_is_no_error(home: Home, arguments: str) -> None:
    hits = [{**PLACE, "text": "x" * 500, "score": 0.5}] * 2000
    roots = [{"path": "/d" + "x" * 200, "namespace": "n"}] * 2000
    with scripted(home, status=reply({**STATUS, "roots": roots}), search=reply({"query": "x", "hits": hits})):
        shell = f'{shlex.join(home.command(*arguments.split()))} | head -c 1; echo " ${{PIPESTATUS[0]}}"'
        done = subprocess.run(
            ["bash", "-c", shell], env=home.env, capture_output=True, text=True, timeout=60, check=True
        )
    assert done.stderr == ""
    assert done.stdout.split()[-1] == "141"


def test_a_closed_stdout(home: Home) -> None:
    with scripted(home, status=reply(STATUS)):
        shell = f"{shlex.join(home.command('status'))} >&-"
        done = subprocess.run(
            ["bash", "-c", shell], env=home.env, capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(home: Home) -> None:
    with scripted(home, status=reply(STATUS)):
        shell = f"{shlex.join(home.command('status'))} > /dev/full"
        done = subprocess.run(
            ["bash", "-c", shell], env=home.env, capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")


def test_names_that_are_not_utf8_reach_the_daemon(home: Home) -> None:
    folder = os.fsencode(home.path) + b"/n\xff"
    os.mkdir(folder)
    with scripted(home, index=reply(REPORT)) as daemon:
        done = subprocess.run(
            [*home.command("index"), folder], env=home.env, capture_output=True, timeout=60, check=False
        )  # fmt: skip
    assert done.returncode == 0
    assert os.fsencode(daemon.request("index").params["path"]) == folder

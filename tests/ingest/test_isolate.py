from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copilotd.errors import ParseError
from copilotd.ingest import isolate
from copilotd.types import Document

TESTS = Path(__file__).parents[1]
MEMORY = 300 << 20


@pytest.fixture(autouse=True, scope="module")
def importable_child() -> Iterator[None]:
    """Lets the children import the awkward parsers, and leaves none behind."""
    isolate.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        yield
    isolate.close()


def parse(name: str, source: bytes = b"text", *, seconds: float = 20, memory: int = MEMORY) -> Document:
    return isolate.parse_isolated(
        f"support.awkward_parsers:{name}", source, "title", seconds=seconds, memory_bytes=memory
    )


def reason(name: str, source: bytes = b"", *, seconds: float = 20, memory: int = MEMORY) -> str:
    with pytest.raises(ParseError) as caught:
        parse(name, source, seconds=seconds, memory=memory)
    return caught.value.message


def facts(document: Document) -> dict[str, str]:
    return dict(fact.split("=", 1) for fact in document.warnings)


def gone(pid: int, seconds: float = 60.0) -> bool:
    """Whether the process ends soon; a zombie nobody has waited for yet counts as ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_the_document_comes_back() -> None:
    document = parse("Echo", b"line one\nline two")
    assert document.text == "line one\nline two"
    assert document.doc_title == "title"


def test_large_files_pass_both_ways() -> None:
    source = b"0123456789abcdef" * (1 << 18)
    assert parse("Echo", source).text.encode() == source


def test_one_child_reads_many_files() -> None:
    isolate.close()
    first, second = facts(parse("Echo"))["pid"], facts(parse("Echo"))["pid"]
    assert first == second != str(os.getpid())
    assert reason("Refuse") == "encrypted: needs a password"
    assert facts(parse("Echo"))["pid"] == first


def test_a_child_is_replaced_after_enough_files(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate.close()
    monkeypatch.setattr(isolate, "MAX_FILES", 2)
    pids = [facts(parse("Echo"))["pid"] for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_the_child_gets_no_keys_no_folder_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate.close()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    found = facts(parse("Echo"))
    assert "ANTHROPIC_API_KEY" not in found["environment"].split()
    assert found["cwd"] == "/"
    assert int(found["nice"]) > os.nice(0)
    assert found["session"] != str(os.getsid(0))


def test_a_hung_file_is_stopped() -> None:
    started = time.monotonic()
    assert reason("Sleep", seconds=1.5) == "took longer than 1.5 s to read"
    assert time.monotonic() - started < 60
    assert parse("Echo").text == "text"


@pytest.mark.skipif(sys.platform != "linux", reason="macOS accepts a memory limit and ignores it")
def test_an_exploding_file_is_stopped() -> None:
    assert reason("Hoard", memory=200 << 20) == "needed more than 200 MB of memory to read"
    assert parse("Echo").text == "text"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Fail", "damaged: its reader failed (KeyError)"),
        ("Crash", "damaged: its reader crashed (SIGSEGV)"),
        ("Exit", "damaged: its reader ended without an answer"),
        ("Flood", "its text is larger than 128 MB"),
    ],
)
def test_a_failing_reader_costs_its_file_only(name: str, expected: str) -> None:
    assert reason(name, memory=1500 << 20) == expected
    assert parse("Echo").text == "text"


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\0\0\0\0\x05hello",
        b"\0\0\0\0\0\0\0\x02[]",
        b"\0\0\0\0\0\0\0\x02{}",
        b'\0\0\0\0\0\0\0\x0f{"document":{}}',
        b"\0\0\0\0\0\0\0\x04\xff\xfe\xfd\xfc",
        b"\0\0\0\0\0\0\0\x02{} and more",
    ],
)
def test_nonsense_from_the_child_is_refused(answer: bytes) -> None:
    assert reason("Garbage", answer).startswith("damaged: its reader gave a damaged answer")
    assert parse("Echo").text == "text"


def test_an_announced_flood_is_not_waited_for() -> None:
    assert reason("Garbage", b"\x7f" * 9) == "its text is larger than 128 MB"


def test_a_reason_from_the_child_cannot_reach_the_terminal() -> None:
    content = b'{"reason":"\\u001b[2J\\u202e' + b"x" * 5000 + b'"}'
    shown = reason("Garbage", len(content).to_bytes(8, "big") + content)
    assert shown.isprintable()
    assert len(shown) <= 300


def test_nothing_a_parser_prints_leaks(capfd: pytest.CaptureFixture[str]) -> None:
    assert parse("Chatter").text == "quiet"
    assert capfd.readouterr() == ("", "")


def test_threads_parse_side_by_side_and_may_end() -> None:
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda n: parse("Echo", str(n).encode()).text, range(12)))
    assert texts == [str(n) for n in range(12)]
    # The threads that started the children are gone; the child that is kept must not be.
    pid = facts(parse("Echo"))["pid"]
    assert facts(parse("Echo"))["pid"] == pid


def test_close_ends_the_idle_child() -> None:
    pid = int(facts(parse("Echo"))["pid"])
    isolate.close()
    assert gone(pid)
    isolate.close()
    assert parse("Echo").text == "text"


def test_a_child_that_died_while_idle_is_replaced() -> None:
    pid = int(facts(parse("Echo"))["pid"])
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert int(facts(parse("Echo"))["pid"]) != pid


def test_a_child_that_dies_after_its_answer_costs_no_other_file() -> None:
    content = b'{"reason":"fine"}'
    for _ in range(3):
        assert reason("Garbage", len(content).to_bytes(8, "big") + content) == "fine"
        assert parse("Echo").text == "text"


def busy_child(path: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text(encoding="ascii")):
            return int(text)
        time.sleep(0.02)
    raise AssertionError("no child started")


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_child_does_not_outlive_its_parent(tmp_path: Path, death: signal.Signals) -> None:
    marker = tmp_path / "pid"
    program = (
        "from copilotd.ingest.isolate import parse_isolated\n"
        f"parse_isolated('support.awkward_parsers:Sleep', {str(marker).encode()!r}, 't',"
        f" seconds=50, memory_bytes={MEMORY})\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL, cwd=TESTS.parent)
    try:
        child = busy_child(marker)
        parent.send_signal(death)
        parent.wait(10)
    finally:
        parent.kill()
        parent.wait()
    assert gone(child)


def test_other_files_go_on_while_one_hangs(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    hung: list[str] = []
    thread = threading.Thread(
        target=lambda: hung.append(reason("Sleep", str(marker).encode(), seconds=3)), daemon=True
    )
    thread.start()
    busy_child(marker)
    assert parse("Echo").text == "text"
    thread.join(30)
    assert hung == ["took longer than 3 s to read"]


def pages_told(source: bytes, pause_s: float) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    document = isolate.parse_isolated(
        "support.awkward_parsers:Pages",
        source,
        "title",
        seconds=60,
        memory_bytes=MEMORY,
        options={"pause_s": pause_s},
        on_pages=lambda done, total: told.append((done, total)),
    )
    assert document.text == "read"
    return told


def test_pages_are_told_while_they_are_read() -> None:
    told = pages_told(b"4", 0.25)
    assert told == sorted(set(told))
    assert told
    assert set(told) <= {(done, 4) for done in range(1, 5)}


def test_a_fast_file_is_not_held_up_by_telling() -> None:
    assert len(pages_told(b"20000", 0.0)) < 2000


def test_whoever_is_told_may_stop_it() -> None:
    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        isolate.parse_isolated(
            "support.awkward_parsers:Pages",
            b"1000",
            "title",
            seconds=60,
            memory_bytes=MEMORY,
            options={"pause_s": 0.3},
            on_pages=stop,
        )
    assert parse("Echo").text == "text"


@pytest.mark.parametrize(
    "content", [b'{"pages":[3,2]}', b'{"pages":["x",2]}', b'{"pages":[1]}', b'{"pages":[']
)
def test_nonsense_about_pages_is_refused(content: bytes) -> None:
    assert reason("Garbage", len(content).to_bytes(8, "big") + content) == (
        "damaged: its reader gave a damaged answer"
    )

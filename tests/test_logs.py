"""The log: one line an event, private, rotating, without secrets or control characters."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from copilotd import logs
from copilotd.logs import Logs

log = logging.getLogger("copilotd.test")

Open = Callable[..., Logs]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "copilotd.log"


@pytest.fixture
def open_logs(file: Path) -> Iterator[Open]:
    opened: list[Logs] = []

    def begin(path: Path = file, **options: object) -> Logs:
        opened.append(Logs(path, stderr=False, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def test_an_event_is_one_line_with_time_zone_level_and_logger(file: Path, open_logs: Open) -> None:
    open_logs()
    log.info("event=tried n=%d", 3)
    (line,) = file.read_text().splitlines()
    pattern = (
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4} level=INFO logger=copilotd\.test event=tried n=3"
    )
    assert re.fullmatch(pattern, line)


def test_no_text_from_outside_forges_an_event_or_moves_the_cursor(file: Path, open_logs: Open) -> None:
    open_logs()
    log.warning("event=x name=%s", "a\n2026-01-01 level=ERROR forged\x1b[2J\u202e\r\udce9")
    first, *more = file.read_text().splitlines()
    assert first.endswith("name=a")
    assert more == [" | 2026-01-01 level=ERROR forged[2J", " | \\xe9"]


def test_a_traceback_follows_in_marked_lines(file: Path, open_logs: Open) -> None:
    open_logs()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("event=failed")
    first, *more = file.read_text().splitlines()
    assert first.endswith("event=failed")
    assert all(line.startswith(" | ") for line in more)
    assert more[-1] == " | lines"


@pytest.mark.parametrize(
    "text",
    [
        "key hush-1234 used", "Authorization: Bearer abc.def-123", "x-api-key: zzz999", "sk-ant-api03-abcdefghij",
        '{"api_key": "qwerty"}', "http://u:hush-1234@host/",
    ],
)  # fmt: skip
def test_secrets_are_hidden_in_messages_and_tracebacks(file: Path, open_logs: Open, text: str) -> None:
    open_logs(secrets=["hush-1234", "hush", ""])
    log.info("event=x text=%r", text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        log.exception("event=failed")
    written = file.read_text()
    assert "********" in written
    for secret in ("hush", "abc.def", "zzz999", "api03", "qwerty"):
        assert secret not in written


def test_file_and_folder_are_private_whatever_the_umask(file: Path, open_logs: Open) -> None:
    old = os.umask(0)
    try:
        open_logs()
    finally:
        os.umask(old)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_the_file_is_rotated_and_three_old_ones_are_kept(
    file: Path, open_logs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 1000)
    open_logs()
    for number in range(200):
        log.info("event=fill n=%d", number)
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "copilotd.log", "copilotd.log.1", "copilotd.log.2", "copilotd.log.3",
    ]  # fmt: skip
    assert all(path.stat().st_size <= 1000 for path in file.parent.iterdir())
    assert all(path.stat().st_mode & 0o077 == 0 for path in file.parent.iterdir())


def test_levels_ours_as_set_and_libraries_from_warning_on(file: Path, open_logs: Open) -> None:
    open_logs(level="DEBUG")
    log.debug("event=detail")
    logging.getLogger("httpx").info("GET http://…")
    logging.getLogger("httpx").warning("trouble")
    written = file.read_text()
    assert "detail" in written
    assert "GET" not in written
    assert "trouble" in written


def test_python_warnings_and_uncaught_exceptions_are_events(
    file: Path, open_logs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_logs()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)

    def die() -> None:
        raise LookupError("lost")

    thread = threading.Thread(target=die, name="worker")
    thread.start()
    thread.join()
    try:
        raise OSError("main lost")
    except OSError:
        sys.excepthook(*sys.exc_info())
    written = file.read_text()
    assert "DeprecationWarning: old thing" in written
    assert "event=thread_died thread='worker'" in written
    assert " | LookupError: lost" in written
    assert "event=uncaught" in written
    assert " | OSError: main lost" in written


def test_a_file_that_cannot_be_opened_is_said_and_the_daemon_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f").write_text("")
    opened = Logs(tmp_path / "f" / "x.log")
    try:
        log.info("event=still_here")
    finally:
        opened.close()
    written = capsys.readouterr().err
    assert "event=log_file_unusable" in written
    assert "event=still_here" in written


def test_a_full_disk_does_not_reach_the_code_that_logs(open_logs: Open) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    open_logs(Path("/dev/full"))
    log.info("event=lost")


def test_close_puts_everything_back(file: Path, open_logs: Open) -> None:
    before = (logging.root.level, list(logging.root.handlers), sys.excepthook, threading.excepthook)
    opened = open_logs()
    opened.close()
    opened.close()
    assert (logging.root.level, logging.root.handlers, sys.excepthook, threading.excepthook) == (
        before[0], before[1], before[2], before[3],
    )  # fmt: skip
    assert logging.raiseExceptions

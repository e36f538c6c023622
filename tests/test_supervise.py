"""Threads that die are started again, say so, and end when they are told to."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from copilotd.supervise import Worker

WAIT_S = 60.0


class Mortal:
    """Work that dies so many times and then goes on until it is told to end."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.told: list[str] = []
        self.mended = 0
        self.alive, self.end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.alive.set()
        self.end.wait(WAIT_S)

    def mend(self) -> None:
        self.mended += 1

    def worker(self, **options: Callable[[], None]) -> Worker:
        return Worker(
            "digger", self, on_death=self.told.append, first_pause_s=0.001, **{"mend": self.mend, **options}
        )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no spade"), "ValueError: no spade"),
        (SystemExit(), "SystemExit"),
        (MemoryError(), "MemoryError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_whatever_it_dies_of_it_mends_says_so_and_goes_on(
    error: BaseException, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = Mortal(error)
    worker = work.worker()
    worker.start()
    assert work.alive.wait(WAIT_S)
    assert work.told == [f"The digger thread failed ({reason}) and was started again."]
    assert (work.mended, worker.is_alive()) == (1, True)
    assert "event=thread_died thread=digger" in caplog.text
    assert "Traceback" in caplog.text
    work.end.set()
    assert worker.join(WAIT_S)


def test_it_dies_many_times_and_lives(caplog: pytest.LogCaptureFixture) -> None:
    work = Mortal(*[OSError(n) for n in range(6)])
    worker = work.worker()
    worker.start()
    assert work.alive.wait(WAIT_S)
    assert (len(work.told), work.mended) == (6, 6)
    work.end.set()
    assert worker.join(WAIT_S)


def test_a_mending_that_fails_does_not_keep_it_from_going_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("glue is out")

    work = Mortal(OSError("x"))
    worker = work.worker(mend=fail)
    worker.start()
    assert work.alive.wait(WAIT_S)
    assert "event=mend_failed thread=digger" in caplog.text
    work.end.set()
    assert worker.join(WAIT_S)


def test_one_that_is_told_to_end_is_not_started_again() -> None:
    runs: list[int] = []
    ready, go = threading.Event(), threading.Event()

    def die() -> None:
        runs.append(1)
        ready.set()
        go.wait(WAIT_S)
        raise OSError("late")

    told: list[str] = []
    worker = Worker("digger", die, on_death=told.append)
    worker.start()
    assert ready.wait(WAIT_S)
    assert not worker.join(0.01)
    go.set()
    assert worker.join(WAIT_S)
    assert (runs, told) == ([1], [])


def test_one_that_was_never_started_has_ended() -> None:
    assert Worker("digger", lambda: None, on_death=lambda _: None).join(0)


def test_it_knows_its_own_thread() -> None:
    seen: list[bool] = []
    worker = Worker("digger", lambda: seen.append(worker.is_current()), on_death=lambda _: None)
    worker.start()
    assert worker.join(WAIT_S)
    assert (seen, worker.is_current()) == ([True], False)

"""How many questions are searched at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from copilotd.errors import Cancelled
from copilotd.turns import Turns

WAIT_S = 60.0


def start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_no_more_have_a_turn_at_once_than_said_and_each_gets_one() -> None:
    turns, guard = Turns(2), threading.Lock()
    inside, most, done = 0, 0, 0

    def take() -> None:
        nonlocal inside, most, done
        with turns.take():
            with guard:
                inside += 1
                most = max(most, inside)
            with guard:
                inside -= 1
                done += 1

    threads = [start(take) for _ in range(20)]
    for thread in threads:
        thread.join(WAIT_S)
    assert (done, inside, most <= 2) == (20, 0, True)


def test_who_is_cancelled_while_waiting_takes_no_turn() -> None:
    turns, held, cancelled, outcome = Turns(1), threading.Event(), threading.Event(), []

    def wait() -> None:
        held.wait(WAIT_S)
        try:
            with turns.take(cancelled.is_set):
                outcome.append("turn")
        except Cancelled:
            outcome.append("cancelled")

    thread = start(wait)
    with turns.take():
        held.set()
        cancelled.set()
        thread.join(WAIT_S)
    assert outcome == ["cancelled"]
    with turns.take():
        pass


def test_who_is_cancelled_just_as_the_turn_comes_gives_it_back() -> None:
    turns = Turns(1)
    with pytest.raises(Cancelled), turns.take(lambda: True):
        raise AssertionError
    with turns.take():
        pass


def test_an_error_gives_the_turn_back() -> None:
    turns = Turns(1)
    with pytest.raises(ZeroDivisionError), turns.take():
        raise ZeroDivisionError
    with turns.take():
        pass

"""Conversations on disk: kept whole, private, bounded, and apart from each other."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shared import REPOSITORY

from copilotd.conversation.store import MAX_BYTES, MAX_TURNS, Conversations
from copilotd.conversation.turns import MAX_ANSWER_CHARS, Source, Turn, read_turn, turn_json
from copilotd.errors import ConversationNotFound


def turn(question: str = "How do I restore a backup?", answer: str = "With borg extract.") -> Turn:
    return Turn(question, question, answer, True, (Source("guide", "Restore", "/docs/guide.md", 3, 9),))


@pytest.fixture
def clock() -> Callable[[], float]:
    ticks = iter(range(1_000_000_000, 2_000_000_000))
    return lambda: float(next(ticks))


@pytest.fixture
def kept(tmp_path: Path, clock: Callable[[], float]) -> Conversations:
    return Conversations(tmp_path / "conversations", keep=5, clock=clock)


def test_a_turn_is_read_back_as_it_was(kept: Conversations) -> None:
    begun = kept.add(kept.begin(), turn())
    assert kept.get(begun.id) == begun
    assert begun.turns[0].sources == turn().sources


def test_an_empty_folder_is_not_made_before_there_is_something_to_keep(
    kept: Conversations, tmp_path: Path
) -> None:
    kept.begin()
    assert kept.summaries() == []
    assert not (tmp_path / "conversations").exists()


def test_the_files_are_the_owners_alone(kept: Conversations, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        kept.add(kept.begin(), turn())
    finally:
        os.umask(old)
    folder = tmp_path / "conversations"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def test_the_last_one_is_the_one_talked_in_last(kept: Conversations) -> None:
    first, second = kept.add(kept.begin(), turn("first?")), kept.add(kept.begin(), turn("second?"))
    assert kept.last().id == second.id
    kept.add(first, turn("again?"))
    assert kept.last().id == first.id
    assert [summary.title for summary in kept.summaries()] == ["first?", "second?"]


def test_there_is_no_last_one_at_first(kept: Conversations) -> None:
    with pytest.raises(ConversationNotFound, match="no conversation to continue"):
        kept.last()


def test_an_id_may_be_shortened_while_it_is_unambiguous(
    kept: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(("aaaa00000001", "aaaa00000002", "bbbb00000003"))
    monkeypatch.setattr("copilotd.conversation.store.secrets.token_hex", lambda _: next(ids))
    for _ in range(3):
        kept.add(kept.begin(), turn())
    assert kept.get("b").id == "bbbb00000003"
    with pytest.raises(ConversationNotFound, match="begins 2 conversations"):
        kept.get("aaaa")
    with pytest.raises(ConversationNotFound, match="no conversation 'c'"):
        kept.get("c")


@pytest.mark.parametrize("name", ["", "../x", "..", "/etc/passwd", "a" * 500, "ABC"])
def test_a_name_that_is_no_id_reaches_no_file(kept: Conversations, tmp_path: Path, name: str) -> None:
    kept.add(kept.begin(), turn())
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ConversationNotFound):
        kept.get(name)
    with pytest.raises(ConversationNotFound):
        kept.delete((name,))
    assert (tmp_path / "x.json").exists()


def test_deleting_takes_what_was_named(kept: Conversations, tmp_path: Path) -> None:
    one, other = kept.add(kept.begin(), turn()), kept.add(kept.begin(), turn())
    assert kept.delete((one.id,)) == 1
    assert [summary.id for summary in kept.summaries()] == [other.id]
    with pytest.raises(ConversationNotFound):
        kept.delete((one.id, other.id))
    assert kept.get(other.id)


def test_deleting_all_takes_damaged_and_half_written_ones_too(kept: Conversations, tmp_path: Path) -> None:
    kept.add(kept.begin(), turn())
    folder = tmp_path / "conversations"
    (folder / "0123456789ab.damaged").write_text("secret")
    (folder / "0123456789ab.77.part").write_text("secret")
    (folder / "note.txt").write_text("not ours")
    assert kept.delete(None) == 1
    assert [path.name for path in folder.iterdir()] == ["note.txt"]
    assert kept.summaries() == []


def test_what_was_deleted_does_not_come_back_with_the_next_turn(kept: Conversations) -> None:
    begun = kept.add(kept.begin(), turn("secret?"))
    kept.delete(None)
    again = kept.add(begun, turn("another?"))
    assert [taken.question for taken in again.turns] == ["another?"]


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"format": 2}',
        b'{"format": 1, "created": 1, "forgotten": 0, "turns": [7]}',
        b'{"format": 1, "created": "x", "forgotten": 0, "turns": []}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_set_aside_and_said_once(
    kept: Conversations, tmp_path: Path, source: bytes
) -> None:
    whole = kept.add(kept.begin(), turn())
    path = tmp_path / "conversations" / "0123456789ab.json"
    path.write_bytes(source)
    assert [summary.id for summary in kept.summaries()] == [whole.id]
    assert path.with_suffix(".damaged").read_bytes() == source
    (notice,) = kept.take_notices()
    assert "0123456789ab.damaged" in notice
    kept.summaries()
    assert kept.take_notices() == []


def test_a_symbolic_link_is_not_followed(kept: Conversations, tmp_path: Path) -> None:
    whole = kept.add(kept.begin(), turn())
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text("{}")
    (tmp_path / "conversations" / "0123456789ab.json").symlink_to(elsewhere)
    assert [summary.id for summary in kept.summaries()] == [whole.id]
    assert elsewhere.exists()


def test_control_characters_of_an_edited_file_are_taken_out(kept: Conversations, tmp_path: Path) -> None:
    begun = kept.add(kept.begin(), turn())
    path = tmp_path / "conversations" / f"{begun.id}.json"
    value = json.loads(path.read_text())
    value["turns"][0]["answer"] = "\x1b]0;owned\x07done"
    path.write_text(json.dumps(value))
    assert kept.get(begun.id).turns[0].answer == "]0;owneddone"


def test_questions_of_a_script_do_not_push_out_what_was_talked_over(kept: Conversations) -> None:
    talk = kept.add(kept.add(kept.begin(), turn()), turn("and then?"))
    for number in range(20):
        kept.add(kept.begin(), turn(f"question {number}?"))
    summaries = kept.summaries()
    assert len(summaries) == 5
    assert talk.id in {summary.id for summary in summaries}
    assert summaries[0].title == "question 19?"


def test_the_newest_one_stays_even_where_only_one_is_kept(tmp_path: Path) -> None:
    kept = Conversations(tmp_path / "c", keep=1)
    kept.add(kept.add(kept.begin(), turn()), turn())
    newest = kept.add(kept.begin(), turn())
    assert [summary.id for summary in kept.summaries()] == [newest.id]


def test_a_long_conversation_loses_its_oldest_turns(kept: Conversations, tmp_path: Path) -> None:
    begun = kept.begin()
    for number in range(MAX_TURNS + 3):
        begun = kept.add(begun, turn(f"question {number}?"))
    assert len(begun.turns) == MAX_TURNS
    assert (begun.forgotten, begun.turns[0].question) == (3, "question 3?")
    assert kept.summaries()[0].turns == MAX_TURNS + 3


def test_a_big_one_stays_within_its_bytes(kept: Conversations, tmp_path: Path) -> None:
    begun = kept.begin()
    for _ in range(20):
        begun = kept.add(begun, turn(answer="é" * 2 * MAX_ANSWER_CHARS))
    path = tmp_path / "conversations" / f"{begun.id}.json"
    assert path.stat().st_size <= MAX_BYTES
    assert len(begun.turns[-1].answer) == MAX_ANSWER_CHARS
    assert kept.get(begun.id) == begun


def test_two_chats_at_once_keep_each_others_turns(kept: Conversations) -> None:
    begun = kept.add(kept.begin(), turn("first?"))

    def chat(name: str) -> None:
        for number in range(10):
            kept.add(begun, turn(f"{name} {number}?"))

    threads = [threading.Thread(target=chat, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    questions = [taken.question for taken in kept.get(begun.id).turns]
    assert sorted(questions) == sorted(
        ["first?", *(f"{name} {number}?" for name in ("one", "two") for number in range(10))]
    )


def test_with_none_to_keep_nothing_is_written(tmp_path: Path) -> None:
    kept = Conversations(tmp_path / "c", keep=0)
    begun = kept.add(kept.begin(), turn())
    assert kept.add(kept.last(), turn("and then?")).id == begun.id
    assert not (tmp_path / "c").exists()
    assert Conversations(tmp_path / "c", keep=0).summaries() == []
    for _ in range(50):
        kept.add(kept.begin(), turn())
    assert len(kept.summaries()) == 20
    assert kept.delete(None) == 20


def test_a_folder_open_to_others_is_not_written_to(kept: Conversations, tmp_path: Path) -> None:
    folder = tmp_path / "conversations"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(OSError, match="open to other users"):
        kept.add(kept.begin(), turn())


def test_another_index_knows_nothing_of_it(kept: Conversations, tmp_path: Path) -> None:
    begun = kept.add(kept.begin(), turn())
    other = Conversations(tmp_path / "other", keep=5)
    with pytest.raises(ConversationNotFound):
        other.get(begun.id)
    with pytest.raises(ConversationNotFound):
        other.last()


KILLED = """
import sys
from pathlib import Path
from copilotd.conversation.store import Conversations
from copilotd.conversation.turns import Turn
kept = Conversations(Path(sys.argv[1]), keep=5)
begun = kept.begin()
while True:
    begun = kept.add(begun, Turn("question?", "question?", "x" * 15000, True))
    print(len(begun.turns), flush=True)
"""


def test_killed_in_the_middle_it_is_still_whole(tmp_path: Path) -> None:
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / "c")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        said = int((process.stdout.read().split() or [b"5"])[-1])
        process.wait()
        process.stdout.close()
        kept = Conversations(tmp_path / "c", keep=5)
        assert len(kept.last().turns) >= min(said, 60)
        assert kept.take_notices() == []


texts = st.text(max_size=40)
sources = st.builds(Source, texts, texts, texts, st.integers(0, 10**6), st.integers(0, 10**6), st.none())
turns = st.builds(
    Turn, texts, texts, texts, st.booleans(), st.lists(sources, max_size=3).map(tuple),
    st.lists(texts, max_size=3).map(tuple), at=st.floats(0, 1e12),
)  # fmt: skip


@given(turns)
def test_a_stored_turn_is_stored_again_as_it_is(given: Turn) -> None:
    once = read_turn(json.loads(json.dumps(turn_json(given))))
    assert read_turn(json.loads(json.dumps(turn_json(once)))) == once

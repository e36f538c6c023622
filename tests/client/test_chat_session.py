"""A chat without a terminal: what each line asks of the daemon."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from copilot_client.chat.reading import LineReader
from copilot_client.chat.screen import PlainScreen
from copilot_client.chat.session import Asking, Chat
from copilot_client.conversation_text import as_markdown, moment
from copilot_client.history import KEPT_BYTES, history_file, open_history
from copilotd.errors import ConversationNotFound, CopilotError, ProviderOverloaded
from copilotd.paths import find_places

PLACE = {"doc_title": "guide", "section_heading": "Port", "path": "/docs/guide.md", "line_start": 3}
ANSWER = {"answer": "In config.toml.", "known": True, "citations": [PLACE], "conversation": "0123456789ab"}
TURN = {
    "question": "why?",
    "asked_as": "why (port)?",
    "answer": "Because.",
    "sources": [{**PLACE, "page": None}],
}


class Daemon:
    """Answers with what the test says, and remembers what was asked."""

    def __init__(self, **results: Any) -> None:
        self.results = {"roots": {"roots": [{"namespace": "borg"}]}, "ask": ANSWER, **results}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: Callable[[Mapping[str, Any]], None] | None = None,
        on_delta: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        self.asked.append((method, dict(params)))
        result = self.results[method]
        if isinstance(result, list):
            result = result.pop(0)
        if isinstance(result, BaseException):
            raise result
        return dict(result)


def talk(daemon: Daemon, text: str, asking: Asking | None = None) -> tuple[int, list[Mapping[str, Any]]]:
    opened: list[Mapping[str, Any]] = []
    chat = Chat(
        daemon,
        PlainScreen(io.StringIO()),
        asking or Asking(),
        open_source=opened.append,
        remember=lambda _: None,
        exit_code=lambda error: 2 if error.code == "usage" else 1,
    )
    return chat.run(LineReader(io.StringIO(text)), patient=False), opened


def asked(daemon: Daemon) -> list[dict[str, Any]]:
    return [params for method, params in daemon.asked if method == "ask"]


def test_the_conversation_is_gone_on_with() -> None:
    daemon = Daemon()
    assert talk(daemon, "one?\n\ntwo?\n/new\nthree?\n/quit\nfour?\n")[0] == 0
    assert [params["conversation"] for params in asked(daemon)] == ["new", "0123456789ab", "new"]
    assert [params["query"] for params in asked(daemon)] == ["one?", "two?", "three?"]


def test_a_conversation_that_was_deleted_is_begun_anew() -> None:
    daemon = Daemon(ask=[ANSWER, ConversationNotFound("It is gone."), ANSWER])
    assert talk(daemon, "one?\ntwo?\n")[0] == 0
    assert [params["conversation"] for params in asked(daemon)] == ["new", "0123456789ab", "new"]


def test_there_may_be_none_to_go_on_with() -> None:
    daemon = Daemon(ask=[ConversationNotFound("None yet.")])
    assert talk(daemon, "one?\n", Asking(conversation="last"))[0] == 1


def test_a_failure_does_not_end_the_chat_but_shows_in_the_exit_code() -> None:
    daemon = Daemon(ask=[ProviderOverloaded("Overloaded.", "wait"), ANSWER])
    assert talk(daemon, "one?\ntwo?\n")[0] == 1
    assert len(asked(daemon)) == 2


def test_ctrl_c_ends_a_script() -> None:
    with pytest.raises(KeyboardInterrupt):
        talk(Daemon(ask=[KeyboardInterrupt()]), "one?\n")


def test_namespace_and_deep_change_how_it_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    daemon = Daemon()
    code, _ = talk(
        daemon, "/namespace borg\n/deep\none?\n/namespace nope\n/namespace *\n/deep\n/namespace\ntwo?\n"
    )
    assert code == 2
    first, second = asked(daemon)
    assert (first["namespaces"], first["deep"]) == (["borg"], True)
    assert (second["namespaces"], second["deep"]) == ([], False)
    assert "There is no namespace 'nope'." in capsys.readouterr().err


def test_sources_are_opened_by_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    code, opened = talk(Daemon(), "/open 1\none?\n/open 1\n/open 2\n/open x\n/sources\n")
    assert code == 2
    assert opened == [PLACE]
    assert "none yet" in capsys.readouterr().err


def test_saving_never_overwrites(tmp_path: Path) -> None:
    conversation = {"id": "0123456789ab", "title": "why?", "messages": [TURN], "_": {"version": "1"}}
    daemon = Daemon(conversation=conversation)
    markdown, data = tmp_path / "talk.md", tmp_path / "talk.json"
    lines = f"/save {markdown}\none?\n/save {markdown}\n/save {data}\n/save {markdown}\n/save\n/save /no/x\n"
    assert talk(daemon, lines)[0] == 2
    assert "*Asked as: why (port)?*" in markdown.read_text()
    assert json.loads(data.read_text())["messages"] == [TURN]
    assert "_" not in json.loads(data.read_text())


def test_a_conversation_as_markdown_acts_on_nothing() -> None:
    turn = {**TURN, "answer": "\x1b[2Jdone", "question": "a\nb\x07"}
    text = as_markdown({"title": "\x1b]0;x\x07t", "created": 1e9, "forgotten": 2, "messages": [turn]})
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "## a b" in text
    assert "The first 2 of its questions are no longer kept." in text
    assert "1. [guide > Port] /docs/guide.md:3" in text
    assert moment("x") == moment(1e300) == ""


def test_the_history_is_private_short_and_of_one_index(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "INDEX_DIR": str(tmp_path / "one")}
    places = find_places(environ=environ)
    other = find_places(environ={**environ, "INDEX_DIR": str(tmp_path / "two")})
    assert history_file(places) != history_file(other)


def test_a_long_history_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = find_places()
    path = open_history(places)
    assert path is not None
    path.write_text("".join(f"\n# 2026-01-01 {n}\n+question {n}\n" for n in range(20_000)))
    path.chmod(0o644)
    assert open_history(places) == path
    source = path.read_text()
    assert len(source) <= KEPT_BYTES
    assert source.startswith("\n# ")
    assert source.endswith("+question 19999\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_history_that_cannot_be_kept_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = find_places()
    path = open_history(places)
    assert path is not None
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert open_history(places) is None
    assert not (tmp_path / "elsewhere").exists()


def test_errors_are_the_daemons_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    talk(Daemon(ask=[CopilotError("\x1b[31mred", "do\x07 it")]), "one?\n")
    assert capsys.readouterr().err.strip().splitlines() == ["Error: [31mred", "  Next: do it"]

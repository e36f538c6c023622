"""Every way of not reaching the daemon has its own error, and a request costs one round trip."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.client_home import temporary_home
from support.scripted_daemon import RawListener, ScriptedDaemon, Speaker, failure, reply, until_gone

from copilot_client.connection import (
    BusyDaemon,
    Connection,
    ConnectionLost,
    DaemonUnavailable,
    NotRunning,
    OtherUser,
    OtherVersion,
    StaleSocket,
    peer_uid,
)
from copilotd import wire
from copilotd.errors import Busy, ProviderAuth, SectionNotFound, VersionMismatch


@pytest.fixture
def path() -> Iterator[Path]:
    with temporary_home() as home:
        yield home.socket


def test_hello_travels_with_the_first_reading_request(path: Path) -> None:
    with ScriptedDaemon(path, {"search": reply({"hits": []})}) as daemon, Connection.open(path) as connection:
        result = connection.call("search", {"query": "x", "top_k": None})
        connection.call("search", {"query": "y"})
    assert result["hits"] == []
    assert [request.method for request in daemon.requests] == ["hello", "search", "search"]
    assert daemon.batches[0] == 2
    assert daemon.requests[1].params == {"query": "x"}
    assert daemon.requests[0].params["protocol"] == wire.PROTOCOL


def test_a_changing_request_waits_for_hello(path: Path) -> None:
    with (
        ScriptedDaemon(path, {"forget": reply({"forgotten": []})}) as daemon,
        Connection.open(path) as connection,
    ):
        connection.call("forget", {"path": "/d"})
    assert daemon.batches[:2] == [1, 1]


@pytest.mark.parametrize("theirs", [0, 2, None, "1"])
def test_another_protocol_is_named_and_nothing_is_done(path: Path, theirs: object) -> None:
    hello = {"protocol": theirs, "version": "9.9"}
    with (
        ScriptedDaemon(path, hello=hello) as daemon,
        Connection.open(path) as connection,
        pytest.raises(OtherVersion) as caught,
    ):
        connection.call("forget", {"path": "/d"})
    assert "9.9" in caught.value.message
    assert f"protocol {theirs};" in caught.value.message
    assert caught.value.hint == "copilot restart"
    assert [request.method for request in daemon.requests] == ["hello"]


@pytest.mark.parametrize(
    "error", [VersionMismatch("The daemon speaks 2, not 1."), SectionNotFound("no hello")]
)
def test_a_refused_hello(path: Path, error: Any) -> None:
    expected = OtherVersion if isinstance(error, VersionMismatch) else SectionNotFound
    with (
        ScriptedDaemon(path, {"hello": failure(error)}),
        Connection.open(path) as connection,
        pytest.raises(expected, match=error.message),
    ):
        connection.call("search", {"query": "x"})


@pytest.mark.parametrize("raw", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b'{"ok": true}\n', b"\xff\xfe\n"])
def test_something_else_listens(path: Path, raw: bytes) -> None:
    with RawListener(path, raw), Connection.open(path) as connection, pytest.raises(OtherVersion):
        connection.call("search", {"query": "x"})


def test_nothing_there(path: Path) -> None:
    with pytest.raises(NotRunning) as caught:
        Connection.open(path)
    assert not isinstance(caught.value, StaleSocket)
    assert caught.value.hint == "copilot start"


def test_a_left_over_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(StaleSocket, match="left"):
        Connection.open(path)


def test_a_plain_file_instead_of_a_socket(path: Path) -> None:
    path.write_text("")
    with pytest.raises(DaemonUnavailable):
        Connection.open(path)


def test_silence_is_busy(path: Path) -> None:
    with RawListener(path, b""):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        began = time.monotonic()
        with Connection(sock, hello_seconds=0.2) as connection, pytest.raises(BusyDaemon):
            connection.call("search", {"query": "x"})
    assert time.monotonic() - began < 2


def test_a_full_queue_is_busy(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        waiting: list[Connection] = []

        def fill() -> None:
            while len(waiting) < 5:
                waiting.append(Connection.open(path, seconds=0.1))

        with pytest.raises(BusyDaemon):
            fill()
        for connection in waiting:
            connection.close()


def test_a_long_silence_after_hello_is_busy(path: Path) -> None:
    with (
        ScriptedDaemon(path, {"search": until_gone}),
        Connection.open(path) as connection,
        pytest.raises(BusyDaemon),
    ):
        connection.call("search", {"query": "x"}, seconds=0.2)


def test_a_daemon_that_dies_in_the_middle(path: Path) -> None:
    def die(request: wire.Request, speaker: Speaker) -> None:
        speaker.delta("half an ans")
        speaker.hang_up()

    seen: list[str] = []
    with (
        ScriptedDaemon(path, {"ask": die}),
        Connection.open(path) as connection,
        pytest.raises(ConnectionLost),
    ):
        connection.call("ask", {"query": "x"}, on_delta=seen.append)
    assert seen == ["half an ans"]


def test_errors_keep_their_class_and_hint(path: Path) -> None:
    scripts = {"ask": failure(ProviderAuth("Key rejected.", "Check ANTHROPIC_API_KEY"))}
    with (
        ScriptedDaemon(path, scripts),
        Connection.open(path) as connection,
        pytest.raises(ProviderAuth) as caught,
    ):
        connection.call("ask", {"query": "x"})
    assert caught.value.hint == "Check ANTHROPIC_API_KEY"


def test_an_error_without_an_id_ends_the_request(path: Path) -> None:
    def refuse(request: wire.Request, speaker: Speaker) -> None:
        speaker.raw(wire.encode_error(None, Busy("Too many connections.")))

    with ScriptedDaemon(path, {"search": refuse}), Connection.open(path) as connection, pytest.raises(Busy):
        connection.call("search", {"query": "x"})


def test_progress_and_pieces_reach_their_listeners_and_strangers_do_not(path: Path) -> None:
    def script(request: wire.Request, speaker: Speaker) -> None:
        speaker.raw(wire.encode_notification("delta", {"id": 99, "text": "not ours"}))
        speaker.progress(stage="model", message="Loading")
        for piece in ("a", "ü", "日"):
            speaker.delta(piece)
        speaker.raw(wire.encode_result(99, {"answer": "not ours"}))
        speaker.result({"answer": "aü日"})

    pieces: list[str] = []
    steps: list[Any] = []
    with ScriptedDaemon(path, {"ask": script}), Connection.open(path) as connection:
        result = connection.call("ask", {"query": "x"}, on_delta=pieces.append, on_progress=steps.append)
    assert result["answer"] == "aü日"
    assert pieces == ["a", "ü", "日"]
    assert steps[0]["stage"] == "model"


def test_a_reply_cut_at_every_byte(path: Path) -> None:
    def script(request: wire.Request, speaker: Speaker) -> None:
        for byte in wire.encode_result(request.id, {"answer": "whole"}):
            speaker.raw(bytes([byte]))

    with ScriptedDaemon(path, {"ask": script}), Connection.open(path) as connection:
        assert connection.call("ask", {"query": "x"})["answer"] == "whole"


def test_ctrl_c_cancels_and_closes(path: Path) -> None:
    gone = threading.Event()

    def script(request: wire.Request, speaker: Speaker) -> None:
        speaker.delta("first")
        if speaker.gone.wait(10):
            gone.set()

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with ScriptedDaemon(path, {"ask": script}) as daemon:
        with Connection.open(path) as connection, pytest.raises(KeyboardInterrupt):
            connection.call("ask", {"query": "x"}, on_delta=interrupt)
        assert daemon.await_notification("cancel").params == {"id": 2}
        assert gone.wait(5)


def test_a_listener_of_another_user_gets_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedDaemon(path) as daemon:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            owner = peer_uid(sock)
        assert owner is not None
        monkeypatch.setattr("os.getuid", lambda: owner + 1)
        with pytest.raises(OtherUser):
            Connection.open(path)
    assert daemon.requests == []

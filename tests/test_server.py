"""The server on real sockets: many clients, rude clients, slow clients, other users."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from copilotd import wire
from copilotd.daemon_info import memory_bytes
from copilotd.errors import Cancelled, IndexLocked, ProviderAuth, SettingsError
from copilotd.listener import Listener
from copilotd.server import Handler, Limits, RequestContext, Server
from copilotd.wire import JSONObject

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


class Running:
    """A server in a thread of its own, as a test drives it."""

    def __init__(self, folder: Path, handlers: Mapping[str, Handler], limits: Limits) -> None:
        self.path = folder / "s.sock"
        self.listener = Listener(self.path)
        self.loop = asyncio.new_event_loop()
        self._peers: list[Peer] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(handlers, limits))
        self._thread.start()
        self._ready.wait()

    def _run(self, handlers: Mapping[str, Handler], limits: Limits) -> None:
        self.loop.run_until_complete(self._main(handlers, limits))
        self.loop.close()

    async def _main(self, handlers: Mapping[str, Handler], limits: Limits) -> None:
        self.server = Server(handlers, limits)
        self._stop = asyncio.Event()
        self.server.start(self.listener.socket)
        self._ready.set()
        await self._stop.wait()
        await self.server.close(grace_s=1.0)

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)
        self.listener.close()
        assert not self._thread.is_alive()

    def close_peers(self) -> None:
        for peer in self._peers:
            peer.close()

    def connect(self) -> Peer:
        peer = Peer(self.path)
        self._peers.append(peer)
        return peer


class Peer:
    """A client without any manners of its own."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        try:
            self.socket.connect(str(path))
        except BaseException:
            self.socket.close()
            raise
        self._decoder = wire.Decoder()
        self._messages: list[wire.Message] = []

    def send(self, request_id: int, method: str, **params: Any) -> None:
        self.socket.sendall(wire.encode_request(request_id, method, params))

    def receive(self) -> wire.Message | None:
        """Returns the next message; None when the server has hung up."""
        while not self._messages:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._messages += self._decoder.feed(data)
        return self._messages.pop(0)

    def call(self, method: str, **params: Any) -> wire.Message | None:
        self.send(1, method, **params)
        return self.receive()

    def close(self) -> None:
        self.socket.close()


async def echo(params: JSONObject, context: RequestContext) -> JSONObject:
    return {"echo": params}


async def until_cancelled(params: JSONObject, context: RequestContext) -> JSONObject:
    await asyncio.to_thread(context.cancelled.wait, 20)
    raise Cancelled("Stopped.")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s") as name:
        yield Path(name)


Serve = Callable[..., Running]


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    running: list[Running] = []

    def start(limits: Limits | None = None, **handlers: Handler) -> Running:
        running.append(
            Running(folder, {"echo": echo, "wait": until_cancelled, **handlers}, limits or Limits())
        )
        return running[-1]

    yield start
    for server in running:
        server.close()
        server.close_peers()


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


# ------------------------------------------------------------------------------------ requests


def test_a_request_gets_its_reply(serve: Serve) -> None:
    assert serve().connect().call("echo", x=1) == wire.Result(1, {"echo": {"x": 1}})


def test_two_hundred_clients_at_once_each_get_their_own_reply(serve: Serve) -> None:
    server = serve()
    peers = [server.connect() for _ in range(200)]
    for number, peer in enumerate(peers):
        peer.send(number, "echo", number=number)
    for number, peer in enumerate(peers):
        assert peer.receive() == wire.Result(number, {"echo": {"number": number}})
        peer.close()
    wait_until(lambda: server.server.connections == 0)


def test_requests_of_one_connection_run_side_by_side(serve: Serve) -> None:
    release = threading.Event()

    async def slow(params: JSONObject, context: RequestContext) -> JSONObject:
        await asyncio.to_thread(release.wait, 10)
        return {"slow": True}

    peer = serve(slow=slow).connect()
    peer.send(1, "slow")
    peer.send(2, "echo")
    assert peer.receive() == wire.Result(2, {"echo": {}})
    release.set()
    assert peer.receive() == wire.Result(1, {"slow": True})


def test_an_id_may_be_used_again_after_its_reply_but_not_before(serve: Serve) -> None:
    peer = serve().connect()
    assert peer.call("echo") == peer.call("echo")
    peer.send(7, "wait")
    peer.send(7, "echo")
    refused = peer.receive()
    assert isinstance(refused, wire.Failure)
    assert refused.id is None


def test_errors_keep_class_message_and_hint(serve: Serve) -> None:
    async def fail(params: JSONObject, context: RequestContext) -> JSONObject:
        raise ProviderAuth("Key rejected.", "Set OPENAI_API_KEY.")

    failure = serve(fail=fail).connect().call("fail")
    assert isinstance(failure, wire.Failure)
    assert type(failure.error) is ProviderAuth
    assert (failure.number, failure.error.hint) == (1051, "Set OPENAI_API_KEY.")


def test_an_unexpected_exception_is_that_requests_error_only(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(params: JSONObject, context: RequestContext) -> JSONObject:
        raise ZeroDivisionError("secret detail")

    async def odd(params: JSONObject, context: RequestContext) -> JSONObject:
        return {"score": float("nan")}

    peer = serve(broken=broken, odd=odd).connect()
    for method in ("broken", "odd"):
        failure = peer.call(method)
        assert isinstance(failure, wire.Failure)
        assert failure.number == wire.INTERNAL_ERROR
        assert "secret detail" not in failure.error.message
    assert "ZeroDivisionError: secret detail" in caplog.text
    assert peer.call("echo") == wire.Result(1, {"echo": {}})


def test_an_unknown_method_is_named(serve: Serve) -> None:
    failure = serve().connect().call("no\x1bpe")
    assert isinstance(failure, wire.Failure)
    assert failure.number == wire.METHOD_NOT_FOUND
    assert "'nope'" in failure.error.message


def test_notifications_come_before_the_result_and_carry_the_id(serve: Serve) -> None:
    async def talk(params: JSONObject, context: RequestContext) -> JSONObject:
        def work() -> None:
            for word in ("a", "b"):
                context.notify("delta", {"text": word})

        await asyncio.to_thread(work)
        return {"done": True}

    peer = serve(talk=talk).connect()
    peer.send(5, "talk")
    assert peer.receive() == wire.Notification("delta", {"id": 5, "text": "a"})
    assert peer.receive() == wire.Notification("delta", {"id": 5, "text": "b"})
    assert peer.receive() == wire.Result(5, {"done": True})


# ---------------------------------------------------------------------------------- cancelling


def test_cancel_ends_one_request_and_leaves_the_others(serve: Serve) -> None:
    peer = serve().connect()
    peer.send(1, "wait")
    peer.socket.sendall(wire.encode_notification("cancel", {"id": 99}))
    peer.socket.sendall(wire.encode_notification("cancel", {"id": []}))
    peer.socket.sendall(wire.encode_notification("cancel", {"id": 1}))
    failure = peer.receive()
    assert isinstance(failure, wire.Failure)
    assert (failure.id, type(failure.error)) == (1, Cancelled)
    assert peer.call("echo") == wire.Result(1, {"echo": {}})


def test_a_client_that_vanishes_cancels_its_requests(serve: Serve) -> None:
    contexts: list[RequestContext] = []

    async def watch(params: JSONObject, context: RequestContext) -> JSONObject:
        contexts.append(context)
        await asyncio.to_thread(context.cancelled.wait, 20)
        return {}

    server = serve(watch=watch)
    for _ in range(20):
        peer = server.connect()
        peer.send(1, "watch")
        peer.send(2, "watch")
        wait_until(lambda: len(contexts) % 2 == 0 and bool(contexts))
        peer.close()
    wait_until(lambda: len(contexts) == 40 and all(context.cancelled.is_set() for context in contexts))
    wait_until(lambda: server.server.connections == 0)
    assert server.connect().call("echo") == wire.Result(1, {"echo": {}})


def test_a_client_that_only_finished_writing_still_gets_its_replies(serve: Serve) -> None:
    async def slow(params: JSONObject, context: RequestContext) -> JSONObject:
        await asyncio.sleep(0.3)
        return {"cancelled": context.cancelled.is_set()}

    peer = serve(slow=slow).connect()
    peer.send(1, "slow")
    peer.socket.shutdown(socket.SHUT_WR)
    assert peer.receive() == wire.Result(1, {"cancelled": False})
    assert peer.receive() is None


def test_one_that_finished_writing_and_then_vanishes_cancels_too(serve: Serve) -> None:
    cancelled = threading.Event()

    async def watch(params: JSONObject, context: RequestContext) -> JSONObject:
        if await asyncio.to_thread(context.cancelled.wait, 20):
            cancelled.set()
        return {}

    peer = serve(watch=watch).connect()
    peer.send(1, "watch")
    peer.socket.shutdown(socket.SHUT_WR)
    time.sleep(0.2)
    assert not cancelled.is_set()
    peer.close()
    assert cancelled.wait(5)


def test_a_handler_that_ignores_its_cancelling_is_abandoned(serve: Serve) -> None:
    async def deaf(params: JSONObject, context: RequestContext) -> JSONObject:
        await asyncio.sleep(60)
        return {}

    peer = serve(Limits(cancel_s=0.1), deaf=deaf).connect()
    peer.send(1, "deaf")
    peer.socket.sendall(wire.encode_notification("cancel", {"id": 1}))
    failure = peer.receive()
    assert isinstance(failure, wire.Failure)
    assert type(failure.error) is Cancelled


def test_a_request_without_a_sign_of_life_is_given_up_but_progress_is_one(serve: Serve) -> None:
    async def steps(params: JSONObject, context: RequestContext) -> JSONObject:
        for _ in range(8):
            await asyncio.sleep(0.1)
            context.notify("progress", {})
        return {}

    peer = serve(Limits(request_s=0.4), steps=steps).connect()
    peer.send(1, "steps")
    peer.send(2, "wait")
    outcomes: dict[wire.RequestId | None, wire.Message] = {}
    while len(outcomes) < 2:
        message = peer.receive()
        if isinstance(message, wire.Result | wire.Failure):
            outcomes[message.id] = message
    assert isinstance(outcomes[1], wire.Result)
    late = outcomes[2]
    assert isinstance(late, wire.Failure)
    assert "REQUEST_TIMEOUT_S" in late.error.hint


# -------------------------------------------------------------------------------------- abuse


def test_a_line_without_end_is_refused_with_bounded_memory(serve: Serve) -> None:
    server = serve(Limits(message_bytes=10_000))
    before = memory_bytes()
    peer = server.connect()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(2_000):
            peer.socket.sendall(b"x" * 100_000)
    failure = peer.receive()
    assert isinstance(failure, wire.Failure)
    assert "10000 bytes" in failure.error.message
    assert peer.receive() is None
    assert memory_bytes() - before < 50_000_000
    assert server.connect().call("echo") == wire.Result(1, {"echo": {}})


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\xfd", b"[" * 50_000, b"[]", b"{}", b"null", b'"', b"\x00\x1b[2J"]
)
def test_rubbish_gets_an_error_and_the_connection_goes_on(serve: Serve, line: bytes) -> None:
    peer = serve().connect()
    peer.socket.sendall(line + b"\n")
    failure = peer.receive()
    assert isinstance(failure, wire.Failure)
    assert failure.id is None
    assert peer.call("echo") == wire.Result(1, {"echo": {}})


def test_half_a_message_has_a_deadline_that_more_bytes_do_not_move(serve: Serve) -> None:
    peer = serve(Limits(message_s=0.3)).connect()
    started = time.monotonic()
    peer.socket.settimeout(0.05)
    while time.monotonic() < started + 5:
        try:
            peer.socket.sendall(b"{")
            peer.socket.recv(1, socket.MSG_PEEK)
            break
        except TimeoutError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            break
    assert time.monotonic() < started + 2
    failure = peer.receive()
    assert isinstance(failure, wire.Failure)
    assert "0.3 s" in failure.error.message
    assert peer.receive() is None


def test_an_idle_connection_is_closed_but_not_one_that_waits(serve: Serve) -> None:
    server = serve(Limits(idle_s=0.5))
    waiting = server.connect()
    waiting.send(1, "wait")
    idle = server.connect()
    assert idle.receive() is None
    wait_until(lambda: server.server.connections == 1)


def test_one_client_too_many_is_told_why(serve: Serve) -> None:
    server = serve(Limits(connections=2))
    peers = [server.connect(), server.connect()]
    assert all(peer.call("echo") for peer in peers)
    refused = server.connect().receive()
    assert isinstance(refused, wire.Failure)
    assert (refused.error.code, "MAX_CONNECTIONS" in refused.error.hint) == ("busy", True)
    peers[0].close()
    wait_until(lambda: server.server.connections == 1)
    assert server.connect().call("echo") == wire.Result(1, {"echo": {}})


def test_one_request_too_many_is_told_why(serve: Serve) -> None:
    peer = serve(Limits(open_requests=2)).connect()
    for number in (1, 2, 3):
        peer.send(number, "wait")
    failure = peer.receive()
    assert isinstance(failure, wire.Failure)
    assert (failure.id, failure.error.code) == (3, "busy")


def test_too_many_requests_of_all_clients_are_told_why_and_status_is_answered(serve: Serve) -> None:
    server = serve(Limits(all_requests=6), status=echo)
    hogs = [server.connect() for _ in range(2)]
    for hog in hogs:
        for number in range(3):
            hog.send(number, "wait")
    wait_until(lambda: len(server.server.request_tasks) == 6)
    other = server.connect()
    refused = other.call("wait")
    assert isinstance(refused, wire.Failure)
    assert (refused.error.code, "MAX_REQUESTS" in refused.error.hint) == ("busy", True)
    assert other.call("status") == wire.Result(1, {"echo": {}})
    hogs[0].close()
    wait_until(lambda: len(server.server.request_tasks) == 3)
    assert other.call("echo") == wire.Result(1, {"echo": {}})


def test_a_flood_of_cancelled_requests_leaves_nothing_behind(serve: Serve) -> None:
    server = serve()
    flood = server.connect()
    for number in range(1000):
        flood.send(number, "wait")
        flood.socket.sendall(wire.encode_notification("cancel", {"id": number}))
        reply = flood.receive()
        assert isinstance(reply, wire.Failure)
        assert (reply.id, reply.error.code) == (number, "cancelled")
    assert server.connect().call("echo", n=1) == wire.Result(1, {"echo": {"n": 1}})
    wait_until(lambda: not server.server.request_tasks)
    assert all(not one._requests and not one._outbox._bytes for one in list(server.server._clients))


def test_a_slow_reader_holds_its_worker_back_and_loses_nothing(serve: Serve) -> None:
    sent = 0
    total = 3000

    async def pour(params: JSONObject, context: RequestContext) -> JSONObject:
        def work() -> None:
            nonlocal sent
            for number in range(total):
                context.notify("delta", {"text": f"{number:01000d}"})
                context.notify("progress", {"done": number})
                sent += 1

        await asyncio.to_thread(work)
        return {}

    server = serve(Limits(outbox_bytes=100_000), pour=pour)
    peer = server.connect()
    peer.send(1, "pour")
    time.sleep(0.5)
    held_at = sent
    assert held_at < total // 2
    assert server.connect().call("echo") == wire.Result(1, {"echo": {}})
    texts, steps = [], []
    while isinstance(message := peer.receive(), wire.Notification):
        if message.method == "delta":
            texts.append(int(message.params["text"]))
        else:
            steps.append(message.params["done"])
    assert texts == list(range(total))
    assert steps == sorted(steps)
    assert steps[-1] == total - 1
    assert len(steps) < total


def test_a_reader_that_takes_nothing_is_dropped_and_its_request_cancelled(serve: Serve) -> None:
    cancelled = threading.Event()

    async def pour(params: JSONObject, context: RequestContext) -> JSONObject:
        def work() -> None:
            while not context.cancelled.is_set():
                context.notify("delta", {"text": "x" * 10_000})
            cancelled.set()

        await asyncio.to_thread(work)
        return {}

    server = serve(Limits(outbox_bytes=100_000, write_s=0.3), pour=pour)
    peer = server.connect()
    peer.send(1, "pour")
    assert cancelled.wait(5)
    wait_until(lambda: server.server.connections == 0)


def test_a_writer_that_never_reads_its_replies_is_not_read_any_more(serve: Serve) -> None:
    async def large(params: JSONObject, context: RequestContext) -> JSONObject:
        return {"text": "x" * 100_000}

    server = serve(Limits(outbox_bytes=200_000), large=large)
    peer = server.connect()
    peer.socket.settimeout(0.3)
    before = memory_bytes()
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 100_000:
            peer.send(sent, "large")
            sent += 1
    assert sent < 100_000
    assert memory_bytes() - before < 100_000_000
    assert server.connect().call("echo") == wire.Result(1, {"echo": {}})


def test_running_out_of_descriptors_does_not_end_the_server(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 60
    peers: list[Peer] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 9, hard))
        with caplog.at_level(logging.WARNING):
            with contextlib.suppress(OSError):
                while True:
                    peers.append(server.connect())
            wait_until(lambda: "accept_failed" in caplog.text)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for peer in peers:
            peer.close()
    assert server.connect().call("echo") == wire.Result(1, {"echo": {}})


# ----------------------------------------------------------------------------------- shutdown


def test_closing_answers_what_runs_and_hangs_up(serve: Serve) -> None:
    server = serve()
    peer, idle = server.connect(), server.connect()
    peer.send(1, "wait")
    assert peer.socket.fileno() >= 0
    wait_until(lambda: len(server.server.request_tasks) == 1)
    server.close()
    failure = peer.receive()
    assert isinstance(failure, wire.Failure)
    assert failure.error.code == "shutting_down"
    assert peer.receive() is None
    assert idle.receive() is None
    assert not server.path.exists()


# --------------------------------------------------------------------------------- the socket


def test_the_socket_is_private_whatever_the_umask(folder: Path) -> None:
    old = os.umask(0)
    try:
        listener = Listener(folder / "new" / "s.sock")
    finally:
        os.umask(old)
    assert (folder / "new").stat().st_mode & 0o777 == 0o700
    assert listener.path.stat().st_mode & 0o777 == 0o600
    listener.close()
    assert not listener.path.exists()


def test_a_stale_socket_is_replaced(folder: Path) -> None:
    path = folder / "s.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    Listener(path).close()


def test_a_live_socket_is_not_stolen(folder: Path) -> None:
    path = folder / "s.sock"
    first = Listener(path)
    with pytest.raises(IndexLocked, match="in use"):
        Listener(path)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
    first.close()


def test_a_live_socket_of_a_program_without_our_lock_is_not_stolen(folder: Path) -> None:
    path = folder / "s.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(1)
        with pytest.raises(IndexLocked, match="Another program"):
            Listener(path)
        assert path.exists()


def test_a_file_in_the_way_is_left_alone(folder: Path) -> None:
    (folder / "s.sock").write_text("precious")
    with pytest.raises(SettingsError, match="not a socket"):
        Listener(folder / "s.sock")
    assert (folder / "s.sock").read_text() == "precious"


def test_closing_leaves_another_ones_socket_in_place(folder: Path) -> None:
    path = folder / "s.sock"
    listener = Listener(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        listener.close()
        assert path.exists()


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_loose_runtime_folder_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(SettingsError, match="open to other users"):
        Listener(folder / "s.sock")


@needs_root
def test_a_runtime_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(SettingsError, match="belongs to user"):
        Listener(folder / "s.sock")


_AS_NOBODY = """
import os, socket, sys
os.setgid({id}); os.setuid({id})
peer = socket.socket(socket.AF_UNIX)
try:
    peer.connect(sys.argv[1])
except PermissionError:
    print("no permission"); sys.exit()
try:
    peer.sendall(b'{{"jsonrpc":"2.0","id":1,"method":"echo"}}\\n')
except OSError:
    pass
print(peer.recv(65536).decode())
"""


def ask_as_nobody(path: Path) -> str:
    # The system's own Python: the virtual environment may lie where only root can read.
    python = os.path.realpath(sys.executable)
    program = _AS_NOBODY.format(id=NOBODY)
    done = subprocess.run(
        [python, "-I", "-S", "-c", program, str(path)], capture_output=True, text=True, timeout=60, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_root
def test_another_user_cannot_reach_the_socket(serve: Serve) -> None:
    assert ask_as_nobody(serve().path) == "no permission\n"


@needs_root
def test_another_user_is_refused_even_where_the_file_rights_let_him_in(serve: Serve) -> None:
    server = serve()
    server.path.parent.chmod(0o755)
    server.path.chmod(0o666)
    reply = json.loads(ask_as_nobody(server.path))
    assert "error" in reply
    assert f"you are user {NOBODY}" in reply["error"]["message"]
    assert server.connect().call("echo") == wire.Result(1, {"echo": {}})

"""Starting the daemon, finding who holds its lock, stopping it.

A process is only ever signalled while it is verified to hold the index's lock; a number in a file
proves nothing (after a reboot it names a stranger).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copilot_client.connection import Connection, ConnectionLost, DaemonUnavailable, NotRunning, Starting
from copilotd import paths, wire
from copilotd.errors import CopilotError, SettingsError, could_not_start
from copilotd.paths import Places, ensure_private_directory

if TYPE_CHECKING:
    from subprocess import Popen

START_S = 30.0
STOP_S = 15.0
POLL_S = 0.03
MANAGER_POLL_S = 0.2
MAX_SPAWNS = 3

UNKNOWN_PID = 0
_PATH_VARIABLES = ("COPILOT_SOCKET", "INDEX_DIR", "COPILOT_ENV_FILE", "LOG_FILE")


def daemon_command(*arguments: str) -> list[str]:
    """Returns the command line of the heavy side.

    ``-P`` keeps the current folder out of the module path: a cloned repository may hold a ``torch.py``.
    """
    return [sys.executable, "-P", "-m", "copilotd.cli", *arguments]


def daemon_environment() -> dict[str, str]:
    """Returns this environment for a process that runs in another folder."""
    environment = dict(os.environ)
    for name in _PATH_VARIABLES:
        if environment.get(name, "").strip():
            environment[name] = os.path.abspath(os.path.expanduser(environment[name].strip()))
    package = os.path.dirname(os.path.dirname(os.path.abspath(paths.__file__)))
    if os.path.basename(package) not in ("site-packages", "dist-packages"):
        # A checkout that isn't installed.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (package, environment.get("PYTHONPATH"))))
    return environment


def run_copilotd(
    *arguments: str, environment: Mapping[str, str] | None = None, codes: tuple[int, ...] = (0,)
) -> str:
    """Runs the heavy side for a moment and returns what it printed.

    Args:
        *arguments: Its arguments.
        environment: Its environment; None for this one's.
        codes: The exit codes that are no failure.

    Raises:
        CopilotError: It failed; the message is what it said.
    """
    import subprocess

    done = subprocess.run(
        daemon_command(*arguments),
        env=daemon_environment() if environment is None else environment,
        cwd="/",
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode in codes and done.stdout:
        return done.stdout.decode("utf-8", "surrogateescape")
    message, hint = _last_words(done.stderr.decode("utf-8", "replace"))
    raise CopilotError(message, hint)


def start_daemon(places: Places, *, seconds: float = START_S) -> Connection:
    """Starts the daemon unless one runs, and returns a connection to it.

    Where the service is installed, its manager starts it, and is waited for where it does so by itself. Otherwise,
    of several clients that call this at once one starts it and the others wait for its socket.

    Raises:
        DaemonUnavailable: It can't start, or didn't come up within ``seconds``; the message says what it
            printed last.
    """
    deadline = time.monotonic() + seconds
    child: Popen[bytes] | None = None
    spawned, rival = 0, False
    try:
        ensure_private_directory(places.state_dir, tighten=True)
    except SettingsError as error:
        raise DaemonUnavailable(could_not_start(error.message), error.hint) from None
    from copilot_client.service.manager import find_manager

    manager = find_manager()
    if manager.serves(places) and manager.start():
        with contextlib.suppress(NotRunning):
            return Connection.open(places.socket)
    with _start_lock(places) as may_start:
        while True:
            with contextlib.suppress(NotRunning):
                connection = Connection.open(places.socket)
                _disown(child)
                return connection
            holders = _holders(places)
            rival = rival or (child is not None and bool(holders - {child.pid}))
            if child is not None and child.poll() is not None:
                # Losing the lock to a daemon that is just stopping is no failure: the next try gets it.
                if not rival and (child.returncode == 3 or spawned >= MAX_SPAWNS):
                    raise start_failure(places)
                child, rival = None, False
            if child is None and not holders and may_start() and not _holders(places):
                if manager.about_to_start():
                    # A second daemon would take the lock from the service, which then gives up.
                    time.sleep(MANAGER_POLL_S)
                else:
                    child = _spawn(_output_file(places))
                    spawned += 1
            if time.monotonic() > deadline:
                _disown(child)
                if holders := _holders(places):
                    raise Starting(max(holders))
                raise start_failure(places, f"The daemon did not come up within {seconds:g} s")
            time.sleep(POLL_S)


@contextlib.contextmanager
def _start_lock(places: Places) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether this process is the one that may start the daemon."""
    path = places.state_dir / f"{places.socket.stem}.start"
    descriptor = _open_own(path, os.O_RDWR)
    try:
        yield lambda: _try_lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _open_own(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DaemonUnavailable(
            f"The daemon could not start: {path} can't be opened: {error.strerror}.", f"ls -ld {path.parent}"
        ) from None


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _spawn(output: Path) -> Popen[bytes]:
    import subprocess

    descriptor = _open_own(output, os.O_WRONLY | os.O_TRUNC)
    try:
        return subprocess.Popen(
            daemon_command("--quiet"),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env={**daemon_environment(), wire.STARTED_BY: "client"},
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _disown(child: Popen[bytes] | None) -> None:
    if child is not None and child.returncode is None:
        # It outlives this process on purpose; without this Popen warns of a child still running.
        child.returncode = 0


def start_failure(places: Places, what: str = "The daemon could not start") -> DaemonUnavailable:
    """Returns the error for a daemon that ended or doesn't come up, with what it said last."""
    try:
        text = _output_file(places).read_text("utf-8", "replace")
    except OSError:
        text = ""
    reason, hint = _last_words(text)
    return DaemonUnavailable(f"{what}: {reason}", hint or f"See {places.log_file}")


def _last_words(text: str) -> tuple[str, str]:
    """Returns what copilotd said last, and what to do."""
    lines = text.strip().splitlines()
    # `copilotd: what is wrong`, then a line with what to do; anything else is a traceback's last line.
    said = [number for number, line in enumerate(lines) if line.startswith("copilotd: ")]
    if said:
        hint = " ".join(line.strip() for line in lines[said[-1] + 1 :])
        return lines[said[-1]].removeprefix("copilotd: "), hint
    return (lines[-1].strip() if lines else "it said nothing."), ""


def _output_file(places: Places) -> Path:
    return places.state_dir / f"{places.socket.stem}.out"


def _log_hint(places: Places) -> str:
    return f"See {places.log_file}"


# ------------------------------------------------------------------------------------------- lock


def _holders(places: Places) -> set[int]:
    """Returns who holds the index or the socket; after its index was removed a daemon holds only the latter."""
    files = (places.lock_file, places.socket.with_name(f"{places.socket.name}.lock"))
    return {pid for file in files if (pid := lock_holder(file)) is not None}


def lock_holder(lock_file: Path) -> int | None:
    """Returns the process that holds the daemon's lock.

    Returns:
        Its pid, :data:`UNKNOWN_PID` where the lock is held and the system doesn't tell by whom, None
        where nobody holds it.
    """
    try:
        status = os.stat(lock_file)
    except OSError:
        return None
    pids = _flock_pids(status.st_ino)
    if pids is not None:
        return next((pid for pid in pids if _has_open(pid, status)), None)
    # No /proc/locks (macOS): try the lock itself, shared and let go at once. Where the system tells, this is
    # not done: a daemon that starts in that instant would find the lock taken.
    try:
        descriptor = os.open(lock_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _try_lock(descriptor, fcntl.LOCK_SH) else _recorded_pid(lock_file)
    finally:
        os.close(descriptor)


def _flock_pids(inode: int) -> list[int] | None:
    """Reads ``1: FLOCK  ADVISORY  WRITE 8338 fe:00:2146879 0 EOF`` lines; proc_locks(5)."""
    try:
        with open("/proc/locks", encoding="ascii") as lines:
            held = [line.split() for line in lines]
    except OSError:
        return None
    return [
        int(fields[4])
        for fields in held
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode)
    ]


def _has_open(pid: int, status: os.stat_result) -> bool:
    # Inode numbers repeat between file systems, and /proc/locks' device numbers differ from stat's on btrfs.
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"{folder}/{name}"), status):
                return True
    return False


def _recorded_pid(lock_file: Path) -> int:
    """What the holder wrote into the file it has locked; only asked for while the lock is held."""
    import json

    try:
        pid = json.loads(lock_file.read_bytes())["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return UNKNOWN_PID
    return pid if isinstance(pid, int) and pid > 1 else UNKNOWN_PID


def terminate_holder(lock_file: Path) -> int | None:
    """Sends SIGTERM to the process that holds the lock; returns its pid, None where that can't be told."""
    pid = lock_holder(lock_file)
    if not pid:
        return None
    open_pidfd = getattr(os, "pidfd_open", None)
    if open_pidfd is None:
        os.kill(pid, signal.SIGTERM)
        return pid
    # The descriptor pins the process, so that a number used again meanwhile can't be hit.
    try:
        descriptor = open_pidfd(pid)
    except OSError:
        return None
    try:
        if lock_holder(lock_file) != pid:
            return None
        send_signal: Callable[..., Any] = signal.pidfd_send_signal  # type: ignore[attr-defined,unused-ignore]
        send_signal(descriptor, signal.SIGTERM)
    finally:
        os.close(descriptor)
    return pid


# ------------------------------------------------------------------------------------------- stop


def stop_daemon(places: Places, *, seconds: float = STOP_S) -> tuple[int, str]:
    """Stops the daemon, by request or, where it doesn't understand one, by signal.

    Returns:
        Its pid (:data:`UNKNOWN_PID` where it isn't known) and ``request`` or ``signal``.

    Raises:
        NotRunning: There is none.
        DaemonUnavailable: It is still there after ``seconds``, or can't be told apart from a stranger.
    """
    pid, refusal = _request_shutdown(places)
    if refusal is None and wait_until_gone(places, seconds):
        return pid, "request"
    terminated = terminate_holder(places.lock_file)
    if terminated is None:
        if refusal is not None:
            raise DaemonUnavailable(
                f"{refusal.message} It doesn't hold the lock of this index, so it was not signalled.",
                f"Find it with: lsof {places.socket}",
            )
        raise DaemonUnavailable(f"The daemon is still there after {seconds:g} s.", _log_hint(places))
    if not wait_until_gone(places, seconds):
        raise DaemonUnavailable(
            f"The daemon (pid {terminated}) is still there {seconds:g} s after SIGTERM.",
            f"kill -9 {terminated}",
        )
    return terminated, "signal"


def _request_shutdown(places: Places) -> tuple[int, CopilotError | None]:
    holder = lock_holder(places.lock_file)
    try:
        with Connection.open(places.socket) as connection:
            pid = int(connection.hello().get("pid") or holder or UNKNOWN_PID)
            with contextlib.suppress(ConnectionLost):
                connection.call("shutdown", {}, seconds=5)
    except NotRunning as error:
        if holder is None:
            raise
        return holder, error
    except CopilotError as error:
        return holder or UNKNOWN_PID, error
    return pid, None


def wait_until_gone(places: Places, seconds: float = STOP_S) -> bool:
    """Waits for the daemon to let go of socket and lock; returns whether it did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if lock_holder(places.lock_file) is None and not _listens(places.socket):
            return True
        time.sleep(POLL_S)
    return False


def _listens(path: Path) -> bool:
    try:
        with Connection.open(path) as connection:
            # A service manager goes on listening between two daemons.
            return not connection.managers
    except NotRunning:
        return False
    except DaemonUnavailable:
        return True

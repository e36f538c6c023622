"""The checks of ``copilot doctor`` that need no heavy library: places, daemon, folders, watches, service, disk.

The others are made by ``copilotd doctor-facts``, in a process of its own, so that a broken installation is a
finding too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot_client.connection import Connection, DaemonUnavailable, NotRunning
from copilot_client.launch import lock_holder, run_copilotd
from copilotd import __version__
from copilotd.errors import NEXT, CopilotError, SettingsError
from copilotd.paths import Places, check_index_directory, check_private_directory
from copilotd.text import shell_word

STATUS_S = 10.0
LOW_DISK_BYTES = 1 << 30
FULL_DISK_BYTES = 100 << 20
INOTIFY_SHARE = 0.8
"""From this share of the system's watches on, more folders may find none left."""

_INOTIFY = Path("/proc/sys/fs/inotify/max_user_watches")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: Its name.
        level: ``ok``, ``warn`` or ``fail``.
        message: A sentence.
        fix: The command that helps; empty where nothing is to be done.
    """

    check: str
    level: str
    message: str
    fix: str = ""


def installation() -> Iterator[Finding]:
    """Yields what the heavy side finds: Python, packages, settings, model, index, provider."""
    try:
        found = json.loads(run_copilotd("doctor-facts"))["findings"]
        yield from (Finding(**item) for item in found)
    except (CopilotError, ValueError, KeyError, TypeError) as error:
        said = error.message if isinstance(error, CopilotError) else str(error)
        yield Finding(
            "program", "fail", f"The daemon's program doesn't run: {said}", "pip install docs-copilot"
        )


def folders(places: Places) -> Iterator[Finding]:
    """Looks at who may use the folders of socket and index, and at the room on the disk."""
    checks: tuple[tuple[Path, Callable[[Path], None]], ...] = (
        (places.socket.parent, check_private_directory),
        (places.index_dir, check_index_directory),
    )
    for folder, check in checks:
        try:
            check(folder)
        except FileNotFoundError:
            yield Finding("folders", "ok", f"{folder} is not there yet; it is made when it is needed.")
        except SettingsError as error:
            yield Finding("folders", "fail", error.message, error.hint)
        except OSError as error:
            yield Finding("folders", "fail", f"{folder} can't be used: {error.strerror}.", f"ls -ld {folder}")
        else:
            yield Finding("folders", "ok", f"{folder} is yours alone to write to.")
    place = places.index_dir
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    level = "fail" if free < FULL_DISK_BYTES else "warn" if free < LOW_DISK_BYTES else "ok"
    message = f"{free / (1 << 30):.1f} GiB are free on the disk of {places.index_dir}."
    yield Finding("disk", level, message, "" if level == "ok" else f"df -h {place}")


def daemon(places: Places) -> tuple[list[Finding], Mapping[str, Any] | None]:
    """Talks to the daemon; returns what was found, and its status where it answers."""
    try:
        with Connection.open(places.socket) as connection:
            hello = connection.hello()
            status = connection.call("status", {}, seconds=STATUS_S)
    except NotRunning as error:
        holder = lock_holder(places.lock_file)
        if holder is None:
            return [Finding("daemon", "warn", error.message, error.hint)], None
        text = f"A daemon (pid {holder}) holds the index but doesn't listen at {places.socket}."
        return [Finding("daemon", "fail", text, "copilot restart")], None
    except DaemonUnavailable as error:
        return [Finding("daemon", "fail", error.message, error.hint)], None
    except CopilotError as error:
        return [Finding("daemon", "fail", error.message, error.hint or "copilot logs")], None
    return list(_answers(places, hello, status)), status


def _answers(places: Places, hello: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Finding]:
    pid, version, state = hello.get("pid"), hello.get("version"), status.get("state")
    yield Finding("daemon", "ok", f"The daemon (pid {pid}, version {version}) answers; it is {state}.")
    if version != __version__:
        text = f"The daemon is version {version}, this command is version {__version__}."
        yield Finding("version", "warn", text, "copilot restart")
    if os.path.realpath(str(status.get("index_dir"))) != os.path.realpath(places.index_dir):
        text = f"The daemon at {places.socket} serves {status.get('index_dir')}, not {places.index_dir}."
        yield Finding("daemon", "fail", text, "copilot restart")
    if error := status.get("model", {}).get("error"):
        why, _, fix = str(error).partition(NEXT)
        yield Finding("model", "fail", f"The daemon has no model: {why}", fix or "copilot model verify")
    for error in status.get("errors", ()):
        what, _, fix = str(error).partition(NEXT)
        yield Finding("errors", "warn", what, fix or "copilot logs")
    if skipped := status.get("skipped"):
        count = (
            "1 file is not indexed:"
            if len(skipped) == 1
            else f"{len(skipped)} files are not indexed, among them"
        )
        text = f"{count} {skipped[0]['path']}: {skipped[0]['reason']}."
        yield Finding("skipped", "warn", text, "copilot status")


def roots(places: Places, status: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Looks at each indexed folder: there, readable, watched, and no other's double."""
    known = _known_roots(places) if status is None else status.get("roots", [])
    if not known:
        yield Finding("roots", "warn", "No folder is indexed yet.", "copilot index DIR")
        return
    for root in known:
        yield _root(root["path"], root.get("watch"), root.get("state", "ok"))
    yield from _doubles(known)


def _known_roots(places: Places) -> Sequence[Mapping[str, Any]]:
    """Reads the roots from the file beside the index; paths stand there as hexadecimal bytes."""
    try:
        stored = json.loads((places.index_dir / "roots.json").read_bytes())
        return [
            {"path": os.fsdecode(bytes.fromhex(root["path"])), "namespace": root["namespace"]}
            for root in stored
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _root(path: str, watch: str | None, state: str) -> Finding:
    if not os.path.isdir(path):
        text = f"The indexed folder {path} is not there; its documents aren't cited."
        return Finding("roots", "fail", text, f"mount it again, or: copilot forget {shell_word(path)}")
    if not os.access(path, os.R_OK | os.X_OK):
        return Finding(
            "roots", "fail", f"The indexed folder {path} can't be read.", f"chmod u+rx {shell_word(path)}"
        )
    if state != "ok":
        text = f"The indexed folder {path} is {state}; its documents aren't cited."
        return Finding("roots", "fail", text, f"ls -la {shell_word(path)}")
    if watch is not None and watch.startswith("failed"):
        return Finding("roots", "fail", f"{path} is not watched ({watch}).", "copilot restart")
    if watch is not None and watch.startswith("polling") and "as asked for" not in watch:
        fix = "sudo sysctl fs.inotify.max_user_watches=524288" if "max_user" in watch else ""
        return Finding("roots", "warn", f"{path} is looked at from time to time only ({watch}).", fix)
    return Finding("roots", "ok", f"{path} is there, readable{' and watched' if watch else ''}.")


def _doubles(known: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Two names of one folder, or one inside another, are read and embedded once each, and cited twice."""
    seen: list[tuple[Mapping[str, Any], str]] = []
    for root in known:
        path, namespace = root["path"], root["namespace"]
        real = os.path.realpath(path)
        for other, place in seen:
            if real == place or real.startswith(f"{place}/") or place.startswith(f"{real}/"):
                whose = path if path == other["path"] else f"{path} and {other['path']}"
                verb = "is" if path == other["path"] else "hold the same documents,"
                text = (
                    f"{whose} {verb} indexed twice: in the namespaces {other['namespace']} and {namespace}."
                )
                fix = f"copilot forget {shell_word(path)} --namespace {shell_word(namespace)}"
                yield Finding("roots", "warn", text, fix)
        seen.append((root, real))


def watches(status: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Compares the daemon's inotify watches with the system's limit; nothing where there is no such thing."""
    try:
        limit = int(_INOTIFY.read_text())
    except (OSError, ValueError):
        return
    used = 0
    if status is not None:
        with contextlib.suppress(OSError):
            for info in Path(f"/proc/{status['pid']}/fdinfo").iterdir():
                with contextlib.suppress(OSError):
                    used += info.read_text().count("inotify wd:")
    level = "warn" if used > limit * INOTIFY_SHARE else "ok"
    fix = "" if level == "ok" else f"sudo sysctl fs.inotify.max_user_watches={max(524288, 2 * limit)}"
    yield Finding("watches", level, f"The daemon uses {used} of {limit} inotify watches.", fix)


def service(places: Places) -> Finding:
    """Asks the service manager."""
    from copilot_client.service.manager import NoServiceManager, find_manager

    manager = find_manager()
    try:
        manager.require()
        if not manager.serves(places):
            text = f"No service of {manager.name} is installed; the first question starts the daemon."
            return Finding("service", "ok", text)
        state = manager.state()
    except NoServiceManager as error:
        return Finding("service", "ok", error.message)
    except CopilotError as error:
        return Finding("service", "warn", error.message, error.hint)
    if state.state == "failed":
        return Finding("service", "fail", f"The service failed: {state.note}.", "copilot service logs")
    if not state.enabled:
        text = f"The service is {state.state}, and doesn't start at login."
        return Finding("service", "warn", text, "copilot service install")
    return Finding("service", "ok", f"The service of {manager.name} is {state.state}.")

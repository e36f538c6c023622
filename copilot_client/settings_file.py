"""The settings file as text: one value changed, everything else kept as its owner wrote it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from copilotd.errors import CopilotError, UsageError
from copilotd.paths import EnvBinding, env_bindings, parse_env, read_env_file
from copilotd.text import printable

# Characters that mean nothing to a reader of such files, wherever they stand in a value.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/+@%=~")


def read_text(path: Path) -> str:
    """Returns the file's text; an absent one is empty.

    Raises:
        SettingsError: It can't be read, is not UTF-8, or is another user's.
    """
    read_env_file(path, required=False)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def set_value(text: str, name: str, value: str) -> str:
    """Returns ``text`` with ``name`` set to ``value``, in its place where it was set already.

    Raises:
        UsageError: No such file can hold the value.
    """
    written = quote(value)
    present = [
        binding for binding in env_bindings(text) if binding.name == name and binding.value is not None
    ]
    if present:
        # The last one is the one that counts.
        start, end = present[-1].written
        return text[:start] + written + text[end:]
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = newline if text and not text.endswith(("\n", "\r")) else ""
    return f"{text}{gap}{name}={written}{newline}"


def unset_value(text: str, name: str) -> str:
    """Returns ``text`` without any binding of ``name``."""
    found: list[EnvBinding] = [binding for binding in env_bindings(text) if binding.name == name]
    for binding in reversed(found):
        start, end = binding.line
        text = text[:start] + text[end:]
    return text


def quote(value: str) -> str:
    """Returns ``value`` as it is written into the file, so that it is read back unchanged.

    Raises:
        UsageError: It has control characters, a line break among them.
    """
    if not value.isprintable():
        raise UsageError("The value has control characters in it.", "give it as one line of plain text")
    if value and set(value) <= _PLAIN:
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def stored_values(text: str) -> dict[str, str]:
    """Returns what the text sets."""
    return dict(parse_env(text))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Keeps other ``copilot config`` commands out; gives the real path, behind any symbolic link.

    Raises:
        CopilotError: The file's folder can't be made or used.
    """
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(real.parent, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield real
    finally:
        os.close(descriptor)


def is_open_to_others(path: Path) -> bool:
    """Whether other users may read or write the file."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


@contextlib.contextmanager
def draft(path: Path, text: str) -> Iterator[Path]:
    """Gives a file beside ``path`` with ``text`` that only its owner can read; gone afterwards unless adopted.

    Raises:
        CopilotError: It can't be written.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _unusable(beside, error) from None
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def adopt(beside: Path, path: Path) -> None:
    """Puts the draft in the file's place, whole or not at all, readable by its owner alone.

    Raises:
        CopilotError: It can't be put there.
    """
    try:
        beside.chmod(0o600)
        beside.replace(path)
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> CopilotError:
    return CopilotError(
        f"{printable(str(path))} can't be written: {error.strerror}.", f"ls -ld {path.parent}"
    )

"""Where the socket, index, settings, log and lock live: the one answer both sides compute.

The client must find the daemon from any shell (login, ssh, cron, service), so nothing here depends on
XDG_RUNTIME_DIR, TMPDIR or the current directory's files. Standard library and platformdirs only, since
the client imports it at each start.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from copilotd.errors import SettingsError
from copilotd.text import shell_word

APPLICATION = "copilot"

# sizeof(sockaddr_un.sun_path) less the closing NUL: 108 on Linux, 104 on macOS and the BSDs.
SOCKET_PATH_LIMIT = 107 if sys.platform.startswith("linux") else 103


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute paths of one daemon and its index.

    Attributes:
        config_dir: Holds ``.env``.
        env_file: The settings file that counts; it may not exist.
        index_dir: The index; symlinks kept as written.
        state_dir: Private folder for the socket and what the client remembers.
        socket: Where the daemon listens.
        socket_source: Why there, for messages: ``COPILOT_SOCKET``, ``state folder`` or ``temporary folder``.
        lock_file: Held by the daemon that owns the index.
        log_file: The daemon's log.
    """

    config_dir: Path
    env_file: Path
    index_dir: Path
    state_dir: Path
    socket: Path
    socket_source: str
    lock_file: Path
    log_file: Path


def find_places(
    env_file: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    temporary: str = "/tmp",  # noqa: S108
) -> Places:
    """Computes every place from the environment, then the settings file.

    Args:
        env_file: What ``--env-file`` named; goes before COPILOT_ENV_FILE.
        environ: The environment; None for this process's own.
        temporary: Where a socket goes whose path would be too long. Not TMPDIR: that differs between
            shells, and may itself be too long.

    Raises:
        SettingsError: The settings file was named but can't be read, or COPILOT_SOCKET is too long.
    """
    env = os.environ if environ is None else environ
    config_dir = platformdirs.user_config_path(APPLICATION, appauthor=False)
    state_dir = user_state_dir()
    file = find_env_file(env_file, env)
    stored = read_env_file(file, required=is_env_file_named(env_file, env))

    default_index = default_index_dir()
    index_dir = _path_setting("INDEX_DIR", env, stored, file.parent) or default_index
    # By real path, so that /tmp/x and /private/tmp/x, or a symlink and its target, are one index.
    real_index = os.path.realpath(index_dir)
    instance = "" if real_index == os.path.realpath(default_index) else f"-{_digest(real_index)}"

    default_log = platformdirs.user_log_path(APPLICATION, appauthor=False) / f"copilotd{instance}.log"

    socket, source = _path_setting("COPILOT_SOCKET", env, stored, file.parent), "COPILOT_SOCKET"
    if socket is None:
        socket, source = state_dir / f"copilotd{instance}.sock", "state folder"
        if _too_long(socket):
            # The state folder's path tells instances apart too: it differs where the index may not.
            name = _digest(f"{state_dir}\0{real_index}") + ".sock"
            socket, source = Path(temporary, f"copilot-{os.getuid()}", name), "temporary folder"
    elif _too_long(socket):
        raise SettingsError(
            f"COPILOT_SOCKET has {len(os.fsencode(socket))} bytes; this system allows {SOCKET_PATH_LIMIT}.",
            "Unset it, or choose a shorter path.",
        )
    return Places(
        config_dir=config_dir,
        env_file=file,
        index_dir=index_dir,
        state_dir=state_dir,
        socket=socket,
        socket_source=source,
        lock_file=index_dir / "copilotd.lock",
        log_file=_path_setting("LOG_FILE", env, stored, file.parent) or default_log,
    )


def user_state_dir() -> Path:
    """Returns the private folder for the socket and what the client remembers."""
    return platformdirs.user_state_path(APPLICATION, appauthor=False)


def default_index_dir() -> Path:
    """Returns where the index is when no setting says otherwise."""
    return platformdirs.user_data_path(APPLICATION, appauthor=False) / "index"


def is_env_file_named(env_file: str | None, environ: Mapping[str, str]) -> bool:
    """Whether somebody chose the settings file, so that its absence is an error."""
    return bool((env_file or environ.get("COPILOT_ENV_FILE", "")).strip())


def find_env_file(env_file: str | None, environ: Mapping[str, str]) -> Path:
    """Returns the settings file: ``env_file``, else COPILOT_ENV_FILE, else the config folder's ``.env``."""
    named = (env_file or environ.get("COPILOT_ENV_FILE", "")).strip()
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    return platformdirs.user_config_path(APPLICATION, appauthor=False) / ".env"


def read_env_file(path: Path, *, required: bool) -> dict[str, str]:
    """Returns the values of a settings file; an absent one is empty unless ``required``.

    Raises:
        SettingsError: It is required and absent, can't be read, or is another user's.
    """
    try:
        with open(path, "rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            source = file.read()
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return {}
        raise SettingsError(
            f"COPILOT_ENV_FILE: there is no file {path}.", "Correct COPILOT_ENV_FILE or --env-file."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"COPILOT_ENV_FILE: {path} can't be read: {error.strerror}.", f"ls -l {path}"
        ) from None
    # Whoever owns it decides where questions and passages go. Root may: it could do so anyway.
    if owner not in (os.getuid(), 0):
        raise SettingsError(
            f"COPILOT_ENV_FILE: {path} belongs to user {owner}, not to you ({os.getuid()}); it is not used.",
            f"Look at what is in it, then: sudo chown $USER {path}",
        )
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError:
        raise SettingsError(f"COPILOT_ENV_FILE: {path} is not UTF-8.", f"file {path}") from None
    return dict(parse_env(text))


# One binding of a .env file: KEY, KEY=bare, KEY='single' or KEY="double", perhaps after `export`; a quoted
# value may run over lines. What doesn't match is skipped to the end of its line.
_BINDING = re.compile(
    r"""\s*(?:export[^\S\r\n]+)?
        (?:'(?P<quoted_key>[^']+)'|(?P<key>[^=\#\s'][^=\#\s]*))[^\S\r\n]*
        (?P<assign>=
            (?:(?P<comment_only>[^\S\r\n]+(?=\#))
            |[^\S\r\n]*(?:
                '(?P<single>(?:\\.|[^'\\])*)'
                |"(?P<double>(?:\\.|[^"\\])*)"
                |(?P<bare>(?!['"])[^\r\n]*)
            ))
        )?
        [^\S\r\n]*(?:\#[^\r\n]*)?(?:\r\n|\r|\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_SKIPPED = re.compile(r"\s*[^\r\n]*(?:\r\n|\r|\n|\Z)")
_ESCAPE_NAMES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class EnvBinding:
    """One binding of a ``.env`` text.

    Attributes:
        name: The variable.
        value: Its value; None where the line has a name and no ``=``.
        line: Where the binding begins and ends in the text, its newline included.
        written: Where the value as written, quotes included, begins and ends.
    """

    name: str
    value: str | None
    line: tuple[int, int]
    written: tuple[int, int]


def parse_env(text: str) -> Iterator[tuple[str, str]]:
    """Yields the bindings of a ``.env`` text as python-dotenv reads them, without interpolation.

    A Hypothesis test holds the two to the same result; this one exists because the client can't afford to
    import another library for two values.
    """
    for binding in env_bindings(text):
        if binding.value is not None:
            yield binding.name, binding.value


def env_bindings(text: str) -> Iterator[EnvBinding]:
    """Yields the bindings of a ``.env`` text with their places in it."""
    position = len(text) - len(text.removeprefix("\ufeff"))
    while position < len(text):
        match = _BINDING.match(text, position)
        if match is None:
            skipped = _SKIPPED.match(text, position)
            position = skipped.end() if skipped and skipped.end() > position else position + 1
            continue
        position = match.end()
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        written = _written_span(match)
        value = None if match["assign"] is None else _binding_value(match)
        yield EnvBinding(match["quoted_key"] or match["key"], value, (start, match.end()), written)


def _written_span(match: re.Match[str]) -> tuple[int, int]:
    for name in ("single", "double"):
        if match[name] is not None:
            return match.start(name) - 1, match.end(name) + 1
    if match["bare"] is not None:
        return match.start("bare"), match.start("bare") + len(_binding_value(match))
    return match.end("assign"), match.end("assign")


def _binding_value(match: re.Match[str]) -> str:
    if match["single"] is not None:
        return re.sub(r"\\([\\'])", r"\1", match["single"])
    if match["double"] is not None:
        return re.sub(
            r"\\([\\'\"abfnrtv])", lambda found: _ESCAPE_NAMES.get(found[1], found[1]), match["double"]
        )
    return re.sub(r"\s+#.*", "", match["bare"] or "").rstrip()


def _path_setting(
    name: str, environ: Mapping[str, str], stored: Mapping[str, str], file_folder: Path
) -> Path | None:
    """Returns a path from the environment (relative to here) or the file (relative to the file)."""
    if value := environ.get(name, "").strip():
        return Path(os.path.abspath(os.path.expanduser(value)))
    if value := stored.get(name, "").strip():
        return Path(os.path.normpath(file_folder / os.path.expanduser(value)))
    return None


def _digest(text: str) -> str:
    import hashlib  # here, since it loads OpenSSL, which a client of the default index doesn't need

    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]


def _too_long(path: Path) -> bool:
    return len(os.fsencode(path)) > SOCKET_PATH_LIMIT


def ensure_private_directory(path: Path, *, tighten: bool = False) -> None:
    """Makes sure ``path`` is a folder that only this user can enter, creating it and its parents 0700.

    Args:
        path: The folder.
        tighten: Take away rights that let others only look (0755 → 0700); meant for our own folders.
            A folder others may write to is refused all the same: they may have put something there.

    Raises:
        SettingsError: It belongs to somebody else, is open to others, or can't be made.
    """
    try:
        _make_private(path)
        check_private_directory(path, tighten=tighten)
    except OSError as error:
        raise SettingsError(f"The folder {path} can't be used: {error.strerror}.", f"ls -ld {path}") from None


def check_private_directory(path: Path, *, tighten: bool = False) -> None:
    """Refuses a folder that belongs to somebody else or is open to others; see ensure_private_directory.

    Raises:
        SettingsError: As there.
        OSError: It isn't there.
    """
    for status in (path.lstat(), path.stat()):
        if status.st_uid != os.getuid():
            raise SettingsError(
                f"The folder {path} belongs to user {status.st_uid}, not to you ({os.getuid()}).",
                "Set COPILOT_SOCKET to a path in a folder of your own.",
            )
    if not stat.S_ISDIR(status.st_mode):
        raise SettingsError(f"{path} is not a folder.", f"ls -ld {path}")
    mode = stat.S_IMODE(status.st_mode)
    if tighten and mode & 0o077 and not mode & 0o022:
        path.chmod(0o700)
    elif mode & 0o077:
        raise SettingsError(
            f"The folder {path} is open to other users (mode {mode:04o}); it is not used.",
            f"chmod 700 {shell_word(str(path))}",
        )


def check_index_directory(path: Path, *, tighten: bool = False) -> None:
    """Refuses an index folder in which somebody else has, or could have, put something.

    That others may look is for its owner to decide: every file in it is made for the owner alone.

    Args:
        path: The folder.
        tighten: Take away the right to look; meant for our own folder.

    Raises:
        SettingsError: It or a link to it belongs to somebody else, others may write to it, or a file in it
            is a symbolic link.
        OSError: It isn't there or can't be read.
    """
    for status in (path.lstat(), path.stat()):
        if status.st_uid != os.getuid():
            raise SettingsError(
                f"INDEX_DIR {path} belongs to user {status.st_uid}, not to you ({os.getuid()}).",
                "Set INDEX_DIR to a folder of your own.",
            )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o022:
        raise SettingsError(
            f"INDEX_DIR {path} can be written to by other users (mode {mode:04o}); it is not used.",
            f"Look at what is in it, then: chmod go-w {shell_word(str(path))}",
        )
    if tighten and mode & 0o077:
        path.chmod(0o700)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise SettingsError(
                    f"{entry.path} is a symbolic link; nothing in INDEX_DIR may lead elsewhere.",
                    f"ls -l {path}",
                )


def _make_private(path: Path) -> None:
    if path.is_dir() or path.is_symlink():
        return
    if path.parent != path:
        _make_private(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        # Another starter was quicker, or something else stands there; the check that follows decides.
        return

"""Client and daemon compute the same places, and only private folders are used."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dotenv
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copilotd.errors import SettingsError
from copilotd.paths import (
    SOCKET_PATH_LIMIT,
    ensure_private_directory,
    find_places,
    parse_env,
    read_env_file,
)

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a short path; the XDG variables and ours are unset."""
    for name in list(os.environ):
        if name.startswith(("XDG_", "COPILOT_")) or name == "INDEX_DIR":
            monkeypatch.delenv(name)
    with tempfile.TemporaryDirectory(prefix="h") as folder:
        monkeypatch.setenv("HOME", folder)
        yield Path(folder)


def write_env(home: Path, text: str) -> Path:
    file = find_places().env_file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


# --------------------------------------------------------------------------------------- the places


@pytest.mark.skipif(sys.platform == "darwin", reason="XDG folders are Linux's")
def test_defaults_on_linux(home: Path) -> None:
    places = find_places()
    assert places.socket == home / ".local/state/copilot/copilotd.sock"
    assert places.index_dir == home / ".local/share/copilot/index"
    assert places.env_file == home / ".config/copilot/.env"
    assert places.lock_file == places.index_dir / "copilotd.lock"
    assert places.log_file.parent.is_relative_to(home)


def test_runtime_and_temporary_variables_do_not_move_the_socket(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = find_places().socket
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    monkeypatch.setenv("TMPDIR", str(home))
    assert find_places().socket == before


def test_another_index_has_its_own_socket_and_log_but_the_default_spelt_out_has_not(home: Path) -> None:
    default = find_places(environ={})
    other = find_places(environ={"INDEX_DIR": str(home / "other")})
    assert other.socket != default.socket
    assert other.socket.parent == default.socket.parent
    assert other.log_file != default.log_file
    assert find_places(environ={"INDEX_DIR": str(default.index_dir)}).socket == default.socket


def test_a_symlink_to_an_index_is_the_same_index(home: Path) -> None:
    (home / "real").mkdir()
    (home / "link").symlink_to(home / "real")
    by_link = find_places(environ={"INDEX_DIR": str(home / "link")})
    assert by_link.socket == find_places(environ={"INDEX_DIR": str(home / "real")}).socket
    assert by_link.index_dir == home / "link"


def test_copilot_socket_wins_and_is_trimmed(home: Path) -> None:
    places = find_places(environ={"COPILOT_SOCKET": "  ~/x.sock \n", "INDEX_DIR": "/i"})
    assert places.socket == home / "x.sock"
    assert places.socket_source == "COPILOT_SOCKET"


def test_environment_wins_over_the_file_and_an_empty_value_is_none(home: Path) -> None:
    write_env(home, "INDEX_DIR=/from/file\nCOPILOT_SOCKET=rel.sock\n")
    places = find_places(environ={"INDEX_DIR": "/from/env", "COPILOT_SOCKET": " "})
    assert places.index_dir == Path("/from/env")
    assert places.socket == places.env_file.parent / "rel.sock"
    assert find_places(environ={}).index_dir == Path("/from/file")


def test_the_current_directory_has_no_say(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "repo").mkdir()
    (home / "repo" / ".env").write_text("INDEX_DIR=/evil\n")
    before = find_places()
    monkeypatch.chdir(home / "repo")
    assert find_places() == before


def test_a_named_env_file_is_read_and_must_exist(home: Path) -> None:
    file = home / "my.env"
    file.write_text("INDEX_DIR=idx\n")
    assert find_places(str(file)).index_dir == home / "idx"
    assert find_places(environ={"COPILOT_ENV_FILE": str(file)}).index_dir == home / "idx"
    with pytest.raises(SettingsError, match="COPILOT_ENV_FILE"):
        find_places(environ={"COPILOT_ENV_FILE": str(home / "absent")})


def test_unreadable_and_binary_env_files_are_named(home: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read"):
        read_env_file(home, required=False)
    (home / "b").write_bytes(b"INDEX_DIR=\xff\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        read_env_file(home / "b", required=False)


def test_a_path_too_long_goes_to_a_short_private_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ("s" * SOCKET_PATH_LIMIT)))
    places = find_places(environ={})
    assert places.socket.parent == Path(f"/tmp/copilot-{os.getuid()}")
    assert places.socket_source == "temporary folder"
    assert len(os.fsencode(places.socket)) <= SOCKET_PATH_LIMIT
    other = find_places(environ={"INDEX_DIR": "/other"})
    assert other.socket.parent == places.socket.parent
    assert other.socket != places.socket


def test_the_limit_is_counted_in_bytes_to_the_last_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = SOCKET_PATH_LIMIT - len(os.fsencode(home)) - len("/copilot/copilotd.sock") - 1
    for name, source in (("s" * room, "state folder"), ("s" * (room - 1) + "é", "temporary folder")):
        monkeypatch.setenv("XDG_STATE_HOME", str(home / name))
        assert find_places(environ={}).socket_source == source


def test_copilot_socket_too_long_is_an_error_that_names_it(home: Path) -> None:
    with pytest.raises(SettingsError, match=f"COPILOT_SOCKET.*{SOCKET_PATH_LIMIT}"):
        find_places(environ={"COPILOT_SOCKET": "/" + "x" * SOCKET_PATH_LIMIT})


def test_a_bare_environment_computes_the_same(home: Path) -> None:
    program = "from copilotd.paths import find_places; print(find_places().socket)"
    bare = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    out = subprocess.run(
        [sys.executable, "-c", program],
        env=bare,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert out.stdout.strip() == str(find_places().socket), out.stderr


# ----------------------------------------------------------------------------------- the .env reader

NAMES = ("INDEX_DIR", "COPILOT_SOCKET")
_piece = st.sampled_from(
    ["INDEX_DIR", "COPILOT_SOCKET", "export ", "=", " = ", "'", '"', "\\", "#", " #", " ", "\t", "\n", "\r"]
) | st.sampled_from(
    ["\r\n", "/a b", "x", "é", "\\n", "\\'", "$HOME", "${HOME}", "\ufeff", "\x0b", "\u2028", "\xa0"]
)


@given(st.lists(_piece, max_size=24).map("".join))
@example("INDEX_DIR=/a # note\nCOPILOT_SOCKET='/b #c' # d")
@example("INDEX_DIR= # none")
@example("INDEX_DIR=#kept")
@example('INDEX_DIR="a\nb"\nCOPILOT_SOCKET=x')
@example("INDEX_DIR='unclosed\nCOPILOT_SOCKET=/x")
@example("export INDEX_DIR=/x\r\n\r\nCOPILOT_SOCKET=/y")
def test_our_reader_agrees_with_python_dotenv(text: str) -> None:
    theirs = dotenv.dotenv_values(stream=io.StringIO(text, newline=""), interpolate=False)
    ours = dict(parse_env(text))
    for name in NAMES:
        assert ours.get(name) == theirs.get(name), text


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    list(parse_env(text))


# --------------------------------------------------------------------------------- private folders


def test_folders_are_made_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        ensure_private_directory(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o755, 0o710])
def test_an_open_folder_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(SettingsError, match="open to other users") as caught:
        ensure_private_directory(tmp_path)
    assert caught.value.hint == f"chmod 700 {tmp_path}"


def test_our_own_folder_is_tightened_unless_others_could_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    ensure_private_directory(tmp_path, tighten=True)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    tmp_path.chmod(0o775)
    with pytest.raises(SettingsError, match="open to other users"):
        ensure_private_directory(tmp_path, tighten=True)


def test_a_file_or_a_dangling_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    (tmp_path / "l").symlink_to(tmp_path / "nowhere")
    for name in ("f", "l"):
        with pytest.raises(SettingsError, match=name):
            ensure_private_directory(tmp_path / name)


@needs_root
def test_a_folder_or_link_of_another_user_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        theirs, mine = Path(folder, "theirs"), Path(folder, "mine")
        theirs.mkdir(mode=0o700)
        os.chown(theirs, NOBODY, NOBODY)
        with pytest.raises(SettingsError, match=f"belongs to user {NOBODY}"):
            ensure_private_directory(theirs)
        mine.mkdir(mode=0o700)
        link = Path(folder, "link")
        link.symlink_to(mine)
        os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
        with pytest.raises(SettingsError, match=f"belongs to user {NOBODY}"):
            ensure_private_directory(link)

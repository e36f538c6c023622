"""The service files: what the managers read is what we meant, with this installation's paths."""

from __future__ import annotations

import configparser
import os
import plistlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.shared import REPOSITORY

from copilotd import units

PLIST = REPOSITORY / "launchd" / f"{units.LAUNCHD_LABEL}.plist"
UNIT = REPOSITORY / "systemd" / "copilotd.service"
SOCKET = REPOSITORY / "systemd" / "copilotd.socket"

# Keys of launchd.plist(5) that we use, with their types.
LAUNCHD_KEYS = {
    "Label": str, "ProgramArguments": list, "RunAtLoad": bool, "KeepAlive": dict, "ThrottleInterval": int,
    "ExitTimeOut": int, "ProcessType": str, "Umask": int, "StandardOutPath": str, "StandardErrorPath": str,
    "EnvironmentVariables": dict, "Sockets": dict,
}  # fmt: skip


def parsed(unit: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit)
    return parser


# ------------------------------------------------------------------------------------- systemd


def test_the_unit_restarts_on_failure_but_not_on_never() -> None:
    service = parsed(units.systemd_unit(["/x/copilotd"]))["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"] == "/x/copilotd"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "3"
    assert service["EnvironmentFile"].startswith("-")
    assert service["ExecReload"] == "kill -HUP $MAINPID"
    # These would hide documents from the daemon, or the socket from its clients.
    assert not {"ProtectHome", "PrivateTmp", "InaccessiblePaths"} & set(service)


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        ("/a b/c", '"/a b/c"'), ("/50%/x", "/50%%/x"), ("/a$HOME", "/a$$HOME"), ('/q"x', '"/q\\"x"'),
        ("/back\\slash", '"/back\\\\slash"'), ("/it's", '"/it\'s"'), ("/a;b", '"/a;b"'),
    ],
)  # fmt: skip
def test_odd_paths_are_quoted_for_systemd(argument: str, written: str) -> None:
    assert parsed(units.systemd_unit(["/x", argument]))["Service"]["ExecStart"] == f"/x {written}"


def test_the_socket_is_its_owners_alone_and_where_the_client_looks() -> None:
    socket = parsed(units.systemd_socket(Path("/ho me/50%/copilotd.sock")))["Socket"]
    assert socket["ListenStream"] == "/ho me/50%%/copilotd.sock"
    assert (socket["SocketMode"], socket["DirectoryMode"], socket["RemoveOnStop"]) == ("0600", "0700", "yes")
    # One daemon for all connections, started for the first.
    assert "Accept" not in socket


def test_the_service_sees_the_places_of_the_shell_that_installs_it_and_nothing_else() -> None:
    shell = {
        "INDEX_DIR": " ~/x ", "XDG_STATE_HOME": "/a b/50%$", "LOG_FILE": " ", "ANTHROPIC_API_KEY": "sk-1", "PATH": "/",
    }  # fmt: skip
    places = units.place_environment(shell)
    assert places == {"INDEX_DIR": os.path.expanduser("~/x"), "XDG_STATE_HOME": "/a b/50%$"}
    unit = units.systemd_unit(["/x"], places)
    assert f'Environment="INDEX_DIR={os.path.expanduser("~/x")}"' in unit
    assert 'Environment="XDG_STATE_HOME=/a b/50%%$"' in unit
    assert "@" not in "".join(line for line in unit.splitlines(True) if not line.startswith("SystemCall"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("folder", ["plain", "with blank and 50%"])
def test_systemd_accepts_the_unit(tmp_path: Path, folder: str) -> None:
    program = tmp_path / folder / "copilotd"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "copilotd.service"
    command = [str(program), "--env-file", str(tmp_path / "a b.env")]
    unit.write_text(units.systemd_unit(command, {"INDEX_DIR": "/a b/50%"}))
    socket = tmp_path / "copilotd.socket"
    socket.write_text(units.systemd_socket(tmp_path / folder / "copilotd.sock"))
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit), str(socket)],
        capture_output=True, text=True, env=environment, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "copilotd." not in done.stderr, done.stderr


# ------------------------------------------------------------------------------------- launchd


def test_the_plist_has_only_keys_launchd_knows_of_the_right_type() -> None:
    for job in (
        plistlib.loads(PLIST.read_bytes()),
        plistlib.loads(units.launchd_plist(["/x"], Path("/l"), Path("/s")).encode()),
    ):
        assert {key: type(value) for key, value in job.items()} == LAUNCHD_KEYS


def test_the_plist_restarts_on_failure_only() -> None:
    job = plistlib.loads(units.launchd_plist(["/x/copilotd"], Path("/l"), Path("/s")).encode())
    assert job["KeepAlive"] == {"SuccessfulExit": False}
    assert job["Label"] == units.LAUNCHD_LABEL == PLIST.stem
    assert job["Umask"] == 0o077


def test_paths_in_the_plist_are_absolute_and_escaped() -> None:
    text = units.launchd_plist(
        ["/tmp/ho me & <co>/copilotd"], Path("/tmp/ho me/logs"), Path("/tmp/ho me/s"), {"INDEX_DIR": "/a & b"}
    )
    job = plistlib.loads(text.encode())
    assert job["Sockets"] == {"Listeners": {"SockPathName": "/tmp/ho me/s", "SockPathMode": 0o600}}
    assert job["EnvironmentVariables"] == {"INDEX_DIR": "/a & b"}
    assert job["ProgramArguments"] == ["/tmp/ho me & <co>/copilotd", "--quiet"]
    assert job["StandardErrorPath"] == job["StandardOutPath"] == "/tmp/ho me/logs/copilotd.stderr.log"
    assert "~" not in text
    assert "$" not in text
    assert "@" not in text


def test_under_launchd_never_looks_like_success_so_that_it_is_not_started_again(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "TOP_K": "0", "XPC_SERVICE_NAME": units.LAUNCHD_LABEL}
    done = subprocess.run(
        [sys.executable, "-m", "copilotd"], env=environment, cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "TOP_K" in done.stderr


# ------------------------------------------------------------------------------- --print-unit


@pytest.fixture
def short_home() -> Iterator[Path]:
    """A home whose socket has its usual place: pytest's own folders can be too long for one."""
    with tempfile.TemporaryDirectory(prefix="unit") as place:
        home = Path(place, "ho me")
        home.mkdir()
        yield home


@pytest.mark.parametrize("manager", ["systemd", "systemd-socket", "launchd"])
def test_print_unit_shows_this_installation_and_writes_nothing(short_home: Path, manager: str) -> None:
    home = short_home
    command = [sys.executable, "-m", "copilotd", "--print-unit", manager]
    done = subprocess.run(command, env={"HOME": str(home)}, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = units.daemon_command()
    if manager == "systemd":
        assert done.stdout.rstrip() == units.systemd_unit(expected).rstrip()
    elif manager == "systemd-socket":
        assert f"ListenStream={home}/.local/state/copilot/copilotd.sock\n" in done.stdout
    else:
        job = plistlib.loads(done.stdout.encode())
        assert job["ProgramArguments"] == [*expected, "--quiet"]
        assert Path(job["StandardErrorPath"]).is_relative_to(home)
    assert list(home.iterdir()) == []


def test_the_command_has_absolute_paths_and_starts(tmp_path: Path) -> None:
    command = units.daemon_command(os.path.relpath(tmp_path / "x.env"))
    assert os.path.isabs(command[0])
    assert command[-1] == str(tmp_path / "x.env")
    done = subprocess.run(
        [*units.daemon_command(), "--version"], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.stdout.startswith("copilotd ")


def test_the_wheel_carries_the_files() -> None:
    pyproject = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for file in (UNIT, SOCKET, PLIST):
        assert f'"{file.relative_to(REPOSITORY)}" = "copilotd/service_files/{file.name}"' in pyproject

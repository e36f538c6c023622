"""The service files: what the managers read is what we meant, with this installation's paths."""

from __future__ import annotations

import configparser
import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.shared import REPOSITORY

from copilotd import units

PLIST = REPOSITORY / "launchd" / f"{units.LAUNCHD_LABEL}.plist"
UNIT = REPOSITORY / "systemd" / "copilotd.service"

# Keys of launchd.plist(5) that we use, with their types.
LAUNCHD_KEYS = {
    "Label": str, "ProgramArguments": list, "RunAtLoad": bool, "KeepAlive": dict, "ThrottleInterval": int,
    "ExitTimeOut": int, "ProcessType": str, "Umask": int, "StandardOutPath": str, "StandardErrorPath": str,
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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("folder", ["plain", "with blank and 50%"])
def test_systemd_accepts_the_unit(tmp_path: Path, folder: str) -> None:
    program = tmp_path / folder / "copilotd"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "copilotd.service"
    unit.write_text(units.systemd_unit([str(program), "--env-file", str(tmp_path / "a b.env")]))
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)],
        capture_output=True, text=True, env=environment, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "copilotd.service" not in done.stderr, done.stderr


# ------------------------------------------------------------------------------------- launchd


def test_the_plist_has_only_keys_launchd_knows_of_the_right_type() -> None:
    for job in (
        plistlib.loads(PLIST.read_bytes()),
        plistlib.loads(units.launchd_plist(["/x"], Path("/l")).encode()),
    ):
        assert {key: type(value) for key, value in job.items()} == LAUNCHD_KEYS


def test_the_plist_restarts_on_failure_only() -> None:
    job = plistlib.loads(units.launchd_plist(["/x/copilotd"], Path("/l")).encode())
    assert job["KeepAlive"] == {"SuccessfulExit": False}
    assert job["Label"] == units.LAUNCHD_LABEL == PLIST.stem
    assert job["Umask"] == 0o077


def test_paths_in_the_plist_are_absolute_and_escaped() -> None:
    text = units.launchd_plist(["/tmp/ho me & <co>/copilotd"], Path("/tmp/ho me/logs"))
    job = plistlib.loads(text.encode())
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


@pytest.mark.parametrize("manager", ["systemd", "launchd"])
def test_print_unit_shows_this_installation_and_writes_nothing(tmp_path: Path, manager: str) -> None:
    home = tmp_path / "ho me"
    home.mkdir()
    command = [sys.executable, "-m", "copilotd", "--print-unit", manager]
    done = subprocess.run(command, env={"HOME": str(home)}, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = units.daemon_command()
    if manager == "systemd":
        assert done.stdout.rstrip() == units.systemd_unit(expected).rstrip()
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


def test_the_wheel_carries_both_files() -> None:
    pyproject = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for file in (UNIT, PLIST):
        assert f'"{file.relative_to(REPOSITORY)}" = "copilotd/service_files/{file.name}"' in pyproject

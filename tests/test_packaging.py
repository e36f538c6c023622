"""A wheel built from the checkout works in a clean virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import copilotd

REPOSITORY = Path(__file__).resolve().parents[1]
SERVICE_FILES = {
    "copilotd/service_files/copilotd.service",
    "copilotd/service_files/copilotd.socket",
    "copilotd/service_files/io.github.docs-copilot.copilotd.plist",
}
pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip(
        "hatchling", reason="the build backend is not installed; the build would need a network"
    )
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(REPOSITORY))
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; it sees the dependencies installed here, not this checkout."""
    place = tmp_path_factory.mktemp("clean")
    venv.create(place, with_pip=False, symlinks=True)
    run(
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(place / "bin" / "python"),
        "install", "--no-index", "--no-deps", "--quiet", str(wheel),
    )  # fmt: skip
    site = Path(
        run(str(place / "bin" / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    )
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # A .pth file in a folder that a .pth file added is not read: the editable install stays out of sight.
    (site / "dependencies.pth").write_text("\n".join(sorted(paths)) + "\n")
    return place


def run(*command: str, cwd: Path | None = None) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COPILOT"))
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def test_the_wheel_holds_the_product_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert tops == {"copilotd", "copilot_client", f"docs_copilot-{copilotd.__version__}.dist-info"}
    assert names >= SERVICE_FILES
    assert {"copilotd/py.typed", "copilot_client/py.typed", "copilotd/query/calibration.json"} <= names
    assert not [name for name in names if Path(name).name.startswith((".env", "test_", "conftest"))]
    assert not [name for name in names if name.endswith((".pyc", ".sock", ".log"))]


def test_every_module_of_the_checkout_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for package in ("copilotd", "copilot_client"):
        for path in (REPOSITORY / package).rglob("*.py"):
            assert path.relative_to(REPOSITORY).as_posix() in names


@pytest.mark.parametrize("command", ["copilot", "copilotd", "docs-copilot"])
def test_the_commands_tell_their_version(clean: Path, tmp_path: Path, command: str) -> None:
    assert copilotd.__version__ in run(str(clean / "bin" / command), "--version", cwd=tmp_path)


@pytest.mark.parametrize("command", ["copilot", "copilotd", "docs-copilot"])
def test_the_commands_explain_themselves(clean: Path, tmp_path: Path, command: str) -> None:
    program = "copilotd" if command == "copilotd" else "copilot"
    assert f"usage: {program}" in run(str(clean / "bin" / command), "--help", cwd=tmp_path).lower()


def test_the_installed_product_is_not_the_checkout(clean: Path, tmp_path: Path) -> None:
    code = (
        "import copilotd, copilot_client, importlib.resources as r\n"
        "files = r.files('copilotd').joinpath('service_files')\n"
        "print(copilotd.__file__)\n"
        "print(all(files.joinpath(name).read_text() for name in\n"
        "    ('copilotd.service', 'io.github.docs-copilot.copilotd.plist')))"
    )
    place, readable = run(str(clean / "bin" / "python"), "-c", code, cwd=tmp_path).splitlines()
    assert Path(place).is_relative_to(clean)
    assert readable == "True"


def test_the_dependencies_installed_here_satisfy_the_lower_bounds(clean: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import requires, version\n"
        "from packaging.requirements import Requirement\n"
        "for line in requires('docs-copilot'):\n"
        "    requirement = Requirement(line)\n"
        "    if requirement.marker is None or requirement.marker.evaluate({'extra': ''}):\n"
        "        assert requirement.specifier.contains(version(requirement.name), prereleases=True), line\n"
    )
    run(str(clean / "bin" / "python"), "-c", code, cwd=tmp_path)

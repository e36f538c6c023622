"""The sentence encoder: the one module that knows sentence-transformers and torch.

Importing the library takes seconds and stalls other threads for a quarter of one, so it happens in
:func:`load_encoder`, which the daemon calls from a worker thread once the socket is open.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from copilotd.embed.loading import preload_libraries, without_collecting
from copilotd.embed.models import LocatedModel, require_verified
from copilotd.errors import ModelError
from copilotd.types import Encoder, Float32Array, Reranker, TokenVectors

_log = logging.getLogger(__name__)

# Small batches of like length: a question's own embedding, which runs beside the bulk work, then waits
# for a core tens of milliseconds, not seconds.
BATCH_SIZE = 8

_SHORT_TOKENS = 64
"""A text up to here goes through the recorded model, in one thread."""
_SHORT_CHARS = 4 * _SHORT_TOKENS
_FEW = 6
"""So many short texts, as deep mode asks at once, take less time one by one through the recorded model."""
_SAME = 0.9999
"""A recording whose vectors differ more, measured as the cosine of any token's vector, is another model."""
_EXAMPLES = ("warm up", "How do I change the port of the server, and what happens to the clients?", "x")


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
        self._spoken = _spoken_tokens(transformer)
        self._recorded: Any = self._record()

    @property
    def takes_the_short_way(self) -> bool:
        """Whether a question goes through a recording of the model, which takes half the time or less."""
        return self._recorded is not None

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Returns an ``(len(texts), dimension)`` float32 array of L2-normalised rows.

        Raises:
            ModelError: The model gave something that is not a vector.
        """
        return self._encode(texts, None)

    def encode_tokens(self, texts: Sequence[str]) -> tuple[Float32Array, list[TokenVectors]]:
        """Returns what ``encode`` does, and the vectors of each text's tokens, from one pass.

        Raises:
            ModelError: The model gave something that is not a vector.
        """
        tokens = [TokenVectors((), np.zeros((0, self.dimension), np.float32))] * len(texts)
        return self._encode(texts, tokens), tokens

    def _encode(self, texts: Sequence[str], tokens: list[TokenVectors] | None) -> Float32Array:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        # Padding costs as much as text: texts of like length go together.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for first in range(0, len(order), BATCH_SIZE):
            chosen = order[first : first + BATCH_SIZE]
            for together in self._passes(texts, chosen):
                rows, features = self._forward([texts[i] for i in together])
                vectors[together] = rows
                if tokens is not None:
                    for i, of_text in zip(together, self._tokens_of(features), strict=False):
                        tokens[i] = of_text
        return vectors

    def _passes(self, texts: Sequence[str], chosen: list[int]) -> list[list[int]]:
        """Returns which texts go through the model together: a few short ones take the short way, one by one."""
        short = len(chosen) <= _FEW and max(len(texts[i]) for i in chosen) <= _SHORT_CHARS
        return [[i] for i in chosen] if short and self._recorded is not None else [chosen]

    def _tokens_of(self, features: Any) -> Iterator[TokenVectors]:
        """Yields each text's tokens that have a letter or digit; nothing for a model without token vectors."""
        if self._spoken is None or "token_embeddings" not in features or "input_ids" not in features:
            return
        rows = features["token_embeddings"].detach().to("cpu").float().numpy()
        for ids, mask, vectors in zip(
            features["input_ids"].tolist(), features["attention_mask"].tolist(), rows, strict=True
        ):
            kept = [n for n, (i, real) in enumerate(zip(ids, mask, strict=True)) if real and self._spoken[i]]
            chosen = vectors[kept]
            norms = np.maximum(np.linalg.norm(chosen, axis=1, keepdims=True), 1e-12)
            yield TokenVectors(tuple(self._spoken[ids[n]] for n in kept), chosen / norms)

    def _forward(self, texts: list[str]) -> tuple[Float32Array, Any]:
        with self._tokenizing:
            # The tokenizer refuses lone surrogates.
            features = self._preprocess([text.encode("utf-8", "replace").decode() for text in texts])
        if self._recorded is not None and features["input_ids"].shape[0] == 1:
            features = self._forward_short(features)
        else:
            with self._inference_mode():
                features = self._transformer.forward(features)
        rows = features["sentence_embedding"]
        vectors: Float32Array = rows.detach().to("cpu").float().numpy()
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(np.isfinite(norms)) or np.any(norms == 0):
            raise ModelError(
                f"The embedding model {self.name!r} gave a vector that is not a number.",
                "copilot model verify",
            )
        return np.asarray(vectors / norms, dtype=np.float32), features

    def _forward_short(self, features: Any) -> Any:
        """Passes one text; a question is so short that two threads cost more than they save."""
        if features["input_ids"].shape[1] > _SHORT_TOKENS:
            with self._inference_mode():
                return self._transformer.forward(features)
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with self._inference_mode():
                features["token_embeddings"] = self._recorded(features["input_ids"])
                for module in list(self._transformer)[1:]:
                    features = module(features)
        finally:
            torch.set_num_threads(threads)
        return features

    def _record(self) -> Any | None:
        """Returns the model as a recording (TorchScript) of ids ``(1, n)`` to token vectors; None where it has none.

        A question has a dozen tokens: an ordinary pass goes into getting from one small operation to the next,
        and into fetching the weights from memory, which takes half the time where they are kept in 16 bits.
        A recording is used only where it gives the model's own vectors (:data:`_SAME`).
        """
        try:
            import torch
            import transformers

            first = self._transformer[0]
            model = next(found for name in ("model", "auto_model") if (found := getattr(first, name, None)))
            examples = [self._preprocess([text])["input_ids"] for text in _EXAMPLES]

            class Bare(torch.nn.Module):  # type: ignore[misc]
                def __init__(self, inner: Any) -> None:
                    super().__init__()
                    self.model = inner

                def forward(self, ids: Any) -> Any:
                    return self.model(input_ids=ids).last_hidden_state

            with warnings.catch_warnings(), self._inference_mode():
                # The library would rather compile, which takes a C++ compiler on the user's machine.
                warnings.simplefilter("ignore")
                # Recording looks at the loss function, too, which these models have none of.
                transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
                bare = Bare(model).eval()
                for make in (_with_half_weights, _as_it_is):
                    try:
                        candidate = Bare(make(model)).eval()
                        recorded = torch.jit.freeze(
                            torch.jit.trace(candidate, examples[0], check_trace=False)
                        )
                        # Twice: the first passes are spent on optimising it.
                        if all(_cosine(recorded(ids), bare(ids)) >= _SAME for ids in examples * 2):
                            return recorded
                    except RuntimeError as error:
                        _log.info("not recorded: %s", str(error).partition("\n")[0])
        except (TypeError, AttributeError, KeyError, IndexError, ValueError, StopIteration, ImportError):
            return None
        return None


def _as_it_is(model: Any) -> Any:
    return model


def _with_half_weights(model: Any) -> Any:
    """Returns a copy of ``model`` whose linear layers keep their weights in 16 bits and compute in 32.

    What else it holds is shared with the original.

    Raises:
        RuntimeError: This machine has no such kernels.
    """
    import torch

    class HalfLinear(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, linear: Any) -> None:
            super().__init__()
            self.packed = torch.ops.quantized.linear_prepack_fp16(linear.weight.float(), linear.bias)

        def forward(self, rows: Any) -> Any:
            return torch.ops.quantized.linear_dynamic_fp16(rows, self.packed)

    def replace(module: Any) -> None:
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, HalfLinear(child))
            else:
                replace(child)

    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)
    replace(copied)
    return copied


def _cosine(left: Any, right: Any) -> float:
    """Returns the least cosine between rows of two ``(1, n, dim)`` tensors."""
    import torch

    return float(torch.nn.functional.cosine_similarity(left, right, dim=-1).min())


def _spoken_tokens(transformer: Any) -> list[str] | None:
    """Returns the letters and digits of each token of the vocabulary; empty for marks and special tokens."""
    tokenizer: Any = getattr(transformer, "tokenizer", None)
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        return None
    special = set(tokenizer.all_special_ids)
    # Word pieces are marked in different ways: ## inside a word, \u2581 or \u0120 at the start of one.
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    bare = [(piece or "").lstrip("#\u2581\u0120") for piece in pieces]
    return [piece if piece.isalnum() and i not in special else "" for i, piece in enumerate(bare)]


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
    # OpenMP's threads spin while they wait for each other, and torch and FAISS each bring their own: a question's
    # embedding takes 54 ms with spinning threads and 18 ms with sleeping ones (two cores, median of 60).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        preload_libraries()
        with without_collecting():
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


class CrossEncoderReranker:
    """A loaded cross-encoder behind the Reranker protocol."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self._model = model
        # As with the encoder: the tokenizer keeps its state in one object.
        self._predicting = threading.Lock()

    def score(self, query: str, texts: Sequence[str]) -> Float32Array:
        """Returns how well each text answers ``query``, from 0 to 1.

        Raises:
            ModelError: The model gave something that is not a number.
        """
        if not texts:
            return np.zeros(0, np.float32)
        clean = [text.encode("utf-8", "replace").decode() for text in (query, *texts)]
        with self._predicting:
            scores = np.asarray(
                self._model.predict([(clean[0], text) for text in clean[1:]], show_progress_bar=False),
                np.float32,
            )
        if scores.shape != (len(texts),) or not np.all(np.isfinite(scores)):
            raise ModelError(
                f"The reranking model {self.name!r} gave something that is not one number a text.",
                "unset RERANK_MODEL, or name a cross-encoder with one label",
            )
        return np.clip(scores, 0.0, 1.0)


def load_reranker(model: LocatedModel) -> Reranker:
    """Loads a cross-encoder on the CPU, without a network. Takes seconds; after :func:`load_encoder`.

    Raises:
        ModelError: It can't be loaded.
    """
    try:
        import torch
        from sentence_transformers import CrossEncoder

        loaded = CrossEncoder(
            str(model.folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            activation_fn=torch.nn.Sigmoid(),
        )
        reranker = CrossEncoderReranker(model.name, loaded)
        reranker.score("warm up", ["warm up"])
    except (ImportError, OSError, ValueError, RuntimeError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"The reranking model {model.name!r} cannot be loaded: {reason}", "unset RERANK_MODEL"
        ) from error
    return reranker


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

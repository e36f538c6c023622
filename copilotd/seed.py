"""The first seed's functions under their own names; each is the product's own, or a thin face of it.

For programs that use the product as a library. The daemon does not come through here, but through what
these functions call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from copilotd.embed.encoder import as_encoder
from copilotd.embed.models import LocatedModel, locate_model
from copilotd.embed.windows import WindowPlanner, make_planner
from copilotd.engine import Engine
from copilotd.errors import ModelError
from copilotd.index.store import load_index
from copilotd.index.vectors import best_windows, build_index
from copilotd.ingest.chunk import attach_metadata
from copilotd.ingest.pdf import pdf_chunk_with_heading_detection
from copilotd.ingest.seed import markdown_chunk_by_section
from copilotd.llm.completion import get_completion
from copilotd.query.cite import build_answer_with_citations, format_citations
from copilotd.query.gate import handle_below_threshold
from copilotd.settings import load_settings
from copilotd.types import ChunkMetadata, Encoder, Float32Array, Progress

__all__ = [
    "ChunkMetadata",
    "attach_metadata",
    "build_answer_with_citations",
    "build_with_metadata",
    "check_freshness_and_reindex",
    "format_citations",
    "get_completion",
    "handle_below_threshold",
    "load_index",
    "markdown_chunk_by_section",
    "pdf_chunk_with_heading_detection",
    "search_with_metadata",
]

_log = logging.getLogger(__name__)

# A window's id is its chunk's position and its own number within the chunk.
_WINDOW_BITS = 20


def build_with_metadata(
    chunks: Sequence[dict[str, Any]], model: Any
) -> tuple[Any, Float32Array, list[dict[str, Any]]]:
    """Embeds every window of every chunk and builds the index over them.

    Args:
        chunks: ``{"text": str, "metadata": ChunkMetadata}`` each, as ``attach_metadata`` gives.
        model: An Encoder, or a loaded ``SentenceTransformer``.

    Returns:
        A ``faiss.IndexIDMap2(IndexFlatIP)``, the ``(n_windows, dim)`` float32 array of normalised vectors
        in the order of the chunks, and the chunks as a list.
    """
    encoder = as_encoder(model)
    planner = _planner(encoder)
    ids, texts = [], []
    for position, chunk in enumerate(chunks):
        path = chunk["metadata"].heading_path or (chunk["metadata"].section_heading,)
        for number, window in enumerate(planner.plan(chunk["text"], title="", heading_path=path)):
            ids.append(position << _WINDOW_BITS | number)
            texts.append(window.embedded_text)
    vectors = encoder.encode(texts) if texts else np.empty((0, encoder.dimension), dtype=np.float32)
    return build_index(np.array(ids, dtype=np.int64), vectors), vectors, list(chunks)


def search_with_metadata(
    query: str, model: Any, index: Any, chunks: Sequence[Mapping[str, Any]], top_k: int = 5
) -> list[dict[str, Any]]:
    """Returns the chunks nearest to ``query`` by their best window, as ``{"text", "metadata", "score"}``.

    Args:
        query: The question.
        model: What the index was built with.
        index: From :func:`build_with_metadata`.
        chunks: Likewise.
        top_k: At most so many; best first.
    """
    if index.ntotal == 0 or top_k <= 0:
        return []
    scores, ids = index.search(as_encoder(model).encode([query]), index.ntotal)
    hits = best_windows(scores[0], ids[0], lambda window_id: window_id >> _WINDOW_BITS, top_k)
    return [{**chunks[hit.chunk_id], "score": hit.score} for hit in hits]


def check_freshness_and_reindex(index_dir: str, docs_dir: str, model: Any) -> bool:
    """Brings the index in ``index_dir`` up to date with ``docs_dir``; must not run beside a daemon on it.

    Args:
        index_dir: Made where it doesn't exist.
        docs_dir: Added as a root where it isn't one.
        model: An Encoder, or a loaded ``SentenceTransformer``.

    Returns:
        Whether anything was stale: a stat fingerprint that differs from the stored one, a new file, a
        removed one. Where the content is as before nothing is embedded.
    """
    encoder = as_encoder(model)
    reporter = _Collector()
    settings = replace(load_settings(), index_dir=Path(index_dir))
    engine = Engine(settings, load=lambda _: encoder, locate=lambda _: _located(encoder), background=False)
    engine.start()
    try:
        report = engine.index_root(str(Path(docs_dir).absolute()), reporter=reporter)
    finally:
        engine.close()
    return bool(reporter.stale or report.new or report.updated or report.moved or report.removed)


class _Collector:
    """A Reporter that remembers what was stale."""

    def __init__(self) -> None:
        self.stale: list[str] = []

    def progress(self, progress: Progress) -> None:
        if progress.stage == "sync":
            self.stale.append(progress.message)

    def delta(self, text: str) -> None:
        """Nothing is answered here."""

    def cancelled(self) -> bool:
        return False


def _located(encoder: Encoder) -> LocatedModel:
    """Returns where the encoder's tokenizer is; for one that isn't on disk, nowhere."""
    try:
        model = locate_model(encoder.name)
    except ModelError:
        model = None
    if model is not None and model.fingerprint == encoder.fingerprint:
        return model
    return LocatedModel(encoder.name, Path("/nonexistent"), "given", encoder.fingerprint)


def _planner(encoder: Encoder) -> WindowPlanner:
    return make_planner(encoder.fingerprint, _located(encoder).folder, encoder.max_tokens)

"""An encoder whose neighbours make sense: texts that share stems are near, and nothing is loaded."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from copilotd.index.analysis import STOP_WORDS, analyse
from copilotd.types import Float32Array


class HashingEncoder:
    """Each stem is a random direction; a text is the normalised sum of its stems'."""

    name = "hashing"
    fingerprint = "hashing-1"
    dimension = 64
    max_tokens = 256

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Float32Array:
        self.encoded += texts
        rows = np.stack([self._row(text) for text in texts]) if texts else np.zeros((0, self.dimension))
        return np.asarray(rows, np.float32)

    def _row(self, text: str) -> Float32Array:
        stems = [stem for stem in analyse(text) if stem not in STOP_WORDS] or ["nothing"]
        row = np.sum([self._direction(stem) for stem in stems], axis=0)
        return np.asarray(row / np.linalg.norm(row), np.float32)

    def _direction(self, stem: str) -> Float32Array:
        generator = np.random.default_rng(zlib.crc32(stem.encode("utf-8", "surrogatepass")))
        return generator.standard_normal(self.dimension).astype(np.float32)

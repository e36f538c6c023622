"""An encoder whose neighbours make sense: texts that share stems are near, and nothing is loaded."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

from copilotd.index.analysis import STOP_WORDS, analyse
from copilotd.types import Float32Array, TokenVectors


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


class HashingTokenEncoder(HashingEncoder):
    """Tells the vectors of single tokens, too; a word outside ``vocabulary`` is cut into pieces of three letters."""

    def __init__(self, vocabulary: str) -> None:
        super().__init__()
        self._vocabulary = frozenset(vocabulary.lower().split())

    def encode_tokens(self, texts: Sequence[str]) -> tuple[Float32Array, list[TokenVectors]]:
        return self.encode(texts), [self._tokens_of(text) for text in texts]

    def _tokens_of(self, text: str) -> TokenVectors:
        pieces = []
        for word in re.findall(r"\w+", text.lower()):
            size = len(word) if word in self._vocabulary else 3
            pieces += [word[at : at + size] for at in range(0, len(word), size)]
        rows = [self._direction(piece) for piece in pieces]
        unit = np.array([row / np.linalg.norm(row) for row in rows], np.float32).reshape(-1, self.dimension)
        return TokenVectors(tuple(pieces), unit)

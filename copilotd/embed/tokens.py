"""Token vectors: what late interaction compares a question with, kept at one bit a dimension.

A window's one vector is the mean of its tokens', and a mean forgets details. Late interaction asks for
each word of the question how near the nearest word of the passage is, each word in its own context,
and needs the passage's tokens for it (Khattab and Zaharia, "ColBERT", SIGIR 2020; there with a
model trained for it, here with the same model that embeds). They come from the forward pass that
gives the window's vector, so they cost no time; kept as signs, 48 bytes a token of 384 dimensions,
they cost about three times what the vectors do on disk, and no memory.
"""

from __future__ import annotations

import numpy as np

from copilotd.types import Float32Array


def pack_tokens(rows: Float32Array) -> bytes:
    """Returns the signs of token vectors ``(n, dim)``, a bit each, rows one behind the other."""
    return np.packbits(rows > 0, axis=1).tobytes()


def nearest_tokens(question: Float32Array, packed: bytes) -> Float32Array:
    """Returns for each of the question's token vectors ``(n, dim)`` its cosine with the nearest packed one.

    Only the packed side is rounded to signs. Zeros where nothing is packed.
    """
    dimension = question.shape[1]
    if not packed:
        return np.zeros(len(question), np.float32)
    bits = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(-1, -(-dimension // 8)), axis=1)
    # q·(2b - 1) / |2b - 1|, without making the signs.
    products = 2 * (question @ bits[:, :dimension].T.astype(np.float32)).max(axis=1) - question.sum(axis=1)
    return np.asarray(products / np.sqrt(dimension), np.float32)

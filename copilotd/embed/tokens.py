"""Token vectors: what late interaction compares a question with, kept at one bit a dimension.

A window's one vector is the mean of its tokens', and a mean forgets details. Late interaction asks for
each word of the question how near the nearest word of the passage is, each word in its own context,
and needs the passage's tokens for it (Khattab and Zaharia, "ColBERT", SIGIR 2020; there with a
model trained for it, here with the same model that embeds). They come from the forward pass that
gives the window's vector, so they cost no time; kept as signs, 48 bytes a token of 384 dimensions,
they cost about three times what the vectors do on disk, and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from copilotd.types import Float32Array

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
"""The bits of each byte: looking them up takes two thirds of the time of unpacking and converting."""


def pack_tokens(rows: Float32Array) -> bytes:
    """Returns the signs of token vectors ``(n, dim)``, a bit each, rows one behind the other."""
    return np.packbits(rows > 0, axis=1).tobytes()


def packed_size(dimension: int) -> int:
    """Returns the bytes that one packed token takes."""
    return -(-dimension // 8)


def nearest_tokens(question: Float32Array, passages: Sequence[bytes]) -> Float32Array:
    """Returns how near the nearest packed token of each passage is to each token of the question.

    Only the packed side is rounded to signs.

    Args:
        question: Token vectors ``(n, dim)``.
        passages: Packed tokens, one string of bytes a passage; parts of a passage may be joined.

    Returns:
        ``(len(passages), n)`` cosines; zeros where nothing is packed.
    """
    dimension = question.shape[1]
    width = packed_size(dimension)
    nearest = np.zeros((len(passages), len(question)), np.float32)
    held = [n for n, packed in enumerate(passages) if packed]
    if not held:
        return nearest
    codes = np.frombuffer(b"".join(passages[n] for n in held), np.uint8).reshape(-1, width)
    bits = np.take(_BITS, codes, axis=0).reshape(len(codes), -1)[:, :dimension]
    starts = np.cumsum([0] + [len(passages[n]) // width for n in held[:-1]])
    best = np.maximum.reduceat(bits @ question.T, starts, axis=0)
    # q·(2b - 1) / |2b - 1|, without making the signs.
    nearest[held] = (2 * best - question.sum(axis=1)) / np.sqrt(dimension)
    return nearest

"""One contract for every encoder: the real model and the one the other tests use."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
import pytest
from support.hashing_encoder import HashingEncoder

from copilotd.embed.encoder import SentenceEncoder, load_encoder
from copilotd.embed.models import BUNDLED_NAME, locate_model
from copilotd.types import Encoder, Float32Array


@cache
def real() -> Encoder:
    return load_encoder(locate_model(BUNDLED_NAME))


@pytest.fixture(params=["real", "hashing"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return real() if request.param == "real" else HashingEncoder()


TEXTS = ["Rotate the key.", "Bake the bread slowly.", "", "x" * 5000, "窯の温度", "caf\udce9", "a\x00b", "\n"]


def test_rows_are_normalised_float32_in_the_order_of_the_texts(encoder: Encoder) -> None:
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    for index, text in enumerate(TEXTS):
        assert np.allclose(encoder.encode([text])[0], vectors[index], atol=1e-4), text


def test_nothing_gives_no_rows(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dimension)


def test_neighbours_make_sense(encoder: Encoder) -> None:
    query, near, far = encoder.encode(
        ["how to rotate a key", "Rotate the key every month.", "Bread needs yeast."]
    )
    assert query @ near > query @ far + 0.1


def test_several_threads_get_the_same_vectors(encoder: Encoder) -> None:
    texts = [f"Sentence number {number} about keys." for number in range(12)]
    expected = encoder.encode(texts)
    results: list[Float32Array] = []

    def encode() -> None:
        results.append(encoder.encode(texts))

    threads = [threading.Thread(target=encode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(np.allclose(result, expected, atol=1e-4) for result in results)


def test_a_question_takes_the_short_way_to_the_same_vectors() -> None:
    encoder = real()
    assert isinstance(encoder, SentenceEncoder)
    assert encoder.takes_the_short_way
    questions = ["How do I change the port?", "x", " ".join(["port"] * 60)]
    # So many go through the model as it is.
    together, tokens_together = encoder.encode_tokens([*questions, *["How do I stop it?"] * 12])
    few, _ = encoder.encode_tokens(questions[:2])
    assert np.array_equal(few[0], encoder.encode(questions[:1])[0]), "a few go one by one, too"
    for number, question in enumerate(questions):
        alone, (tokens,) = encoder.encode_tokens([question])
        assert np.allclose(alone[0], together[number], atol=1e-3)
        assert alone[0] @ together[number] > 0.99999
        assert tokens.tokens == tokens_together[number].tokens
        assert np.all(np.sum(tokens.rows * tokens_together[number].rows, axis=1) > 0.9999)

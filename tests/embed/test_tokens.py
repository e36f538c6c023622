"""Packed token vectors against a plain computation, and what the real model gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import BUNDLED_NAME, locate_model
from copilotd.embed.tokens import nearest_tokens, pack_tokens
from copilotd.types import Float32Array, TokenEncoder


def rows(seed: int, count: int, dimension: int) -> Float32Array:
    made = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 40), st.integers(1, 50))
def test_the_nearest_token_is_that_of_a_plain_search(
    seed: int, asked: int, held: int, dimension: int
) -> None:
    question, passage = rows(seed, asked, dimension), rows(seed + 1, held, dimension)
    signs = np.where(passage > 0, 1.0, -1.0) / np.sqrt(dimension)
    expected = (question @ signs.T).max(axis=1)
    nearest = nearest_tokens(question, [pack_tokens(question), b"", pack_tokens(passage)])
    assert np.allclose(nearest[1:], [np.zeros(asked), expected], atol=1e-5)


def test_parts_may_be_joined() -> None:
    question, one, other = rows(1, 3, 20), rows(2, 4, 20), rows(3, 5, 20)
    nearest = nearest_tokens(
        question, [pack_tokens(one) + pack_tokens(other), pack_tokens(np.vstack([one, other]))]
    )
    assert np.allclose(nearest[0], nearest[1])


def test_nothing_packed_is_near_to_nothing() -> None:
    assert nearest_tokens(rows(1, 2, 8), [b""]).tolist() == [[0.0, 0.0]]
    assert nearest_tokens(rows(1, 2, 8), []).shape == (0, 2)


def test_the_model_gives_a_vector_for_each_word_in_its_context() -> None:
    encoder = load_encoder(locate_model(BUNDLED_NAME))
    assert isinstance(encoder, TokenEncoder)
    texts = ["Rotate the key, monthly!", "", "Bread — needs yeast."]
    vectors, tokens = encoder.encode_tokens(texts)
    assert np.allclose(vectors, encoder.encode(texts), atol=1e-5)
    assert [of_text.tokens for of_text in tokens] == [
        ("rotate", "the", "key", "monthly"),
        (),
        ("bread", "needs", "yeast"),
    ]
    for of_text in tokens:
        assert of_text.rows.shape == (len(of_text.tokens), encoder.dimension)
        assert np.allclose(np.linalg.norm(of_text.rows, axis=1), 1.0, atol=1e-5)
    question = encoder.encode_tokens(["change the password"])[1][0].rows[2:]
    about_keys, about_bread = nearest_tokens(question, [pack_tokens(tokens[n].rows) for n in (0, 2)])
    assert about_keys[0] > about_bread[0] + 0.1


def test_nothing_gives_nothing() -> None:
    encoder = load_encoder(locate_model(BUNDLED_NAME))
    assert isinstance(encoder, TokenEncoder)
    vectors, tokens = encoder.encode_tokens([])
    assert (vectors.shape, tokens) == ((0, encoder.dimension), [])


@pytest.mark.parametrize("count", [1, 9])
def test_packing_takes_a_bit_a_dimension(count: int) -> None:
    assert len(pack_tokens(rows(1, count, 384))) == count * 48

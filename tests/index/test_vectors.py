"""The vectors in memory against brute force, through every order of adding and removing."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilotd.index.vectors import VectorIndex, build_index
from copilotd.types import Float32Array

DIMENSION = 8


def vectors_of(ids: list[int]) -> Float32Array:
    rows = np.stack([np.random.default_rng(i).standard_normal(DIMENSION) for i in ids])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def brute_force(
    held: dict[int, tuple[int, int]], query: Float32Array, roots: frozenset[int] | None
) -> dict[int, float]:
    best: dict[int, float] = {}
    for window, (chunk, root) in held.items():
        if roots is None or root in roots:
            score = float(query @ vectors_of([window])[0])
            best[chunk] = max(best.get(chunk, -2.0), score)
    return best


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    STEPS,
    st.sampled_from([None, frozenset({0}), frozenset({1}), frozenset({0, 1}), frozenset({7})]),
    st.integers(1, 9),
)
def test_search_equals_brute_force(
    steps: list[tuple[str, list[int]]], roots: frozenset[int] | None, limit: int
) -> None:
    index, held = VectorIndex(), dict[int, tuple[int, int]]()
    for kind, ids in steps:
        if kind == "add":
            index.add([(i, i // 3, i % 2) for i in ids], vectors_of(ids))
            held |= {i: (i // 3, i % 2) for i in ids}
        else:
            index.remove(ids)
            for i in ids:
                held.pop(i, None)
    assert index.window_ids() == set(held)
    assert len(index) == len(held)
    query = vectors_of([99])
    expected = sorted(brute_force(held, query[0], roots).items(), key=lambda item: -item[1])[:limit]
    hits = index.search(query, limit, roots)[0]
    assert [hit.chunk_id for hit in hits] == [chunk for chunk, _ in expected]
    assert np.allclose([hit.score for hit in hits], [score for _, score in expected], atol=1e-5)
    scores = index.score_chunks(query, [hit.chunk_id for hit in hits] + [1000])
    assert np.isnan(scores[0, -1])
    whole = brute_force(held, query[0], None)
    assert np.allclose(scores[0, :-1], [whole[hit.chunk_id] for hit in hits], atol=1e-5)


def test_an_id_added_twice_has_one_vector() -> None:
    index = VectorIndex()
    index.add([(5, 1, 0)], vectors_of([1]))
    index.add([(5, 1, 0)], vectors_of([2]))
    assert len(index) == 1
    assert index.search(vectors_of([2]), 3, None)[0][0].score == pytest.approx(1.0, abs=1e-5)


def test_nothing_in_it() -> None:
    index = VectorIndex()
    assert index.search(vectors_of([1, 2]), 3, None) == [[], []]
    assert np.isnan(index.score_chunks(vectors_of([1]), [1])).all()
    index.remove([1])
    assert index.dimension == 0


def test_vectors_of_another_length_are_refused() -> None:
    index = VectorIndex()
    index.add([(1, 1, 0)], vectors_of([1]))
    with pytest.raises(ValueError, match="length 4 in an index of 8"):
        index.add([(2, 1, 0)], np.ones((1, 4), dtype=np.float32))


def test_a_limit_of_chunks_is_reached_although_one_has_many_windows() -> None:
    index = VectorIndex()
    query = vectors_of([3])
    near = np.repeat(query, 50, axis=0)
    index.add([(i, 1, 0) for i in range(50)], near)
    index.add([(100 + i, 2 + i, 0) for i in range(4)], vectors_of([10, 11, 12, 13]))
    assert len(index.search(query, 5, None)[0]) == 5


def test_searching_while_changing_never_names_a_wrong_chunk() -> None:
    index = VectorIndex()
    ids = list(range(400))
    index.add([(i, i, 0) for i in ids], vectors_of(ids))
    wrong: list[object] = []
    stop = threading.Event()

    def search() -> None:
        while not stop.is_set():
            hits = index.search(vectors_of([7]), 1, None)[0]
            if not hits or hits[0].chunk_id != 7:
                wrong.append(hits)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(100, 400, 20):
        batch = ids[start : start + 20]
        index.remove(batch)
        index.add([(i, i, 0) for i in batch], vectors_of(batch))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_index_is_an_exact_inner_product_one() -> None:
    index = build_index(np.array([4, 9], dtype=np.int64), vectors_of([4, 9]))
    assert (type(index).__name__, index.ntotal, index.d) == ("IndexIDMap2", 2, DIMENSION)

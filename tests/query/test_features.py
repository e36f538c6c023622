"""The evidence of the gate: what is met, what is missing, what stands out from the background."""

from __future__ import annotations

import pytest
from support.hashing_encoder import HashingTokenEncoder
from support.memory_index import MemoryIndex

from copilotd.index.analysis import analyse_query
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.features import align
from copilotd.query.known import KnownWords
from copilotd.query.retrieve import retrieve
from copilotd.types import Scope

VOCABULARY = "the kiln is fired at dawn lamp lit noon door mended cat asleep wheel turned clay cut how hot"
TEXT = """# Studio

## Kiln

The kiln is fired at dawn.

## Lamp

The lamp is lit at noon.

## Door

The door is mended.

## Cat

The cat is asleep.

## Wheel

The wheel is turned.

## Clay

The clay is cut.
"""


@pytest.fixture
def encoder() -> HashingTokenEncoder:
    return HashingTokenEncoder(VOCABULARY)


@pytest.fixture
def index(encoder: HashingTokenEncoder) -> MemoryIndex:
    made = MemoryIndex(encoder)
    document = parse_file("studio.md", TEXT.encode())
    made.add(document, chunk_document(document, source_file="/s.md", relative_path="s.md", last_modified=1.0))
    return made


def evidence(index: MemoryIndex, encoder: HashingTokenEncoder, question: str) -> dict[str, float]:
    return dict(retrieve(question, index, encoder, Scope(), 5).evidence)


def test_an_answer_meets_more_and_lacks_less(index: MemoryIndex, encoder: HashingTokenEncoder) -> None:
    told = evidence(index, encoder, "fired kiln")
    strange = evidence(index, encoder, "quarterly invoices")
    assert told["met"] > strange["met"] + 0.2
    assert told["missing"] < strange["missing"] - 0.2
    assert told["lead"] > strange["lead"]
    assert told["margin"] > strange["margin"]
    assert (told["known"], strange["known"]) == (1.0, 0.0)


def test_half_a_question_lacks_more_than_all_of_it(index: MemoryIndex, encoder: HashingTokenEncoder) -> None:
    assert (
        evidence(index, encoder, "fired kiln zephyr")["missing"]
        > evidence(index, encoder, "fired kiln")["missing"]
    )


def test_what_stands_everywhere_asks_little(index: MemoryIndex, encoder: HashingTokenEncoder) -> None:
    assert evidence(index, encoder, "studio")["asked"] < evidence(index, encoder, "kiln")["asked"]


@pytest.mark.parametrize(
    ("question", "tokens", "expected"),
    [
        ("how hot is the kiln", ["how", "hot", "is", "the", "kiln"], [[0], [1], [2], [3], [4]]),
        ("throttling BORG_REPO", ["throttl", "ing", "borg", "repo"], [[0, 1], [2, 3]]),
        ("Café --dry-run", ["cafe", "dry", "run"], [[0], [1, 2]]),
        ("the there art", ["the", "there", "art"], [[0], [1], [2]]),
        ("烧制 温度", ["烧", "制", "温", "度"], [[0, 1], [2, 3]]),
        ("kiln ☃ lamp", ["kiln", "lamp"], [[0], [1]]),
        ("kiln lamp", ["kiln"], [[0], []]),
    ],
)
def test_words_find_their_tokens(
    index: MemoryIndex, question: str, tokens: list[str], expected: list[list[int]]
) -> None:
    known = KnownWords(analyse_query(question), index, Scope(), lambda: question.lower().split())
    assert align(known, tokens) == expected

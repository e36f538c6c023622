"""Calibrating for another model: generated questions, hidden documents, a file beside the index."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.hashing_encoder import HashingTokenEncoder
from support.memory_index import MemoryIndex

from copilotd.errors import UsageError
from copilotd.ingest.chunk import chunk_document
from copilotd.ingest.parse import parse_file
from copilotd.query.gate import judge
from copilotd.query.own_calibration import FEWEST, FILE_NAME, calibrate, load, question_of, save
from copilotd.query.retrieve import retrieve
from copilotd.types import Scope

EVERYWHERE = Scope()
_THINGS = [
    "kiln",
    "lamp",
    "wheel",
    "door",
    "clay",
    "glaze",
    "brush",
    "stove",
    "bench",
    "sponge",
    "apron",
    "shelf",
    "bucket",
    "ladle",
    "sieve",
    "tongs",
]
_VERBS = ["fired", "cleaned", "mended", "painted", "stored", "moved", "counted", "sealed"]


def text(number: int) -> str:
    draw = random.Random(number)
    a, b, c, d = draw.sample(_THINGS, 4)
    return (
        f"# {a.title()} number{number}\n\n## {b.title()} with {c} x{number}\n\n"
        f"The {a} of hall{number} is {draw.choice(_VERBS)} beside the {b} before the {c} gets {draw.choice(_VERBS)}. "
        f"Nobody may touch the {d} until bell{number} rings. Every {c} waits for its {a} in hall{number} meanwhile.\n"
    )


@pytest.fixture(scope="module")
def encoder() -> HashingTokenEncoder:
    words = " ".join(text(n) for n in range(40))
    return HashingTokenEncoder("".join(c if c.isalnum() else " " for c in words))


@pytest.fixture(scope="module")
def index(encoder: HashingTokenEncoder) -> MemoryIndex:
    made = MemoryIndex(encoder)
    for number in range(40):
        document = parse_file(f"{number}.md", text(number).encode())
        made.add(
            document,
            chunk_document(
                document, source_file=f"/{number}.md", relative_path=f"{number}.md", last_modified=1.0
            ),
        )
    return made


def test_it_tells_what_is_there_from_what_is_not(index: MemoryIndex, encoder: HashingTokenEncoder) -> None:
    seen: list[tuple[int, int]] = []
    own = calibrate(index, encoder, range(1, 200), lambda *step: seen.append(step))
    assert own.model == encoder.fingerprint
    assert own.questions >= FEWEST
    assert own.auroc > 0.75
    assert seen[-1][0] == own.questions
    weights = own.calibration.weights
    assert weights["missing"] <= 0 <= min(weight for name, weight in weights.items() if name != "missing")
    told = retrieve("bell7 rings hall7", index, encoder, EVERYWHERE, 5)
    strange = retrieve("quarterly invoices of zephyr", index, encoder, EVERYWHERE, 5)
    sure, unsure = (judge(found, threshold=0.5, own=own.calibration) for found in (told, strange))
    assert sure.confidence > 0.5 > unsure.confidence
    assert "not calibrated" not in sure.reason
    assert "copilot calibrate" in judge(told, threshold=0.5).reason


def test_it_is_the_same_each_time(index: MemoryIndex, encoder: HashingTokenEncoder) -> None:
    assert calibrate(index, encoder, range(1, 200)) == calibrate(index, encoder, range(1, 200))


def test_too_few_documents_are_said(encoder: HashingTokenEncoder) -> None:
    made = MemoryIndex(encoder)
    document = parse_file("a.md", text(1).encode())
    made.add(document, chunk_document(document, source_file="/a.md", relative_path="a.md", last_modified=1.0))
    with pytest.raises(UsageError, match="at least"):
        calibrate(made, encoder, [1, 2, 3])


def test_a_chunk_without_sentences_makes_no_question(index: MemoryIndex) -> None:
    draw = random.Random(0)
    questions = [question_of(chunk, draw) for chunk in index.load_chunks(range(1, 200)).values()]
    assert any(questions)
    assert all(0 < len(question.split()) <= 8 for question in questions if question)


def test_what_is_saved_is_loaded(index: MemoryIndex, encoder: HashingTokenEncoder, tmp_path: Path) -> None:
    own = calibrate(index, encoder, range(1, 200))
    save(own, tmp_path)
    assert load(tmp_path) == own
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": 1}', "\x00", '{"weights": {"met": "x"}}'])
def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert load(tmp_path) is None
    assert load(tmp_path / "nowhere") is None

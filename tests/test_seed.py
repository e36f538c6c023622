"""The six tests of the first seed, under their own names, on the product's own functions."""

from __future__ import annotations

import logging
import os
import re
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from pytest_mock import MockerFixture

from copilotd import seed
from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import locate_model
from copilotd.types import ChunkMetadata, Encoder, Float32Array

DOCS = Path(__file__).parent / "fixtures" / "docs"


class WordEncoder:
    """Texts that share words are near: enough to index with, and it counts what it embeds."""

    name = "words"
    fingerprint = "words-1"
    dimension = 64
    max_tokens = 256

    def __init__(self) -> None:
        self.embedded = 0

    def encode(self, texts: Sequence[str]) -> Float32Array:
        self.embedded += len(texts)
        vectors = np.full((len(texts), self.dimension), 1e-3, dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                row[zlib.crc32(word.encode()) % self.dimension] += 1
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


@pytest.fixture(scope="module")
def real_encoder() -> Encoder:
    return load_encoder(locate_model("all-MiniLM-L6-v2"))


def chunk(doc_title: str, section_heading: str, text: str) -> dict[str, object]:
    metadata = ChunkMetadata(
        doc_title=doc_title,
        section_heading=section_heading,
        last_modified=1.0,
        source_file=f"/docs/{doc_title}.md",
        chunk_index=0,
        char_count=len(text),
        heading_path=(section_heading,),
        relative_path=f"{doc_title}.md",
    )
    return seed.attach_metadata(text, metadata)


DATABASE = chunk(
    "setup_guide", "Database Config", "To configure the database, set DATABASE_URL before the first start."
)
AUTHENTICATION = chunk(
    "api_reference", "Authentication", "All API calls require a bearer token in the Authorization header."
)


def test_metadata_attached_to_every_chunk() -> None:
    chunks = seed.markdown_chunk_by_section(str(DOCS / "setup_guide.md"))

    assert len(chunks) >= 3
    for text, metadata in chunks:
        assert metadata.doc_title == "setup_guide"
        assert metadata.section_heading
        assert metadata.last_modified == (DOCS / "setup_guide.md").stat().st_mtime > 0
        assert metadata.char_count == len(text)
        assert Path(metadata.source_file).is_absolute()
    assert [metadata.chunk_index for _, metadata in chunks] == list(range(len(chunks)))
    assert {"Database Config", "First Start", "Account Settings"} <= {m.section_heading for _, m in chunks}


def test_freshness_check_detects_changed_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    docs, index = tmp_path / "docs", tmp_path / "index"
    shutil.copytree(DOCS, docs)
    model = WordEncoder()
    caplog.set_level(logging.INFO)

    # Nothing stored yet: every file is stale.
    assert seed.check_freshness_and_reindex(str(index), str(docs), model) is True
    assert seed.check_freshness_and_reindex(str(index), str(docs), model) is False

    guide = docs / "setup_guide.md"
    guide.write_text(guide.read_text().replace("PostgreSQL 14", "PostgreSQL 17"))
    caplog.clear()
    assert seed.check_freshness_and_reindex(str(index), str(docs), model) is True
    assert "Stale index detected: setup_guide.md changed. Re-indexing." in caplog.text
    assert "api_reference.md changed" not in caplog.text

    # Touched, not changed: stale by its mtime, so looked at, but nothing is embedded for it.
    embedded = model.embedded
    os.utime(guide, (1.0, 1.0))
    caplog.clear()
    assert seed.check_freshness_and_reindex(str(index), str(docs), model) is True
    assert "Stale index detected: setup_guide.md changed. Re-indexing." in caplog.text
    assert model.embedded == embedded


def test_loading_an_index_that_was_never_made_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"^Run --index first$"):
        seed.load_index(str(tmp_path / "index"))


def test_below_threshold_returns_i_dont_know() -> None:
    refusal = seed.handle_below_threshold(
        query="What is the airspeed velocity?", top_score=0.3, threshold=0.5
    )

    assert refusal is not None
    assert "don't have enough information" in refusal
    assert "What is the airspeed velocity?" in refusal
    assert refusal == (
        "I don't have enough information to answer 'What is the airspeed velocity?'. "
        "The documentation may not cover this topic."
    )
    assert seed.handle_below_threshold("What is the airspeed velocity?", 0.5, 0.5) is None


@pytest.mark.parametrize("mark", ["[setup_guide > Database Config]", "[A]"])
def test_citation_format_in_answer(mocker: MockerFixture, mark: str) -> None:
    completion = mocker.patch(
        f"{seed.build_answer_with_citations.__module__}.get_completion",
        return_value=f"Set DATABASE_URL {mark}. Ask the wizard [nowhere > Magic].",
    )

    answer = seed.build_answer_with_citations("How do I configure it?", [DATABASE, AUTHENTICATION])

    assert "[setup_guide > Database Config]" in answer
    assert "nowhere" not in answer
    prompt = completion.call_args.args[0]
    assert "setup_guide > Database Config" in prompt
    assert "api_reference > Authentication" in prompt
    assert "How do I configure it?" in prompt


def test_citations_are_listed_once_in_order() -> None:
    assert seed.format_citations([AUTHENTICATION, DATABASE, AUTHENTICATION]) == [
        "api_reference > Authentication",
        "setup_guide > Database Config",
    ]


def test_markdown_chunker_handles_file_with_no_headings(tmp_path: Path) -> None:
    file = tmp_path / "plain_notes.md"
    file.write_text("First paragraph.\n\nSecond paragraph.\n\nThird paragraph.\n")

    chunks = seed.markdown_chunk_by_section(str(file))

    assert len(chunks) == 1
    assert chunks[0][1].section_heading == "plain_notes"
    assert chunks[0][1].doc_title == "plain_notes"
    assert "Second paragraph." in chunks[0][0]


def test_search_returns_results_above_threshold(real_encoder: Encoder) -> None:
    index, embeddings, chunks = seed.build_with_metadata([DATABASE, AUTHENTICATION], real_encoder)

    # None of the question's words but "the" is in the passage: this is by meaning.
    found = seed.search_with_metadata(
        "where does the connection to Postgres get defined?", real_encoder, index, chunks, top_k=2
    )

    assert embeddings.shape == (index.ntotal, real_encoder.dimension)
    assert [result["metadata"].section_heading for result in found] == ["Database Config", "Authentication"]
    assert found[0]["score"] > found[1]["score"]
    assert found[0]["score"] > 0.0

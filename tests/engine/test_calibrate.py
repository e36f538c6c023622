"""``Engine.calibrate``: for another model only, kept beside the index, used from then on."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from support.hashing_encoder import HashingTokenEncoder

from copilotd.embed.models import BUNDLED_NAME, LocatedModel, bundled_folder
from copilotd.engine import Engine
from copilotd.errors import UsageError
from copilotd.query.own_calibration import FILE_NAME
from copilotd.settings import Settings, load_settings
from copilotd.types import AskRequest, Progress

TEXT = "The kiln of hall{n} is fired before the lamp of tower{n} gets cleaned by a porter. " * 3
VOCABULARY = "the kiln of is fired before lamp gets cleaned by a porter hall tower room"


class Silent:
    """A reporter that keeps the stages."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def progress(self, progress: Progress) -> None:
        self.stages.append(progress.stage)

    def delta(self, text: str) -> None:
        """Ignores streamed text."""

    def cancelled(self) -> bool:
        return False


def engine(tmp_path: Path, name: str = "hashing") -> Engine:
    def load(model: LocatedModel) -> HashingTokenEncoder:
        encoder = HashingTokenEncoder(VOCABULARY)
        encoder.name = name
        return encoder

    def locate(wanted: str) -> LocatedModel:
        return LocatedModel(name, tmp_path, "folder", HashingTokenEncoder.fingerprint)

    settings: Settings = replace(load_settings(), index_dir=tmp_path / "index")
    return Engine(settings, load=load, locate=locate, background=False)


def test_it_is_fitted_kept_and_used(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(40):
        (docs / f"{number}.md").write_text(f"# Room {number} kiln\n\n{TEXT.replace('{n}', str(number))}\n")
    made = engine(tmp_path)
    made.start()
    try:
        reporter = Silent()
        made.index_root(str(docs), reporter=reporter)
        question = AskRequest("kiln of hall7 fired", extractive=True)
        assert "not calibrated" in made.ask(question, reporter).verdict.reason
        own = made.calibrate(reporter)
        assert own.questions >= 20
        assert "calibrate" in reporter.stages
        assert "not calibrated" not in made.ask(question, reporter).verdict.reason
    finally:
        made.close()
    assert (tmp_path / "index" / FILE_NAME).exists()
    again = engine(tmp_path)
    again.start()
    try:
        assert "not calibrated" not in again.ask(question, reporter).verdict.reason
    finally:
        again.close()


def test_the_bundled_model_needs_none(tmp_path: Path) -> None:
    made = engine(tmp_path, BUNDLED_NAME)
    made.start()
    try:
        with pytest.raises(UsageError, match="calibrated already"):
            made.calibrate(Silent())
    finally:
        made.close()


@pytest.fixture(scope="module")
def second_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers model of the real kind, made here: tiny, its weights drawn at random."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel

    with warnings.catch_warnings():
        # The library moved it, and older ones don't know the new place.
        warnings.simplefilter("ignore", DeprecationWarning)
        from sentence_transformers.models import Pooling, Transformer

    torch.manual_seed(0)
    bare = tmp_path_factory.mktemp("bert")
    bundled = bundled_folder()
    assert bundled is not None
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(bundled / name, bare / name)
    BertModel(
        BertConfig(
            vocab_size=30522,
            hidden_size=48,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=48,
        )
    ).save_pretrained(bare)
    made = tmp_path_factory.mktemp("second-model")
    first = Transformer(str(bare), max_seq_length=128)
    SentenceTransformer(modules=[first, Pooling(48)], device="cpu").save(str(made))
    return made


def test_a_real_second_model_is_calibrated_and_its_confidence_used(
    tmp_path: Path, second_model: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(40):
        (docs / f"{number}.md").write_text(f"# Room {number} kiln\n\n{TEXT.replace('{n}', str(number))}\n")
    settings = replace(load_settings(), index_dir=tmp_path / "index", embed_model=str(second_model))
    made = Engine(settings, background=False)
    made.start()
    try:
        reporter = Silent()
        made.index_root(str(docs), reporter=reporter)
        question = AskRequest("kiln of hall7 fired", extractive=True)
        before = made.ask(question, reporter).verdict
        assert "not calibrated" in before.reason
        assert 0.0 <= before.confidence <= 1.0
        own = made.calibrate(reporter)
        assert own.questions >= 20
        after = made.ask(question, reporter).verdict
        assert "not calibrated" not in after.reason
        assert "words met" in after.reason
    finally:
        made.close()

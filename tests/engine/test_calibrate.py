"""``Engine.calibrate``: for another model only, kept beside the index, used from then on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.hashing_encoder import HashingTokenEncoder

from copilotd.embed.models import BUNDLED_NAME, LocatedModel
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

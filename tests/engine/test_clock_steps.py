"""The wall clock is set while the daemon runs, or stands still in a suspended machine: nothing is lost or missed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from support.engines import Recorder, found, found_paths, running_engine

YEAR_S = 365 * 86_400.0
_real_ns, _real = time.time_ns, time.time


class Clock:
    """The wall clock, as it is set; the monotonic one and the kernel's stamps of files go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        monkeypatch.setattr(time, "time_ns", lambda: _real_ns() + int(self.ahead_s * 1e9))
        monkeypatch.setattr(time, "time", lambda: _real() + self.ahead_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text("# Kiln\n\nFire the kiln hot.\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("steps", [(-YEAR_S, YEAR_S), (YEAR_S, -YEAR_S), (-1.0, -2.0), (1.0, 0.0)])
def test_every_edit_is_found_however_the_clock_is_set_between(
    tmp_path: Path, docs: Path, clock: Clock, steps: tuple[float, ...]
) -> None:
    with running_engine(tmp_path / "index", background=True) as engine:
        engine.index_root(str(docs), reporter=Recorder())
        for number, ahead_s in enumerate((*steps, 0.0)):
            clock.ahead_s = ahead_s
            (docs / "kiln.md").write_text(f"# Kiln\n\nVersion v{number}v of it.\n", encoding="utf-8")
            assert found(engine, f"v{number}v")[0].endswith(f"Version v{number}v of it.")
            (docs / f"n{number}.md").write_text(f"# New\n\nPage p{number}p.\n", encoding="utf-8")
            assert f"n{number}.md" in found_paths(engine, f"p{number}p")
        assert not engine.sync(60, Recorder()).pending


def test_a_folder_that_is_away_is_kept_however_far_the_clock_is_set(
    tmp_path: Path, docs: Path, clock: Clock
) -> None:
    aside = tmp_path / "aside"
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        before = engine.status().embedded_total
        shutil.move(docs, aside)
        for ahead_s in (0.0, YEAR_S, -YEAR_S, 30 * YEAR_S):
            clock.ahead_s = ahead_s
            assert found(engine, "kiln") == []
            assert engine.status().documents == 1
        shutil.move(aside, docs)
        assert found_paths(engine, "kiln") == ["kiln.md"]
        assert engine.status().embedded_total == before


def test_a_start_in_another_year_does_not_empty_a_folder_that_is_away(
    tmp_path: Path, docs: Path, clock: Clock
) -> None:
    with running_engine(tmp_path / "index") as engine:
        engine.index_root(str(docs), reporter=Recorder())
        shutil.move(docs, tmp_path / "aside")
        assert found(engine, "kiln") == []
    clock.ahead_s = YEAR_S
    with running_engine(tmp_path / "index") as engine:
        for _ in range(3):
            assert found(engine, "kiln") == []
        assert engine.status().documents == 1

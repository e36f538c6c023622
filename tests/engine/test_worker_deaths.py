"""Each of the engine's threads is killed in turn: it is started again, the status says so, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from support.engines import Recorder, found_paths, running_engine
from support.hashing_encoder import HashingEncoder

from copilotd.engine import Engine
from copilotd.errors import IndexError_
from copilotd.types import Float32Array

WAIT_S = 60.0


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def reported(engine: Engine, name: str) -> bool:
    return any(error.startswith(f"The {name} thread failed") for error in engine.status().errors)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text("# Kiln\n\nFire the kiln hot.\n", encoding="utf-8")
    return folder


class MortalEncoder(HashingEncoder):
    """Ends the thread that embeds a text with a certain word, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def encode(self, texts: Sequence[str]) -> Float32Array:
        if self.times and any("fatal" in text for text in texts):
            self.times -= 1
            raise SystemExit("killed")
        return super().encode(texts)


class DyingOnce:
    """Passes everything on, except that the first use of one attribute ends the thread."""

    def __init__(self, inner: Any, fatal: str) -> None:
        self._inner, self._fatal = inner, fatal

    def __getattr__(self, name: str) -> Any:
        if name == self._fatal:
            self._fatal = ""
            raise SystemExit("killed")
        return getattr(self._inner, name)


def edit_and_find(engine: Engine, docs: Path, name: str) -> None:
    (docs / name).write_text(f"# Shelf\n\nStack the shelf of {name} low.\n", encoding="utf-8")
    wait_for(lambda: not engine.sync(WAIT_S, Recorder()).pending)
    assert name in found_paths(engine, f"stack the shelf of {name}")


def test_the_writer(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", background=True) as engine:
        engine.index_root(str(docs), reporter=Recorder())
        engine._writer._jobs.put((-1, -1, "no job at all"))  # type: ignore[arg-type]
        wait_for(lambda: reported(engine, "writer"))
        edit_and_find(engine, docs, "a.md")


def test_who_waits_for_a_job_that_the_writer_dies_of_is_told(tmp_path: Path) -> None:
    with running_engine(tmp_path / "index") as engine:
        writer = engine._writer

        class Fatal(Future[None]):
            """Its owner is told of an error; the thread that tells dies of it, the first time."""

            def set_exception(self, exception: BaseException | None) -> None:
                if isinstance(exception, ValueError):
                    raise SystemExit("killed")
                super().set_exception(exception)

        def fail() -> None:
            raise ValueError

        waited_for = Fatal()
        writer._jobs.put((0, -1, fail, waited_for))
        with pytest.raises(IndexError_, match="started again"):
            waited_for.result(WAIT_S)
        assert writer.run(lambda: 7) == 7


@pytest.mark.parametrize("deaths", [1, 3])
def test_the_reader_of_texts_and_the_embedder(tmp_path: Path, docs: Path, deaths: int) -> None:
    encoder = MortalEncoder(deaths)
    with running_engine(tmp_path / "index", background=True, encoder=encoder) as engine:
        engine.index_root(str(docs), reporter=Recorder())
        (docs / "fatal.md").write_text("# Fatal\n\nA fatal word.\n", encoding="utf-8")
        wait_for(lambda: encoder.times == 0)
        wait_for(lambda: reported(engine, "reader-text") or reported(engine, "embedder"))
        wait_for(lambda: not engine.status().pending and not engine.status().pending_windows)
        edit_and_find(engine, docs, "b.md")
        assert "fatal.md" in found_paths(engine, "a word")


def test_the_loop_that_looks_at_folders(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", background=True) as engine:
        engine.index_root(str(docs), reporter=Recorder())
        engine._loop._reconciler = DyingOnce(engine._reconciler, "due_roots")  # type: ignore[assignment]
        wait_for(lambda: reported(engine, "reconciler"))
        (docs / "c.md").write_text("# Cone\n\nCone six.\n", encoding="utf-8")
        # Nobody asks: the loop itself finds it.
        wait_for(lambda: engine.status().documents == 2)


def test_the_watcher(tmp_path: Path, docs: Path) -> None:
    with running_engine(tmp_path / "index", background=True, reconcile_s=86_400.0) as engine:
        engine.index_root(str(docs), reporter=Recorder())
        watcher = engine._watcher
        assert watcher is not None
        watcher._inbox.append("no event at all")  # type: ignore[arg-type]
        (docs / "d.md").write_text("# Damper\n\nShut the damper.\n", encoding="utf-8")
        wait_for(lambda: reported(engine, "watcher"))
        wait_for(lambda: watcher.health(1) == "events")
        (docs / "e.md").write_text("# Draft\n\nMind the draft.\n", encoding="utf-8")
        wait_for(lambda: engine.status().documents == 3)


def test_a_model_that_ends_its_loader_is_not_waited_for(tmp_path: Path, docs: Path) -> None:
    def die(_model: object) -> HashingEncoder:
        raise SystemExit("killed")

    with running_engine(tmp_path / "index", load=die) as engine:
        engine.index_root(str(docs), reporter=Recorder())
        wait_for(lambda: engine.status().state == "ready")
        assert "could not be loaded" in engine.status().model_error
        assert found_paths(engine, "kiln") == ["kiln.md"]

"""A real engine on a temporary index, with an encoder that needs no loading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.hashing_encoder import HashingEncoder

from copilotd.embed.models import LocatedModel
from copilotd.engine import Engine
from copilotd.settings import load_settings
from copilotd.types import Answer, AskRequest, Encoder, Progress, Provider, SearchRequest, SearchResult


class Recorder:
    """A Reporter that remembers."""

    def __init__(self) -> None:
        self.steps: list[Progress] = []
        self.text = ""
        self.gone = False

    def progress(self, progress: Progress) -> None:
        self.steps.append(progress)

    def delta(self, text: str) -> None:
        self.text += text

    def cancelled(self) -> bool:
        return self.gone

    @property
    def messages(self) -> list[str]:
        return [step.message for step in self.steps if step.message]


def located(name: str = "hashing", fingerprint: str = "hashing-1") -> Callable[[str], LocatedModel]:
    return lambda _: LocatedModel(name, Path("/nonexistent"), "given", fingerprint)


@contextmanager
def running_engine(
    index_dir: Path,
    *,
    encoder: Encoder | None = None,
    load: Callable[[LocatedModel], Encoder] | None = None,
    background: bool = False,
    make_provider: Callable[[], Provider | None] = lambda: None,
    **settings: Any,
) -> Iterator[Engine]:
    """Starts an engine; a test that wants no threads of its own to look at folders leaves ``background`` off."""
    chosen = encoder or HashingEncoder()
    engine = Engine(
        replace(load_settings(), index_dir=index_dir, **settings),
        load=load or (lambda _: chosen),
        locate=located(chosen.name, chosen.fingerprint),
        background=background,
        make_provider=make_provider,
    )
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def ask(engine: Engine, query: str, **options: Any) -> Answer:
    return engine.ask(AskRequest(query, **options), Recorder())


def search(engine: Engine, query: str, **options: Any) -> SearchResult:
    return engine.search(SearchRequest(query, **options), Recorder())


def found(engine: Engine, query: str) -> list[str]:
    """The texts of all hits."""
    return [hit.chunk.text for hit in search(engine, query, top_k=50).hits]


def found_paths(engine: Engine, query: str) -> list[str]:
    return [hit.chunk.metadata.relative_path for hit in search(engine, query, top_k=50).hits]

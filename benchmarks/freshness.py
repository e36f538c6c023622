"""Whether a save is in the very next answer, and what looking costs.

    python benchmarks/freshness.py                     1,000 rounds of write-then-ask, bulk indexing beside them
    python benchmarks/freshness.py --idle 5000         what a question pays for looking when nothing has changed

The first form talks to a real daemon with the real model over its socket. An answer is *stale* when it lacks
what was saved before the question and does not name the file as pending; one that names it is counted apart.
The second form needs no model: it is about the folders.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from latency import Row, daemon, machine, write_corpus

from copilot_client.connection import Connection
from copilotd.types import Float32Array, Progress

SOCKET = Path(".local/state/copilot/copilotd.sock")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the next answer must show.

    Attributes:
        word: A word that stands nowhere else.
        path: Where it must be found; None where it must not be found any more.
        named: The path that a pending answer must name.
    """

    word: str
    path: str | None
    named: str


class Editor:
    """Changes a folder at random and says what must be seen next."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.pick = random.Random(seed)
        self.number = 0
        self.words: dict[str, str] = {}
        for _ in range(30):
            self.create()

    def word(self) -> str:
        """Returns a new word of a fixed length."""
        self.number += 1
        return f"zq{self.number:06}x"

    def text(self, word: str) -> str:
        """Returns a document around a word."""
        return f"# Note\n\n## Part one\n\nThe scheduler waits for the queue.\n\n## Part two\n\nThe {word} opens it.\n"

    def any(self) -> str:
        """Returns one of the documents."""
        return self.pick.choice(sorted(self.words))

    def create(self) -> Expectation:
        """A new document, sometimes in a new folder."""
        word = self.word()
        path = f"{self.pick.choice(['', 'a/', 'a/b/', f'n{self.number}/'])}{self.number}.md"
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(self.text(word))
        self.words[path] = word
        return Expectation(word, path, path)

    def rewrite(self) -> Expectation:
        """As an editor does that writes in place."""
        path, word = self.any(), self.word()
        (self.folder / path).write_text(self.text(word))
        self.words[path] = word
        return Expectation(word, path, path)

    def replace(self) -> Expectation:
        """As an editor does that writes a new file and renames it."""
        path, word = self.any(), self.word()
        new = self.folder / f".{self.number}.tmp"
        new.write_text(self.text(word))
        new.replace(self.folder / path)
        self.words[path] = word
        return Expectation(word, path, path)

    def rewrite_secretly(self) -> Expectation:
        """Same length, same mtime."""
        path, word = self.any(), self.word()
        status = (self.folder / path).stat()
        (self.folder / path).write_text(self.text(word))
        os.utime(self.folder / path, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.words[path] = word
        return Expectation(word, path, path)

    def append(self) -> Expectation:
        """A line at the end."""
        path, word = self.any(), self.word()
        with (self.folder / path).open("a") as file:
            file.write(f"\n## Later\n\nThe {word} as well.\n")
        return Expectation(word, path, path)

    def rename(self) -> Expectation:
        """Another name, another folder."""
        path = self.any()
        self.number += 1
        target = f"r{self.number % 7}/{self.number}.md"
        (self.folder / target).parent.mkdir(exist_ok=True)
        (self.folder / path).rename(self.folder / target)
        self.words[target] = self.words.pop(path)
        return Expectation(self.words[target], target, target)

    def delete(self) -> Expectation:
        """One document less."""
        if len(self.words) < 10:
            return self.create()
        path = self.any()
        (self.folder / path).unlink()
        return Expectation(self.words.pop(path), None, path)

    def edit(self) -> tuple[str, Expectation]:
        """Does one of these."""
        kinds: list[Callable[[], Expectation]] = [
            self.create, self.rewrite, self.replace, self.rewrite_secretly, self.append, self.rename, self.delete,
        ]  # fmt: skip
        kind = self.pick.choice(kinds)
        return kind.__name__, kind()


def judge(result: dict[str, object], expected: Expectation) -> str:
    """Returns ``fresh``, ``pending`` or ``stale``."""
    hits: list[dict[str, str]] = result["hits"]  # type: ignore[assignment]
    found = {hit["relative_path"] for hit in hits if expected.word in hit["text"]}
    if found == ({expected.path} if expected.path else set()):
        return "fresh"
    freshness: dict[str, object] = result["freshness"]  # type: ignore[assignment]
    return "pending" if expected.named in freshness["pending_paths"] else "stale"  # type: ignore[operator]


def write_then_ask(rounds: int, bulk_chunks: int, seed: int) -> dict[str, object]:
    """Runs the rounds and returns the counts and times."""
    with tempfile.TemporaryDirectory(prefix="fresh.", dir="/tmp") as place:
        home, docs, bulk = Path(place, "home"), Path(place, "docs"), Path(place, "bulk")
        for folder in (home, docs, bulk):
            folder.mkdir(mode=0o700)
        editor = Editor(docs, seed)
        verdicts: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        stale: list[dict[str, object]] = []
        sync: list[float] = []
        total: list[float] = []
        with daemon(home), Connection.open(home / SOCKET) as connection:
            connection.call("index", {"path": str(docs)})
            done = threading.Event()
            worker = threading.Thread(target=keep_indexing, args=(home, bulk, bulk_chunks, done), daemon=True)
            worker.start()
            for _ in range(rounds):
                kind, expected = editor.edit()
                began = time.perf_counter()
                result = connection.call(
                    "search", {"query": expected.word, "namespaces": ["default"], "top_k": 50}
                )
                total.append((time.perf_counter() - began) * 1000)
                sync.append(result["timings_ms"]["sync"])
                verdict = judge(result, expected)
                verdicts[verdict] += 1
                kinds[kind] += 1
                if verdict == "stale":
                    stale.append({"kind": kind, **asdict(expected), "freshness": result["freshness"]})
            status = connection.call("status", {})
            done.set()
            worker.join(5)
    return {
        "machine": machine(),
        "rounds": rounds,
        **{verdict: verdicts[verdict] for verdict in ("fresh", "pending", "stale")},
        "kinds": dict(kinds),
        "embedded_meanwhile": status["embedded_total"],
        "errors": status["errors"],
        "stale_answers": stale,
        "sync_ms": {**asdict(Row.of("sync", sync)), "max": max(sync)},
        "search_ms": {**asdict(Row.of("search", total)), "max": max(total)},
    }


def keep_indexing(home: Path, folder: Path, chunks: int, done: threading.Event) -> None:
    """Keeps the daemon busy with bulk work until told to stop."""
    generation = 0
    while not done.is_set():
        generation += 1
        shutil.rmtree(folder)
        folder.mkdir()
        write_corpus(folder, chunks, seed=generation)
        with Connection.open(home / SOCKET) as connection:
            try:
                connection.call("index", {"path": str(folder), "namespace": "bulk"}, seconds=None)
            except Exception:  # the daemon is stopped at the end
                return


class Silent:
    """A reporter for nobody."""

    def progress(self, progress: Progress) -> None:
        """Shows nothing."""

    def delta(self, text: str) -> None:
        """Shows nothing."""

    def cancelled(self) -> bool:
        """Never."""
        return False


class InstantEncoder:
    """One direction for all texts: looking at folders has nothing to do with them."""

    name = fingerprint = "instant"
    dimension = 8
    max_tokens = 256

    def encode(self, texts: list[str]) -> Float32Array:
        """Returns unit rows."""
        rows = np.zeros((len(texts), self.dimension), np.float32)
        rows[:, 0] = 1
        return rows


def idle(files: int, runs: int) -> dict[str, object]:
    """Times ``engine.sync`` of an unchanged folder of ``files`` documents, 100 a folder."""
    from copilotd.embed.models import LocatedModel
    from copilotd.engine import Engine
    from copilotd.settings import load_settings

    with tempfile.TemporaryDirectory(prefix="idle.") as place:
        docs = Path(place, "docs")
        for number in range(files):
            folder = docs / f"{number // 1000:03}" / f"{number // 100 % 10}"
            if number % 100 == 0:
                folder.mkdir(parents=True)
            (folder / f"{number}.md").write_text(f"# Note {number}\n")
        engine = Engine(
            replace(load_settings(), index_dir=Path(place, "index")),
            load=lambda _: InstantEncoder(),  # type: ignore[arg-type,return-value]
            locate=lambda _: LocatedModel("instant", Path("/nonexistent"), "given", "instant"),
        )
        engine.start()
        try:
            began = time.perf_counter()
            engine.index_root(str(docs), reporter=Silent())
            indexed_s = time.perf_counter() - began
            while engine.roots()[0].watch != "events":
                time.sleep(0.1)
            time.sleep(2.5)  # past the time in which a time stamp proves nothing
            for _ in range(3):
                engine.sync(60.0, Silent())
            samples = []
            for _ in range(runs):
                began = time.perf_counter()
                freshness = engine.sync(60.0, Silent())
                samples.append((time.perf_counter() - began) * 1000)
                assert freshness.pending == 0
        finally:
            engine.close()
    return {
        "machine": machine(),
        "files": files,
        "index_s": round(indexed_s, 2),
        "idle_sync_ms": {**asdict(Row.of("idle sync", samples)), "min": min(samples), "max": max(samples)},
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Stale answers after a save, and the price of looking.")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of write-then-ask (default 1000)")
    parser.add_argument("--bulk-chunks", type=int, default=4000, help="size of the bulk work beside them")
    parser.add_argument("--idle", type=int, metavar="FILES", help="only the check of so many unchanged files")
    parser.add_argument("--runs", type=int, default=50, help="checks with --idle (default 50)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    result = (
        idle(arguments.idle, arguments.runs)
        if arguments.idle
        else write_then_ask(arguments.rounds, arguments.bulk_chunks, arguments.seed)
    )
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:20} {value}")
    if result.get("stale"):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""``kill -9`` at random moments, then a start: is anything lost, mixed or left behind?

    python benchmarks/crash.py                 200 rounds
    python benchmarks/crash.py --rounds 20 --seed 7
    python benchmarks/crash.py --rounds 30 --daemon

A child process runs the real engine, watcher and store on an index while this one edits its folder; it is killed
while it indexes, takes in edits, or shuts down. The next start must heal by itself: ``check`` finds nothing, and the
index equals one built from scratch. Vectors come from a hash instead of the model, so that a round takes a second;
with ``--daemon`` the child is the daemon itself, with the real model, and the questions of clients while it dies.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from freshness import Editor, Silent
from latency import COPILOT, machine

from copilotd.embed.encoder import load_encoder
from copilotd.embed.models import LocatedModel, locate_model
from copilotd.engine import Engine
from copilotd.settings import load_settings
from copilotd.types import Encoder, Float32Array


class HashEncoder:
    """A vector that only depends on the text."""

    name = fingerprint = "hash"
    dimension = 32
    max_tokens = 256

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Returns unit rows."""
        time.sleep(0.002 * len(texts))
        rows = np.stack(
            [
                np.frombuffer(hashlib.blake2b(text.encode(), digest_size=32).digest(), np.uint8)
                for text in texts
            ]
        ).astype(np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


MakeEngine = Callable[[Path], Engine]


def real_engines() -> MakeEngine:
    """Returns what makes engines with the real model, which is loaded once."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    model = locate_model(load_settings().embed_model)
    encoder: Encoder = load_encoder(model)

    def make(index: Path) -> Engine:
        return Engine(
            replace(load_settings(), index_dir=index),
            load=lambda _: encoder,
            locate=lambda _: model,
            background=False,
        )

    return make


def make_engine(index: Path, *, background: bool = False) -> Engine:
    """The real engine with the hash in place of the model."""
    return Engine(
        replace(load_settings(), index_dir=index, reconcile_s=0.5),
        load=lambda _: HashEncoder(),
        locate=lambda _: LocatedModel("hash", Path("/nonexistent"), "given", "hash"),
        background=background,
    )


def be_victim(index: Path, docs: Path) -> None:
    """Runs until killed; on SIGTERM shuts down as the daemon does."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    engine = make_engine(index, background=True)
    engine.start()
    print("started", flush=True)
    engine.index_root(str(docs), reporter=Silent())
    while not stopping.wait(0.02):
        engine.sync(2.0, Silent())
    engine.close()


def contents(index: Path) -> dict[str, object]:
    """Everything stored, by path; ids and times of reading left out."""
    database = sqlite3.connect(index / "index.sqlite3")
    dump: dict[str, object] = {}
    for file_id, path, skipped in database.execute("SELECT id, relative_path, skipped FROM files"):
        dump[os.fsdecode(path)] = [
            skipped,
            database.execute(
                "SELECT doc_title, title, description, text, layout, planner FROM documents WHERE file_id = ?",
                (file_id,),
            ).fetchall(),
            database.execute(
                "SELECT c.chunk_index, c.start, c.end, c.section, c.line_start, c.line_end, c.context, c.digest,"
                " k.title, k.heading, k.body, k.name, w.start, w.end, w.key, v.vector"
                " FROM chunks c LEFT JOIN keywords k ON k.rowid = c.id LEFT JOIN windows w ON w.chunk_id = c.id"
                " LEFT JOIN vectors v ON v.key = w.key WHERE c.file_id = ? ORDER BY c.chunk_index, w.start",
                (file_id,),
            ).fetchall(),
        ]
    dump["pending"] = database.execute("SELECT count(*) FROM pending").fetchone()[0]
    dump["rows"] = [
        database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("files", "documents", "chunks", "windows", "keywords")
    ]
    database.close()
    return dump


def settle(engine: Engine) -> None:
    """Waits until nothing is pending."""
    until = time.monotonic() + 60
    while engine.sync(5.0, Silent()).pending:
        if time.monotonic() > until:
            raise SystemExit("the index does not settle")
        time.sleep(0.02)


def start_engine(place: Path) -> tuple[subprocess.Popen[bytes], Callable[[], None]]:
    """Starts an engine in a child; returns it, and what waits until it is up."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--victim", str(place / "index"), str(place / "docs")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )

    def up() -> None:
        assert child.stdout is not None
        child.stdout.readline()

    return child, up


def start_daemon(place: Path) -> tuple[subprocess.Popen[bytes], Callable[[], None]]:
    """Starts the daemon; clients that index and ask follow as soon as it listens."""
    environment = {
        "HOME": str(place),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "INDEX_DIR": str(place / "index"),
        "COPILOT_SOCKET": str(place / "s"),
        "RECONCILE_S": "0.5",
    }
    child = subprocess.Popen(
        [str(Path(COPILOT).with_name("copilotd"))],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def up() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as client, contextlib.suppress(OSError):
                client.connect(str(place / "s"))
                break
            time.sleep(0.02)
        for arguments in (
            ["index", "--no-start", str(place / "docs")],
            ["ask", "--no-start", "What opens the queue?"],
        ):
            subprocess.Popen(
                [COPILOT, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    return child, up


def one_round(
    place: Path,
    editor: Editor,
    pick: random.Random,
    start: Callable[[Path], tuple[subprocess.Popen[bytes], Callable[[], None]]],
    make: MakeEngine,
) -> tuple[str, list[str]]:
    """Kills once; returns the moment, and what was wrong after the next start."""
    index, docs = place / "index", place / "docs"
    moment = pick.choice(["starting", "indexing", "editing", "stopping"])
    child, wait_until_up = start(place)
    for _ in range(pick.randrange(12)):
        editor.edit()
    if moment == "starting":
        time.sleep(pick.uniform(0.3, 1.5))
    else:
        wait_until_up()
        if moment == "indexing":
            time.sleep(pick.uniform(0, 0.3))
        else:
            until = time.monotonic() + pick.uniform(0.1, 0.8)
            while time.monotonic() < until:
                editor.edit()
                time.sleep(pick.choice([0, 0.001, 0.02]))
        if moment == "stopping":
            child.terminate()
            time.sleep(pick.uniform(0, 0.2))
    child.kill()
    child.wait()

    wrong = []
    engine = make(index)
    try:
        wrong += [f"note: {note}" for note in engine.status().errors]
        engine.start()
        engine.index_root(str(docs), reporter=Silent())
        settle(engine)
        wrong += [
            f"{item.kind}: {item.path} {item.detail}" for item in engine.check(False, Silent()).findings
        ]
    finally:
        engine.close()
    with tempfile.TemporaryDirectory(dir=place) as fresh_place:
        fresh = make(Path(fresh_place))
        try:
            fresh.start()
            fresh.index_root(str(docs), reporter=Silent())
            settle(fresh)
        finally:
            fresh.close()
        healed, expected = contents(index), contents(Path(fresh_place))
    wrong += [
        f"differs: {path}"
        for path in healed.keys() | expected.keys()
        if healed.get(path) != expected.get(path)
    ]
    return moment, wrong


def main() -> None:
    """Runs the rounds and prints the counts."""
    parser = argparse.ArgumentParser(
        description="kill -9 at random moments, then compare with a fresh index."
    )
    parser.add_argument("--rounds", type=int, default=200, help="kills (default 200)")
    parser.add_argument("--daemon", action="store_true", help="kill the daemon itself, with the real model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--victim", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.victim:
        be_victim(*arguments.victim)
        return
    pick = random.Random(arguments.seed)
    moments: Counter[str] = Counter()
    differences: list[dict[str, object]] = []
    start, make = (start_daemon, real_engines()) if arguments.daemon else (start_engine, make_engine)
    with tempfile.TemporaryDirectory(prefix="crash.") as name:
        place = Path(name)
        (place / "docs").mkdir()
        editor = Editor(place / "docs", arguments.seed)
        for number in range(arguments.rounds):
            moment, wrong = one_round(place, editor, pick, start, make)
            moments[moment] += 1
            if wrong:
                differences.append({"round": number, "moment": moment, "wrong": wrong[:10]})
    result = {
        "machine": machine(),
        "killed": "daemon" if arguments.daemon else "engine",
        "rounds": arguments.rounds,
        "killed_while": dict(moments),
        "documents_at_the_end": len(editor.words),
        "rounds_with_differences": len(differences),
        "differences": differences,
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            print(f"{key:24} {value}")
    raise SystemExit(1 if differences else 0)


if __name__ == "__main__":
    main()

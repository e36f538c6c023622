"""How long a question takes, as a person waits for it and inside the daemon.

    python benchmarks/latency.py                    a made-up corpus of 1,000+ chunks
    python benchmarks/latency.py DIR --runs 100     a folder of yours; its headings are the questions
    python benchmarks/latency.py ../shared/eval --copies 2 --index-dir /tmp/big   10,000 chunks, kept for the next run

A folder with ``questions.jsonl`` files below gives its questions instead of headings. ``--copies`` indexes the folder
under several namespaces: search has that much more to look through, and nothing is embedded twice.

Whole-process times stand beside those of a bare ``python -c pass`` and ``python -c "import click"``, all
taken in turn within one run, so that a busy machine touches every row alike. What to compare is the
ratio; the milliseconds only tell the scale. The daemon and its index are the benchmark's own, in
a temporary home that is removed at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from copilot_client.connection import Connection

PYTHON = sys.executable
COPILOT = str(Path(sys.executable).parent / "copilot")
SECTIONS_A_FILE = 8
MAX_QUESTIONS = 50

_VOCABULARY = """
scheduler cache gateway ledger indexer mailer renderer archiver proxy monitor router importer
timeout retry budget queue limit window quota buffer threshold interval lease batch
raises lowers delays drops limits extends reports rejects balances restarts keeps measures
requests workers sessions uploads replicas tokens readings messages snapshots shards jobs routes
"""
SUBJECTS, PARTS, VERBS, THINGS = (line.split() for line in _VOCABULARY.strip().splitlines())


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result; times in milliseconds."""

    name: str
    runs: int
    p50: float
    p95: float

    @classmethod
    def of(cls, name: str, milliseconds: Sequence[float]) -> Row:
        """Summarises the samples; p95 is the smallest sample that 95 % of them don't exceed."""
        ordered = sorted(milliseconds)
        p95 = ordered[min(len(ordered) - 1, -(-len(ordered) * 95 // 100) - 1)]
        return cls(name, len(ordered), statistics.median(ordered), p95)


def write_corpus(folder: Path, chunks: int, seed: int = 7) -> list[str]:
    """Writes at least ``chunks`` sections in Markdown files, the same each time, and returns questions about them."""
    pick = random.Random(seed)
    names = [f"{subject} {part}" for subject, part in itertools.product(SUBJECTS, PARTS)]
    questions = []
    for number in range(-(-chunks // SECTIONS_A_FILE)):
        subject = SUBJECTS[number % len(SUBJECTS)]
        lines = [f"# The {subject}, part {number}", ""]
        for section in range(SECTIONS_A_FILE):
            name = names[(number * SECTIONS_A_FILE + section) % len(names)]
            option = f"{name.replace(' ', '_')}_{number}_{section}"
            lines += [
                f"## Setting {option}",
                "",
                f"The default of `{option}` is {pick.randrange(5, 900)} seconds.",
            ]
            for _ in range(pick.randrange(3, 9)):
                lines.append(
                    f"The {name} {pick.choice(VERBS)} {pick.choice(THINGS)} before the {pick.choice(SUBJECTS)} "
                    f"{pick.choice(VERBS)} {pick.choice(THINGS)} in the {pick.choice(PARTS)}."
                )
            lines.append("")
            questions.append(f"What is the default of {option}?")
        (folder / f"{subject}_{number:04}.md").write_text("\n".join(lines), encoding="utf-8")
    return pick.sample(questions, min(MAX_QUESTIONS, len(questions)))


def read_questions(folder: Path) -> list[str]:
    """Returns the questions below ``folder``, or headings of its Markdown files, spread evenly."""
    asked = [
        json.loads(line)["question"]
        for path in sorted(folder.rglob("questions.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    if asked:
        return asked
    headings = [
        heading.strip("# \n")
        for path in sorted(folder.rglob("*.md"))
        for heading in re.findall(
            r"^#{2,3} .+$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
        )
    ]
    if not headings:
        raise SystemExit(f"There is no Markdown file with headings below {folder}.")
    return headings[:: max(1, len(headings) // MAX_QUESTIONS)]


@contextmanager
def daemon(home: Path, index_dir: Path | None = None) -> Iterator[Mapping[str, str]]:
    """A daemon with an empty home; yields the environment of its clients."""
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "LLM_PROVIDER": "extractive",
    }
    if index_dir is not None:
        environment["INDEX_DIR"] = str(index_dir.resolve())
    run([COPILOT, "start"], environment)
    try:
        yield environment
    finally:
        run([COPILOT, "stop"], environment)


def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Runs a command to its end and returns what it printed."""
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def whole_process(questions: Sequence[str], runs: int, environment: Mapping[str, str]) -> list[Row]:
    """Times the commands in turn, ``runs`` times each."""
    samples: dict[str, list[float]] = {}
    for number in range(-3, runs):  # the first rounds warm the file cache and the daemon
        question = questions[number % len(questions)]
        commands = {
            "python -c pass": [PYTHON, "-c", "pass"],
            'python -c "import click"': [PYTHON, "-c", "import click"],
            "copilot search": [COPILOT, "search", question],
            "copilot ask --extractive": [COPILOT, "ask", "--extractive", question],
        }
        for name, command in commands.items():
            began = time.perf_counter()
            run(command, environment)
            if number >= 0:
                samples.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    return [Row.of(name, times) for name, times in samples.items()]


def in_daemon(questions: Sequence[str], runs: int, environment: Mapping[str, str]) -> tuple[list[Row], int]:
    """Returns the daemon's own timings by stage over one connection, and how many questions were answered.

    ``processor`` is what the daemon computed a question, waiting left out: the figure of a busy machine.
    """
    status = json.loads(run([COPILOT, "status", "--json"], environment))
    step = max(1, len(questions) // runs)
    chosen = list(itertools.islice(itertools.cycle(questions[::step]), runs))
    samples: dict[str, list[float]] = {}
    answered = 0
    with Connection.open(status["socket"]) as connection:
        for method, extra in (("search", {}), ("ask", {"extractive": True})):
            for number, question in enumerate([*chosen[:5], *chosen]):
                before = processor_seconds(status["pid"])
                reply = connection.call(method, {"query": question, **extra})
                spent = processor_seconds(status["pid"]) - before
                if number < 5:  # warming the caches
                    continue
                answered += bool(reply.get("known"))
                for stage, milliseconds in reply["timings_ms"].items():
                    samples.setdefault(f"{method}: {stage}", []).append(milliseconds)
                samples.setdefault(f"{method}: processor", []).append(spent * 1000)
    return [Row.of(name, times) for name, times in samples.items()], answered


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process so far, 0 where the system doesn't tell it."""
    try:
        # In nanoseconds, unlike stat's ticks of ten milliseconds; a line a thread.
        lines = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        return 0.0
    return sum(int(line.split()[0]) for line in lines) / 1e9


def machine() -> dict[str, object]:
    """Says what it ran on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def show(rows: Sequence[Row], base: float | None) -> None:
    """Prints a table; ``base`` is the p50 that the last column divides by."""
    for row in rows:
        ratio = f"{row.p50 / base:6.2f}×" if base else ""
        print(f"  {row.name:<28}{row.p50:9.1f}{row.p95:9.1f}   {ratio}")


def main() -> None:
    """Indexes, asks, prints."""
    parser = argparse.ArgumentParser(description="Latency of questions, whole process and in the daemon.")
    parser.add_argument(
        "dir", nargs="?", type=Path, metavar="DIR", help="documents; else a corpus is made up"
    )
    parser.add_argument("--chunks", type=int, default=1000, help="size of the made-up corpus (default 1000)")
    parser.add_argument("--copies", type=int, default=1, help="index the documents under so many namespaces")
    parser.add_argument("--index-dir", type=Path, help="keep the index here for the next run")
    parser.add_argument("--inside", action="store_true", help="only the times in the daemon")
    parser.add_argument("--runs", type=int, default=40, help="runs of each command (default 40)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    # Not below TMPDIR: the socket's path must stay short.
    with tempfile.TemporaryDirectory(prefix="latency.", dir="/tmp") as place:
        home = Path(place, "home")
        home.mkdir(mode=0o700)
        if arguments.dir:
            corpus, questions = arguments.dir.resolve(), read_questions(arguments.dir)
        else:
            corpus = Path(place, "corpus")
            corpus.mkdir()
            questions = write_corpus(corpus, arguments.chunks)
        with daemon(home, arguments.index_dir) as environment:
            reports = [
                json.loads(
                    run([COPILOT, "index", str(corpus), "--namespace", f"copy{n}", "--json"], environment)
                )
                for n in range(arguments.copies)
            ]
            report = {name: sum(one[name] for one in reports) for name in ("files", "chunks", "seconds")}
            # The first answer waits for the model.
            run([COPILOT, "ask", "--extractive", questions[0]], environment)
            outside = [] if arguments.inside else whole_process(questions, arguments.runs, environment)
            inside, answered = in_daemon(questions, arguments.runs, environment)

    if arguments.json:
        result = {
            "machine": machine(),
            "index": report,
            "whole_process_ms": [asdict(row) for row in outside],
            "in_daemon_ms": [asdict(row) for row in inside],
            "answered": answered,
            "asked": arguments.runs,
        }
        print(json.dumps(result, indent=2))
        return
    print(" · ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"{report['chunks']} chunks from {report['files']} files, indexed in {report['seconds']:.1f} s")
    print(f"{answered} of {arguments.runs} questions answered\n")
    if outside:
        print(f"  {'whole process, ms':<28}{'p50':>9}{'p95':>9}   to import click")
        show(outside, next(row.p50 for row in outside if "click" in row.name))
    print(f"\n  {'in the daemon, ms':<28}{'p50':>9}{'p95':>9}")
    show(inside, None)


if __name__ == "__main__":
    main()

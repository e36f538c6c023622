"""Whether a long life costs anything: memory, descriptors and threads of the daemon after many questions and edits.

    python benchmarks/soak.py                              10,000 questions and 1,000 edits
    python benchmarks/soak.py --questions 500 --edits 50   the short form

Questions and edits are spread evenly; one line is printed at the start, at each tenth and at the end. Every question
comes over a connection of its own, as from the command line. At the end the daemon is left alone for a
while and its processor time is taken: an idle daemon should cost none. The last lines compare the middle with the
end, since caches fill in the first half.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from latency import COPILOT, daemon, machine, processor_seconds, run, write_corpus

from copilot_client.connection import Connection

STEPS = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """The daemon at one moment.

    Attributes:
        questions: Asked so far.
        edits: Made so far.
        rss_mib: Resident memory.
        descriptors: Open files, sockets among them.
        threads: Running threads.
    """

    questions: int
    edits: int
    rss_mib: float
    descriptors: int
    threads: int


def sample(pid: int, questions: int, edits: int) -> Sample:
    """Looks at a process in /proc."""
    folder = Path(f"/proc/{pid}")
    kilobytes = next(
        int(line.split()[1])
        for line in (folder / "status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )
    return Sample(
        questions,
        edits,
        round(kilobytes / 1024, 1),
        len(list((folder / "fd").iterdir())),
        len(list((folder / "task").iterdir())),
    )


def edit(corpus: Path, number: int) -> None:
    """Changes a line of one file, each time another."""
    files = sorted(corpus.iterdir())
    page = files[number % len(files)]
    text, _, _ = page.read_text(encoding="utf-8").partition("\n## Edit")
    page.write_text(f"{text}\n## Edit\n\nEdit {number} was made here.\n", encoding="utf-8")


def main() -> None:
    """Indexes, asks and edits, prints."""
    parser = argparse.ArgumentParser(description="Memory, descriptors and threads over a long life.")
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--edits", type=int, default=1000)
    parser.add_argument("--chunks", type=int, default=400, help="size of the corpus (default 400)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to look at an idle daemon")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="soak.", dir="/tmp") as place:
        home, corpus = Path(place, "home"), Path(place, "corpus")
        home.mkdir(mode=0o700)
        corpus.mkdir()
        questions = write_corpus(corpus, arguments.chunks)
        with daemon(home) as environment:
            run([COPILOT, "index", str(corpus)], environment)
            run([COPILOT, "ask", "--extractive", questions[0]], environment)
            status = json.loads(run([COPILOT, "status", "--json"], environment))
            pid, socket = int(status["pid"]), str(status["socket"])

            def note(asked: int, edited: int) -> None:
                samples.append(sample(pid, asked, edited))
                if not arguments.json:
                    print(samples[-1], flush=True)

            note(0, 0)
            edited = 0
            for asked in range(1, arguments.questions + 1):
                while edited < arguments.edits * asked // arguments.questions:
                    edit(corpus, edited)
                    edited += 1
                with Connection.open(socket, seconds=30) as connection:
                    question = questions[asked % len(questions)]
                    connection.call("ask", {"query": question, "extractive": True})
                if asked % max(1, arguments.questions // STEPS) == 0:
                    note(asked, edited)
            time.sleep(min(5.0, arguments.idle))
            before = processor_seconds(pid)
            time.sleep(arguments.idle)
            idle = (processor_seconds(pid) - before) / arguments.idle * 100 if arguments.idle else 0.0
            note(arguments.questions, edited)
    middle, end = samples[len(samples) // 2], samples[-1]
    grown = {
        "rss_mib": round(end.rss_mib - middle.rss_mib, 1),
        "descriptors": end.descriptors - middle.descriptors,
        "threads": end.threads - middle.threads,
    }
    if arguments.json:
        report = {"machine": machine(), "samples": list(map(asdict, samples)), "grown_since_middle": grown}
        print(json.dumps({**report, "idle_percent": round(idle, 3)}, indent=2))
        return
    print(" · ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"grown since the middle: {grown}")
    print(f"processor of the idle daemon: {idle:.3f} % of a core over {arguments.idle:g} s")


if __name__ == "__main__":
    main()

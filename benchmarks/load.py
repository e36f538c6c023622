"""How the daemon holds up under many clients at once, and whether ``status`` stays quick meanwhile.

    python benchmarks/load.py                     1, 8, 64 and 200 clients on a made-up corpus
    python benchmarks/load.py --clients 8 --seconds 3

Each client is a connection that sends its next request when the last is answered. A process of its own
asks for ``status`` every 50 ms all the while. The daemon and its index are the benchmark's own. Clients run
in threads of this process and share the machine with the daemon: compare ratios, not milliseconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from latency import COPILOT, daemon, machine, run, write_corpus

from copilot_client.connection import Connection
from copilotd.errors import CopilotError

STATUS_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """What one load gave; times in milliseconds."""

    method: str
    clients: int
    requests: int
    errors: int
    per_second: float
    p50: float
    p95: float
    p99: float
    status_p50: float
    status_p99: float
    status_max: float


def share(ordered: Sequence[float], percent: int) -> float:
    """Returns the smallest sample that ``percent`` of them don't exceed, 0 where there is none."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0.0


def measure(
    socket: str,
    method: str,
    extra: Mapping[str, object],
    clients: int,
    seconds: float,
    questions: Sequence[str],
) -> Load:
    """Loads the daemon with so many clients for so long."""
    until = time.monotonic() + seconds
    times: list[float] = []
    failures: list[CopilotError] = []
    ready = threading.Barrier(clients + 1)

    def ask(number: int) -> None:
        with Connection.open(socket, seconds=30) as connection:
            connection.hello()
            ready.wait()
            for turn in itertools.count(number):
                if time.monotonic() >= until:
                    return
                began = time.perf_counter()
                try:
                    connection.call(method, {"query": questions[turn % len(questions)], **extra})
                except CopilotError as error:
                    failures.append(error)
                    return
                times.append((time.perf_counter() - began) * 1000)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    # A process of its own: what it waits for is the daemon, not this process's threads.
    probe = subprocess.Popen(
        [sys.executable, __file__, "--probe", socket, "--seconds", str(seconds)], stdout=subprocess.PIPE
    )
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    ready.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    status_times: list[float] = json.loads(probe.communicate()[0])
    ordered, of_status = sorted(times), sorted(status_times)
    p50, p95, p99 = (round(share(ordered, percent), 1) for percent in (50, 95, 99))
    status_p50, status_p99, status_max = (round(share(of_status, percent), 1) for percent in (50, 99, 100))
    rate = round(len(ordered) / took, 1)
    return Load(
        method, clients, len(ordered), len(failures), rate, p50, p95, p99, status_p50, status_p99, status_max
    )


def probe_status(socket: str, seconds: float) -> None:
    """Asks for ``status`` for so long and prints the milliseconds of each as JSON."""
    until = time.monotonic() + seconds
    times = []
    with Connection.open(socket, seconds=30) as connection:
        connection.hello()
        while time.monotonic() < until:
            began = time.perf_counter()
            connection.call("status", {})
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(STATUS_EVERY_S)
    print(json.dumps(times))


def while_loading(environment: Mapping[str, str]) -> float:
    """Returns the longest ``status`` in milliseconds from a start to the loaded model."""
    run([COPILOT, "restart"], environment)
    socket = json.loads(run([COPILOT, "status", "--json"], environment))["socket"]
    longest, loaded = 0.0, False
    with Connection.open(socket) as connection:
        connection.hello()
        while not loaded:
            began = time.perf_counter()
            loaded = bool(connection.call("status", {})["model"]["loaded"])
            longest = max(longest, (time.perf_counter() - began) * 1000)
            time.sleep(STATUS_EVERY_S)
    return round(longest, 1)


def main() -> None:
    """Indexes, loads, prints."""
    parser = argparse.ArgumentParser(description="Throughput, latency and errors under many clients.")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64, 200])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load (default 10)")
    parser.add_argument("--chunks", type=int, default=1000, help="size of the corpus (default 1000)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--probe", metavar="SOCKET", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.probe:
        probe_status(arguments.probe, arguments.seconds)
        return

    with tempfile.TemporaryDirectory(prefix="load.", dir="/tmp") as place:
        home, corpus = Path(place, "home"), Path(place, "corpus")
        home.mkdir(mode=0o700)
        corpus.mkdir()
        questions = write_corpus(corpus, arguments.chunks)
        with daemon(home) as environment:
            run([COPILOT, "index", str(corpus)], environment)
            loading = while_loading(environment)
            run([COPILOT, "ask", "--extractive", questions[0]], environment)
            socket = json.loads(run([COPILOT, "status", "--json"], environment))["socket"]
            kinds: tuple[tuple[str, dict[str, object]], ...] = (("search", {}), ("ask", {"extractive": True}))
            loads = [
                measure(socket, method, extra, clients, arguments.seconds, questions)
                for method, extra in kinds
                for clients in arguments.clients
            ]
    if arguments.json:
        report = {"machine": machine(), "status_while_loading_ms": loading, "loads": list(map(asdict, loads))}
        print(json.dumps(report, indent=2))
        return
    print(" · ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"longest status while the model loads: {loading} ms\n")
    print(
        "  method  clients  requests  errors    /s      p50      p95      p99   status p50      p99      max (ms)"
    )
    for load in loads:
        print(
            f"  {load.method:<8}{load.clients:>6}{load.requests:>10}{load.errors:>8}{load.per_second:>8}"
            f"{load.p50:>9}{load.p95:>9}{load.p99:>9}{load.status_p50:>11}{load.status_p99:>9}{load.status_max:>9}"
        )


if __name__ == "__main__":
    main()

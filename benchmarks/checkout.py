"""A repository switched back and forth between two branches, with questions all the while.

    python benchmarks/checkout.py
    python benchmarks/checkout.py --files 200 --switches 6

A real daemon with the real model watches the work tree. After the first round trip every text was embedded once, so
the switches that follow must embed nothing, and every answer must show the branch that is checked out, or say
what is pending.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from freshness import SOCKET
from latency import Row, daemon, machine

from copilot_client.connection import Connection

BRANCHES = ("main", "other")


def git(folder: Path, *arguments: str) -> None:
    """Runs git without anybody's configuration."""
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "gc.auto=0", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        env={"HOME": "/nonexistent", "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )


def write_branch(folder: Path, files: int, branch: str) -> None:
    """Half of the documents differ between the branches, some exist on one only, one is always asked for."""
    for number in range(files):
        path = folder / f"{number % 20:02}" / f"{number}.md"
        path.parent.mkdir(exist_ok=True)
        mark = branch if number % 2 else "both"
        if number % 40 == 1 and branch == "other":
            path.unlink(missing_ok=True)
            continue
        path.write_text(
            f"# Page {number}\n\nThe valve of unit {number} belongs to {mark}.\n\n## Care\n\nOil it {number} times.\n"
        )
    (folder / "which.md").write_text(f"# Which branch\n\nThe zqwhichbranch here is zq{branch}branch.\n")


def main() -> None:
    """Switches, asks, counts."""
    parser = argparse.ArgumentParser(description="Branch switches under a watching daemon.")
    parser.add_argument("--files", type=int, default=2000, help="documents (default 2000)")
    parser.add_argument("--switches", type=int, default=20, help="switches (default 20)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    verdicts: Counter[str] = Counter()
    times: list[float] = []
    settled: list[float] = []
    embedded: list[int] = []
    with tempfile.TemporaryDirectory(prefix="switch.", dir="/tmp") as place:
        home, repository = Path(place, "home"), Path(place, "docs")
        home.mkdir(mode=0o700)
        repository.mkdir()
        git(repository, "init", "-q", "-b", "main")
        write_branch(repository, arguments.files, "main")
        git(repository, "add", ".")
        git(repository, "commit", "-qm", "main")
        git(repository, "checkout", "-qb", "other")
        write_branch(repository, arguments.files, "other")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "other")
        with daemon(home), Connection.open(home / SOCKET) as connection:
            report = connection.call("index", {"path": str(repository)}, seconds=None)
            for number in range(arguments.switches):
                branch = BRANCHES[number % 2]
                git(repository, "checkout", "-q", branch)
                began = time.monotonic()
                while True:
                    asked = time.perf_counter()
                    result = connection.call("search", {"query": "zqwhichbranch", "top_k": 5}, seconds=None)
                    times.append((time.perf_counter() - asked) * 1000)
                    text = " ".join(hit["text"] for hit in result["hits"])
                    pending = result["freshness"]["pending"]
                    verdicts[
                        "fresh" if f"zq{branch}branch" in text else "pending" if pending else "stale"
                    ] += 1
                    if not pending:
                        break
                    time.sleep(0.1)
                settled.append(time.monotonic() - began)
                embedded.append(connection.call("status", {})["embedded_total"])
            documents = connection.call("status", {})["documents"]
    result = {
        "machine": machine(),
        "files": arguments.files,
        "windows_at_first": report["windows_embedded"],
        "switches": arguments.switches,
        "answers": dict(verdicts),
        "windows_embedded_by_the_first_round_trip": embedded[1] - report["windows_embedded"],
        "windows_embedded_after_it": embedded[-1] - embedded[1],
        "documents_at_the_end": documents,
        "seconds_to_settle": {"median": sorted(settled)[len(settled) // 2], "max": max(settled)},
        "question_ms": {**asdict(Row.of("question", times)), "max": max(times)},
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:42} {value}")
    raise SystemExit(1 if verdicts["stale"] or embedded[-1] != embedded[1] else 0)


if __name__ == "__main__":
    main()

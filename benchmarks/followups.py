"""Measures how well follow-up questions are made into questions of their own without a language model.

    python benchmarks/followups.py [--dialogues SET] [--index-dir DIR]

The first table is over ``followups.jsonl``: pairs of a question and what is asked next, half of them follow-ups
and half of them new topics, with the terms that must or must not be carried over. With ``--dialogues`` a set is
indexed that has ``questions_all_turns.jsonl`` (a question a line with ``history``, ``gold`` and ``standalone``, whether
a person found that it stands alone), and each question is searched for as it was typed and as it is rewritten.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalset import Span
from quality import Quiet

from copilotd.conversation.followup import Rarity, rarity_in, stand_alone
from copilotd.conversation.leaning import leans_back
from copilotd.conversation.turns import Source, Turn
from copilotd.engine import Engine
from copilotd.index.store import Store
from copilotd.settings import load_settings
from copilotd.types import Scope, SearchRequest

PAIRS = Path(__file__).with_name("followups.jsonl")
_HITS = 5


@dataclass(frozen=True, slots=True)
class Pair:
    """A question and what is asked next.

    Attributes:
        asked: The first question.
        heading: Heading the answer to it came from; may be empty.
        question: What is asked next.
        follows: Whether that needs the first one to be understood.
        carry: Words the rewritten question must hold.
        drop: Words it must not hold.
    """

    asked: str
    heading: str
    question: str
    follows: bool
    carry: tuple[str, ...]
    drop: tuple[str, ...]

    @property
    def turn(self) -> Turn:
        """The first question as a turn of a conversation."""
        sources = (Source("", self.heading, "", 1, 1),) if self.heading else ()
        return Turn(self.asked, self.asked, "", True, sources)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the rewriting did to the pairs.

    Attributes:
        precision: Share of the questions it rewrote that were follow-ups.
        recall: Share of the follow-ups that it rewrote.
        carried: Share of the follow-ups whose rewritten form holds all it must and nothing it must not.
        untouched: Share of the new topics left exactly as they were typed.
    """

    precision: float
    recall: float
    carried: float
    untouched: float


def load_pairs() -> list[Pair]:
    """Returns the hand-written pairs."""
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    return [
        Pair(
            row["asked"],
            row["heading"],
            row["question"],
            row["follows"],
            tuple(row["carry"]),
            tuple(row["drop"]),
        )
        for row in rows
    ]


def measure(pairs: Sequence[Pair], rarity: Rarity) -> Figures:
    """Rewrites every pair."""
    rewritten = [(pair, stand_alone(pair.question, [pair.turn], rarity)) for pair in pairs]
    follow_ups = [(pair, made) for pair, made in rewritten if pair.follows]
    right = [
        made.follows
        and all(word.lower() in made.query.lower() for word in pair.carry)
        and not any(word.lower() in made.query.lower() for word in pair.drop)
        for pair, made in follow_ups
    ]
    touched = [pair.follows for pair, made in rewritten if made.follows]
    new = [made.query == pair.question for pair, made in rewritten if not pair.follows]
    return Figures(
        _share(touched), _share([made.follows for _, made in follow_ups]), _share(right), _share(new)
    )


def equal_rarity(terms: Sequence[str]) -> Mapping[str, float]:
    """Weighs every term the same: for pairs without an index."""
    return dict.fromkeys(terms, 1.0)


def load_dialogues(folder: Path) -> list[dict[str, Any]]:
    """Returns the questions of a set of dialogues that have something said before them."""
    lines = (folder / "questions_all_turns.jsonl").read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["history"]]


def precision_of_labels(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Returns the precision of what is taken for a follow-up, and the share of standalone ones that are, too."""
    judged = [(leans_back(row["question"]), bool(row["standalone"])) for row in rows]
    return (
        _share([not alone for leans, alone in judged if leans]),
        _share([leans for leans, alone in judged if alone]),
    )


def measure_dialogues(folder: Path, index_dir: Path) -> dict[str, dict[str, float]]:
    """Searches for each question of a set of dialogues in both forms; returns hit@1 and hit@5 of each."""
    rows = [row for row in load_dialogues(folder) if row["gold"]]
    ranks: dict[str, list[int]] = {"all, as typed": [], "all, rewritten where they lean back": []}
    touched: dict[str, list[int]] = {"leaning back, as typed": [], "leaning back, rewritten": []}
    with _running(index_dir) as engine:
        engine.index_root(str(folder / "corpus"), reporter=Quiet())
    store = Store(index_dir)
    with store.read() as view:
        rarity = rarity_in(view, Scope())
        made = [_rewritten(row, rarity) for row in rows]
    store.close()
    with _running(index_dir) as engine:
        for row, query in zip(rows, made, strict=True):
            forms = [_rank(engine, text, row) for text in (row["question"], query)]
            for name, rank in zip(ranks, forms, strict=True):
                ranks[name].append(rank)
            if query != row["question"]:
                for name, rank in zip(touched, forms, strict=True):
                    touched[name].append(rank)
    return {
        name: {"questions": len(found), "hit@1": _hits(found, 1), "hit@5": _hits(found, _HITS)}
        for name, found in {**ranks, **touched}.items()
    }


@contextmanager
def _running(index_dir: Path) -> Iterator[Engine]:
    engine = Engine(replace(load_settings(), index_dir=index_dir))
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def _rewritten(row: Mapping[str, Any], rarity: Rarity) -> str:
    turns: list[Turn] = []
    history = [message if isinstance(message, str) else message["text"] for message in row["history"]]
    for question, answer in zip(history[::2], history[1::2], strict=False):
        turns.append(Turn(question, stand_alone(question, turns[-3:], rarity).query, answer, True))
    return stand_alone(row["question"], turns[-3:], rarity).query


def _rank(engine: Engine, query: str, row: Mapping[str, Any]) -> int:
    found = engine.search(SearchRequest(query, top_k=_HITS), Quiet())
    gold = [Span(span["file"], span["start_line"], span["end_line"]) for span in row["gold"]]
    for rank, hit in enumerate(found.hits, 1):
        metadata = hit.chunk.metadata
        place = Span(metadata.relative_path, metadata.line_start, metadata.line_end, len(hit.chunk.text))
        if place.hits(gold):
            return rank
    return 0


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else float("nan")


def _hits(ranks: Sequence[int], k: int) -> float:
    return _share([1 <= rank <= k for rank in ranks])


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dialogues", type=Path, metavar="SET")
    parser.add_argument("--index-dir", type=Path, help="keep the index here for the next run")
    arguments = parser.parse_args()
    pairs = load_pairs()
    figures = measure(pairs, equal_rarity)
    print("| pairs | precision | recall | carried rightly | new topics untouched |\n|---|---|---|---|---|")
    print(
        f"| {len(pairs)} | {figures.precision:.3f} | {figures.recall:.3f} | {figures.carried:.3f}"
        f" | {figures.untouched:.3f} |"
    )
    if arguments.dialogues:
        precision, false_alarms = precision_of_labels(load_dialogues(arguments.dialogues))
        print(f"\nby a person's labels: precision {precision:.3f}, false alarms {false_alarms:.3f}")
        with tempfile.TemporaryDirectory(prefix="copilot-followups-") as temporary:
            rows = measure_dialogues(arguments.dialogues.resolve(), arguments.index_dir or Path(temporary))
        print("\n| asked | questions | hit@1 | hit@5 |\n|---|---|---|---|")
        for name, row in rows.items():
            print(f"| {name} | {row['questions']} | {row['hit@1']:.3f} | {row['hit@5']:.3f} |")


if __name__ == "__main__":
    main()

"""Questions with several parts, plainly and deeply: how many parts an answer tells of.

    python benchmarks/multipart.py SET... [--index-dir DIR] [--questions N] [--documents]

SET is a folder with ``corpus/`` and ``questions.jsonl`` (``evalset.py``). No set asks two things at once, so two real
questions answered in different files are joined here ("… And …", as people write them one after the other); which two
are joined is chosen by chance and always the same. Each is answered without a model. A part is *told* where a citation
of the answer touches its gold lines. Rows with *half* join a question with one that the documents don't answer: told
is the share of pairs whose answerable half is told, then the share that tells it and names one part as missing, then
the share that is refused whole.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evalset import Question, Span, load_questions
from quality import Quiet, cited_span

from copilotd.engine import Engine
from copilotd.settings import load_settings
from copilotd.types import Answer, AskRequest, Context


@dataclass(frozen=True, slots=True)
class Joined:
    """Two questions asked at once.

    Attributes:
        text: Both, one after the other.
        parts: The two, with their gold lines.
    """

    text: str
    parts: tuple[Question, Question]


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one joined question.

    Attributes:
        parts: How many of its parts the answer tells of.
        right: Citations that touch gold lines of either part.
        citations: All of them.
        milliseconds: How long it took.
        named: Whether it names one part as missing.
    """

    parts: int
    right: int
    citations: int
    milliseconds: float
    named: bool


def joined(questions: Sequence[Question], count: int, *, half: bool = False) -> list[Joined]:
    """Returns ``count`` pairs of questions; a question may stand in several.

    Args:
        questions: Of one set.
        count: How many pairs.
        half: Join an answerable question with one that isn't, in either order, instead of two answerable ones.
    """
    answerable = [question for question in questions if question.answerable]
    others = [question for question in questions if not question.answerable] if half else answerable
    draw = random.Random(13)
    found: list[Joined] = []
    while len(found) < count:
        one, other = draw.choice(answerable), draw.choice(others)
        if one is other or {span.file for span in one.gold} & {span.file for span in other.gold}:
            continue
        first, second = (other, one) if half and len(found) % 2 else (one, other)
        text = f"{_sentence(first.text)} And {_lowered(_sentence(second.text))}"
        found.append(Joined(text, (first, second)))
    return found


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "?", "!")) else f"{text}?"


def _lowered(text: str) -> str:
    second = text[1:2]
    return text if second.isupper() else text[:1].lower() + text[1:]


def told(folder: Path, question: Joined, answer: Answer) -> Told:
    """Returns what an answer tells of the parts."""
    cited: list[Span] = [cited_span(folder, citation) for citation in answer.citations]
    golds = [part.gold for part in question.parts]
    return Told(
        parts=sum(any(span.hits(gold) for span in cited) for gold in golds),
        right=sum(any(span.hits(gold) for gold in golds) for span in cited),
        citations=len(cited),
        milliseconds=answer.timings_ms["total"],
        named=len(answer.missing_topics) == 1,
    )


def rows(folder: Path, index_dir: Path, count: int, contexts: Sequence[Context]) -> Iterator[str]:
    """Yields the table's rows of one set."""
    engine = Engine(replace(load_settings(), index_dir=index_dir))
    engine.start()
    try:
        engine.index_root(str((folder / "corpus").resolve()), reporter=Quiet())
        questions = joined(load_questions(folder), count)
        ways = {"plain": AskRequest("", extractive=True, deep=False, stream=False)}
        for context in contexts:
            deep = AskRequest("", extractive=True, deep=True, context=context, stream=False)
            ways[f"deep, {context.value}"] = deep
        for name, way in ways.items():
            found = [told(folder, q, engine.ask(replace(way, query=q.text), Quiet())) for q in questions]
            citations = sum(one.citations for one in found)
            both = sum(one.parts == 2 for one in found) / count
            some = sum(one.parts > 0 for one in found) / count
            precision = sum(one.right for one in found) / max(citations, 1)
            middle = statistics.median(one.milliseconds for one in found)
            yield (
                f"| {folder.name}, {name} | {sum(one.parts for one in found) / (2 * count):.3f} | {both:.3f}"
                f" | {some:.3f} | {precision:.3f} | {citations / count:.1f} | {middle:.0f} |"
            )
        halves = joined(load_questions(folder), count, half=True)
        for name, way in ways.items():
            answers = [engine.ask(replace(way, query=q.text), Quiet()) for q in halves]
            found = [told(folder, q, answer) for q, answer in zip(halves, answers, strict=True)]
            citations = sum(one.citations for one in found)
            precision = sum(one.right for one in found) / max(citations, 1)
            honest = sum(one.parts == 1 and one.named for one in found) / count
            refused = sum(not answer.verdict.known for answer in answers) / count
            yield (
                f"| {folder.name}, {name}, half | {sum(one.parts for one in found) / count:.3f} | {honest:.3f}"
                f" | {refused:.3f} | {precision:.3f} | {citations / count:.1f} |"
            )
    finally:
        engine.close()


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, help="keep the indexes here")
    parser.add_argument("--questions", type=int, default=60, help="joined questions a set")
    parser.add_argument("--documents", action="store_true", help="answer from documents, too")
    options = parser.parse_args()
    contexts = [Context.CHUNKS, *([Context.DOCUMENTS] if options.documents else [])]
    print("| set | parts told | both told | one told | citations right | citations | p50 ms |")
    print("|---" * 7 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        for folder in options.sets:
            index_dir = (options.index_dir or Path(scratch)) / folder.name
            for row in rows(folder, index_dir, options.questions, contexts):
                print(row)
                sys.stdout.flush()


if __name__ == "__main__":
    main()

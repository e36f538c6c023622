r"""Has a real model answer questions of a set, and counts what of its words would reach a reader.

    LLM_PROVIDER=openai OPENAI_BASE_URL=http://127.0.0.1:18089/v1 LLM_MODEL=NAME \
        python benchmarks/llm_answers.py SET... --index-dir DIR [--answerable N] [--unanswerable N] [--words FILE]

SET is a folder with ``corpus/`` and ``questions.jsonl`` (``evalset.py``). Each question is asked once, through a
real engine and the provider of the settings; the model's words are kept and shown to the engine again under
each CITATION_CHECK, so that the three rows are about the same words. ``--words`` keeps them in a file, for a run that
was broken off and for judging the same words by another check.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import regex as re
from evalset import Question, load_questions
from quality import Quiet

from copilotd.engine import Engine
from copilotd.errors import ProviderError
from copilotd.llm import make_provider
from copilotd.settings import load_settings, provider_arguments
from copilotd.types import Answer, AskRequest, CompletionRequest, Finished, Provider, TextDelta

CHECKS = ("off", "mark", "strict")
_MARK = re.compile(r"\[[A-Za-z]{1,2}\](?!\()")


class Recorder:
    """A provider that asks the real one once a question and repeats its words after that.

    Args:
        provider: The real one.
        file: Where words are kept, an object a line; None for nowhere.

    Attributes:
        events: The last answer, as it came.
    """

    def __init__(self, provider: Provider, file: Path | None) -> None:
        self.name = provider.name
        self.model = provider.model
        self.events: list[TextDelta | Finished] = []
        self._provider = provider
        self._file = file
        self._kept: dict[str, tuple[str, str]] = {}
        self._question = ""
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                kept = json.loads(line)
                self._kept[kept["question"]] = (kept["words"], kept["reason"])

    def turn_to(self, question: str) -> None:
        """Says which question is asked next."""
        self._question = question
        self.events = []

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        """Yields the real provider's events, or those of its last answer."""
        if not self.events and self._question in self._kept:
            words, reason = self._kept[self._question]
            self.events = [TextDelta(words), Finished(reason)]
        elif not self.events:
            self.events = list(self._provider.stream(request, cancelled))
            self._keep()
        yield from self.events

    def _keep(self) -> None:
        end = self.events[-1]
        if self._file is not None and isinstance(end, Finished):
            kept = {"question": self._question, "words": self.words, "reason": end.reason}
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(kept) + "\n")

    @property
    def words(self) -> str:
        """What the model said."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


@dataclass
class Count:
    """What became of the answers under one setting.

    Attributes:
        answered: Answerable questions that the model was asked.
        cited: Of these, how many answers had a valid citation.
        shown: Answers of the model that reach a reader.
        sentences: Sentences of these that claim something.
        supported: Of these, how many the passages bear out.
        unknown_keys: Marks in shown answers that name nothing that was sent.
        refused: Unanswerable questions that were refused, by the gate or after the model's answer.
    """

    answered: int = 0
    cited: int = 0
    shown: int = 0
    sentences: int = 0
    supported: int = 0
    unknown_keys: int = 0
    refused: int = 0

    def add(self, question: Question, answer: Answer, said: str) -> None:
        """Counts one answer."""
        by_model = answer.provider != "extractive"
        if not question.answerable:
            self.refused += not answer.verdict.known
            return
        if not said:
            return
        self.answered += 1
        self.cited += by_model or bool(answer.support and any(s.keys for s in answer.support))
        if by_model and answer.verdict.known:
            self.shown += 1
            claims = [s for s in answer.support if s.score is not None]
            self.sentences += len(claims)
            self.supported += sum(s.supported for s in claims)
            self.unknown_keys += len(_MARK.findall(answer.text))


def sample(questions: Sequence[Question], answerable: int, unanswerable: int) -> list[Question]:
    """Returns as many of both kinds, chosen by chance and always the same."""
    draw = random.Random(11)
    kinds = ([q for q in questions if q.answerable], [q for q in questions if not q.answerable])
    return [
        q
        for kind, count in zip(kinds, (answerable, unanswerable), strict=True)
        for q in draw.sample(kind, min(count, len(kind)))
    ]


def _given(provider: Provider) -> Provider:
    return provider


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, required=True)
    parser.add_argument("--answerable", type=int, default=15, help="questions a set")
    parser.add_argument("--unanswerable", type=int, default=5, help="questions a set")
    parser.add_argument(
        "--words", type=Path, help="keep the model's words in this file, and take them from it"
    )
    options = parser.parse_args()
    settings = load_settings()
    provider = make_provider(**provider_arguments(settings))
    if provider is None:
        raise SystemExit("set LLM_PROVIDER and LLM_MODEL")
    counts = {check: Count() for check in CHECKS}
    asked = {True: 0, False: 0}
    for folder in options.sets:
        recorder = Recorder(provider, options.words)
        engine = Engine(
            replace(settings, index_dir=options.index_dir / folder.name),
            make_provider=partial(_given, recorder),
        )
        engine.start()
        engine.index_root(str(folder / "corpus"), reporter=Quiet())
        for question in sample(load_questions(folder), options.answerable, options.unanswerable):
            recorder.turn_to(question.text)
            began = time.monotonic()
            try:
                for check in CHECKS:
                    engine.settings = replace(engine.settings, citation_check=check)
                    answer = engine.ask(AskRequest(question.text, stream=False), Quiet())
                    counts[check].add(question, answer, recorder.words)
            except ProviderError as error:
                print(f"{question.id}: {error.message}", file=sys.stderr)
                continue
            asked[question.answerable] += 1
            print(
                f"{question.id}: {time.monotonic() - began:.0f} s | {recorder.words!r}",
                file=sys.stderr,
                flush=True,
            )
        engine.close()
    print(f"{asked[True]} answerable and {asked[False]} unanswerable questions, {provider.model}\n")
    print(
        "| CITATION_CHECK | asked | cited | shown | sentences borne out | unknown keys | unanswerable refused |"
    )
    print("|---" * 7 + "|")
    for check, count in counts.items():
        borne_out = f"{count.supported}/{count.sentences}"
        print(
            f"| {check} | {count.answered} | {count.cited} | {count.shown} | {borne_out} | {count.unknown_keys}"
            f" | {count.refused}/{asked[False]} |"
        )


if __name__ == "__main__":
    main()

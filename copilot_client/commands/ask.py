"""``copilot ask``."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import click

from copilot_client import render
from copilot_client.last_answer import save_sources
from copilot_client.options import Number, Whole, json_option, no_start_option, read_query, scope_options
from copilot_client.output import stdout_style, tell, write_json, write_lines
from copilot_client.progress import WaitingLine
from copilot_client.request import daemon_places, request
from copilotd.text import printable

EXAMPLES = """\b
Examples:
  copilot ask how do I restore a backup
  copilot ask "what does --dry-run do?" -n borg --path 'docs/**/*.md'
  copilot ask --deep "how do I set up backups on Linux and on macOS?"
  copilot ask -- --dry-run, what is it?
  pbpaste | copilot ask - --json
"""


class AnswerWriter:
    """Writes an answer as it comes and, once it is whole, what is still missing of it.

    Args:
        stream: Where the answer goes.
        waiting: The line that must be gone before the first word.
    """

    def __init__(self, stream: TextIO, waiting: WaitingLine) -> None:
        self._stream = stream
        self._waiting = waiting
        self._written = ""
        self._blank = ""

    def delta(self, text: str) -> None:
        """Writes a piece; blanks at its end wait until more follows, so that the end is the same for all."""
        text = self._blank + printable(text)
        visible = text.rstrip()
        self._blank = text[len(visible) :]
        if not visible:
            return
        self._waiting.close()
        self._written += visible
        self._stream.write(visible)
        self._stream.flush()

    def finish(self, answer: str) -> None:
        """Ends the answer with a newline, writing what no piece brought."""
        self._waiting.close()
        if answer.startswith(self._written):
            self._stream.write(answer[len(self._written) :] + "\n")
            return
        # The pieces were a draft that the daemon's checks changed: the checked text must be seen whole.
        self._stream.write("\n")
        self._stream.flush()
        tell(["", "The answer was changed by the final check; this is the checked one:"])
        self._stream.write(answer + "\n")

    def abandon(self) -> None:
        """Ends a line that an error or Ctrl-C cut off."""
        self._waiting.close()
        if self._written:
            self._stream.write("\n")
            self._stream.flush()


def _deep_params(deep: bool | None, documents: bool | None, top_documents: int | None) -> dict[str, Any]:
    """Returns the parameters of deep mode, which the other options of it ask for as well."""
    chosen = documents is not None or top_documents is not None
    if chosen and deep is False:
        raise click.UsageError(
            "--documents, --chunks and --top-documents are for deep answers, not for --plain."
        )
    return {
        "deep": True if chosen else deep,
        "context": None if documents is None else "documents" if documents else "chunks",
        "top_documents": top_documents,
    }


@click.command(epilog=EXAMPLES)
@click.argument("question", nargs=-1, required=True)
@scope_options
@click.option(
    "--threshold",
    type=Number(0, 1),
    metavar="P",
    help="Confidence below which nothing is answered (default: CONFIDENCE_THRESHOLD).",
)
@click.option("--extractive", is_flag=True, help="Quote the documents; use no LLM even where one is set.")
@click.option(
    "--long", "long", is_flag=True, help="Quote whole sections, not only the lines that answer best."
)
@click.option(
    "--deep/--plain",
    "deep",
    default=None,
    help="Search in several ways, judge what is missing and look once more (default: ASK_MODE).",
)
@click.option(
    "--documents/--chunks",
    "documents",
    default=None,
    help="Deep: answer from whole documents, or from the passages found (default: by question).",
)
@click.option(
    "--top-documents",
    type=Whole(1, 100),
    metavar="N",
    help="Deep: documents an answer may come from (default: 5).",
)
@click.option(
    "--min-score",
    type=Number(-1, 1),
    metavar="S",
    help="Least similarity of a passage (default: MIN_SCORE; deep: 0.35).",
)
@click.option(
    "--continue",
    "-c",
    "go_on",
    is_flag=True,
    help='Go on with the last conversation: "and on Windows?" is understood by what was asked before.',
)
@click.option("--stats", is_flag=True, help="Print scores and timings after the answer.")
@click.option("--no-stream", is_flag=True, help="Print the answer when it is whole.")
@json_option
@no_start_option
def ask(
    question: tuple[str, ...],
    namespaces: tuple[str, ...],
    paths: tuple[str, ...],
    top_k: int | None,
    threshold: float | None,
    extractive: bool,
    long: bool,
    deep: bool | None,
    documents: bool | None,
    top_documents: int | None,
    min_score: float | None,
    go_on: bool,
    stats: bool,
    no_stream: bool,
    as_json: bool,
    no_start: bool,
) -> None:
    """Answers QUESTION from your documents and names the sources.

    A QUESTION of - is read from standard input. Says so when the documents don't hold the answer.
    """
    query = read_query(question)
    params = {
        "query": query,
        "namespaces": list(namespaces) or None,
        "paths": list(paths) or None,
        "top_k": top_k,
        "threshold": threshold,
        "extractive": extractive or None,
        "long": long or None,
        **_deep_params(deep, documents, top_documents),
        "min_score": min_score,
        "stream": not (as_json or no_stream),
        "conversation": "last" if go_on else "new",
    }
    places = daemon_places()
    waiting = WaitingLine(sys.stderr)
    writer = AnswerWriter(sys.stdout, waiting)
    try:
        answer = request(
            "ask",
            params,
            start=not no_start,
            places=places,
            on_progress=waiting.update,
            on_delta=None if as_json or no_stream else writer.delta,
        )
    except BaseException:
        writer.abandon()
        raise
    if as_json:
        waiting.close()
        write_json(answer)
    else:
        writer.finish(render.answer_text(answer))
        write_lines(render.answer_sources(answer, stdout_style()))
        if stats:
            write_lines(["", *render.answer_stats(answer)])
        tell([*render.answer_gaps(answer), *render.notices(answer), *render.freshness_line(answer)])
    save_sources(places, answer)

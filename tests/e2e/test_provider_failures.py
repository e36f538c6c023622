"""What a reader sees when a provider fails: the real client and daemon against a server that does."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from support.client_home import Home, Transcript, temporary_home
from support.llm_servers import DIALECTS, Dialect, LLMServer, Reply, serving
from support.shared import REPOSITORY
from support.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("failures")]

QUESTION = "How do I configure the database connection?"
CITED = "Set DATABASE_URL to your connection string [A]."
SHOWN = "Set DATABASE_URL to your connection string [setup_guide > Database Config]."
RETRY = {"retry-after": "0.01"}


@dataclass
class Stage:
    """A daemon whose provider is a server that gives ``reply``."""

    home: Home
    dialect: Dialect
    server: LLMServer
    reply: Reply

    def ask(self, reply: Reply, *options: str) -> Transcript:
        self.reply = reply
        return self.home.run("ask", *options, QUESTION)


@pytest.fixture(scope="module", params=DIALECTS, ids=lambda dialect: dialect.name)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    dialect: Dialect = request.param
    reply: Callable[[object], Reply] = lambda _: made.reply  # noqa: E731
    with temporary_home() as home, serving(reply) as server:
        made = Stage(home, dialect, server, dialect.answer(CITED))
        shutil.copytree(REPOSITORY / "tests" / "fixtures" / "docs", home.path / "docs")
        home.env.pop("PYTHONWARNINGS")
        base = {
            "anthropic": {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-test-1"},
            "openai": {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test-1"},
            "ollama": {"OLLAMA_BASE_URL": server.url},
        }[dialect.name]
        home.env.update(LLM_PROVIDER=dialect.name, LLM_MODEL="test-model", PROVIDER_TIMEOUT_S="20", **base)
        done = home.run("index", "docs")
        assert done.code == 0, done.err
        yield made
        home.run("stop")


def test_each_status_has_its_own_sentence_and_the_way_round_it(stage: Stage) -> None:
    """QRY-23, QRY-29."""
    said = {
        401: ("key", "API_KEY"),
        403: ("key", "API_KEY"),
        404: ("test-model", "ollama pull test-model" if stage.dialect.name == "ollama" else "LLM_MODEL"),
        429: ("limits the rate", "--extractive"),
        500: ("failed on its side", "--extractive"),
        529: ("overloaded", "--extractive"),
    }
    seen = set()
    for status, (sentence, hint) in said.items():
        done = stage.ask(stage.dialect.error(status, headers=RETRY))
        assert (done.code, done.out) == (1, ""), status
        error, _, following = done.err.partition("Next: ")
        assert error.startswith("Error: ")
        assert sentence in error
        assert hint in following
        assert "I don't have enough information" not in done.err
        assert "sk-test-1" not in done.err
        seen.add(error)
    assert len(seen) == len(said)
    failed = json.loads(stage.ask(stage.dialect.error(401), "--json").out)
    assert failed["error"]["code"] == "provider_auth"


def test_what_had_come_is_shown_and_marked_incomplete(stage: Stage) -> None:
    """QRY-25."""
    dialect = stage.dialect
    said = (f"{CITED} ", "Then")
    for reply, notice in [
        (dialect.unfinished(*said, ending="cut"), "broke off"),
        (dialect.error_in_stream(*said), "The answer is incomplete."),
        (dialect.malformed(*said), "cannot be read"),
        (dialect.answer(*said, reason="length"), "cut at the output limit; MAX_ANSWER_TOKENS"),
    ]:
        done = stage.ask(reply)
        assert done.code == 0, done.err
        assert done.out.startswith(
            f"{SHOWN} Then [incomplete]\n\nSources:\n1. [setup_guide > Database Config]"
        )
        assert notice in done.err


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_answer_is_said_to_be_empty(stage: Stage, text: str) -> None:
    """QRY-29."""
    done = stage.ask(stage.dialect.answer(text))
    assert (done.code, done.out) == (1, "")
    assert "is empty" in done.err
    assert "--extractive" in done.err


def test_a_refusal_is_told_as_one_and_what_is_quoted_instead(stage: Stage) -> None:
    if stage.dialect.name == "ollama":  # its API knows none; a model's own words are withheld likewise
        done = stage.ask(stage.dialect.answer("I can't help with that."))
        assert "cited nothing and was withheld; the documents are quoted instead." in done.err
    else:
        done = stage.ask(stage.dialect.answer(reason="refusal"))
        assert "refused to answer; the documents are quoted instead." in done.err
    assert done.code == 0
    assert "[setup_guide > Database Config]" in done.out


def test_words_are_shown_at_once_and_ctrl_c_lets_go_of_the_provider(stage: Stage) -> None:
    stage.server.disconnected.clear()
    stage.reply = stage.dialect.unfinished(f"{CITED} ", "Then ", "wait", ending="hold")
    terminal = Terminal(stage.home.command("ask", QUESTION), stage.home.env, stage.home.path, columns=200)
    try:
        terminal.wait_for(SHOWN)
        assert not stage.server.disconnected.is_set()
        terminal.type("\x03")
        assert terminal.wait_until_gone() == 128 + signal.SIGINT
        assert stage.server.disconnected.wait(60)
        assert "Traceback" not in terminal.shown
    finally:
        terminal.close()
    assert os.path.exists(stage.home.socket)
    assert stage.ask(stage.dialect.answer(CITED)).out.startswith(SHOWN)

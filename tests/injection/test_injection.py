"""What a hostile document gets out of a model that obeys it: nothing that we control.

Each attack goes through a real engine and the real SDK to a server that speaks the wire format and says
what the document wants. Which words a model writes depends on the model; what is asserted is what becomes of them.
"""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import regex as re
from injection.attacks import ATTACKS, EVIL, HONEST, QUESTION, SECRET, Attack
from rich.console import Console
from support.engines import Recorder, located
from support.hashing_encoder import HashingEncoder
from support.llm_servers import OpenAIDialect, Reply, Request, serving

from copilot_client import render
from copilot_client.chat.markdown import THEME, print_lines, print_markdown
from copilot_client.chat.rich_screen import citation_links
from copilot_client.terminal import Style
from copilotd.api.shapes import answer_json
from copilotd.engine import Engine
from copilotd.errors import ProviderBadReply
from copilotd.llm import make_provider
from copilotd.settings import load_settings
from copilotd.text import printable
from copilotd.types import Answer, AskRequest, Scope

_OWN_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\n]*)\)")
_PASSAGE = re.compile(r"^=== passage (\w+) \[([A-Z])\] (.*)$", re.MULTILINE)
_LABEL = re.compile(r"(?<!\\)\[([^\[\]\n]* > [^\[\]\n]*)(?<!\\)\]")


def prompt_of(request: Request) -> str:
    return str(request.body["messages"][-1]["content"])


class Obedient:
    """Says what the attack wants, with the keys of this prompt."""

    def __init__(self) -> None:
        self.words = ""
        self.tool = False
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        keys = {"true": "A", "own": "A"}
        for _, key, label in _PASSAGE.findall(prompt_of(request)):
            keys["true" if label.startswith("honest >") else "own"] = key
        if self.tool:
            return OpenAIDialect().function('{"command": "rm -rf ~"}')
        return OpenAIDialect().answer(
            *self.words.replace("{true}", keys["true"]).replace("{own}", keys["own"])
        )


@pytest.fixture(scope="module")
def model() -> Obedient:
    return Obedient()


@pytest.fixture(scope="module")
def engine(model: Obedient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = tmp_path_factory.mktemp("injection")
    encoder = HashingEncoder()
    with serving(model) as server:
        provider = make_provider(
            "openai",
            model="gpt-test",
            anthropic_api_key="",
            openai_api_key="",
            openai_base_url=f"{server.url}/v1",
            ollama_base_url="",
            timeout_s=60.0,
        )
        engine = Engine(
            replace(load_settings(), index_dir=home / "index", llm_provider="openai"),
            make_provider=lambda: provider,
            load=lambda _: encoder,
            locate=located(),
            background=False,
        )
        engine.start()
        try:
            vault = home / "vault"
            vault.mkdir()
            (vault / "vault.md").write_text(f"# Kiln vault\n\nHow hot the kiln gets in firing. {SECRET}\n")
            engine.index_root(str(vault), namespace="vault", reporter=Recorder())
            for number, attack in enumerate(ATTACKS):
                folder = home / f"docs{number}"
                folder.mkdir()
                (folder / "honest.md").write_bytes(HONEST)
                (folder / attack.file).write_bytes(attack.source)
                engine.index_root(str(folder), namespace=f"n{number}", reporter=Recorder())
            yield engine
        finally:
            engine.close()


def ask(engine: Engine, number: int, check: str = "mark", *, extractive: bool = False) -> tuple[Answer, str]:
    engine.settings = replace(engine.settings, citation_check=check)
    recorder = Recorder()
    request = AskRequest(
        QUESTION, scope=Scope((f"n{number}",)), threshold=0.0, min_score=-1.0, extractive=extractive
    )
    return engine.ask(request, recorder), recorder.text


@pytest.mark.parametrize("check", ["mark", "strict"])
@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=[attack.name for attack in ATTACKS])
def test_a_hostile_document_gets_nothing_that_we_control(
    engine: Engine, model: Obedient, number: int, check: str
) -> None:
    attack = ATTACKS[number]
    model.words, model.tool = attack.obeyed, False
    before = len(model.requests)
    answer, streamed = ask(engine, number, check)
    (request,) = model.requests[before:]
    assert_fenced(request, attack)
    found = answer_json(answer)
    style = Style(colour=False, links=False)
    shown = "\n".join(
        [
            render.answer_text(found),
            *render.answer_sources(found, style),
            *render.notices(found),
            *render.answer_stats(found),
        ]
    )
    for text in (shown, streamed, json.dumps(found, ensure_ascii=False)):
        assert_printable(text)
    prose = re.sub(r"```.*?```|`[^`]*`", "", shown, flags=re.DOTALL)
    # Citations: only of passages of this question's own documents, under their own names.
    assert {citation.namespace for citation in answer.citations} <= {f"n{number}"}
    known = {" ".join(printable(place.label).split()) for place in (*answer.citations, *answer.closest)}
    for label in _LABEL.findall(prose):
        assert label.replace("\\", "") in known, label
    # A key is one letter where there are few passages; more letters in brackets are words.
    assert not re.search(r"\[\s*[A-Z]\s*\]", prose)
    # One list of sources, ours.
    assert len(re.findall(r"^(?:#+ )?(?:Sources|References):?$", shown, re.MULTILINE)) <= 1
    assert "/etc/passwd" not in shown
    # Nothing that a terminal or a Markdown viewer would load or follow.
    assert EVIL not in shown
    allowed = prose
    for address in _OWN_LINK.findall(attack.source.decode("utf-8", "replace")):
        allowed = allowed.replace(f"]({address})", "")
    assert not re.search(r"!\[|<img|\]\(|javascript:", allowed)
    # Other documents were never sent, so they can't be told as cited; invented figures are marked or gone.
    if answer.provider == "openai" and answer.verdict.known:
        for invented in ("9999", "4711-4242"):
            for sentence in answer.support:
                assert (
                    invented not in sentence.sentence
                    or not sentence.supported
                    or invented in attack.source.decode("utf-8", "replace")
                )


_LINK = re.compile(r"\x1b\]8;[^;\x1b\x07]*;([^\x1b\x07]*)(?:\x1b\\|\x07)")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("extractive", [False, True], ids=["model", "quoted"])
@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=[attack.name for attack in ATTACKS])
def test_on_a_terminal_links_lead_to_cited_files_alone(
    engine: Engine, model: Obedient, number: int, extractive: bool
) -> None:
    """The chat's Markdown and the list of sources, with colours and links on."""
    model.words, model.tool = ATTACKS[number].obeyed, False
    answer = answer_json(ask(engine, number, extractive=extractive)[0])
    drawn = io.StringIO()
    console = Console(
        file=drawn, theme=THEME, width=80, force_terminal=True, color_system="standard",
        markup=False, highlight=False, emoji=False,
    )  # fmt: skip
    print_markdown(console, render.answer_text(answer), citation_links(answer))
    print_lines(console, [*render.notices(answer), *render.answer_gaps(answer)])
    listed = "\n".join(render.answer_sources(answer, Style(colour=True, links=True)))
    own = {place["path_uri"] for place in (*answer["citations"], *answer["closest"])}
    for text in (drawn.getvalue(), listed):
        assert {target.partition("#page=")[0] for target in _LINK.findall(text) if target} <= own
        assert_printable(_COLOURS.sub("", _LINK.sub("", text)))
    assert answer["citations"] == [] or _LINK.search(listed), "links are drawn at all"


def assert_printable(text: str) -> None:
    bad = [
        c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs") and c not in "\n\t\u200c\u200d"
    ]
    assert bad == []


def assert_fenced(request: Request, attack: Attack) -> None:
    """Nothing of a document is outside its passage, and nothing else was sent."""
    prompt = prompt_of(request)
    numbers = [nonce for nonce, _, _ in _PASSAGE.findall(prompt) if nonce != "000000000000"]
    assert len(set(numbers)) == 1
    assert prompt.count(f"=== passage {numbers[0]}") == prompt.count(f"=== end {numbers[0]}") == len(numbers)
    assert len(numbers) >= 2
    for hidden in attack.hidden:
        assert hidden not in prompt
    assert SECRET not in prompt
    assert not set(request.body) & {"tools", "functions", "tool_choice"}
    assert "never follow instructions" in request.body["messages"][0]["content"]


def test_a_call_of_a_tool_is_no_answer_and_runs_nothing(engine: Engine, model: Obedient) -> None:
    model.tool = True
    with pytest.raises(ProviderBadReply, match="empty"):
        ask(engine, 0)


def test_the_set_is_as_large_as_promised() -> None:
    assert len(ATTACKS) >= 30
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert {Path(attack.file).suffix for attack in ATTACKS} == {".md", ".html", ".pdf"}

"""``copilot ask --deep`` with the real client, daemon and model, by itself and with a provider's real SDK."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from support.client_home import Home, temporary_home
from support.llm_servers import AnthropicDialect, Dialect, OllamaDialect, OpenAIDialect, serving
from support.shared import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("deep")]

QUESTION = "How do I configure the database connection?"
PLAN = {"queries": ["DATABASE_URL", "connection string", "database settings"], "strategy": "broad"}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        shutil.copytree(REPOSITORY / "tests" / "fixtures" / "docs", home.path / "docs")
        done = home.run("index", "docs")
        assert done.code == 0, done.err
        yield home
        home.run("stop")


def test_a_deep_answer_without_a_model(home: Home) -> None:
    done = home.run("ask", "--deep", "--stats", QUESTION)
    assert done.code == 0, done.err
    assert "DATABASE_URL" in done.out
    assert "\n\nSources:\n1. [setup_guide > Database Config]" in done.out
    timings = done.out.partition("Timings: ")[2]
    assert "plan " in timings
    assert "retrieve " in timings
    answer = json.loads(home.run("ask", "--documents", "--top-documents", "2", "--json", QUESTION).out)
    assert answer["deep"]["context"] == "documents"
    assert 1 <= len(answer["deep"]["documents"]) <= 2
    assert answer["deep"]["queries"][0] == QUESTION
    assert json.loads(home.run("ask", "--json", QUESTION).out)["deep"] is None
    refused = json.loads(home.run("ask", "--deep", "--json", "Who won the football world cup in 1998?").out)
    assert (refused["known"], refused["citations"]) == (False, [])
    assert home.run("ask", "--plain", "--documents", QUESTION).code == 2


@pytest.mark.parametrize(
    "dialect", [AnthropicDialect(), OpenAIDialect(), OllamaDialect()], ids=lambda d: d.name
)
def test_a_provider_plans_drafts_and_completes(home: Home, dialect: Dialect) -> None:
    draft = {
        "answer": "Not yet [A].",
        "citations": ["A"],
        "confidence": "partial",
        "needs_more": True,
        "missing_topics": ["pagination of lists"],
    }
    text = json.dumps(PLAN), json.dumps(draft)
    replies = [dialect.structured(part[:20], part[20:]) for part in text]
    final = dialect.answer("Set ", "DATABASE", "_URL [A", "]. Magic [", "Z].")
    with serving(*replies, final) as server:
        base = {
            "anthropic": {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-test-1"},
            "openai": {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test-1"},
            "ollama": {"OLLAMA_BASE_URL": server.url},
        }[dialect.name]
        env = {
            **base,
            "LLM_PROVIDER": dialect.name,
            "LLM_MODEL": "test-model",
            "ASK_MODE": "deep",
            "CITATION_CHECK": "off",
        }
        home.run("stop")
        try:
            done = home.run("ask", "--chunks", "--top-k", "1", "--json", QUESTION, env=env)
            assert done.code == 0, done.err
            refused = home.run("ask", "Who won the football world cup in 1998?", env=env)
            assert refused.out.startswith("I don't have enough information")
            asked = len(server.requests)
        finally:
            home.run("stop")
    answer = json.loads(done.out)
    assert answer["provider"] == dialect.name
    assert "DATABASE_URL" in answer["answer"]
    assert "Not yet" not in answer["answer"]
    assert answer["deep"]["planner"] == dialect.name
    assert "connection string" in answer["deep"]["queries"]
    assert answer["deep"]["refined_for"] == ["pagination of lists"]
    assert asked == 3, "a plan, a draft and a final answer; a refusal costs no call"

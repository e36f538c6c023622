"""The handlers behind the wire: what parameters they take, over a real engine."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.engines import running_engine
from support.shared import REPOSITORY

from copilotd.api.service import Service
from copilotd.daemon_info import DaemonInfo
from copilotd.errors import Cancelled, CopilotError, RootNotFound, SectionNotFound, UsageError
from copilotd.outbox import Outbox
from copilotd.server import RequestContext

PAGE = (REPOSITORY / "docs" / "protocol.md").read_text(encoding="utf-8")


class Api:
    """Calls handlers as a session does."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def __call__(self, method: str, **params: Any) -> Any:
        async def call() -> Any:
            outbox = Outbox(asyncio.get_running_loop(), 1 << 20)
            context = RequestContext(1, method, threading.Event(), outbox)
            return await self.service.handlers[method](params, context)

        return asyncio.run(call())

    def refused(self, method: str, **params: Any) -> CopilotError:
        with pytest.raises(CopilotError) as caught:
            self(method, **params)
        return caught.value


@contextmanager
def running_api(index: Path) -> Iterator[Api]:
    with running_engine(index) as engine:
        info = DaemonInfo(index / "s.sock", index, index / "log", index / ".env")
        service = Service(engine, info)
        yield Api(service)
        service.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running_api(tmp_path / "index") as api:
        yield api


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "kiln.md").write_text("# Kiln\n\n## Cooling\n\nThe kiln cools for 14 hours.\n")
    return folder


# ------------------------------------------------------------------------------- the method table


# What the daemon answers itself, whatever service stands behind it.
DAEMONS_OWN = {"hello", "reload", "shutdown"}


def documented_methods() -> dict[str, set[str]]:
    table = PAGE.partition("\n## Methods\n")[2].partition("\n**Place.**")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", table, re.MULTILINE)
    return {method: set(re.findall(r"`(\w+)\??`", parameters)) for method, parameters in rows}


def test_the_page_lists_the_methods_there_are(api: Api) -> None:
    assert set(documented_methods()) == {*api.service.handlers, *DAEMONS_OWN}


@pytest.mark.parametrize("method", sorted(set(documented_methods()) - DAEMONS_OWN))
def test_the_page_lists_each_methods_parameters(api: Api, method: str) -> None:
    error = api.refused(method, nonsense=1)
    assert "nonsense" in error.message
    accepted = error.hint.removeprefix("this method takes ").partition(";")[0]
    assert documented_methods()[method] == set(accepted.split(", ")) - {"nothing"}


# ------------------------------------------------------------------------------------------ paths


@pytest.fixture
def odd(tmp_path: Path) -> str:
    """A folder and a document whose names are not UTF-8, as the wire gives them."""
    folder = os.fsencode(tmp_path) + b"/dir\xff"
    os.makedirs(folder + b"/s\xfd")
    with open(folder + b"/s\xfd/kil\xfen.md", "w", encoding="utf-8") as file:
        file.write("# Kiln\n\n## Cooling\n\nThe kiln cools for 14 hours.\n")
    return os.fsdecode(folder)


def test_names_that_are_not_utf8_can_be_indexed_searched_cited_and_forgotten(api: Api, odd: str) -> None:
    report = api("index", path=odd)
    assert report["files"] == 1
    assert report["path"].endswith("/dir\\xff")
    for glob in ("kil\udcfen.md", "s\udcfd", "s\udcfd/*"):
        assert api("search", query="kiln cooling", paths=[glob])["hits"], glob
    assert "No document's path matches" in api.refused("search", query="kiln", paths=["s\udcfe/*"]).message
    section = api("section", ref=f"{odd}/s\udcfd/kil\udcfen.md:5")
    assert section["section_heading"] == "Cooling"
    assert section["path_uri"].endswith("/dir%FF/s%FD/kil%FEn.md")
    assert len(api("forget", path=odd)["forgotten"]) == 1
    assert api("roots")["roots"] == []


def test_include_and_exclude_take_such_names(api: Api, odd: str) -> None:
    assert api("index", path=odd, exclude=["kil\udcfen.md"])["files"] == 0
    assert api("index", path=odd, include=["kil\udcfe*"])["files"] == 1


def test_bytes_that_are_utf8_after_all_have_one_spelling(api: Api, tmp_path: Path) -> None:
    (tmp_path / "é").mkdir()
    assert api("index", path=f"{tmp_path}/\udcc3\udca9")["path"] == f"{tmp_path}/é"


@pytest.mark.parametrize(
    ("method", "name"),
    [("index", "path"), ("forget", "path"), ("search", "paths"), ("ask", "paths"), ("section", "ref")],
)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/a\0b", "U+0000"),
        ("/a\ud800", "U+D800"),
        ("/a\udc7f", "U+DC7F"),
        ("/a\udd00", "U+DD00"),
        ("", "1 to 4096"),
        ("/" * 4097, "1 to 4096"),
        (7, "string"),
    ],
)
def test_what_no_path_can_be_is_refused_in_words(
    api: Api, method: str, name: str, value: object, words: str
) -> None:
    params: dict[str, Any] = {name: [value] if name == "paths" else value}
    if name == "paths":
        params["query"] = "kiln"
    error = api.refused(method, **params)
    assert isinstance(error, UsageError)
    assert name in error.message
    assert words in error.message


@pytest.mark.parametrize("path", ["~", "~/docs", "~root", "docs", "./docs"])
def test_a_path_that_is_not_absolute_is_refused(
    api: Api, docs: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(docs.parent))
    for method in ("index", "forget"):
        assert "not an absolute path" in api.refused(method, path=path).message


def test_the_reply_names_the_root_as_it_is_stored(api: Api, docs: Path) -> None:
    assert api("index", path=f"{docs}//../docs/")["path"] == str(docs)
    link = docs.parent / "link"
    link.symlink_to(docs)
    # The folder is known by its first name.
    assert api("index", path=str(link))["path"] == str(docs)
    assert [root["path"] for root in api("roots")["roots"]] == [str(docs)]


# ------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize("bad", ["", "x" * 201, 7, "\ud800"])
def test_thousands_of_wrong_names_give_one_short_sentence(api: Api, bad: object) -> None:
    error = api.refused("search", query="kiln", namespaces=[bad] * 30_000)
    assert len(error.message) <= 500
    assert "namespaces" in error.message


@pytest.mark.parametrize("name", ["namespaces", "paths"])
def test_a_list_has_at_most_a_hundred_items(api: Api, docs: Path, name: str) -> None:
    api("index", path=str(docs))
    some = "default" if name == "namespaces" else "*"
    api("search", query="kiln", **{name: [some] * 100})
    error = api.refused("search", query="kiln", **{name: ["x"] * 101})
    assert name in error.message
    assert "100" in error.message


def test_thousands_of_unknown_parameters_give_one_short_sentence(api: Api) -> None:
    error = api.refused("status", **{f"unknown{number}\x1b[2J" + "x" * 300: 1 for number in range(5000)})
    assert len(error.message) <= 500
    assert "\x1b" not in error.message


def test_long_references_are_not_repeated_whole(api: Api) -> None:
    for error in (
        api.refused("section", ref="x" * 4000),
        api.refused("forget", path="/" + "x" * 4000),
        api.refused("index", path="/" + "x" * 4000),
    ):
        assert isinstance(error, SectionNotFound | RootNotFound)
        assert len(error.message) <= 500


# ---------------------------------------------------------------------------------- conversations


def test_a_conversation_is_listed_shown_and_deleted(api: Api, docs: Path) -> None:
    api("index", path=str(docs))
    first = api("ask", query="How long does the kiln cool?", conversation="new", threshold=0.0)
    second = api("ask", query="why?", conversation="last", threshold=0.0)
    assert second["conversation"] == first["conversation"]
    assert second["asked_as"].startswith("why (")
    (listed,) = api("conversations")["conversations"]
    assert (listed["id"], listed["turns"]) == (first["conversation"], 2)
    shown = api("conversation", id=listed["id"][:5])
    assert [turn["question"] for turn in shown["messages"]] == ["How long does the kiln cool?", "why?"]
    assert api("delete_conversations", ids=[listed["id"]])["deleted"] == 1
    assert api.refused("conversation", id=listed["id"]).code == "conversation_not_found"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("delete_conversations", {}),
        ("delete_conversations", {"ids": ["abc"], "all": True}),
        ("delete_conversations", {"ids": ["../x"]}),
        ("conversation", {"id": ""}),
        ("conversation", {"id": "a/b"}),
        ("ask", {"query": "x", "conversation": "../../etc"}),
    ],
)
def test_what_names_no_conversation_is_refused(api: Api, method: str, params: dict[str, Any]) -> None:
    assert api.refused(method, **params).code == "usage"


def test_a_request_that_was_cancelled_while_it_waited_for_a_thread_costs_nothing(api: Api) -> None:
    async def call() -> Any:
        context = RequestContext(1, "check", threading.Event(), Outbox(asyncio.get_running_loop(), 1 << 20))
        context.cancelled.set()
        return await api.service.handlers["check"]({}, context)

    with pytest.raises(Cancelled):
        asyncio.run(call())

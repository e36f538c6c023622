"""The cases of real users that concern questions and search (QRY-*), with siblings, through the engine.

Those about providers are in tests/llm and tests/e2e; the citation parser's in tests/query/test_cite.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engines import Recorder, ask, running_engine, search
from support.shared import SHARED, needs_shared

from copilotd.engine import Engine
from copilotd.errors import UsageError

BRINDLE = """# Brindle

## Warnings

The `--error-on-warnings` option turns each warning into an error. Don't panic when that happens.

## Systems

Brindle runs on Ubuntu 20.04 and on Debian.

## Radio

Chapter 38.101 describes the radio. Version v2.0.1-rc.1 fixed it.

## Lamp

The lamp is switched off and dimmed; cats or dogs may sleep near the sea.

## Paths

The file `C:\\brindle\\lamp.ini` and the key `brindle.rate_limit` hold the rest; C++ and C# clients read both.
"""

SCRIPTS = {
    "chinese": ("# 陶窯手冊\n\n烧制温度是一千二百度。合約轉換體驗課問題請找櫃台。\n", "烧制温度是多少"),
    "japanese": (
        "# 窯の手引き\n\n焼成温度は千二百度です。冷却には九時間かかります。\n",
        "焼成温度は何度ですか",
    ),
    "katakana": ("# バックアップ\n\nバックアップを復元するにはリストアを実行します。\n", "リストアの実行"),
    "korean": ("# 가마 안내서\n\n소성 온도는 1200도입니다. 냉각에는 아홉 시간이 걸립니다.\n", "소성 온도는"),
    "arabic": ("# دليل الفرن\n\nدرجة حرارة الحرق هي ألف ومئتا درجة.\n", "ما هي درجة حرارة الحرق؟"),
    "hebrew": ("# מדריך הכבשן\n\nטמפרטורת השריפה היא אלף ומאתיים מעלות.\n", "טמפרטורת השריפה"),
    "thai": ("# คู่มือเตาเผา\n\nอุณหภูมิการเผาคือหนึ่งพันสองร้อยองศา\n", "อุณหภูมิการเผา"),
    "devanagari": ("# भट्ठी पुस्तिका\n\nपकाने का तापमान बारह सौ डिग्री है।\n", "पकाने का तापमान क्या है?"),
    "cyrillic": ("# Печь\n\nТемпература обжига тысяча двести градусов.\n", "какая температура обжига?"),
    "greek": ("# Φούρνος\n\nΗ θερμοκρασία ψησίματος είναι χίλιοι βαθμοί.\n", "θερμοκρασία ψησίματος"),
    "accents": ("# Four\n\nLa température de cuisson est élevée.\n", "temperature elevee"),
    "full width": ("# 設定\n\nＰＯＲＴ９０９９を使います。\n", "PORT9099"),
}


def running(place: Path, documents: dict[str, str]) -> Iterator[Engine]:
    docs = place / "docs"
    docs.mkdir()
    for name, text in documents.items():
        (docs / f"{name}.md").write_text(text, encoding="utf-8")
    with running_engine(place / "index") as started:
        started.index_root(str(docs), reporter=Recorder())
        yield started


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    yield from running(tmp_path_factory.mktemp("questions"), {"brindle": BRINDLE})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    yield from running(
        tmp_path_factory.mktemp("scripts"), {name: text for name, (text, _) in SCRIPTS.items()}
    )


def first(engine: Engine, question: str) -> str:
    hits = search(engine, question).hits
    return hits[0].chunk.metadata.section_heading if hits else ""


def by_words(engine: Engine, question: str) -> str:
    """The test's encoder knows no meaning: what words alone find."""
    best = max(search(engine, question, top_k=50).hits, key=lambda hit: hit.lexical)
    return best.chunk.metadata.section_heading if best.lexical > 0 else ""


@pytest.mark.parametrize(
    ("question", "section"),
    [
        ("--error-on-warnings", "Warnings"),  # QRY-02
        ('"--error-on-warnings"', "Warnings"),
        ('what does "--error-on-warnings do', "Warnings"),
        ("`--error-on-warnings`?", "Warnings"),
        ("--error-on-warnings=yes", "Warnings"),
        ("don't panic", "Warnings"),  # QRY-03
        ("don\u2019t panic", "Warnings"),
        ("ubuntu 20.04", "Systems"),  # QRY-05
        ("38.101", "Radio"),
        ("what is v2.0.1-rc.1?", "Radio"),
        ("(38.101)", "Radio"),
        ("NOT lamp", "Lamp"),  # QRY-06
        ("lamp AND", "Lamp"),
        ("cats OR", "Lamp"),
        ("NEAR(the sea, 3)", "Lamp"),
        ("lamp* OR ^dimmed", "Lamp"),
        ("does brindle need ubuntu or something else please", "Systems"),  # QRY-08
        ("brindle.rate_limit", "Paths"),
        (r"C:\brindle\lamp.ini", "Paths"),
    ],
)
def test_the_section_that_says_it_comes_first(engine: Engine, question: str, section: str) -> None:
    assert first(engine, question) == section


def test_a_long_question_needs_one_of_its_words_only(engine: Engine) -> None:
    """QRY-08."""
    question = "hello, I would like to know whether there is any chance of it working on debian at all"
    assert by_words(engine, question) == "Systems"


@pytest.mark.parametrize("question", ["what's the rock'n'roll port?", "WHEN TO USE AND", "'", "''", "\"'`"])
def test_quotes_and_operators_are_no_error(engine: Engine, question: str) -> None:
    """QRY-03, QRY-06."""
    search(engine, question)
    ask(engine, question)


@pytest.mark.parametrize("question", ["how do I do it", "what is the", "and or not"])
def test_a_question_of_filler_words_alone_is_refused(engine: Engine, question: str) -> None:
    """QRY-09."""
    answer = ask(engine, question)
    assert not answer.verdict.known
    assert answer.verdict.evidence["coverage"] == 0.0


def test_filler_words_leave_the_others_to_decide(engine: Engine) -> None:
    """QRY-09."""
    assert first(engine, "how do I do it with the lamp") == "Lamp"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_searched_by_its_words(library: Engine, name: str) -> None:
    """QRY-10."""
    hits = search(library, SCRIPTS[name][1], top_k=50).hits
    best = max(hits, key=lambda hit: hit.lexical)
    assert best.lexical > 0
    assert best.chunk.metadata.relative_path == f"{name}.md"


def test_long_text_without_blanks_is_cut_by_size(tmp_path: Path) -> None:
    """QRY-10."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "long.md").write_text("# 手冊\n\n" + "烧制温度是一千二百度。" * 800 + "\n", encoding="utf-8")
    with running_engine(tmp_path / "index", max_chunk_chars=1000) as started:
        started.index_root(str(docs), reporter=Recorder())
        hits = search(started, "烧制温度", top_k=50).hits
        assert hits
        assert all(len(hit.chunk.text) <= 2500 for hit in hits)
        assert started.status().chunks >= 8


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("question", ["烧制温度是多少", "合約轉換"])
def test_the_file_of_the_case_is_found(tmp_path: Path, question: str) -> None:
    """QRY-10."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "q10_cjk.md").write_bytes((SHARED / "cases" / "files" / "q10_cjk.md").read_bytes())
    with running_engine(tmp_path / "index") as started:
        started.index_root(str(docs), reporter=Recorder())
        assert first(started, question) == "陶窯手冊"


@pytest.mark.parametrize("question", ["", " ", "\n\t"])
def test_an_empty_question_is_an_error_and_no_refusal(engine: Engine, question: str) -> None:
    with pytest.raises(UsageError):
        search(engine, question)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(
        alphabet="\"'`*^()[]{}:+-~!?.,;<>|&%$#@/\\=_ \u201e\u201c\u00ab\u2019\u3002\uff1f\u061f",
        max_size=40,
    )
)
def test_punctuation_of_every_kind_is_data(engine: Engine, text: str) -> None:
    if not text.strip():
        return
    # A word in the middle of any marks is still searched for.
    assert search(engine, text).query == text.strip()
    assert "Lamp" in [
        hit.chunk.metadata.section_heading for hit in search(engine, f"{text} dimmed {text}").hits
    ]

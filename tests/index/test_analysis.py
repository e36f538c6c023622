"""Words of documents and questions: identifiers, stems, scripts without blanks, invisible characters."""

from __future__ import annotations

import string
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.index.analysis import _stem, analyse, analyse_query


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("--dry-run", ["--dry-run", "dri", "run"]),
        ("`BORG_REPO`", ["borg_repo", "borg", "repo"]),
        ("a.b.c", ["a.b.c", "a", "b", "c"]),
        ("E1234,", ["e1234"]),
        ("(20.04)", ["20.04", "20", "04"]),
        ("v2.0.1-rc.1?", ["v2.0.1-rc.1", "v2", "0", "1", "rc", "1"]),
        ("shmSize", ["shmsize", "shm", "size"]),
        ("getHTTPServer", ["gethttpserver", "get", "http", "server"]),
        ("docs/setup.md", ["docs/setup.md", "doc", "setup", "md"]),
        ("std::vector", ["std::vector", "std", "vector"]),
        ("C++ c#", ["c++", "c", "c#", "c"]),
        ("key=value", ["key", "valu"]),
        ("**Connections**", ["connect"]),
        ("café naïve", ["cafe", "naiv"]),
        ("Don't what's users'", ["dont", "what", "user"]),
        ("rock'n'roll rock’n’roll", ["rocknroll", "rock", "n", "roll"] * 2),
        ("", []),
        ("--- *** ??? \"' ", []),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert analyse(text) == tokens


def test_invisible_characters_do_not_exist_and_a_no_break_space_is_a_blank() -> None:
    assert analyse("zero\u200bwidth soft\u00adhyphen \ufeffmark two\u00a0words") == analyse(
        "zerowidth softhyphen mark two words"
    )


def test_full_width_letters_are_letters() -> None:
    assert analyse("ＢＯＲＧ＿ＲＥＰＯ") == analyse("BORG_REPO")


@pytest.mark.parametrize("text", ["烧制温度", "合約轉換", "焼成温度は", "소성온도", "อุณหภูมิ"])
def test_scripts_without_blanks_become_characters_and_pairs(text: str) -> None:
    tokens = analyse(text)
    assert text[:2] in tokens
    assert text[0] in tokens
    assert set(analyse_query(text).tokens) <= set(tokens)


def test_a_script_without_blanks_beside_latin_letters() -> None:
    assert analyse("kiln温度") == ["kiln", "温", "温度", "度"]


@pytest.mark.parametrize(
    ("question", "deciding"),
    [
        ("how do I do it", ["how", "do", "i", "it"]),
        ("what is the kiln", ["kiln"]),
        ("NOT lamp", ["lamp"]),
        ("NEAR(the sea, 3)", ["near", "sea", "3"]),
        ('what does "--error-on-warnings do', ["--error-on-warnings", "error", "on", "warn"]),
        ("ubuntu 20.04", ["ubuntu", "20.04", "20", "04"]),
        ("is v2.0.1 there", ["v2.0.1", "v2"]),
        ("", []),
        ("???", []),
    ],
)
def test_deciding_words_of_a_question(question: str, deciding: list[str]) -> None:
    assert list(analyse_query(question).tokens) == deciding


def test_phrases_are_neighbouring_deciding_words() -> None:
    assert analyse_query("change the kiln temperature in firing mode").phrases == (
        ("kiln", "temperatur"),
        ("fire", "mode"),
    )


@given(st.text(max_size=200))
def test_any_text_is_a_question_and_tokens_hold_no_blank_or_quote(text: str) -> None:
    terms = analyse_query(text)
    for token in [*analyse(text), *terms.tokens]:
        assert token
        assert not set(token) & set(string.whitespace + "\"'¦\0")
    # What is said in a question is found in a document that says the same.
    assert set(terms.tokens) <= set(analyse(text))


def test_a_long_text_takes_linear_time() -> None:
    text = "\n".join(
        f"Line {n}: run `copilot-{n} --dry-run` in /srv/docs/{n}.md first." for n in range(20_000)
    )
    started = time.process_time()
    analyse(text)
    # Microseconds a character; about 1 on two slow cores.
    assert (time.process_time() - started) / len(text) * 1e6 < 20


def test_texts_analysed_at_once_give_the_tokens_they_give_alone() -> None:
    """Threads change places within every word; no word comes twice, so that none is remembered."""
    endings = ("ing", "ations", "edly", "iveness", "ies", "ously")
    texts = [
        " ".join(f"{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}{thread}turn{e}" for n in range(100))
        for thread in ("a", "b", "c", "d")
        for e in endings
    ]
    # What is remembered of a piece of text must not hide what a thread makes of it.
    _stem.cache_clear()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            together = list(threads.map(analyse, texts))
    finally:
        sys.setswitchinterval(interval)
    _stem.cache_clear()
    assert together == [analyse(text) for text in texts]

"""Documents in the encodings and scripts of the world, through the engine: what is found, shown, sent and skipped."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from support.engines import found
from support.planning_provider import PlanningProvider
from support.reading import reading

from copilotd.api.shapes import answer_json

GERMAN = "# Küche\n\nDie Tür schließt um 21 Uhr, täglich für Gäste.\n"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"],
)
@pytest.mark.parametrize("name", ["k.md", "k.txt", "k.adoc"])
def test_each_encoding_and_line_end_is_read_and_cited(
    tmp_path: Path, name: str, encoding: str, line_end: str
) -> None:
    source = GERMAN.replace("\n", line_end).encode(encoding)
    with reading(tmp_path, {name: source}) as reader:
        assert reader.reports[-1].skipped == ()
        answer = reader.ask("Tür schließt", threshold=0.0)
        assert "Die Tür schließt um 21 Uhr, täglich für Gäste." in reader.printed(answer)
        assert answer.citations[0].line_end == 3
        assert "Die Tür schließt um 21 Uhr" in reader.cited(answer.citations[0], encoding)


def test_lines_are_counted_where_line_ends_are_mixed(tmp_path: Path) -> None:
    source = (
        b"# One\r\n\r\ntext\r# Two\r\rwanted words\n\n# Three\n\r\nlast\x0bstill\x0c\xe2\x80\xa8still last\n"
    )
    with reading(tmp_path, {"m.md": source}) as reader:
        wanted, last = (reader.ask(words, threshold=0.0).citations[0] for words in ("wanted", "last"))
        assert (wanted.section_heading, wanted.line_start, wanted.line_end) == ("Two", 6, 6)
        assert (last.section_heading, last.line_start, last.line_end) == ("Three", 10, 10)


SCRIPTS = {
    "Arabic": "أعد تشغيل الخادم بعد تغيير الإعدادات",
    "Persian": "سرور را دوباره راه‌اندازی می‌کند",
    "Hebrew": "הפעל מחדש את השרת אחרי שינוי ההגדרות",
    "Hindi": "सर्वर को फिर से शुरू करें क्‍षेत्र",
    "Thai": "รีสตาร์ทเซิร์ฟเวอร์หลังจากเปลี่ยนการตั้งค่า",
    "Chinese": "更改配置后重新启动服务器",
    "Japanese": "設定を変更した後、サーバーを再起動してください",
    "Korean": "설정을 변경한 후 서버를 다시 시작하십시오",
    "Greek": "Επανεκκινήστε τον διακομιστή μετά την αλλαγή",
    "Russian": "Перезапустите сервер после изменения настроек",
    "Amharic": "ቅንብሮችን ከቀየሩ በኋላ አገልጋዩን እንደገና ያስጀምሩ",
    "Vietnamese": "Khởi động lại máy chủ sau khi thay đổi cấu hình",
    "Emoji": "🚀 👩\u200d💻 🇩🇪 launch",
    "Decomposed": unicodedata.normalize("NFD", "Größe überprüfen"),
}


@pytest.mark.parametrize("name", ["guide.md", "guide.rst", "guide.org", "guide.html"])
@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_every_script_is_found_shown_and_cited(tmp_path: Path, name: str, text: str) -> None:
    shape = {
        "guide.md": "## {0}\n\n{0}.\n",
        "guide.rst": "{0}\n" + "=" * 120 + "\n\n{0}.\n",
        "guide.org": "* {0}\n\n{0}.\n",
        "guide.html": "<h2>{0}</h2>\n\n<p>{0}.</p>\n",
    }[name]
    files = {name: shape.format(text), "other.md": "# Other\n\nNothing of the kind.\n"}
    with reading(tmp_path, files) as reader:
        assert reader.outline(name) == [text]
        hit = reader.best(text)
        assert hit.chunk.metadata.relative_path == name
        assert hit.lexical > 0
        assert f"{text}." in reader.section(f"{name}:3")
        answer = reader.ask(text, threshold=0.0)
        assert f"{text}." in reader.printed(answer)
        assert text in reader.cited(answer.citations[0])


HIDDEN = (
    "\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH SPACE}\N{SOFT HYPHEN}\N{WORD JOINER}\N{LEFT-TO-RIGHT ISOLATE}\ufeff"
    "\x1b\x07\x00\x7f\x9b\x84"
)
# So much of it that a few control characters don't make it a binary file.
OTHER = "To fire a kiln, mind its degrees.\n" * 40


@pytest.mark.parametrize("name", ["k.md", "k.mdx", "k.rst", "k.adoc", "k.org", "k.html", "k.txt", "k.ipynb"])
def test_what_is_invisible_reaches_neither_terminal_nor_prompt(tmp_path: Path, name: str) -> None:
    words = HIDDEN.join(["", "Fi", "re the ki", "ln at 1240 degrees.", ""])
    titles = {
        "k.md": "# Kiln{0}\n\n", "k.mdx": "# Kiln{0}\n\n", "k.rst": "Kiln{0}\n=====================\n\n",
        "k.adoc": "= Kiln{0}\n\n", "k.org": "* Kiln{0}\n\n", "k.html": "<h1>Kiln{0}</h1>\n",
    }  # fmt: skip
    text = titles.get(name, "").format(HIDDEN) + words + "\n\n" + OTHER
    if name == "k.ipynb":
        cell = {
            "cell_type": "markdown",
            "source": (titles["k.md"].format(HIDDEN) + f"{words}\n\n{OTHER}").splitlines(True),
        }
        text = json.dumps({"cells": [cell]}, indent=1)
    model = PlanningProvider(prose=["Fire it at 1240 degrees [A]."])
    with reading(tmp_path, {name: text}, make_provider=lambda: model) as reader:
        quoted = reader.ask("fire the kiln degrees", threshold=0.0, extractive=True)
        written = reader.ask("fire the kiln degrees", threshold=0.0)
        shown = [
            reader.printed(quoted),
            reader.printed(written),
            reader.section(name),
            json.dumps(answer_json(quoted), ensure_ascii=False),
            *found(reader.engine, "kiln"),
        ]
        sent = [part for request in model.requests for part in (request.system, str(request))]
        assert model.requests
        assert "Fire the kiln at 1240 degrees." in shown[0]
        assert any("Fire the kiln at 1240 degrees." in part for part in sent)
        for part in shown + sent:
            assert not set(HIDDEN) & set(part)


LONE = {
    "bytes.md": b"# Kiln\n\nFire it \xed\xa0\x80 slowly \xed\xbf\xbf now.\n",
    "wide.md": "# Kiln\n\nFire it \ud800 slowly now.\n".encode("utf-16", "surrogatepass"),
    "cells.ipynb": (
        b'{"cells": [{"cell_type": "markdown", "source": ["# Kiln\\n", "Fire it \\ud800 slowly \\udc00 now."]}]}'
    ),
    "page.html": b"<h1>Kiln</h1><p>Fire it &#xD800; slowly &#xDFFF; now.</p>",
}


@pytest.mark.parametrize("name", LONE)
def test_lone_surrogates_are_replaced(tmp_path: Path, name: str) -> None:
    with reading(tmp_path, {name: LONE[name]}) as reader:
        printed = reader.printed(reader.ask("fire slowly", threshold=0.0))
        assert "Fire it" in printed
        assert "slowly" in printed
        printed.encode("utf-8")
        json.dumps(answer_json(reader.ask("fire slowly")), ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize(
    ("name", "broken", "reason"),
    [
        ("k.md", bytes(range(256)) * 40, "looks like a binary file, not text"),
        ("k.txt", b"\x89PNG\r\n\x1a\n" + bytes(100), "not a text file, although its name says so"),
        ("k.rst", b"\x00\x01\x02\x03" * 500, "looks like a binary file, not text"),
        ("k.ipynb", b'{"cells": [', "not a Jupyter notebook: its JSON is damaged"),
        ("k.docx", b"# Kiln", "not a readable Word document"),
    ],
)
def test_what_is_no_text_is_skipped_with_its_reason_and_read_when_it_changes(
    tmp_path: Path, name: str, broken: bytes, reason: str
) -> None:
    good = {"good.md": "# Neighbour\n\nFire the neighbour.\n"}
    with reading(tmp_path, {name: broken, **good}) as reader:
        report = reader.reports[-1]
        assert [Path(path).name for path, _ in report.skipped] == [name]
        assert report.skipped[0][1].startswith(reason)
        assert "Fire the neighbour." in reader.printed(reader.ask("fire the neighbour", threshold=0.0))
        # Untouched it is not read again, and stays in the list.
        assert [why for _, why in reader.engine.status().skipped] == [report.skipped[0][1]]
        assert reader.index().skipped == report.skipped
        if name.endswith(".docx"):
            return
        mended = {
            "k.rst": "Kiln\n====\n\nFire the kiln.\n",
            "k.ipynb": '{"cells": [{"cell_type": "markdown", "source": "Fire the kiln."}]}',
        }.get(name, "# Kiln\n\nFire the kiln.\n")
        reader.write({name: mended})
        answer = reader.ask("fire the kiln", threshold=0.0)
        assert "Fire the kiln." in reader.printed(answer)
        assert reader.engine.status().skipped == ()


def test_what_was_text_and_is_none_any_more_is_not_cited(tmp_path: Path) -> None:
    with reading(tmp_path, {"k.md": "# Kiln\n\nFire the kiln.\n", "g.md": "# Glaze\n\nMix it.\n"}) as reader:
        reader.write({"k.md": b"\x00\x01\x02\x03" * 500})
        assert "Fire the kiln." not in reader.printed(reader.ask("fire the kiln", threshold=0.0))
        assert next(path for path, _ in reader.engine.status().skipped).endswith("k.md")

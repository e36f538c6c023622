"""How far a long PDF is, as the commands show it while it is read: the daemon, the client and a terminal of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support import pdfs
from support.client_home import temporary_home
from support.fake_tesseract import FakeTesseract, hocr
from support.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("journey")]

PAGES = 3
# The reader tells of pages at most every 0.2 s; a page that takes longer is told.
SLOW_PAGE_S = 0.4


@pytest.mark.timeout(300)
def test_index_and_status_show_the_page_that_is_read(tmp_path: Path) -> None:
    fake = FakeTesseract(tmp_path)
    fake.waits(hocr("The harbour master signs the list"))
    with temporary_home() as home:
        home.env["PATH"] = f"{tmp_path}{os.pathsep}{home.env['PATH']}"
        home.env["OCR"] = "on"
        docs = home.path / "docs"
        docs.mkdir()
        (docs / "note.md").write_text("# Note\n\nTrains arrive at noon.\n")
        (docs / "long.pdf").write_bytes(
            pdfs.drawn(*[lambda canvas: canvas.rect(100, 100, 200, 50, fill=1)] * PAGES)
        )
        terminal = Terminal(home.command("index", "docs"), home.env, home.path, columns=200)
        try:
            fake.wait_for_call(1)
            time.sleep(SLOW_PAGE_S)
            fake.let_go(1)
            fake.wait_for_call(2)
            terminal.wait_for(f"long.pdf: page 1 of {PAGES}")
            assert f"long.pdf: page 1 of {PAGES}" in home.run("status").out
            # Meanwhile the others are there.
            assert "Trains arrive at noon." in home.run("search", "trains noon").out
            for page in range(2, PAGES + 1):
                fake.let_go(page)
            assert terminal.wait_until_gone(120) == 0
            assert "Indexed 4 chunks from 2 files (2 new, 0 unchanged)" in terminal.shown
            assert "Reading" not in home.run("status").out
        finally:
            for page in range(1, PAGES + 1):
                fake.let_go(page)
            terminal.close()
            home.run("stop")

"""A small program that behaves as ``tesseract`` does: lists languages, reads a picture from stdin, writes hOCR."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

WORD = '<span class="ocrx_word" title="bbox {x0} {top} {x1} {bottom}; x_wconf {confidence}">{text}</span>'


def hocr(*lines: str, confidence: int = 95, left: int = 200, top: int = 300) -> str:
    """A page of lines; each letter is 20 pixels wide, each line 60 high."""
    parts = []
    for line in lines:
        words, x = [], left
        for word in line.split():
            end = x + 20 * len(word)
            words.append(
                WORD.format(x0=x, x1=end, top=top, bottom=top + 40, text=word, confidence=confidence)
            )
            x = end + 20
        title = f"bbox {left} {top} {x} {top + 40}; baseline 0 -10; x_size 43; x_descenders 9; x_ascenders 9"
        parts.append(f'<span class="ocr_line" title="{title}">{" ".join(words)}</span>')
        top += 60
    return f"<html><body>{''.join(parts)}</body></html>"


class FakeTesseract:
    """The program in a folder of its own.

    Attributes:
        folder: For PATH.
        calls: Arguments of each call, a line each.
        picture: The last picture it was given.
        pid: Its process id while it hangs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.picture = folder / "picture.pnm"
        self.pid = folder / "pid"
        self.reads(hocr())

    def reads(self, page: str) -> None:
        """Makes it find ``page`` in every picture."""
        (self.folder / "page.html").write_text(page, encoding="utf-8")
        self._install(f"exec cat {shlex.quote(str(self.folder / 'page.html'))}")

    def waits(self, page: str) -> None:
        """Makes each of its calls, counted from 1, wait until it is let go, and find ``page`` then."""
        self.reads(page)
        folder = shlex.quote(str(self.folder))
        self._install(
            f"n=$(wc -l < {shlex.quote(str(self.calls))})\n"
            f"while [ ! -e {folder}/go-$((n)) ]; do sleep 0.05; done; exec cat {folder}/page.html"
        )

    def let_go(self, call: int) -> None:
        """Lets a waiting call go on, or one that is still to come."""
        (self.folder / f"go-{call}").touch()

    def wait_for_call(self, call: int, seconds: float = 120.0) -> None:
        """Waits until it was called so many times."""
        deadline = time.monotonic() + seconds
        while not self.calls.exists() or self.calls.read_text().count("\n") < call:
            assert time.monotonic() < deadline, f"call {call} never came"
            time.sleep(0.02)

    def hangs(self) -> None:
        """Makes it never end."""
        self._install(f"echo $$ > {shlex.quote(str(self.pid))}; exec sleep 600")

    def fails(self) -> None:
        """Makes it fail."""
        self._install("echo 'read_params_file: no such thing' >&2; exit 1")

    def _install(self, end: str) -> None:
        calls, picture = shlex.quote(str(self.calls)), shlex.quote(str(self.picture))
        script = (
            "#!/bin/sh\n"
            'if [ "$1" = --list-langs ]; then printf "List of available languages (2):\\neng\\ndeu\\n"; exit; fi\n'
            f'echo "$@" >> {calls}\ncat > {picture}\n{end}\n'
        )
        program = self.folder / "tesseract"
        # A program that runs can't be written to: the new one takes its place.
        fresh = self.folder / "tesseract.new"
        fresh.write_text(script, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(program)

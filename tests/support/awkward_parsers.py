"""Parsers that misbehave, to be run in the isolated child as ``support.awkward_parsers:Name``."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable

from copilotd.errors import ParseError
from copilotd.types import Block, BlockKind, Document, Section

_HELD: list[bytearray] = []


def _document(text: str, doc_title: str, warnings: tuple[str, ...] = ()) -> Document:
    return Document(
        doc_title=doc_title,
        title="",
        text=text,
        line_numbers=tuple(range(1, text.count("\n") + 2)),
        sections=(Section(doc_title, 0, (doc_title,), 0, len(text)),),
        blocks=(Block(BlockKind.PARAGRAPH, 0, len(text), 0, 0),),
        warnings=warnings,
    )


class _Awkward:
    name = "awkward"
    version = 1
    suffixes = (".awkward",)
    isolated = True


class Echo(_Awkward):
    """Gives the bytes back; its warnings tell what it finds in the child."""

    def parse(self, source: bytes, doc_title: str) -> Document:
        facts = (
            f"pid={os.getpid()}",
            f"cwd={os.getcwd()}",
            f"nice={os.nice(0)}",
            f"session={os.getsid(0)}",
            f"environment={' '.join(sorted(os.environ))}",
        )
        return _document(source.decode("latin-1"), doc_title, facts)


class Pages(_Awkward):
    """Tells of as many pages as the file names, with time between them."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.on_page: Callable[[int, int], None] = lambda done, total: None
        self._pause_s = pause_s

    def parse(self, source: bytes, doc_title: str) -> Document:
        total = int(source)
        for done in range(1, total + 1):
            time.sleep(self._pause_s)
            self.on_page(done, total)
        return _document("read", doc_title)


class Refuse(_Awkward):
    def parse(self, source: bytes, doc_title: str) -> Document:
        raise ParseError("encrypted: needs a password")


class Sleep(_Awkward):
    def parse(self, source: bytes, doc_title: str) -> Document:
        if source:
            with open(source, "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        time.sleep(60)
        return _document("late", doc_title)


class Hoard(_Awkward):
    def parse(self, source: bytes, doc_title: str) -> Document:
        while True:
            _HELD.append(bytearray(16 << 20))


class Fail(_Awkward):
    def parse(self, source: bytes, doc_title: str) -> Document:
        raise KeyError("secret of the document")


class Crash(_Awkward):
    def parse(self, source: bytes, doc_title: str) -> Document:
        ctypes.string_at(0)
        return _document("never", doc_title)


class Exit(_Awkward):
    def parse(self, source: bytes, doc_title: str) -> Document:
        os._exit(0)


class Chatter(_Awkward):
    """Prints to both streams, as libraries do."""

    def parse(self, source: bytes, doc_title: str) -> Document:
        print("leaked to stdout")
        os.write(1, b"leaked to fd 1\n")
        print("leaked to stderr", file=sys.stderr)
        os.write(2, b"leaked to fd 2\n")
        return _document("quiet", doc_title)


class Garbage(_Awkward):
    """Takes over the pipe, as a file that found a hole in the parser might."""

    def parse(self, source: bytes, doc_title: str) -> Document:
        for number in range(3, 64):
            try:
                os.write(number, source)
            except OSError:
                continue
        os._exit(0)


class Flood(_Awkward):
    def parse(self, source: bytes, doc_title: str) -> Document:
        return _document("x" * (130 << 20), doc_title)

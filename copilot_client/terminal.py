"""What the place where output goes can show: colours, links, width, encoding.

Text from documents, models and the daemon must pass :func:`copilotd.text.printable` before it is
styled here; the escape sequences added here are then the only ones that reach the terminal.
"""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO
from urllib.parse import quote

PIPE_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Style:
    """How text may be decorated; the default decorates nothing, as in a pipe.

    Attributes:
        colour: Whether bold and dim are allowed.
        links: Whether OSC 8 hyperlinks are allowed.
        width: Columns; previews are cut to it, answers never are.
        editor_link: Pattern of links that open an editor at a line; empty for links to files.
    """

    colour: bool = False
    links: bool = False
    width: int = PIPE_WIDTH
    editor_link: str = ""

    def bold(self, text: str) -> str:
        """Returns ``text`` in bold where colours are allowed."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour and text else text

    def dim(self, text: str) -> str:
        """Returns ``text`` dimmed where colours are allowed."""
        return f"\x1b[2m{text}\x1b[0m" if self.colour and text else text

    def link(self, text: str, uri: str) -> str:
        """Returns ``text`` as a hyperlink where links are allowed and ``uri`` is a safe file link."""
        if not self.links or not is_file_uri(uri):
            return text
        return f"\x1b]8;;{uri}\x1b\\{text}\x1b]8;;\x1b\\"

    def link_to_place(self, text: str, uri: str, *, line: object, page: object) -> str:
        """Returns ``text`` as a link to a place of a file.

        A page is said as RFC 8118 wants it, which viewers read and others ignore; a line where the reader's
        editor takes such links.
        """
        if isinstance(page, int):
            return self.link(text, f"{uri}#page={page}")
        if not (self.links and self.editor_link and is_file_uri(uri) and isinstance(line, int)):
            return self.link(text, uri)
        target = self.editor_link.replace("{path}", uri[len("file://") :]).replace("{line}", str(line))
        return f"\x1b]8;;{target}\x1b\\{text}\x1b]8;;\x1b\\"


def style_for(stream: TextIO, environ: Mapping[str, str] | None = None) -> Style:
    """Returns what ``stream`` can show.

    NO_COLOR (https://no-color.org) switches colours off and leaves links, which are no colour;
    TERM=dumb and anything that is no terminal switch off both. COPILOT_EDITOR names the editor that links
    open, if it has links of its own; VISUAL and EDITOR may hold where the terminal is not, so they don't.
    """
    environ = os.environ if environ is None else environ
    capable = is_terminal(stream) and environ.get("TERM", "") not in ("", "dumb")
    editor_link = ""
    if capable and (editor := environ.get("COPILOT_EDITOR", "")):
        from copilot_client.editors import link_pattern  # here, since few set it

        editor_link = link_pattern(editor)
    return Style(
        colour=capable and not environ.get("NO_COLOR"),
        links=capable,
        width=_columns(stream, environ),
        editor_link=editor_link,
    )


def is_terminal(stream: TextIO | None) -> bool:
    """Returns whether ``stream`` is open and connected to a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def _columns(stream: TextIO, environ: Mapping[str, str]) -> int:
    columns = environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPE_WIDTH
    except (OSError, ValueError, AttributeError):
        return PIPE_WIDTH


def file_uri(path: str) -> str:
    """Returns the ``file://`` link of an absolute path."""
    return "file://" + quote(os.fsencode(path))


def is_file_uri(uri: str) -> bool:
    """Returns whether ``uri`` leads to a file of this machine and can't end an escape sequence early."""
    # A control character or a blank would end the escape sequence early; another scheme would send
    # a click to the network.
    return uri.startswith("file:///") and uri.isascii() and uri.isprintable() and " " not in uri


def display_width(text: str) -> int:
    """Returns the columns ``text`` takes: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """Returns ``text``, cut with an ellipsis where it takes more than ``columns``."""
    if display_width(text) <= columns:
        return text
    used, kept = 0, []
    for character in text:
        used += _character_width(character)
        if used > columns - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def make_streams_forgiving() -> None:
    """Lets stdout and stderr replace what their encoding lacks instead of failing on it.

    A private-use bullet from a PDF must not end an answer on an ASCII terminal (pdfplumber#953). A stream
    that the caller has closed (``>&-``) becomes one that swallows everything.
    """
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")

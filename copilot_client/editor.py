"""Opens a source in the reader's editor at its line, or in a PDF viewer at its page."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from copilot_client.editors import (
    PDF_VIEWERS,
    editor_command,
    is_link,
    link,
    name_of,
    viewer_command,
)
from copilotd.errors import CopilotError, UsageError
from copilotd.text import one_line, printable

# What no text editor shows: the desktop knows what does.
_NOT_TEXT = (".docx", ".pdf")


def open_place(
    place: Mapping[str, Any], environ: Mapping[str, str] | None = None, *, editor: str = ""
) -> None:
    """Opens the file of a place: an editor is waited for, a viewer goes on alone.

    Args:
        place: With ``path_uri`` or ``path``, and ``line_start`` or ``page``.
        environ: Where COPILOT_EDITOR, VISUAL and EDITOR are looked up, in this order.
        editor: Goes before them.

    Raises:
        UsageError: No editor is set, or the file is gone.
        CopilotError: It can't be run, or failed.
    """
    environ = os.environ if environ is None else environ
    path = _real_path(place)
    if not path.startswith("/") or not os.path.isfile(path):
        raise UsageError(f"{printable(path, keep_newlines=False)} is not there any more.", "ask again")
    if path.lower().endswith(_NOT_TEXT):
        _start(_viewer(editor, environ), path, place.get("page"))
        return
    command = editor.strip() or next(
        (
            found
            for name in ("COPILOT_EDITOR", "VISUAL", "EDITOR")
            if (found := environ.get(name, "").strip())
        ),
        "",
    )
    if not command:
        raise UsageError(
            "No editor is set.",
            "export EDITOR=nano, or the name of another editor; or: copilot section REF --editor code",
        )
    line = place.get("line_start")
    line = line if isinstance(line, int) and line > 0 else None
    if is_link(command):
        _start(_opener(), link(command, path, line or 1), None)
    else:
        _run(command, path, line)


def _run(command: str, path: str, line: int | None) -> None:
    import subprocess  # here, since no other command needs it

    try:
        done = subprocess.run(editor_command(command, path, line), check=False)
    except (ValueError, OSError) as error:
        raise _not_run(command, error) from None
    if done.returncode:
        raise CopilotError(f"The editor {one_line(command, 100)!r} ended with code {done.returncode}.")


def _start(viewer: str, path: str, page: object) -> None:
    """Starts a program with a window of its own, which outlives this command."""
    import subprocess

    try:
        process = subprocess.Popen(
            viewer_command(viewer, path, page if isinstance(page, int) else None),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process.returncode = 0  # nobody waits for it, and Python need not warn of that
    except (ValueError, OSError) as error:
        raise _not_run(viewer, error) from None


def _viewer(editor: str, environ: Mapping[str, str]) -> str:
    """Returns what shows a PDF: what was asked for, else a viewer that knows pages, else the desktop's choice."""
    if editor.strip() and not is_link(editor):
        return editor
    wanted = environ.get("COPILOT_EDITOR", "")
    if name_of(wanted) in PDF_VIEWERS:
        return wanted
    search = environ.get("PATH", os.defpath)
    return next((name for name in PDF_VIEWERS if shutil.which(name, path=search)), "") or _opener()


def _opener() -> str:
    return "open" if sys.platform == "darwin" else "xdg-open"


def _not_run(command: str, error: Exception) -> CopilotError:
    why = "there is no such program" if isinstance(error, FileNotFoundError) else one_line(str(error), 200)
    return CopilotError(
        f"{one_line(command, 100)!r} can't be run: {why}.",
        "name a program that is installed with --editor, COPILOT_EDITOR or EDITOR",
    )


def _real_path(place: Mapping[str, Any]) -> str:
    # `path` is made printable and may name no file; the link holds the real bytes.
    uri = str(place.get("path_uri") or "")
    return (
        os.fsdecode(unquote_to_bytes(uri[7:])) if uri.startswith("file:///") else str(place.get("path") or "")
    )

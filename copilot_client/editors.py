"""How editors and PDF viewers are told where to open a file: arguments for their commands, links for terminals."""

from __future__ import annotations

import os
import shlex
from pathlib import PurePath
from urllib.parse import quote

_ALIASES = {"vscode": "code", "sublime": "subl", "intellij": "idea", "helix": "hx", "textmate": "mate"}
_VSCODE_LIKE = frozenset(("code", "code-insiders", "code-oss", "codium", "vscodium", "cursor", "windsurf"))
_PATH_LINE = frozenset(("zed", "zeditor", "subl", "sublime_text", "hx", "lapce"))
_LINE_OPTION = frozenset(
    (
        "idea",
        "pycharm",
        "webstorm",
        "goland",
        "clion",
        "rubymine",
        "phpstorm",
        "rider",
        "kate",
        "kwrite",
        "mate",
    )
)
_LINKS = {
    "code": "vscode://file{path}:{line}",
    "code-insiders": "vscode-insiders://file{path}:{line}",
    "codium": "vscodium://file{path}:{line}",
    "vscodium": "vscodium://file{path}:{line}",
    "cursor": "cursor://file{path}:{line}",
    "windsurf": "windsurf://file{path}:{line}",
    "zed": "zed://file{path}:{line}",
    "idea": "idea://open?file={path}&line={line}",
    "pycharm": "pycharm://open?file={path}&line={line}",
    "mate": "txmt://open?url=file://{path}&line={line}",
}
_PAGE_OPTIONS = {
    "evince": "-p", "atril": "-p", "xreader": "-p", "papers": "-p", "okular": "-p", "zathura": "-P",
}  # fmt: skip
PDF_VIEWERS = tuple(_PAGE_OPTIONS)


def name_of(editor: str) -> str:
    """Returns the name of an editor as the tables here know it: ``code`` for ``/usr/bin/code --wait``."""
    words = _words(editor)
    name = PurePath(words[0]).name if words else ""
    return _ALIASES.get(name, name)


def _words(editor: str) -> list[str]:
    try:
        return shlex.split(editor)
    except ValueError:
        return []


def is_link(editor: str) -> bool:
    """Returns whether ``editor`` is a pattern of links, such as ``vscode://file{path}:{line}``."""
    return "://" in editor and "{path}" in editor


def link_pattern(editor: str) -> str:
    """Returns the pattern of links that open ``editor`` at a line; empty where it has none."""
    pattern = editor.strip() if is_link(editor) else _LINKS.get(name_of(editor), "")
    # A blank or a control character would end a terminal's link early.
    return pattern if pattern.isascii() and pattern.isprintable() and " " not in pattern else ""


def link(pattern: str, path: str, line: int) -> str:
    """Returns the link of a line; ``path`` is a file's name, not yet escaped."""
    return pattern.replace("{path}", quote(os.fsencode(path))).replace("{line}", str(line))


def editor_command(editor: str, path: str, line: int | None) -> list[str]:
    """Returns the words of the command that opens a file at a line, to be run without a shell.

    Args:
        editor: A name, a command with options, or one that says ``{path}`` and ``{line}`` itself.
        path: Absolute, so that it is never taken for an option.
        line: From 1; None for the file's beginning.

    Raises:
        ValueError: ``editor`` has an open quote or names nothing.
    """
    words = shlex.split(editor)
    if not words:
        raise ValueError("no command")
    if any("{path}" in word for word in words):
        return [word.replace("{path}", path).replace("{line}", str(line or 1)) for word in words]
    name = name_of(editor)
    words[0] = _ALIASES.get(words[0], words[0])
    if line is None:
        return [*words, path]
    if name in _VSCODE_LIKE:
        return [*words, "--goto", f"{path}:{line}"]
    if name in _PATH_LINE:
        return [*words, f"{path}:{line}"]
    if name in _LINE_OPTION:
        return [*words, "--line", str(line), path]
    # vi's and Emacs' way, which nano, micro, kak, joe, gedit and most others have, too.
    return [*words, f"+{line}", path]


def viewer_command(viewer: str, path: str, page: int | None) -> list[str]:
    """Returns the words of the command that opens a PDF at a page (from 1).

    Raises:
        ValueError: ``viewer`` has an open quote.
    """
    words = shlex.split(viewer)
    option = _PAGE_OPTIONS.get(name_of(viewer))
    return [*words, path] if option is None or page is None else [*words, option, str(page), path]

"""Quotes a document's words so that nothing in them can pass for a citation of ours."""

from __future__ import annotations

import re

from copilotd.text import printable

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})")
# A code span, or what looks like one of our labels; a Markdown link is neither.
_LABEL = re.compile(
    r"(?P<code>(`+)(?!`).+?(?<!`)\2(?!`))|\[(?P<words>[^\[\]\n]{1,300}? > [^\[\]\n]{1,300})\](?!\()"
)


def quoted(text: str) -> str:
    """Returns ``text`` printable, with ``[a > b]`` outside code shown as ``(a > b)``.

    A reader must be able to tell our citations from what a document's author wrote; code is left as it is,
    since brackets in it mean something.
    """
    lines, fence = [], ""
    for line in printable(text).split("\n"):
        opening = _FENCE.match(line)
        if fence:
            if opening and opening[1].startswith(fence):
                fence = ""
        elif opening:
            fence = opening[1]
        else:
            line = _LABEL.sub(lambda match: match["code"] or f"({match['words']})", line)
        lines.append(line)
    return "\n".join(lines)

"""Cuts a model's words into sentences as they come, and marks or removes those that don't hold.

The last look before a reader sees them. A sentence whose marks all turned out false, and one that the passages
it cites don't bear out (:mod:`copilotd.query.support`), gets a marker directly behind it; in strict use it is
held until it is whole and, where it fails, not shown at all. A fence is one sentence, so are a list's item, a table's
row and a heading. What is decided never depends on how the text was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import regex as re

from copilotd.query.evidence import DROPPED, LABEL_END, LABEL_START, UNVERIFIED, key_at
from copilotd.query.support import GAP, UnitKind
from copilotd.text import one_line
from copilotd.types import Support

Judge = Callable[[str, Sequence[str], UnitKind], Support]

_LONGEST_MISSING = 60
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|ca|incl|z\.B|d\.h|bzw|p\.ex)|\b[A-Z])\.[)\"'*_]*$"
)
_ITEM = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_FALSE_MARKS = "its citation names nothing that was sent"


class Sentences:
    """Passes words on and judges each sentence at its end.

    Attributes:
        trailing: How many sentences stand behind the last one with a valid mark.
        supports: What was found about each sentence, in order; headings left out.
        removed: How many were not shown.
    """

    def __init__(self, keys: Sequence[str] = (), judge: Judge | None = None, *, strict: bool = False) -> None:
        """Starts an answer.

        Args:
            keys: Of the passages that were sent, in their order.
            judge: Checks a sentence; None looks at marks alone.
            strict: Whether a sentence that fails is left out instead of marked.
        """
        self.trailing = 0
        self.supports: list[Support] = []
        self.removed = 0
        self._keys = tuple(keys)
        self._judge = judge
        self._strict = strict
        self._held = ""  # blanks behind a sentence's end: the next mark may still belong to it
        self._before = "\n"  # blanks in front of the sentence
        self._line = ""
        self._said: list[str] = []
        self._kept: list[str] = []
        self._cited: list[str] = []
        self._in_row = self._was_row = self._heading = False
        self._fenced = self._behind_fence = self._in_code = self._in_label = self._awaits_key = False
        self._words = self._valid = self._dropped = False
        self._terminal = self._ended = self._label_last = False

    @property
    def grounded(self) -> bool:
        """Whether a sentence with a citation has passed; that a source says nothing of a thing is no answer."""
        return any(found.supported and found.keys and found.reason != GAP for found in self.supports)

    def feed(self, text: str) -> str:
        """Takes a piece and returns what can be shown by now."""
        return "".join(map(self._step, text))

    def close(self) -> str:
        """Returns the rest; the answer is at its end."""
        if self._line.lstrip(" \t>").startswith("#"):
            self._end_heading()
        return self._boundary("\n")

    def _show(self, text: str) -> str:
        if self._strict or self._in_row:
            self._kept.append(text)
            return ""
        return text

    def _step(self, character: str) -> str:
        if character == DROPPED:
            if self._line.lstrip(" \t>").startswith("|"):
                # Behind a table's row it would be a cell too many, which is not shown.
                return self._show(f" {UNVERIFIED}")
            self._dropped = True
            return ""
        if character == LABEL_START:
            self._in_label = self._awaits_key = self._valid = True
            held, self._held = self._held, ""
            return self._show(held)
        if character == LABEL_END:
            self._in_label, self._label_last = False, True
            return ""
        if self._awaits_key:
            self._awaits_key = False
            self._cited.append(self._keys[key_at(character)])
            return ""
        if self._in_label:
            return self._show(character)
        if character == "\n":
            return self._newline()
        self._line = (self._line + character)[:80]
        if self._fenced:
            return self._say(character)
        if character.isspace():
            self._ended = self._ended or (self._terminal and not _ABBREVIATION.search(self._tail()))
            if not self._ended:
                return self._say(character)
            self._held += character
            return ""
        before = ""
        if self._ended:
            goes_on = character.islower() and "\n" not in self._held and not self._label_last and self._held
            before = self._go_on() if goes_on else self._boundary(character)
        self._label_last = False
        if self._line.lstrip(" \t>") == "|":
            self._in_row = self._judge is not None
        if character == "`":
            self._in_code = not self._in_code
        if character in ".!?…。！？" and not self._in_code:
            self._terminal = True
            self._ended = character in "。！？"
        elif character not in "\"')]*_”’»`":
            self._terminal = False
        self._words = self._words or character.isalnum()
        return before + self._say(character)

    def _say(self, character: str) -> str:
        self._said.append(character)
        return self._show(character)

    def _tail(self) -> str:
        return "".join(self._said[-12:])

    def _go_on(self) -> str:
        """Takes the end back: "approx. five" is one sentence."""
        held, self._held, self._ended = self._held, "", False
        self._said.append(held)
        return self._show(held)

    def _newline(self) -> str:
        line, self._line = self._line.strip(" \t>"), ""
        fence = line.startswith(("```", "~~~"))
        if self._fenced:
            if fence and not line.strip("`~"):
                self._fenced, self._behind_fence = False, True
                self._ended = True
                self._held += "\n"
                return ""
            return self._say("\n")
        self._in_code = False
        if fence:
            self._fenced = True
            held, self._held = self._held, ""
            self._said.append("\n")
            return self._show(held + "\n")
        if line.startswith("#"):
            self._end_heading()
        self._ended = True
        self._held += "\n"
        return ""

    def _end_heading(self) -> None:
        self._heading = True
        if not self._dropped:
            self._words = False  # a heading claims nothing that would want a mark

    def _boundary(self, following: str) -> str:
        """Ends the sentence; ``following`` is the first character of the next."""
        said, kept = "".join(self._said), "".join(self._kept)
        support = self._judged(said)
        marker = ""
        if support is not None and not support.supported:
            missing = one_line(re.sub(r"[\[\]`]", "", ", ".join(support.missing)), _LONGEST_MISSING)
            marker = f"{UNVERIFIED[:-1]}: {missing}]" if missing else UNVERIFIED
        if marker and self._strict:
            self.removed += 1
            shown = self._gap(said)
        else:
            shown = self._marked(kept, marker) + self._held
        removed = bool(marker) and self._strict
        if self._valid and not removed:
            self.trailing = 0
        elif (self._words or self._dropped) and not removed:
            self.trailing += 1
        if said.strip() or self._valid:
            self._before = self._held
        self._was_row = self._in_row or (self._was_row and not said.strip())
        # "It is so. [A] says more": the mark opened this sentence.
        self._valid = self._label_last and following.islower()
        self._cited = self._cited[-1:] if self._valid else []
        self._held = ""
        self._said.clear()
        self._kept.clear()
        self._words = self._dropped = self._terminal = self._ended = self._behind_fence = False
        self._in_row = self._heading = False
        return shown

    def _marked(self, kept: str, marker: str) -> str:
        if not marker:
            return kept
        if self._in_row and kept.rstrip().endswith("|"):
            return f"{kept.rstrip()[:-1].rstrip()} {marker} |"
        return f"{kept}\n{marker}" if self._behind_fence else f"{kept} {marker}"

    def _gap(self, said: str) -> str:
        """Returns what stays of the blanks around a sentence that is left out."""
        if "\n" in self._before:
            if "\n" not in self._held and (item := _ITEM.match(said)):
                return item[0]  # more of the item follows
            return "\n" * max(0, self._held.count("\n") - self._before.count("\n"))
        return "\n" * self._held.count("\n")

    def _judged(self, said: str) -> Support | None:
        if self._dropped and not self._valid:
            support = Support(" ".join(said.split()), (), 0.0, False, _FALSE_MARKS)
        elif self._judge is None or not any(map(str.isalnum, said)):
            return None
        else:
            kind = UnitKind.PROSE
            if self._fenced or self._behind_fence:
                kind = UnitKind.CODE
            elif self._heading or (self._in_row and not self._was_row):
                kind = UnitKind.HEADING
            support = self._judge(said, self._cited, kind)
            if kind is UnitKind.HEADING and support.supported and not support.keys:
                return support
        self.supports.append(support)
        return support

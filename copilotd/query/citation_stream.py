"""Turns a model's words into shown words: marks checked and rendered, piece by piece as they come.

The scanner looks at one token at a time and keeps back what could still become something else: an
opened bracket, a run of backticks, blanks before a bracket. What it decides never depends on how the
text was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Not the standard library's: before Python 3.11.5 its possessive quantifiers match wrongly around groups (gh-106052).
import regex as re

from copilotd.query.evidence import DROPPED, label_signal
from copilotd.query.marks import CLOSERS, LONGEST_MARK, OPENERS, Mark, Marks, Undecided
from copilotd.text import bracketed, printable
from copilotd.types import Citation

# Beyond these an opened construct is taken for plain characters, so that one stray backtick or bracket
# doesn't hold back an answer.
_LONGEST_CODE = 2000
_LONGEST_TARGET = 2000
_LONGEST_PREFIX = 200
# Keeps the search for a closing bracket linear: no label nests deeper.
_DEEPEST = 20

_PLAIN = re.compile(rf"[^\s`~!\\<{re.escape(OPENERS)}]+")
_BLANKS = re.compile(r"[^\S\n]*")
_TICKS = re.compile(r"`+")
_FENCE_PREFIX = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*")
_LIST_ITEM = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_CHECKBOX = re.compile(r"\[[ xX]\](?=\s)")
_MAYBE_CLOSING = re.compile(r"[ \t>]*([`~]*)[ \t]*")
_OPENING = "([{<*_~|\"'`"
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_IMAGE_TAG = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
_TARGET = re.compile(r"\((?:[^()\n]++|\((?:[^()\n]++|\([^()\n]*+\))*+\))*+\)")
_DESTINATION = re.compile(r"\s*(?:<([^<>]*)>|(\S*))(?:\s+(?:\".*\"|'.*'|\(.*\)))?\s*", re.DOTALL)

# A list of sources is ours to write. A model's own would be taken for it, so it goes, with its heading.
_SOURCES_HEADING = re.compile(
    r"[ \t>]*(?:(?:#{1,6}|[-*+]|\d{1,2}[.)])[ \t]+)?(?:<(?:b|strong|h[1-6]|p)>)?[*_]{0,3}"
    r"(?:(?:cited|used)[ \t]+)?"
    r"(?:sources?|references?|citations?|bibliography|quellen?|quellenangaben?|quellenverzeichnis|referenzen"
    r"|belege|nachweise|literatur|fuentes|fonti)"
    r"(?:[ \t]+(?:used|cited|consulted))?[*_]{0,3}[ \t]*[:：]?[*_]{0,3}"
    r"(?:</(?:b|strong|h[1-6]|p)>)?[ \t]*:?[ \t]*(?=\n|[\[【［])",
    re.IGNORECASE,
)
_LISTED = re.compile(
    r"[ \t>]*(?:(?:[-*+•–]|\(?\d{1,9}[.):])[ \t]+\S|[\[【［<]|(?:https?://|www\.)\S+\s*$"
    r"|\S.*\s[>›»→]\s+\S)|(?: {2,}|\t)\S"
)
_LONGEST_LISTED = 400

_Token = tuple[int, str]


class CitationStream:
    """Checks and renders the citation marks of one answer.

    Marks of passages that were sent become ``[doc_title > section_heading]``; others are dropped with
    the blank before them and counted. Code keeps every character. Images become their alternative text;
    links stay where their target occurs in ``sources``, else only their text does.

    Attributes:
        used: The citations that are marked, in the order of their first mark.
        dropped: How many marks named nothing that was sent.
    """

    def __init__(
        self,
        citations: Mapping[str, Citation],
        sources: Iterable[str] | None = None,
        *,
        signals: bool = False,
    ) -> None:
        """Starts an answer.

        Args:
            citations: What was sent, by key.
            sources: The texts a link's target may come from; None leaves all links as they are.
            signals: Whether labels and dropped marks are announced as :mod:`copilotd.query.evidence` wants.
        """
        self.used: list[Citation] = []
        self.dropped = 0
        self._marks = Marks(citations)
        self._numbers = {key: number for number, key in enumerate(citations)}
        self._sources = None if sources is None else tuple(sources)
        self._buffer = ""
        self._fence = ""
        self._fence_midline = False
        self._line = ""
        self._adjacent: set[str] = set()
        self._signals = signals
        self._in_sources = False

    @property
    def open_fence(self) -> str:
        """The fence that the words so far leave open; empty where none is."""
        return self._fence

    def feed(self, text: str) -> str:
        """Takes a piece of the model's words and returns what can be shown by now."""
        self._buffer += printable(text)
        return self._drain(final=False)

    def close(self) -> str:
        """Returns the rest; the answer is at its end."""
        return self._drain(final=True)

    def _drain(self, *, final: bool) -> str:
        shown: list[str] = []
        position = 0
        while position < len(self._buffer):
            token = self._in_fence(position, final) if self._fence else self._token(position, final)
            if token is None:
                break
            end, words = token
            self._advance(self._buffer[position:end])
            shown.append(words)
            position = end
        self._buffer = self._buffer[position:]
        return "".join(shown)

    def _advance(self, consumed: str) -> None:
        self._line = (self._line + consumed).rpartition("\n")[2]
        if len(self._line) > _LONGEST_PREFIX:
            # Nothing that begins a line is so long; copying all of it for each token would be quadratic.
            self._line = "x" + self._line[-1]

    # ------------------------------------------------------------------------- the model's own sources

    def _own_sources(self, position: int, final: bool) -> _Token | None:
        """Drops a heading with its list of sources; ``(position, "")`` where there is none."""
        text = self._buffer
        if self._in_sources:
            if self._line:  # the rest of a line that was listed
                newline = text.find("\n", position)
                return (newline + 1 if newline >= 0 else len(text)), ""
            listed = self._listed(position, final)
            if listed is None or listed > position:
                return None if listed is None else (listed, "")
            self._in_sources = False
            return position, ""
        if self._line:
            return position, ""
        ended = text if not final else text + "\n"
        heading = _SOURCES_HEADING.match(ended, position, partial=not final)
        if heading is None:
            return position, ""
        if heading.partial or (not final and heading.end() == len(text)):
            return None if len(text) - position < _LONGEST_PREFIX else (position, "")
        first = heading.end()
        while ended.startswith("\n", first) or (first < len(text) and text[first : first + 1].isspace()):
            if text[first : first + 1] in (" ", "\t") and _LISTED.match(text, first):
                break
            first += 1
        if first >= len(text):
            if final:
                return len(text), ""
            return None if first - position < _LONGEST_PREFIX else (position, "")
        listed = self._listed(first, final)
        if listed is None or listed <= first:
            return None if listed is None else (position, "")
        self._in_sources = True
        return listed, ""

    def _listed(self, position: int, final: bool) -> int | None:
        """Returns where the list's line at ``position`` ends; ``position`` where the list is over."""
        text = self._buffer
        newline = text.find("\n", position, position + _LONGEST_LISTED)
        if newline < 0 and len(text) < position + _LONGEST_LISTED and not final:
            return None
        line = text[position : newline if newline >= 0 else position + _LONGEST_LISTED]
        if line.strip() and not _LISTED.match(line):
            return position
        return newline + 1 if newline >= 0 else position + len(line)

    # ------------------------------------------------------------------------------------- tokens

    def _token(self, position: int, final: bool) -> _Token | None:
        own = self._own_sources(position, final)
        if own is None or own[0] > position:
            return own
        text = self._buffer
        if plain := _PLAIN.match(text, position):
            return self._plain(plain.end(), plain[0])
        if text[position] == "\n":
            return self._plain(position + 1, "\n")
        blanks = _BLANKS.match(text, position)
        start = blanks.end() if blanks else position
        lead = text[position:start]
        if start == len(text):
            return self._plain(start, lead) if final else None
        character = text[start]
        token: _Token | None
        if character in OPENERS:
            return self._bracket(start, start, lead, final)
        if character == "\\" and text.startswith("[", start + 1):
            return self._bracket(start + 1, start, lead, final)
        if start + 1 == len(text) and not final and (not lead or character == "\\"):
            return None
        if lead:
            return self._plain(start, lead)
        if character == "`" or text.startswith("~~~", start):
            token = self._code(start, final)
        elif character == "~":
            # One or two: a third would have been seen above, unless it is not here yet.
            end = start + len(text[start : start + 2]) - (text[start + 1 : start + 2] not in ("", "~"))
            token = None if end == len(text) and not final else (end, text[start:end])
        elif character == "!" and text.startswith("[", start + 1):
            token = self._image(start, final)
        elif character == "<":
            token = self._image_tag(start, final)
        elif character == "\\" and start + 1 < len(text) and not text[start + 1].isspace():
            token = (start + 2, text[start : start + 2])
        else:
            token = (start + 1, character)
        if token is not None:
            self._adjacent.clear()
        return token

    def _plain(self, end: int, words: str) -> _Token:
        if words and not words.isspace():
            self._adjacent.clear()
        return end, words

    # --------------------------------------------------------------------------------------- code

    def _code(self, start: int, final: bool) -> _Token | None:
        text = self._buffer
        end = start
        while end < len(text) and text[end] == text[start]:
            end += 1
        if end == len(text) and not final:
            return None
        run = text[start:end]
        if len(run) >= 3 and _FENCE_PREFIX.fullmatch(self._line):
            newline = text.find("\n", end)
            if newline < 0 and not final and "`" not in text[end:]:
                return None
            info = text[end : newline if newline >= 0 else len(text)]
            if run[0] == "~" or "`" not in info:
                self._fence = run
                self._fence_midline = False
                stop = newline + 1 if newline >= 0 else len(text)
                return stop, text[start:stop]
        if run[0] == "~":
            return end, run
        return self._code_span(start, end, final)

    def _code_span(self, start: int, opened: int, final: bool) -> _Token | None:
        text = self._buffer
        limit = opened + _LONGEST_CODE
        paragraph = _PARAGRAPH_END.search(text, opened, limit)
        if paragraph:
            limit = min(limit, paragraph.start() + 1)
        for ticks in _TICKS.finditer(text, opened):
            if ticks.end() > limit:
                break
            if ticks.end() == len(text) and not final:
                return None
            if len(ticks[0]) == opened - start:
                return ticks.end(), text[start : ticks.end()]
        if limit > len(text) and not final:
            return None
        return opened, text[start:opened]

    def _in_fence(self, position: int, final: bool) -> _Token | None:
        text = self._buffer
        newline = text.find("\n", position)
        end = newline + 1 if newline >= 0 else len(text)
        line = text[position:end]
        if not self._fence_midline:
            closing = _MAYBE_CLOSING.fullmatch(line.removesuffix("\n"))
            if closing and newline < 0 and not final:
                return None
            if closing and len(closing[1]) >= len(self._fence) and set(closing[1]) == {self._fence[0]}:
                self._fence = ""
        self._fence_midline = newline < 0
        return end, line

    # ----------------------------------------------------------------------------------- brackets

    def _bracket(self, start: int, shown_from: int, lead: str, final: bool) -> _Token | None:
        """Decides what opens at ``start``; what precedes it from ``shown_from`` is a backslash or nothing."""
        text = self._buffer
        escaped = shown_from < start
        literal = (start + 1, lead + text[shown_from : start + 1])
        if not escaped and _LIST_ITEM.fullmatch(self._line + lead):
            if len(text) < start + 4 and not final:
                return None
            if box := _CHECKBOX.match(text, start):
                return self._plain(box.end(), lead + box[0])
        mark = self._marks.known(text, start, final=final)
        if isinstance(mark, Undecided):
            return None
        if mark is None:
            closing = self._closing(start, final)
            if closing is None:
                return None
            if closing < 0:
                # An answer cut off within a mark ends before it.
                cut = final and self._marks.begun(text[start + 1 :])
                return (len(text), "") if cut else self._plain(*literal)
            content = text[start + 1 : closing]
            before = self._line[-1:] if not lead and not escaped else ""
            mark = self._marks.any(content, closing + 1, after_word=before.isalnum() or before == "_")
            if mark is None or not mark.named:
                link = None if escaped else self._link(start, closing, lead)
                if link is None and not escaped and self._awaits_target(closing + 1, final):
                    return None
                if link is not None and (mark is None or self._is_allowed(closing + 1)):
                    return link
            if mark is None and self._sources is not None and not escaped:
                at_start = not (self._line + lead).strip(" \t>")
                if at_start and text.startswith(":", closing + 1) and text[start] == "[":
                    # Not a link's definition any more: its target is ours to say, too.
                    return self._plain(closing + 1, f"{lead}[{self._inline(content)}] ")
            if mark is None:
                return self._plain(*literal)
        return self._render(mark, lead, final)

    def _render(self, mark: Mark, lead: str, final: bool) -> _Token | None:
        if self._awaits_target(mark.end, final):
            return None
        end = mark.end
        target_end = self._target_end(end)
        if target_end is not None and target_end > 0 and not re.search(r"\s", self._buffer[end:target_end]):
            # A mark made into a link: the place it leads to is ours to say.
            end = target_end
        shown: list[str] = []
        again = ""
        for citation in mark.named:
            if citation not in self.used:
                self.used.append(citation)
            label = render_label(citation)
            number = self._numbers[citation.key]
            if label not in self._adjacent:
                shown.append(label_signal(label, number) if self._signals else label)
                self._adjacent.add(label)
            elif self._signals:
                again += label_signal("", number)
        self.dropped += mark.unknown
        if not shown:
            return end, again + (DROPPED if self._signals and mark.unknown else "")
        before = self._line[-1:]
        if not lead and before and not before.isspace() and before not in _OPENING:
            lead = " "
        return end, lead + " ".join(shown) + again

    def _closing(self, start: int, final: bool) -> int | None:
        """Returns where the bracket at ``start`` closes; -1 where it doesn't, None where that is open."""
        text = self._buffer
        depth = 0
        for index in range(start, min(len(text), start + LONGEST_MARK)):
            if text[index] in OPENERS:
                depth += 1
                if depth > _DEEPEST:
                    return -1
            elif text[index] in CLOSERS:
                depth -= 1
                if depth == 0:
                    return index
            elif text[index] == "\n" and text.startswith("\n", index + 1):
                return -1
        return -1 if final or len(text) >= start + LONGEST_MARK else None

    def _awaits_target(self, position: int, final: bool) -> bool:
        if final:
            return False
        return position == len(self._buffer) or self._target_end(position) is None

    def _target_end(self, position: int) -> int | None:
        """Returns where the link target at ``position`` ends; 0 where there is none, None where that is open."""
        text = self._buffer
        if not text.startswith("(", position):
            return 0
        limit = position + _LONGEST_TARGET
        if target := _TARGET.match(text, position, limit):
            return target.end()
        return 0 if len(text) >= limit or text.find("\n", position, limit) >= 0 else None

    def _link(self, start: int, closing: int, lead: str) -> _Token | None:
        end = self._target_end(closing + 1)
        if not end:
            return None
        words = self._inline(self._buffer[start + 1 : closing])
        self._adjacent.clear()
        if self._is_allowed(closing + 1):
            return end, f"{lead}[{words}]{self._buffer[closing + 1 : end]}"
        return end, lead + words

    def _is_allowed(self, position: int) -> bool:
        end = self._target_end(position)
        if self._sources is None:
            return bool(end)
        destination = _DESTINATION.fullmatch(self._buffer[position + 1 : (end or 1) - 1])
        url = (destination[1] or destination[2] or "") if destination else ""
        if not url:
            return False
        whole = re.compile(rf"(?<![\w/:.#-]){re.escape(url)}(?![\w/#-])")
        return any(whole.search(source) for source in self._sources)

    def _image(self, start: int, final: bool) -> _Token | None:
        closing = self._closing(start + 1, final)
        if closing is None:
            return None
        if closing < 0:
            return start + 1, "!"
        words = self._buffer[start + 2 : closing]
        if self._awaits_target(closing + 1, final):
            return None
        end = self._target_end(closing + 1)
        if not end and self._buffer.startswith("[", closing + 1):
            reference = self._closing(closing + 1, final)
            if reference is None:
                return None
            end = reference + 1
        return (end, self._inline(words)) if end else (start + 1, "!")

    def _image_tag(self, start: int, final: bool) -> _Token | None:
        text = self._buffer
        if tag := _IMAGE_TAG.match(text, start, start + _LONGEST_TARGET):
            alt = _ALT.search(tag[0])
            return tag.end(), self._inline(
                next((group for group in alt.groups() if group), "") if alt else ""
            )
        begun = text[start : start + 5].lower()
        open_ = "<img ".startswith(begun) or re.match(r"<img\b", begun)
        if open_ and not final and ">" not in text[start:] and len(text) < start + _LONGEST_TARGET:
            return None
        return start + 1, "<"

    def _inline(self, words: str) -> str:
        """Returns the words inside a link or image, their own marks rendered."""
        inner = CitationStream({}, self._sources, signals=self._signals)
        inner._line = "x"  # not at a line's start
        inner._marks = self._marks
        inner._numbers = self._numbers
        inner.used = self.used
        shown = inner.feed(words) + inner.close()
        self.dropped += inner.dropped
        return shown


def render_label(citation: Citation) -> str:
    """Returns ``[doc_title > section_heading]``, printable, on one line, and nothing more than one citation."""
    return bracketed(citation.label)

"""Words broken at a line's end: which hyphens belong to the word and which to the line break.

An identifier broken behind an underscore is put together as well.

No dictionary: the document itself is asked first, then the shape of both halves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_BROKEN = re.compile(r"(?:^|(?<=[\s(\[{\"'“‘/]))([^\s]*\w)(?:[-\u2010]|(?<=[^\W_])_)$")
_NEXT = re.compile(r"^(\S+)\s*(.*)$", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
_LETTERS = re.compile(r"[^\W\d_]+")

# First halves that usually keep their hyphen, and second halves that usually follow one.
_KEEPS_AFTER = re.compile(
    "well|self|high|low|long|short|full|half|cross|all|ever|far|near|hard|single|double|two|three|four|five|six|"
    "ten|one|first|second|third|real|built|read|write|user|top|bottom|left|right|end|open|so|state|fine|large|"
    "small|wide|deep|best|better|ill|old|new"
)
_KEEPS_BEFORE = re.compile(
    "known|based|like|free|only|level|side|time|friendly|specific|wide|aware|driven|scale|term|end|to|of|the|art|"
    "up|in|on|off|by|house|defined|sized|quality|purpose|safe|sensitive|oriented|dependent|independent|related|"
    "existing"
)
_ENDINGS = re.compile(
    "ings?|ed|ers?|able|ably|ly|ness|ty|ties|tions?|sion|ments?|ity|ities|al|ally|ance|ence|est|ful|less|ous|ive|"
    "i[sz](?:e|ed|ing)|ism|ists?|y|s|es|ies"
)


class Vocabulary:
    """The words of a document, to see how it writes a word where no line breaks it."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._counts: Counter[str] = Counter()
        for line in lines:
            words = _WORD.findall(line)
            # The two halves at a line's ends prove nothing.
            if line.rstrip()[-1:] in "-\u2010":
                words = words[:-1]
            self._counts.update(word.replace("\u2010", "-").casefold() for word in words)

    def count(self, word: str) -> int:
        """How often the document has ``word``."""
        return self._counts[word.casefold()]


def join_across(above: str, below: str, vocabulary: Vocabulary) -> tuple[str, str] | None:
    """Joins a word broken between two lines.

    Args:
        above: The line that may end in a hyphen.
        below: The line that follows.
        vocabulary: Words of the document.

    Returns:
        The first line with the whole word and the rest of the second (maybe empty), or None where
        no word is broken.
    """
    broken = _BROKEN.search(above)
    following = _NEXT.match(below)
    if broken is None or following is None:
        return None
    left, right, rest = broken[1], following[1], following[2]
    if not right[0].isalnum():
        return None
    if above[-1] == "_":
        return above + right, rest
    keep = not right[0].islower() or not left[-1].isalpha() or _keeps_hyphen(left, right, vocabulary)
    return above[:-1] + ("-" if keep else "") + right, rest


def _keeps_hyphen(left: str, right: str, vocabulary: Vocabulary) -> bool:
    head = _LETTERS.match(right)
    assert head is not None
    tail_word = head[0]
    last = _LETTERS.findall(left)[-1]
    joined, hyphened = vocabulary.count(last + tail_word), vocabulary.count(f"{last}-{tail_word}")
    if joined != hyphened:
        return hyphened > joined
    if "-" in left or "_" in left:
        return True
    if _ENDINGS.fullmatch(tail_word.casefold()):
        return False
    if _KEEPS_AFTER.fullmatch(last.casefold()) or _KEEPS_BEFORE.fullmatch(tail_word.casefold()):
        return len(last) >= 2
    # Both halves are words of their own here, the whole never is: a compound.
    both = len(last) >= 4 and len(tail_word) >= 4
    return both and vocabulary.count(last) >= 2 and vocabulary.count(tail_word) >= 2

"""The facts of a sentence that must stand in its sources letter by letter: numbers and identifiers.

Overlap of words and nearness of meaning don't see a changed port, option or version; these are compared one
by one. A fact counts as found where a source holds it as a whole: ``--dry`` is not in ``--dry-run``, and
``1.2`` is not in ``1.2.3``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import regex as re

_CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_URL = r"[a-z][a-z0-9+.\-]*://[^\s<>\"'`)\]]+"
_OPTION = r"(?<![\w-])--?[A-Za-z][\w-]*+"
_PATH = r"(?:~|\.{1,2})?/[\w.\-]+(?:/[\w.\-]+)*+/?|[\w.\-]+(?:/[\w.\-]+)++/?"
_VERSION = r"(?<![\w.])v?\d++(?:\.\d++)+(?:-?[a-z]++[.\d]*+)?(?!\w)"
_SNAKE = r"(?<!\w)\w*[A-Za-z]\w*_\w+"
_DOTTED = r"(?<![\w.])\.?[A-Za-z_][\w\-]*+(?:\.[A-Za-z_][\w\-]*+)++(?!\w)"
_CAMEL = r"(?<!\w)(?:[a-z]++[A-Z]\w*+|[A-Z][a-z]++[A-Z]\w*+)"
_MIXED = r"(?<!\w)(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{2,}(?:-[A-Za-z\d]+)*+"
_NAME = re.compile("|".join((_URL, _OPTION, _PATH, _VERSION, _SNAKE, _DOTTED, _CAMEL, _MIXED)))
_CODE_TOKEN = re.compile(r"[^\s\"'`=,;(){}\[\]|<>$]+")
_PLACEHOLDER = re.compile(r"<[^<>\n]{1,60}>|\.{3}|…|\$\{?[A-Za-z_]\w*\}?")
_COMMENT = re.compile(r"(?:(?<=\s)|^)(?:#|//)\s.*$", re.MULTILINE)

_AMOUNT = r"\d{1,3}(?:,\d{3})++(?:\.\d++)?|\d++(?:\.\d++)?"
_NUMBER = re.compile(rf"(?<![\w.])({_AMOUNT})(?![\d])\s?-?(%|°?[A-Za-zµ]+)?")
_ANY_NUMBER = re.compile(rf"(?<![\d.])(?:{_AMOUNT})(?!\.?\d)")
_LIST_NUMBER = re.compile(r"^[\s>*_]*\(?\d{1,3}[.):]\s", re.MULTILINE)
_COUNTED = re.compile(
    r"\b(?:step|option|method|point|part|item|example)s?\s+\d+(?:\s*(?:-|to|and)\s*\d+)?", re.IGNORECASE
)

_NUMBER_WORDS = {
    "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12",
    "fifteen": "15", "twenty": "20", "thirty": "30", "sixty": "60", "hundred": "100", "thousand": "1000",
    "once": "1", "twice": "2", "half": "0.5", "dozen": "12",
}  # fmt: skip
_UNITS = {
    "%": "%", "percent": "%", "ms": "ms", "millisecond": "ms", "milliseconds": "ms",
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "min": "min", "mins": "min", "minute": "min", "minutes": "min",
    "h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
    "day": "day", "days": "day", "d": "day", "week": "week", "weeks": "week", "month": "month", "months": "month",
    "year": "year", "years": "year",
    "byte": "B", "bytes": "B", "b": "B", "kb": "KB", "kib": "KB", "mb": "MB", "mib": "MB", "gb": "GB", "gib": "GB",
    "tb": "TB", "tib": "TB", "kilobytes": "KB", "megabytes": "MB", "gigabytes": "GB", "terabytes": "TB",
    "px": "px", "pixel": "px", "pixels": "px", "fps": "fps", "hz": "hz", "khz": "khz", "mhz": "mhz", "ghz": "ghz",
    "degrees": "°", "degree": "°", "°c": "°", "°f": "°f", "mm": "mm", "cm": "cm", "km": "km", "kg": "kg", "g": "g",
}  # fmt: skip
_WORD_AND_UNIT = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})[\s-]+([A-Za-z]+)", re.IGNORECASE)
_ORDINALS = ("st", "nd", "rd", "th")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Fact:
    """A number or an identifier.

    Attributes:
        text: As it stands in the sentence, shortened.
        name: The identifier; empty for a number.
        number: The number without separators; empty for an identifier.
        unit: Its unit, one spelling each; empty where there is none.
        exact: Whether case matters.
    """

    text: str
    name: str = ""
    number: str = ""
    unit: str = ""
    exact: bool = False


class FactSource:
    """The texts of one passage, ready to be asked for facts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = "\n".join(texts)
        self._folded = self._text.casefold()
        self._numbers = {_plain(found) for found in _ANY_NUMBER.findall(self._text)}
        self._units: dict[str, set[str]] = {}
        for fact in _numbers(self._text):
            self._units.setdefault(fact.number, set()).add(fact.unit)
        for word in re.findall(r"[a-z]+", self._folded):
            if word in _NUMBER_WORDS:
                self._numbers.add(_NUMBER_WORDS[word])

    def holds(self, fact: Fact) -> bool:
        """Returns whether the fact stands in the passage."""
        if fact.name:
            return self._holds_name(fact)
        if fact.number not in self._numbers:
            return False
        units = self._units.get(fact.number, set()) - {""}
        return not fact.unit or not units or fact.unit in units

    def _holds_name(self, fact: Fact) -> bool:
        text, name = (self._text, fact.name) if fact.exact else (self._folded, fact.name.casefold())
        start = text.find(name)
        while start >= 0:
            if _whole(text, start, start + len(name)):
                return True
            start = text.find(name, start + 1)
        return False


def facts_of(sentence: str) -> list[Fact]:
    """Returns the facts of a sentence in prose, those in its code spans included."""
    text = _COUNTED.sub(" ", _LIST_NUMBER.sub(" ", sentence))
    found: list[Fact] = []
    for span in _CODE_SPAN.finditer(text):
        found += code_facts(span[2], spoken=True)
    text = _CODE_SPAN.sub(" ", text)
    for name in _NAME.finditer(text):
        if _is_name(name[0]):
            found.append(_named(name[0].rstrip(".,:;!?/-") or name[0], exact=name[0].startswith("-")))
    rest = _NAME.sub(lambda name: " " if _is_name(name[0]) else name[0], text)
    found += _numbers(rest)
    return list(dict.fromkeys(found))


def code_facts(code: str, *, spoken: bool = False) -> list[Fact]:
    """Returns the facts of code: every token that is more than a lower-case word, and every number.

    Args:
        code: A fence's lines, or what stands in a code span.
        spoken: It is a code span of a sentence, where a lone word is a name, too.
    """
    code = _PLACEHOLDER.sub(" ", code if spoken else _COMMENT.sub("", code))
    tokens = [token.rstrip(".:!?\\").lstrip("!:") for token in _CODE_TOKEN.findall(code)]
    tokens = [token for token in tokens if any(map(str.isalnum, token))]
    alone = spoken and len(tokens) == 1
    facts = []
    for token in tokens:
        if _ANY_NUMBER.fullmatch(token):
            facts.append(Fact(token[:_SHOWN], number=_plain(token)))
        elif alone or not token.isalpha() or _NAME.fullmatch(token):
            facts.append(_named(token, exact=True))
    return list(dict.fromkeys(facts))


def _is_name(found: str) -> bool:
    """Returns whether a match is an identifier rather than words: ``and/or`` and ``e.g.`` are none."""
    if not any(map(str.isalpha, found)):
        return "." in found[:-1].strip(".") and not re.fullmatch(r"\d+\.\d+", found)
    if found.startswith("-"):
        return True
    bare = found.rstrip(".,:;!?/-")
    if all(part.isalpha() for part in bare.split("/")) and not bare.startswith(("/", "~", ".")):
        if "/" in bare:
            return False
        return bool(_NAME.fullmatch(bare))
    if re.fullmatch(r"(?:[A-Za-z]\.)+[A-Za-z]?", found):
        return False
    amount = _NUMBER.fullmatch(bare)
    if amount is not None and (amount[2] or "").casefold() in _UNITS:
        return False
    # Ordinals and what a plain word is joined to: "2nd", "3-way".
    return not re.fullmatch(r"\d+(?:st|nd|rd|th|x)?(?:-[a-z]+)*", bare, re.IGNORECASE)


def _named(name: str, *, exact: bool) -> Fact:
    return Fact(name[:_SHOWN], name=name, exact=exact)


def _numbers(text: str) -> Iterator[Fact]:
    for match in _NUMBER.finditer(text):
        if (match[2] or "").casefold() in _ORDINALS:
            continue
        unit = _UNITS.get((match[2] or "").casefold(), "")
        yield Fact(
            f"{match[1]} {match[2]}"[:_SHOWN] if unit else match[1][:_SHOWN],
            number=_plain(match[1]),
            unit=unit,
        )
    for match in _WORD_AND_UNIT.finditer(text):
        if unit := _UNITS.get(match[2].casefold(), ""):
            yield Fact(match[0][:_SHOWN], number=_NUMBER_WORDS[match[1].casefold()], unit=unit)


def _plain(number: str) -> str:
    number = number.replace(",", "")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return number.lstrip("0") or "0"


def _whole(text: str, start: int, end: int) -> bool:
    before, after, further = text[start - 1 : start], text[end : end + 1], text[end + 1 : end + 2]
    if before and (before.isalnum() or before == "_" or (before == "-" and text[start].isalnum())):
        return False
    if after.isalnum() or after == "_" or (after == "-" and further.isalnum()):
        return False
    if text[start].isdigit() and before == "." and text[start - 2 : start - 1].isdigit():
        return False
    return not (after == "." and further.isdigit() and text[end - 1].isdigit())

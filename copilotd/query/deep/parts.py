"""Takes a question apart: what it asks for besides the first thing, and the sides of what it compares.

No grammar is parsed. Each rule reads a joint that English questions really have: a further question ("… and how do
I …", or any words that end in a question mark of their own), a further place ("on Linux and on Windows"), a comparison
("A vs B").
"""

from __future__ import annotations

from dataclasses import dataclass

import regex as re

from copilotd.index.analysis import analyse_query

MAX_PARTS = 3

_ASKING = (
    "(?:how|what|what's|where|when|which|why|who|whose"
    "|can|could|does|do|did|is|are|was|were|will|would|should|must|may)"
)
_SENTENCE = re.compile(r"(?<=[?!;])\s+|(?<=\p{L}\.)\s+(?=\p{Lu})")
_FURTHER = re.compile(
    rf"(?:,\s*|\s+)(?:and|or|but|plus)(?:\s+(?:also|then))?\s+(?={_ASKING}\b)", re.IGNORECASE
)
_LEADING = re.compile(r"^(?:and|or|but|so|also)\s+", re.IGNORECASE)
_OPENS = re.compile(rf"{_ASKING}\b", re.IGNORECASE)
_PLACES = re.compile(
    r"(?P<head>.+?\s)(?P<at>on|in|for|with|from|at|under|via|using|without|to|by)\s+(?P<one>[^,?]{1,60}?)"
    r"\s*,?\s+(?:and|or)\s+(?:also\s+)?(?P=at)\s+(?P<other>[^,?]{1,60}?)[\s?.!]*",
    re.IGNORECASE,
)
_SIDES = re.compile(
    r"(?:.*?\b(?:difference|differences|choose|choosing|decide)\s+between\s+)(?P<one>.{1,60}?)\s+(?:and|or)\s+"
    r"(?P<other>[^,;]{1,60}?)(?:[,;].*|[\s?.!]*)|(?P<left>.{1,80}?)\s+(?:vs\.?(?!\s+Code\b)|versus)\s+(?P<right>.{1,80}?)[\s?.!]*",
    re.IGNORECASE,
)
_POINTING = re.compile(r"\b(?:it|its|this|that|these|those|they|them|one|ones|there|then)\b", re.IGNORECASE)

_QUALIFIES = re.compile(r"(?:on|in|for|with|from|at|under|via|using|without|to|by)\b", re.IGNORECASE)

# Fewer words of its own than this don't say what a further question is about.
_ENOUGH_WORDS = 2

# More of the topic than this would drown them.
_TOPIC_WORDS = 4


@dataclass(frozen=True, slots=True)
class Parts:
    """A question, taken apart.

    Attributes:
        asked: What is asked for, each a question that can be understood alone; one where there is but one.
        sides: The sides of a comparison; empty where nothing is compared.
        apart: Whether each part was written as a question of its own, which needs no word of the others: an answer
            to one is worth having without the rest. A clause of one sentence mostly is not: "is there an official
            image, and which tag should I use?"
    """

    asked: tuple[str, ...]
    sides: tuple[str, ...] = ()
    apart: bool = False


def question_parts(question: str) -> Parts:
    """Returns the parts of ``question``; any text has at least one."""
    question = " ".join(question.split())
    sentences = _SENTENCE.split(question)
    clauses = [
        _LEADING.sub("", further.strip(" ,;"))
        for sentence in sentences
        for further in _FURTHER.split(sentence)
        if _content(further)
    ]
    asked = [clause for clause in clauses if _OPENS.match(clause) or clause.endswith("?")]
    if len(asked) < 2 or not _content(" ".join(asked)):
        return Parts(_places(question), _sides(question))
    # What goes before the first question tells what all of them are about.
    before = " ".join(clauses[: clauses.index(asked[0])])
    topic = _content(before) or _content(asked[0])
    parts = [asked[0] if not before else _about(asked[0], topic)]
    parts += [_about(clause, topic) for clause in asked[1:]]
    whole = {_LEADING.sub("", sentence.strip(" ,;")) for sentence in sentences if sentence.endswith("?")}
    return Parts(_distinct(parts)[:MAX_PARTS], apart=not before and whole.issuperset(parts))


def _places(question: str) -> tuple[str, ...]:
    found = _PLACES.fullmatch(question)
    if found is None or not _content(found["head"]):
        return (question,)
    return _distinct([f"{found['head']}{found['at']} {place}" for place in (found["one"], found["other"])])


def _sides(question: str) -> tuple[str, ...]:
    found = _SIDES.fullmatch(question)
    if found is None:
        return ()
    sides = (found["one"] or found["left"], found["other"] or found["right"])
    return _distinct([side for side in sides if _content(side)])


def _about(clause: str, topic: list[str]) -> str:
    """Gives a further question the words of what it is about, where its own don't tell."""
    own = _content(clause)
    named = any(word.identifier for word in analyse_query(clause).words) and not _QUALIFIES.match(clause)
    if (named or len(own) >= _ENOUGH_WORDS) and not _POINTING.search(clause):
        return clause
    known = {word.lower() for word in own}
    missing = [word for word in topic if word.lower() not in known][:_TOPIC_WORDS]
    return f"{clause.rstrip('?!. ')} ({' '.join(missing)})" if missing else clause


def _content(text: str) -> list[str]:
    return [word.surface for word in analyse_query(text).words if not word.stop]


def _distinct(texts: list[str]) -> tuple[str, ...]:
    return tuple({" ".join(text.lower().split()): text.strip() for text in reversed(texts)}.values())[::-1]

"""A follow-up made into a question of its own without a language model: by carrying over the topic's terms.

A question that names its own topic (:mod:`copilotd.conversation.leaning`) is left exactly as it was typed,
because terms of the last topic would only spoil its search. Otherwise:

- a phrase (*on macOS?*) takes the place of the same phrase in the last question, or is put at its end;
- a phrase with the same noun (*and the door code?* after *what is the safe code?*) takes the place of the one with it;
- an option or name (*what about --keep-weekly?*) takes the place of the one of its kind;
- everything else gets in parentheses what the last question was about, its rarest words, or the list item it
  points at (*the second one*), or where the question had too few words the heading it was answered from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import regex as re

from copilotd.conversation.leaning import Utterance, dissect, leans_back, list_position
from copilotd.conversation.turns import Turn
from copilotd.conversation.words import ARTICLES, GENERIC, PREPOSITIONS
from copilotd.index.analysis import STOP_WORDS, analyse_query
from copilotd.types import IndexReader, Scope

MAX_QUERY_CHARS = 1_000
"""Of what is carried and the question together; a longer question has nothing carried into it."""
MAX_CARRIED = 6
"""Terms carried over: more say less about what was meant."""
_ENOUGH = 2
_MAX_ITEM_TERMS = 4
_SHORTEST_PHRASE = 3
"""Article, what is new, and noun."""

Rarity = Callable[[Sequence[str]], Mapping[str, float]]
"""Gives each analysed term its weight: rare terms say more, those the documents don't hold weigh nothing."""

_LIST_ITEM = re.compile(r"(?m)^[ \t]{0,6}(?:[-*+]|\d{1,3}[.)])[ \t]++(\S[^\n]{0,300})")
_LABEL = re.compile(r"\[[^\]\n]{0,200}\]")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*+(?:_[A-Z0-9]++)++")
_NAME = re.compile(r"(?<![\w-])\d?\p{Lu}[\w.+#]++")
_ENDING = " \t\n?!.,;:"


@dataclass(frozen=True, slots=True)
class Standalone:
    """A question as it is searched for.

    Attributes:
        query: Never empty where the question wasn't.
        follows: Whether something of the conversation was carried into it.
    """

    query: str
    follows: bool


def rarity_in(index: IndexReader, scope: Scope) -> Rarity:
    """Returns how rare terms are in an index: the logarithm of the share of chunks that lack them."""
    chunks = index.chunk_count(scope)

    def rarity(terms: Sequence[str]) -> Mapping[str, float]:
        frequencies = index.document_frequencies(list(terms), scope)
        return {
            term: math.log1p(chunks / frequency) if frequency else 0.0
            for term, frequency in frequencies.items()
        }

    return rarity


def stand_alone(question: str, turns: Sequence[Turn], rarity: Rarity) -> Standalone:
    """Returns ``question`` as one that is understood without the turns before it, oldest first."""
    if not turns or len(question) > MAX_QUERY_CHARS or not leans_back(question):
        return Standalone(question, False)
    last, utterance = turns[-1], dissect(question)
    query = _in_place(utterance, last.asked_as) or _with_topic(question, utterance, last, rarity)
    return (
        Standalone(question, False) if len(query) > MAX_QUERY_CHARS else Standalone(query, query != question)
    )


def _in_place(utterance: Utterance, last: str) -> str:
    """Returns the last question with one part of it exchanged; empty where no part is of the same kind."""
    rest = " ".join(word.text for word in utterance.words[utterance.body :])
    last = last.strip(_ENDING)
    if not rest or not last or utterance.is_question:
        return ""
    if utterance.is_fragment:
        preposition = utterance.words[utterance.body].lower
        return f"{_without_phrase(last, preposition)} {rest}?"
    if same := _with_the_same_noun(utterance, last):
        return same
    for kind in (_OPTION, _VARIABLE, _NAME):
        # A name at the beginning of the question has its capital from there.
        found = [match for match in kind.finditer(last) if match.start()]
        if kind.fullmatch(rest) and len(found) == 1:
            return f"{last[: found[0].start()]}{rest}{last[found[0].end() :]}?"
    return ""


def _with_the_same_noun(utterance: Utterance, last: str) -> str:
    """Returns the last question with its phrase of the same noun exchanged; empty where there is no such phrase.

    A phrase is told by its article and ends with its noun: what stands between them is no verb.
    """
    phrase = utterance.words[utterance.body :]
    lower = [word.lower for word in phrase]
    if len(phrase) < _SHORTEST_PHRASE or lower[0] not in ARTICLES or PREPOSITIONS.intersection(lower):
        return ""
    noun, words = _stem(phrase[-1].text), last.split()
    places = [index for index, word in enumerate(words) if _stem(word) == noun]
    if len(places) != 1:
        return ""
    start = places[0] - 1
    while start >= 0 and words[start].lower() not in STOP_WORDS:
        start -= 1
    if start < 0 or words[start].lower() not in ARTICLES:
        return ""
    return " ".join([*words[:start], *(word.text for word in phrase), *words[places[0] + 1 :]]) + "?"


def _stem(word: str) -> str:
    words = analyse_query(word).words
    return words[0].tokens[0] if len(words) == 1 else ""


def _without_phrase(question: str, preposition: str) -> str:
    """Returns ``question`` without its last phrase of that preposition, which reaches to the next one."""
    words = question.split()
    places = [index for index, word in enumerate(words) if word.lower() == preposition and index]
    if not places:
        return question
    start = places[-1]
    ends = (index for index in range(start + 1, len(words)) if words[index].lower() in PREPOSITIONS)
    return " ".join(words[:start] + words[next(ends, len(words)) :])


def _with_topic(question: str, utterance: Utterance, last: Turn, rarity: Rarity) -> str:
    present = {token for word in analyse_query(question).words for token in word.tokens}
    carried: list[str] = []
    position = list_position(utterance)
    if position is not None and (item := _list_item(last, position)):
        carried += _rarest(item, present, rarity, _MAX_ITEM_TERMS)
    carried += _rarest(last.asked_as, present, rarity, MAX_CARRIED - len(carried))
    if len(carried) < _ENOUGH and last.sources:
        heading = f"{last.sources[0].doc_title} {last.sources[0].section_heading}"
        carried += _rarest(heading, present, rarity, MAX_CARRIED - len(carried))
    if not carried:
        return question
    body = question.rstrip(_ENDING)
    return f"{body} ({' '.join(carried)}){question[len(body) :].strip()}" if body else " ".join(carried)


def _rarest(text: str, present: set[str], rarity: Rarity, limit: int) -> list[str]:
    """Returns the rarest words of ``text`` in its order, without those of ``present``, which it adds them to."""
    words: dict[tuple[str, ...], str] = {}
    for word in analyse_query(text).words:
        if not word.stop and not present.issuperset(word.tokens):
            words.setdefault(word.tokens, word.surface)
    weights = rarity([token for tokens in words for token in tokens])

    def weight(tokens: tuple[str, ...]) -> tuple[bool, float]:
        return words[tokens].lower() not in GENERIC, max(weights.get(token, 0.0) for token in tokens)

    best = sorted(words, key=weight, reverse=True)[: max(limit, 0)]
    for tokens in best:
        present.update(tokens)
    return [surface for tokens, surface in words.items() if tokens in best]


def _list_item(turn: Turn, position: int) -> str:
    """Returns the item of the answer's list, or of its sources where it has none; empty for one too few."""
    items = [_LABEL.sub("", item) for item in _LIST_ITEM.findall(turn.answer)]
    if len(items) < _ENOUGH:
        items = [source.section_heading for source in turn.sources]
    return items[position] if -len(items) <= position < len(items) else ""

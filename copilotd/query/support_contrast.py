"""Whether a sentence turns round what a passage says: a "not" put in or taken out, two facts exchanged.

Neither is seen by overlap of words or nearness of meaning. Both are told only from a statement of the passage that
says the same in nearly the same words; where none does, nothing is decided, since a free rewording may well say
"avoid" for "do not", or turn a sentence round. ``benchmarks/citation_check.py`` measures both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import regex as re

from copilotd.index.analysis import QueryWord, analyse_query

_SENTENCE_ENDS = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_CLAUSE_ENDS = re.compile(
    r"[,;:]\s+|\s[–—-]\s|\s(?=(?:but|however|whereas|although|though)\b)", re.IGNORECASE
)
_CODE_SPAN = re.compile(r"`+([^`\s]+)`+")
_NUMBER = re.compile(r"[\d.,:]*\d[\d.,:]*")
_BRACKETS = re.compile(r"\[[^\[\]\n]*\]\([^()\n]*\)|[*_#>|]+(?=\s|$)|(?:(?<=\s)|^)[*_#>|]+")

_COMPOUND = re.compile(r"[A-Za-z][a-z]*(?:[-'’][A-Za-z][a-z]*)+")

_NEGATED = """
not never no nor neither without cannot cant none nothing nobody nowhere dont doesnt didnt isnt arent wasnt werent wont
wouldnt couldnt shouldnt mustnt havent hasnt hadnt
"""
_NEGATIONS = frozenset(_NEGATED.split())
# Words that can stand for a negation: where only one of two statements has one, nothing is decided.
_SOFT = re.compile(
    r"(?:only|unless|except|avoid|prevent|disabl|fail|refus|lack|instead|rather|hard|rare|until|otherwis|unlik|forbid|stop"
    r"|ignor|skip|omit|exclud|deni|reject|miss|less|least|whether|wrong|allow|enabl|also)"
)
_OPPOSITE = re.compile(r"(?:un|in|im|ir|dis|non|mis|de)-?(?=\w{3})")

_FEWEST_WORDS = 4
_ALIKE = 0.75
"""Share of words (F1) from which on two statements say the same but for a "not"."""
_WITHIN = 0.85
"""Share of a sentence's words from which on a longer statement says it, too."""
_SAME_AS_BEST = 0.1
_REACH = 4
_FEWEST_AROUND = 2
_IN_ORDER = 0.8
"""Share of a sentence's words that must stand in the passage's in the same order."""
_MOST_WORDS = 120
_RIVAL = 0.5
"""How well the words around another fact of the passage must fit those around the sentence's…"""
_OWN = 0.8
"""…and the share of that which those around the fact itself may reach at most."""

_Feature = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence or clause as it is compared.

    Attributes:
        text: Its words.
        words: Stems of its content words.
        negations: How many negations it has.
        negated: The content word behind each of them.
        soft: Words that can stand for one.
    """

    text: str
    words: frozenset[str]
    negations: int
    negated: frozenset[str]
    soft: frozenset[str]


@dataclass(frozen=True, slots=True)
class Placed:
    """A number or name in its place.

    Attributes:
        kind: Number, option, path or name: what it could be exchanged for.
        name: Itself, lower case.
        around: The words around it by side, the nearer the heavier.
        words: All words of its sentence that are no facts, in order.
    """

    kind: str
    name: str
    around: dict[_Feature, float]
    words: tuple[str, ...]


class Contrast:
    """What one passage says, statement by statement and fact by fact.

    Args:
        text: The passage.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def statements(self) -> list[Statement]:
        """Its sentences and their clauses."""
        return list(_statements(self._text))

    @cached_property
    def facts(self) -> dict[str, list[Placed]]:
        """Its facts by kind, each as often as it occurs."""
        found: dict[str, list[Placed]] = {}
        for unit in _units(self._text):
            for fact in _placed(unit):
                found.setdefault(fact.kind, []).append(fact)
        return found


def turned_round(sentence: str, sources: Sequence[Contrast]) -> str:
    """Returns the statement of the passages that ``sentence`` negates or un-negates; empty where there is none."""
    everything = [
        statement
        for source in sources
        for statement in source.statements
        if len(statement.words) >= _FEWEST_WORDS
    ]
    for claim in _statements(sentence):
        if len(claim.words) < _FEWEST_WORDS:
            continue
        for measure, least, opposed in ((_likeness, _ALIKE, _opposed), (_share, _WITHIN, _opposed_within)):
            alike = [(measure(claim.words, other.words), other) for other in everything]
            best = max((score for score, _ in alike), default=0.0)
            same = [other for score, other in alike if score >= max(least, best - _SAME_AS_BEST)]
            if same and all(opposed(claim, other) for other in same):
                return same[0].text
    return ""


def exchanged(sentence: str, sources: Sequence[Contrast]) -> tuple[str, ...]:
    """Returns the facts of ``sentence`` in whose place the passages have another one."""
    found: list[str] = []
    for unit in _units(sentence):
        for fact in _placed(unit):
            there = [other for source in sources for other in source.facts.get(fact.kind, ())]
            own = [_fits(fact, other) for other in there if other.name == fact.name]
            rivals = [other for other in there if other.name != fact.name and _takes_place(fact, other)]
            rival = max((_fits(fact, other) for other in rivals), default=0.0)
            if own and rival >= _RIVAL and max(own) <= _OWN * rival and fact.name not in found:
                found.append(fact.name)
    return tuple(found)


def _fits(fact: Placed, other: Placed) -> float:
    total = sum(fact.around.values())
    shared = sum(min(weight, other.around.get(word, 0.0)) for word, weight in fact.around.items())
    return shared / total if total else 0.0


def _takes_place(fact: Placed, other: Placed) -> bool:
    """Whether the sentence of ``other`` is that of ``fact`` in the same order: turned round, "near" says nothing."""
    if len(fact.around.keys() & other.around.keys()) < _FEWEST_AROUND:
        return False
    lengths = [0] * (len(other.words) + 1)  # of the longest common subsequence, row by row
    for word in fact.words:
        diagonal = 0
        for column, there in enumerate(other.words, 1):
            above = lengths[column]
            lengths[column] = diagonal + 1 if word == there else max(above, lengths[column - 1])
            diagonal = above
    return lengths[-1] >= _IN_ORDER * len(fact.words)


def _opposed_within(claim: Statement, other: Statement) -> bool:
    """Whether a statement that holds all of the claim negates a word that the claim doesn't, or the other way round."""
    if (claim.negations - other.negations) % 2 == 0 or not claim.soft <= other.soft:
        return False
    if claim.negations:
        return not other.negations and claim.negated <= other.words
    return bool(other.negated) and other.negated <= claim.words


def _opposed(one: Statement, other: Statement) -> bool:
    if (one.negations - other.negations) % 2 == 0 or one.soft != other.soft:
        return False
    apart = one.words ^ other.words
    return not any(_OPPOSITE.sub("", word, count=1) in apart for word in apart if _OPPOSITE.match(word))


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one)


def _units(text: str) -> Iterator[str]:
    for sentence in _SENTENCE_ENDS.split(_BRACKETS.sub(" ", text)):
        if plain := sentence.strip():
            yield plain


def _statements(text: str) -> Iterator[Statement]:
    for sentence in _units(text):
        clauses = [clause for clause in _CLAUSE_ENDS.split(sentence) if clause]
        for part in [sentence, *clauses] if len(clauses) > 1 else [sentence]:
            words = analyse_query(part.replace("`", " ")).words
            content = [word for word in words if not word.stop and not _negates(word)]
            stems = frozenset(word.tokens[0] for word in content)
            negated = {
                following.tokens[0]
                for place, word in enumerate(words)
                if _negates(word)
                for following in [next((w for w in words[place + 1 :] if w in content), None)]
                if following is not None
            }
            soft = {word.tokens[0] for word in words if _SOFT.match(word.tokens[0])}
            yield Statement(part, stems, sum(map(_negates, words)), frozenset(negated), frozenset(soft))


def _negates(word: QueryWord) -> bool:
    surface = word.surface.lower().replace("’", "'")
    return surface in _NEGATIONS or surface.endswith("n't")


def _placed(unit: str) -> Iterator[Placed]:
    spans = {span.lower() for span in _CODE_SPAN.findall(unit)}
    words = [word for word in analyse_query(unit.replace("`", " ")).words if not word.stop][:_MOST_WORDS]
    kinds = [_kind(word, spans) for word in words]
    plain = tuple(word.tokens[0] for word, kind in zip(words, kinds, strict=True) if not kind)
    for place, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        if kind:
            yield Placed(kind, word.surface.lower(), dict(_around(words, place)), plain)


def _around(words: Sequence[QueryWord], place: int) -> Iterable[tuple[_Feature, float]]:
    for side in (-1, 1):
        for distance in range(1, _REACH + 1):
            at = place + side * distance
            if 0 <= at < len(words):
                yield (words[at].tokens[0], side), 1.0 / distance


def _kind(word: QueryWord, spans: set[str]) -> str:
    surface = word.surface
    if _NUMBER.fullmatch(surface):
        return "number"
    if surface.startswith("-"):
        return "option"
    if "/" in surface:
        return "path"
    named = word.identifier and not _COMPOUND.fullmatch(surface)
    return "name" if named or surface.lower() in spans else ""

"""Whether a question leans on what was said before it: by its words alone, without a language model.

It does where it goes on (*and on Windows?*), stands for something it doesn't name (*how do I undo that?*),
points into a list (*the second one*), or names no topic (*what is the default?*). A question that names what
its pronouns stand for (*if a backup fails, can I resume it?*) doesn't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import regex as re

from copilotd.conversation.words import (
    ASIDES,
    AUXILIARIES,
    BACKWARD,
    CLAUSE_BREAKS,
    DEMONSTRATIVE,
    GENERIC,
    ONE,
    OPENERS,
    ORDINALS,
    PERSONAL,
    POSSESSIVE,
    PREPOSITIONS,
    QUESTION_WORDS,
    TAKES_THAT,
)
from copilotd.index.analysis import STOP_WORDS, QueryWord, analyse_query

# Longer phrases without a verb are keywords to search for.
_LONGEST_FRAGMENT = 6
_NEAR = 3
_EXAMPLE_WANTED = re.compile(
    r"(?i)^(?:(?:can|could|would) you |please )?(?:give|show|tell|explain|elaborate)\b.*\b(?:example|more|detail|step)"
)
_PUNCTUATION = frozenset(",;:.?!")


@dataclass(frozen=True, slots=True)
class Spoken:
    """One word of a question.

    Attributes:
        text: As typed.
        lower: The same in lower case.
        topical: Whether it could name a topic.
        ends_clause: Whether a clause of its own begins at or behind it.
    """

    text: str
    lower: str
    topical: bool
    ends_clause: bool


@dataclass(frozen=True, slots=True)
class Utterance:
    """A question, cut up.

    Attributes:
        words: All words in order.
        opener: What it opens with that goes on with a topic; empty where nothing does.
        body: Index of the first word behind asides and openers.
    """

    words: tuple[Spoken, ...]
    opener: str
    body: int

    @property
    def topical(self) -> int:
        """How many of its words could name a topic."""
        return sum(word.topical for word in self.words)

    @property
    def is_question(self) -> bool:
        """Whether it is put as a whole question, as far as little words tell."""
        return any(word.lower in QUESTION_WORDS for word in self.words[self.body :])

    @property
    def is_fragment(self) -> bool:
        """Whether it is a phrase that hangs in the air: *on Windows?*, *with Docker?*."""
        rest = self.words[self.body :]
        return (
            bool(rest)
            and len(rest) <= _LONGEST_FRAGMENT
            and rest[0].lower in PREPOSITIONS
            and not self.is_question
        )


def dissect(question: str) -> Utterance:
    """Cuts a question up."""
    words = []
    position = 0
    for word in analyse_query(question).words:
        position = max(question.find(word.surface, position) + len(word.surface), position)
        follows = question[position : position + 1]
        lower = word.surface.lower().replace("’", "'")
        words.append(
            Spoken(word.surface, lower, _is_topical(word), lower in CLAUSE_BREAKS or follows in _PUNCTUATION)
        )
    body = 0
    while body < len(words) - 1 and words[body].lower in ASIDES:
        body += 1
    opener, length = _opening([word.lower for word in words[body:]])
    return Utterance(tuple(words), opener, min(body + length, len(words)))


def leans_back(question: str) -> bool:
    """Returns whether a question can't be understood without what was said before it."""
    utterance = dissect(question)
    if not utterance.words:
        return False
    if not utterance.topical or utterance.is_fragment or points_back(utterance):
        return True
    if _EXAMPLE_WANTED.search(question) and utterance.topical <= 1:
        return True
    return bool(utterance.opener) and not _stands_behind_opener(utterance)


def points_back(utterance: Utterance) -> bool:
    """Returns whether one of its words stands for something that it doesn't name itself."""
    return any(_points_back(utterance, index) for index in range(len(utterance.words)))


def list_position(utterance: Utterance) -> int | None:
    """Returns which item of a list it points at; -1 for the last one, None for none."""
    for index, word in enumerate(utterance.words):
        if word.lower in ORDINALS and _is_list_pointer(utterance, index):
            return ORDINALS[word.lower]
    return None


def _is_topical(word: QueryWord) -> bool:
    surface = word.surface.lower()
    return word.identifier or not (
        word.stop or surface in GENERIC or surface in STOP_WORDS or surface in ASIDES
    )


def _opening(words: Sequence[str]) -> tuple[str, int]:
    for opener, _, _ in OPENERS:
        parts = opener.split()
        if list(words[: len(parts)]) == parts:
            inner, length = _opening(words[len(parts) :])
            return inner or opener, len(parts) + length
    return "", 0


def _stands_behind_opener(utterance: Utterance) -> bool:
    for opener, topical, as_question in OPENERS:
        if opener == utterance.opener:
            return utterance.topical >= topical and (utterance.is_question or not as_question)
    return True


def _points_back(utterance: Utterance, index: int) -> bool:
    words = utterance.words
    word, before, after = words[index].lower, _lower(words, index - 1), _lower(words, index + 1)
    if word in PERSONAL:
        return not _is_named_before(words, index) and not (word == "it" and _is_dummy(words, index))
    if word in POSSESSIVE:
        return not any(earlier.topical for earlier in words[:index])
    if word in DEMONSTRATIVE:
        return not (_is_named_before(words, index) or _names_it_itself(words, index))
    if word in ("that", "that's"):
        return _is_pronoun_that(words, index, before, after) and not _is_named_before(words, index)
    if word in ONE:
        return _is_pronoun_one(before, after)
    if word in ORDINALS:
        return _is_list_pointer(utterance, index)
    if word == "same":
        return before == "the" and after in ("", "for", "with", "on", "in", "thing", "way")
    if word == "there":
        dummy = before in ("is", "are", "was", "were", "if") or after in ("is", "are", "was")
        return not dummy and not _is_named_before(words, index)
    return word in BACKWARD and after != "of" and utterance.topical <= 2


def _lower(words: Sequence[Spoken], index: int) -> str:
    return words[index].lower if 0 <= index < len(words) else ""


def _is_named_before(words: Sequence[Spoken], index: int) -> bool:
    """Whether an earlier clause of the same question names a topic, which the pronoun then stands for."""
    breaks = [place for place in range(index) if words[place].ends_clause]
    return bool(breaks) and any(word.topical for word in words[: breaks[-1] + 1])


def _is_dummy(words: Sequence[Spoken], index: int) -> bool:
    """Whether ``it`` means nothing: *is it possible (for a user) to …*, *how long does it take to …*."""
    rest = words[index + 1 :]
    place = next((place for place, word in enumerate(rest) if word.lower == "to"), len(rest))
    reach = _LONGEST_FRAGMENT if "for" in [word.lower for word in rest[:place]] else _NEAR
    return place < min(reach, len(rest)) and any(word.topical for word in rest)


def _names_it_itself(words: Sequence[Spoken], index: int) -> bool:
    """Whether *these Frigate events* or *this: some message* says what is meant."""
    rest = words[index + 1 :]
    return (len(rest) > 1 and rest[0].topical and rest[1].topical) or sum(word.topical for word in rest) > 2


def _is_pronoun_that(words: Sequence[Spoken], index: int, before: str, after: str) -> bool:
    if words[index].lower != "that" or not after or after in PREPOSITIONS:
        return True
    return not before or before in AUXILIARIES or before in TAKES_THAT


def _is_pronoun_one(before: str, after: str) -> bool:
    if before in ("the", "which", "that", "this", "another", "other") or before in ORDINALS:
        # "the one camera" counts cameras, and "the one that …" explains itself.
        return not after or (after in STOP_WORDS and after not in ("that", "which", "who", "of"))
    return not after and bool(before) and before not in PREPOSITIONS


def _is_list_pointer(utterance: Utterance, index: int) -> bool:
    before, after = _lower(utterance.words, index - 1), _lower(utterance.words, index + 1)
    return before == "the" and after in ("", "one", "ones", "two", "is", "does", "do", "for")

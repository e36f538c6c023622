"""What of a question the words found say nothing about: completeness, judged without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from copilotd.index.analysis import QueryWord, analyse, analyse_query
from copilotd.types import Retrieval

# A word whose weight comes near the rarest one's tells what the question is about.
_RARE = 0.6
_HALF = 0.5


def uncovered_names(retrieval: Retrieval, texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the names in the question that none of ``texts`` holds, neighbours joined.

    A name is a word nearly as rare as the question's rarest, and written as one: an identifier, with digits,
    or with a capital. Of other words nothing is concluded: "spamming", in documents that call it "too many
    alerts", is a way of putting it, and "missing: put, onto" tells nobody anything.

    Args:
        retrieval: Of the question.
        texts: What was found, or said.
    """
    held = {token for text in texts for token in analyse(text)}
    corrected = {surface: analyse(known) for surface, known in retrieval.corrections.items()}
    most = max(retrieval.rarity.values(), default=0.0)
    names: list[list[str]] = []
    joined = False
    for number, word in enumerate(analyse_query(retrieval.query).words):
        tokens = corrected.get(word.surface) or list(word.tokens)
        weight = max((retrieval.rarity.get(token, 0.0) for token in tokens), default=0.0)
        name = not word.stop and weight >= _RARE * most and _is_name(word, first=number == 0)
        if not name or _holds(tokens, held):
            joined = False
            continue
        if joined:
            names[-1].append(word.surface)
        else:
            names.append([word.surface])
        joined = True
    return tuple(dict.fromkeys(" ".join(name) for name in names))


def uncovered_topics(topics: Sequence[str], texts: Iterable[str]) -> tuple[str, ...]:
    """Returns those of ``topics`` of whose words the texts hold less than half."""
    held = {token for text in texts for token in analyse(text)}
    missing = []
    for topic in topics:
        words = analyse_query(topic).content
        found = sum(_holds(list(word.tokens), held) for word in words)
        if not words or found < _HALF * len(words):
            missing.append(topic)
    return tuple(missing)


def _holds(tokens: Sequence[str], held: set[str]) -> bool:
    return bool(tokens) and (tokens[0] in held or (len(tokens) > 1 and all(t in held for t in tokens[1:])))


def _is_name(word: QueryWord, *, first: bool) -> bool:
    surface = word.surface
    return word.identifier or any(c.isdigit() for c in surface) or (surface[:1].isupper() and not first)

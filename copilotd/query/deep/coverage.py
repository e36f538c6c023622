"""What of a question the words found say nothing about: completeness, judged without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from copilotd.index.analysis import QueryWord, analyse, analyse_query
from copilotd.types import IndexReader, Retrieval, Scope

# A word whose weight comes near the rarest one's tells what the question is about.
_RARE = 0.6
_HALF = 0.5


def unheard_of(retrieval: Retrieval, index: IndexReader, scope: Scope) -> frozenset[str]:
    """Returns the question's tokens that no document holds."""
    frequencies = index.document_frequencies(tuple(retrieval.rarity), scope)
    return frozenset(token for token, count in frequencies.items() if not count)


def uncovered_words(
    retrieval: Retrieval, texts: Iterable[str], unheard: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Returns the telling words of the question that none of ``texts`` holds, neighbours joined.

    A word counts as telling when it is nearly as rare as the rarest and either stands somewhere in the
    documents or is written as a name: "spamming", in documents that call it "too many alerts", is a way
    of putting it, which no search finds.

    Args:
        retrieval: Of the question.
        texts: What was found, or said.
        unheard: The question's tokens that no document holds.
    """
    held = {token for text in texts for token in analyse(text)}
    corrected = {surface: analyse(known) for surface, known in retrieval.corrections.items()}
    words = analyse_query(retrieval.query).words
    most = max(retrieval.rarity.values(), default=0.0)
    topics: list[list[str]] = []
    joined = False
    for number, word in enumerate(words):
        tokens = corrected.get(word.surface) or list(word.tokens)
        weight = max((retrieval.rarity.get(token, 0.0) for token in tokens), default=0.0)
        telling = not word.stop and weight >= _RARE * most
        known = tokens[0] not in unheard
        if not telling or _holds(tokens, held) or not (known or _is_name(word, first=number == 0)):
            joined = False
            continue
        if joined:
            topics[-1].append(word.surface)
        else:
            topics.append([word.surface])
        joined = True
    return tuple(dict.fromkeys(" ".join(topic) for topic in topics))


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


def is_named(topic: str) -> bool:
    """Returns whether a topic is written as a name: an identifier, with digits or a capital.

    Only such a one is told to the reader as missing. Common words are rare in many documents, and "what is
    missing: put, onto" tells nobody anything.
    """
    return any(_is_name(word, first=False) for word in analyse_query(topic).words)


def _holds(tokens: Sequence[str], held: set[str]) -> bool:
    return bool(tokens) and (tokens[0] in held or (len(tokens) > 1 and all(t in held for t in tokens[1:])))


def _is_name(word: QueryWord, *, first: bool) -> bool:
    surface = word.surface
    return word.identifier or any(c.isdigit() for c in surface) or (surface[:1].isupper() and not first)

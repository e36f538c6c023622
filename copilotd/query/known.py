"""A question's words as the corpus knows them: how rare each is, and near words for misspelt ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import regex as re
from rapidfuzz import process
from rapidfuzz.distance import OSA

from copilotd.index.analysis import QueryTerms, QueryWord, analyse
from copilotd.types import IndexReader, Scope

_GUESSED = 0.5
"""What a corrected word counts where it stands: the guess may be wrong."""
_PARTS = 0.5
"""What all parts of an identifier count where the whole does not stand."""

Spelt = Callable[[], Collection[str] | None]

_WORD = re.compile(r"[^\W\d_]+")


class KnownWords:
    """The words of one question against one scope of the index.

    Attributes:
        asked: As they were typed.
        terms: What is searched: misspelt words replaced by near ones.
        corrections: Words as typed → the words searched instead, as documents write them.
    """

    def __init__(self, asked: QueryTerms, index: IndexReader, scope: Scope, spelt: Spelt) -> None:
        """Looks the words up.

        Args:
            asked: The question's words.
            index: One view of the index.
            scope: Where a word must stand to be known.
            spelt: Gives the words, in lower case, that are right whatever the corpus says, or None where
                nobody knows; asked only where a word is unknown.
        """
        self._chunks = max(index.chunk_count(scope), 1)
        self._frequencies = index.document_frequencies(asked.tokens, scope)
        self._guessed: set[str] = set()
        self.corrections: dict[str, str] = {}
        self.asked = asked
        self.terms = QueryTerms(tuple(self._corrected(word, index, scope, spelt) for word in asked.words))
        self._content = tuple((word, self.word_rarity(word)) for word in self.terms.content)

    def _corrected(self, word: QueryWord, index: IndexReader, scope: Scope, spelt: Spelt) -> QueryWord:
        if not _may_be_misspelt(word) or any(self._frequencies.get(token) for token in word.tokens):
            return word
        right = spelt()
        if right is not None and word.surface.lower() in right:
            return word
        # The vocabulary is that of all scopes.
        near = nearest_terms(word.tokens[0], index.vocabulary())
        found = index.document_frequencies(near, scope)
        best = next((term for term in near if found[term]), "")
        if not best:
            return word
        self.corrections[word.surface] = _as_written(best, index, scope)
        self._frequencies[best] = found[best]
        self._guessed.add(best)
        return replace(word, tokens=(best,))

    def corrected(self, query: str) -> str:
        """Returns ``query`` with the corrections made."""
        for typed, meant in self.corrections.items():
            # A stem or a word of a document: letters only, so nothing in it is read as a group.
            query = re.sub(rf"(?<!\w){re.escape(typed)}(?!\w)", meant, query)
        return query

    def rarity(self, token: str) -> float:
        """The weight of a token: high for rare ones, highest for unknown ones."""
        return math.log((self._chunks + 1) / (self._frequencies.get(token, 0) + 0.5))

    def word_rarity(self, word: QueryWord) -> float:
        """The weight, 0..1 of what an unknown word has, of the rarest token of a word."""
        return max((self.rarity(token) for token in word.tokens), default=0.0) / self.rarity("")

    def weights(self) -> dict[str, float]:
        """Each deciding token's rarity."""
        return {token: self.rarity(token) for token in self.terms.tokens}

    def covered(self, tokens: Collection[str]) -> float:
        """The rarity-weighted share, 0..1, of the deciding words that ``tokens`` holds."""
        total = found = 0.0
        for word, weight in self._content:
            total += weight
            found += weight * self._held(word, tokens)
        return found / total if total else 0.0

    def _held(self, word: QueryWord, tokens: Collection[str]) -> float:
        """How much of a word stands there: all of it, or for an identifier a part of its parts."""
        if word.tokens[0] in tokens:
            return _GUESSED if word.tokens[0] in self._guessed else 1.0
        parts = word.tokens[1:]
        return _PARTS * sum(part in tokens for part in parts) / len(parts) if parts else 0.0

    def share_known(self) -> float:
        """The share, 0..1, of the deciding tokens that stand anywhere in the scope."""
        tokens = self.terms.tokens
        return sum(self._frequencies.get(token, 0) > 0 for token in tokens) / len(tokens) if tokens else 0.0

    def rarest_missing(self, passages: Sequence[Collection[str]]) -> float:
        """The rarity, 0..1 of what an unknown word has, of the rarest deciding word that no passage holds."""
        return max(
            (
                rarity * (1 - max((self._held(word, tokens) for tokens in passages), default=0.0))
                for word, rarity in self._content
            ),
            default=1.0,
        )


def nearest_terms(token: str, vocabulary: Mapping[str, int]) -> list[str]:
    """Returns the known words within one typing slip (two for a long word), the likeliest first.

    Slips are insertions, deletions, substitutions and swaps of neighbours; the first letter is
    taken as right, which is where people err least and what keeps ``restic`` from becoming ``static``.
    """
    allowed = 1 if len(token) < 8 else 2
    near = process.extract(
        token,
        [
            term
            for term in vocabulary
            if term[0] == token[0] and abs(len(term) - len(token)) <= allowed and term.isalpha()
        ],
        scorer=OSA.distance,
        score_cutoff=allowed,
        limit=20,
    )
    return [
        term
        for _, _, term in sorted(
            (distance, -vocabulary[candidate], candidate) for candidate, distance, _ in near
        )
    ]


def _may_be_misspelt(word: QueryWord) -> bool:
    token = word.tokens[0]
    if len(word.tokens) > 1 or word.stop or not word.surface.isalpha():
        return False
    # A short stem with a regular ending ("spammed") is a word, though one the corpus doesn't use.
    return len(token) > 4 or (len(token) == 4 and len(word.surface) == 4)


def _as_written(stem: str, index: IndexReader, scope: Scope) -> str:
    """Returns the first word with this stem as the best documents for it write it; the stem where none does."""
    best = [hit.chunk_id for hit in index.search_keywords([stem], 3, scope)]
    for chunk in index.load_chunks(best).values():
        for word in _WORD.findall(chunk.text):
            if word[:1].lower() == stem[:1] and analyse(word) == [stem]:
                return str(word).lower()
    return stem

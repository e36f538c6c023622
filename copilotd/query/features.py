"""The evidence that the first passage answers the question: what the gate reads.

Every number is raw, never a rank: it says how good the best passage is, not that it is the best.
:mod:`copilotd.query.gate` says what each feature means and how they become a probability.
"""

from __future__ import annotations

import statistics
import unicodedata
from collections.abc import Sequence

import numpy as np

from copilotd.index.analysis import STOP_WORDS, analyse
from copilotd.query.known import KnownWords
from copilotd.types import Float32Array, Hit, StoredChunk

FELLOWS = 4
"""So many of the best hits may tell the same; what follows them is the background."""


def features(
    hits: Sequence[Hit],
    known: KnownWords,
    cosines: Sequence[float],
    tokens: Sequence[str],
    near: Sequence[Float32Array],
) -> dict[str, float]:
    """Returns the evidence; empty where nothing was found.

    Args:
        hits: Every hit that was scored, best first.
        known: The question's words.
        cosines: Of all candidates, in any order.
        tokens: The question's tokens as the model cut it, corrections made; empty without late interaction.
        near: For each hit in order the similarity of each of these tokens with the hit's nearest one;
            empty where the best hit has none.
    """
    if not hits:
        return {}
    cosine = hits[0].dense or 0.0
    if known.terms.only_stop_words:
        # "How do I do it": every passage holds such words, which is no evidence.
        return {"cosine": cosine, "coverage": 0.0, "rarest_held": 0.0, "known": 0.0}
    held = frozenset(_all_tokens(hits[0].chunk))
    evidence = {
        "cosine": cosine,
        "coverage": known.covered(held),
        "rarest_held": 1 - known.rarest_missing([held]),
        "known": known.share_known(),
        "asked": max(map(known.word_rarity, known.terms.content), default=0.0),
    }
    if near:
        evidence |= _met(known, tokens, near)
        evidence["margin"] = cosine - statistics.median(cosines) if cosines else 0.0
    return evidence


def _met(known: KnownWords, tokens: Sequence[str], near: Sequence[Float32Array]) -> dict[str, float]:
    best = near[0]
    deciding_words = frozenset(known.terms.content)
    weighted = missing = total = 0.0
    counted = 0
    for word, of_word in zip(known.terms.words, align(known, tokens), strict=True):
        if not of_word or word not in deciding_words:
            continue
        rarity = known.word_rarity(word)
        similar = float(best[of_word].mean())
        weighted += rarity * similar
        missing += rarity * (1 - similar)
        total += rarity
        counted += 1
    deciding = [n for n, token in enumerate(tokens) if token not in STOP_WORDS] or list(range(len(tokens)))
    lead = 0.0
    if len(near) > FELLOWS:
        background = np.max(np.stack(near[FELLOWS:])[:, deciding], axis=0)
        lead = float((best[deciding] - background).mean())
    return {
        "met": weighted / total if total else 0.0,
        "missing": missing / counted if counted else 1.0,
        "lead": lead,
    }


def align(known: KnownWords, tokens: Sequence[str]) -> list[list[int]]:
    """Returns for each word of the question the positions of the tokens it was cut into; none where they can't be told.

    Both sides are in the question's order, and a word's tokens spell it.
    """
    starts: list[int] = []
    text = ""
    for token in map(_folded, tokens):
        starts.append(len(text))
        text += token
    found: list[list[int]] = []
    behind = 0
    for word in known.terms.words:
        letters = _letters(_folded(known.corrections.get(word.surface, word.surface)))
        at = text.find(letters, behind) if letters else -1
        if at < 0:
            found.append([])
            continue
        behind = at + len(letters)
        found.append([n for n, start in enumerate(starts) if at <= start < behind])
    return found


def _folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def _letters(text: str) -> str:
    return "".join(character for character in text if character.isalnum())


def _all_tokens(chunk: StoredChunk) -> list[str]:
    return analyse("\n".join((chunk.title, *chunk.metadata.heading_path, chunk.context, chunk.text)))

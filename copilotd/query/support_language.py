"""Whether two texts are in one language, told by their commonest words and their script.

Only used to leave out a comparison of words that could not succeed; where there is doubt the languages are
the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import regex as re

_FEWEST = 2
_LATIN = re.compile(r"\p{Latin}")
_LETTER = re.compile(r"\p{L}")
_WORD = re.compile(r"\p{L}+")

_COMMON = {
    "en": "the of to and is are in that it for with as on be this by from or an you not which can your if when",
    "de": "der die das und ist nicht mit ein eine zu den von dem auf für wird werden sich auch im sie oder wenn aus",
    "fr": "le la les des et est un une pour dans pas que qui sur avec ce il du vous au sont ou être votre cette",
    "es": "el los las del y es una para en no que por con se su como al lo más este está puede son o si",
    "it": "il lo gli della di e è un una per in non che con si del le nel come più questo può sono da alla",
    "pt": "o os as do da e é um uma para em não que por com se ao mais como dos este pode são ou seu",
    "nl": "de het een en is van in dat niet met op voor zijn je te aan er om als ook door worden kan bij",
}
_SETS = {language: frozenset(words.split()) for language, words in _COMMON.items()}


def same_language(sentence: str, passages: Iterable[str]) -> bool:
    """Returns False only where the sentence is clearly in another language or script than every passage."""
    said = _language(sentence)
    if not said:
        return True
    found = {_language(passage) for passage in passages}
    return said in found or "" in found or not found


@lru_cache(maxsize=256)
def _language(text: str) -> str:
    """Returns a language of ``_COMMON``, ``other`` for another script, an empty string where it isn't clear."""
    letters = _LETTER.findall(text)
    if not letters:
        return ""
    if len(_LATIN.findall(text)) * 2 < len(letters):
        return "other"
    words = _WORD.findall(text.casefold())
    counts = sorted(
        ((sum(word in common for word in words), name) for name, common in _SETS.items()), reverse=True
    )
    (most, language), (second, _) = counts[:2]
    # "is", "in", "die"… are common in several; a clear lead is asked for.
    return language if most >= _FEWEST and most >= second + 2 else ""

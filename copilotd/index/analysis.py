"""Words as the keyword index sees them.

One analyser serves documents and questions, so that both sides agree on what a word is:

* an identifier is kept whole **and** split: ``--dry-run`` gives ``--dry-run dri run``, and
  ``BORG_REPO`` gives ``borg_repo borg repo``, so that the exact name wins and half of it still finds it;
* plain words are lower-cased, lose their diacritics and are stemmed (Snowball English);
* scripts written without blanks (Chinese, Japanese, Korean, Thai…) become single characters and pairs;
* zero-width characters and soft hyphens don't exist, a no-break space is a blank.

A question is data: :func:`analyse_query` yields tokens of letters, digits and a few joiners, and
:func:`copilotd.index.keywords.postings` quotes them, so nothing in it can act as query syntax.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import snowballstemmer

ANALYSER_VERSION = 2

_MAX_TOKEN = 64
"""Longer runs are keys, hashes and base64: nobody types them, and they would swell the index."""
_MAX_CACHED_PIECE = 48

_IGNORED = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u200f"))
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_RUN = re.compile(
    rf"""(?:(?<![\w-])--?(?=[^\W\d_]))?         # the dashes of an option
         (?:[^\W{_UNSPACED}]+
            (?:(?:(?<=\d),(?=\d{{3}}\b) | ://? | ::? | [-.@/\\+'’&])[^\W{_UNSPACED}]+)*
            (?:\+\+|\#(?!\w))?                  # C++, C#
         )
       | [{_UNSPACED}]+""",
    re.VERBOSE,
)
_PARTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CONTRACTION = re.compile(r"([a-z]+)'(?:s|t|re|ve|ll|d|m)")

_COMMON = """
a about above after again against ain all also am an and any are aren as at be because been before
being below between both but by can cannot cant could couldn did didn didnt do does doesn doesnt
doing don dont down during each few for from further had hadn has hasn have haven having he her
here hers herself him himself his how hows i id if im in into is isn isnt it its itself ive just
lets ll many may me might mightn more most much mustn my myself needn no nor not now of off on once
only or other our ours ourselves out over own please re s same shall shan she should shouldn
shouldnt so some such t than that the their theirs them themselves then there theres these they
this those through to too under until up ve very was wasn wasnt we were weren what whats when where
which while who whom why will with won wont would wouldn wouldnt you your youre yours yourself
yourselves
"""
STOP_WORDS = frozenset(_COMMON.split())
"""Words that tell no passages apart; dropped from a question unless nothing else is left."""

_stem_word = snowballstemmer.stemmer("english").stemWord
_stemming = threading.Lock()


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    # The stemmer keeps the word it works on in itself: two threads in it give wrong stems, or an IndexError.
    with _stemming:
        return str(_stem_word(word))


@dataclass(frozen=True, slots=True)
class QueryWord:
    """One word of a question.

    Attributes:
        surface: As it was typed.
        tokens: What to look for: the whole identifier first, then its parts; for a plain word its stem.
        stop: Whether it is too common to tell passages apart.
    """

    surface: str
    tokens: tuple[str, ...]
    stop: bool

    @property
    def identifier(self) -> bool:
        """Whether it is kept whole as well as split (an option, a path, a version, a name)."""
        return len(self.tokens) > 1


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A question as the keyword index sees it.

    Attributes:
        words: Every word in order, stop words included.
    """

    words: tuple[QueryWord, ...]

    @property
    def content(self) -> tuple[QueryWord, ...]:
        """The words that decide: all but stop words, or all where nothing else is left."""
        return tuple(word for word in self.words if not word.stop) or self.words

    @property
    def only_stop_words(self) -> bool:
        """Whether nothing in the question tells passages apart."""
        return all(word.stop for word in self.words)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the deciding words, each once."""
        return tuple(dict.fromkeys(token for word in self.content for token in word.tokens))

    @property
    def phrases(self) -> tuple[tuple[str, ...], ...]:
        """Deciding words that stand side by side in the question, as pairs of tokens."""
        pairs = (
            (left.tokens[-1], right.tokens[0])
            for left, right in pairwise(self.words)
            if not (left.stop or right.stop)
        )
        return tuple(dict.fromkeys(pairs))


def analyse(text: str) -> list[str]:
    """Returns the tokens of ``text`` in order, for indexing."""
    tokens: list[str] = []
    for piece in _clean(text).split():
        tokens.extend(_piece_tokens(piece) if len(piece) <= _MAX_CACHED_PIECE else _tokens(piece))
    return tokens


def analyse_query(text: str) -> QueryTerms:
    """Returns the words of a question; any text is a question."""
    words: list[QueryWord] = []
    for match in _RUN.finditer(_clean(text)):
        run = match.group()
        tokens = _query_tokens(run)
        if tokens:
            stop = len(tokens) == 1 and (run.lower() in STOP_WORDS or _plain(run) in STOP_WORDS)
            words.append(QueryWord(run, tokens, stop))
    return QueryTerms(tuple(words))


def _clean(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_IGNORED)


@lru_cache(maxsize=1 << 16)
def _piece_tokens(piece: str) -> tuple[str, ...]:
    return _tokens(piece)


def _tokens(piece: str) -> tuple[str, ...]:
    return tuple(token for match in _RUN.finditer(piece) for token in _run_tokens(match.group()))


def _run_tokens(run: str) -> Iterator[str]:
    if _UNSPACED_RUN.match(run):
        for index, character in enumerate(run):
            yield character
            if index + 1 < len(run):
                yield run[index : index + 2]
        return
    plain = _plain(run)
    if plain:
        yield _stem(plain)
        return
    whole = _fold(run.lower()).replace("'", "").replace("’", "")
    if len(whole) <= _MAX_TOKEN:
        yield whole
    for part in _PARTS.findall(run):
        yield from _part_tokens(part, alone=part == run)


def _part_tokens(part: str, *, alone: bool) -> Iterator[str]:
    """Yields the tokens of one unbroken run of letters and digits inside an identifier."""
    folded = _fold(part.lower())
    if not alone and len(folded) <= _MAX_TOKEN:
        yield _stem(folded) if folded.isalpha() else folded
    humps = _CAMEL.findall(part) if part.isascii() else []
    if len(humps) > 1 and len(part) <= _MAX_TOKEN and _is_camel(part):
        for hump in humps:
            yield _stem(hump.lower())


def _query_tokens(run: str) -> tuple[str, ...]:
    """The tokens of a question's run; of a script without blanks only the pairs, which say more."""
    if _UNSPACED_RUN.match(run) and len(run) > 1:
        return tuple(dict.fromkeys(run[index : index + 2] for index in range(len(run) - 1)))
    tokens = tuple(dict.fromkeys(_run_tokens(run)))
    # The "1" of "v2.0.1" stands everywhere; the whole is what was meant.
    return tokens[:1] + tuple(token for token in tokens[1:] if len(token) > 1)


def _plain(run: str) -> str:
    """Returns the folded word where ``run`` is an ordinary one, else an empty string."""
    lower = run.lower()
    if "'" in lower or "’" in lower:
        contraction = _CONTRACTION.fullmatch(lower.replace("’", "'"))
        if contraction:
            return contraction[1] if lower.endswith("s") else lower.replace("'", "").replace("’", "")
        return ""
    if len(run) > _MAX_TOKEN or not lower.isalpha() or _is_camel(run):
        return ""
    return _fold(lower)


def _is_camel(run: str) -> bool:
    return run.isascii() and any(before.islower() and after.isupper() for before, after in pairwise(run))


def _fold(text: str) -> str:
    """Drops the diacritics of letters whose base is ASCII; leaves every other script alone."""
    if text.isascii():
        return text
    out: list[str] = []
    for character in text:
        base = unicodedata.normalize("NFKD", character)[0]
        out.append(base if base.isascii() else character)
    return "".join(out)

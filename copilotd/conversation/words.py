"""The words by which a question shows that it leans on what was said before."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ASIDES = _words("thanks thank great cool nice hm hmm well sorry please ah oh")
"""Said before a question, without a meaning for it."""

OPENERS: tuple[tuple[str, int, bool], ...] = (
    ("what about", 4, False),
    ("how about", 4, False),
    ("what if", 3, False),
    ("same", 3, True),
    ("and", 2, True),
    ("but", 2, True),
    ("or", 2, True),
    ("also", 2, True),
    ("plus", 2, True),
    ("instead", 2, True),
    ("then", 1, True),
    ("so", 1, True),
    ("ok", 1, True),
    ("okay", 1, True),
    ("yes", 1, True),
    ("no", 1, True),
)
"""Beginnings that go on with a topic; behind them a question stands alone when it has this many topical words
and, where that is asked, is put as a whole question."""

QUESTION_WORDS = _words(
    "how what where which when why who whose is are does do can could should would will did was were has have"
)

PREPOSITIONS = _words(
    "on in for with without from to at by via using under over through inside outside during before after "
    "between against per"
)

PERSONAL = _words("it them they he she him her")
POSSESSIVE = _words("its their his hers theirs")
DEMONSTRATIVE = _words("this these those")
ARTICLES = _words("a an the my your our")
ONE = frozenset(("one", "ones"))

ORDINALS = {
    "first": 0, "1st": 0, "second": 1, "2nd": 1, "third": 2, "3rd": 2, "fourth": 3, "4th": 3, "fifth": 4,
    "5th": 4, "last": -1, "former": 0, "latter": -1, "other": 1,
}  # fmt: skip
"""Words that point into a list, and which of its items they mean."""

BACKWARD = _words("instead else otherwise former latter previous aforementioned likewise")
"""Words that mean something said before wherever they stand."""

AUXILIARIES = _words(
    "is are was were does do did can could should would will has have why how when if what whether"
)
"""Words behind which ``that`` stands for a thing instead of beginning a clause."""

TAKES_THAT = _words(
    "undo make change use set fix disable enable configure avoid prevent revert stop start need want run move delete "
    "remove add test handle install explain repair try increase reduce skip cancel speed turn get about after before "
    "like with for from on of than to"
)
"""Words whose object ``that`` is, when more than little words follow."""

GENERIC = _words(
    "default defaults option options flag flags limit limits example examples difference differences syntax format "
    "value values command commands setting settings step steps reason reasons error errors alternative alternatives "
    "risk risks advantage advantages disadvantage disadvantages detail details way ways thing things case cases "
    "fast faster fastest slow slower slowest best better worse safe safer secure cheap long longer short shorter big "
    "bigger small smaller large larger often automatically manually twice once every time times everything first "
    "second third last next possible impossible necessary required optional recommended normal different "
    "important difficult hard easy easier common useful good "
    "disable disabled enable enabled undo revert turn change changed changes use used uses using work works working "
    "set stop start do does need needs needed fix remove delete configure install uninstall happen happens happened "
    "mean means matter make test tests check show give tell explain see try know want get let look find "
    "support supported allow allowed detected repair forgot lost fail fails failed missing wrong exactly really "
    "actually there here sure ok okay thanks please mode name names kind type types part side place part other "
    "another same rest both either neither none yes no one two three"
)
"""Words that ask about a topic without naming one."""

CLAUSE_BREAKS = _words("and then if when after before because while but or so once that which who since")

"""What a reader of rendered Markdown does not see: HTML and JSX tags, comments, scripts."""

from __future__ import annotations

from bisect import bisect_left

# Not the standard library's: before Python 3.11.5 its possessive quantifiers match wrongly around groups (gh-106052).
import regex as re


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_INLINE_ELEMENTS = _names(
    """
    a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q rb rp rt
    ruby s samp small span strike strong sub sup time tt u var wbr
    """
)
_BLOCK_ELEMENTS = _names(
    """
    address applet area article aside audio base basefont blockquote body br button canvas caption
    center circle col colgroup datalist dd defs details dialog dir div dl dt ellipse embed fieldset
    figcaption figure footer form frame frameset g h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe
    img input legend li line link main map math menu menuitem meta meter nav noframes noscript object ol
    optgroup option output p param path picture polygon polyline portal pre progress rect script search
    section select slot source stop style summary svg table tbody td template text textarea tfoot th
    thead title tr track tspan ul use video
    """
)
_ELEMENTS = _INLINE_ELEMENTS | _BLOCK_ELEMENTS
_UNSEEN_ELEMENTS = frozenset(("script", "style"))
_BOOLEANS = _names(
    """
    allowfullscreen async autofocus autoplay checked controls default defer disabled hidden inert ismap
    loop multiple muted novalidate open playsinline readonly required reversed selected
    """
)
# Attributes of components that a reader sees as text; of HTML elements only an image's alt is one.
_SEEN_ATTRIBUTES = ("alt", "caption", "header", "heading", "label", "path", "question", "summary", "title")

_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\})*+\}"
_VALUE = rf"\"[^\"]*+\"|'[^']*+'|{_BRACES}|[^\s\"'=<>`{{}}]++"
_ATTRIBUTE = rf"\s++(?:[A-Za-z_:@][\w.:@-]*+(?:\s*+=\s*+(?:{_VALUE}))?+|{_BRACES})"
TAG = re.compile(rf"<(?P<close>/?)(?P<name>[A-Za-z][\w.:-]*+)(?P<attributes>(?:{_ATTRIBUTE})*+)\s*+/?>")
_ATTRIBUTE_PARTS = re.compile(
    rf"\s++(?:(?P<name>[A-Za-z_:@][\w.:@-]*+)(?:\s*+=\s*+(?P<value>{_VALUE}))?+|{_BRACES})"
)
_OPENERS = re.compile(r"`+|\\[\\`<{]|<!--|\{/\*|<(?=[A-Za-z/?!>])")
_COMPONENT = re.compile(
    r"</([A-Z][\w.]*+|[a-z]\w*-[\w.-]*+)\s*+>|<([A-Z][\w.]*+)(?:\s(?:[^<>\"'{}/]|/(?!>)|\"[^\"]*+\"|'[^']*+'|"
    + _BRACES
    + r")*+)?/>"
)
_DECLARATION = re.compile(r"<![A-Za-z]|<\?")
_CLOSERS = {"<!--": "-->", "{/*": "*/}", "<!": ">", "<?": "?>"}


def component_names(source: str) -> frozenset[str]:
    """Returns the components a file uses: capitalised or hyphenated names that are closed in it.

    ``<Name>`` that is never closed, or ``<NAME>``, is a placeholder its author wants to be read.
    """
    if "<" not in source:
        return frozenset()
    names = {closed or single for closed, single in _COMPONENT.findall(source)}
    return frozenset(name for name in names if not (len(name) > 1 and name.isupper()))


def is_tag(match: re.Match[str], components: frozenset[str]) -> bool:
    """Tells whether a match of :data:`TAG` is markup, not a placeholder such as ``<your name>``."""
    name = match["name"]
    if name not in components and name.lower() not in _ELEMENTS:
        return False
    if match["close"] and match["attributes"]:
        return False
    return all(
        part["value"] is not None
        or part["name"] is None
        or name in components
        or part["name"].lower() in _BOOLEANS
        for part in _ATTRIBUTE_PARTS.finditer(match["attributes"])
    )


def strip_markup(text: str, components: frozenset[str]) -> str:
    """Returns ``text`` without tags and comments; the number of lines stays the same.

    Code spans are left as they are. Words between tags stay, as do the attributes of components that are
    shown to a reader (``title``, ``label``…).
    """
    pieces: list[str] = []
    kept = position = 0
    spans: dict[int, list[int]] | None = None
    never_closed: set[str] = set()
    while opener := _OPENERS.search(text, position):
        start, mark = opener.start(), opener.group()
        position = opener.end()
        if mark[0] == "\\":
            continue
        if mark[0] == "`":
            if spans is None:
                spans = _backtick_runs(text)
            # Behind an escaped backtick the opening run is shorter than any run that was counted.
            runs = spans.get(len(mark), [])
            following = bisect_left(runs, position)
            if following < len(runs):
                position = runs[following] + len(mark)
            continue
        if mark == "<" and _DECLARATION.match(text, start):
            mark = text[start : start + 2]
        if closer := _CLOSERS.get(mark):
            if closer in never_closed:
                continue
            # "<!-->" and "<!--->" are whole comments (CommonMark 0.31).
            end = text.find(closer, start + 2 if mark == "<!--" else position)
            if end < 0:
                never_closed.add(closer)
                continue
            replacement, end = "", end + len(closer)
        elif text.startswith("<>", start) or text.startswith("</>", start):
            if not components:
                continue
            replacement, end = "", text.index(">", start) + 1
        elif tag := TAG.match(text, start):
            if not is_tag(tag, components):
                continue
            replacement, end = _seen_of(tag, components), tag.end()
            if tag["name"].lower() in _UNSEEN_ELEMENTS and not tag["close"] and not tag[0].endswith("/>"):
                closing = re.compile(rf"</{tag['name']}\s*>", re.IGNORECASE).search(text, end)
                end = closing.end() if closing else len(text)
        else:
            continue
        pieces.append(text[kept:start])
        pieces.append(replacement + "\n" * (text.count("\n", start, end) - replacement.count("\n")))
        kept = position = end
    if not pieces:
        return text
    pieces.append(text[kept:])
    return "".join(pieces)


def _backtick_runs(text: str) -> dict[int, list[int]]:
    runs: dict[int, list[int]] = {}
    for match in re.finditer("`+", text):
        runs.setdefault(match.end() - match.start(), []).append(match.start())
    return runs


def _seen_of(tag: re.Match[str], components: frozenset[str]) -> str:
    """Returns what is shown in the place of a tag, each word on its own line."""
    name = tag["name"]
    seen: tuple[str, ...]
    if name in components:
        seen = _SEEN_ATTRIBUTES
    elif name.lower() == "img":
        seen = ("alt",)
    else:
        return "" if name.lower() in _INLINE_ELEMENTS else " "
    shown = [" "]
    attributes = tag["attributes"]
    position = 0
    for part in _ATTRIBUTE_PARTS.finditer(attributes):
        value = part["value"]
        if value and (part["name"] or "").lower().endswith(seen) and (words := _words_of(value, components)):
            shown.append("\n" * attributes.count("\n", position, part.start("value")))
            shown.append(words + " ")
            position = part.end("value")
    return "".join(shown)


def _words_of(value: str, components: frozenset[str]) -> str:
    """Returns the words of an attribute's value: a string, a bare word, a string in braces, or JSX in braces."""
    if value[0] not in "{\"'":
        return value
    inner = value[1:-1] if value[0] == "{" else value
    stripped = inner.strip()
    if stripped[:1] == "<":
        return strip_markup(inner, components)
    if len(stripped) > 1 and stripped[0] in "\"'`" and stripped[0] == stripped[-1]:
        return inner.replace(stripped, re.sub(r"\\(?=[\"'`])", "", stripped[1:-1]))
    return ""

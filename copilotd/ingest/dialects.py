"""Block syntax beyond CommonMark that documentation is written in, as markdown-it rules.

``!!!``/``???`` admonitions and ``===`` content tabs (Python-Markdown, MkDocs), ``:::`` directives
(Docusaurus, VitePress, MyST), and MDX: ESM statements, JSX comments, lines of JSX tags.
"""

from __future__ import annotations

# Not the standard library's: before Python 3.11.5 its possessive quantifiers match wrongly around groups (gh-106052).
import regex as re
from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock, html_block

from copilotd.ingest.markup import TAG, is_tag

_CONTAINER = re.compile(r"(?:!!!|\?\?\?\+?)[ \t]+[\w\"']|===[!+]?[ \t]+[\"']")
_DIRECTIVE = re.compile(r":{3,}[ \t]*(?:[\w{\[].*)?$")

_IMPORT = re.compile(
    r"import\b(?:[ \t][\w$*,{} \t]*?(?:[ \t]|(?<=\}))from|[\w$, \t]*+\{[\w$,\s]{0,2000}+\}\s*from)?\s*+"
    r"(?P<quote>['\"])[^'\"\n]+(?P=quote)[ \t]*;?[ \t]*(?://[^\n]*)?(?=\n|$)"
)
_EXPORT = re.compile(
    r"export\s+(?:(?:const|let|var)\s+[\w${\[]|(?:default\s+)?(?:async\s+)?function\b\s*\*?\s*[\w$]*\s*\(|(?:default\s+)?class\s+[\w$]+[^\n]*\{|"
    r"\{[^}\n]*\}|\*\s+(?:as\s+[\w$]+\s+)?from\s|default\s+(?:[({\[<]|[\w$.]+[ \t]*;?[ \t]*(?:\n|$)))"
)
_BRACKETS = re.compile(
    r"\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|`(?:[^`\\]|\\.)*+`|//[^\n]*|/\*.*?\*/|[(\[{]|[)\]}]|\n",
    re.DOTALL,
)
_MAX_STATEMENT = 5_000
_MDX_HTML = re.compile(r"<!--|<(?:script|style|pre|textarea)\b", re.IGNORECASE)


def use_dialects(parser: MarkdownIt, *, mdx: bool) -> None:
    """Adds the rules to ``parser``; with ``mdx`` it reads no indented code and no HTML blocks."""
    ruler = parser.block.ruler
    interrupts: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    ruler.before("table", "esm", _esm)
    ruler.before("table", "jsx_comment", _jsx_comment)
    ruler.before("fence", "indented_container", _indented_container, interrupts)
    ruler.before("fence", "directive", _directive, interrupts)
    ruler.before("html_block", "jsx_tags", _jsx_tags, interrupts)
    if mdx:
        ruler.at("html_block", _html_block_in_mdx, interrupts)
        parser.disable("code")


def _first(state: StateBlock, line: int) -> int:
    return state.bMarks[line] + state.tShift[line]


def _leaf(state: StateBlock, kind: str, start: int, end: int) -> bool:
    state.line = end
    token = state.push(kind, "", 0)
    token.map = [start, end]
    return True


def _indented_container(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    first = _first(state, start)
    if state.src[first : first + 3] not in ("!!!", "???", "===") or state.is_code_block(start):
        return False
    if not _CONTAINER.match(state.src, first, state.eMarks[start]):
        return False
    if silent:
        return True
    indent = state.sCount[start] + 4
    last = line = start + 1
    while line < end:
        if not state.isEmpty(line):
            if state.sCount[line] < indent:
                break
            last = line + 1
        line += 1
    state.push("container_open", "", 1).map = [start, last]
    _leaf(state, "container_title", start, start + 1)
    parent, line_max, block_indent = state.parentType, state.lineMax, state.blkIndent
    state.parentType, state.lineMax, state.blkIndent = "container", last, indent
    state.md.block.tokenize(state, start + 1, last)
    state.parentType, state.lineMax, state.blkIndent = parent, line_max, block_indent
    state.push("container_close", "", -1)
    state.line = last
    return True


def _directive(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    first = _first(state, start)
    if not state.src.startswith(":::", first) or state.is_code_block(start):
        return False
    line = state.src[first : state.eMarks[start]].rstrip()
    if not _DIRECTIVE.match(line):
        return False
    if not silent:
        _leaf(state, "directive", start, start + 1)
        state.tokens[-1].meta["closes"] = not line.strip(":")
    return True


def _line_of(state: StateBlock, start: int, end: int, position: int) -> int:
    line = start
    while line < end and state.eMarks[line] < position:
        line += 1
    return line


def _jsx_comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    first = _first(state, start)
    if not state.src.startswith("{/*", first) or state.is_code_block(start):
        return False
    if first < state.env.get("comment_open_from", len(state.src)):
        close = state.src.find("*/}", first + 3)
        if close < 0:
            state.env["comment_open_from"] = first
    else:
        close = -1
    last = _line_of(state, start, end, close + 3) if close >= 0 else end
    if last >= end or state.src[close + 3 : state.eMarks[last]].strip():
        return False
    return silent or _leaf(state, "unseen", start, last + 1)


def _esm(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    first = state.bMarks[start]
    if state.src[first : first + 6] not in ("import", "export") or state.level:
        return False
    match = _IMPORT.match(state.src, first)
    if match:
        stop = match.end()
    else:
        if not state.env["mdx"] and not state.env["components"]:
            return False
        if not _EXPORT.match(state.src, first):
            return False
        stop = _statement_end(state.src, first)
    last = _line_of(state, start, end, stop)
    if last >= end:
        return False
    return silent or _leaf(state, "unseen", start, last + 1)


def _statement_end(source: str, start: int) -> int:
    """Returns where a JavaScript statement ends: the first line end outside brackets and strings.

    A statement whose brackets don't close within reason ends with its first line.
    """
    depth = 0
    for match in _BRACKETS.finditer(source, start, start + _MAX_STATEMENT):
        mark = match.group()
        if mark in ("(", "[", "{"):
            depth += 1
        elif mark in (")", "]", "}"):
            depth -= 1
        elif mark == "\n" and depth <= 0:
            return match.start()
    if depth <= 0:
        return min(len(source), start + _MAX_STATEMENT)
    newline = source.find("\n", start)
    return newline if newline >= 0 else len(source)


def _jsx_tags(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    position = _first(state, start)
    source, components = state.src, state.env["components"]
    if not source.startswith("<", position) or state.is_code_block(start):
        return False
    line = start
    seen = False
    while True:
        tag = TAG.match(source, position)
        if tag is None or not is_tag(tag, components):
            return False
        seen = seen or state.env["mdx"] or tag["name"] in components
        position = tag.end()
        line = _line_of(state, line, end, position)
        if not seen or line >= end:
            return False
        rest = source[position : state.eMarks[line]]
        if not rest.strip():
            break
        position += len(rest) - len(rest.lstrip())
        if not source.startswith("<", position):
            return False
    return silent or _leaf(state, "jsx", start, line + 1)


def _html_block_in_mdx(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if not _MDX_HTML.match(state.src, _first(state, start)):
        return False
    return html_block(state, start, end, silent)

"""Markdown and MDX: markdown-it finds the blocks, the source lines become the text.

Only the block structure is parsed; inline markup is parsed for headings alone, whose own words name the
sections. All other text is kept as it was written, because answers quote it, less what no reader sees.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import unescape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from copilotd.ingest.decode import decode
from copilotd.ingest.dialects import use_dialects
from copilotd.ingest.frontmatter import read_front_matter
from copilotd.ingest.html_headings import HtmlHeading, html_headings
from copilotd.ingest.lines import Layout, clean_characters, has_words, lay_out
from copilotd.ingest.markup import component_names, strip_markup
from copilotd.ingest.spans import Heading, sections_of, span_of
from copilotd.types import Block, BlockKind, Document

_ATTRIBUTES = re.compile(r"\s*\{:?\s*(?P<list>[#.][\w:.-][^{}]*|[\w-]+\s*=[^{}]*)\}\s*$")
_ANCHOR = re.compile(r"#([\w:.-]+)")
_ANCHOR_COMMENT = re.compile(r"\{/\*\s*#([\w:.-]+)\s*\*/\}\s*$")
_ANCHOR_TAG = re.compile(r"<a\s[^>]*?\b(?:id|name)\s*=\s*[\"']?([\w:.-]+)", re.IGNORECASE)
_RAW_TEXT = re.compile(r"[\s>*+-]*<(?:script|style|pre|textarea)\b", re.IGNORECASE)
_QUOTE_MARKS = " \t>*+-"
_MARKS_ONLY = re.compile(r"[\s>*+#|-]*|\s*\d+[.)]\s*")
# Inline parsing takes quadratic time on some input, and nobody names a section with more.
_MAX_HEADING = 1_000
_KINDS = {
    "fence": BlockKind.CODE,
    "code_block": BlockKind.CODE,
    "table_open": BlockKind.TABLE,
    "heading_open": BlockKind.HEADING,
    "html_block": BlockKind.OTHER,
    "jsx": BlockKind.OTHER,
    "directive": BlockKind.OTHER,
    "container_title": BlockKind.PARAGRAPH,
    "paragraph_open": BlockKind.PARAGRAPH,
}
# What may hold headings written as HTML; in MDX such lines are tags and paragraphs.
_MARKUP = frozenset(("html_block", "jsx", "paragraph_open"))
_CONTAINERS = {"list_item": BlockKind.LIST_ITEM, "blockquote": BlockKind.QUOTE}


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A block without blocks in it, by source lines (0-based, half-open)."""

    kind: BlockKind
    rule: str
    start: int
    end: int
    group: int
    level: int = 0
    content: str = ""
    anchor: str = ""


class MarkdownParser:
    """Reads Markdown: CommonMark, tables and the usual dialects."""

    name = "markdown"
    version = 3
    suffixes: tuple[str, ...] = (".md", ".markdown")
    isolated = False
    _mdx = False

    def __init__(self) -> None:
        self._parser = MarkdownIt("commonmark", {"maxNesting": 40}).enable("table")
        use_dialects(self._parser, mdx=self._mdx)

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: The bytes are not text.
        """
        text = decode(source)
        front = read_front_matter(text)
        lines = text.split("\n")
        lines[: front.lines] = [""] * front.lines
        body = "\n".join(lines) if front.lines else text
        components = component_names(body)
        if self._mdx:
            components |= {""}
        env: dict[str, Any] = {"mdx": self._mdx, "components": components}
        tokens: list[Token] = []
        self._parser.block.parse(body.replace("\0", "\N{REPLACEMENT CHARACTER}"), self._parser, env, tokens)
        leaves = _with_gaps(list(_with_whole_comments(list(_leaves(tokens)), lines)), lines)
        layout = _clean(lines, leaves, components)
        leaves = list(_with_html_headings(leaves, lines, layout, components))
        headings = [
            Heading(leaf.start, leaf.level, *self._heading(leaf, env))
            for leaf in leaves
            if leaf.kind is BlockKind.HEADING
        ]
        sections = sections_of(headings, layout, doc_title)
        first = next((section.heading for section in sections if section.level == 1 and section.heading), "")
        return Document(
            doc_title=doc_title,
            title=clean_characters(front.title) or first,
            text=layout.text,
            line_numbers=layout.line_numbers,
            sections=sections,
            blocks=_blocks(leaves, layout),
            description=clean_characters(front.description),
        )

    def _heading(self, leaf: _Leaf, env: Mapping[str, Any]) -> tuple[str, str]:
        """Returns a heading's words without inline markup, and its anchor."""
        anchor = leaf.anchor
        content = leaf.content[:_MAX_HEADING]
        if match := _ANCHOR_COMMENT.search(content) or _ANCHOR_TAG.search(content):
            anchor = match[1]
        while match := _ATTRIBUTES.search(content):
            if found := _ANCHOR.match(match["list"]):
                anchor = found[1]
            content = content[: match.start()]
        content = strip_markup(content, env["components"])
        # Markdown is read between HTML tags only behind a blank line, as in a paragraph of MDX.
        if leaf.rule == "html_block" and not re.search(r"\n\s*\n", leaf.content):
            return " ".join(clean_characters(unescape(content)).split()), anchor
        if _plain(content):
            return " ".join(clean_characters(content).split()), anchor
        tokens: list[Token] = []
        self._parser.inline.parse(content, self._parser, dict(env), tokens)
        return " ".join(clean_characters("".join(_words(tokens))).split()), anchor


class MdxParser(MarkdownParser):
    """Reads MDX: Markdown with components, where indented text is no code."""

    name = "mdx"
    suffixes: tuple[str, ...] = (".mdx",)
    _mdx = True


def _plain(content: str) -> bool:
    return not re.search(r"[\\`*_\[\]<&!\n]", content)


def _words(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "image":
            yield from _words(token.children or [])
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        else:
            yield token.content


def _leaves(tokens: Sequence[Token]) -> Iterator[_Leaf]:
    """Yields the blocks that hold no others; what is in one list, quote or admonition shares a group."""
    group = depth = directive_depth = 0
    containers: list[str] = []
    table = False
    for index, token in enumerate(tokens):
        kind = token.type
        if kind == "table_close":
            table = False
        if table:
            continue
        if kind.endswith("_open") and kind not in _KINDS:
            if not depth and not directive_depth:
                group += 1
            depth += 1
            containers.append(kind[:-5])
        elif kind.endswith("_close") and f"{kind[:-6]}_open" not in _KINDS:
            depth -= 1
            containers.pop()
        if token.map is None or (kind not in _KINDS and kind != "unseen"):
            continue
        table = kind == "table_open"
        opens = closes = False
        if kind == "directive" and not depth:
            closes = token.meta.get("closes", False)
            opens = not closes
        if not depth and not directive_depth:
            group += 1
        directive_depth = max(0, directive_depth + opens - closes)
        leaf_kind = _KINDS.get(kind, BlockKind.OTHER)
        if kind == "paragraph_open":
            for container in reversed(containers):
                if container in _CONTAINERS:
                    leaf_kind = _CONTAINERS[container]
                    break
        heading = kind == "heading_open"
        yield _Leaf(
            leaf_kind,
            kind,
            token.map[0],
            token.map[1],
            group,
            int(token.tag[1]) if heading else 0,
            tokens[index + 1].content if heading else "",
        )


def _with_whole_comments(leaves: Sequence[_Leaf], lines: Sequence[str]) -> Iterator[_Leaf]:
    """Lets a comment that is open where its block of HTML ends go on to its end, as it does in a browser.

    Only an HTML block that begins with a comment may hold blank lines; in others Markdown begins behind the first.
    """
    code = {
        number for leaf in leaves if leaf.kind is BlockKind.CODE for number in range(leaf.start, leaf.end)
    }
    closing = [number for number, line in enumerate(lines) if "-->" in line and number not in code]
    line = 0
    for leaf in leaves:
        if leaf.end <= line:
            continue
        if leaf.start < line:
            leaf = replace(leaf, kind=BlockKind.OTHER, rule="gap", start=line, level=0)
        if leaf.rule == "html_block" and (start := _open_comment(lines, leaf)) >= 0:
            following = bisect_left(closing, leaf.end)
            if following < len(closing):
                leaf = replace(leaf, end=closing[following] + 1)
            elif start == leaf.start and lines[start].lstrip(_QUOTE_MARKS).startswith("<!--"):
                leaf = replace(leaf, rule="unseen")
            line = leaf.end
        yield leaf


def _open_comment(lines: Sequence[str], leaf: _Leaf) -> int:
    """Returns the line on which a comment begins that an HTML block doesn't end, or -1."""
    text = "\n".join(lines[leaf.start : leaf.end])
    start = text.rfind("<!--")
    if start < 0 or text.find("-->", start + 2) >= 0 or _RAW_TEXT.match(text):
        return -1
    return leaf.start + text.count("\n", 0, start)


def _with_gaps(leaves: list[_Leaf], lines: Sequence[str]) -> list[_Leaf]:
    """Adds the lines that belong to no block, such as link definitions, so that nothing gets lost."""
    whole: list[_Leaf] = []
    line = 0
    group = -1
    for leaf in [*leaves, _Leaf(BlockKind.OTHER, "end", len(lines), len(lines), 0)]:
        gap = line
        while gap < leaf.start:
            if not lines[gap].strip():
                gap += 1
                continue
            end = gap
            while end < leaf.start and lines[end].strip():
                end += 1
            whole.append(_Leaf(BlockKind.OTHER, "gap", gap, end, group))
            group -= 1
            gap = end
        if leaf.rule != "end" and leaf.end > line:
            whole.append(leaf)
            line = leaf.end
    return whole


def _clean(lines: Sequence[str], leaves: Sequence[_Leaf], components: frozenset[str]) -> Layout:
    kept: list[str | None] = list(lines)
    verbatim: set[int] = set()
    for leaf in leaves:
        if leaf.kind is BlockKind.CODE:
            verbatim.update(range(leaf.start, leaf.end))
            continue
        if leaf.rule == "unseen":
            kept[leaf.start : leaf.end] = [None] * (leaf.end - leaf.start)
            continue
        source = lines[leaf.start : leaf.end]
        joined = "\n".join(source)
        if "<" not in joined and "{/*" not in joined:
            continue
        if leaf.kind is BlockKind.TABLE:
            stripped = [strip_markup(line, components) for line in source]
        else:
            stripped = strip_markup(joined, components).split("\n")
        for number, (before, after) in enumerate(zip(source, stripped, strict=True), leaf.start):
            if before != after:
                indent = before[: len(before) - len(before.lstrip())]
                kept[number] = None if _MARKS_ONLY.fullmatch(after) else indent + after.strip()
    odd = clean_characters("\n".join(line or "" for line in kept)).split("\n")
    return lay_out(
        [None if line is None else cleaned for line, cleaned in zip(kept, odd, strict=True)], verbatim
    )


def _with_html_headings(
    leaves: Sequence[_Leaf], lines: Sequence[str], layout: Layout, components: frozenset[str]
) -> Iterator[_Leaf]:
    """Cuts the headings written as HTML out of their blocks; one in a comment has no words left."""
    found: list[HtmlHeading] = []
    run: list[_Leaf] = []
    for leaf in [*leaves, _Leaf(BlockKind.OTHER, "end", len(lines), len(lines), 0)]:
        if leaf.rule in _MARKUP:
            run.append(leaf)
        elif run:
            found += html_headings(lines, run[0].start, run[-1].end, components)
            run.clear()
    shown = [
        heading
        for heading in found
        if has_words(layout.text[layout.starts[heading.start] : layout.ends[heading.end - 1]])
    ]
    position = 0
    for leaf in leaves:
        start = leaf.start
        while position < len(shown) and shown[position].start < leaf.end:
            heading = shown[position]
            if start < heading.start:
                yield replace(leaf, start=start, end=heading.start)
            if start <= heading.start:
                yield _Leaf(
                    BlockKind.HEADING,
                    leaf.rule,
                    heading.start,
                    heading.end,
                    leaf.group,
                    heading.level,
                    heading.inner,
                    heading.anchor,
                )
            start = heading.end
            if heading.end > leaf.end:
                break
            position += 1
        if start < leaf.end:
            yield replace(leaf, start=start)


def _blocks(leaves: Sequence[_Leaf], layout: Layout) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for leaf in leaves:
        span = span_of(layout, leaf.start, leaf.end)
        if span is not None:
            blocks.append(Block(leaf.kind, *span, leaf.group, _header_end(leaf, layout, *span)))
    return tuple(blocks)


def _header_end(leaf: _Leaf, layout: Layout, start: int, end: int) -> int:
    if leaf.kind is BlockKind.TABLE:
        return min(layout.ends[min(leaf.start + 1, len(layout.ends) - 1)], end)
    if leaf.rule == "fence":
        return min(layout.ends[leaf.start], end)
    return start

"""The structure of a reStructuredText document: docutils reads it, and each find is tied to its source line.

This is the one module that knows docutils. Its states are extended rather than its result read, because a
doctree has no lines for titles, comments, targets and options; while docutils reads, every line of its input
knows where it came from, in nested blocks too. Inline markup is read in titles alone: in the text it
takes two thirds of the time, and the text is kept as it was written.

Nothing a document names is run, read or fetched: every directive and role is one of the two below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from docutils import frontend, nodes, utils
from docutils.parsers import rst
from docutils.parsers.rst import directives, states

from copilotd.ingest.rst_names import CODE, LISTINGS, TABLES, TEXT, TRANSPARENT
from copilotd.ingest.rst_outline import Directive, Structure, Title
from copilotd.types import BlockKind

_TARGET_TEXT = re.compile(r"^(.*?)\s*<[^<>]*>$", re.DOTALL)
_NO_REPLACEMENT = re.compile(r"\.\.[ ]+\|[^|]+\|[ ]+(?!replace::)[\w-]+::")
_SUBSTITUTION = re.compile("\0([^\0]*)\0")
_MAX_TITLE = 1_000
_MARKUP = re.compile(r"[`*|_\\]")


def read_structure(text: str) -> Structure:
    """Reads ``text``, whose only line ends are newlines.

    Raises:
        Exception: Whatever docutils raises on what it cannot parse.
    """
    settings = _settings()
    reporter = _Silent("document", settings.report_level, settings.halt_level, stream=False)
    document = _Tree(settings, reporter, source="document")
    structure = document.outline = Structure()
    parser = rst.Parser(inliner=_Inliner())
    parser.state_classes = _STATES
    parser.parse(text, document)
    structure.titles[:] = [
        replace(title, words=_substituted(title.words, structure.substitutions)) for title in structure.titles
    ]
    _Walk(structure).children(document, 0, BlockKind.PARAGRAPH)
    return structure


def _substituted(words: str, substitutions: Mapping[str, str]) -> str:
    if "\0" not in words:
        return words
    return _SUBSTITUTION.sub(lambda match: substitutions.get(match[1].lower(), "") or match[1], words)


@cache
def _settings() -> Any:
    settings = frontend.get_default_settings(rst.Parser)
    settings.file_insertion_enabled = False
    settings.raw_enabled = False
    settings.halt_level = settings.report_level = 5
    settings.line_length_limit = 1 << 40
    settings.syntax_highlight = "none"
    settings.smart_quotes = False
    settings._disable_config = True
    return settings


class _Silent(utils.Reporter):  # type: ignore[misc]
    """Makes nothing of docutils' messages: a rule of odd length would cost five nodes and a name."""

    def system_message(self, level: int, message: object, *_: Any, **__: Any) -> nodes.system_message:
        return nodes.system_message(level=level)


class _Tree(nodes.document):  # type: ignore[misc]
    """A tree whose names are not looked up, so that they need no ids and duplicates no messages."""

    def note_implicit_target(self, *_: Any) -> None:
        pass

    def note_explicit_target(self, *_: Any) -> None:
        pass

    def set_id(self, *_: Any, **__: Any) -> str:
        return ""


class _UnreadTable:
    """Stands for docutils' table parsers, which take quadratic time on wide tables: cells are not read."""

    def parse(self, block: Any) -> None:
        pass


def _interpreted(
    rawsource: str, text: str, role: str, lineno: int
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Every role: the text it shows."""
    match = _TARGET_TEXT.match(text)
    shown = match[1] if match and match[1] else text
    if role.lower() in ("abbr", "abbreviation"):
        shown = text
    elif shown.startswith("~"):
        shown = shown.rpartition(".")[2].lstrip("~")
    return [nodes.inline(rawsource, shown.lstrip("!"))], []


class _Inliner:
    """Leaves the markup of text alone; docutils' own inliner, which must not be extended, reads titles."""

    def __init__(self) -> None:
        self._settings: Any = None
        self._titles: Any = None

    def init_customizations(self, settings: Any) -> None:
        self._settings = settings

    def parse(
        self, text: str, lineno: int, memo: Any, parent: nodes.Element
    ) -> tuple[list[nodes.Node], list[nodes.Node]]:
        return [nodes.Text(text)], []

    def adjust_uri(self, uri: str) -> str:
        return uri

    def words(self, text: str, lineno: int, memo: Any, parent: nodes.Element) -> str:
        """Returns ``text`` without its markup; substitutions stand between NULs, as they may come later."""
        if not _MARKUP.search(text) or len(text) > _MAX_TITLE:
            return text
        if self._titles is None:
            self._titles = states.Inliner()
            self._titles.interpreted = _interpreted
            self._titles.init_customizations(self._settings)
        found, _ = self._titles.parse(text, lineno, memo, parent)
        return "".join(
            f"\0{node.astext()}\0" if isinstance(node, nodes.substitution_reference) else node.astext()
            for node in found
        )


class _AnyOption(dict[str, Any]):
    """An option_spec that knows every option."""

    def __missing__(self, name: str) -> Any:
        return directives.unchanged

    def __bool__(self) -> bool:
        return True


class _Directive(rst.Directive):  # type: ignore[misc]
    """Every directive: notes where it stands, and reads its content where that is text."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = _AnyOption()

    def run(self) -> list[nodes.Node]:
        name = self.name.lower()
        if name == "replace":
            return [nodes.Text(" ".join([*self.arguments, *self.content]))]
        here = nodes.container()
        here.line = _line_of(self.state_machine, self.lineno)
        here["kind"] = name
        content = self.content.items[0][1] + 1 if self.content and self.content.items else 0
        last = here.line + self.block_text.rstrip().count("\n")
        argument = self.arguments[0] if self.arguments else ""
        outline = self.state.document.outline
        outline.directives.append(Directive(name, here.line, last, content, self.options, argument))
        if name in CODE or name in TABLES or name in LISTINGS or not self.content:
            return [here]
        if name in TRANSPARENT:
            self.state.nested_parse(
                self.content,
                self.content_offset,
                self.state_machine.node,
                match_titles=True,
                state_machine_class=_NestedMachine,
            )
            return [here]
        self.state.nested_parse(self.content, self.content_offset, here)
        return [here]


class _TextDirective(_Directive):
    """A directive whose text may begin beside its name."""

    optional_arguments = 0


def _line_of(machine: Any, number: int) -> int:
    """Returns the source line of what a state machine calls line ``number``."""
    line = machine.get_source_and_line(number)[1]
    return line if line is not None else number


class _States(dict[str, Any]):
    """The states of a machine, made when they are entered."""

    def __init__(self, machine: Any, classes: Iterable[type[states.RSTState]]) -> None:
        self._machine = machine
        self._classes = {state.__name__: state for state in classes}

    def __missing__(self, name: str) -> Any:
        state = self[name] = self._classes[name](self._machine)
        if self._machine.input_lines is not None:
            state.runtime_init()
        return state


class _NestedMachine(states.NestedStateMachine):  # type: ignore[misc]
    """Reads a list or a directive's content; docutils' own makes 15 states for one that enters two."""

    def add_states(self, state_classes: Iterable[type[states.RSTState]]) -> None:
        self.states = _States(self, state_classes)


class _Noting:
    """Mixed into each of docutils' states: notes lines, and leaves table cells unread."""

    state_machine: Any
    document: Any
    memo: Any
    inliner: Any
    parent: Any

    def __init__(self, state_machine: Any, debug: bool = False) -> None:
        super().__init__(state_machine, debug)  # type: ignore[call-arg]
        self.nested_sm_kwargs = {"state_classes": _STATES, "initial_state": "Body"}

    nested_sm = _NestedMachine

    @property
    def nested_sm_cache(self) -> list[Any]:
        """State machines to use again; docutils' own list would mix them with its plain ones."""
        cache: list[Any] = self.memo.__dict__.setdefault("nested_machines", [])
        return cache

    def section(self, title: str, source: str, style: Any, lineno: int, messages: Any) -> None:
        machine = self.state_machine
        # docutils counts an overlined title from its overline, give or take one; the text decides.
        line = 0
        for number in (lineno, lineno - 1, lineno + 1):
            offset = number - machine.input_offset - 1
            if (
                0 <= offset < len(machine.input_lines)
                and machine.input_lines[offset].strip() == title.strip()
            ):
                line = _line_of(machine, number)
                break
        styles = self.memo.title_styles
        level = styles.index(style) + 1 if style in styles else len(styles) + 1
        words = self.inliner.words(title, lineno, self.memo, self.parent)
        if line:
            self.document.outline.titles.append(Title(line, level, words, isinstance(style, tuple)))
        super().section(title, source, style, lineno, messages)  # type: ignore[misc]

    def explicit_construct(self, match: Any) -> Any:
        first = _line_of(self.state_machine, self.state_machine.abs_line_number())
        found, blank_finish = super().explicit_construct(match)  # type: ignore[misc]
        last = _line_of(self.state_machine, self.state_machine.abs_line_number())
        outline = self.document.outline
        for node in found:
            if isinstance(node, nodes.comment):
                outline.unseen.append((first, last))
            elif isinstance(node, nodes.target):
                if not node.get("refuri"):
                    outline.unseen.append((first, last))
                for name in node["names"]:
                    outline.labels[last] = name
                node.line = first
            elif isinstance(node, nodes.substitution_definition | nodes.footnote | nodes.citation):
                node.line = first
                if isinstance(node, nodes.substitution_definition):
                    outline.substitutions[node["names"][0].lower()] = node.astext()
        if _NO_REPLACEMENT.match(match.string):
            outline.unseen.append((first, last))
        return found, blank_finish

    def directive(self, match: Any, **option_presets: Any) -> Any:
        name = match.group(1)
        kind = _TextDirective if name.lower() in TEXT else _Directive
        return self.run_directive(kind, match, name, option_presets)  # type: ignore[attr-defined]

    def table(self, isolate: Any, _: Any) -> Any:
        return super().table(isolate, _UnreadTable)  # type: ignore[misc]

    def build_table(self, tabledata: None, tableline: int, *_: Any, **__: Any) -> nodes.table:
        table = nodes.table()
        table.line = _line_of(self.state_machine, tableline)
        return table

    def malformed_table(self, block: Any, detail: str = "", offset: int = 0) -> list[nodes.Node]:
        return [self.build_table(None, self.state_machine.abs_line_number() - len(block) + 1)]

    def option_list_item(self, match: Any) -> Any:
        line = _line_of(self.state_machine, self.state_machine.abs_line_number())
        item, blank_finish = super().option_list_item(match)  # type: ignore[misc]
        item.line = line
        return item, blank_finish

    def doctest(self, match: Any, context: Any, next_state: Any) -> Any:
        line = _line_of(self.state_machine, self.state_machine.abs_line_number())
        result = super().doctest(match, context, next_state)  # type: ignore[misc]
        self.parent[-1].line = line
        return result


def _noting(state: type[states.RSTState]) -> type[states.RSTState]:
    members: dict[str, Any] = {"__doc__": state.__doc__}
    if issubclass(state, states.Body):
        # The table of explicit markup names the method of the class it was made for.
        constructs = [
            (_Noting.directive if method is states.Body.directive else method, pattern)
            for method, pattern in state.explicit.constructs
        ]
        members["explicit"] = SimpleNamespace(patterns=state.explicit.patterns, constructs=constructs)
    return type(state.__name__, (_Noting, state), members)


_STATES = tuple(map(_noting, states.state_classes))

_GROUPS = (
    nodes.bullet_list,
    nodes.enumerated_list,
    nodes.definition_list,
    nodes.field_list,
    nodes.option_list,
    nodes.block_quote,
    nodes.container,
    nodes.line_block,
)
_ITEMS = (nodes.list_item, nodes.field, nodes.option_list_item, nodes.definition_list_item)


class _Walk:
    """Collects where blocks start, in the order of the tree."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._group = 0

    def children(self, parent: nodes.Element, group: int, kind: BlockKind) -> None:
        """Collects what stands below ``parent``; ``group`` is 0 outside lists and admonitions."""
        for node in parent.children:
            if isinstance(node, nodes.Element) and not isinstance(node, nodes.system_message):
                self._visit(node, group, kind)

    def _visit(self, node: nodes.Element, group: int, kind: BlockKind) -> None:
        if isinstance(node, nodes.section):
            self.children(node, 0, kind)
            return
        group = group or self._next()
        line = node.line
        if isinstance(node, nodes.literal_block | nodes.doctest_block):
            self._start(line, BlockKind.CODE, group)
            if line:
                self._structure.literals.append((line, line + node.rawsource.count("\n")))
        elif isinstance(node, nodes.table):
            self._start(line, BlockKind.TABLE, group)
            if line:
                self._structure.tables.append(line)
        elif isinstance(node, nodes.container) and node.get("kind") is not None:
            name = node["kind"]
            inner = BlockKind.CODE if name in CODE else BlockKind.TABLE if name in TABLES else kind
            self._start(line, inner, group)
            self.children(node, group, kind)
        elif isinstance(node, _ITEMS):
            self._start(line if not isinstance(node, nodes.list_item) else None, BlockKind.LIST_ITEM, group)
            self._item(node, group)
        elif isinstance(node, _GROUPS):
            quote = isinstance(node, nodes.block_quote) and kind is BlockKind.PARAGRAPH
            if isinstance(node, nodes.line_block):
                self._start(line, kind, group)
            else:
                self.children(node, group, BlockKind.QUOTE if quote else kind)
        elif isinstance(node, nodes.paragraph | nodes.attribution):
            self._start(line, kind, group)
        elif isinstance(node, nodes.substitution_definition | nodes.footnote | nodes.citation | nodes.target):
            self._start(line, BlockKind.OTHER, group)

    def _item(self, item: nodes.Element, group: int) -> None:
        """Collects an item; the beginning of its text belongs to its term, option or name."""
        bodies: Iterable[nodes.Element] = [item]
        if not isinstance(item, nodes.list_item):
            bodies = [
                child
                for child in item.children
                if isinstance(child, nodes.definition | nodes.description | nodes.field_body)
            ]
        for body in bodies:
            if body is not item and body.children and isinstance(body.children[0], nodes.paragraph):
                body = nodes.Element("", *body.children[1:])
            self.children(body, group, BlockKind.LIST_ITEM)

    def _start(self, line: int | None, kind: BlockKind, group: int) -> None:
        if line:
            self._structure.starts.setdefault(line, (kind, group))

    def _next(self) -> int:
        self._group += 1
        return self._group

"""Daemon JSON to lines for people. Pure: a dict and a Style in, text out.

Every string of the daemon passes :func:`copilotd.text.printable` here, although the daemon has
already cleaned it: what listens on the socket may be another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copilot_client.terminal import Style, display_width, file_uri, fit
from copilotd.text import bracketed, count, one_line, printable, replace_unshown

PREVIEW_LINES = 3
DEFAULT_NAMESPACE = "default"

JSONObject = Mapping[str, Any]


def json_text(value: object, *, ascii_only: bool = False, indent: int | None = None) -> str:
    """Returns ``value`` as JSON that is safe to print: invisible characters stay escaped."""
    import json

    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    # What JSON allows raw in a string although a terminal acts on it, hides it or an encoder refuses it.
    return text if text.isascii() and text.isprintable() else replace_unshown(text, _json_escape)


def _json_escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


# ----------------------------------------------------------------------------------------- places


def label(place: JSONObject) -> str:
    """Returns ``[doc_title > section_heading]``."""
    return bracketed(f"{_line(place.get('doc_title'))} > {_line(place.get('section_heading'))}")


def location(place: JSONObject) -> str:
    """Returns ``path:12-18``, or ``path p. 3`` or ``path pp. 3-4`` for formats that have pages."""
    path = _line(place.get("relative_path") or place.get("path"))
    if place.get("page") is not None:
        return f"{path} {pages(place)}"
    start, end = place.get("line_start"), place.get("line_end")
    if start is None:
        return path
    return f"{path}:{start}" if end in (None, start) else f"{path}:{start}-{end}"


def pages(place: JSONObject) -> str:
    """Returns ``p. 3`` or ``pp. 3-4`` for a place in a paged document."""
    page, page_end = _line(place.get("page")), _line(place.get("page_end"))
    return f"p. {page}" if page_end in ("", page) else f"pp. {page}-{page_end}"


def place_uri(place: JSONObject) -> str:
    """Returns the link to the file of a place; empty where it has no absolute path."""
    uri = place.get("path_uri")
    if isinstance(uri, str) and uri:
        return uri
    path = str(place.get("path") or "")
    return file_uri(path) if path.startswith("/") else ""


def _place_line(place: JSONObject, style: Style, *, name_namespace: bool) -> str:
    parts = [
        style.bold(label(place)),
        style.link_to_place(
            style.dim(location(place)), place_uri(place), line=place.get("line_start"), page=place.get("page")
        ),
    ]
    if place.get("score") is not None:
        # What is taken off a score can leave less than nothing.
        parts.append(f"{max(0.0, float(place['score'])):.2f}")
    if name_namespace and place.get("namespace"):
        parts.append(style.dim(f"({_line(place['namespace'])})"))
    return "  ".join(parts)


def _numbered(places: Sequence[JSONObject], style: Style) -> Iterable[tuple[str, JSONObject]]:
    several = len({place.get("namespace") for place in places}) > 1
    for number, place in enumerate(places, 1):
        yield f"{number}. {_place_line(place, style, name_namespace=several)}", place


# ------------------------------------------------------------------------------------ ask, search


def answer_text(answer: JSONObject) -> str:
    """Returns the text of an answer or the refusal's sentence. Never wrapped: it may hold code."""
    return printable(str(answer.get("answer", ""))).rstrip()


def answer_sources(answer: JSONObject, style: Style) -> list[str]:
    """Returns what follows the text: an empty line and its sources, or a refusal's nearest sections."""
    if answer.get("known"):
        citations = list(answer.get("citations") or ())
        if not citations:
            return []
        return ["", "Sources:", *(line for line, _ in _numbered(citations, style))]
    closest = list(answer.get("closest") or ())
    if not closest:
        return []
    return ["", "Closest sections (not an answer):", *(line for line, _ in _numbered(closest, style))]


def answer_stats(answer: JSONObject) -> list[str]:
    """Returns the metric line and the time each stage took."""
    citations = answer.get("citations") or ()
    if not answer.get("known"):
        return [
            f"Not answered | top_score={float(answer.get('top_score') or 0):.2f}",
            *tokens(answer),
            *timings(answer),
        ]
    labels = dict.fromkeys(label(citation) for citation in citations)
    metric = (
        f"Answer generated | top_score={float(answer.get('top_score') or 0):.2f}"
        f" | citations={len(citations)} | sources: {', '.join(labels)}"
    )
    return [metric.rstrip(), *tokens(answer), *timings(answer)]


def tokens(answer: JSONObject) -> list[str]:
    """Returns one line with the tokens a model's answer took, and their cost where prices are set."""
    usage = answer.get("usage") or {}
    names = (("in", "tokens_in"), ("out", "tokens_out"), ("cached", "cached"))
    parts = [f"{name} {int(usage[key])}" for name, key in names if usage.get(key) is not None]
    if usage.get("cost") is not None:
        parts.append(f"cost {float(usage['cost']):.6f}")
    return ["Tokens: " + ", ".join(parts)] if parts else []


def timings(result: JSONObject) -> list[str]:
    """Returns one line with the milliseconds of each stage, the total last."""
    spent = dict(result.get("timings_ms") or {})
    total = spent.pop("total", None)
    parts = [f"{_line(stage)} {float(value):.1f} ms" for stage, value in spent.items()]
    if total is not None:
        parts.append(f"total {float(total):.1f} ms")
    return ["Timings: " + ", ".join(parts)] if parts else []


def answer_gaps(answer: JSONObject) -> list[str]:
    """Returns a sentence on what an answer is known to lack."""
    topics = [_line(topic) for topic in answer.get("missing_topics") or ()]
    if not answer.get("known") or not topics:
        return []
    named = ", ".join(topics)
    return [f"The documentation may not cover: {named}{'' if named.endswith(('?', '.', '!')) else '.'}"]


def freshness_line(result: JSONObject) -> list[str]:
    """Returns a line for files that the answer doesn't know yet, and one for those it knows by words only."""
    freshness = result.get("freshness") or {}
    by_words = int(freshness.get("by_words") or 0)
    unread = int(freshness.get("pending") or 0) - by_words
    # Unread ones are named first.
    paths = [_line(path) for path in freshness.get("pending_paths") or ()]
    lines = []
    if unread:
        named = _some(paths[:unread], unread)
        lines.append(f"Not yet in this answer: {count(unread, 'changed file')}{named}.")
    if by_words:
        named = _some(paths[unread:], by_words)
        lines.append(
            f"Found by words only so far, while vectors are made: {count(by_words, 'document')}{named}."
        )
    return lines


def _some(paths: Sequence[str], total: int) -> str:
    """Names the first few of ``total`` paths, in brackets."""
    named = ", ".join(paths[:3]) + (", …" if total > min(len(paths), 3) and paths else "")
    return f" ({named})" if named else ""


def notices(result: JSONObject) -> list[str]:
    """Returns the sentences to be seen beside a result: notices and the words that were corrected."""
    lines = [_line(notice) for notice in result.get("notices") or ()]
    corrections = result.get("corrections") or {}
    lines += [
        f"Searched for '{_line(near)}' instead of '{_line(word)}'." for word, near in corrections.items()
    ]
    return lines


def search_hits(result: JSONObject, style: Style) -> list[str]:
    """Returns the hits, each with the first lines of its text."""
    hits = list(result.get("hits") or ())
    if not hits:
        return [f"Nothing found for '{_line(result.get('query'))}'."]
    lines: list[str] = []
    for line, hit in _numbered(hits, style):
        lines.append(line)
        lines += [f"   {fit(text, max(style.width - 3, 10))}" for text in _preview(hit)]
    return lines


def _preview(hit: JSONObject) -> list[str]:
    lines = [line.expandtabs(4).rstrip() for line in printable(str(hit.get("text") or "")).split("\n")]
    lines = [line for line in lines if line.strip()]
    # The first line is often the heading that the hit's own line shows already.
    if len(lines) > 1 and lines[0].lstrip("# ").strip() == _line(hit.get("section_heading")):
        lines = lines[1:]
    return lines[:PREVIEW_LINES]


def section(result: JSONObject, style: Style) -> list[str]:
    """Returns a section's place and its text whole."""
    text = printable(str(result.get("text") or "")).rstrip("\n")
    return [_place_line(result, style, name_namespace=False), "", text]


# ---------------------------------------------------------------------------- index, roots, status


def index_summary(report: JSONObject) -> str:
    """Returns ``Indexed 23 chunks from 4 files (2 new, 2 unchanged)``, further counts where not zero."""
    counts = [f"{_number(report, 'new')} new", f"{_number(report, 'unchanged')} unchanged"]
    counts += [
        f"{_number(report, name)} {name}" for name in ("updated", "moved", "removed") if report.get(name)
    ]
    if report.get("skipped"):
        counts.append(f"{len(report['skipped'])} skipped")
    chunks, files = _number(report, "chunks"), _number(report, "files")
    return f"Indexed {chunks} chunks from {files} files ({', '.join(counts)})"


def index_report(report: JSONObject, directory: str) -> list[str]:
    """Returns what ``index`` ends with: the summary or that nothing can be read, then each skipped file."""
    skipped = list(report.get("skipped") or ())
    touched = ("files", "new", "updated", "moved", "removed", "unchanged")
    if any(report.get(name) for name in touched) or skipped:
        return [index_summary(report), *_skipped(skipped), *_document_warnings(report)]
    lines = [f"No .md or .pdf files found in {_line(directory)}."]
    suffixes = [_line(suffix) for suffix in report.get("suffixes") or ()]
    if suffixes:
        lines.append(f"Supported: {' '.join(suffixes)}")
    return lines


def _skipped(skipped: Iterable[JSONObject]) -> list[str]:
    return [f"Skipped {_line(item.get('path'))}: {_line(item.get('reason'))}" for item in skipped]


def _document_warnings(result: JSONObject) -> list[str]:
    """Returns a line for each document that is indexed, but not wholly readable."""
    return [
        f"Note {_line(item.get('path'))}: {_line(item.get('warning'))}"
        for item in result.get("document_warnings") or ()
    ]


def roots(result: JSONObject, style: Style) -> list[str]:
    """Returns a table of the watched folders."""
    found = list(result.get("roots") or ())
    if not found:
        return ["No folder is indexed yet. Add one: copilot index DIR"]
    rows = [
        (
            style.link(_line(root.get("path")), place_uri(root)),
            _line(root.get("path")),
            _line(root.get("namespace")),
            ", ".join(count(_number(root, f"{noun}s"), noun) for noun in ("document", "chunk")),
            _watch(root),
        )
        for root in found
    ]
    widths = [max(display_width(row[column]) for row in rows) for column in (1, 2, 3)]
    lines = []
    for (shown, path, namespace, size, watch), root in zip(rows, found, strict=True):
        gap = " " * (widths[0] - display_width(path))
        lines.append(
            f"{shown}{gap}  {_pad(namespace, widths[1])}  {_pad(size, widths[2])}  {style.dim(watch)}"
        )
        for name in ("include", "exclude"):
            globs = [_line(glob) for glob in root.get(name) or ()]
            if globs:
                lines.append(style.dim(f"    {name}: {', '.join(globs)}"))
    return lines


def _watch(root: JSONObject) -> str:
    state = _line(root.get("state") or "ok")
    watch = _line(root.get("watch"))
    return watch if state == "ok" else f"{state}, {watch}" if watch else state


def status(result: JSONObject, style: Style) -> list[str]:
    """Returns the daemon's state, a fact a line, what went wrong last."""
    model = result.get("model") or {}
    loaded = "loaded" if model.get("loaded") else "not loaded yet"
    if model.get("error"):
        loaded = f"failed: {_line(model['error'])}"
    provider = " ".join(_line(result.get(name)) for name in ("provider", "llm_model") if result.get(name))
    pending = [count(_number(result, "pending"), "file"), count(_number(result, "pending_windows"), "window")]
    facts = [
        (
            "Daemon",
            f"{_line(result.get('state'))}, pid {result.get('pid')}, version {_line(result.get('version'))}",
        ),
        ("Up", f"{duration(result.get('uptime_s'))}, {size(result.get('memory_bytes'))} of memory"),
        ("Model", f"{_line(model.get('name'))}, {loaded}"),
        ("Answers", provider or "extractive"),
        (
            "Index",
            ", ".join(count(_number(result, f"{noun}s"), noun) for noun in ("document", "chunk", "window"))
            + f", generation {_number(result, 'generation')}",
        ),
        ("Pending", ", ".join(pending)),
        ("Reading", _line(result.get("reading"))),
        ("Embedded", f"{count(_number(result, 'embedded_total'), 'window')} since start"),
        ("Folder", _line(result.get("index_dir"))),
        ("Socket", _line(result.get("socket"))),
        ("Log", _line(result.get("log_file"))),
    ]
    lines = [f"{style.bold(f'{name:<9}')} {value}" for name, value in facts if value]
    lines += ["", style.bold("Roots"), *(f"  {line}" for line in roots(result, style))]
    skipped = list(result.get("skipped") or ())
    if skipped:
        lines += [
            "",
            style.bold("Skipped"),
            *(f"  {line.removeprefix('Skipped ')}" for line in _skipped(skipped)),
        ]
    warned = [line.removeprefix("Note ") for line in _document_warnings(result)]
    if warned:
        lines += ["", style.bold("Not wholly readable"), *(f"  {line}" for line in warned)]
    settings = [one_line(str(warning), 500) for warning in result.get("warnings") or ()]
    if settings:
        lines += ["", style.bold("Settings"), *(f"  {warning}" for warning in settings)]
    errors = [one_line(_error_text(error), 500) for error in result.get("errors") or ()]
    if errors:
        lines += ["", style.bold("Recent errors"), *(f"  {error}" for error in errors)]
    return lines


def _error_text(error: object) -> str:
    if isinstance(error, Mapping):
        return " ".join(str(value) for value in error.values() if value)
    return str(error)


def forgotten(result: JSONObject) -> list[str]:
    """Returns a line for each folder that was forgotten."""
    return [
        f"Forgot {_line(root.get('path'))} ({_line(root.get('namespace') or DEFAULT_NAMESPACE)}): "
        f"{count(_number(root, 'documents'), 'document')}. The files themselves are untouched."
        for root in result.get("forgotten") or ()
    ]


# ------------------------------------------------------------------------------------ small things


def duration(seconds: float | None) -> str:
    """Returns ``12 s``, ``3 min 5 s``, ``2 h 0 min`` or ``4 d 1 h``."""
    whole = max(0, round(seconds or 0))
    for unit, part, name, part_name in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // part} {part_name}"
    return f"{whole} s"


def size(number: float | None) -> str:
    """Returns bytes as ``512 MB`` (powers of ten, as file managers show them)."""
    value = float(number or 0)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _pad(text: str, columns: int) -> str:
    return text + " " * (columns - display_width(text))


def _number(result: JSONObject, name: str) -> int:
    return int(result.get(name) or 0)


def _line(value: object) -> str:
    return "" if value is None else printable(str(value), keep_newlines=False)

"""The JSON of each result, as SPEC and docs/protocol.md give it; everything from documents is made printable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote_from_bytes

from copilotd.conversation.store import Summary, summary_of
from copilotd.conversation.turns import Conversation, turn_json
from copilotd.query.answer import metric_line
from copilotd.text import printable
from copilotd.types import (
    Answer,
    CheckReport,
    Citation,
    DeepTrace,
    Freshness,
    Hit,
    IndexReport,
    JSONObject,
    Root,
    RootStatus,
    SearchResult,
    SectionText,
    Status,
    Support,
    Usage,
)


def answer_json(answer: Answer) -> JSONObject:
    """Returns SPEC's shape of ``ask --json``."""
    return {
        "query": answer.query,
        "answer": answer.text,
        "citations": [citation_json(citation) for citation in answer.citations],
        "known": answer.verdict.known,
        "confidence": round(answer.verdict.confidence, 4),
        "top_score": round(answer.top_score, 4),
        "confidence_level": answer.verdict.level.value,
        "reason": answer.verdict.reason,
        "needs_more": answer.needs_more,
        "missing_topics": list(answer.missing_topics),
        "provider": answer.provider,
        "model": answer.model,
        "freshness": freshness_json(answer.freshness),
        "timings_ms": _timings(answer.timings_ms),
        "dropped_marks": answer.dropped_marks,
        "support": [support_json(support) for support in answer.support],
        "usage": None if answer.usage is None else usage_json(answer.usage),
        "notices": [printable(notice) for notice in answer.notices],
        "closest": [citation_json(citation) for citation in answer.closest],
        "metric_line": printable(metric_line(answer)) if answer.verdict.known else "",
        "deep": None if answer.deep is None else trace_json(answer.deep),
        "asked_as": answer.asked_as,
        "conversation": answer.conversation,
    }


def summary_json(summary: Summary) -> JSONObject:
    """Returns a line of the list of conversations."""
    return {
        "id": summary.id,
        "title": summary.title,
        "turns": summary.turns,
        "created": summary.created,
        "updated": summary.updated,
    }


def conversation_json(conversation: Conversation) -> JSONObject:
    """Returns a conversation with its turns."""
    return {
        **summary_json(summary_of(conversation)),
        "forgotten": conversation.forgotten,
        "messages": [turn_json(turn) for turn in conversation.turns],
    }


def trace_json(trace: DeepTrace) -> JSONObject:
    """Returns how a deep answer came about."""
    return {
        "planner": trace.planner,
        "strategy": trace.strategy,
        "queries": [printable(query) for query in trace.queries],
        "context": trace.context.value,
        "documents": [
            {"relative_path": printable(path), "score": round(score, 4)} for path, score in trace.documents
        ],
        "refined_for": [printable(topic) for topic in trace.refined_for],
    }


def support_json(support: Support) -> JSONObject:
    """Returns what the check of one sentence found."""
    return {
        "sentence": printable(support.sentence),
        "keys": list(support.keys),
        "score": support.score,
        "supported": support.supported,
        "reason": printable(support.reason),
        "missing": [printable(fact) for fact in support.missing],
    }


def usage_json(usage: Usage) -> JSONObject:
    """Returns what an answer cost; ``cost`` is null where no price is set."""
    return {
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cached": usage.cached,
        "cost": None if usage.cost is None else round(usage.cost, 6),
    }


def citation_json(citation: Citation) -> JSONObject:
    """Returns a citation: its key, place, score and preview."""
    return {
        "key": citation.key,
        **_place(citation),
        "score": round(citation.score, 4),
        "preview": citation.preview,
    }


def search_json(result: SearchResult) -> JSONObject:
    """Returns SPEC's shape of ``search --json``."""
    return {
        "query": result.query,
        "hits": [hit_json(hit) for hit in result.hits],
        "freshness": freshness_json(result.freshness),
        "notices": [printable(notice) for notice in result.notices],
        "timings_ms": _timings(result.timings_ms),
        "corrections": dict(result.corrections),
        "confidence": round(result.verdict.confidence, 4),
        "confidence_level": result.verdict.level.value,
    }


def hit_json(hit: Hit) -> JSONObject:
    """Returns a hit: its place, text and scores."""
    metadata = hit.chunk.metadata
    return {
        "doc_title": metadata.doc_title,
        "section_heading": printable(metadata.section_heading),
        "heading_path": [printable(heading) for heading in metadata.heading_path],
        **_file(metadata.source_file, metadata.relative_path),
        "namespace": hit.chunk.namespace,
        "line_start": metadata.line_start,
        "line_end": metadata.line_end,
        "page": metadata.page,
        "page_end": metadata.page_end,
        "text": printable(hit.chunk.text),
        "score": round(hit.score, 4),
        "scores": {
            "dense": None if hit.dense is None else round(hit.dense, 4),
            "lexical": round(hit.lexical, 4),
        },
        "details": {name: round(value, 4) for name, value in hit.details.items()},
    }


def section_json(section: SectionText) -> JSONObject:
    """Returns a section: its place and text."""
    return {**_place(section), "text": printable(section.text)}


def report_json(report: IndexReport) -> JSONObject:
    """Returns SPEC's shape of ``index --json``."""
    return {
        "files": report.files,
        "new": report.new,
        "updated": report.updated,
        "moved": report.moved,
        "removed": report.removed,
        "unchanged": report.unchanged,
        "chunks": report.chunks,
        "windows_embedded": report.windows_embedded,
        "skipped": _skipped_json(report.skipped),
        "document_warnings": _warnings_json(report.warnings),
        "seconds": round(report.seconds, 3),
        "suffixes": list(report.suffixes),
        "notices": [printable(notice) for notice in report.notices],
    }


def check_json(report: CheckReport) -> JSONObject:
    """Returns what ``check`` found."""
    return {
        "clean": not report.findings,
        "repaired": report.repaired,
        "documents": report.documents,
        "windows": report.windows,
        "findings": [
            {
                "kind": finding.kind,
                "path": printable(finding.path, keep_newlines=False),
                "detail": printable(finding.detail),
            }
            for finding in report.findings
        ],
        "seconds": round(report.seconds, 3),
    }


def root_json(status: RootStatus) -> JSONObject:
    """Returns one root with its counts."""
    root: Root = status.root
    return {
        "path": printable(root.path),
        "namespace": root.namespace,
        "documents": status.documents,
        "chunks": status.chunks,
        "watch": status.watch,
        "state": status.state.value,
        "include": list(root.include),
        "exclude": list(root.exclude),
        "chunk_size": root.chunk_size,
        "chunk_overlap": root.chunk_overlap,
        "poll": root.poll,
    }


def status_json(status: Status) -> JSONObject:
    """Returns the engine's part of SPEC's shape of ``status --json``; the daemon adds its own facts."""
    return {
        "state": status.state,
        "model": {
            "name": status.model_name,
            "loaded": status.model_loaded,
            "fingerprint": status.model_fingerprint,
            "error": status.model_error,
        },
        "roots": [root_json(root) for root in status.roots],
        "documents": status.documents,
        "chunks": status.chunks,
        "windows": status.windows,
        "embedded_total": status.embedded_total,
        "pending": status.pending,
        "pending_windows": status.pending_windows,
        "generation": status.generation,
        "skipped": _skipped_json(status.skipped),
        "document_warnings": _warnings_json(status.warnings),
        "reading": status.reading,
        "errors": [printable(error) for error in status.errors],
        "provider": status.provider,
        "llm_model": status.llm_model,
    }


def _timings(timings: Mapping[str, float]) -> JSONObject:
    return {stage: round(ms, 3) for stage, ms in timings.items()}


def freshness_json(freshness: Freshness) -> JSONObject:
    """Returns SPEC's ``freshness``."""
    return {
        "generation": freshness.generation,
        "pending": freshness.pending,
        "pending_paths": [printable(path) for path in freshness.pending_paths],
        "by_words": freshness.by_words,
    }


def _skipped_json(skipped: tuple[tuple[str, str], ...]) -> list[JSONObject]:
    return [{"path": printable(path), "reason": printable(reason)} for path, reason in skipped]


def _warnings_json(warnings: tuple[tuple[str, str], ...]) -> list[JSONObject]:
    return [{"path": printable(path), "warning": printable(warning)} for path, warning in warnings]


def _place(thing: Citation | SectionText) -> JSONObject:
    return {
        "doc_title": thing.doc_title,
        "section_heading": printable(thing.section_heading),
        "heading_path": [printable(heading) for heading in thing.heading_path],
        **_file(thing.source_file, thing.relative_path),
        "namespace": thing.namespace,
        "line_start": thing.line_start,
        "line_end": thing.line_end,
        "page": thing.page,
        "page_end": thing.page_end,
    }


def _file(source_file: str, relative_path: str) -> JSONObject:
    return {
        "path": printable(source_file, keep_newlines=False),
        "path_uri": _file_uri(source_file),
        "relative_path": printable(relative_path, keep_newlines=False),
    }


def _file_uri(path: str) -> str:
    """Names the file by its bytes, whatever encoding they are in."""
    return f"file://{quote_from_bytes(os.fsencode(path))}"

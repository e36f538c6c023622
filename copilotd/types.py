"""The vocabulary: every stage is a function from one of these types to the next.

write:  files -scan-> SourceFile -plan-> Action -parse-> Document -chunk-> Chunk -embed-> vectors -> index
read:   question -sync-> -retrieve-> Hit[] -gate-> Verdict -answer-> text -cite-> Citation[] -> Answer

===============  ==================================================================================
Root             a watched folder; belongs to one *namespace*; has include and ignore rules
SourceFile       a path with its stat fingerprint
Document         a parsed SourceFile: the cleaned text stored once, and its places in the source
Section          a heading with everything below it up to the next heading
Block            a paragraph, fence, table or list item: what is not cut while it fits
Chunk            a run of one section; a character span into its Document's text
ChunkMetadata    where a chunk stands: title, heading, file, lines or page
Window           a slice of a Chunk that fits the embedding model's input
Hit              a chunk with the scores of each retriever and the fused one
Verdict          known or not, a confidence in 0..1, and why
Citation         key ``A``, ``B``… and the place it stands for
Answer           text, citations, verdict, timings, index generation
===============  ==================================================================================

Paths are ``str`` as ``os.fsdecode`` gives them (bytes that are not UTF-8 become lone surrogates);
whatever is shown or sent leaves through :func:`copilotd.text.printable`.
All lines are 1-based and inclusive; all character spans are half-open, ``start <= i < end``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]

DEFAULT_NAMESPACE = "default"

# ------------------------------------------------------------------------------------ write path


@dataclass(frozen=True, slots=True)
class Root:
    """A watched folder.

    Attributes:
        id: The catalog's number for it; 0 before it is stored.
        path: Absolute path as the user gave it, ``~`` expanded, symlinks kept.
        namespace: Documents of different namespaces never mix in one answer.
        include: Globs (gitignore syntax) a file must match; empty means every supported suffix.
        exclude: Globs (gitignore syntax) of what is left out, on top of the ignore files.
        chunk_size: MAX_CHUNK_CHARS for this root, or None for the setting.
        chunk_overlap: CHUNK_OVERLAP_CHARS for this root, or None for the setting.
        poll: Look at it by the clock alone, for file systems that send no notices.
    """

    id: int
    path: str
    namespace: str = DEFAULT_NAMESPACE
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    chunk_size: int | None = None
    chunk_overlap: int | None = None
    poll: bool = False


@dataclass(frozen=True, slots=True)
class StatFingerprint:
    """What ``stat`` says of a file; any difference means the content must be hashed again.

    Attributes:
        mtime_ns: Modification time, nanoseconds since the epoch.
        size: Bytes.
        ctime_ns: Time of the last change of inode or content, nanoseconds; no user call can set it.
        inode: Inode number.
    """

    mtime_ns: int
    size: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file a scan found under a root.

    Attributes:
        relative_path: Path below the root, ``/`` between its parts.
        fingerprint: Its stat fingerprint at the time of the scan.
    """

    relative_path: str
    fingerprint: StatFingerprint


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """What the catalog knows of a file.

    Attributes:
        id: The catalog's number; never used again after the file is removed.
        relative_path: Path below the root.
        fingerprint: The stat fingerprint the content was read under.
        content_hash: Hash of the bytes read; empty where they could not be read.
        read_ns: Wall clock (ns) when reading began. A fingerprint whose mtime or ctime is not
            clearly older than this is *racy*: the file may have changed again within one tick of
            the file system's clock, so the next look hashes it once more.
        skipped: Why the file is not in the index; empty for an indexed document.
    """

    id: int
    relative_path: str
    fingerprint: StatFingerprint
    content_hash: str
    read_ns: int
    skipped: str = ""


class RootState(StrEnum):
    """How a root looked at its last scan."""

    OK = "ok"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    EMPTIED = "emptied"


@dataclass(frozen=True, slots=True)
class ScanResult:
    """One look at a root.

    Attributes:
        state: Whether the root itself could be looked at.
        files: Documents found, by relative path.
        problems: ``(relative_path, reason)`` of what could not be looked at or is left out for a
            reason worth telling (too large, not a regular file, unreadable folder…).
        unreadable_dirs: Relative paths of folders that could not be listed: what was known below
            them is neither present nor gone.
        stats: How many ``stat`` calls and directory listings the look took.
    """

    state: RootState
    files: Mapping[str, SourceFile]
    problems: tuple[tuple[str, str], ...] = ()
    unreadable_dirs: tuple[str, ...] = ()
    stats: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Add:
    """A file the catalog doesn't know."""

    source: SourceFile


@dataclass(frozen=True, slots=True)
class Update:
    """A known file whose fingerprint differs or is racy; hashing decides whether it really changed."""

    indexed: IndexedFile
    source: SourceFile


@dataclass(frozen=True, slots=True)
class Move:
    """A known file under another name: same inode, size and mtime; hashing confirms it."""

    indexed: IndexedFile
    source: SourceFile


@dataclass(frozen=True, slots=True)
class Remove:
    """A known file that is gone."""

    indexed: IndexedFile


Action = Add | Update | Move | Remove


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it, up to the next heading of any level.

    Attributes:
        heading: The heading's own text, inline markup removed; the document's ``doc_title`` for
            text before the first heading.
        level: 1..6; 0 for text before the first heading.
        heading_path: The headings from the outermost down to this one (this one included).
        start: Character where the section starts in ``Document.text`` (its heading line).
        end: Character where it ends.
        anchor: The id a link to this heading uses, where the source gives one.
    """

    heading: str
    level: int
    heading_path: tuple[str, ...]
    start: int
    end: int
    anchor: str = ""


class BlockKind(StrEnum):
    """What kind of text a block is."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    CODE = "code"
    TABLE = "table"
    LIST_ITEM = "list_item"
    QUOTE = "quote"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Block:
    """A unit that is not cut while it fits a chunk. Blocks are in order and don't overlap.

    Attributes:
        kind: What it is.
        start: Character where it starts in ``Document.text``; the start of a line.
        end: Character where it ends; blocks cover every line with visible words.
        group: Blocks of one list, table or admonition share a number, so that they stay together
            while they fit.
        header_end: For a table the end of its header rows, for a fence the end of its opening
            line; ``start`` where there is none. It is repeated in the embedded text when the block is cut.
    """

    kind: BlockKind
    start: int
    end: int
    group: int
    header_end: int


@dataclass(frozen=True, slots=True)
class Document:
    r"""A parsed file. Its text is stored once; everything else points into it.

    Attributes:
        doc_title: The file's name without suffix.
        title: The title inside the document (front matter or first H1); empty where there is none.
        text: The cleaned text, lines separated by ``\n``. Each line holds only words of its source
            line, in their order (no front matter, JSX tags, hidden comments).
        line_numbers: The source line of each line of ``text``; strictly increasing for text formats.
        sections: In order, covering the text without gaps; at least one where there is text.
        blocks: In order, not overlapping, covering every line with visible words.
        pages: For paged formats the page of each line of ``text``, else None.
        description: The front matter's description; searchable, never cited.
        warnings: What a reader should know, for example pages without text.
        scanned: Pages without readable text of their own, whether OCR read them or not.
    """

    doc_title: str
    title: str
    text: str
    line_numbers: tuple[int, ...]
    sections: tuple[Section, ...]
    blocks: tuple[Block, ...]
    pages: tuple[int, ...] | None = None
    description: str = ""
    warnings: tuple[str, ...] = ()
    scanned: tuple[int, ...] = ()

    def page_starts(self, first: int, count: int) -> tuple[tuple[int, int], ...]:
        """Returns (line, page) for each page of ``count`` lines of the text from ``first`` on: its first line there."""
        if self.pages is None:
            return ()
        starts: dict[int, int] = {}
        for index in range(first, min(first + count, len(self.pages))):
            starts.setdefault(self.pages[index], self.line_numbers[index])
        return tuple((line, page) for page, line in starts.items())


@runtime_checkable
class Parser(Protocol):
    """Turns the bytes of one format into a Document.

    Attributes:
        name: Format name, for messages.
        version: Part of the index fingerprint; raised whenever the output changes.
        suffixes: Lower-case suffixes with their dot.
        isolated: Whether parsing must run in a child process with limits.
    """

    name: str
    version: int
    suffixes: tuple[str, ...]
    isolated: bool

    def parse(self, source: bytes, doc_title: str) -> Document:
        """Parses ``source``.

        Raises:
            ParseError: The only exception that leaves a parser; its message is the skip reason.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """Where a chunk stands. The first six fields are the seed's.

    Attributes:
        doc_title: The file's name without suffix.
        section_heading: The nearest heading at or above the chunk's first line.
        last_modified: Modification time of the file, seconds since the epoch.
        source_file: Absolute path.
        chunk_index: Position within the document, from 0.
        char_count: Length of the chunk's text.
        heading_path: Headings from the outermost to ``section_heading``.
        relative_path: Path below the root; the file's name where there is no root.
        line_start: First source line.
        line_end: Last source line.
        page: First page for paged formats, else None.
        page_end: Last page for paged formats, else None.
    """

    doc_title: str
    section_heading: str
    last_modified: float
    source_file: str
    chunk_index: int
    char_count: int
    heading_path: tuple[str, ...] = ()
    relative_path: str = ""
    line_start: int = 1
    line_end: int = 1
    page: int | None = None
    page_end: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of one section: a character span into its document's text.

    Attributes:
        start: First character in ``Document.text``.
        end: Behind the last character.
        metadata: Where it stands.
        section: Index into ``Document.sections``.
        context: Table header or fence opening that the cut left behind; embedded and searched with
            the chunk, never cited.
    """

    start: int
    end: int
    metadata: ChunkMetadata
    section: int
    context: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A slice of a chunk that fits the embedding model's input.

    Attributes:
        start: First character in ``Document.text``.
        end: Behind the last character.
        embedded_text: In-document title and heading path, the chunk's context, then the slice.
            Nothing in it depends on the path, so a move costs no embedding.
        key: Content address of the vector: hash of model fingerprint and ``embedded_text``.
    """

    start: int
    end: int
    embedded_text: str
    key: bytes


class Encoder(Protocol):
    """Turns text into vectors.

    Attributes:
        name: The model's name.
        fingerprint: Changes whenever the same text could give another vector.
        dimension: Length of a vector.
        max_tokens: Tokens of one input that the model reads.
    """

    name: str
    fingerprint: str
    dimension: int
    max_tokens: int

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Returns an ``(len(texts), dimension)`` float32 array of L2-normalised rows."""
        ...


class Reranker(Protocol):
    """Reads a question and a passage together; slower than an encoder, and a better judge.

    Attributes:
        name: The model's name.
    """

    name: str

    def score(self, query: str, texts: Sequence[str]) -> Float32Array:
        """Returns how well each text answers ``query``, ``(len(texts),)`` from 0 to 1."""
        ...


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """What the model makes of each token of a text, in its context.

    Attributes:
        tokens: The tokens that have a letter or digit, without the marks of word pieces.
        rows: ``(len(tokens), dimension)`` float32, L2-normalised.
    """

    tokens: tuple[str, ...]
    rows: Float32Array


@runtime_checkable
class TokenEncoder(Encoder, Protocol):
    """An encoder that can also tell the vectors of single tokens."""

    def encode_tokens(self, texts: Sequence[str]) -> tuple[Float32Array, list[TokenVectors]]:
        """Returns what ``encode`` does, and the vectors of each text's tokens, from one pass."""
        ...


# ------------------------------------------------------------------------------------- read path


@dataclass(frozen=True, slots=True)
class Scope:
    """What a question may be answered from; applied before ranking.

    Attributes:
        namespaces: Only these; None for all.
        paths: Only documents whose relative path matches one of these gitignore-style globs; empty for all.
    """

    namespaces: tuple[str, ...] | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as the index holds it, with everything an answer needs.

    Attributes:
        id: The catalog's number; never used again.
        document_id: The catalog's number of its document.
        namespace: The namespace of its root.
        title: The title inside the document.
        text: The chunk's text.
        start: First character in the document's text.
        end: Behind the last character.
        line_numbers: Source line of each line of ``text``.
        blocks: The document's blocks that lie within the chunk, their offsets relative to ``text``
            and clipped to it.
        context: Table header or fence opening the cut left behind.
        metadata: Where it stands.
        page_starts: For paged formats (line, page) for each of its pages: the first of its lines there.
    """

    id: int
    document_id: int
    namespace: str
    title: str
    text: str
    start: int
    end: int
    line_numbers: tuple[int, ...]
    blocks: tuple[Block, ...]
    context: str
    metadata: ChunkMetadata
    page_starts: tuple[tuple[int, int], ...] = ()

    def pages_of(self, line_start: int, line_end: int) -> tuple[int | None, int | None]:
        """Returns the first and the last page of some of its lines; None for formats without pages."""
        if not self.page_starts:
            return self.metadata.page, self.metadata.page_end
        first, last = (
            max((page for line, page in self.page_starts if line <= number), default=self.page_starts[0][1])
            for number in (line_start, line_end)
        )
        return first, last


@dataclass(frozen=True, slots=True)
class KeywordHit:
    """A chunk found by its words.

    Attributes:
        chunk_id: Which chunk.
        score: Weighted BM25, larger is better (FTS5's rank negated).
    """

    chunk_id: int
    score: float


@dataclass(frozen=True, slots=True)
class DenseHit:
    """A chunk found by its best window.

    Attributes:
        chunk_id: Which chunk.
        score: Cosine between question and best window, -1..1.
    """

    chunk_id: int
    score: float


class IndexReader(Protocol):
    """The part of the index a question needs; one consistent view of it."""

    generation: int

    def chunk_count(self, scope: Scope = Scope()) -> int:
        """Returns how many chunks the scope's namespaces hold."""
        ...

    def search_vectors(self, queries: Float32Array, limit: int, scope: Scope) -> list[list[DenseHit]]:
        """Returns for each row of ``queries`` ``(n, dim)`` the best ``limit`` chunks, best first."""
        ...

    def score_chunks(self, queries: Float32Array, chunk_ids: Sequence[int]) -> Float32Array:
        """Returns the ``(n_queries, n_chunks)`` best-window cosines; NaN where a chunk has no vector yet."""
        ...

    def search_keywords(self, terms: Sequence[str], limit: int, scope: Scope) -> list[KeywordHit]:
        """Returns the best ``limit`` chunks that hold any of the analysed terms, best first."""
        ...

    def document_frequencies(self, terms: Sequence[str], scope: Scope = Scope()) -> dict[str, int]:
        """Returns in how many chunks of the scope's namespaces each analysed term occurs (0 where in none)."""
        ...

    def vocabulary(self) -> Mapping[str, int]:
        """Returns every analysed term with its document frequency; cached a generation."""
        ...

    def load_chunks(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        """Returns the chunks that still exist, by id."""
        ...

    def neighbours(self, chunk_id: int) -> list[int]:
        """Returns the ids of all chunks of the same document, in document order."""
        ...

    def packed_tokens(self, chunk_ids: Sequence[int]) -> dict[int, bytes]:
        """Returns the packed token vectors of the chunks that have them; see :mod:`copilotd.embed.tokens`."""
        ...


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk with its scores.

    Attributes:
        chunk: The chunk.
        score: The fused score that ranks it; comparable within one question only.
        dense: Best-window cosine, or None where it has no vector yet.
        lexical: BM25 score, 0 where no word matched.
        details: Further parts of the score, for ``--explain``.
    """

    chunk: StoredChunk
    score: float
    dense: float | None
    lexical: float
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Everything retrieval found out about a question.

    Attributes:
        query: The question.
        hits: Best first.
        top_score: Best cosine of all hits (the seed's meaning); 0.0 without a vector.
        evidence: Raw evidence the gate reads: features by name, each documented in ``query/gate.py``.
        corrections: Words the corpus doesn't know → the near words searched instead.
        dense: Whether vectors took part (False while the model loads).
        timings_ms: Milliseconds by stage.
        rarity: The question's deciding tokens, corrected, with their weight: rare words say more.
        model: Name of the embedding model; empty without vectors.
    """

    query: str
    hits: tuple[Hit, ...]
    top_score: float
    evidence: Mapping[str, float]
    corrections: Mapping[str, str] = field(default_factory=dict)
    dense: bool = True
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    rarity: Mapping[str, float] = field(default_factory=dict)
    model: str = ""


class ConfidenceLevel(StrEnum):
    """How complete an answer is."""

    HIGH = "high"
    PARTIAL = "partial"
    INSUFFICIENT = "insufficient"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the passages found answer the question. A refusal is a value, not an exception.

    Attributes:
        known: Whether ``confidence`` reaches the threshold.
        confidence: Calibrated probability, 0..1, that the top passages answer the question.
        level: The same in a word.
        reason: Why, in a few words, for ``--explain`` and the log.
        evidence: What it was judged by; each name is explained in ``query/gate.py``.
    """

    known: bool
    confidence: float
    level: ConfidenceLevel
    reason: str
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Citation:
    """What a mark in an answer stands for.

    Attributes:
        key: ``A``, ``B``…, in the order of the passages.
        chunk_id: The chunk it came from.
        doc_title: The file's name without suffix.
        section_heading: The heading.
        heading_path: Headings from the outermost down.
        source_file: Absolute path.
        relative_path: Path below the root.
        namespace: Of the root.
        line_start: First cited source line.
        line_end: Last cited source line.
        page: First page, or None.
        score: The hit's fused score.
        preview: The cited words, shortened to one line.
        page_end: Last page, or None.
    """

    key: str
    chunk_id: int
    doc_title: str
    section_heading: str
    heading_path: tuple[str, ...]
    source_file: str
    relative_path: str
    namespace: str
    line_start: int
    line_end: int
    page: int | None
    score: float
    preview: str
    page_end: int | None = None

    @property
    def label(self) -> str:
        """``doc_title > section_heading``, as it stands between brackets in an answer."""
        return f"{self.doc_title} > {self.section_heading}"


@dataclass(frozen=True, slots=True)
class Freshness:
    """What an answer is based on.

    Attributes:
        generation: The index generation answered from.
        pending: Files known to have changed but not yet in the index, or not with all their vectors.
        pending_paths: Up to 20 of them.
        by_words: How many of them are found by words already and only wait for vectors.
    """

    generation: int
    pending: int = 0
    pending_paths: tuple[str, ...] = ()
    by_words: int = 0


class Context(StrEnum):
    """What a deep answer reads: the chunks found, or the documents they stand in."""

    CHUNKS = "chunks"
    DOCUMENTS = "documents"


@dataclass(frozen=True, slots=True)
class DeepTrace:
    """How a deep answer came about.

    Attributes:
        planner: ``question`` for a plan from the question and the corpus, or the provider's name.
        strategy: ``broad``, ``specific`` or ``mixed``.
        queries: What was searched for, the question itself first, those of a refinement last.
        context: What the answer read.
        documents: ``(relative_path, score)`` of the top documents, best first.
        refined_for: The missing topics that were looked for once more; empty without a refinement.
    """

    planner: str
    strategy: str
    queries: tuple[str, ...]
    context: Context
    documents: tuple[tuple[str, float], ...] = ()
    refined_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What ``ask`` returns; see SPEC of ``ask --json`` in ``docs/protocol.md``.

    Attributes:
        query: The question.
        text: The rendered answer, or the refusal sentence.
        citations: In the order of their first mark in the text.
        verdict: Known or not, and how sure.
        top_score: Best cosine.
        needs_more: Whether the answer is known to be incomplete.
        missing_topics: What it lacks.
        provider: ``extractive``, ``anthropic``, ``openai`` or ``ollama``.
        model: The LLM's name; empty for extractive.
        freshness: What it is based on.
        timings_ms: Milliseconds by stage, ``total`` among them.
        dropped_marks: Citation marks in the model's text that named nothing that was sent.
        notices: Sentences the reader must see beside the answer (cut off, keywords only…).
        support: What the check of each sentence of a model found; empty for an extractive answer.
        usage: What a model's answer cost; None where none was asked.
        closest: For a refusal the nearest sections, marked as not an answer.
        deep: How it came about, for a deep answer.
        asked_as: The standalone question a follow-up was searched as; empty where it was searched as typed.
        conversation: Id of the conversation that keeps it; empty where none does.
    """

    query: str
    text: str
    citations: tuple[Citation, ...]
    verdict: Verdict
    top_score: float
    needs_more: bool
    missing_topics: tuple[str, ...]
    provider: str
    model: str
    freshness: Freshness
    timings_ms: Mapping[str, float]
    dropped_marks: int = 0
    notices: tuple[str, ...] = ()
    closest: tuple[Citation, ...] = ()
    support: tuple[Support, ...] = ()
    usage: Usage | None = None
    deep: DeepTrace | None = None
    asked_as: str = ""
    conversation: str = ""


class CitationCheck(StrEnum):
    """What becomes of a model's sentences that the passages they cite don't bear out.

    Numbers and identifiers that are in none of the cited passages are marked whatever this says.
    """

    MARK = "mark"
    STRICT = "strict"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Support:
    """What the check of one sentence of a model found.

    Attributes:
        sentence: Its words, without citations.
        keys: The passages it cites; empty where it cites none and was compared with all that were sent.
        score: Probability, 0..1, that they bear it out; None where there was nothing to compare.
        supported: Whether it may stand as it is.
        reason: Why not, or why there was nothing to compare; empty for a sentence that was found.
        missing: Numbers and identifiers in it that the passages don't hold.
    """

    sentence: str
    keys: tuple[str, ...]
    score: float | None
    supported: bool
    reason: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prices:
    """What a provider asks for a million tokens, in the user's currency; 0 where the user set none.

    Attributes:
        input: Of what is sent.
        output: Of what is written.
        cached: Of what is sent and was in the provider's cache; 0 for the price of ``input``.
    """

    input: float = 0.0
    output: float = 0.0
    cached: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost, as the provider counts; None where it doesn't say.

    Attributes:
        tokens_in: Sent, those from the provider's cache included.
        tokens_out: Written.
        cached: How many of ``tokens_in`` came from its cache.
        cost: In the user's currency; None without prices or counts.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    cached: int | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Grounding:
    """How a model's answer is asked for and checked.

    Attributes:
        context_tokens: The model's window, in tokens: instructions, passages, question and answer must fit.
        check: What becomes of sentences that the passages don't bear out.
        encoder: Compares sentences and passages by meaning, too; None by words alone.
        prices: For the cost of an answer.
        follow_ups: Whether the same passages are likely to be sent again soon, so that caching them pays: in
            deep mode, where a draft is repaired or followed by prose. Not in a conversation: a cache is read from
            the request's beginning, and there the history differs with each question.
        history: What was said before, oldest first; the model reads it ahead of the passages.
    """

    context_tokens: int = 8192
    check: CitationCheck = CitationCheck.MARK
    encoder: Encoder | None = None
    prices: Prices = Prices()
    follow_ups: bool = False
    history: tuple[Message, ...] = ()


# ----------------------------------------------------------------------------------- LLM providers


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: ``user`` or ``assistant``.
        content: Its words.
        reused: How many characters of the beginning are likely to be sent again soon (passages that a
            follow-up asks about, too); a provider that bills a cache may keep them.
    """

    role: str
    content: str
    reused: int = 0


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The shape an answer must have.

    Attributes:
        name: Of the structure, an identifier.
        description: What it is for, in a sentence.
        schema: JSON schema of an object.
    """

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What a provider is asked.

    Attributes:
        system: The system prompt.
        messages: The turns, the last one from the user.
        max_tokens: Limit of the answer.
        output: The shape the answer must have, by the SDK's own mechanism; the text that comes is then JSON,
            not yet checked (see :func:`copilotd.llm.structured.complete_structured`). None for prose.
    """

    system: str
    messages: tuple[Message, ...]
    max_tokens: int = 1024
    output: OutputSchema | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer, as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer.

    Attributes:
        reason: ``end``, ``length`` (cut at the output limit) or ``refusal``.
        input_tokens: As the provider counts them, those from its cache included; None where it doesn't say.
        output_tokens: Likewise.
        cached_tokens: How many of the input tokens came from the provider's cache; None where it doesn't say.
    """

    reason: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


class Provider(Protocol):
    """An LLM.

    Attributes:
        name: ``anthropic``, ``openai`` or ``ollama``.
        model: The model's name.
    """

    name: str
    model: str

    def stream(
        self, request: CompletionRequest, cancelled: Callable[[], bool]
    ) -> Iterator[TextDelta | Finished]:
        """Yields the answer as it comes and one Finished at the end.

        Closing the iterator, or ``cancelled()`` turning true, closes the connection.

        Raises:
            ProviderError: One of its subclasses; the message is fit for a person, without the key.
        """
        ...


# --------------------------------------------------------------------------- requests and reports


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of long work, as shown by a progress bar.

    Attributes:
        stage: ``model``, ``scan``, ``parse``, ``embed``, ``sync``, ``question`` or ``answer``.
        message: A sentence for a person.
        files_done: Files read so far.
        files_total: Files to read; None while unknown.
        windows_done: Windows embedded so far.
        windows_total: Windows to embed; None while unknown.
        eta_s: Seconds left, estimated; None while unknown.
    """

    stage: str
    message: str = ""
    files_done: int = 0
    files_total: int | None = None
    windows_done: int = 0
    windows_total: int | None = None
    eta_s: float | None = None


class Reporter(Protocol):
    """Where long work tells how it goes; calls may come from any thread."""

    def progress(self, progress: Progress) -> None:
        """Shows one step."""
        ...

    def delta(self, text: str) -> None:
        """Shows a piece of an answer as it comes, already rendered and safe to print."""
        ...

    def cancelled(self) -> bool:
        """Returns whether the client is gone or pressed Ctrl-C."""
        ...


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What ``index`` or ``rebuild`` did; the IngestReport of seed 002.

    Attributes:
        files: Documents now indexed under the root.
        new: Added by this run.
        updated: Changed by this run.
        moved: Renamed.
        removed: Gone.
        unchanged: Found as they were.
        chunks: Chunks now indexed under the root.
        windows_embedded: Windows that cost an embedding.
        skipped: ``(path, reason)``.
        seconds: Wall time.
        suffixes: The suffixes that can be read here.
        notices: Sentences the reader must see beside the counts.
        warnings: ``(path, warning)`` of documents that are indexed, but not wholly readable.
        path: The root as it is stored; empty for several.
    """

    files: int
    new: int
    updated: int
    moved: int
    removed: int
    unchanged: int
    chunks: int
    windows_embedded: int
    skipped: tuple[tuple[str, str], ...]
    seconds: float
    suffixes: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    path: str = ""


@dataclass(frozen=True, slots=True)
class RootStatus:
    """One root as ``status`` and ``roots`` show it.

    Attributes:
        root: The root.
        documents: Indexed documents.
        chunks: Indexed chunks.
        watch: ``events``, ``polling`` or ``failed``, with the reason behind a colon where there is one.
        state: How it looked at its last scan.
    """

    root: Root
    documents: int
    chunks: int
    watch: str
    state: RootState


@dataclass(frozen=True, slots=True)
class Status:
    """What ``status`` shows of the engine; the daemon adds pid, version, socket and uptime."""

    state: str
    model_name: str
    model_loaded: bool
    model_fingerprint: str
    model_error: str
    roots: tuple[RootStatus, ...]
    documents: int
    chunks: int
    windows: int
    embedded_total: int
    pending: int
    pending_windows: int
    generation: int
    skipped: tuple[tuple[str, str], ...]
    warnings: tuple[tuple[str, str], ...]
    errors: tuple[str, ...]
    index_dir: str
    provider: str
    llm_model: str
    reading: str = ""


@dataclass(frozen=True, slots=True)
class SectionText:
    """One section or document whole, as ``section REF`` prints it."""

    doc_title: str
    section_heading: str
    heading_path: tuple[str, ...]
    source_file: str
    relative_path: str
    namespace: str
    line_start: int
    line_end: int
    page: int | None
    text: str
    page_end: int | None = None


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A question.

    Attributes:
        query: The question's text.
        scope: What it may be answered from.
        top_k: Passages used; None for the setting.
        extractive: Answer without the LLM even where one is set.
        long: Quote whole sections instead of the lines that answer best.
        min_score: Floor on the cosine; None for the setting.
        threshold: Confidence below which nothing is answered; None for the setting.
        stream: Whether deltas are wanted.
        deep: Plan, search in several ways and look once more; None for the setting.
        context: What a deep answer reads; None for what suits question and budget.
        top_documents: Documents a deep answer may come from; None for five.
        conversation: Id of the conversation it goes on with, ``last``, or ``new`` to begin one; empty for none.
        keep_scope: Answer from what the conversation's last question was answered from instead of ``scope``.
        history: What was said before, oldest first, for a model to read; the conversation fills it in.
    """

    query: str
    scope: Scope = Scope()
    top_k: int | None = None
    extractive: bool = False
    long: bool = False
    min_score: float | None = None
    threshold: float | None = None
    stream: bool = True
    deep: bool | None = None
    context: Context | None = None
    top_documents: int | None = None
    conversation: str = ""
    keep_scope: bool = False
    history: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search without an answer; fields as in AskRequest."""

    query: str
    scope: Scope = Scope()
    top_k: int | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What ``search`` returns."""

    query: str
    hits: tuple[Hit, ...]
    freshness: Freshness
    notices: tuple[str, ...]
    timings_ms: Mapping[str, float]
    verdict: Verdict
    corrections: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong that ``check`` found.

    Attributes:
        kind: ``database``, ``orphans``, ``keywords``, ``document``, ``chunk``, ``words``, ``windows``, ``vector``,
            ``memory``, ``file`` or ``pending``.
        path: The document's absolute path; empty where it isn't about one.
        detail: A sentence.
        file_id: The document's number; 0 where it isn't about one.
    """

    kind: str
    path: str
    detail: str
    file_id: int = 0


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What ``check`` did.

    Attributes:
        documents: Documents looked at.
        windows: Vectors looked at.
        findings: What was wrong before any repair.
        repaired: Whether a repair was made and left nothing wrong.
        seconds: Wall time.
    """

    documents: int
    windows: int
    findings: tuple[Finding, ...]
    repaired: bool
    seconds: float


JSONObject = dict[str, Any]

"""What of the passages a model is shown: the most relevant first, whole sections where they fit, within a budget.

Budgets are in tokens. No tokenizer of a foreign model is at hand, so tokens are estimated from characters, high on
purpose: too much would be cut off by the provider, in silence or with an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import regex as re

from copilotd.types import Hit, IndexReader, Message, StoredChunk

# OpenAI's and Anthropic's tokenizers take 3.5 to 4.5 characters of English prose a token and about 3 of code.
_CHARS_PER_TOKEN = 3.0
_OTHER_SCRIPTS = re.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

# A passage is cut rather than left out where at least this much of it fits.
_WORTH_CUTTING = 130
_LABEL_COST = 30
# What a chat template puts around a message.
_ROLE_COST = 8
# A question may take this share of the window.
_QUESTION_SHARE = 0.25
# What was said before may take this share of what is left for passages.
_HISTORY_SHARE = 0.25
# Roles, fences and whatever a chat template adds.
_MARGIN = 100
# Chunks of a section that are looked at; a longer one is not sent whole anyway.
_MOST_CHUNKS = 12

_BLANK_LINE = "\n\n"

Siblings = Mapping[int, Sequence[StoredChunk]]


@dataclass(frozen=True, slots=True)
class PackedPassage:
    """A passage as it is sent.

    Attributes:
        key: ``A``, ``B``…
        hit: Where it comes from; its chunk is a run of several where neighbours were merged.
        text: What of its text fits, as the document has it.
        complete: Whether that is all of it.
    """

    key: str
    hit: Hit
    text: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Packed:
    """What fits the budget.

    Attributes:
        passages: In the order of relevance.
        left_out: How many passages did not fit at all.
    """

    passages: tuple[PackedPassage, ...]
    left_out: int = 0

    @property
    def notice(self) -> str:
        """A sentence for the reader about what the model did not see; empty where it saw everything."""
        cut = sum(not passage.complete for passage in self.passages)
        parts = []
        if cut:
            parts.append(f"{cut} passage{'s were' if cut > 1 else ' was'} shortened")
        if self.left_out:
            parts.append(f"{self.left_out} less relevant {'were' if self.left_out > 1 else 'was'} left out")
        return f"To fit the model's context, {' and '.join(parts)}." if parts else ""


def key_of(number: int) -> str:
    """Returns ``A`` for 0, ``Z`` for 25, ``AA`` for 26."""
    key = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        key = chr(ord("A") + letter) + key
    return key


def estimate_tokens(text: str) -> int:
    """Returns how many tokens ``text`` takes at most, in all likelihood."""
    if text.isascii():
        return int(len(text) / _CHARS_PER_TOKEN) + 1
    dense = len(_OTHER_SCRIPTS.findall(text))
    other = len(_NOT_ASCII.findall(text)) - dense
    return int((len(text) - dense - other) / _CHARS_PER_TOKEN + 1.5 * dense + other) + 1


def passage_budget(context_tokens: int, max_tokens: int, *fixed: str) -> int:
    """Returns how many tokens of passages fit beside the ``fixed`` texts and an answer of ``max_tokens``."""
    return max(0, context_tokens - max_tokens - _MARGIN - sum(map(estimate_tokens, fixed)))


def shorten_question(query: str, context_tokens: int) -> str:
    """Returns what of a question is sent; its beginning and its end where it takes too much of the window."""
    room = int(context_tokens * _QUESTION_SHARE)
    if estimate_tokens(query) <= room:
        return query
    chars = max(80, int(len(query) * room / estimate_tokens(query)) - 10)
    # The question proper stands at one of the two; a pasted log stands between.
    return f"{query[: chars // 2].rstrip()} […] {query[-(chars // 2) :].lstrip()}"


def fit_history(history: Sequence[Message], budget: int) -> tuple[Message, ...]:
    """Returns the latest messages that fit their share of a passage budget, question and answer always together."""
    room = int(budget * _HISTORY_SHARE)
    kept: list[Message] = []
    for start in range(len(history) - 2, -1, -2):
        pair = history[start : start + 2]
        room -= history_tokens(pair)
        if room < 0:
            break
        kept[:0] = pair
    return tuple(kept)


def history_tokens(history: Sequence[Message]) -> int:
    """Returns how many tokens messages take at most, in all likelihood."""
    return sum(estimate_tokens(message.content) + _ROLE_COST for message in history)


def pack(hits: Sequence[Hit], budget: int, siblings: Siblings | None = None) -> Packed:
    """Chooses what of ``hits``, best first, fits ``budget`` tokens; of the first always something.

    Args:
        hits: The passages.
        budget: In tokens.
        siblings: By chunk id the chunks of its whole section; a section goes in whole where all hits fit with it.
    """
    merged = _merge(hits)
    if siblings:
        merged = _with_sections(merged, siblings, budget)
    passages: list[PackedPassage] = []
    room = budget
    for number, hit in enumerate(merged):
        key = key_of(number)
        text = hit.chunk.text
        cost, whole = _overhead(hit), estimate_tokens(text)
        if cost + whole <= room:
            passages.append(PackedPassage(key, hit, text))
            room -= cost + whole
            continue
        if room - cost >= _WORTH_CUTTING or not passages:
            kept = _cut(text, max(room - cost, _WORTH_CUTTING))
            # All of it fits after all where the budget is below the least that is sent of the first.
            passages.append(PackedPassage(key, hit, kept, len(kept) == len(text)))
        break
    return Packed(tuple(passages), len(merged) - len(passages))


def section_siblings(view: IndexReader, hits: Sequence[Hit]) -> Siblings:
    """Returns for each hit the chunks of its section, in document order, itself among them."""
    found: dict[int, Sequence[StoredChunk]] = {}
    for hit in hits:
        ids = view.neighbours(hit.chunk.id)
        place = ids.index(hit.chunk.id) if hit.chunk.id in ids else 0
        near = ids[max(0, place - _MOST_CHUNKS) : place + _MOST_CHUNKS + 1]
        chunks = sorted(view.load_chunks(near).values(), key=lambda chunk: chunk.start)
        path = hit.chunk.metadata.heading_path
        found[hit.chunk.id] = tuple(chunk for chunk in chunks if chunk.metadata.heading_path == path)
    return found


def _merge(hits: Sequence[Hit]) -> list[Hit]:
    """Joins hits that follow each other in one section, at the place of the more relevant one."""
    merged: list[Hit] = []
    for hit in hits:
        for number, other in enumerate(merged):
            if (joined := _joined(other.chunk, hit.chunk)) is not None:
                merged[number] = replace(other, chunk=joined)
                break
        else:
            merged.append(hit)
    return merged if len(merged) == len(hits) else _merge(merged)


def _with_sections(hits: Sequence[Hit], siblings: Siblings, budget: int) -> list[Hit]:
    """Widens the best hits to their sections while everything still fits."""
    room = budget - sum(_overhead(hit) + estimate_tokens(hit.chunk.text) for hit in hits)
    widened: list[Hit] = []
    for hit in hits:
        chunk = hit.chunk
        for sibling in siblings.get(chunk.id, ()):
            chunk = _joined(chunk, sibling) or chunk
        for sibling in reversed(siblings.get(chunk.id, ())):
            chunk = _joined(chunk, sibling) or chunk
        more = estimate_tokens(chunk.text) - estimate_tokens(hit.chunk.text)
        if 0 < more <= room:
            room -= more
            hit = replace(hit, chunk=chunk)
        widened.append(hit)
    return _merge(widened)


def _joined(one: StoredChunk, other: StoredChunk) -> StoredChunk | None:
    """Returns both as one chunk where they touch within a section, else None; the id stays that of ``one``."""
    same = one.document_id == other.document_id and one.namespace == other.namespace
    if (
        not same
        or one.metadata.heading_path != other.metadata.heading_path
        or one.end - one.start != len(one.text)
    ):
        return None
    first, second = (one, other) if one.start <= other.start else (other, one)
    gap = second.start - first.end
    if gap > len(_BLANK_LINE) or other.end - other.start != len(other.text):
        return None
    first_lines = first.line_numbers[: first.text.count("\n") + 1]
    if gap > 0:
        # Two paragraphs, or two blocks without a blank line between them; a space within one line is neither.
        if not first_lines or not second.line_numbers or second.line_numbers[0] < first_lines[-1] + gap:
            return None
        first_text = f"{first.text}{_BLANK_LINE[:gap]}{second.text}"
        blank = range(first_lines[-1] + 1, first_lines[-1] + gap)
        lines = (*first_lines, *blank, *second.line_numbers)
    elif second.end <= first.end:
        if first.text[second.start - first.start : second.end - first.start] != second.text:
            return None
        first_text, lines = first.text, first.line_numbers
    else:
        common = first.end - second.start
        if second.text[:common] != first.text[len(first.text) - common :]:
            return None
        first_text = first.text + second.text[common:]
        shared = second.text[:common].count("\n")
        lines = (*first_lines, *second.line_numbers[shared + 1 :])
        if not common or second.text[common - 1] == "\n":
            lines = (*first.line_numbers[: first.text.count("\n")], *second.line_numbers[shared:])
    metadata = replace(
        one.metadata,
        line_start=min(first.metadata.line_start, second.metadata.line_start),
        line_end=max(first.metadata.line_end, second.metadata.line_end),
        page=first.metadata.page,
        page_end=second.metadata.page_end,
        char_count=len(first_text),
    )
    return replace(
        one,
        text=first_text,
        start=first.start,
        end=max(first.end, second.end),
        line_numbers=lines,
        page_starts=tuple(sorted({*first.page_starts, *second.page_starts})),
        blocks=(),
        context=first.context,
        metadata=metadata,
    )


def _overhead(hit: Hit) -> int:
    return estimate_tokens(hit.chunk.context) + _LABEL_COST


def _cut(text: str, tokens: int) -> str:
    """Returns the beginning of ``text`` up to a paragraph's, line's or word's end."""
    needed = estimate_tokens(text)
    if needed <= tokens:
        return text
    limit = max(1, len(text) * tokens // needed)
    for separator in ("\n\n", "\n", " "):
        end = text.rfind(separator, limit // 2, limit)
        if end > 0:
            return text[:end]
    return text[:limit]

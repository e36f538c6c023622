"""Turns pending windows into vectors: in the background for bulk work, at once for a fresh edit."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from copilotd.embed.tokens import pack_tokens
from copilotd.errors import CopilotError, ShuttingDown
from copilotd.index.store import Store
from copilotd.supervise import Worker
from copilotd.text import one_line
from copilotd.types import Encoder, TokenEncoder
from copilotd.update.writer import Writer

_log = logging.getLogger(__name__)

# Windows encoded between two looks at whether a question wants the cores, and stored in one transaction.
_SLICE = 4
# Windows listed at a time, so that those of like length can be put together.
_LISTED = 64
# Windows that could not be embedded are left alone for this long, so that they don't hold up the others.
_POSTPONED_S = 60.0
FEW = 32
"""So many windows take a fraction of a second: a question waits for them rather than do without."""
# How long bulk work steps aside for questions before it takes its turn all the same.
_LONGEST_PAUSE_S = 1.0


class Embedder:
    """Owns the pending windows; the encoder arrives when it is loaded.

    Attributes:
        embedded_total: Windows embedded since the start.
    """

    def __init__(self, store: Store, writer: Writer, on_error: Callable[[str], None]) -> None:
        self.embedded_total = 0
        self._store = store
        self._writer = writer
        self._on_error = on_error
        self._encoder: Encoder | None = None
        self._condition = threading.Condition()
        self._claimed: set[bytes] = set()
        self._postponed: dict[bytes, float] = {}
        self._questions = 0
        self._stopping = False
        self._thread = Worker("embedder", self._run, on_death=on_error)
        self._thread.start()

    @property
    def encoder(self) -> Encoder | None:
        """The loaded encoder, or None while there is none."""
        return self._encoder

    def use(self, encoder: Encoder | None) -> None:
        """Sets the encoder and starts on what is pending."""
        with self._condition:
            self._encoder = encoder
            self._condition.notify_all()

    def wake(self) -> None:
        """Says that windows may be pending."""
        with self._condition:
            self._condition.notify_all()

    def embed_now(self, keys: Sequence[bytes], stop: Callable[[], bool] = lambda: False) -> bool:
        """Embeds these windows on the caller's thread, or waits where another is at it.

        Args:
            keys: Keys of pending windows; those that have a vector already are no work.
            stop: Asked between slices; the rest is left to the background.

        Returns:
            Whether all of them have a vector now.
        """
        if self._encoder is None:
            return not self._store.pending_texts(keys)
        mine = self._claim(keys)
        try:
            work = self._store.pending_texts(mine)
            for first in range(0, len(work), _SLICE * 4):
                if stop() or self._stopping:
                    return False
                self._encode_and_store(work[first : first + _SLICE * 4], urgent=True)
        finally:
            self._release(mine)
        with self._condition:
            while not stop() and not self._stopping and any(key in self._claimed for key in keys):
                self._condition.wait(0.02)
        return not self._store.pending_texts(keys)

    def embed_few(self, stop: Callable[[], bool]) -> None:
        """Embeds what is pending where that is little, on the caller's thread: no answer should go without it.

        What can't be embedded is left to the background, which says so.

        Args:
            stop: Asked between slices.
        """
        if self._encoder is None:
            return
        with self._condition:
            left_out = set(self._postponed)
        work = self._store.pending_windows(FEW + 1, left_out)
        if not 0 < len(work) <= FEW:
            return
        try:
            self.embed_now([key for key, _ in work], stop)
        except ShuttingDown:
            raise
        except Exception as error:
            _log.warning("event=embedding_left_to_the_background error=%s", one_line(str(error), 200))

    def question_begins(self) -> None:
        """Makes bulk work step aside."""
        with self._condition:
            self._questions += 1

    def question_ends(self) -> None:
        """Lets bulk work go on."""
        with self._condition:
            self._questions -= 1
            self._condition.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """Stops after the slice at hand; returns whether the thread ended in time."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        return self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping:
            try:
                if self._encoder is None or not self._embed_some():
                    with self._condition:
                        if not self._stopping:
                            self._condition.wait(5.0)
            except ShuttingDown:
                return
            except CopilotError as error:
                self._report(error.message)
            except Exception as error:
                _log.exception("embedding failed")
                self._report(f"embedding failed: {error}")

    def _report(self, message: str) -> None:
        self._on_error(message)
        with self._condition:
            if not self._stopping:
                # Whatever is wrong (a full disk, a broken model) is not mended by trying at once again.
                self._condition.wait(5.0)

    def _embed_some(self) -> bool:
        """Embeds some of the pending windows; returns whether there was any."""
        now = time.monotonic()
        with self._condition:
            self._postponed = {key: until for key, until in self._postponed.items() if until > now}
            left_out = self._claimed | self._postponed.keys()
        work = self._store.pending_windows(_LISTED, left_out)
        # Texts of like length in one batch: padding costs as much as text.
        work.sort(key=lambda item: len(item[1]))
        for first in range(0, len(work), _SLICE):
            self._step_aside()
            if self._stopping:
                return True
            # Claimed a slice at a time: a fresh edit that needs one of them waits for this slice only, and what
            # it has embedded itself since the listing is not embedded again.
            mine = self._claim([key for key, _ in work[first : first + _SLICE]])
            try:
                self._encode_and_store(self._store.pending_texts(mine), urgent=False)
            except (ShuttingDown, sqlite3.Error):
                raise  # no fault of these windows
            except Exception:
                with self._condition:
                    self._postponed.update(dict.fromkeys(mine, time.monotonic() + _POSTPONED_S))
                raise
            finally:
                self._release(mine)
        return bool(work)

    def _encode_and_store(self, work: Sequence[tuple[bytes, str]], *, urgent: bool) -> None:
        encoder = self._encoder
        if not work or encoder is None:
            return
        keys = [key for key, _ in work]
        texts = [text for _, text in work]
        packed: list[bytes] = []
        if isinstance(encoder, TokenEncoder):
            vectors, tokens = encoder.encode_tokens(texts)
            packed = [pack_tokens(of_text.rows) for of_text in tokens]
        else:
            vectors = encoder.encode(texts)
        # Counted first: whoever sees that nothing is pending any more must see it counted.
        with self._condition:
            self.embedded_total += len(work)
        try:
            self._writer.run(lambda: self._store.put_vectors(keys, vectors, packed), urgent=urgent)
        except BaseException:
            with self._condition:
                self.embedded_total -= len(work)
            raise
        with self._condition:
            self._condition.notify_all()

    def _step_aside(self) -> None:
        until = time.monotonic() + _LONGEST_PAUSE_S
        with self._condition:
            while self._questions and not self._stopping and (left := until - time.monotonic()) > 0:
                self._condition.wait(left)

    def _claim(self, keys: Iterable[bytes]) -> list[bytes]:
        with self._condition:
            mine = [key for key in dict.fromkeys(keys) if key not in self._claimed]
            self._claimed.update(mine)
            return mine

    def _release(self, keys: Iterable[bytes]) -> None:
        with self._condition:
            self._claimed.difference_update(keys)
            self._condition.notify_all()

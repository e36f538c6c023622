"""Parsing in a child process with limits on time, memory and output.

    daemon  --request line, bytes-->  child  --length, JSON-->  daemon

Before its answer the child may send how many pages it has read, as often as it likes.

One child serves many files, because starting Python and pdfplumber costs 0.3 s and more; it is
replaced after any failure, after MAX_FILES files, and when another memory limit is asked for.
It is started as a new program (never forked: a fork copies the locks of threads that are gone).

The child never outlives the daemon: a pipe whose other end only the daemon holds closes when the
daemon dies, however it dies, and a thread of the child that waits for that ends it. (Linux'
PR_SET_PDEATHSIG can't be used: it fires when the *thread* that started the child ends.) A CPU-time
limit stops a child whose interpreter no longer gives that thread a turn. The child runs at low
priority, in its own session (Ctrl-C reaches the daemon only), without core dumps, and gets neither
the keys nor the working folder of the daemon. What it starts itself (OCR) inherits the limits, is of
its process group, and ends with it.

Linux enforces the memory limit (RLIMIT_AS); macOS accepts and ignores it, there the time limit is
what stops an exploding file.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Protocol, runtime_checkable

from copilotd.errors import NoText, ParseError, ReaderStopped
from copilotd.ingest.document_json import document_from_json, document_to_json, dump
from copilotd.text import one_line
from copilotd.types import Document, JSONObject, Parser

MAX_FILES = 50
MAX_OUTPUT_BYTES = 128 * 1024 * 1024
_MAX_IDLE = 1
_PARSERS = {"docx": "copilotd.ingest.docx:DocxParser", "pdf": "copilotd.ingest.pdf:PdfParser"}
_PIECE = 1 << 16
_MOST_STARVED = 4
_GARBAGE = "damaged: its reader gave a damaged answer"
_KEPT_VARIABLES = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "TESSDATA_PREFIX",
)  # fmt: skip
_PROGRESS = b'{"pages":['
_PROGRESS_BYTES = 64
_PROGRESS_S = 0.2

OnPages = Callable[[int, int], None]
"""Told how many pages of a file are read, and of how many."""


@runtime_checkable
class PagedParser(Protocol):
    """A parser that tells how far it is."""

    on_page: OnPages


class _Broken(Exception):
    """The child can't be used any more; the message is the skip reason of the file it had."""


class _Ended(_Broken):
    """The child ended by itself."""


class _Child:
    """A child process and the pipes to it."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.files = 0
        life_read, self._life = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "copilotd.ingest.isolate", str(memory_bytes), str(life_read)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env=_environment(),
                pass_fds=(life_read,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._life)
            raise
        finally:
            os.close(life_read)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        self._output: IO[bytes] = self._process.stdout
        os.set_blocking(self._input.fileno(), False)
        os.set_blocking(self._output.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: bytes, seconds: float, on_pages: OnPages | None) -> bytes:
        """Sends ``request``, returns the answer; tells ``on_pages`` of the pages read meanwhile.

        Raises:
            _Broken: There is no whole answer, or none within ``seconds``.
        """
        unsent = memoryview(request)
        received = bytearray()
        wanted: int | None = None
        started = time.monotonic()
        starved = self._starved_seconds()
        deadline = started + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._input, selectors.EVENT_WRITE)
            while wanted is None or len(received) < wanted:
                left = deadline - time.monotonic()
                if left <= 0:
                    # At low priority a busy machine lets the child wait; that is not the file's fault.
                    waited = min(self._starved_seconds() - starved, _MOST_STARVED * seconds)
                    deadline = started + seconds + waited
                    if deadline <= time.monotonic() + 0.01:
                        raise _Broken(f"took longer than {seconds:g} s to read")
                    continue
                for key, _ in selector.select(left):
                    if key.fileobj is self._output:
                        piece = os.read(self._output.fileno(), _PIECE)
                        if not piece:
                            raise _Ended(self._end_reason())
                        received += piece
                    else:
                        try:
                            unsent = unsent[os.write(self._input.fileno(), unsent[:_PIECE]) :]
                        except BrokenPipeError:
                            unsent = unsent[:0]
                        if not unsent:
                            selector.unregister(self._input)
                while wanted is None and len(received) >= 8:
                    wanted = 8 + int.from_bytes(received[:8], "big")
                    if wanted > MAX_OUTPUT_BYTES:
                        raise _Broken(f"its text is larger than {MAX_OUTPUT_BYTES >> 20} MB")
                    if 8 < wanted <= _PROGRESS_BYTES and len(received) < wanted:
                        # Too little of a short message to tell progress from the answer.
                        wanted = None
                        break
                    if wanted <= _PROGRESS_BYTES and received.startswith(_PROGRESS, 8):
                        _tell(bytes(received[8:wanted]), on_pages)
                        del received[:wanted]
                        wanted = None
        if len(received) != wanted:
            raise _Broken(_GARBAGE)
        return bytes(received[8:])

    def _starved_seconds(self) -> float:
        """How long the child was ready to run but got no processor (Linux; 0 elsewhere)."""
        try:
            with open(f"/proc/{self.pid}/schedstat", encoding="ascii") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def _end_group(self) -> None:
        """Ends the programs the child has started; its group is named after it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _end_reason(self) -> str:
        """Says why the child ended by itself."""
        try:
            status = self._process.wait(2)
        except subprocess.TimeoutExpired:
            return "damaged: its reader ended without an answer"
        # Now, not later: no other process can have got its number yet.
        self._end_group()
        if status == -signal.SIGXCPU:
            return "took too long to read"
        if status == -signal.SIGKILL:
            return "its reader was stopped by the system (out of memory?)"
        if status < 0:
            return f"damaged: its reader crashed ({signal.Signals(-status).name})"
        return "damaged: its reader ended without an answer"

    def kill(self) -> None:
        """Ends the child with all it started and closes the pipes; more than once does no harm."""
        if self._process.returncode is None:
            self._end_group()
        self._process.kill()
        self._process.wait()
        for stream in (self._input, self._output):
            with contextlib.suppress(OSError):
                stream.close()
        if self._life >= 0:
            os.close(self._life)
            self._life = -1


_idle: list[_Child] = []
_lock = threading.Lock()


def parse_isolated(
    parser_name: str,
    source: bytes,
    doc_title: str,
    *,
    seconds: float,
    memory_bytes: int,
    options: JSONObject | None = None,
    on_pages: OnPages | None = None,
) -> Document:
    """Parses ``source`` in a child process. Any thread may call it; calls run side by side.

    Args:
        parser_name: Name of an isolated parser ("pdf"), or ``module:Class`` of any Parser.
        source: The file's bytes.
        doc_title: The file's name without suffix.
        seconds: Wall-clock limit; the child is killed then. Time it was ready to run but got no
            processor is not counted, up to four times the limit (Linux).
        memory_bytes: What the child may need beyond its own start-up size (Linux).
        options: Arguments for the parser.
        on_pages: Told now and then how many pages are read; what it raises stops the parsing.

    Raises:
        ParseError: The parser's own reason; NoText where the child says so.
        ReaderStopped: Which limit the file broke, or how its child failed.
    """
    head: JSONObject = {
        "parser": parser_name,
        "doc_title": doc_title,
        "size": len(source),
        "seconds": seconds,
        "options": options or {},
    }
    request = dump(head) + b"\n" + source
    while True:
        child = _take(memory_bytes)
        try:
            reply = _reply(child.ask(request, seconds, on_pages), memory_bytes)
        except _Ended as error:
            child.kill()
            # One that read other files before may have been dying already: a new one decides.
            if child.files:
                continue
            raise ReaderStopped(str(error)) from None
        except _Broken as error:
            child.kill()
            raise ReaderStopped(str(error)) from None
        except BaseException:
            child.kill()
            raise
        _give_back(child)
        if isinstance(reply, ParseError):
            raise reply
        return reply


def idle_children() -> list[int]:
    """Returns the process ids of the children that wait for a file."""
    with _lock:
        return [child.pid for child in _idle]


def close() -> None:
    """Ends all idle children. Files being parsed go on; later calls start children again."""
    with _lock:
        children, _idle[:] = list(_idle), []
    for child in children:
        child.kill()


atexit.register(close)


def _take(memory_bytes: int) -> _Child:
    while True:
        with _lock:
            child = _idle.pop() if _idle else None
        if child is None:
            return _Child(memory_bytes)
        if child.memory_bytes == memory_bytes and child.alive():
            return child
        child.kill()


def _give_back(child: _Child) -> None:
    child.files += 1
    if child.files < MAX_FILES:
        with _lock:
            if len(_idle) < _MAX_IDLE:
                _idle.append(child)
                return
    child.kill()


def _tell(message: bytes, on_pages: OnPages | None) -> None:
    try:
        done, total = json.loads(message)["pages"]
    except (ValueError, KeyError, TypeError):
        raise _Broken(_GARBAGE) from None
    if type(done) is not int or type(total) is not int or not 0 <= done <= total:
        raise _Broken(_GARBAGE)
    if on_pages is not None:
        on_pages(done, total)


def _reply(answer: bytes, memory_bytes: int) -> Document | ParseError:
    """Reads the child's answer: a Document, or the parser's reason why there is none.

    Raises:
        _Broken: The child ran out of memory, failed, or answers nonsense.
    """
    try:
        reply = json.loads(answer)
        if not isinstance(reply, dict):
            raise _Broken(_GARBAGE)
        if "document" in reply:
            return document_from_json(reply["document"])
    except (ValueError, RecursionError):
        raise _Broken(_GARBAGE) from None
    except ParseError as error:
        raise _Broken(error.message) from None
    if reply.get("memory") is True:
        raise _Broken(f"needed more than {memory_bytes >> 20} MB of memory to read")
    if isinstance(reply.get("failed"), str):
        raise _Broken(f"damaged: its reader failed ({one_line(reply['failed'], 80)})")
    if isinstance(reply.get("reason"), str):
        kind = NoText if reply.get("no_text") is True else ParseError
        return kind(one_line(reply["reason"], 300))
    raise _Broken(_GARBAGE)


def _environment() -> dict[str, str]:
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    package_parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join([package_parent, *filter(None, known)])
    # Each thread of OpenBLAS reserves address space, which RLIMIT_AS counts.
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return environment


# ---------------------------------------------------------------------------------- in the child


def serve(memory_bytes: int, life: int) -> None:
    """The child: answers requests on stdin until it is closed."""
    source = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not end up between the answers.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parsers: dict[bytes, Parser] = {}
    limited = False

    def send(answer: bytes) -> None:
        answers.write(len(answer).to_bytes(8, "big"))
        answers.write(answer)
        answers.flush()

    while header := source.readline():
        request = json.loads(header)
        data = source.read(request["size"])
        if len(data) != request["size"]:
            return
        _limit_cpu(request["seconds"])
        try:
            key = dump({"name": request["parser"], "options": request["options"]})
            parser = parsers.get(key) or _load(request["parser"], request["options"])
            parsers[key] = parser
            if isinstance(parser, PagedParser):
                parser.on_page = _page_counter(send)
            if not limited:
                _limit_memory(memory_bytes)
                limited = True
            reply: JSONObject = {"document": document_to_json(parser.parse(data, request["doc_title"]))}
            answer = dump(reply)
        except ParseError as error:
            answer = dump({"reason": error.message, "no_text": isinstance(error, NoText)})
        except MemoryError:
            answer = b'{"memory":true}'
        except Exception as error:
            answer = dump({"failed": type(error).__name__})
        del data
        send(answer)


def _page_counter(send: Callable[[bytes], None]) -> OnPages:
    """Sends pages read, but not so often that a fast file is held up by it."""
    told = time.monotonic()

    def on_page(done: int, total: int) -> None:
        nonlocal told
        if (now := time.monotonic()) - told >= _PROGRESS_S:
            told = now
            send(dump({"pages": [done, total]}))

    return on_page


def _load(name: str, options: JSONObject) -> Parser:
    module, _, attribute = _PARSERS.get(name, name).partition(":")
    parser = getattr(importlib.import_module(module), attribute)(**options)
    assert isinstance(parser, Parser)
    return parser


def _end_with_parent(life: int) -> None:
    with contextlib.suppress(OSError):
        os.read(life, 1)
    with contextlib.suppress(ProcessLookupError):
        # With the OCR program that may be running.
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _limit_cpu(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 10
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _limit_memory(memory_bytes: int) -> None:
    """Limits what is needed on top of the interpreter and its libraries."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            size = int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        size = 0
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (size + memory_bytes, size + memory_bytes))


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))

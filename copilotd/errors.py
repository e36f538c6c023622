"""Every error the product raises on purpose, in one tree.

::

    CopilotError                      code, message, hint; shown to people as it stands
    ├── UsageError                    the request itself is wrong (bad path, bad option, bad reference)
    │   ├── RootNotFound              the folder is not there, or not a watched root
    │   ├── RootOverlap               a root inside another of the same namespace
    │   ├── SectionNotFound           ``section REF`` names nothing that is indexed
    │   └── ConversationNotFound      there is no such conversation
    ├── SettingsError (RuntimeError)  a setting is missing or wrong; names the variable
    ├── ParseError                    one document cannot be read; the others go on
    ├── IndexError_                   the stored index cannot be used
    │   ├── IndexMissing              (FileNotFoundError) nothing was ever indexed here
    │   ├── IndexLocked               another daemon owns this index
    │   └── IndexTooNew               written by a newer version; left untouched
    ├── ModelError                    the embedding model is missing, damaged or refused
    ├── ModelLoading                  the embedding model was not ready within the time limit
    ├── ProviderError                 the LLM provider did not answer
    │   ├── ProviderAuth              key rejected (401, 403)
    │   ├── ProviderModelMissing      the provider does not know the model
    │   ├── ProviderUnreachable       nothing listens, no route, TLS, or a time-out
    │   ├── ProviderOverloaded        429, 503, 529 after all retries
    │   ├── ProviderContextTooLong    the request does not fit the model
    │   └── ProviderBadReply          empty, malformed or broken off
    ├── WireError                     bytes on the socket that are not the protocol
    ├── VersionMismatch               client and daemon speak different protocol versions
    ├── Busy                          the daemon refused the request because of a limit
    ├── ShuttingDown                  the daemon is stopping
    ├── CannotStart                   the daemon was started for this question and can't run as things are
    └── Cancelled                     the client went away or pressed Ctrl-C

The numbers in :data:`JSONRPC_CODES` are the wire's; the client maps them back with
:func:`error_from_wire`, so that both sides speak of one class.
"""

from __future__ import annotations

from typing import ClassVar

NEXT = " Next: "
"""Stands between message and hint where both are one sentence: in a status, or among notices."""


class CopilotError(Exception):
    """Base of all errors that are meant to be read by a person.

    Args:
        message: One sentence that says what is wrong.
        hint: What to do next, often a command; empty where there is nothing to do.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CopilotError):
    """The request is wrong as it stands; repeating it cannot help."""

    code = "usage"


class RootNotFound(UsageError):
    """The folder does not exist, or is not a watched root."""

    code = "root_not_found"


class RootOverlap(UsageError):
    """A root would lie inside another root of the same namespace."""

    code = "root_overlap"


class SectionNotFound(UsageError):
    """A section reference names nothing that is indexed."""

    code = "section_not_found"


class ConversationNotFound(UsageError):
    """There is no such conversation."""

    code = "conversation_not_found"


class SettingsError(CopilotError, RuntimeError):
    """One or more settings are missing or wrong; the message names each variable."""

    code = "settings"


class ParseError(CopilotError):
    """A document cannot be read; ``message`` is the reason shown beside its name."""

    code = "parse"


class NoText(ParseError):
    """A document has no text of its own; it may be a picture of one, which OCR could read."""


class ReaderStopped(ParseError):
    """The process that read a document broke a limit, crashed, or gave nonsense; nothing is known of it."""


class IndexError_(CopilotError):
    """The stored index cannot be used."""

    code = "index"


class IndexMissing(IndexError_, FileNotFoundError):
    """Nothing has been indexed yet."""

    code = "index_missing"

    def __init__(self, message: str = "Run --index first", hint: str = "copilot index DIR") -> None:
        super().__init__(message, hint)

    def __str__(self) -> str:
        return self.message


class IndexLocked(IndexError_):
    """Another daemon owns this index; the message says which process."""

    code = "index_locked"


class IndexTooNew(IndexError_):
    """The index was made by a newer version and is left untouched."""

    code = "index_too_new"


class ModelError(CopilotError):
    """The embedding model is missing, damaged or not trusted."""

    code = "model"


class ModelLoading(CopilotError):
    """The embedding model was not ready within the time limit."""

    code = "model_loading"


class ProviderError(CopilotError):
    """The LLM provider did not give a usable answer."""

    code = "provider"


class ProviderAuth(ProviderError):
    """The provider rejected the key."""

    code = "provider_auth"


class ProviderModelMissing(ProviderError):
    """The provider does not know the model."""

    code = "provider_model_missing"


class ProviderUnreachable(ProviderError):
    """Nothing answers at the provider's address within the time limit."""

    code = "provider_unreachable"


class ProviderOverloaded(ProviderError):
    """The provider is overloaded or rate-limits this key, after all retries."""

    code = "provider_overloaded"


class ProviderContextTooLong(ProviderError):
    """Question and passages do not fit the model's context window."""

    code = "provider_context_too_long"


class ProviderBadReply(ProviderError):
    """The provider's reply is empty, malformed or broken off."""

    code = "provider_bad_reply"


class WireError(CopilotError):
    """Bytes on the socket that are not the protocol."""

    code = "wire"


class VersionMismatch(CopilotError):
    """Client and daemon speak different protocol versions."""

    code = "version_mismatch"


class Busy(CopilotError):
    """The daemon refused the request because of a limit."""

    code = "busy"


class ShuttingDown(CopilotError):
    """The daemon is stopping."""

    code = "shutting_down"


class CannotStart(CopilotError):
    """A service manager started the daemon, which can't run as things are; the message says why."""

    code = "cannot_start"


def could_not_start(why: str) -> str:
    """Returns why the daemon could not start as one sentence, whoever says so first: the daemon or who waits for it."""
    return why if why.startswith(_NO_START) else f"{_NO_START}{why}"


_NO_START = "The daemon could not start: "


class Cancelled(CopilotError):
    """The request was cancelled by its client."""

    code = "cancelled"


# JSON-RPC 2.0 reserves -32768..-32000; -32000..-32099 is the range for a server's own errors, and
# application errors may take any other number. https://www.jsonrpc.org/specification#error_object
JSONRPC_CODES: dict[type[CopilotError], int] = {
    CopilotError: -32603,
    UsageError: -32602,
    RootNotFound: 1001,
    RootOverlap: 1002,
    SectionNotFound: 1003,
    ConversationNotFound: 1004,
    SettingsError: 1010,
    ParseError: 1020,
    IndexError_: 1030,
    IndexMissing: 1031,
    IndexLocked: 1032,
    IndexTooNew: 1033,
    ModelError: 1040,
    ModelLoading: 1041,
    ProviderError: 1050,
    ProviderAuth: 1051,
    ProviderModelMissing: 1052,
    ProviderUnreachable: 1053,
    ProviderOverloaded: 1054,
    ProviderContextTooLong: 1055,
    ProviderBadReply: 1056,
    WireError: -32700,
    VersionMismatch: 1060,
    Busy: 1070,
    ShuttingDown: 1071,
    Cancelled: 1072,
    CannotStart: 1073,
}

_BY_CODE_NAME: dict[str, type[CopilotError]] = {cls.code: cls for cls in JSONRPC_CODES}


def jsonrpc_code(error: CopilotError) -> int:
    """Returns the wire's number for ``error``, taking the nearest class in the tree."""
    for cls in type(error).__mro__:
        if cls in JSONRPC_CODES:
            return JSONRPC_CODES[cls]
    return JSONRPC_CODES[CopilotError]


def error_from_wire(code: str, message: str, hint: str) -> CopilotError:
    """Rebuilds the error the daemon raised; an unknown code gives a plain :class:`CopilotError`."""
    cls = _BY_CODE_NAME.get(code, CopilotError)
    return cls(message, hint)

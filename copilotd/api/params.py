"""What each method takes: types for pydantic that refuse what makes no sense, with a sentence."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from copilotd.errors import UsageError
from copilotd.text import one_line
from copilotd.types import DEFAULT_NAMESPACE, JSONObject, Scope

_MAX_PATH_CHARS = 4096
_MAX_LIST = 100
_MAX_PROBLEM_CHARS = 400

# What no file name has: NUL, and surrogates other than those that stand for bytes which are not UTF-8.
_IMPOSSIBLE_IN_PATHS = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")


def _check_path(value: object) -> str:
    """Accepts any name a file can have; pydantic's own string with a length refuses lone surrogates."""
    if not isinstance(value, str):
        raise PydanticCustomError("path", "must be a string")
    if not 1 <= len(value) <= _MAX_PATH_CHARS:
        raise PydanticCustomError(
            "path",
            "must have 1 to {most} characters, not {count}",
            {"most": _MAX_PATH_CHARS, "count": len(value)},
        )
    if match := _IMPOSSIBLE_IN_PATHS.search(value):
        raise PydanticCustomError("path", "no file name can hold U+{code}", {"code": f"{ord(match[0]):04X}"})
    # Escaped bytes that are UTF-8 after all have one spelling, the one a scan gives.
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _check_count(value: object) -> object:
    """Looks at the length before the items: a list of thousands must not give thousands of errors."""
    if isinstance(value, list) and len(value) > _MAX_LIST:
        raise PydanticCustomError(
            "list", "may have {most} items, not {count}", {"most": _MAX_LIST, "count": len(value)}
        )
    return value


ParamsModel = TypeVar("ParamsModel", bound="Params")
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Path = Annotated[str, PlainValidator(_check_path)]
_ConversationName = Annotated[str, Field(pattern="^[a-z0-9]{1,40}$")]
_Names = Annotated[list[_Name], BeforeValidator(_check_count)]
_Paths = Annotated[list[_Path], BeforeValidator(_check_count)]


class Params(BaseModel):
    """What every method takes: nothing unknown, no value converted from another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ScopeParams(Params):
    """Where to search."""

    namespaces: _Names | None = None
    paths: _Paths = []

    def scope(self) -> Scope:
        """Returns the scope they name."""
        return Scope(tuple(self.namespaces) if self.namespaces else None, tuple(self.paths))


class AskParams(ScopeParams):
    """``ask``: a question and how to answer it."""

    query: str
    top_k: Annotated[int, Field(ge=1, le=100)] | None = None
    extractive: bool = False
    long: bool = False
    min_score: Annotated[float, Field(ge=-1, le=1)] | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    deep: bool | None = None
    context: Literal["chunks", "documents"] | None = None
    top_documents: Annotated[int, Field(ge=1, le=100)] | None = None
    stream: bool = False
    conversation: _ConversationName | None = None


class SearchParams(ScopeParams):
    """``search``: a query and where to look."""

    query: str
    top_k: Annotated[int, Field(ge=1, le=100)] | None = None


class SectionParams(Params):
    """``section``: the name of a section."""

    ref: _Path
    namespace: _Name | None = None


class IndexParams(Params):
    """``index``: a folder and how to read it; sizes in characters."""

    path: _Path
    namespace: _Name = DEFAULT_NAMESPACE
    include: _Paths = []
    exclude: _Paths = []
    chunk_size: Annotated[int, Field(ge=100, le=100_000)] | None = None
    chunk_overlap: Annotated[int, Field(ge=0, le=50_000)] | None = None
    poll: bool = False


class ForgetParams(Params):
    """``forget``: a folder."""

    path: _Path
    namespace: _Name | None = None


class RebuildParams(Params):
    """``rebuild``: whether the vectors are made anew as well."""

    fresh_vectors: bool = False


class CheckParams(Params):
    """``check``: whether what is found is mended."""

    repair: bool = False


class ConversationParams(Params):
    """``conversation``: which one."""

    id: _ConversationName


class DeleteConversationsParams(Params):
    """``delete_conversations``: some, or all."""

    ids: Annotated[list[_ConversationName], BeforeValidator(_check_count)] = []
    all: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.ids) == self.all:
            raise PydanticCustomError("which", "name ids, or all")
        return self


class SyncParams(Params):
    """``sync``: the time it may take, in seconds."""

    budget_s: Annotated[float, Field(ge=0, le=600)] = 2.0


def validate(model: type[ParamsModel], params: JSONObject) -> ParamsModel:
    """Returns a request's parameters.

    Raises:
        UsageError: They don't fit; names each problem, and what the method takes.
    """
    try:
        return model.model_validate(params)
    except ValidationError as error:
        problems = "; ".join(
            f"{one_line('.'.join(map(str, problem['loc'])), 100) or 'params'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False, include_input=False)[:10]
        )
        known = ", ".join(model.model_fields) or "nothing"
        raise UsageError(
            f"The request's parameters are wrong: {one_line(problems, _MAX_PROBLEM_CHARS)}.",
            f"this method takes {known}; see docs/protocol.md",
        ) from None

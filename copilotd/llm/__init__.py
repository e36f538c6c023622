"""LLM providers through their official SDKs, each imported only when it is asked something."""

from copilotd.llm.completion import Completion, complete, get_completion
from copilotd.llm.factory import make_provider

__all__ = ["Completion", "complete", "get_completion", "make_provider"]

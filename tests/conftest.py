"""Makes ``support`` importable from every test folder, whatever the working directory.

Hypothesis draws the same examples in each run, so that a run is about the change at hand; the long runs
(``COPILOT_STATE_MACHINE``, ``COPILOT_FUZZ``) draw new ones.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))
# A shell starts its background jobs with SIGINT ignored, and children inherit that: Ctrl-C tests would hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("repeatable", derandomize=True, database=None)
if not (os.environ.get("COPILOT_STATE_MACHINE") or os.environ.get("COPILOT_FUZZ")):
    settings.load_profile("repeatable")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Lets reports cross to the main process: what a test printed of a file name need not be UTF-8."""
    report = yield
    return None if report is None else _encodable(report)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_encodable, value)) if type(value) in (list, tuple) else value
    return value

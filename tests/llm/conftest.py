"""What every test of a provider holds to."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_left_open(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails a test whose event loops had something to complain about, such as a generator closed twice."""
    yield
    gc.collect()
    records = caplog.get_records("call")
    assert [r.getMessage() for r in records if r.name == "asyncio" and r.levelno >= logging.WARNING] == []

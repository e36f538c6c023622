"""The documents and cases that stand beside the project, where they are present."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared"

needs_shared = pytest.mark.skipif(
    not (SHARED / "cases").is_dir(),
    reason="the shared cases and evaluation sets are not beside this checkout",
)

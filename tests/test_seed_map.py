"""The map of the seeds names every function, type, parameter and setting that the seeds name."""

from __future__ import annotations

import pytest
import regex as re
from support.shared import REPOSITORY, SHARED, needs_shared

MAP = REPOSITORY / "docs" / "seed-map.md"
# How the seeds write down what has a name: signatures, endpoints, code, variables.
_NAMES = (
    r"^([a-z_]\w*)\([^)\n]*\) *->",
    r"/(?:skills|reasoners)/(\w+)",
    r"^\s*(?:export )?(?:async )?function (\w+)\(",
    r"^class (\w+)",
    r"^interface (\w+)",
    r"^\s*private (\w+)\(",
    r"^([A-Z][A-Z_]{3,})[=\t]",
)


@needs_shared
@pytest.mark.parametrize(
    "seed", ["000_8a56dfb3df22268d.txt", "002_71759c2849689c8a.txt", "004_ba40c21137f7734f.txt"]
)
def test_each_name_of_a_seed_is_in_the_map(seed: str) -> None:
    text = (SHARED / "seeds" / seed).read_text(encoding="utf-8")
    names = {name for pattern in _NAMES for name in re.findall(pattern, text, re.MULTILINE)}
    for listed in re.findall(r"Parameters: (.+)", text):
        names |= {name.strip() for name in listed.split(",")}
    assert names
    page = MAP.read_text(encoding="utf-8")
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", page)) == []


def test_the_defaults_of_the_seeds_are_in_the_map() -> None:
    page = MAP.read_text(encoding="utf-8")
    for default in ("`min_score` (0.35)", "`top_k` (6)", "`top_documents` (5)", "`chunk_size` (1,200)"):
        assert default in page

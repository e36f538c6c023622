"""Each reported case about questions and answers has a test that names it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from support.shared import SHARED, needs_shared

TESTS = Path(__file__).parent


@needs_shared
def test_each_case_about_questions_is_named_by_a_test() -> None:
    lines = (SHARED / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = {str(json.loads(line)["id"]) for line in lines if json.loads(line)["kind"] == "query"}
    assert cases
    named = set()
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__):
            named |= set(re.findall(r"QRY-\d+", path.read_text(encoding="utf-8")))
    assert cases - named == set()

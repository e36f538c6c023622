"""Loading the model's library beside threads that have something to do."""

from __future__ import annotations

import gc
import subprocess
import sys

from copilotd.embed.loading import without_collecting

CHILD = """
import sys
from copilotd.embed.loading import preload_libraries
print(*preload_libraries())
print("torch" in sys.modules)
import torch
print(torch.tensor([1.0, 2.0]).sum().item())
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_libraries_are_loaded_beforehand_and_the_import_works_on_them() -> None:
    names, imported, total = run(CHILD).splitlines()
    assert "libtorch_cpu" in names
    assert (imported, total) == ("False", "3.0")


def test_without_the_library_nothing_happens() -> None:
    code = "from copilotd.embed import loading; loading.find_spec = lambda _: None; print(loading.preload_libraries())"
    assert run(code) == "[]\n"


def test_the_collector_rests_meanwhile_and_works_afterwards() -> None:
    before = gc.get_freeze_count()
    kept: list[list[int]] = []
    try:
        with without_collecting():
            assert not gc.isenabled()
            kept += [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + 1000
    finally:
        gc.unfreeze()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collecting():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()

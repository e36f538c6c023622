"""Loads the model's library so that the other threads are not held up by it.

Two things hold all threads up for a fifth of a second at a time while it is imported. The operating system's loader
binds a shared library of hundreds of megabytes under Python's lock: here that is done beforehand, without
the lock. The garbage collector looks at every object again and again while hundreds of thousands are made, none of them
garbage: here it rests meanwhile, and never looks at those again.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

# In the order in which they need each other; torch's own import finds them loaded.
_LIBRARIES = ("libtorch_cpu", "libtorch")


def preload_libraries() -> list[str]:
    """Loads torch's shared libraries without holding Python's lock; returns which were loaded.

    Where there are none, or they can't be loaded, nothing happens: the import itself says what is wrong.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    paths = [Path(spec.origin).parent / "lib" / f"{name}{suffix}" for name in _LIBRARIES]
    # Called as a foreign function, dlopen runs without the lock; ctypes.CDLL keeps it.
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    return [path.stem for path in paths if path.is_file() and load(os.fsencode(path), os.RTLD_NOW)]


@contextmanager
def without_collecting() -> Iterator[None]:
    """Keeps the garbage collector from running, and afterwards from what was made meanwhile."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()

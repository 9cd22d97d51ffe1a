"""Compilation that is kept on disk, and forgotten when any kernel changes.

numba keeps machine code until the file of the compiled function changes. But a function contains the code of the
functions that it calls, also of those in other files. So a change of a clipping rule could be ignored, silently, by the
functions that use it. Here everything that is kept is deleted unless all kernels are as they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

__all__ = ["kept_njit"]

F = TypeVar("F", bound=Callable[..., Any])

_STAMP = "dperm-kernels.sha256"


def kept_njit(*signatures: Any, **options: Any) -> Callable[[F], F]:
    """Compile a function with ``numba.njit`` and keep the machine code on disk, as long as no kernel changes.

    It is compiled at once for the given signatures, and for no others, or else when it is called.
    """

    def compiled(function: F) -> F:
        made: Any = njit(cache=True, **options)(function)
        if not _fresh(made.stats.cache_path):
            made = njit(**options)(function)
        for signature in signatures:
            made.compile(signature)
        if signatures:
            made.disable_compile()
        kept: F = made
        return kept

    return compiled


@cache
def _sources() -> str:
    """Return a digest of all kernels."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def _fresh(folder: str) -> bool:
    """Delete machine code that was made from other kernels; return whether what is left may be used."""
    stamp = Path(folder, _STAMP)
    try:
        if stamp.exists() and stamp.read_text() == _sources():
            return True
        for path in [*Path(folder).glob("*.nbi"), *Path(folder).glob("*.nbc")]:
            path.unlink(missing_ok=True)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(_sources())
    except OSError:  # a folder that cannot be written cannot be made fresh: compile anew in every process
        return False
    return True

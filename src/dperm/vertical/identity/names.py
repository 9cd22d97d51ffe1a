"""Names of runs and participants: they become file names and certificate subjects, so their form is restricted."""

from __future__ import annotations

import re

from dperm.errors import InvalidInput

__all__ = ["is_safe_name", "require_safe_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}[A-Za-z0-9]|[A-Za-z0-9]")


def is_safe_name(name: object) -> bool:
    """Whether ``name`` is safe as a file name and as the subject of a certificate."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and ".." not in name


def require_safe_name(name: str, what: str) -> str:
    """Return ``name``, or refuse it if it is not a safe name; ``what`` says in the error what it names."""
    if not is_safe_name(name):
        raise InvalidInput(
            f"{what} must be 1 to 64 letters, digits and single dots, dashes or underscores between them."
        )
    return name

"""Refuse a commit whose subject is too long or ends with a full stop: a log is read at a glance."""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 72


def problem(message: str) -> str | None:
    """Return what is wrong with a commit message's subject, or None."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        return "the subject is empty: say in the imperative what the commit does."
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters: use at most {LONGEST}, and put the reason into the body."
    if subject.endswith("."):
        return "the subject ends with a full stop: leave it out."
    if len(lines) > 1 and lines[1].strip():
        return "the second line must be empty: the body starts on the third."
    return None


if __name__ == "__main__":
    found = problem(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if found is not None:
        print(f"commit message: {found}", file=sys.stderr)
        sys.exit(1)

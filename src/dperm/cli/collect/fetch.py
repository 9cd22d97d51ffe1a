"""Read JSON from a collector's address or from a file, with one sentence for every error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dperm.errors import InvalidInput, RunError

__all__ = ["collection_at", "fetch_json", "read_json"]

_COLLECTOR = re.compile(r"https?://[^/?#\s]+(/(?!v1(/|$))[^/?#\s]+)*")
_COLLECTION = re.compile(_COLLECTOR.pattern + r"/v1/[^/?#\s]+")


def collection_at(url: str, name: str | None = None) -> str:
    """Check the address of a collection, and return it without a slash at its end.

    With the collection's ``name``, the address of its collector will do.
    """
    given = url.rstrip("/")
    if _COLLECTION.fullmatch(given):
        if name not in (None, given.rpartition("/")[2]):
            raise InvalidInput(f"{url!r} is the address of another collection than {name!r}.")
        return given
    if name is not None and _COLLECTOR.fullmatch(given):
        return f"{given}/v1/{name}"
    shorter = "" if name is None else " or http://127.0.0.1:8000"
    raise InvalidInput(
        f"{url!r} is not the address of a collection: write it like http://127.0.0.1:8000/v1/NAME{shorter}."
    )


def fetch_json(url: str, query: dict[str, Any], secret: str | None = None) -> Any:
    """Return JSON from a collector."""
    import urllib.error
    import urllib.parse
    import urllib.request

    parameters = urllib.parse.urlencode({key: value for key, value in query.items() if value is not None})
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    try:
        request = urllib.request.Request(f"{url}?{parameters}" if parameters else url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            needed = " (counters need --counts-secret)" if error.code == 403 else ""
            raise RunError(f"the collector answered {error.code} at {url}{needed}.") from None
    except (OSError, ValueError) as error:
        raise RunError(f"the collector at {url} cannot be reached ({getattr(error, 'reason', error)}).") from None


def read_json(path: Path) -> Any:
    """Return JSON from a file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InvalidInput(f"{str(path)!r} is not JSON.") from None

"""The Dask cluster that ``--cluster`` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dperm.errors import InvalidInput

__all__ = ["connected"]

#: seconds to wait for an answer of the scheduler
_WAIT = 10
_SCHEMES = ("tcp", "tls", "ucx", "ucxx", "ws", "wss")


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Yield the cluster at an address, or None without one; a wrong address is refused before anything is read."""
    if address is None:
        yield None
        return
    client = _client(address)
    try:
        from dperm.data.tables.dask_tasks import Cluster

        if not client.nthreads():
            raise InvalidInput(f"the Dask cluster at {address!r} has no workers: start some first.")
        yield Cluster(client)
    finally:
        client.close()


def _client(address: str) -> Any:
    try:
        import dask.dataframe  # noqa: F401

        distributed: Any = import_module("distributed")
    except ImportError:
        raise InvalidInput("--cluster needs Dask: install dperm[dask].") from None
    wrong = InvalidInput(f"no Dask scheduler answers at {address!r}: check the address, such as tcp://host:8786.")
    scheme, found, _ = address.partition("://")
    if not address.strip() or (found and scheme not in _SCHEMES):
        raise wrong
    try:
        return distributed.Client(address, timeout=_WAIT, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError):
        raise wrong from None

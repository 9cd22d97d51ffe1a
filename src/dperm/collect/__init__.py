"""The local model in production: devices send one random bit each, and a collector estimates a model from the counts.

``description`` is the public description of a collection, ``estimate`` the models it can have, ``draws`` the test for
made-up reports, ``sdk`` the clients on devices, ``store`` the database, ``service`` the HTTP service, ``page`` its web
pages, and ``simulate`` draws people to try a collection out. This package imports the local estimators and solvers,
never ``vertical`` or ``cli``, and ``sdk/python`` imports nothing else of dperm. A new kind of model goes into
``estimate``. See ``docs/collect.md``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dperm.collect.description import Collection

__all__ = ["Collection"]


def __getattr__(name: str) -> Any:
    # on first use: the command line reads numbers of ``service`` without the estimators
    if name == "Collection":
        from dperm.collect.description import Collection

        return Collection
    raise AttributeError(f"module 'dperm.collect' has no attribute {name!r}")

"""The public description of a collection: an immutable JSON document that devices, service and estimates share.

It holds every number that a device computes with, so that no device recomputes one. Every report names its description
by the SHA-256 of the document.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dperm.collect.draws import trimmed_counts
from dperm.collect.estimate import Model, model_of
from dperm.data.design.target_range import TargetRange
from dperm.errors import DpermError, InvalidInput
from dperm.solvers.local import Counts, Task

__all__ = ["CLIENT_SKETCHES", "FORMAT", "Collection"]

FORMAT = "dperm collection 1"
#: sketches that the JavaScript and Python clients compute
CLIENT_SKETCHES = ("moments", "theta-grid", "parity", "chebyshev")

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
#: addresses of the service itself
_RESERVED = ("health", "metrics", "v1")
_MOST_BYTES = 1 << 22


@dataclass(frozen=True, eq=False)
class Collection:
    """A collection: what people are asked, how reports are counted, what is estimated.

    Parameters
    ----------
    name : str
        Its name in addresses: lower-case letters, digits and hyphens.
    model : dict
        The model and its public parameters as plain data; ``kind`` is one of :data:`dperm.collect.estimate.MODELS`.
    title : str
        What the collection is about, for the people who are asked.
    version : int
        Must grow when anything changes: a changed description is another collection, with counts of its own.
    window : int
        Length of a counting window in seconds; 0 counts everything together. A person reports once, whatever
        the window.
    tokens : bool
        Whether a report needs a one-time token from the application's own server.

    Examples
    --------
    >>> bounds = {"features": [[0.0, 0.0], [10.0, 1.0]]}
    >>> one = Collection("speed", {"kind": "logistic", "epsilon": 1.0, "names": ["seconds", "mobile"],
    ...                            "bounds": bounds, "classes": ["left", "stayed"], "degree": 2})
    >>> one.document()["task"]["epsilon"], len(one.digest), Collection.parse(one.text).digest == one.digest
    (1.0, 64, True)
    """

    name: str
    model: Mapping[str, Any]
    title: str = ""
    version: int = 1
    window: int = 0
    tokens: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise InvalidInput(
                "the name of a collection must be 1 to 63 lower-case letters, digits and hyphens, with a letter or "
                f"digit at both ends, not {self.name!r}."
            )
        if self.name in _RESERVED:
            raise InvalidInput(f"the service has its own page at /{self.name}: choose another name.")
        for what, least in (("version", 1), ("window", 0)):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
                raise InvalidInput(f"{what} must be a whole number of {least} or more, not {value!r}.")
        if not isinstance(self.tokens, bool) or not isinstance(self.title, str) or len(self.title) > 500:
            raise InvalidInput("tokens must be true or false, and the title a text of at most 500 characters.")
        if self.task.sketch.kind not in CLIENT_SKETCHES:
            raise InvalidInput(f"devices cannot compute a {self.task.sketch.kind} sketch.")

    @cached_property
    def estimate_model(self) -> Model:
        """The model that is estimated from the counts."""
        return model_of(self.model)

    @property
    def task(self) -> Task:
        """What people are asked."""
        return self.estimate_model.task

    @property
    def n_cells(self) -> int:
        """Number of counters: one for every statistic and answer."""
        return self.task.sketch.size * self.task.n_levels

    def estimate(self, counts: Counts, trimmed: bool = False) -> dict[str, Any]:
        """Return the model estimated from counts as plain data.

        Parameters
        ----------
        counts : Counts
            What was reported; ``Unsupported`` is raised if the reports are too few.
        trimmed : bool
            Leave out what some questions have beyond their public probability, because it was made up. The same as
            without if nothing points to made-up reports.
        """
        return self.estimate_model.fit(trimmed_counts(self.task, counts) if trimmed else counts)

    def document(self) -> dict[str, Any]:
        """Return the description as plain data for JSON."""
        sketch = self.task.sketch
        return {
            "format": FORMAT,
            "name": self.name,
            "title": self.title,
            "version": self.version,
            "window": self.window,
            "tokens": self.tokens,
            "model": dict(self.model),
            "columns": self.estimate_model.columns,
            "task": self.task.schema(),
            "sizes": sketch.sizes.tolist(),
            "record": _record(self.task.inputs),
            "low": _short(sketch.low),
            "high": _short(sketch.high),
        }

    @cached_property
    def text(self) -> str:
        """The document as text; this exact text is hashed, served, and read by devices."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :attr:`text`, which every report carries."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def window_at(self, seconds: float) -> int:
        """Return the counting window of a moment, in seconds since 1970."""
        return int(seconds // self.window) if self.window else 0

    @classmethod
    def parse(cls, text: str | bytes) -> Collection:
        """Read a document; refuses one whose numbers do not follow from its model."""
        if len(text) > _MOST_BYTES:
            raise InvalidInput("this description of a collection is too long.")
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidInput("this description of a collection is not JSON.") from None
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise InvalidInput(
                "this is not a description of a collection in a format that this version of dperm reads."
            )
        try:
            fields = {key: given[key] for key in ("name", "model", "title", "version", "window", "tokens")}
            one = cls(**fields)
        except KeyError as error:
            raise InvalidInput(f"this description of a collection lacks {error.args[0]!r}.") from None
        except DpermError as error:
            raise InvalidInput(f"this description of a collection is damaged: {error}") from None
        except (TypeError, AttributeError, ValueError, OverflowError):
            raise InvalidInput("this description of a collection is damaged: a value has the wrong type.") from None
        if given != json.loads(one.text):
            raise InvalidInput(
                "the numbers in this description do not follow from its model: write a new description with "
                "`dperm collect init`, and do not edit it."
            )
        return one

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Collection:
        """Read a document from a file."""
        where = Path(path)
        try:
            return cls.parse(where.read_bytes())
        except OSError as error:
            raise InvalidInput(f"the description {str(where)!r} cannot be read: {error.strerror}.") from None
        except InvalidInput as error:
            error.add_place(where.name)
            raise

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the document to a new file; a file with another content is never changed."""
        where = Path(path)
        try:
            with where.open("x", encoding="ascii") as file:
                file.write(self.text)
        except FileExistsError:
            if Collection.read(where).digest != self.digest:
                raise InvalidInput(
                    f"{str(where)!r} holds another description, and descriptions are immutable: choose another name."
                ) from None


def _record(inputs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How a device computes a record from a person's values, with every number; None if the record is the values."""
    if inputs is None:
        return None
    if "low" in inputs:  # ranges without a scale
        low, high = np.asarray(inputs["low"]), np.asarray(inputs["high"])
        centre, scale = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
        inputs = {"centre": centre.tolist(), "scale": scale.tolist(), "clip": 1.0, "divide_by": 1.0}
    norm = inputs.get("row_norm")
    out = {key: inputs[key] for key in ("centre", "scale", "clip", "divide_by")}
    # without a declared length: one that no clipped row reaches
    out["row_norm"] = 1e300 if norm is None else norm
    out["constant"] = [1.0] if inputs.get("intercept") else []
    if "classes" in inputs:
        out["classes"] = inputs["classes"]
    if "target" in inputs:
        target = TargetRange(*inputs["target"])
        out["target"] = [target.centre, target.half_width]
    return out


def _short(ends: Any) -> float | list[float]:
    """The ends of ranges; one number if they are all the same."""
    first = float(ends[0])
    return first if bool(np.all(ends == first)) else [float(end) for end in ends]

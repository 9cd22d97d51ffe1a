"""What an experiment returns: rows that put ours next to the paper's numbers, and what they are measured against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dperm.errors import InvalidInput
from dperm.experiments.charts import Panel

__all__ = ["Baseline", "Measured", "Result", "ResultRow", "Value", "formula", "shown"]


@dataclass(frozen=True)
class Measured:
    """Mean of repeated runs with fresh noise, its standard error, and the range of the runs.

    >>> print(shown(Measured.over([1.0, 2.0, 3.0])))
    2 +- 0.58
    """

    mean: float
    error: float
    low: float
    high: float
    runs: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Measured:
        """Summarise the runs."""
        n = len(values)
        mean = math.fsum(values) / n
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else 0.0
        return cls(mean, spread / math.sqrt(n), min(values), max(values), n)


#: a cell of a result: a number, a mean of runs, words, or nothing
Value = float | str | Measured | None


def shown(value: Value) -> str:
    """Return a value as readers see it; a missing one is a dash.

    >>> shown(0.00056), shown(None), shown("2 / 0"), shown(3.0)
    ('0.00056', '-', '2 / 0', '3')
    """
    if value is None:
        return "-"
    if isinstance(value, Measured):
        return f"{value.mean:.3g} +- {value.error:.2g}" if value.runs > 1 else f"{value.mean:.3g}"
    return value if isinstance(value, str) else f"{value:.4g}"


def formula(text: str) -> str:
    """Mark a value that we computed from a formula of the paper, which hides its constants: they are set to 1.

    >>> formula("at most 0.5")
    'formula, constants 1: at most 0.5'
    """
    return f"formula, constants 1: {text}"


@dataclass(frozen=True)
class ResultRow:
    """One number of the paper with ours beside it.

    Attributes
    ----------
    what : str
        What is measured: problem, method, quantity.
    certified : Value
        Ours, of fits with noise that dperm guarantees; None for what is computed without noise.
    printed : Value
        Ours, with the noise that the paper prints; None where the paper prints none or it is not implemented.
    paper : Value
        The paper's number, or its formula evaluated for our problem, which then begins with "formula"; None where it
        gives none in its text.
    difference : str
        Why ours is not the paper's number: data, neighbours, accounting, algorithm, chance.
    without_noise : Value
        Ours, computed without any noise and so without any guarantee.
    """

    what: str
    certified: Value
    printed: Value
    paper: Value
    difference: str
    without_noise: Value = None


@dataclass(frozen=True)
class Baseline:
    """The problem behind rows: its data, and the two models without noise that every error is read against.

    Attributes
    ----------
    problem, data : str
        Its name; "real", "stand-in" or "made", with the source.
    n, p : int
        Rows and columns.
    seed : int or None
        Seed of made data.
    measure : str
        What the next two numbers are, such as "objective".
    non_private, null : float
        The measure at the best model without noise, and at the model whose weights are 0.
    """

    problem: str
    data: str
    n: int
    p: int
    seed: int | None
    measure: str
    non_private: float
    null: float

    @property
    def null_error(self) -> float:
        """Relative error of the null model."""
        return (self.null - self.non_private) / abs(self.non_private)


@dataclass(frozen=True)
class Result:
    """All that an experiment found.

    ``baselines`` may be empty only for an experiment without data; ``no_data`` then says why. ``columns`` is the number
    of panels side by side.
    """

    rows: tuple[ResultRow, ...]
    baselines: tuple[Baseline, ...]
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()
    no_data: str = ""
    columns: int = 3

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidInput("a result needs at least one row.")
        if bool(self.baselines) == bool(self.no_data):
            raise InvalidInput("a result needs baselines, or a reason why it has no data.")
        if unexplained := [row.what for row in self.rows if not row.difference]:
            raise InvalidInput(f"a row must explain its difference from the paper: {unexplained[0]!r} does not.")

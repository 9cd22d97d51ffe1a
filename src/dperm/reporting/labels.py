"""Plain names for the releases and kinds of noise that reports show to people.

Ledgers and JSON reports keep the names of the queries; only texts for people use these labels.
"""

from __future__ import annotations

__all__ = ["describe_release", "noise_label", "query_label"]

_CHOICE = "choice of the next column"
_GRADIENT = "gradient of the loss"

_QUERIES = {
    "atom choice": _CHOICE,
    "atom score": "score of the chosen column",
    "atom scores": _CHOICE,
    "class counts": "number of people per class",
    "class score gradient": f"{_GRADIENT} in factors of scores and in intercepts",
    "clipped predictions": "partial predictions of every person",
    "correct predictions": "number of correct predictions",
    "curvature": "second derivatives of the loss",
    "descent or pursuit": f"{_GRADIENT}, or choices of columns and their gradients",
    "first moment": "averages of the columns",
    "feature gradient": f"{_GRADIENT} without the intercept",
    "gradient": _GRADIENT,
    "gradient block": f"{_GRADIENT} for some columns",
    "gradient coordinate": f"{_GRADIENT} for one column",
    "gradient sparsity": "whether few columns matter",
    "gradient correction": f"correction of the {_GRADIENT} on a random sample",
    "greedy gradients": _CHOICE,
    "greedy scores": _CHOICE,
    "local atom scores": _CHOICE,
    "mapped gradient": _GRADIENT,
    "mapped second moment": "second moments of the columns, or of their scores",
    "penalised atom scores": _CHOICE,
    "perturbed minimiser": "weights that minimise the perturbed objective",
    "proximal slopes": "slopes of the loss of every person",
    "quantile": "limit of a column's range",
    "row lengths": "average length of a row, or of its scores",
    "sampled gradient": f"{_GRADIENT} on a random sample",
    "second moment": "second moments of the columns",
    "sketched columns": "random sums of a column",
    "sketched targets": "random sums of the target",
    "squared errors": "sum of squared errors",
    "target deviation": "average deviation of the target",
    "target moment": "average of the target",
    "target quantile": "limit of the target's range",
    "weighted rows": _GRADIENT,
}

_NOISE = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "selection": "Gumbel, on a choice",
    "poisson-gaussian": "Gaussian, on a random sample",
    "objective": "Gaussian, in the objective",
    "one-bit": "randomized bit",
    "few-levels": "randomized level",
}


def query_label(query: str) -> str:
    """Return the plain name of a query; its own name if it has none.

    In a run of several parties a query's name ends in the name of its party.

    >>> query_label("mapped second moment"), query_label("weighted rows of clinic")
    ('second moments of the columns, or of their scores', 'gradient of the loss, from clinic')
    """
    if query in _QUERIES:
        return _QUERIES[query]
    start, of, party = query.partition(" of ")
    return f"{_QUERIES[start]}, from {party}" if of and start in _QUERIES else query


def noise_label(kind: str) -> str:
    """Return the plain name of a kind of noise.

    >>> noise_label("selection")
    'Gumbel, on a choice'
    """
    return _NOISE.get(kind, kind)


def describe_release(count: int, query: str, kind: str, noise_multiplier: float, *more: str) -> str:
    """Return one line about a group of equal releases.

    >>> describe_release(40, "mapped gradient", "gaussian", 27.98, "75% of the budget")
    '40 x gradient of the loss (noise: Gaussian; noise multiplier 27.98; 75% of the budget)'
    """
    parts = (f"noise: {noise_label(kind)}", f"noise multiplier {noise_multiplier:.4g}", *more)
    return f"{count} x {query_label(query)} ({'; '.join(parts)})"

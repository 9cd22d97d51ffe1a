"""Options of ``dperm audit``, checked before anything is imported or run: a mistake is told at once."""

from __future__ import annotations

import ast
import math
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dperm.errors import InvalidInput

__all__ = [
    "ATTACK_NAMES",
    "ESTIMATOR_NAMES",
    "FAST_SECONDS",
    "NEIGHBOURS",
    "SECONDS",
    "check_all",
    "check_one",
    "given_attacks",
    "given_labels",
    "given_settings",
]

#: names in ATTACKS, ESTIMATORS and RELATIONS of dperm.audit, which takes seconds to import; a test compares them
ATTACK_NAMES = ("determinism", "releases", "side-channels", "one-run", "float-grid", "density", "canary")
ESTIMATOR_NAMES = (
    "DPElasticNet",
    "DPHuberRegressor",
    "DPLasso",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPRidge",
    "DPTuner",
    "LocalLinearRegression",
    "LocalLogisticRegression",
    "Marginals",
    "SmoothQueries",
)
NEIGHBOURS = ("replace-one", "add-remove", "zero-out")
#: seconds by default, and with --fast: enough to find gross errors
SECONDS, FAST_SECONDS = 120.0, 20.0
#: options that an audit of all uses
_OF_ALL = ("subject", "confidence", "fast", "seed", "out", "force", "as_json", "quiet")


def given_settings(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value is a Python literal or, failing that, a text."""
    found: dict[str, Any] = {}
    for one in values:
        name, equals, text = one.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{one!r} is not of the form name=value")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found


def given_labels(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[Any, ...] | None:
    """Read labels between commas; whole numbers where all of them are."""
    if value is None:
        return None
    labels = tuple(one.strip() for one in value.split(","))
    try:
        return tuple(int(one) for one in labels)
    except ValueError:
        return labels


def given_attacks(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Read names of attacks between commas."""
    if value is None:
        return ATTACK_NAMES
    names = tuple(one.strip() for one in value.split(","))
    unknown = [name for name in names if name not in ATTACK_NAMES]
    if unknown:
        said = ", ".join(unknown).strip() or "empty"
        raise InvalidInput(f"--attacks must be among {', '.join(ATTACK_NAMES)}, not {said}.")
    return names


def check_all(context: click.Context) -> None:
    """Refuse options that an audit of all does not use, instead of ignoring them."""
    unused = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None
        and parameter.name not in _OF_ALL
        and context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT
    ]
    if unused:
        raise InvalidInput(f"{', '.join(unused)} cannot be given with all: every case has its own settings.")


def check_one(subject: str, options: dict[str, Any]) -> None:
    """Refuse options that contradict each other or the subject."""
    if options["epsilon"] is None:
        raise InvalidInput("give the claimed --epsilon.")
    if not (math.isfinite(options["epsilon"]) and options["epsilon"] > 0.0):
        raise InvalidInput(f"--epsilon must be a finite number above 0, not {options['epsilon']!r}.")
    efforts = [name for name in ("fast", "seconds", "runs") if options[name] not in (None, False)]
    if len(efforts) > 1:
        raise InvalidInput(f"give one of {' and '.join(f'--{name}' for name in efforts)}: each sets the effort.")
    if options["classes"] is not None and options["target_range"] is not None:
        raise InvalidInput("give --classes or --target-range, not both.")
    for folder in options["folders"]:
        if not Path(folder).is_dir():
            raise InvalidInput(f"--path {folder} is not a folder.")
    if ":" in subject:
        _check_function(subject, options)
    else:
        _check_estimator(subject, options)


def _check_estimator(subject: str, options: dict[str, Any]) -> None:
    if subject not in ESTIMATOR_NAMES:
        close = get_close_matches(subject, ESTIMATOR_NAMES, n=1)
        raise InvalidInput(
            f"{subject!r} is neither of the form module:function nor one of dperm's estimators: "
            + (f"did you mean {close[0]}?" if close else f"{', '.join(ESTIMATOR_NAMES)}.")
        )
    if options["python"] is not None:
        raise InvalidInput("--python is for module:function; dperm's estimators run in this environment.")
    if options["gaussian"]:
        raise InvalidInput("--gaussian is for module:function; dperm's estimators state their claim themselves.")


def _check_function(subject: str, options: dict[str, Any]) -> None:
    module, _, function = subject.partition(":")
    if module.endswith(".py"):
        raise InvalidInput(f"{subject!r} names a file: write {module[:-3]}:{function}, and its folder with --path.")
    if not module or not function:
        raise InvalidInput(f"{subject!r} is not of the form module:function, as in my_package.training:fit.")
    if options["settings"]:
        raise InvalidInput("--set is for dperm's estimators: write the settings of a function into the function.")
    if options["gaussian"] and not options["delta"]:
        raise InvalidInput("Gaussian noise has no guarantee at delta 0: give its --delta.")

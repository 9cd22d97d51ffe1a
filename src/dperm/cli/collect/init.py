"""``dperm collect init``: write the immutable description of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dperm.cli.output import Output, with_output
from dperm.errors import InvalidInput

__all__ = ["init"]

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Write the description of a collection.")
@click.argument("out", type=_FILE)
@click.option("--name", required=True, help="Name in addresses: lower-case letters, digits, hyphens.")
@click.option("--title", default="", help="What the collection is about, shown on its page.")
@click.option(
    "--model",
    type=click.Choice(["logistic", "linear", "marginals", "smooth"]),
    default="logistic",
    show_default=True,
    help="Model to estimate.",
)
@click.option("--epsilon", default=1.0, show_default=True, help="Privacy cost of one report.")
@click.option("--people", type=int, help="Expected number of people; checks whether they are enough.")
@click.option("--schema", type=_FILE, help="Take columns and target from a confirmed schema of `dperm schema`.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME[:LOW:HIGH]",
    help="A column with its public range, instead of --schema. Repeat.",
)
@click.option("--classes", metavar="A,B,...", help="For logistic: labels of the target.")
@click.option("--target", metavar="LOW:HIGH", help="For linear: public range of the target.")
@click.option(
    "--radius", default=2.0, show_default=True, help="For logistic and linear: bound on the weights of scaled columns."
)
@click.option(
    "--levels",
    default=2,
    show_default=True,
    help="Possible answers: 2 for one bit; 3 to 16 give less noise above epsilon 1.",
)
@click.option(
    "--together", default=2, show_default=True, help="For marginals: largest number of columns in one question."
)
@click.option("--degrees", default=8, show_default=True, help="For smooth: polynomials of degree below this.")
@click.option(
    "--window-hours", default=0, show_default=True, help="Length of a counting window; 0 counts everything together."
)
@click.option("--tokens", is_flag=True, help="Reports need one-time tokens.")
@click.option("--version", default=1, show_default=True, help="Increase it when anything changes.")
@with_output
def init(
    out: Path,
    name: str,
    title: str,
    model: str,
    epsilon: float,
    people: int | None,
    schema: Path | None,
    columns: Sequence[str],
    classes: str | None,
    target: str | None,
    radius: float,
    levels: int,
    together: int,
    degrees: int,
    window_hours: int,
    tokens: bool,
    version: int,
    output: Output,
) -> None:
    """Write the description of a collection to the file OUT.

    A description never changes: every report carries its hash, and a changed one is another collection.
    """
    from dperm.collect import Collection

    _refuse_ignored(model, schema is not None)
    if model in ("logistic", "linear"):
        public = _linear(model, epsilon, schema, columns, classes, target, radius, levels, people)
    else:
        public = _queries(model, epsilon, columns, together, degrees, people)
    one = Collection(name, public, title, version, 3600 * window_hours, tokens)
    one.write(out)
    estimated = one.estimate_model
    about = {
        "file": str(out),
        "hash": one.digest,
        "statistics": one.task.sketch.size,
        "asks": estimated.summary(),
    }
    if people is not None and hasattr(estimated, "estimator"):
        plan = estimated.estimator.plan(people, len(estimated.columns))
        about["people_needed"] = plan.people_needed
        about["enough"] = bool(people >= plan.people_needed)

    def show(to: Output) -> None:
        shown = {key.replace("_", " "): str(value) for key, value in about.items() if key != "enough"}
        if "enough" in about:
            shown["enough people"] = "yes" if about["enough"] else "no"
        to.lines(list(shown.items()))
        if about.get("enough") is False:
            to.note(
                f"dperm: note: {people} people are too few: about {about['people_needed']} are needed for half of the "
                "possible gain over a model with all weights 0."
            )

    output.result(about, show)


#: options of each model, in addition to those of all models
_OPTIONS = {
    "logistic": ("schema", "classes", "radius", "levels"),
    "linear": ("schema", "target", "radius", "levels"),
    "marginals": ("together",),
    "smooth": ("degrees",),
}


def _refuse_ignored(model: str, by_schema: bool) -> None:
    """Refuse options that the chosen model does not use."""
    context = click.get_current_context()
    for name in ("schema", "classes", "target", "radius", "levels", "together", "degrees"):
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if name not in _OPTIONS[model]:
            raise InvalidInput(f"a {model} collection does not use --{name}: leave it out.")
        if by_schema and name in ("classes", "target"):
            raise InvalidInput(f"the schema declares the target: leave out --{name}.")


def _linear(
    model: str,
    epsilon: float,
    schema: Path | None,
    columns: Sequence[str],
    classes: str | None,
    target: str | None,
    radius: float,
    levels: int,
    people: int | None,
) -> dict[str, Any]:
    import numpy as np

    from dperm.data.schema.schema_file import read_schema

    if (schema is None) == (not columns):
        raise InvalidInput("give the columns either with --schema or with --column NAME:LOW:HIGH.")
    public: dict[str, Any] = {"kind": model, "epsilon": epsilon, "radius": radius, "n_levels": levels}
    if schema is not None:
        read = read_schema(schema)
        bounds = read.bounds()
        public["names"] = read.encoded_names
        declared = {key: getattr(bounds, key) for key in ("features", "centre", "scale", "clip", "row_norm")}
        public["bounds"] = {key: np.asarray(value).tolist() for key, value in declared.items() if value is not None}
        kind, goal = ("classes", bounds.classes) if model == "logistic" else ("target", bounds.target)
        if goal is None:
            raise InvalidInput(
                f"the schema's target is not one for a {model} model: classes are for logistic, numbers for linear."
            )
        public[kind] = np.asarray(goal).tolist() if kind == "target" else list(goal)
    else:
        named = [_parse_range(column) for column in columns]
        public["names"] = [name for name, _, _ in named]
        public["bounds"] = {"features": [[low for _, low, _ in named], [high for _, _, high in named]]}
        if model == "logistic":
            if classes is None:
                raise InvalidInput("a logistic model needs --classes, such as --classes no,yes.")
            public["classes"] = [label.strip() for label in classes.split(",")]
        else:
            if target is None:
                raise InvalidInput("a linear model needs --target LOW:HIGH.")
            public["target"] = list(_parse_range(f"target:{target}")[1:])
    if model == "logistic":
        public["degree"] = _degree(public, people)
    return public


def _degree(public: dict[str, Any], people: int | None) -> int:
    """Return the degree that suits so many people. It is part of the description, so that counts have one meaning."""
    from dperm.collect.estimate import LogisticModel

    automatic = LogisticModel({**public, "degree": "auto"})
    names = automatic.columns
    task = automatic.estimator.task(len(names), names, people)
    return int(max(sum(exponents) for exponents in task.sketch.exponents))


def _queries(
    model: str, epsilon: float, columns: Sequence[str], together: int, degrees: int, people: int | None
) -> dict[str, Any]:
    if not columns:
        raise InvalidInput(f"a {model} collection needs its columns: --column NAME{':LOW:HIGH' * (model == 'smooth')}.")
    if model == "marginals":
        if people is None:
            raise InvalidInput("marginals need --people: the number decides how much bias is acceptable.")
        return {"kind": model, "epsilon": epsilon, "columns": list(columns), "k": together, "n_people": people}
    named = [_parse_range(column) for column in columns]
    return {
        "kind": model,
        "epsilon": epsilon,
        "columns": [name for name, _, _ in named],
        "low": [low for _, low, _ in named],
        "high": [high for _, _, high in named],
        "n_degrees": degrees,
        "decay": 0.5,
    }


def _parse_range(text: str) -> tuple[str, float, float]:
    name, *ends = text.rsplit(":", 2)
    try:
        low, high = (float(end) for end in ends)
    except ValueError:
        raise InvalidInput(f"write a column with its range as NAME:LOW:HIGH, not {text!r}.") from None
    return name, low, high

"""``dperm fit``: a private model from a table in a file."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dperm.cli.model_files import ModelFiles, check_writable
from dperm.cli.options import FILE, MODELS, NEIGHBOURS, estimator_of, ledger_option, open_ledger, target_option
from dperm.cli.output import Output, with_output
from dperm.cli.writing import check_outputs
from dperm.errors import (
    BudgetRefused,
    DataSetRenamed,
    DpermError,
    DpermWarning,
    InvalidBounds,
    InvalidData,
    InvalidInput,
)

if TYPE_CHECKING:
    from dperm.cli.training import Training

__all__ = ["fit"]

NO_SCHEMA = (
    "nothing is declared about these columns: run `{again}` first, or pass --buy-bounds "
    "to buy the ranges of numeric columns with 10% of the budget."
)

_NOTHING_SPENT = "interrupted before anything was reserved: nothing was spent and nothing was written."


class _Interrupted(DpermError):
    """Ctrl-C, with a sentence that says what it cost."""


@click.command()
@click.argument("file", type=FILE)
@target_option(help="Column to predict; the schema's by default.")
@click.option("--epsilon", type=float, required=True, help="Privacy budget of this fit.")
@click.option("--delta", type=float, help="min(1e-5, 1/n^2) by default.")
@click.option("--schema", "schema_path", type=FILE, help="What is declared public; `dperm schema` drafts it.")
@click.option("--buy-bounds", is_flag=True, help="Buy the ranges of numeric columns with 10% of the budget instead.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column out (with --buy-bounds).")
@click.option("--model", type=click.Choice(list(MODELS)), help="logistic for classes, linear for numbers by default.")
@click.option("--strength", type=float, help="Weight of the penalty; a public default if left out.")
@click.option("--neighbours", type=NEIGHBOURS, default="replace-one", show_default=True)
@click.option("--dataset", help="Name of the data set in the ledger; the file's name without its ending by default.")
@ledger_option()
@click.option("--test-fraction", type=click.FloatRange(0, 0.9), default=0.0, help="Hold out this share of the rows.")
@click.option("--test-epsilon", type=float, help="Pay for the score on held-out rows; else it is not private.")
@click.option("--out", type=FILE, default=Path("model.json"), show_default=True, help="Model file to write.")
@click.option("--force", is_flag=True, help="Write over existing files.")
@with_output
def fit(file: Path, output: Output, **options: Any) -> None:
    """Fit a private model to the table FILE (CSV, Parquet or Feather).

    Writes the model with its schema and report to one JSON file, and the report as a page beside it.
    """
    try:
        _fit(file, options, output)
    except KeyboardInterrupt:
        raise _Interrupted(_NOTHING_SPENT) from None


def _fit(file: Path, options: dict[str, Any], output: Output) -> None:
    from dperm.data.tables.files import open_table
    from dperm.privacy.accounting.budget import Budget

    Budget(options["epsilon"], 1e-6 if options["delta"] is None else options["delta"])  # before anything is read
    if options["test_epsilon"] is not None:
        Budget(options["test_epsilon"], 1e-6)
    out: Path = options["out"]
    table = open_table(file)
    _check_options(file, table, options)
    page = out.parent / f"{out.stem}.html"
    if out.suffix.lower() == ".html":
        raise InvalidInput(f"--out {str(out)!r} is where the report page goes: end the name of the model in .json.")
    read = (file, options["schema_path"])
    check_outputs([out, page], inputs=read, address=options["address"], force=options["force"])
    check_writable(out)
    training = _read(table, options)
    name = _model_name(options["model"], training.classification)
    book, renamed = _ledger(table.path, options, output)
    estimator = estimator_of(name)(
        epsilon=options["epsilon"],
        delta=options["delta"],
        bounds=training.bounds,
        strength=options["strength"],
        neighbours=options["neighbours"],
        ledger=book,
    )
    rows, test = _split(training, options["test_fraction"])
    told = _warn(estimator, training, len(rows[1]), output)
    plans = _room_for_score(estimator, training, rows, test, book, options)
    files = ModelFiles(out, page)
    try:
        with _naming(options["address"]):
            _fitted(estimator, rows, output, told)
        saved = replace(estimator._saved(), feature_names_in_=_object_array(training.names), schema=training.schema)
        charged = book.for_dataset(saved.privacy_report_.ledger["dataset"])
        # before the score, which may be refused or interrupted: the model is paid for
        files.write(saved, output)
        score = _score(saved, test, charged, options, files, output)
        if plans is not None:
            from dperm.estimators.central.scoring import report_with_score

            saved = replace(saved, privacy_report_=report_with_score(saved.privacy_report_, score, plans, charged))
            files.write(saved, output)
        _tell(output, saved, charged.spent(), score, files.written, renamed or _other_name(book, charged))
    except KeyboardInterrupt:
        raise _Interrupted(_what_is_spent(estimator, book, files.written)) from None


def _tell(output: Output, saved: Any, *facts: Any) -> None:
    from dperm.cli.summary import effects, summary_data, summary_rows

    def show(output: Output) -> None:
        output.lines(summary_rows(saved, *facts))
        if found := effects(saved):
            output.table(("effect of", "over its whole range"), found, right=(1,))
        else:
            output.text("Every effect is 0: the noise won. More rows, fewer columns or a larger epsilon would help.")

    output.result(summary_data(saved, *facts), show)


def _check_options(file: Path, table: Any, options: dict[str, Any]) -> None:
    """Refuse options that contradict one another, before anything but names is read."""
    target = options["target"]
    if target is not None:
        table.require([target])
    if options["schema_path"] is None and not options["buy_bounds"]:
        again = shlex.join(["dperm", "schema", str(file), "--target", target or "COLUMN"])
        raise InvalidBounds(NO_SCHEMA.format(again=again))
    if options["schema_path"] is not None and options["buy_bounds"]:
        raise InvalidInput("--schema and --buy-bounds exclude each other: declared ranges need not be bought.")
    if options["buy_bounds"] and target is None:
        raise InvalidInput("--target is missing: name the column to predict.")
    if options["drop"] and not options["buy_bounds"]:
        raise InvalidInput('--drop belongs to --buy-bounds: in a schema write kind = "ignore".')
    if options["test_epsilon"] is not None and not options["test_fraction"]:
        raise InvalidInput("--test-epsilon pays for a score on held-out rows: give --test-fraction too, such as 0.2.")


def _read(table: Any, options: dict[str, Any]) -> Training:
    from dperm.cli.training import bought, by_schema

    if options["schema_path"] is not None:
        return by_schema(table, options["schema_path"], options["target"])
    model = options["model"]
    regression = None if model is None else model not in ("logistic", "svm")
    return bought(table, options["target"], options["drop"], regression)


def _model_name(given: str | None, classification: bool) -> str:
    if given is None:
        return "logistic" if classification else "linear"
    if (given in ("logistic", "svm")) != classification:
        what, fitting = ("classes", "logistic or svm") if classification else ("a number", "linear, ridge or lasso")
        raise InvalidInput(f"--model {given} does not predict {what}, which the target holds: use {fitting}.")
    return given


def _ledger(path: Path, options: dict[str, Any], output: Output) -> tuple[Any, str | None]:
    """Open the ledger under the name by which it knows this file, and say the other name if there is one.

    The given name goes with it: its cap is not passed by. What is reserved with it remembers the file too, so that a
    renamed copy is recognised, whatever schema it is read with.
    """
    import numpy as np

    from dperm.data.tables.files import name_without_suffix

    given = options["dataset"]  # an empty one, as from a variable that is not set, is refused by the ledger
    wanted = name_without_suffix(path) if given is None else given
    book = open_ledger(options["address"], wanted, create=True)
    file = str(book.fingerprint([np.memmap(path, np.uint8, mode="r")]))
    known = book.known_as(file)
    shorter = path.name.split(".")[0]
    if given is None and known != wanted != shorter and shorter in book.datasets():
        # once the default: what was spent, and a cap, under that name must not be passed by
        if known is None:
            output.note(
                f"note: the ledger knows a data set {shorter!r}, so {path.name} is charged there; --dataset gives a "
                "file a name of its own from its first fit on."
            )
        wanted, book = shorter, book.for_dataset(shorter)
    book = book.recognising(file)
    if known is None or known == wanted:
        return book, None
    return book.for_dataset(known), wanted


def _other_name(book: Any, charged: Any) -> str | None:
    return book.dataset if charged.dataset != book.dataset else None


def _split(training: Training, fraction: float) -> tuple[tuple[Any, Any], tuple[Any, Any] | None]:
    import numpy as np

    from dperm.cli.training import held_out

    if not fraction:
        return (training.X, training.y), None
    if not training.in_memory:
        raise InvalidInput("--test-fraction needs a table that fits into memory: keep a file of test rows instead.")
    out = held_out(len(training.y), fraction)
    if not out.any() or out.all():
        raise InvalidInput(f"--test-fraction {fraction:g} of {len(out)} rows leaves none on one side: change it.")
    if training.schema is None and training.classification and not np.isin(training.y[out], training.y[~out]).all():
        raise InvalidData(
            "a label is in held-out rows only: declare all labels in a schema, or change --test-fraction."
        )
    return (training.X[~out], training.y[~out]), (training.X[out], training.y[out])


def _warn(estimator: Any, training: Training, n: int, output: Output) -> set[str]:
    """Say before the fit what is likely to disappoint, and return it; it is known from public numbers."""
    schema = training.schema
    if schema is not None and _drafted_classes(schema.target):
        output.note(
            f"note: target {schema.target.name!r} is predicted as {len(schema.target.classes)} classes, as drafted "
            'from its whole numbers; if it is an amount, write kind = "number", low and high in the schema.'
        )
    texts = [f"{text}." for text in estimator.plan(n, len(training.names), training.n_classes).warnings]
    for text in texts:
        output.note(f"note: {text}")
    return set(texts)


def _drafted_classes(target: Any) -> bool:
    """Whether it was a guess, confirmed as it stood, that several whole numbers are classes."""
    whole = len(target.classes) > 2 and all(type(one) is int for one in target.classes)
    return whole and "kind" in target.confirmed


@contextmanager
def _naming(address: str | None) -> Iterator[None]:
    """Let a refusal say in which ledger to look, where one was given."""
    try:
        yield
    except BudgetRefused as error:
        if not address:
            raise
        where = f"`dperm ledger show --ledger {shlex.quote(address)}"
        raise BudgetRefused(str(error).replace("`dperm ledger show", where)) from None


def _room_for_score(
    estimator: Any, training: Training, rows: Any, test: Any, book: Any, options: dict[str, Any]
) -> tuple[Any, Any] | None:
    """Return the plans of the fit and of the score that it is to be paid for; refuses both if one has no room."""
    if options["test_epsilon"] is None:
        return None
    from dperm.estimators.central.scoring import marks_of_fit_and_score, plans_of_fit_and_score

    held_out, relation = len(test[1]), options["neighbours"]
    shape = (len(rows[1]), len(training.names), training.n_classes)
    plans = plans_of_fit_and_score(estimator, *shape, held_out=held_out, epsilon=options["test_epsilon"])
    known, then = marks_of_fit_and_score(estimator, rows, test, book)
    with _naming(options["address"]), warnings.catch_warnings():
        warnings.simplefilter("ignore", DataSetRenamed)  # said when it is charged
        charged = book.check(plans[0], relation, known)
        try:
            book.check(plans[0], relation, known, then=[(plans[1], then)])
        except BudgetRefused as error:
            raise BudgetRefused(
                f"data set {charged!r} has room for the fit but not for its paid score too, and nothing was charged: "
                f"after the fit, {error}"
            ) from None
    return plans


def _fitted(estimator: Any, rows: tuple[Any, Any], output: Output, told: set[str]) -> None:
    from dperm.estimators.progress import watching

    with warnings.catch_warnings(record=True) as said, output.progress("fitting") as bar, watching(bar):
        warnings.simplefilter("always", DpermWarning)
        estimator.fit(*rows)
    for one in said:
        # what the plan knows was said before the fit
        if issubclass(one.category, DpermWarning) and str(one.message) not in told:
            output.note(f"note: {one.message}")


def _what_is_spent(estimator: Any, book: Any, written: list[str]) -> str:
    """Say what an interrupted fit has cost: its reservation stays, whatever was made of it."""
    made = book.made_here()
    if not made:
        return _NOTHING_SPENT
    kept = (
        f"{' and '.join(written)} {'was' if len(written) == 1 else 'were'} written"
        if written
        else "nothing was written"
    )
    scored = ", and that of the score," if len(made) > 1 else ""
    where = shlex.quote(made[0]["dataset"])
    return (
        f"interrupted: {kept}, and the epsilon {estimator.epsilon:g} that was reserved on data set {where}{scored} "
        f"stays spent, as `dperm ledger show {where}` tells."
    )


def _score(
    saved: Any, test: tuple[Any, Any] | None, book: Any, options: dict[str, Any], files: ModelFiles, output: Output
) -> Any:
    """Return the score on held-out rows: paid for, or marked as not private."""
    if test is None:
        return None
    if options["test_epsilon"] is not None:
        from dperm.estimators.central.scoring import paid_score

        relation = options["neighbours"]
        try:
            return paid_score(saved, *test, epsilon=options["test_epsilon"], ledger=book, neighbours=relation)
        except DpermError:
            output.note(f"note: the model is kept, without a score: {', '.join(files.written)}.")
            raise
    from dperm.cli.summary import OwnersScore

    return OwnersScore.of(saved, *test)


def _object_array(names: list[str]) -> Any:
    import numpy as np

    return np.array(names, dtype=object)

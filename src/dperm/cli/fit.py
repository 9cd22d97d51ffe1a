"""``dperm fit``: fits a private model to a table in a file."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dperm.cli.cluster import connected
from dperm.cli.model_files import ModelFiles, check_writable
from dperm.cli.options import FILE, MODELS, NEIGHBOURS, estimator_of, ledger_option, open_ledger, target_option
from dperm.cli.output import Output, with_output
from dperm.cli.writing import check_outputs
from dperm.errors import (
    BudgetRefused,
    DataSetResembles,
    DpermError,
    DpermWarning,
    InvalidBounds,
    InvalidData,
    InvalidInput,
    OwnerWarning,
)

if TYPE_CHECKING:
    from dperm.cli.training import Training
    from dperm.estimators.central.request import PreparedFit
    from dperm.privacy.accounting.events import Event

__all__ = ["fit"]

NO_SCHEMA = (
    "nothing is declared about these columns: run `{again}` first, or pass --buy-bounds "
    "to buy the ranges of numeric columns with 10% of the budget."
)

_NOTHING_SPENT = "interrupted before anything was reserved: nothing was spent and nothing was written."


class _Interrupted(DpermError):
    """Ctrl-C; the sentence states what was spent and written."""


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
@click.option(
    "--refuse-resembling", is_flag=True, help="Refuse a table that resembles one of another name, not only say so."
)
@click.option("--test-fraction", type=click.FloatRange(0, 0.9), default=0.0, help="Hold out this share of the rows.")
@click.option("--test-epsilon", type=float, help="Pay for the score on held-out rows; else it is not private.")
@click.option("--cluster", metavar="ADDRESS", help="Dask scheduler whose workers read the files, as tcp://host:8786.")
@click.option("--out", type=FILE, default=Path("model.json"), show_default=True, help="Model file to write.")
@click.option("--force", is_flag=True, help="Write over existing files.")
@with_output
def fit(file: Path, output: Output, **options: Any) -> None:
    """Fit a private model to the table FILE (CSV, Parquet, Feather, or a folder of Parquet files).

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
    with connected(options["cluster"]) as cluster:
        _fit_table(table, cluster, ModelFiles(out, page), options, output)


def _fit_table(table: Any, cluster: Any, files: ModelFiles, options: dict[str, Any], output: Output) -> None:
    from dperm.estimators.central.base import prepare_fit

    training = _read(table, cluster, options)
    name = _model_name(options["model"], training.classification)
    ledger = _ledger(table, cluster, options, output)
    told = _tell_resemblances(ledger, options["refuse_resembling"], output)
    estimator = estimator_of(name)(
        epsilon=options["epsilon"],
        delta=options["delta"],
        bounds=training.bounds,
        strength=options["strength"],
        neighbours=options["neighbours"],
        ledger=ledger,
    )
    rows, test = _split(training, options["test_fraction"])
    prepared = prepare_fit(estimator, len(rows[1]), len(training.names), training.n_classes)
    _note_warnings(prepared, training, output)
    plans = _room_for_score(estimator, prepared, rows, test, options)
    try:
        with _showing_ledger(options["address"]):
            _run_fit(estimator, prepared, rows, told, output)
        saved = replace(
            estimator.saved_model(), feature_names_in_=_object_array(training.names), schema=training.schema
        )
        charged = ledger.for_dataset(ledger.receipt(saved.privacy_report_.ledger).dataset)
        # written before the score, which may be refused or interrupted: the model is already paid for
        files.write(saved, output)
        score = _score(saved, test, charged, options, files, output)
        if plans is not None:
            from dperm.estimators.central.scoring import report_with_score

            saved = replace(saved, privacy_report_=report_with_score(saved.privacy_report_, score, plans))
            files.write(saved, output)
        _show_result(output, saved, score, files.written)
        _tell_owner(output, charged, options["address"])
    except KeyboardInterrupt:
        raise _Interrupted(_what_is_spent(estimator, files.written, options["address"])) from None


def _show_result(output: Output, saved: Any, *facts: Any) -> None:
    from dperm.cli.summary import effects, summary_data, summary_rows

    def show(output: Output) -> None:
        output.lines(summary_rows(saved, *facts))
        found, about = effects(saved)
        if found:
            output.table(("column", "effect"), found, right=(1,))
            output.text(about)
        else:
            output.text(
                "Every effect is 0: no column could be distinguished from the noise. More rows, fewer columns or a "
                "larger epsilon would help."
            )

    output.result(summary_data(saved, *facts), show)


def _tell_owner(output: Output, charged: Any, address: str | None) -> None:
    """Print to standard error what depends on a comparison with earlier tables: it must not be published."""
    from dperm.cli.summary import budget_sentence

    renamed = charged.given_as if charged.given_as != charged.dataset else None
    output.note(f"For the owner only, not to be published: {budget_sentence(charged.spent(), renamed, address)}.")
    verify = shlex.join(["dperm", "ledger", "verify", *([] if address is None else ["--ledger", address]), "--head"])
    output.note(f"Head of the ledger's hash chain, to keep for `{verify}`: {charged.head}")


def _check_options(file: Path, table: Any, options: dict[str, Any]) -> None:
    """Refuse options that contradict one another; only column names have been read so far."""
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
    if options["cluster"] is not None and options["schema_path"] is None:
        raise InvalidInput("--cluster needs --schema: by a schema the workers encode the rows where they are.")
    if options["cluster"] is not None and options["test_fraction"]:
        raise InvalidInput("--test-fraction needs a table in memory: with --cluster keep a file of test rows instead.")
    if options["test_epsilon"] is not None and not options["test_fraction"]:
        raise InvalidInput("--test-epsilon pays for a score on held-out rows: give --test-fraction too, such as 0.2.")


def _read(table: Any, cluster: Any, options: dict[str, Any]) -> Training:
    from dperm.cli.training import read_by_schema, read_to_buy_bounds

    if options["schema_path"] is not None:
        return read_by_schema(table, options["schema_path"], options["target"], cluster)
    model = options["model"]
    regression = None if model is None else model not in ("logistic", "svm")
    return read_to_buy_bounds(table, options["target"], options["drop"], regression)


def _model_name(given: str | None, classification: bool) -> str:
    if given is None:
        return "logistic" if classification else "linear"
    if (given in ("logistic", "svm")) != classification:
        what, fitting = ("classes", "logistic or svm") if classification else ("a number", "linear, ridge or lasso")
        raise InvalidInput(f"--model {given} does not predict {what}, which the target holds: use {fitting}.")
    return given


def _ledger(table: Any, cluster: Any, options: dict[str, Any], output: Output) -> Any:
    """Open the ledger under the name by which it knows this file.

    The handle remembers the name that was given: reports say that name only, and its cap applies too. The ledger
    remembers the whole table with every reservation, so that a copy is recognised, whatever its name, format and order
    of rows and whatever schema it is read with.
    """
    from dperm.data.tables.files import name_without_suffix

    given = options["dataset"]  # the ledger refuses an empty one, as from a variable that is not set
    path: Path = table.path
    wanted = name_without_suffix(path) if given is None else given
    refuse = options["refuse_resembling"]
    ledger = charged = open_ledger(options["address"], wanted, create=True, refuse_resembling=refuse)
    file = ledger.fingerprint_of_columns(_contents(table, cluster))
    known = ledger.known_as(file)
    shorter = path.name.split(".")[0]
    if given is None and known != wanted != shorter and shorter in ledger.datasets():
        # the default of earlier versions: what was spent under that name, and its cap, must still count
        if known is None:
            output.note(
                f"note, for the owner only: the ledger knows a data set {shorter!r}, so {path.name} is charged there; "
                "--dataset gives a file a name of its own from its first fit on."
            )
        charged = ledger.for_dataset(shorter)
    return ledger.recognising(file).for_dataset(known or charged.dataset)


def _contents(table: Any, cluster: Any) -> Any:
    """Return all columns of a table, to be read here or by the workers of a cluster."""
    if cluster is None:
        return table.contents()
    from dperm.data.schema.cluster_rows import ColumnsOnCluster

    return ColumnsOnCluster(table, cluster)


def _tell_resemblances(ledger: Any, refuse: bool, output: Output) -> list[str]:
    """Tell the owner, before anything is charged, which data sets of other names the table resembles; return these."""
    from dperm.privacy.ledger.recognition import refusal

    alike = ledger.resembling()
    if alike and refuse:
        raise refusal(alike, ledger.given_as, ledger.dataset)
    for one in alike:
        output.note(f"note, for the owner only: {one.sentence(ledger.given_as, ledger.dataset)}")
    return [one.dataset for one in alike]


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


def _note_warnings(prepared: PreparedFit, training: Training, output: Output) -> None:
    """Print before the fit why the model may be of little use, from public numbers."""
    schema = training.schema
    if schema is not None and _drafted_classes(schema.target):
        output.note(
            f"note: target {schema.target.name!r} is predicted as {len(schema.target.classes)} classes, as drafted "
            'from its whole numbers; if it is an amount, write kind = "number", low and high in the schema.'
        )
    for text in prepared.utility_warnings:
        output.note(f"note: {text}.")


def _drafted_classes(target: Any) -> bool:
    """Whether several whole numbers were drafted as classes, and that guess was confirmed unchanged."""
    whole = len(target.classes) > 2 and all(type(one) is int for one in target.classes)
    return whole and "kind" in target.confirmed


@contextmanager
def _showing_ledger(address: str | None) -> Iterator[None]:
    """Let a refusal show the command for the ledger that was given."""
    try:
        yield
    except BudgetRefused as error:
        error.ledger = address or None
        raise


def _room_for_score(
    estimator: Any, prepared: PreparedFit, rows: Any, test: Any, options: dict[str, Any]
) -> tuple[Event, Event] | None:
    """Return what the fit and its paid score will be charged for, if one is wanted; refuses both if one has no room."""
    if options["test_epsilon"] is None:
        return None
    from dperm.estimators.central.scoring import fingerprints_of_fit_and_score, plans_of_fit_and_score

    ledger, relation = estimator.ledger, options["neighbours"]
    plans = plans_of_fit_and_score(prepared, held_out=len(test[1]), epsilon=options["test_epsilon"])
    known, then = fingerprints_of_fit_and_score(estimator, rows, test, ledger)
    with _showing_ledger(options["address"]), warnings.catch_warnings():
        warnings.simplefilter("ignore", OwnerWarning)  # shown when it is charged
        charged = ledger.check(plans[0], relation, known)
        try:
            ledger.check(plans[0], relation, known, then=[(plans[1], then)])
        except BudgetRefused as error:
            error.add_place(
                f"data set {charged!r} has room for the fit but not for its paid score too, and nothing was charged; "
                "after the fit"
            )
            raise
    return plans


def _run_fit(estimator: Any, prepared: PreparedFit, rows: tuple[Any, Any], told: list[str], output: Output) -> None:
    from dperm.estimators.central.base import fit_prepared
    from dperm.estimators.progress import watching

    with warnings.catch_warnings(record=True) as caught, output.progress("fitting") as bar:
        warnings.simplefilter("always", DpermWarning)
        with watching(bar, reading=bar.named("reading rows")):
            fit_prepared(estimator, prepared, *rows)
    shown = {f"{text}." for text in prepared.utility_warnings}  # before the fit
    for one in caught:
        if not issubclass(one.category, DpermWarning) or str(one.message) in shown:
            continue
        if isinstance(one.message, DataSetResembles) and one.message.dataset in told:
            continue  # before the fit
        owner = ", for the owner only" if issubclass(one.category, OwnerWarning) else ""
        output.note(f"note{owner}: {one.message}")


def _what_is_spent(estimator: Any, written: list[str], address: str | None) -> str:
    """State what an interrupted fit has cost: its reservation stays spent."""
    made = estimator.ledger.made_here()
    if not made:
        return _NOTHING_SPENT
    kept = (
        f"{' and '.join(written)} {'was' if len(written) == 1 else 'were'} written"
        if written
        else "nothing was written"
    )
    scored = ", and that of the score," if len(made) > 1 else ""
    where = shlex.quote(made[0]["dataset"])
    shown = shlex.join(
        ["dperm", "ledger", "show", *([] if address is None else ["--ledger", address]), made[0]["dataset"]]
    )
    return (
        f"interrupted: {kept}, and the epsilon {estimator.epsilon:g} that was reserved on data set {where}{scored} "
        f"stays spent: see `{shown}`."
    )


def _score(
    saved: Any, test: tuple[Any, Any] | None, ledger: Any, options: dict[str, Any], files: ModelFiles, output: Output
) -> Any:
    """Return the score on held-out rows: paid for, or marked as not private."""
    if test is None:
        return None
    if options["test_epsilon"] is not None:
        from dperm.estimators.central.scoring import paid_score

        relation = options["neighbours"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OwnerWarning)  # shown for the fit
                return paid_score(saved, *test, epsilon=options["test_epsilon"], ledger=ledger, neighbours=relation)
        except DpermError:
            output.note(f"note: the model is kept, without a score: {', '.join(files.written)}.")
            raise
    from dperm.cli.summary import OwnersScore

    return OwnersScore.of(saved, *test)


def _object_array(names: list[str]) -> Any:
    import numpy as np

    return np.array(names, dtype=object)

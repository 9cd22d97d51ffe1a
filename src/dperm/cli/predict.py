"""``dperm predict``: predict with a saved model for a table in a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click

from dperm.cli.options import FILE
from dperm.cli.output import Output, with_output
from dperm.cli.writing import check_outputs
from dperm.errors import InvalidInput

__all__ = ["predict"]

_TO_PREDICT = (
    "column {!r} must hold numbers only, because the model was trained on numbers: correct the file.",
    "column {!r} has missing or infinite values, and the model has no rule to replace them: correct the file.",
)


@click.command()
@click.argument("model", type=FILE)
@click.argument("file", type=FILE)
@click.option("--out", type=FILE, help="CSV file to write; standard output by default.")
@click.option("--force", is_flag=True, help="Write over an existing file.")
@click.option("--probabilities", is_flag=True, help="Also the probability of every class.")
@with_output
def predict(model: Path, file: Path, out: Path | None, force: bool, probabilities: bool, output: Output) -> None:
    """Predict the target of every row of the table FILE with MODEL.

    A model with a schema takes raw columns. Predictions cost no privacy of the people it was trained on.
    """
    import dperm
    from dperm.atomic_files import write_atomically
    from dperm.data.tables.files import open_table

    if out is not None:
        check_outputs([out], inputs=(model, file), force=force)
    loaded: Any = dperm.load(model)
    table = open_table(file)
    if probabilities and not hasattr(loaded, "predict_proba"):
        raise InvalidInput(f"{loaded.estimator} does not predict probabilities: leave out --probabilities.")
    X = loaded.schema.encode(table).X if loaded.schema is not None else _plain(loaded, table)
    columns: dict[str, list[Any]] = {"prediction": loaded.predict(X).tolist()}
    if probabilities:
        shares = loaded.predict_proba(X)
        columns |= {f"probability of {label}": shares[:, k].tolist() for k, label in enumerate(loaded.classes_)}
    if output.as_json and out is None:
        output.result({"n": len(X), **columns}, lambda _: None)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    if out is None:
        click.echo(text.getvalue(), nl=False)
        return
    written = str(write_atomically(out, text.getvalue()))
    output.result({"written": written, "n": len(X)}, lambda o: o.note(f"Written: {written} ({len(X):,} predictions)"))


def _plain(model: Any, table: Any) -> Any:
    """Return the columns for a model that was fitted on numbers, without a schema."""
    import numpy as np

    from dperm.cli.training import numeric

    if model.feature_names_in_ is None:
        raise InvalidInput(
            "this model has no column names: predict in Python, with the columns in the order of the training data."
        )
    names = [str(name) for name in model.feature_names_in_]
    parts = [
        np.column_stack([numeric(chunk[name], name, _TO_PREDICT) for name in names]) for chunk in table.chunks(names)
    ]
    if not parts:
        raise InvalidInput(f"{table.path.name} has column names but no rows.")
    return np.vstack(parts)

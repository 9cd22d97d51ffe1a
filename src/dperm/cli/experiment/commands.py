"""``dperm experiment``: the papers' tables and figures, ours next to theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dperm.cli.options import OrderedGroup
from dperm.cli.output import Output, with_output

if TYPE_CHECKING:
    from dperm.experiments.datasets import DataFolder
    from dperm.experiments.experiment import Experiment

__all__ = ["experiment"]

_ALL = "all"
_FOLDER = "dperm-experiments"


@click.group(cls=OrderedGroup)
def experiment() -> None:
    """Measure the tables and figures of the papers behind dperm, and show them next to the printed numbers.

    The environment variable DPERM_DATA names the folder with their data. Without it, every experiment runs on data that
    it makes, and says so.
    """


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from dperm.experiments.registry import EXPERIMENTS

    return [name for name in (*EXPERIMENTS, _ALL) if name.startswith(incomplete)]


@experiment.command("list", short_help="Show the experiments, their time and their data.")
@with_output
def list_(output: Output) -> None:
    """Show the experiments: paper, what is measured, minutes of a full run, whether data and packages are there."""
    from dperm.experiments.datasets import DATA_VARIABLE, DataFolder
    from dperm.experiments.registry import EXPERIMENTS

    folder = DataFolder.of_environment()
    found = list(EXPERIMENTS.values())

    def show(output: Output) -> None:
        header = ("name", "paper", "what", "minutes", "data", "needs")
        rows = [
            (one.name, one.paper, one.what, f"{one.minutes:g}", _data_line(one, folder), _needs_line(one))
            for one in found
        ]
        output.table(header, rows, right=(3,))
        if folder.path is None:
            output.text(f"\n{DATA_VARIABLE} names no folder with data: all experiments use data that they make.")

    data = [
        {
            "name": one.name,
            "paper": one.paper,
            "what": one.what,
            "minutes": one.minutes,
            "data": {file: folder.has(file) for file in one.data},
            "needs": {package: package not in one.missing for package in one.needs},
        }
        for one in found
    ]
    output.result(data, show)


def _data_line(one: Experiment, folder: DataFolder) -> str:
    if not one.data:
        return "none needed"
    return ", ".join(f"{Path(file).stem} {'there' if folder.has(file) else 'missing'}" for file in one.data)


def _needs_line(one: Experiment) -> str:
    return ", ".join(f"{name} {'missing' if name in one.missing else 'there'}" for name in one.needs) or "nothing more"


@experiment.command(short_help="Measure one table or figure, or all.")
@click.argument("name", shell_complete=_names)
@click.option("--fast", is_flag=True, help="A run of seconds, to see that it works; its numbers do not count.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help=f"Folder of the results and of finished pieces.  [default: {_FOLDER}, with --fast {_FOLDER}-fast]",
)
@click.option("--force", is_flag=True, help="Measure again what is finished, and drop the pieces of other runs.")
@with_output
def run(name: str, fast: bool, out: Path | None, force: bool, output: Output) -> None:
    """Measure NAME, or `all` that are not finished in --out; write NAME.md, NAME.json and, where there is a picture,
    NAME.svg there.

    An interrupted run goes on where it was when the same command is given again, without --force. With `all`, what
    needs a package that is not installed is left out, and the exit code is 1.
    """
    from dperm.errors import MissingDependency
    from dperm.experiments.datasets import DataFolder
    from dperm.experiments.registry import EXPERIMENTS, experiment_named
    from dperm.experiments.running import check_finished, drop, is_finished
    from dperm.experiments.running import run as measure
    from dperm.experiments.writing import BASELINE_COLUMNS, ROW_COLUMNS, baseline_cells, row_cells

    chosen = list(EXPERIMENTS.values()) if name == _ALL else [experiment_named(name)]
    folder = DataFolder.of_environment()
    out = out or Path(f"{_FOLDER}-fast" if fast else _FOLDER)
    runnable = [one for one in chosen if not one.missing]
    if force:  # of all of them now, so that after an interruption old results do not count as new ones
        for one in runnable:
            drop(one, out)
    finished = [one.name for one in chosen if name == _ALL and not force and is_finished(one, out)]
    for one in chosen:  # before anything is measured
        if one.name in finished:
            check_finished(one, out, folder, fast=fast)
    results: list[dict[str, Any]] = []
    left_out = []
    for one in chosen:
        if one.name in finished:
            output.note(f"{one.name} is finished in {out}; --force measures it again.")
            continue
        try:
            one.check_needs()
        except MissingDependency as error:
            if name != _ALL:
                raise
            left_out.append(one.name)
            output.note(str(error))
            continue
        missing = [file for file in one.data if not folder.has(file)]
        if missing:
            output.note(f"{one.name}: {', '.join(missing)} missing; it runs on data that it makes.")
        with output.progress(one.name) as bar:
            result, written = measure(one, out, folder, fast=fast, force=False, show=bar)
        content = json.loads(next(path for path in written if path.suffix == ".json").read_text("utf-8"))
        results.append({"name": one.name, "written": [str(path) for path in written], **content})
        if not output.as_json and not output.quiet:
            output.text(f"\n{one.name}: {one.what} ({one.paper})\n")
            output.table(ROW_COLUMNS, [row_cells(row) for row in result.rows])
            if result.baselines:
                output.text("")
                output.table(BASELINE_COLUMNS, [baseline_cells(baseline) for baseline in result.baselines])
            for note in result.notes:
                output.text(f"\n{note}")
            output.text(f"\nWritten: {', '.join(str(path) for path in written)}")
    output.result(results, lambda output: None)
    if left_out:
        raise MissingDependency(f"left out, for want of a package: {', '.join(left_out)}.")

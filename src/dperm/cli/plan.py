"""``dperm plan``: shows what a budget would buy, before any data are touched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from dperm.cli.options import FILE, MODELS, NEIGHBOURS, estimator_of
from dperm.cli.output import Output, counted, with_output
from dperm.cli.writing import check_outputs
from dperm.errors import InvalidInput

__all__ = ["plan"]

#: multiples of the given epsilon that are compared
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: length of a full bar, in characters
_BLOCKS = 20


@click.command()
@click.option("--rows", type=click.IntRange(min=1), required=True, help="Number of people.")
@click.option("--columns", type=click.IntRange(min=1), help="Number of columns; the schema's if it is given.")
@click.option("--epsilon", type=float, required=True, help="Privacy budget of the fit.")
@click.option("--delta", type=float, help="min(1e-5, 1/n^2) by default.")
@click.option("--model", type=click.Choice(list(MODELS)), help="logistic unless the schema's target is a number.")
@click.option("--schema", "schema_path", type=FILE, help="A schema with its bounds, instead of --columns.")
@click.option("--neighbours", type=NEIGHBOURS, default="replace-one", show_default=True)
@click.option("--buy-bounds", is_flag=True, help="As if ranges were bought with 10% of the budget.")
@click.option("--out", type=FILE, help="Write the figure to an .svg file.")
@click.option("--force", is_flag=True, help="Write over an existing file.")
@with_output
def plan(output: Output, **options: Any) -> None:
    """Show how useful a model could be with this budget, what another budget or more rows would buy, and the method."""
    if options["out"] is not None:
        if options["out"].suffix != ".svg":
            raise InvalidInput("--out must end in .svg.")
        check_outputs([options["out"]], inputs=(options["schema_path"],), force=options["force"])
    kind = _FitKind.of(options)
    base = kind.summary(options["epsilon"], options["rows"])
    grid = {rows: [kind.cell(options["epsilon"] * f, rows) for f in _FACTORS] for rows in (kind.rows, 2 * kind.rows)}
    written = None
    if options["out"] is not None:
        written = _write_figure(kind, options["epsilon"], options["out"])

    def show(output: Output) -> None:
        output.text(str(base))
        if any(cell.excess is not None for cells in grid.values() for cell in cells):
            output.text("\nHow much of what the columns can explain is left after the noise (estimate):")
            lines = [_line(cell) for cells in grid.values() for cell in cells]
            output.table(("rows", "epsilon", "left", "", "excess of the objective"), lines, right=(0, 1, 2, 4))
        else:
            output.text("\nNo forecast exists for this method; noise of its largest group of releases:")
            noise = [(f"{c.rows:,}", f"{c.epsilon:g}", f"{c.noise:.4g}") for cells in grid.values() for c in cells]
            output.table(("rows", "epsilon", "noise multiplier"), noise, right=(0, 1, 2))
        if written:
            output.text(f"\nFigure: {written}")

    cells = [asdict(cell) for found in grid.values() for cell in found]
    output.result({"plan": _plain(asdict(base)), "alternatives": cells, "figure": written}, show)


@dataclass(frozen=True)
class _Cell:
    rows: int
    epsilon: float
    solver: str
    noise: float
    excess: float | None
    #: share of what the columns can explain that is left after the noise
    left: float | None


@dataclass(frozen=True)
class _FitKind:
    """A fit without its epsilon and number of rows, so that several of them can be compared."""

    estimator: Any
    parameters: dict[str, Any]
    rows: int
    columns: int
    n_classes: int | None

    @classmethod
    def of(cls, options: dict[str, Any]) -> _FitKind:
        from dperm import Bounds
        from dperm.data.schema.schema import CLASSES, Schema

        columns, n_classes, name = options["columns"], None, options["model"]
        bounds: Any = Bounds(features=(0, 1), target=(0, 1))  # only that they are declared matters
        if options["schema_path"] is not None:
            if columns is not None or options["buy_bounds"]:
                raise InvalidInput("--schema declares columns and bounds: leave --columns and --buy-bounds out.")
            schema = Schema.read(options["schema_path"])
            columns, bounds = len(schema.encoded_names), schema.confirm().bounds()  # a plan looks at no data
            classes = schema.target.kind == CLASSES
            n_classes = len(schema.target.classes) if classes else None
            name = name or ("logistic" if classes else "linear")
        elif columns is None:
            raise InvalidInput("give the number of --columns, or a --schema.")
        parameters = {
            "delta": options["delta"],
            "bounds": None if options["buy_bounds"] else bounds,
            "neighbours": options["neighbours"],
        }
        return cls(estimator_of(name or "logistic"), parameters, options["rows"], columns, n_classes)

    def summary(self, epsilon: float, rows: int) -> Any:
        model = self.estimator(epsilon=epsilon, **self.parameters)
        return model.plan(rows, self.columns, self.n_classes)

    def cell(self, epsilon: float, rows: int) -> _Cell:
        found = self.summary(epsilon, rows)
        forecast = found.forecast
        noise = max(found.releases, key=lambda line: line.share).noise_multiplier
        excess = None if forecast is None else forecast.excess
        return _Cell(rows, epsilon, found.solver, noise, excess, found.share_left)


def _line(cell: _Cell) -> tuple[str, str, str, str, str]:
    from dperm.estimators.central.plan import in_words

    if cell.excess is None:
        return f"{cell.rows:,}", f"{cell.epsilon:g}", "", "", "no forecast"
    left = cell.left or 0.0
    return f"{cell.rows:,}", f"{cell.epsilon:g}", in_words(left), "█" * round(_BLOCKS * left), f"{cell.excess:.3g}"


def _write_figure(kind: _FitKind, epsilon: float, out: Path) -> str:
    from dperm.atomic_files import write_atomically
    from dperm.reporting.figures import Series, line_chart

    epsilons = [epsilon * 2.0 ** (k / 2.0) for k in range(-6, 7)]
    series = []
    for rows in (kind.rows, 2 * kind.rows):
        cells = [kind.cell(one, rows) for one in epsilons]
        points = tuple((cell.epsilon, cell.excess) for cell in cells if cell.excess is not None)
        if len(points) < 2:
            raise InvalidInput("no forecast exists for this method, so there is nothing to draw.")
        series.append(Series(f"{rows:,} rows", points))
    chart = line_chart(
        series,
        title=f"Expected excess of the objective, {counted(kind.columns, 'column')}",
        x_label="epsilon",
        y_label="expected excess of the objective (estimate)",
        log_x=True,
        log_y=True,
        alone=True,
    )
    return str(write_atomically(out, chart + "\n"))


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if key == "neighbours" else value for key, value in data.items()}

"""``dperm demo``: the main job on data that ship with scikit-learn."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dperm.cli.writing import check_outputs
from dperm.errors import DisappointmentWarning

__all__ = ["demo"]

_FOLDER = Path("dperm-demo")

# Ranges that anyone may know of these measurements: (mean, standard error, worst) of each.
_RANGES = {
    "radius": ((5, 30), (0, 3), (5, 40)),
    "texture": ((5, 40), (0, 5), (10, 50)),
    "perimeter": ((40, 200), (0, 22), (50, 260)),
    "area": ((100, 2500), (0, 550), (150, 4300)),
    "smoothness": ((0.05, 0.17), (0, 0.035), (0.07, 0.23)),
    "compactness": ((0, 0.35), (0, 0.14), (0, 1.1)),
    "concavity": ((0, 0.45), (0, 0.4), (0, 1.3)),
    "concave points": ((0, 0.2), (0, 0.06), (0, 0.3)),
    "symmetry": ((0.1, 0.31), (0, 0.08), (0.15, 0.67)),
    "fractal dimension": ((0.05, 0.1), (0, 0.03), (0.05, 0.21)),
}


@click.command()
@click.option("--epsilon", default=1.0, show_default=True, help="Privacy budget of the fit.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=_FOLDER,
    show_default=True,
    help="Folder for the model and its report.",
)
@click.option("--force", is_flag=True, help="Write over existing files.")
def demo(epsilon: float, out: Path, force: bool) -> None:
    """Fit a private model on a medical table and explain the result."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from dperm import Bounds, Budget, DPLogisticRegression
    from dperm.cli.summary import page_of
    from dperm.privacy.report import write_whole

    Budget(epsilon, 1e-6)  # refuse a bad epsilon before anything else
    files = [out / name for name in ("model.json", "report.json", "report.html")]
    check_outputs(files, force=force or out == _FOLDER)  # that folder holds nothing but a demo
    console = Console()
    table = load_breast_cancer()
    names = [str(name) for name in table.feature_names]
    low, high = zip(*(_range(name) for name in names), strict=True)
    X, X_test, y, y_test = train_test_split(table.data, table.target, test_size=0.3, random_state=0)

    with console.status("fitting"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DisappointmentWarning)  # the outcome is shown below
        model = DPLogisticRegression(epsilon=epsilon, bounds=Bounds(features=(low, high), classes=[0, 1])).fit(X, y)
        plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    report = model.privacy_report_
    out.mkdir(parents=True, exist_ok=True)
    saved = replace(model._saved(), feature_names_in_=np.array(names, dtype=object))
    saved.save(files[0])
    report.save(files[1])
    path = write_whole(files[2], page_of(saved))

    console.print(
        f"[bold]Is a tumour benign?[/bold] {len(y)} patients to learn from, {len(names)} measurements each.\n"
    )
    scores = Table("", "right on new patients", box=None)
    scores.add_row("always the more frequent answer", f"{max(y_test.mean(), 1 - y_test.mean()):.1%}")
    scores.add_row(f"[bold]dperm, epsilon = {epsilon:g}[/bold]", f"[bold]{model.score(X_test, y_test):.1%}[/bold]")
    scores.add_row("no privacy at all", f"{plain.score(X_test, y_test):.1%}")
    console.print(scores)
    console.print(
        f"[dim](on {len(y_test)} held-out patients; these three figures are not covered by the guarantee)[/dim]\n"
    )

    console.print("[bold]What is guaranteed[/bold]")
    console.print(report.summary(), highlight=False)
    console.print("\n[bold]What the model found[/bold] (largest effects over a measurement's range)")
    effects = [c * (h - lo) for c, lo, h in zip(model.coef_[0], low, high, strict=True)]
    found = Table("measurement", "effect on 'benign'", box=None)
    for j in sorted(range(len(names)), key=lambda j: -abs(effects[j]))[:5]:
        found.add_row(names[j], f"{effects[j]:+.1f}")
    console.print(found)
    console.print(f"\nModel: {files[0]}", soft_wrap=True, highlight=False)
    console.print(f"Report, a page for your browser: {path}", soft_wrap=True, highlight=False)


def _range(name: str) -> tuple[float, float]:
    for measurement, (mean, error, worst) in _RANGES.items():
        if name == f"mean {measurement}":
            return mean
        if name == f"{measurement} error":
            return error
        if name == f"worst {measurement}":
            return worst
    raise KeyError(name)

"""``dperm demo``: fit, score and explain a private model on data that come with scikit-learn."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import click

from dperm.cli.output import Output, with_output
from dperm.cli.writing import check_outputs
from dperm.errors import UtilityWarning

__all__ = ["demo"]

_FOLDER = Path("dperm-demo")

# Public knowledge about the worst values of these measurements: their usual centre and spread.
_USUAL = {
    "radius": (16, 5),
    "texture": (25, 6),
    "perimeter": (105, 35),
    "area": (900, 500),
    "smoothness": (0.13, 0.02),
    "compactness": (0.25, 0.15),
    "concavity": (0.25, 0.2),
    "concave points": (0.1, 0.07),
    "symmetry": (0.3, 0.06),
    "fractal dimension": (0.08, 0.02),
}
_CLIP = 3.0  # in spreads: values farther from the centre are clipped


@click.command()
@click.option("--epsilon", default=1.0, show_default=True, help="Privacy budget of the fit.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=_FOLDER,
    show_default=True,
    help="Folder for the model and its report.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@with_output
def demo(epsilon: float, out: Path, force: bool, output: Output) -> None:
    """Fit a private model on an included medical table, and explain the result."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from dperm import Bounds, Budget, DPLogisticRegression
    from dperm.atomic_files import write_atomically
    from dperm.cli.summary import page_of
    from dperm.estimators.progress import watching

    Budget(epsilon, 1e-6)  # refuses a bad epsilon first
    files = [out / name for name in ("model.json", "report.json", "report.html")]
    check_outputs(files, force=force or out == _FOLDER)  # the default folder holds only a demo
    table = load_breast_cancer()
    names = [f"worst {measurement}" for measurement in _USUAL]
    columns = [list(table.feature_names).index(name) for name in names]
    centre, scale = zip(*_USUAL.values(), strict=True)
    X, X_test, y, y_test = train_test_split(table.data[:, columns], table.target, test_size=0.3, random_state=0)

    with output.progress("fitting") as bar, watching(bar), warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)  # the demo shows the accuracy itself
        bounds = Bounds(centre=centre, scale=scale, clip=_CLIP, classes=[0, 1])
        model = DPLogisticRegression(epsilon=epsilon, bounds=bounds).fit(X, y)
        plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    report = model.privacy_report_
    out.mkdir(parents=True, exist_ok=True)
    saved = replace(model.saved_model(), feature_names_in_=np.array(names, dtype=object))
    saved.save(files[0])
    report.save(files[1])
    path = write_atomically(files[2], page_of(saved))

    effects = [c * usual for c, usual in zip(model.coef_[0], scale, strict=True)]
    largest = sorted(range(len(names)), key=lambda j: -abs(effects[j]))[:5]
    scores = {
        "always the more frequent class": float(max(y_test.mean(), 1 - y_test.mean())),
        f"dperm, epsilon = {epsilon:g}": float(model.score(X_test, y_test)),
        "without privacy": float(plain.score(X_test, y_test)),
    }

    def show(output: Output) -> None:
        output.text(f"Is a tumour benign? Trained on {len(y)} patients with {len(names)} measurements each.\n")
        shares = [(who, f"{share:.1%}") for who, share in scores.items()]
        output.table(("model", "accuracy on new patients"), shares)
        output.text(
            f"(measured on {len(y_test)} held-out patients; the guarantee does not cover these three figures)\n"
        )
        output.text(f"Privacy guarantee\n{report.summary()}\n")
        output.text("Largest effects in the model (of one usual spread, on the log-odds of 'benign')")
        output.table(("measurement", "effect"), [(names[j], f"{effects[j]:+.1f}") for j in largest])
        output.text(f"\nModel: {files[0]}")
        output.text(f"Report (open it in a browser): {path}")

    assert report.guarantee is not None  # a fit without a seed always has one
    data = {
        "guarantee": report.guarantee.to_dict(),
        "accuracy_on_new_patients": scores,
        "effects": {names[j]: effects[j] for j in largest},
        "written": [str(file) for file in files],
    }
    output.result(data, show)

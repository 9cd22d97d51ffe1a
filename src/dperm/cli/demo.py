"""``dperm demo``: the main job on data that ship with scikit-learn."""

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

# What anyone may know of the worst values of these measurements: where they lie, give or take how much.
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
_CLIP = 3.0  # times that much: values farther away are moved to there


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
@with_output
def demo(epsilon: float, out: Path, force: bool, output: Output) -> None:
    """Fit a private model on a medical table and explain the result."""
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

    Budget(epsilon, 1e-6)  # refuse a bad epsilon before anything else
    files = [out / name for name in ("model.json", "report.json", "report.html")]
    check_outputs(files, force=force or out == _FOLDER)  # that folder holds nothing but a demo
    table = load_breast_cancer()
    names = [f"worst {measurement}" for measurement in _USUAL]
    columns = [list(table.feature_names).index(name) for name in names]
    centre, scale = zip(*_USUAL.values(), strict=True)
    X, X_test, y, y_test = train_test_split(table.data[:, columns], table.target, test_size=0.3, random_state=0)

    with output.progress("fitting") as bar, watching(bar), warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)  # the outcome is shown below
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
        "always the more frequent answer": float(max(y_test.mean(), 1 - y_test.mean())),
        f"dperm, epsilon = {epsilon:g}": float(model.score(X_test, y_test)),
        "no privacy at all": float(plain.score(X_test, y_test)),
    }

    def show(output: Output) -> None:
        output.text(f"Is a tumour benign? {len(y)} patients to learn from, {len(names)} measurements each.\n")
        shares = [(who, f"{share:.1%}") for who, share in scores.items()]
        output.table(("", "right on new patients"), shares)
        output.text(f"(on {len(y_test)} held-out patients; these three figures are not covered by the guarantee)\n")
        output.text(f"What is guaranteed\n{report.summary()}\n")
        output.text("What the model found (largest effects of a usual difference)")
        output.table(("measurement", "effect on 'benign'"), [(names[j], f"{effects[j]:+.1f}") for j in largest])
        output.text(f"\nModel: {files[0]}")
        output.text(f"Report, a page for your browser: {path}")

    told = {"guarantee": report.guarantee.to_dict(), "right_on_new_patients": scores}
    found = {names[j]: effects[j] for j in largest}
    output.result({**told, "effects": found, "written": [str(file) for file in files]}, show)

"""Saved models: one JSON file, ONNX, skops; they predict the same and refuse what they cannot read."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import dperm
from dperm import (
    Bounds,
    DPElasticNet,
    DPHuberRegressor,
    DPLasso,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
    Ledger,
)
from dperm.errors import InvalidData, InvalidInput, LedgerNotSaved, MissingDependency

RANGE = Bounds(features=(-0.9, 0.8), target=(-4, 3))
ROWS = Bounds(centre=0.1, scale=0.5, clip=2.0, row_norm=1.2, target=(-4, 3))

MODELS = {
    "two classes": (DPLogisticRegression(), "binary"),
    "three classes": (DPLogisticRegression(), "text"),
    "one against the rest": (DPLogisticRegression(multi_class="ovr"), "classes"),
    "svc": (DPLinearSVC(), "binary"),
    "svc, three classes": (DPLinearSVC(), "classes"),
    "ridge": (DPRidge(), "numbers"),
    "lasso": (DPLasso(strength=1e-3), "numbers"),
    "elastic net": (DPElasticNet(), "numbers"),
    "least squares": (DPLinearRegression(), "numbers"),
    "huber": (DPHuberRegressor(), "numbers"),
}


def people(what="binary", n=200):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, (n, 4))
    codes = (X @ np.eye(4, 3) * 4 + rng.gumbel(size=(n, 3))).argmax(axis=1)
    return X, {
        "binary": codes > 0,
        "classes": codes,
        "text": np.array(["a", "bb", "ä"])[codes],
        "numbers": 3 * X[:, 0] - X[:, 1] + rng.normal(size=n),
    }[what]


def fitted(which="two classes", bounds=RANGE, names=None, **options):
    model, what = MODELS[which]
    X, y = people(what)
    model = type(model)(**{**model.get_params(), "epsilon": 1e3, "bounds": bounds, "insecure_seed": 0, **options})
    return model.fit(X if names is None else pd.DataFrame(X, columns=names), y)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


METHODS = ("predict", "decision_function", "predict_proba", "predict_log_proba")


@pytest.mark.parametrize("bounds", [RANGE, ROWS], ids=["range", "row norm"])
@pytest.mark.parametrize("which", MODELS)
def test_a_loaded_model_predicts_the_same_bits(which, bounds, path):
    model = fitted(which, bounds)
    X, _ = people()
    assert model.save(path) == path
    loaded = dperm.load(path)
    for method in METHODS:
        assert hasattr(loaded, method) == hasattr(model, method)
        if hasattr(model, method):
            for form in (
                X,
                np.asfortranarray(X),
                X[:7],
                X.astype(np.float32),
                sp.csr_array(X),
                sp.csc_array(X),
                sp.lil_array(X),
            ):
                now, then = getattr(loaded, method)(form), getattr(model, method)(form)
                assert now.tobytes() == then.tobytes()
    assert loaded.privacy_report_ == model.privacy_report_
    assert loaded.estimator == type(model).__name__
    assert loaded.version == dperm.__version__
    assert loaded.n_features_in_ == 4
    # what was loaded is saved again as it was
    text = path.read_text(encoding="utf-8")
    loaded.save(path)
    assert path.read_text(encoding="utf-8") == text


def test_names_are_kept_and_compared(path):
    names = ["age", "dose", "sex", "days"]
    model = fitted(names=names)
    model.save(path)
    loaded = dperm.load(path)
    assert loaded.feature_names_in_.tolist() == names
    X, _ = people()
    frame = pd.DataFrame(X, columns=names)
    assert np.array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert np.array_equal(loaded.predict(X), loaded.predict(frame))
    with pytest.raises(InvalidData, match="feature names should match"):
        loaded.predict(frame[names[::-1]])
    for kind in ("polars", "pyarrow"):
        library = pytest.importorskip(kind)
        table = library.DataFrame(dict(frame)) if kind == "polars" else library.table(dict(frame))
        assert np.array_equal(loaded.predict_proba(table), model.predict_proba(frame))


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [-1, 1], [False, True], [2.0, 7.0], np.array([1, 2], np.int32), np.array(["a", "b"], object)],
)
def test_labels_of_any_kind(labels, path):
    X, y = people()
    model = DPLogisticRegression(epsilon=100, bounds=RANGE, insecure_seed=0).fit(X, np.array(labels)[y.astype(int)])
    model.save(path)
    loaded = dperm.load(path).predict(X)
    assert loaded.tolist() == model.predict(X).tolist()
    assert [type(v) for v in loaded.tolist()] == [type(v) for v in model.predict(X).tolist()]


def test_bad_data_for_a_loaded_model(path):
    fitted().save(path)
    loaded = dperm.load(path)
    for bad, words in [
        (np.zeros((2, 3)), "X has 3 features, but the model expects 4"),
        (np.zeros(4), "two dimensions"),
        (np.full((1, 4), np.nan), "NaN"),
        ([["Mrs. Smith", 1, 2, 3]], "numbers only"),
        (sp.csr_array(np.full((1, 4), np.inf)), "NaN or infinite"),
    ]:
        with pytest.raises(InvalidData, match=words) as raised:
            loaded.predict(bad)
        assert "Smith" not in str(raised.value)


def test_loading_needs_neither_solvers_nor_scikit_learn(path):
    fitted("one against the rest").save(path)
    code = f"""
import json, sys
import dperm
model = dperm.load({str(path)!r})
labels = model.predict([[0.1, 0.2, 0.3, 0.4]]).tolist(), model.predict_proba([[0.1, 0.2, 0.3, 0.4]]).tolist()
heavy = [m for m in ("numba", "sklearn", "pandas", "dperm.solvers", "dperm.queries") if m in sys.modules]
print(json.dumps([heavy, labels]))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    heavy, labels = json.loads(done.stdout)
    assert heavy == []
    row, model = [[0.1, 0.2, 0.3, 0.4]], fitted("one against the rest")
    assert labels == [model.predict(row).tolist(), model.predict_proba(row).tolist()]


def test_the_file_is_plain_json_without_data(path):
    fitted("ridge", insecure_seed=None).save(path)
    data = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(word))
    assert data["format"] == "dperm model"
    assert data["format_number"] == 1
    assert data["target"] == [-4, 3]
    assert data["report"]["guarantee"]["epsilon"] <= 1e3
    assert len(path.read_text()) < 20_000  # no rows, whatever their number
    fitted("ridge").save(path)
    assert json.loads(path.read_text())["report"]["guarantee"] is None  # seeded noise stays marked when saved
    assert dperm.load(path).privacy_report_.epsilon == np.inf


def change(data, *keys, to=None, drop=False):
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    if drop:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = to
    return data


@pytest.mark.parametrize(
    ("keys", "to", "words"),
    [
        (("format",), "other", "is not a dperm model"),
        (("format_number",), 99, "has format number 99, and this dperm reads 1 only"),
        (("format_number",), None, "has format number None"),
        (("kind",), "forest", "damaged"),
        (("kind",), "regression", "damaged"),
        (("coef",), [[1.0]], "damaged"),
        (("coef",), "many", "damaged"),
        (("coef",), [[1.0, 2.0, 3.0, None]], "damaged"),
        (("intercept",), [1.0, 2.0], "damaged"),
        (("scaling", "scale"), [1.0], "damaged"),
        (("scaling",), None, "damaged"),
        (("classes", "labels"), ["a"], "damaged"),
        (("classes", "type"), "code", "damaged"),
        (("feature_names",), ["a"], "damaged"),
        (("report",), {}, "damaged"),
        (("report", "planned"), None, "damaged"),
    ],
)
def test_damaged_and_foreign_files(keys, to, words, path):
    fitted().save(path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps(change(data, *keys, to=to)))
    with pytest.raises(InvalidInput, match=words) as raised:
        dperm.load(path)
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)
    path.write_text(json.dumps(change(data, *keys, drop=True)))
    with pytest.raises(InvalidInput):
        dperm.load(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1, 2]", b"3", b"\xff\xfe\x00", b"null", b'{"format": "dperm model"}']
)
def test_files_that_are_no_models(content, path):
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"is not a dperm model|format number"):
        dperm.load(path)


def test_every_cut_of_a_file_is_refused(path):
    fitted().save(path)
    text = path.read_text().rstrip()
    for end in range(1, len(text) - 1, 97):
        path.write_text(text[:end])
        with pytest.raises(InvalidInput, match="is not a dperm model"):
            dperm.load(path)


def test_a_missing_file_and_a_model_that_is_not_fitted(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        dperm.load(tmp_path / "none.json")
    for method in ("save", "to_onnx"):
        with pytest.raises(NotFittedError):
            getattr(DPRidge(), method)(tmp_path / "model")


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    fitted().save(path)
    before = path.read_text()

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        fitted("ridge").save(path)
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["model.json"]


# ------------------------------------------------------------------------------------------ ONNX
def run_onnx(path, X):
    """Outputs by name: of the runtime where it is installed, else of onnx's own evaluator."""
    try:
        import onnxruntime
    except ImportError:
        session = pytest.importorskip("onnx.reference").ReferenceEvaluator(str(path))
        return dict(zip(session.output_names, session.run(None, {"X": X}), strict=True))
    session = onnxruntime.InferenceSession(str(path))
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"X": X}), strict=True))


@pytest.mark.parametrize("bounds", [RANGE, ROWS], ids=["range", "row norm"])
@pytest.mark.parametrize("which", MODELS)
def test_onnx_predicts_the_same(which, bounds, tmp_path):
    pytest.importorskip("onnx")
    model = fitted(which, bounds)
    X, _ = people()
    outputs = run_onnx(model.to_onnx(tmp_path / "model.onnx"), X)
    if "prediction" in outputs:
        np.testing.assert_allclose(outputs["prediction"], model.predict(X), rtol=1e-12)
        return
    assert outputs["label"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(outputs["scores"], model.decision_function(X), rtol=1e-9, atol=1e-12)
    assert ("probabilities" in outputs) == hasattr(model, "predict_proba")
    if "probabilities" in outputs:
        np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("labels", [[-1, 1], [False, True], [1.0, 2.0], ["no", "yes"]])
def test_onnx_labels(labels, tmp_path):
    pytest.importorskip("onnx")
    X, y = people()
    model = DPLinearSVC(epsilon=100, bounds=RANGE, insecure_seed=0).fit(X, np.array(labels)[y.astype(int)])
    assert run_onnx(model.to_onnx(tmp_path / "m.onnx"), X)["label"].tolist() == model.predict(X).tolist()


def test_onnx_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependency, match=r"dperm\[onnx\]"):
        fitted().to_onnx(tmp_path / "model.onnx")


# ------------------------------------------------------------------------------------------ skops
@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("bounds", [RANGE, None], ids=["declared", "bought"])
def test_skops(which, bounds):
    sio = pytest.importorskip("skops.io")
    model = fitted(which, bounds)
    X, _ = people()
    data = sio.dumps(model)
    unknown = sio.get_untrusted_types(data=data)
    assert all(name.startswith("dperm.") for name in unknown)
    again = sio.loads(data, trusted=unknown)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.privacy_report_ == model.privacy_report_
    assert np.array_equal(again.fit(*people(MODELS[which][1])).coef_, model.coef_)


def test_skops_drops_a_ledger_in_memory():
    sio = pytest.importorskip("skops.io")
    model = fitted(ledger=Ledger())
    with pytest.warns(LedgerNotSaved):
        data = sio.dumps(model)
    assert sio.loads(data, trusted=sio.get_untrusted_types(data=data)).ledger is None

"""Markdown tables of the local model's measurements."""

from __future__ import annotations


def cell(value, unit=1e4):
    """Mean and standard error, in units of 1e-4."""
    return f"{unit * value['mean']:.3g} ± {unit * value['error']:.1g}"


def table(head, rows):
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(str(one) for one in row) + " |" for row in rows)])


def risk(rows):
    names = ("dperm, moments", "unshrunk", "dperm, theta-grid", "weights 0")
    body = []
    for row in rows:
        target = "" if row["target"] is None else f"{row['target']:g}"
        cells = [cell(row[name]) if name in row else "" for name in names]
        body.append([row["p"], f"{row['n']:.0e}", row["degree"], *cells, target, row[names[0]]["runs"]])
    return table(["columns", "people", "degree", *names, "at most", "runs"], body)


def people(part):
    names = list(part["curves"])
    sizes = [point["n"] for point in part["curves"][names[0]]]
    body = []
    for n in sizes:
        cells = []
        for name in names:
            found = [point for point in part["curves"][name] if point["n"] == n]
            setting = f" (k={found[0]['k']}, h={found[0]['order']})" if found and found[0]["k"] else ""
            cells.append(cell(found[0]) + setting if found else "")
        body.append([f"{n:.0e}", *cells])
    times = [[one["of"], f"{one['n']:.0e}", f"{1e4 * one['risk']:.3g}", f"{one['times']:.0f}"] for one in part["times"]]
    more = table(["", "people", "excess risk", "times fewer people by moments"], times)
    return table(["people", *names], body) + f"\n\nWeights 0: {1e4 * part['null']:.3g}.\n\n" + more


def surrogate(rows):
    body = [
        [row["p"], row["length"], f"{row['n']:.0e}", cell(row["degree 2"]), cell(row["degree 4"]), row["taken"]]
        for row in rows
    ]
    return table(["columns", "length of the weights", "people", "degree 2", "degree 4", "taken"], body)


def planner(rows):
    body = [
        [row["p"], row["needed"], row["n"], "yes" if row["refused"] else "no", cell(row, 1.0), row["runs"]]
        for row in rows
    ]
    return table(["columns", "least people", "people", "refused", "excess / that of weights 0", "runs"], body)


def weak(rows):
    body = []
    for row in rows:
        what = [row["loss"], row["solver"], row["p"], f"{row['factor']:g}", row["n"], row["length"]]
        share = f"{row['mean'] / row['typical']:.2%}"
        body.append([*what, f"{1e4 * row['null']:.3g}", cell(row), share, row["runs"]])
    head = ["loss", "solver", "columns", "times the least people", "people", "length of the weights"]
    more = ["excess of weights 0", "excess beyond that", "relative to weights 0 at typical weights", "runs"]
    return table(head + more, body)


def rounds(rows):
    body = [[row["p"], f"{row['n']:.0e}", cell(row), f"{row['kept']:.3f}", row["runs"]] for row in rows]
    return table(["columns", "people", "excess risk", "kept", "runs"], body)


def projected(rows):
    body = [[f"{row['n']:.0e}", cell(row, 1.0), row["runs"]] for row in rows]
    return table(["people", "excess squared loss / that of weights 0", "runs"], body)


def regression(rows):
    body = []
    for row in rows:
        cover = "" if row["cover"] is None else f"{row['cover']:.1%}"
        given = f"{row['given']:.1%}"
        body.append([row["p"], row["epsilon"], row["n_levels"], f"{row['n']:.0e}", row["runs"], given, cover])
    return table(["columns", "epsilon", "levels", "people", "runs", "intervals given", "cover"], body)


def coverage(rows):
    body = [
        [row["p"], row["degree"], f"{row['n']:.0e}", row["runs"], f"{row['given']:.1%}", f"{row['cover']:.1%}"]
        for row in rows
    ]
    return table(["columns", "degree", "people", "runs", "intervals given", "cover"], body)


def marginals(part):
    worst, usual = part["worst"], part["ordinary"]
    return (
        f"Degree {part['degree']}: deviation {part['deviation']:.4f}, bias at most {part['bias']:.4f}, worst-case rmse "
        f"{part['worst_case_rmse']:.4f} (all stated beforehand).\n\nMeasured with {part['n']:.0e} people: rmse of "
        f"100 random marginals {usual['rmse']:.4f}, largest error {usual['largest']:.4f}, {usual['inside']:.0%} within "
        f"bias + 2 deviations. On records that miss {worst['marginals']} marginals by {worst['zeros']} zeros each, "
        f"where the bias is largest, before the cut to [0, 1]: rmse {worst['rmse']:.4f} (mean {worst['mean']:.4f}, "
        f"deviation {worst['deviation']:.4f})."
    )


def smooth(part):
    return (
        f"{part['n']:.0e} people, two columns, 24 smooth functions, {part['queries'] // 24} collections: mean error "
        f"{part['mean_error']:.5f} ± {part['standard_error']:.5f}, largest {part['largest']:.4f}; stated rmse "
        f"{part['stated_rmse']:.5f} on average."
    )


def speed(rows):
    body = [[row["what"], f"{row['n']:.0e}", f"{row['seconds']:.2f}", f"{row['process_seconds']:.2f}"] for row in rows]
    return table(["statistics", "people", "seconds", "of the process"], body)


PARTS = {
    "risk": ("Excess risk at epsilon 1, in 1e-4", risk),
    "people": ("Risk against people, two columns, in 1e-4", people),
    "surrogate": ("Parabola or quartic, excess risk in 1e-4", surrogate),
    "planner": ("Around the number of people below which fits are refused", planner),
    "weak": ("Weak signals, an intercept included, in 1e-4", weak),
    "rounds": ("A descent in 40 rounds, problems of the first table, in 1e-4", rounds),
    "projected": ("Algorithm 4: 400 features in 20 dimensions, epsilon 1", projected),
    "coverage": ("Coverage of 95% intervals", coverage),
    "regression": ("Coverage of 95% intervals of least squares, intercept included", regression),
    "marginals": ("Marginals: 8 of 32 bits, epsilon 1", marginals),
    "smooth": ("Smooth queries, epsilon 1", smooth),
    "speed": ("Simulating ten million people, one thread", speed),
}


def write_tables(results, path):
    """Write all parts that were measured."""
    about = results["about"]
    text = ["# The local model: figures", ""]
    text += [
        f"Written by `python benchmarks/local_figures.py`; dperm {about['version']}, Python {about['python']}.",
        "",
    ]
    text += ["± is one standard error; every run is drawn afresh, populations and bits.", ""]
    for name, (title, write) in PARTS.items():
        if name in results:
            text += [f"## {title}", "", write(results[name]), ""]
            if name == "people":
                text += ["![risk against people](local.png)", ""]
    path.write_text("\n".join(text))

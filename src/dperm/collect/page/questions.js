// The questions of a collection in words; questions.py computes the same texts.

// String writes 1000 and 1e-10; cutting off zeros would turn both into 1
export const short = (v) => String(+Number(v).toPrecision(4));
const product = (names, powers) =>
  powers.flatMap((e, i) => e && names[i] != "1" ? [names[i] + (e > 1 ? "⁰¹²³⁴⁵⁶⁷⁸⁹"[e] : "")] : []).join(" × ");

// returns the function from a question's number to its text; target holds classes or range
export function questions(task, target) {
  const ranges = task.record, sketch = task.task.sketch, classes = target.classes;
  // columns are scaled to their ranges, so a name stands for a number from -1 to 1
  const scaled = ranges && [...task.columns, ...(ranges.constant.length ? ["1"] : []),
    ...(target.range ? ["target"] : []), ...(classes?.length > 2 ? classes.map((label) => `[${label}]`) : [])];
  // sets of columns, small ones first, each size in increasing order of its masks
  const parity = (j) => {
    let g = 0;
    while (j >= task.sizes[g]) j -= task.sizes[g++];
    const chosen = [];
    for (let r = g + 1; r; r--) {
      let c = r - 1, n = 0, m = 1;
      while (m <= j) { c++; n = m; m = m * (c + 1) / (c + 1 - r); }
      j -= n;
      chosen.unshift(task.columns[c]);
    }
    return chosen.length > 1 ? `whether an even number of ${chosen.join(", ")} holds` : "not " + chosen[0];
  };
  return (j) => {
    if (sketch.kind == "moments") {
      const powers = sketch.exponents[j], odd = powers.reduce((a, e) => a + e) % 2;
      return [classes?.length == 2 && odd ? "target" : "", product(scaled, powers)].filter(Boolean).join(" × ");
    }
    if (sketch.kind == "chebyshev") return sketch.degrees[j].flatMap((e, i) => e ? [`T${e}(${task.columns[i]})`] : []).join(" × ");
    if (sketch.kind == "theta-grid") return `the loss of weights ${sketch.nodes[j].map(short).join(", ")}`;
    return parity(j);
  };
}

const name = location.pathname.slice(1), url = "/v1/" + name, $ = (id) => document.getElementById(id);
const about = (await (await fetch("/v1", { credentials: "omit" })).json())
  .filter((one) => one.name == name).sort((a, b) => b.version - a.version)[0];
const task = await dperm.load(url, about.hash);
const short = (v) => Number(v).toPrecision(4).replace(/\.?0+$/, "");
const likely = Math.exp(about.epsilon);

document.title = about.title || name;
$("title").textContent = about.title || name;
$("asks").textContent = `Version ${about.version}: ${about.asks}.`;
$("epsilon").textContent = about.epsilon;
$("statistics").textContent = about.statistics;
$("hash").textContent = about.hash;
$("schema").href = url + "/schema";
$("reveals").textContent =
  `One question drawn at random, and ${about.answers == 2 ? "one bit" : "one of " + about.answers + " levels"} about it, with a random error. ` +
  `Whatever is true of you, the same report is at most ${short(likely)} times as likely as if anything else were true: ` +
  `whoever thought something about you was a fifty-fifty guess can be sure of it to at most ${short(100 * likely / (1 + likely))} %.`;
$("words").textContent =
  `A device draws one of ${about.statistics} questions, computes its answer from ${task.columns.join(", ")}` +
  `${about.target.classes || about.target.range ? " and the target" : ""}, turns it into ${about.answers == 2 ? "one bit" : "a level"} with a random error ` +
  `(${about.answers == 2 ? `a fixed ${short(100 * task.task.floor / 2 ** 32)} % of all bits are 1 whatever the answer, and as many 0` : "by a public table"}), ` +
  `and sends it once; a retry sends the same bits.${about.tokens ? " A report needs a one-time token." : ""}`;

// ---- the form
const form = $("form"), fields = [];
const field = (label, input) => {
  const around = document.createElement("label");
  around.append(label, input);
  form.append(around);
};
const ranges = task.record;
task.columns.forEach((column, k) => {
  const input = document.createElement("input");
  input.name = column;
  input.type = "number";
  input.step = "any";
  let hint = task.task.sketch.kind == "parity" ? " (0 or 1)" : "";
  if (ranges) hint = ` (${short(ranges.centre[k] - ranges.clip * ranges.scale[k])} to ${short(ranges.centre[k] + ranges.clip * ranges.scale[k])})`;
  input.value = ranges ? ranges.centre[k] : 0;
  fields.push(input);
  field(column + hint, input);
});
let target = null;
if (about.target.classes) {
  target = document.createElement("select");
  about.target.classes.forEach((label, k) => target.append(new Option(label, k)));
  field("target", target);
} else if (about.target.range) {
  target = document.createElement("input");
  target.type = "number";
  target.step = "any";
  target.value = (about.target.range[0] + about.target.range[1]) / 2;
  field(`target (${about.target.range.join(" to ")})`, target);
}
const button = document.createElement("button");
button.textContent = "Draw a report";
form.append(button);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const x = fields.map((input) => input.valueAsNumber);
  const y = about.target.classes ? about.target.classes[target.value] : target?.valueAsNumber;
  const [j, b] = dperm.answer(task, dperm.record(task, x, y));
  const code = document.createElement("code");
  code.textContent = JSON.stringify({ j, b });
  $("report").replaceChildren("This device would send ", code, ` and a random id: question ${j}${inWords(j)}, answer ${b}.`);
});
function inWords(j) {
  const s = task.task.sketch;
  if (s.kind != "moments") return "";
  const names = [...task.columns, ...(ranges.constant.length ? ["1"] : []), ...s.exponents[j].map(() => "target")];
  const signed = about.target.classes?.length == 2 && s.exponents[j].reduce((a, e) => a + e) % 2 ? "target × " : "";
  return ` (the mean of ${signed}${s.exponents[j].flatMap((e, i) => Array(e).fill(names[i])).join(" × ")}, scaled)`;
}

// ---- the estimate, live
const SVG = "http://www.w3.org/2000/svg";
const draw = (svg, shape, attributes) => {
  const made = document.createElementNS(SVG, shape);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  svg.append(made);
  return made;
};
function rows(model) {
  const answers = model.shares || model.means;
  if (answers) return answers.map((one, k) => [model.names[k], one.value, one.interval]);
  if (model.weights) return model.weights.map((w, k) => ["a" + (k + 1), w, null]);
  const many = Array.isArray(model.coef[0]) && model.coef.length > 1, coef = Array.isArray(model.coef[0]) ? model.coef : [model.coef];
  return coef.flatMap((weights, k) => [...weights, [model.intercept].flat()[k]].map((value, i) => [
    (many ? model.classes[k] + ": " : "") + model.names[i], value,
    model.intervals && (many ? model.intervals[k][i] : model.intervals[i]),
  ]));
}
const history = [];
function show(data) {
  $("n").textContent = data.n.toLocaleString("en");
  $("poisoning").textContent = `Made-up reports: ${data.poisoning.statement}`;
  $("model").hidden = !data.model;
  if (!data.model) { $("state").textContent = data.reason; return; }
  $("state").textContent = data.model.intervals_reason ? `No intervals: ${data.model.intervals_reason}.` : "Intervals of 95 % confidence.";
  const lines = rows(data.model);
  $("model").tBodies[0].replaceChildren(...lines.map(([label, value, interval]) => {
    // every row has its own scale, from or to zero: coefficients are in different units
    const ends = [0, value, ...(interval || [])], low = Math.min(...ends), high = Math.max(...ends);
    const at = (v) => 300 * (v - low) / (high - low || 1), row = document.createElement("tr");
    for (const text of [label, short(value), interval ? short(interval[0]) : "", interval ? short(interval[1]) : ""]) {
      const cell = row.insertCell();
      cell.textContent = text;
      if (cell.cellIndex) cell.className = "number";
    }
    const cell = row.insertCell(), svg = document.createElementNS(SVG, "svg");
    cell.className = "bar";
    svg.setAttribute("viewBox", "-6 0 312 20");
    draw(svg, "line", { class: "axis", x1: at(0), x2: at(0), y1: 0, y2: 20 });
    if (interval) draw(svg, "rect", { class: "band", x: at(interval[0]), width: Math.max(1, at(interval[1]) - at(interval[0])), y: 6, height: 8, rx: 3 });
    draw(svg, "circle", { class: "dot", cx: at(value), cy: 10, r: 4 });
    cell.append(svg);
    return row;
  }));
  const widths = lines.filter(([, , i]) => i).map(([, , i]) => i[1] - i[0]);
  if (widths.length && history.at(-1)?.[0] != data.n) history.push([data.n, widths.reduce((a, b) => a + b) / widths.length]);
  $("history").hidden = history.length < 2;
  if (history.length < 2) return;
  const svg = $("history").querySelector("svg"), most = Math.max(...history.map(([, w]) => w));
  const x = (n) => 40 + 540 * (n - history[0][0]) / (history.at(-1)[0] - history[0][0]), y = (w) => 70 - 60 * w / most;
  svg.replaceChildren();
  draw(svg, "line", { class: "axis", x1: 40, x2: 580, y1: 70, y2: 70 });
  draw(svg, "polyline", { class: "width", points: history.map(([n, w]) => `${x(n)},${y(w)}`).join(" ") });
  draw(svg, "text", { x: 0, y: 14 }).textContent = short(most);
  draw(svg, "text", { x: 40, y: 85 }).textContent = history[0][0].toLocaleString("en");
  draw(svg, "text", { x: 580, y: 85, "text-anchor": "end" }).textContent = `${history.at(-1)[0].toLocaleString("en")} reports`;
}
for (;;) {
  try {
    show(await (await fetch(url + "/estimate", { credentials: "omit" })).json());
  } catch {
    $("state").textContent = "The service cannot be reached; trying again.";
  }
  await new Promise((done) => setTimeout(done, 2000));
}

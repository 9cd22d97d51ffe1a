import { questions, short } from "/page/questions.js";

const name = location.pathname.slice(1), url = "/v1/" + name, $ = (id) => document.getElementById(id);
const about = (await (await fetch("/v1", { credentials: "omit" })).json())
  .filter((one) => one.name == name).sort((a, b) => b.version - a.version)[0];
let task, unusable = "";
try {
  task = await dperm.load(url, about.hash);
} catch (error) {
  // without https, browsers offer no hash function to check the description; count and estimate need no check
  unusable = isSecureContext ? `The form cannot be used (${error.message}).` : "The form and reports need a page over https.";
  task = await (await fetch(url + "/schema", { credentials: "omit" })).json();
}
const likely = Math.exp(about.epsilon);

document.title = about.title || name;
$("title").textContent = about.title || name;
$("asks").textContent = `Version ${about.version}: ${about.asks}.`;
$("epsilon").textContent = about.epsilon;
$("statistics").textContent = about.statistics;
$("hash").textContent = about.hash;
$("schema").href = url + "/schema";
$("reveals").textContent =
  `A report contains the number of a random question and ${about.answers == 2 ? "one bit" : "one of " + about.answers + " levels"} as the answer, with a random error. ` +
  `Whatever your values are, the same report is at most ${short(likely)} times as likely as with any other values. ` +
  `Someone who thought that a fact about you was 50 % likely can become at most ${short(100 * likely / (1 + likely))} % sure of it.`;
const ranges = task.record, sketch = task.task.sketch, classes = about.target.classes, question = questions(task, about.target);
const range = (k) => sketch.kind == "parity" ? "0 or 1" :
  ranges ? `${short(ranges.centre[k] - ranges.clip * ranges.scale[k])} to ${short(ranges.centre[k] + ranges.clip * ranges.scale[k])}` : "";
$("words").textContent =
  `A device draws one of ${about.statistics} questions at random, computes the answer from ${task.columns.join(", ")}` +
  `${about.target.classes || about.target.range ? " and the target" : ""}, turns it into ${about.answers == 2 ? "one bit" : "a level"} with a random error ` +
  `(${about.answers == 2 ? `whatever the answer, a bit is 1 with probability ${short(100 * task.task.floor / 2 ** 32)} % or more, and 0 likewise` : "drawn from a public table"}), ` +
  `and sends it once; a retry sends the same bits.${about.tokens ? " A report needs a one-time token." : ""}`;

// ---- the questions in words
const item = (text) => Object.assign(document.createElement("li"), { textContent: text });
$("columns").append(...task.columns.map((column, k) => item(column + (range(k) && `: ${range(k)}`))));
if (classes) $("columns").append(item(`target: ${classes.map((label, k) => label + (classes.length == 2 ? ` (${2 * k - 1})` : "")).join(" or ")}`));
if (about.target.range) $("columns").append(item(`target: ${about.target.range.map(short).join(" to ")}`));
const LISTED = 200;
$("questions").append(...Array.from({ length: Math.min(about.statistics, LISTED) }, (_, j) => item(question(j))));
$("questions").start = 0;
$("more").textContent = about.statistics > LISTED ? `and ${(about.statistics - LISTED).toLocaleString("en")} more.` : "";
$("scaled").textContent = sketch.kind == "moments" ? "Here a name means the column scaled to its range, from -1 to 1" +
  (classes?.length > 2 ? "; a label in brackets is 1 for persons with that label and -1 for others." : ".") :
  sketch.kind == "chebyshev" ? "T2(x) is the Chebyshev polynomial of degree 2 in a column scaled to its range." : "";

// ---- the form
const form = $("form"), fields = [];
form.hidden = Boolean(unusable);
$("report").textContent = unusable;
const field = (label, input) => {
  const around = document.createElement("label");
  around.append(label, input);
  form.append(around);
};
task.columns.forEach((column, k) => {
  const input = document.createElement("input");
  input.name = column;
  input.type = "number";
  input.step = "any";
  input.value = ranges ? short(ranges.centre[k]) : 0;
  fields.push(input);
  field(column + (range(k) && ` (${range(k)})`), input);
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
  field(`target (${about.target.range.map(short).join(" to ")})`, target);
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
  $("report").replaceChildren("This device would send ", code, ` and a random id: question ${j} (${question(j)}), answer ${b}.`);
});

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
    (many ? `${model.classes[k]}: ` : "") + model.names[i], value,
    model.intervals && (many ? model.intervals[k][i] : model.intervals[i]),
    model.unshrunk && (many ? model.unshrunk[k][i] : model.unshrunk[i]),
  ]));
}
const history = [];
function warn({ suspicious, draws, trimmed }) {
  const said = draws.statement[0].toUpperCase() + draws.statement.slice(1);
  const p = ` (p = ${short(draws.p)}${draws.p > 2e-300 ? "" : " or less"}; estimates are marked below ${draws.level})`;
  $("warning").hidden = !suspicious;
  $("draws").textContent = suspicious ? "" : said + p;
  if (!suspicious) return;
  $("marked").textContent = said + p;
  $("surplus").replaceChildren(...draws.most_drawn.map((one) =>
    item(`question ${one.statistic} (${one.question}): ${one.reports.toLocaleString("en")} reports, ` +
      `${Math.round(one.expected).toLocaleString("en")} expected`)));
  $("left-out").textContent = `Trimmed estimate: ${trimmed.statement}${trimmed.model ? "" : " There is none: " + trimmed.reason}`;
}
function show(data) {
  warn(data);
  $("n").textContent = data.reports.toLocaleString("en");
  $("poisoning").textContent = `Forged reports: ${data.poisoning.statement}`;
  $("model").hidden = !data.model;
  if (!data.model) { $("state").textContent = data.reason; return; }
  $("state").textContent = (data.model.intervals_reason ? `No intervals: ${data.model.intervals_reason}.` : "The intervals have 95 % confidence.") +
    ` Estimated from ${data.n.toLocaleString("en")} reports; the next estimate follows at ${data.next_at.toLocaleString("en")}.`;
  $("shrinkage").textContent = data.model.shrinkage ? `Note: ${data.model.shrinkage}. The dot marks the unshrunk value, the vertical line the estimate.` : "";
  const lines = rows(data.model), trimmed = data.suspicious && data.trimmed.model && rows(data.trimmed.model);
  $("model").tHead.rows[0].cells[4].hidden = !trimmed;
  $("model").tBodies[0].replaceChildren(...lines.map(([label, value, interval, unshrunk], place) => {
    const rest = trimmed && trimmed[place];
    // shares are between 0 and 1; otherwise every row has its own scale that includes zero, as the units differ
    const ends = data.model.shares ? [0, 1] : [0, value, unshrunk ?? 0, ...(interval || []), ...(rest?.[2] || [])], low = Math.min(...ends), high = Math.max(...ends);
    const at = (v) => 300 * (v - low) / (high - low || 1), row = document.createElement("tr");
    const head = ["", "estimate", "from", "to", "trimmed"];
    const texts = [label, short(value), interval ? short(interval[0]) : "", interval ? short(interval[1]) : ""];
    for (const text of rest ? [...texts, short(rest[1]) + (rest[2] ? ` (${rest[2].map(short).join(" to ")})` : "")] : texts) {
      const cell = row.insertCell();
      cell.textContent = text;
      if (cell.cellIndex) { cell.className = "number"; cell.dataset.head = head[cell.cellIndex]; }
    }
    const cell = row.insertCell(), svg = document.createElementNS(SVG, "svg");
    cell.className = "bar";
    svg.setAttribute("viewBox", "-6 0 312 20");
    draw(svg, "line", { class: "axis", x1: at(0), x2: at(0), y1: 0, y2: 20 });
    if (interval) draw(svg, "rect", { class: "band", x: at(interval[0]), width: Math.max(1, at(interval[1]) - at(interval[0])), y: 6, height: 8, rx: 3 });
    if (rest?.[2]) draw(svg, "rect", { class: "rest", x: at(rest[2][0]), width: Math.max(1, at(rest[2][1]) - at(rest[2][0])), y: 16, height: 3 });
    draw(svg, "circle", { class: "dot", cx: at(unshrunk ?? value), cy: 10, r: 4 });
    if (unshrunk != null) draw(svg, "line", { class: "shrunk", x1: at(value), x2: at(value), y1: 2, y2: 18 });
    cell.append(svg);
    return row;
  }));
  const widths = lines.filter(([, , i]) => i).map(([, , i]) => i[1] - i[0]);
  if (widths.length && history.at(-1)?.[0] != data.n) history.push([data.n, widths.reduce((a, b) => a + b) / widths.length]);
  $("history").hidden = history.length < 2;
  if (history.length < 2) return;
  const svg = $("history").querySelector("svg"), most = Math.max(...history.map(([, w]) => w));
  // one unit is one pixel, so that letters keep their size on a phone
  const wide = $("history").clientWidth, left = 60;
  svg.setAttribute("viewBox", `0 0 ${wide} 110`);
  const x = (n) => left + (wide - left) * (n - history[0][0]) / (history.at(-1)[0] - history[0][0]), y = (w) => 80 - 70 * w / most;
  svg.replaceChildren();
  draw(svg, "line", { class: "axis", x1: left, x2: wide, y1: 80, y2: 80 });
  draw(svg, "polyline", { class: "width", points: history.map(([n, w]) => `${x(n)},${y(w)}`).join(" ") });
  draw(svg, "text", { x: 0, y: 14 }).textContent = short(most);
  draw(svg, "text", { x: left, y: 100 }).textContent = history[0][0].toLocaleString("en");
  draw(svg, "text", { x: wide, y: 100, "text-anchor": "end" }).textContent = `${history.at(-1)[0].toLocaleString("en")} reports`;
}
for (;;) {
  try {
    show(await (await fetch(url + "/estimate", { credentials: "omit" })).json());
  } catch {
    $("state").textContent = "The service cannot be reached; trying again.";
  }
  await new Promise((done) => setTimeout(done, 2000));
}

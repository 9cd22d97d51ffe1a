// Makes one random bit about a person, on the person's own device. The Python client computes the same, line by line.
// As a script: <script src="/sdk/dperm.js"></script> defines `dperm`. As a module: import dperm from "/sdk/dperm.mjs".
// Comments have lines of their own, because the service removes those lines.
var dperm = (() => {
  const W = 2 ** 32, { min, max, floor, abs, sqrt, exp, log1p } = Math,
  fail = (why) => { throw Error("dperm: " + why); },
  random = (n) => crypto.getRandomValues(new Uint32Array(n)),
  hex = (v) => [...new Uint8Array(v)].map((n) => n.toString(16).padStart(2, 0)).join(""),
  // NaN counts as the lower end
  clamp = (v, lo, hi) => v > lo ? v < hi ? v : hi : lo,
  number = (v) => /n.m|b.o/.test(typeof v) ? +v : NaN,
  // an array, typed or not, is "[object ...Array]"
  is = (kinds, v) => kinds.test({}.toString.call(v)),

  // the value of each kind of statistic for a record: j is its number, g its group, k its place in the group
  kinds = {
    __proto__: null,
    moments: ({ exponents, ball, reach }, a, j) => {
      let s = a.slice(0, ball), m = max(1, ...s.map(abs)), t = 0, v = 1;
      s.map((x) => t += x / m * (x / m));
      m = max(m * sqrt(t), 1);
      exponents[j].map((e, i) => {
        const r = reach?.[i] ?? 1;
        for (; e-- > 0;) v *= clamp(i < ball ? a[i] / m : a[i], -r, r);
      });
      return v;
    },
    "theta-grid": ({ nodes, loss }, a, j) => {
      let t = 0, m = 0;
      a.map((x, i) => { t += x * x; m += x * nodes[j][i]; });
      m /= max(sqrt(t), 1);
      return loss == "logistic" ? max(-m, 0) + log1p(exp(-abs(m))) : m < 1 ? m > 0 ? (1 - m) * (1 - m) / 2 : 0.5 - m : 0;
    },
    // sets of g + 1 bits in increasing order of their masks
    parity: (s, a, j, g, k) => {
      let v = 1;
      for (let r = g + 1; r; r--) {
        let c = r, n = 0, m = 1;
        for (; m <= k; m = m * ++c / (c - r)) n = m;
        k -= n;
        if (a[c - 1] > 0.5) v = -v;
      }
      return v;
    },
    chebyshev: ({ degrees }, a, j) => degrees[j].reduce((v, e, i) => {
      const x = clamp(a[i], -1, 1);
      let p = 1, q = x;
      for (; e-- > 0;) [p, q] = [q, 2 * x * q - p];
      return v * p;
    }, 1),
  },

  // refuses tasks that this module does not support, and whole numbers that violate the stated epsilon
  check = (d) => {
    const t = d.task, e = t.epsilon, f = t.floor, { rows, knots } = t.levels || { rows: [[W - f, f], [f, W - f]], knots: [f, f] };
    d.format == "dperm collection 1" && t.format == "dperm local task 1" && kinds[t.sketch.kind] && e === clamp(+e, 1e-3, 16) &&
      rows.length == knots.length && knots.every(isFinite) &&
      rows.every((r) => r.reduce((a, b) => a + b) == W &&
        r.every((n, k) => n > 0 && n === floor(n) && rows.every((q) => n <= q[k] * exp(e) * (1 + 1e-9)))) ||
      fail("unknown task");
  },

  // a person's record from their values; unknown or missing values, and any failure, make it NaN
  record = ({ columns, record: i }, x, y) => {
    try {
      x = columns.map((n, k) => number(x?.[is(/y]/, x) ? k : n]));
      if (!i || !x.every(isFinite)) return x;
      x = x.map((v, k) => clamp((v - i.centre[k]) / i.scale[k], -i.clip, i.clip));
      const n = max(sqrt(x.reduce((s, v) => s + v * v, 0)), 1e-300), c = i.classes, m = c?.indexOf(y);
      x = [...x.map((v) => v * min(1, i.row_norm / n)), ...i.constant].map((v) => v / i.divide_by);
      if (i.target) x.push(isFinite(y = number(y)) ? clamp((y - i.target[0]) / i.target[1], -1, 1) : NaN);
      return m < 0 ? [NaN] : !c ? x : c[2] == null ? x.map((v) => m ? v : -v) : [...x, ...c.map((_, k) => k == m ? 1 : -1)];
    } catch { return [NaN]; }
  },

  // [number of the statistic, answer]; draw returns random whole numbers below 2^32
  answer = (d, a, draw = () => random(1)[0]) => {
    const t = d.task, u = draw(), g = t.thresholds.findIndex((end) => u < end), k = floor(draw() * d.sizes[g] / W),
      j = d.sizes.slice(0, g).reduce((s, n) => s + n, k), lo = d.low[j] ?? d.low, hi = d.high[j] ?? d.high;
    let n = 0, b = 0, x;
    // computed from every record, complete or not, and a failure gives an answer too: no record prevents a report
    try { x = (kinds[t.sketch.kind](t.sketch, a, j, g, k) - lo) / (hi - lo); } catch {}
    // last, so that x is in [0, 1] whatever a description says
    x = clamp(a.every(isFinite) && x, 0, 1);
    if (!t.levels) return [j, +(draw() < t.floor + floor(x * (W - 2 * t.floor)))];
    const { rows, knots } = t.levels, z = 2 * x - 1;
    for (; n < knots.length - 2 && knots[n + 1] <= z;) n++;
    n += draw() < floor(clamp((z - knots[n]) / (knots[n + 1] - knots[n]), 0, 1) * W);
    for (let w = draw(); (w -= rows[n][b]) >= 0;) b++;
    return [j, b];
  },

  // the finished report, made once and stored: later calls return the same bytes, whatever values they pass
  report = async (d, x, y, { cap = 4, token = "", store = localStorage } = {}) => {
    check(d);
    // names are public: a misspelled one is a mistake of the application, not a missing value
    for (const n in x) is(/y]/, x) || d.columns.includes(n) || fail("no column " + n);
    // the values in a Map would all count as unknown
    is(/y]|\s[OUN]/, x) || fail("no columns");
    const make = () => {
      const all = JSON.parse(store.getItem("dperm")) || {}, e = d.task.epsilon;
      if (!all[d.hash]) {
        Object.values(all).reduce((s, r) => s + r[0], e) <= cap || fail("epsilon cap");
        // the collector would refuse the report, and the device never makes another
        token.length == 64 * d.tokens && !/[^\da-f]/.test(token) || fail("token");
        const [j, b] = answer(d, record(d, x, y)), id = token.slice(0, 32) || hex(random(4).buffer);
        // every report has the same length
        all[d.hash] = [e, JSON.stringify({ task: d.hash, id, j, b, token: token.slice(32) || void 0 }).padEnd(224)];
        store.setItem("dperm", JSON.stringify(all));
      }
      return all[d.hash][1];
    };
    return globalThis.navigator?.locks?.request("dperm", make) ?? make();
  },

  load = async (url, hash) => {
    const text = await (await fetch(url + "/schema", { credentials: "omit" })).text(),
      d = { ...JSON.parse(text), url, hash: hex(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))) };
    hash && hash != d.hash && fail("unknown task");
    check(d);
    return d;
  },
  send = async (d, body) =>
    (await fetch(d.url + "/reports", { method: "POST", body, keepalive: true, credentials: "omit", referrerPolicy: "no-referrer" })).ok;

  return { load, record, answer, report, send };
})();

// Makes one random bit about a person, on the person's own device. The Python client computes the same, line by line.
// As a script: <script src="/sdk/dperm.js"></script> defines `dperm`. As a module: import dperm from "/sdk/dperm.mjs".
// Comments have lines of their own, because the service removes those lines.
var dperm = (() => {
  const W = 2 ** 32, { min, max, floor, abs, sqrt, exp, log1p } = Math,
  fail = (why) => { throw Error("dperm: " + why); },
  random = (n) => crypto.getRandomValues(new Uint32Array(n)),
  hex = (v) => [...new Uint8Array(v)].reduce((s, n) => s + n.toString(16).padStart(2, 0), ""),
  // NaN counts as the lower end
  clamp = (v, lo, hi) => v > lo ? min(v, hi) : lo,
  number = (v) => v === +v || v === !!v ? +v : NaN,
  // an array, typed or not, is "[object ...Array]"
  list = (v) => /y]/.test({}.toString.call(v)),

  // the value of each kind of statistic for a record: j is its number, g its group, k its place in the group
  kinds = {
    __proto__: null,
    moments: (s, a, j) => {
      let c = a.slice(0, s.ball), m = 1, t = 0, v = 1;
      c.map((x) => m = max(m, abs(x)));
      c.map((x) => t += x / m * (x / m));
      m = max(m * sqrt(t), 1);
      s.exponents[j].map((e, i) => {
        const r = s.reach?.[i] ?? 1;
        for (; e-- > 0;) v *= clamp(i < s.ball ? a[i] / m : a[i], -r, r);
      });
      return v;
    },
    "theta-grid": (s, a, j) => {
      let t = 0, m = 0;
      a.map((x, i) => { t += x * x; m += x * s.nodes[j][i]; });
      m /= max(sqrt(t), 1);
      return s.loss == "logistic" ? max(-m, 0) + log1p(exp(-abs(m))) : m < 1 ? m > 0 ? (1 - m) * (1 - m) / 2 : 0.5 - m : 0;
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
    chebyshev: (s, a, j) => s.degrees[j].reduce((v, e, i) => {
      let x = clamp(a[i], -1, 1), p = 1, q = x;
      for (; e-- > 0;) [p, q] = [q, 2 * x * q - p];
      return v * p;
    }, 1),
  },

  // refuses tasks that this module does not support, and whole numbers that violate the stated epsilon
  check = (d, hash) => {
    const t = d.task, e = t.epsilon, f = t.floor, { rows, knots } = t.levels || { rows: [[W - f, f], [f, W - f]], knots: [f, f] };
    (hash || d.hash) == d.hash && d.format == "dperm collection 1" && t.format == "dperm local task 1" && kinds[t.sketch.kind] && e === clamp(+e, 1e-3, 16) &&
      rows.length == knots.length && knots.every(isFinite) &&
      rows.every((r) => r.reduce((s, n) => s + n) == W &&
        r.every((n, k) => n > 0 && n === floor(n) && rows.every((q) => n <= q[k] * exp(e) * (1 + 1e-9)))) ||
      fail("unknown task");
  },

  // a person's record from their values; unknown or missing values, and any failure, make it NaN. Every record takes the
  // same steps and has the same length: 0 * v adds NaN for what is missing, and 0 otherwise
  record = ({ columns, record: i }, x, y) => {
    try {
      x = columns.map((n, k) => number(x?.[list(x) ? k : n]));
      if (!i) return x;
      x = x.map((v, k) => clamp((v - i.centre[k]) / i.scale[k], -i.clip, i.clip) + 0 * v);
      const n = max(sqrt(x.reduce((s, n) => s + n * n, 0)), 1e-300), c = i.classes, m = c?.indexOf(y);
      x = [...x.map((v) => v * min(1, i.row_norm / n)), ...i.constant].map((v) => v / i.divide_by - (m < 0 && NaN));
      if (i.target) x.push(clamp(((y = number(y)) - i.target[0]) / i.target[1], -1, 1) + 0 * y);
      return !c ? x : c[2] == null ? x.map((v) => m ? v : -v) : [...x, ...c.map((_, k) => k == m ? 1 : -1)];
    } catch { return [NaN]; }
  },

  // [number of the statistic, answer]; draw returns random whole numbers below 2^32
  answer = (d, a, draw = () => random(1)[0]) => {
    let t = d.task, u = draw(), g = t.thresholds.findIndex((end) => u < end), k = floor(draw() * d.sizes[g] / W),
      j = d.sizes.slice(0, g).reduce((s, n) => s + n, k), lo = d.low[j] ?? d.low, hi = d.high[j] ?? d.high, n = 0, b = 0, x;
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
    // the names given must be the description's, whatever the values: otherwise a forged description that renames a
    // column would learn from applications that leave out missing values who has one. An inherited name is none
    const names = list(x) ? x : Object.keys(x ?? 0);
    list(d.columns) && names.length == d.columns.length && names.every((n) => names == x || d.columns.includes(n)) || fail("columns");
    const make = () => {
      let text = store.getItem("dperm") ?? "{}", e = d.task.epsilon, all, total;
      // only an object of finished reports, of 224 characters each, counts: anything else may have been one, and a new
      // report would cost epsilon again
      try {
        total = Object.values(all = JSON.parse(text)).reduce((s, [v, r]) => v > 0 && r[223] ? +v + s : NaN, e);
      } catch {}
      total > 0 && text[0] == "{" || fail("store");
      if (!all[d.hash]) {
        total <= cap || fail("epsilon cap");
        // the collector would refuse the report, and the device never makes another
        token.length == 64 * d.tokens && !/[^\da-f]/.test(token) || fail("token");
        const [j, b] = answer(d, record(d, x, y)), id = token.slice(0, 32) || hex(random(4).buffer);
        // every report has the same length
        all[d.hash] = [e, JSON.stringify({ task: d.hash, id, j, b, token: token.slice(32) || void 0 }).padEnd(224)];
        store.setItem("dperm", text = JSON.stringify(all));
        // a store that forgets would let the next call draw again
        store.getItem("dperm") === text || fail("store");
      }
      return all[d.hash][1];
    };
    return globalThis.navigator?.locks?.request("dperm", make) ?? make();
  },

  load = async (url, hash) => {
    const text = await (await fetch(url + "/schema", { credentials: "omit" })).text(),
      d = { ...JSON.parse(text), url, hash: hex(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))) };
    return check(d, hash), d;
  },
  send = async (d, body) =>
    (await fetch(d.url + "/reports", { credentials: "omit", method: "POST", body, keepalive: true, referrerPolicy: "no-referrer" })).ok;

  return { load, record, answer, report, send };
})();

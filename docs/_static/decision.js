// The two-expert example of theory/decision.md: where the surrogate is lowest, and what each decision makes of it.
(() => {
  const root = document.getElementById("decision");
  if (!root) return;

  const part = (name) => document.getElementById(`decision-${name}`);
  const names = ["share", "first", "second"];
  const HEIGHT = 240, LEFT = 34, RIGHT = 350, TOP = 34, BOTTOM = 204;

  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
  const risk = (e, d) => e.share * softplus(-d / e.first) + (1 - e.share) * softplus(d / e.second);
  const slope = (e, d) => (-e.share / e.first) * sigmoid(-d / e.first) + ((1 - e.share) / e.second) * sigmoid(d / e.second);
  const odds = (e, d) => Math.log(e.first * sigmoid(d / e.second)) - Math.log(e.second * sigmoid(-d / e.first));

  // Both functions increase in d, so their only zero is found by halving.
  const zero = (increasing) => {
    let low = -60, high = 60;
    for (let step = 0; step < 80; step += 1) {
      const middle = (low + high) / 2;
      if (increasing(middle) < 0) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  };

  const solve = (e) => {
    const lowest = zero((d) => slope(e, d));
    const edge = zero((d) => odds(e, d));
    const decoded = sigmoid(odds(e, lowest));
    return { lowest, edge, decoded };
  };

  // A tie goes to the highest index, so to expert 2.
  const verdict = (share, first) => {
    if (Math.abs(share - 0.5) < 1e-9) return "no regret";
    return (share > 0.5) === (first === true) ? "right" : `wrong, regret ${Math.abs(2 * share - 1).toFixed(2)}`;
  };
  const side = (value) => (Math.abs(value) < 1e-6 ? null : value > 0);
  const expert = (first) => (first === null ? "a tie, so expert 2" : `expert ${first ? 1 : 2}`);

  const text = (e, s) => {
    const byScore = side(s.lowest), byPosterior = side(s.decoded - 0.5);
    const pair = (share) => `(${share.toFixed(2)}, ${(1 - share).toFixed(2)})`;
    return `Posterior ${pair(e.share)}, margins (${e.first.toFixed(2)}, ${e.second.toFixed(2)}). ` +
      `The surrogate is lowest at d = ${s.lowest.toFixed(2)}. ` +
      `Largest score: ${expert(byScore)}, ${verdict(e.share, byScore)}. ` +
      `Decoded posterior: ${pair(s.decoded)}, ${expert(byPosterior)}, ${verdict(e.share, byPosterior)}. ` +
      (e.first === e.second
        ? "Margins are equal: both decisions change their mind at d = 0."
        : `The largest score changes its mind at d = 0 (dashed line), the decoded posterior at d = ${s.edge.toFixed(2)} (solid line); they differ in the shaded strip.`);
  };

  const draw = (kind, attributes, content) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
    Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
    if (content !== undefined) node.textContent = content;
    return node;
  };

  const picture = (e, s) => {
    const reach = Math.ceil(Math.max(2, 1.4 * Math.abs(s.lowest), 1.4 * Math.abs(s.edge)));
    const leads = Array.from({ length: 121 }, (_, i) => reach * (i / 60 - 1));
    const values = leads.map((d) => risk(e, d));
    const floor = risk(e, s.lowest), ceiling = Math.max(...values);
    const x = (d) => LEFT + ((d + reach) / (2 * reach)) * (RIGHT - LEFT);
    const y = (v) => BOTTOM - 12 - ((v - floor) / (ceiling - floor || 1)) * (BOTTOM - 12 - TOP);
    const path = leads.map((d, i) => `${i ? "L" : "M"}${x(d).toFixed(1)},${y(values[i]).toFixed(1)}`).join("");
    const strip = { x: x(Math.min(0, s.edge)), width: Math.abs(x(s.edge) - x(0)), y: TOP, height: BOTTOM - TOP };
    const ticks = [-reach, -reach / 2, 0, reach / 2, reach];
    return [
      draw("rect", { class: "strip", ...strip }),
      draw("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM }),
      ...ticks.map((d) => draw("text", { x: x(d), y: BOTTOM + 14, "text-anchor": "middle" }, String(d))),
      draw("text", { x: (LEFT + RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "lead d of expert 1"),
      draw("text", { x: 12, y: (TOP + BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(TOP + BOTTOM) / 2})` }, "surrogate R(d)"),
      draw("text", { x: LEFT, y: 14 }, "← expert 2"),
      draw("text", { x: RIGHT, y: 14, "text-anchor": "end" }, "expert 1 →"),
      draw("path", { class: "curve", d: path }),
      draw("line", { class: "largest", x1: x(0), x2: x(0), y1: TOP - 12, y2: BOTTOM }),
      draw("line", { class: "decoded", x1: x(s.edge), x2: x(s.edge), y1: TOP - 12, y2: BOTTOM }),
      draw("circle", { class: "minimum", cx: x(s.lowest), cy: y(floor), r: 5 }),
    ];
  };

  const update = () => {
    const example = Object.fromEntries(names.map((name) => [name, Number(part(name).value)]));
    names.forEach((name) => { part(`${name}-value`).textContent = example[name].toFixed(2); });
    const solution = solve(example);
    const plot = part("plot");
    plot.replaceChildren(part("title"), ...picture(example, solution));
    part("text").textContent = text(example, solution);
  };

  root.hidden = false;
  root.querySelector("form").addEventListener("input", update);
  root.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  root.querySelector("form").addEventListener("reset", () => setTimeout(update, 0));
  update();
})();

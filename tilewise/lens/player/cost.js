// What the block has cost so far, beside a product without tiling. They are compared where phases end,
// because within a phase a tile has been loaded and not used all of yet.

const SVG = "http://www.w3.org/2000/svg";
const [CHART_WIDE, CHART_HIGH] = [240, 70]; // units of the drawing, whatever its size

function draws(parent, tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

// Draws lines that rise with the work that is done. Each line is {name, points: [share of the work, share
// of the largest cost], marks: the points at which lines may be compared}.
function chart(parent, label, lines) {
  const svg = draws(parent, "svg", { viewBox: `-4 -4 ${CHART_WIDE + 8} ${CHART_HIGH + 8}`, class: "chart", role: "img", "aria-label": label });
  const at = ([x, y]) => `${(x * CHART_WIDE).toFixed(1)},${(CHART_HIGH * (1 - y)).toFixed(1)}`;
  draws(svg, "path", { d: `M0,0V${CHART_HIGH}H${CHART_WIDE}`, class: "axes" });
  for (const { name, points, marks } of lines) {
    draws(svg, "polyline", { points: points.map(at).join(" "), class: `line ${name}` });
    for (const mark of marks) {
      const [x, y] = at(mark).split(",").map(Number);
      if (name === "own") draws(svg, "circle", { cx: x, cy: y, r: 3, class: `mark ${name}` });
      else draws(svg, "rect", { x: x - 3, y: y - 3, width: 6, height: 6, class: `mark ${name}` });
    }
  }
  const cursor = draws(svg, "path", { class: "cursor", d: "" });
  return (share) => cursor.setAttribute("d", `M${(share * CHART_WIDE).toFixed(1)},0V${CHART_HIGH}`);
}

// The points of a cost over the work, at most one for each step that changes either.
function pointsOf(work, cost, most) {
  const all = work[work.length - 1] || 1;
  const found = [[0, 0]];
  cost.forEach((sum, i) => {
    const point = [work[i] / all, sum / most];
    const last = found[found.length - 1];
    if (point[0] !== last[0] || point[1] !== last[1]) found.push(point);
  });
  return found;
}

class Traffic {
  constructor() {
    const { sums, steps } = recording;
    const done = sums.work.findIndex((work, i) => work === sums.work[steps.length - 1] && sums.loads[i] === sums.loads[steps.length - 1]);
    // The last phase is compared once all is loaded and multiplied: what follows stores.
    this.ends = recording.costs.ends.map((end, i, all) => (i === all.length - 1 ? Math.min(end, done) : end));
    // With a thread for each element of C, a multiply-add loads both of its factors. If the recording was
    // cut, the totals at the end are not known.
    this.isCompared = Boolean(trace.problem) && recording.costs.unit === "multiply-adds" && !recording.block.cut;
    this.untiled = sums.work.map((done) => 2 * done);
    const last = steps.length - 1;
    const most = Math.max(sums.loads[last], this.isCompared ? this.untiled[last] : 0, 1);
    const box = $("traffic-chart");
    box.replaceChildren();
    $("compared").hidden = !this.isCompared;
    const lines = [{ name: "own", cost: sums.loads }];
    if (this.isCompared) lines.unshift({ name: "untiled", cost: this.untiled });
    this.move = chart(box, "Values loaded from global memory, over the multiply-adds that are done", lines.map(({ name, cost }) => ({
      name,
      points: pointsOf(sums.work, cost, most),
      marks: this.ends.map((end) => [sums.work[end] / (sums.work[last] || 1), cost[end] / most]),
    })));
  }

  draw() {
    const { sums, last } = recording;
    setText($("loads"), `${times(sums.loads[position], "value")}, ${times(sums.sectors[position], "sector")}`);
    this.move(sums.work[last] ? sums.work[position] / sums.work[last] : 0);
    const end = this.ends.findLast((one) => one <= position);
    const phased = this.ends.length > 1;
    const which = end === undefined ? "" : phased && end !== this.ends.at(-1) ? `At the end of phase ${recording.steps[end].phase + 1}` : "At the end";
    const note = $("traffic-note");
    if (!this.isCompared) {
      setText(note, "");
      return;
    }
    const ratio = end === undefined || !sums.loads[end] ? 0 : this.untiled[end] / sums.loads[end];
    setText($("untiled"), end === undefined ? "" : times(this.untiled[end], "value"));
    if (end === undefined) setText(note, phased ? "Compared at the end of each phase: within one, not all that is loaded is used." : "Compared at the end.");
    else if (ratio > 1.05) setText(note, `${which}: ${times(sums.loads[end], "value")}, ${Number(ratio.toFixed(1))} times fewer than with a thread for each element of C.`);
    else setText(note, `${which}: ${times(sums.loads[end], "value")}, as many as with a thread for each element of C.`);
  }
}

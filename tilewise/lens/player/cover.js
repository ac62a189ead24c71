// What the page opens with: a question, a picture of the whole, and the way in.

const SHAPES = "http://www.w3.org/2000/svg";
const LARGEST = 112; // of a picture's units: the longest side of a matrix
const LEAST = 18; // and the shortest
const APART = 14;
const MOST_LINES_OF_BLOCKS = 64;

function drawShape(parent, tag, className, attributes = {}, text = "") {
  const made = document.createElementNS(SHAPES, tag);
  if (className) made.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

// All pictures have the same scale, so that their letters have the same size.
const sized = (units) => `width: calc(${units}px * var(--unit))`;
const rectangle = (x, y, width, height) => ({ x, y, width, height });

// The rectangle of C that the block stores: {row, column, rows, columns}; null if there is none.
function storedPart(recording) {
  const number = recording.array("c");
  const found = new Set();
  for (const step of recording.steps) {
    if (step.space !== "global" || step.array !== "c" || !writesMemory(step)) continue;
    eachAccess(step, (thread, at) => found.add(at));
  }
  if (number < 0 || !found.size) return null;
  const { leading } = recording.arrays[number];
  const [rows, columns] = [[...found].map((at) => Math.floor(at / leading)), [...found].map((at) => at % leading)];
  const least = (all) => all.reduce((a, b) => Math.min(a, b));
  const most = (all) => all.reduce((a, b) => Math.max(a, b));
  const [row, column] = [least(rows), least(columns)];
  return { row, column, rows: most(rows) - row + 1, columns: most(columns) - column + 1 };
}

// A, B and C as they meet in a product, the block's part of each, and tiles that slide along k.
function pictureOfProduct(parent) {
  const { m, n, k } = trace.problem;
  const unit = LARGEST / Math.max(m, n, k);
  const [high, wide, deep] = [m, n, k].map((size) => Math.max(LEAST, size * unit));
  const label = 16;
  const [left, top] = [deep + APART + label, deep + APART + label];
  const svg = drawShape(parent, "svg", "whole", {
    viewBox: `0 0 ${left + wide + 2} ${top + high + label + 2}`, role: "img",
    style: sized(left + wide + 2),
  });
  const part = storedPart(recording);
  const phases = Math.max(1, ...recording.steps.map((step) => (step.phase ?? 0) + 1));
  svg.setAttribute(
    "aria-label",
    `B, ${k} × ${n}, stands above C, ${m} × ${n}, and A, ${m} × ${k}, to its left.` +
      (part ? ` The block's part of C is ${part.rows} × ${part.columns}: for it, it takes the rows of A to the left and the columns of B above.` : ""),
  );
  drawShape(svg, "rect", "matrix", rectangle(label, top, deep, high));
  drawShape(svg, "rect", "matrix", rectangle(left, label, wide, deep));
  drawShape(svg, "rect", "matrix", rectangle(left, top, wide, high));
  if (part) {
    const y = top + (part.row / m) * high;
    const x = left + (part.column / n) * wide;
    const [down, across] = [(part.rows / m) * high, (part.columns / n) * wide];
    drawShape(svg, "rect", "band of-a", rectangle(label, y, deep, down));
    drawShape(svg, "rect", "band of-b", rectangle(x, label, across, deep));
    drawShape(svg, "rect", "part of-c", rectangle(x, y, across, down));
    if (recording.phased) {
      const slice = deep / phases;
      for (const [name, where, to] of [
        ["of-a", rectangle(label, y, slice, down), "x"],
        ["of-b", rectangle(x, label, across, slice), "y"],
      ]) {
        const slides = drawShape(svg, "rect", `slides along-${to} ${name}`, where);
        slides.style.setProperty("--way", `${deep - slice}px`);
        slides.style.setProperty("--phases", String(phases));
      }
    }
    // Lines between the blocks of the grid, unless there are too many.
    const lines = (size, each, extent) => (size / each <= MOST_LINES_OF_BLOCKS ? Array.from({ length: Math.ceil(size / each) - 1 }, (_, i) => ((i + 1) * each * extent) / size) : []);
    if (trace.grid.some((extent) => extent > 1)) {
      for (const at of lines(m, part.rows, high)) drawShape(svg, "line", "cuts", { x1: left, x2: left + wide, y1: top + at, y2: top + at });
      for (const at of lines(n, part.columns, wide)) drawShape(svg, "line", "cuts", { x1: left + at, x2: left + at, y1: top, y2: top + high });
    }
  }
  const name = (text, x, y, more = {}) => drawShape(svg, "text", "", { x, y, ...more }, text);
  name(`A ${m} × ${k}`, label, top + high + 13);
  name(`C ${m} × ${n}`, left + wide, top + high + 13, { "text-anchor": "end" });
  name(`B ${k} × ${n}`, left + wide, label - 4, { "text-anchor": "end" });
  name("k →", label, top - 4);
}

// The grid's blocks, the one that is shown among them.
function pictureOfGrid(parent) {
  const [across, down] = trace.grid;
  const columns = Math.min(across, 32);
  const rows = Math.min(down > 1 ? down : Math.ceil(across / columns), 16);
  const each = 180 / columns > 22 ? 22 : 180 / columns;
  const svg = drawShape(parent, "svg", "whole", {
    viewBox: `0 0 ${columns * each + 2} ${rows * each + 2}`, role: "img",
    style: sized(columns * each + 2),
    "aria-label": `A grid of ${trace.grid.join(" × ")} blocks; block ${recording.block.index.join(", ")} is shown.`,
  });
  const [x, y] = recording.block.index;
  for (let i = 0; i < rows * columns; ++i) {
    const [row, column] = [Math.floor(i / columns), i % columns];
    if (down === 1 && i >= across) break;
    const isShown = down > 1 ? row === y && column === x : i === x;
    drawShape(svg, "rect", `block${isShown ? " shown" : ""}`, rectangle(column * each + 1, row * each + 1, each - 1, each - 1));
  }
}

// A block's threads, warp by warp in two shades.
function pictureOfBlock(parent) {
  const { threads } = recording;
  const columns = trace.block[0] <= WARP && trace.block[1] > 1 ? trace.block[0] : Math.min(WARP, threads);
  const rows = Math.ceil(threads / columns);
  const each = Math.min(16, 150 / columns, 150 / rows);
  const warps = Math.ceil(threads / WARP);
  const svg = drawShape(parent, "svg", "whole", {
    viewBox: `0 0 ${columns * each + 2} ${rows * each + 2}`, role: "img",
    style: sized(columns * each + 2),
    "aria-label": `A block has ${times(threads, "thread")}, ${times(warps, "warp")} of at most ${WARP}.`,
  });
  for (let thread = 0; thread < threads; ++thread) {
    const at = rectangle((thread % columns) * each + 1, Math.floor(thread / columns) * each + 1, each - Math.min(1, each / 5), each - Math.min(1, each / 5));
    drawShape(svg, "rect", `thread${Math.floor(thread / WARP) % 2 ? " odd" : ""}`, at);
  }
}

// Fills the opening. ``enter`` begins the tour at a stop, ``explore`` leaves it aside.
function buildCover(tour, enter, explore) {
  const cover = $("opening");
  cover.replaceChildren();
  make(cover, "p", "kernel", trace.title || trace.kernel);
  const question = make(cover, "h1", "", tour.question);
  question.id = "h-opening";
  question.tabIndex = -1;
  const pictures = make(cover, "div", "pictures");
  const isProduct = trace.problem && ["a", "b", "c"].every((name) => recording.array(name) >= 0);
  const whole = make(pictures, "figure");
  (isProduct ? pictureOfProduct : pictureOfGrid)(whole);
  make(whole, "figcaption", "note", isProduct ? `The whole product${storedPart(recording) ? ", and one block's part of it" : ""}` : `The grid of ${times(trace.grid.reduce((a, b) => a * b), "block")}, and the one that is shown`);
  const block = make(pictures, "figure");
  pictureOfBlock(block);
  const { threads } = recording;
  make(block, "figcaption", "note", `${isProduct && !storedPart(recording) ? "A" : "That"} block's ${times(threads, "thread")}, in ${times(Math.ceil(threads / WARP), "warp")}`);
  const says = make(cover, "div", "says");
  for (const sentence of tour.sentences) make(says, "p", "", sentence);
  const ways = make(cover, "div", "ways");
  const { length } = tour.stops;
  const button = (id, text, className, act) => {
    const made = make(ways, "button", className, text);
    made.type = "button";
    made.id = id;
    made.addEventListener("click", act);
    return made;
  };
  if (tour.fault) button("to-fault", trace.wrong ? "Show what is wrong" : "Show the fault", "main-way", () => enter(length - 1));
  if (length) button("tour-start", tour.of_rung ? "Start the tour" : "Show me around", tour.fault ? "" : "main-way", () => enter(0));
  button("explore", "Explore freely", length ? "" : "main-way", explore);
  if (!length) return;
  const asked = tour.stops.filter((stop) => stop.ask).length;
  const predicts = asked ? ` ${asked} of them ask${asked === 1 ? "s" : ""} you to predict what happens.` : "";
  make(cover, "p", "note", `${times(length, "stop")}; → goes to the next.${predicts} You can leave at any stop, and come back.`);
}

// Fragments: which lane of a warp, or of a warpgroup, holds which elements of a matrix.

const MOST_COLUMNS = 32; // of a matrix; further ones are held alike
const MOST_OF_A_GROUP = 16; // of one that a warpgroup holds
const LOWEST = 11; // pixels a cell must be high, to have its number read
const NUMBERED = 13; // pixels a cell must have, to have its lane's number in it

let shownLane = 0; // whose elements are marked

// A matrix's elements, row by row: {lane, element}; of several lanes that hold it, the first.
function holders(matrix) {
  const found = new Map();
  matrix.lanes.forEach(([row, column], lane) =>
    matrix.elements.forEach(([down, across], element) => {
      const at = (row + down) * matrix.columns + column + across;
      if (!found.has(at)) found.set(at, { lane, element });
    }),
  );
  return found;
}

class Fragments {
  static isFor(recording) {
    return recording.steps.some((step) => step.layout !== undefined);
  }

  constructor(parent) {
    parent.replaceChildren();
    this.parent = parent;
    this.last = [];
    let last = recording.steps.findIndex((step) => step.layout !== undefined);
    recording.steps.forEach((step, i) => this.last.push((last = step.layout !== undefined ? i : last)));
    this.boxes = new Map(); // layout -> {box, parts}
    this.width = 0;
    this.high = Infinity;
  }

  // The matrices of a layout, each a grid; those of ldmatrix one by one.
  build(number) {
    const layout = trace.layouts[number];
    const box = make(this.parent, "div", "flow held");
    const parts = layout.matrices.flatMap((matrix) => {
      const warps = matrix.lanes.length / WARP;
      // Of a warpgroup's, the rows of one warp.
      const each = matrix.name === "rows" ? 8 : matrix.rows / warps;
      const most = warps > 1 ? MOST_OF_A_GROUP : MOST_COLUMNS;
      const columns = Math.min(matrix.columns, most);
      const held = holders(matrix);
      return Array.from({ length: matrix.rows / each / warps }, (_, i) => {
        const one = make(box, "div", `array of-${matrix.name.toLowerCase()}`);
        const head = make(one, "h3");
        const top = () => (warps > 1 ? (shownWarp % warps) * each : i * each);
        const rowOf = (place) => top() + Math.floor(place / columns);
        const at = (place) => held.get(rowOf(place) * matrix.columns + (place % columns));
        const retitle = () => setText(head, this.title(matrix, i, columns, top(), each));
        const grid = new Grid(one, {
          rows: each,
          columns,
          count: each * columns,
          label: `${matrix.name}: which lane holds which element`,
          tip: (place) => this.tip(matrix, rowOf(place), place % columns, at(place)),
          pick: (place) => this.choose(at(place).lane),
        });
        return { matrix, grid, at, retitle };
      });
    });
    const note = make(box, "p", "note");
    note.setAttribute("aria-live", "polite");
    const made = { box, parts, layout, note };
    this.boxes.set(number, made);
    this.size(made);
    return made;
  }

  title(matrix, i, columns, top, rows) {
    if (matrix.name === "rows") return `Matrix ${i}: lanes ${8 * i}–${8 * i + 7}`;
    const depth = matrix.depth > 1 ? `, ${matrix.depth} elements a cell` : "";
    const down = rows < matrix.rows ? `; rows ${top}–${top + rows - 1}` : "";
    const cut = columns < matrix.columns ? `; columns 0–${columns - 1}, and so on` : "";
    return `${matrix.name}, ${matrix.rows} × ${matrix.columns} ${matrix.type}${depth}${down}${cut}`;
  }

  register(matrix, element) {
    const inside = matrix.packed > 1 ? `, part ${element % matrix.packed}` : "";
    return `register ${Math.floor(element / matrix.packed)}${inside}`;
  }

  tip(matrix, row, column, holder) {
    const where = matrix.name === "rows" ? `Row ${row % 8} of matrix ${row >> 3}, column ${column}` : spelled(matrix.name, [row, column]);
    return `${where}: lane ${holder.lane}, ${this.register(matrix, holder.element)}`;
  }

  choose(lane) {
    shownLane = lane;
    draw();
  }

  fit(width) {
    this.width = width;
    this.within(Infinity);
  }

  // Lets the matrices be so many pixels high, as far as their numbers can be read then.
  within(high) {
    this.high = high;
    for (const made of this.boxes.values()) this.size(made);
  }

  size({ box, parts }) {
    if (!this.width) return;
    // As the product is written, where there is room: B above D, A beside it.
    const columnsOf = (name) => parts.find(({ matrix }) => matrix.name === name)?.grid.columns ?? Infinity;
    const beside = columnsOf("A") + Math.max(columnsOf("B"), columnsOf("D"));
    const together = Math.min(24, Math.floor((this.width - 12) / beside));
    const isProduct = together >= NUMBERED;
    box.className = `held ${isProduct ? "as-product" : "flow"}`;
    if (isProduct) {
      const rowsOf = (name) => parts.find(({ matrix }) => matrix.name === name)?.grid.rows ?? 0;
      const most = Math.max(LOWEST, Math.floor(this.high / (rowsOf("A") + rowsOf("B"))));
      for (const { grid } of parts) grid.size(together, Math.min(together, 19, most));
      return;
    }
    for (const { matrix, grid } of parts) {
      // Two of ldmatrix's matrices beside one another.
      const room = matrix.name === "rows" ? (this.width - 14) / 2 : this.width;
      const cell = Math.max(8, Math.min(Math.floor(room / grid.columns), 24));
      grid.size(cell, Math.min(cell, 19));
    }
  }

  draw(state, step) {
    const number = this.last[position];
    const shown = recording.steps[number];
    for (const [layout, { box }] of this.boxes) box.hidden = layout !== shown.layout;
    const made = this.boxes.get(shown.layout) || this.build(shown.layout);
    const lanes = made.layout.matrices[0].lanes.length;
    if (picked && picked.kind === "thread" && picked !== this.followed) shownLane = picked.number % lanes;
    this.followed = picked;
    if (lanes > WARP) shownLane = (shownWarp % (lanes / WARP)) * WARP + (shownLane % WARP);
    else shownLane %= lanes;
    for (const { matrix, grid, at, retitle } of made.parts) {
      retitle();
      for (let i = 0; i < grid.cells.length; ++i) {
        const { lane, element } = at(i);
        const name = lane === shownLane ? "cell active" : `cell tint${Math.floor(element / matrix.packed) % 8}`;
        grid.set(i, name, grid.width >= NUMBERED ? String(lane) : "");
      }
    }
    const when = number === position ? "" : ` (step ${count(number + 1)})`;
    setText($("h-fragments"), `${made.layout.what}${when}: the lane that holds each element`);
    setText(made.note, this.say(made.layout, lanes));
  }

  say(layout, lanes) {
    const parts = layout.matrices.map((matrix) => {
      const registers = new Set(matrix.elements.map((_, i) => Math.floor(i / matrix.packed))).size;
      const name = matrix.name === "rows" ? (registers > 1 ? "the matrices" : "the matrix") : matrix.name;
      return `${times(matrix.elements.length, "element")} of ${name} in ${times(registers, "register")}`;
    });
    const who = lanes > WARP ? `Thread ${shownLane} of the warpgroup` : `Lane ${shownLane}`;
    const most = Math.max(...layout.matrices.map((one) => one.elements.length / one.packed));
    const again = most > 8 ? "; the ninth has the first one's again" : "";
    return `${who} (marked) holds ${parts.join(", ")}. A colour is a register${again}.`;
  }
}

// The fault that ended a block's run, drawn at its place: outside of its array, if need be.

// The fault with which a recording ends, where it does, if that is of an array in this memory.
function faultIn(recording, space, name) {
  const { fault } = recording.steps[recording.last];
  return fault && fault.space === space && fault.array === name ? fault : null;
}

// How far outside a value's element lies, in words; empty for one that lies inside.
function beyond({ rows, columns, leading, flat, count, components = 1 }, at) {
  if (flat) {
    const what = components > 1 ? "vector" : "element";
    const [number, many] = [Math.floor(at / components), Math.floor(count / components)];
    if (number < 0) return `${times(-number, what)} before the first`;
    return number < many ? "" : `${times(number - many + 1, what)} past the last`;
  }
  const row = Math.floor(at / leading);
  if (row < 0) return `${times(-row, "row")} above the first`;
  if (row >= rows) return `${times(row - rows + 1, "row")} below the last`;
  const column = at - row * leading;
  return column < columns ? "" : `${times(column - columns + 1, "column")} right of the last`;
}

// The places of a fault in a grid: cells that are reached in it, and cells drawn around it.
class FaultPlaces {
  // ``array`` has rows, columns, leading, flat and count; a cell covers ``scale`` values each way.
  constructor(box, grid, array, fault, name, scale = 1) {
    this.grid = grid;
    this.fault = fault;
    this.inside = new Map(); // cell -> its class
    this.outside = [];
    const across = Math.ceil(array.columns / scale);
    const down = Math.ceil(array.rows / scale);
    const seen = new Set();
    const verb = fault.access === "store" ? "write" : "read";
    for (const at of [fault.at, ...fault.others]) {
      const row = Math.floor(at / array.leading);
      const cell = [row, at - row * array.leading].map((one) => Math.floor(one / scale));
      if (!beyond(array, at)) {
        const i = cell[0] * across + cell[1];
        if (!this.inside.has(i)) this.inside.set(i, at === fault.at ? "bad" : verb);
        continue;
      }
      // What lies far away is drawn at the edge.
      const place = [Math.max(-1, Math.min(down, cell[0])), Math.min(across, cell[1])];
      if (seen.has(place.join())) continue;
      seen.add(place.join());
      const ghost = make(grid.element, "div", `outside${at === fault.at ? " own" : ""}`, at === fault.at ? "✗" : "");
      this.outside.push({ ghost, row: place[0], column: place[1] });
    }
    const far = beyond(array, fault.at);
    this.says = make(box, "p", "note fault-place", `✗ ${name}${far ? `: ${far}` : ""}`);
    this.rooms = {
      marginTop: this.outside.some(({ row }) => row < 0),
      marginBottom: this.outside.some(({ row }) => row >= down),
      marginRight: this.outside.some(({ column }) => column >= across),
    };
  }

  // The width of a cell beyond the right edge, in cells.
  get wider() {
    return this.rooms.marginRight ? 1 : 0;
  }

  // ``set(i, name)`` marks a cell of the grid. The rest is seen in the step of the fault only.
  draw(step, set) {
    const isNow = step.fault === this.fault;
    const { width } = this.grid;
    const height = this.grid.height || width;
    const { style } = this.grid.element;
    for (const [side, is] of Object.entries(this.rooms)) {
      style[side] = is ? `${side === "marginRight" ? width : height}px` : "";
    }
    for (const { ghost, row, column } of this.outside) {
      ghost.classList.toggle("off", !isNow);
      ghost.style.transform = `translate(${column * width}px, ${row * height}px)`;
      ghost.style.width = `${width}px`;
      ghost.style.height = `${height}px`;
      ghost.style.lineHeight = `${height - 2}px`;
    }
    this.says.classList.toggle("off", !isNow);
    if (isNow) for (const [i, name] of this.inside) set(i, name);
  }
}

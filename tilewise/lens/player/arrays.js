// Arrays in global memory.

// What happened last to an element: read, written, or both.
function lights(step) {
  const lit = new Map();
  if (step.copy) recording.eachCopied(step.copy, (at) => lit.set(at, "read"));
  if (step.space !== "global") return lit;
  const name = writesMemory(step) ? "write" : "read";
  eachAccess(step, (thread, at) => lit.set(at, name));
  return lit;
}

// A product's matrices have capital letters, other arrays their own names.
const called = (array) => (trace.problem ? array.name.toUpperCase() : array.name);

const HIGH = 210; // pixels of a product's matrices beside their legend
const LEVELS = 8; // to which an element of C fills

class Arrays {
  constructor(parent) {
    parent.replaceChildren();
    const { arrays } = recording;
    const named = ["a", "b", "c"].map((name) => recording.array(name));
    this.product = Boolean(trace.problem) && arrays.length === 3 && named.every((i) => i >= 0);
    parent.className = this.product ? "product" : "flow";
    if (this.product) this.legend(make(parent, "ul", "legend"));
    // Each cell covers scale x scale elements; a product's matrices have one scale.
    const scaleOf = ({ rows, columns }) => Math.ceil(Math.sqrt((rows * columns) / MOST_CELLS)) || 1;
    const widest = Math.max(...arrays.map(scaleOf));
    this.shown = arrays.map((array, number) => {
      const { rows, columns } = array;
      const scale = this.product ? widest : scaleOf(array);
      const [down, across] = [Math.ceil(rows / scale), Math.ceil(columns / scale)];
      const box = make(parent, "div", `array of-${array.name}`);
      make(box, "h3", "name", `${called(array)}, ${dimensionsOf(array)}`);
      const grid = new Grid(box, {
        rows: down,
        columns: across,
        count: array.flat && scale === 1 ? array.count : down * across,
        label: `Matrix ${array.name}: the tile and the elements of this step are marked`,
        tip: (i) => this.tip(number, i),
        pick: (i) => pickElement(this.part(number, i)),
      });
      grid.part = (i) => this.part(number, i);
      const frame = make(grid.element, "div", "frame");
      const fault = faultIn(recording, "global", array.name);
      const places = fault && new FaultPlaces(box, grid, array, fault, recording.element(array.name, fault.at), scale);
      return { array, grid, frame, scale, down, across, places };
    });
    if (!this.product) this.legend(make(parent, "ul", "legend"));
  }

  legend(list) {
    for (const [name, text, wanted = true] of [
      ["read", "read now"],
      ["write", "written now"],
      ["tile", recording.phased ? "this phase's tile" : trace.problem ? "this block's C" : "stored by this block"],
      ["trail", "loaded before"],
      ["f4", "half of its sum done", Boolean(trace.problem) && recording.costs.unit === "multiply-adds"],
      ["one", "a factor", Sum.isFor(recording)],
      ["other", "the other", Sum.isFor(recording)],
      ["unwritten", "never written", recording.cells],
      ["conflict", "bank conflict", recording.cells],
      ["active", "running thread", $("threads")],
      ["wrong", "wrong in the end", recording.wrong.size > 0],
      ["bad", "the fault", Boolean(recording.steps[recording.last].fault)],
    ]) {
      if (!wanted) continue;
      const item = make(list, "li", recording.phased ? "" : "of-c");
      make(item, "span", `cell sample ${name}`);
      make(item, "span", "", text);
    }
  }

  fit(width) {
    const gap = 10;
    let cell;
    if (this.product) {
      const [a, b] = this.shown;
      // A's column is at least as wide as the legend above it; where there is less room, that is at the
      // right, and all so high that shared memory is on the screen with it.
      const legend = a.grid.element.closest(".product").querySelector(".legend");
      const box = legend.parentElement;
      box.classList.remove("below");
      const isAbove = getComputedStyle(legend).gridColumnStart === "1";
      const wide = Math.floor((width - gap) / (a.across + b.across));
      cell = isAbove ? wide : Math.floor((width - 2 * gap - legend.offsetWidth) / (a.across + b.across));
      if (cell < 2) {
        box.classList.add("below");
        cell = wide;
      }
      // A's column is as wide as its name, too.
      const name = a.grid.element.previousElementSibling.scrollWidth;
      if (cell * a.across < name) cell = Math.min(cell, Math.floor((width - gap - name) / b.across));
      const beside = Math.floor((width - gap - legend.offsetWidth) / b.across);
      if (isAbove && cell * a.across < legend.offsetWidth) cell = Math.min(cell, beside);
      if (!isAbove) cell = Math.min(cell, Math.max(2, Math.floor(HIGH / (a.down + b.down))));
    } else {
      cell = Math.floor(width / Math.max(...this.shown.map((one) => one.across)));
    }
    for (const { grid } of this.shown) grid.size(Math.max(1, Math.min(cell, 30)));
  }

  value(number, at) {
    const { array } = this.shown[number];
    const stored = recording.state.stored[number].get(at);
    if (stored !== undefined) return stored;
    if (!array.values) return null;
    const row = Math.floor(at / array.leading);
    return array.values[row * array.columns + (at % array.leading)];
  }

  // What a cell is of: {array, at: its first element, holds, name, value}.
  part(number, i) {
    const { array, scale, across } = this.shown[number];
    const [row, column] = [Math.floor(i / across) * scale, (i % across) * scale];
    const at = row * array.leading + column;
    const holds = (other) => {
      const [down, right] = [Math.floor(other / array.leading) - row, (other % array.leading) - column];
      return down >= 0 && down < scale && right >= 0 && right < scale;
    };
    const end = Math.min(row + scale, array.rows) * array.leading - array.leading + Math.min(column + scale, array.columns) - 1;
    const name = recording.element(array.name, at);
    return {
      array: number,
      at,
      holds,
      name: end <= at ? name : array.flat ? `${name} and others` : `${name} to ${recording.element(array.name, end)}`,
      value: () => (end > at ? null : this.value(number, at)),
    };
  }

  tip(number, i) {
    const { name, at, holds, value } = this.part(number, i);
    const { array, scale } = this.shown[number];
    const known = scale > 1 ? "" : ` = ${long(value())}`;
    const told = scale > 1 ? "" : recording.wrongIn(array.name, at);
    return `${name}${known}${this.now(number, holds)}${told ? `. ${told}` : ""}`;
  }

  // What the step does with it.
  now(number, holds) {
    const step = recording.steps[position];
    if (!globalAccess(step) || step.array !== recording.arrays[number].name) return "";
    const threads = [];
    eachAccess(step, (thread, at) => holds(at) && threads.push(thread));
    const verb = { load: "read", store: "written", atomic: "updated" }[step.kind];
    return threads.length ? `, ${verb} now by ${threadsInWords(threads)}` : "";
  }

  draw(state, step) {
    const tiles = recording.tilesOf(step.phase ?? null);
    const lit = lights(step);
    const factors = litBySum();
    const mine = picked && picked.kind === "thread" ? picked.owns : null;
    const part = picked && picked.kind === "element" ? picked : null;
    this.shown.forEach(({ array, grid, scale, across, places }, number) => {
      const isHere = (step.copy ? step.copy.array : step.array) === array.name;
      const marks = new Array(grid.cells.length).fill("cell");
      const place = (at) => {
        const row = Math.floor(at / array.leading / scale);
        return row * across + Math.floor((at % array.leading) / scale);
      };
      recording.slides.eachBefore(number, position, (at) => (marks[place(at)] = "cell trail"));
      for (const at of tiles[number]) marks[place(at)] = "cell tile";
      // An element of C fills with its thread's sum.
      for (const [at, thread] of recording.ownerOf[number]) {
        const level = Math.floor(LEVELS * recording.share(state, thread));
        if (level) marks[place(at)] = `cell tile f${level}`;
      }
      for (const at of state.stored[number].keys()) marks[place(at)] = "cell tile stored";
      // This block's when they are stored; at its end the others' too.
      if (recording.wrong.size && array.name === trace.wrong.array) {
        const isLast = position === recording.last;
        for (const at of recording.wrong.keys()) {
          if (isLast || state.stored[number].has(at)) marks[place(at)] += " wrong";
        }
      }
      if (isHere) for (const [at, name] of lit) marks[place(at)] = `cell ${name}`;
      for (const [at, name] of factors.elements[number]) marks[place(at)] += ` ${name}`;
      this.slide(number);
      if (looked && looked.step.array === array.name) this.ask(array, marks, place);
      if (places) places.draw(step, (i, name) => (marks[i] = `cell ${name}`));
      if (mine && mine.array === array.name) marks[place(mine.at)] += " picked";
      if (part && part.array === number) marks[place(part.at)] += " picked";
      marks.forEach((mark, i) => grid.set(i, mark));
    });
  }

  // The frame around what is loaded now: as the tiles go along k, it slides.
  slide(number) {
    const { grid, frame, scale } = this.shown[number];
    const box = recording.slides.at(number, position);
    frame.classList.toggle("off", !box);
    if (!box) {
      frame.removeAttribute("style");
      return;
    }
    const cell = (place) => Math.floor(place / scale) * grid.width;
    const [left, top] = [cell(box.left), cell(box.top)];
    const style = {
      transform: `translate(${left}px, ${top}px)`,
      width: `${cell(box.right) + grid.width - left}px`,
      height: `${cell(box.bottom) + grid.width - top}px`,
    };
    for (const [name, value] of Object.entries(style)) if (frame.style[name] !== value) frame.style[name] = value;
  }

  // The elements that the warp asks for, and the sectors that they lie in.
  ask(array, marks, place) {
    const { step, request } = looked;
    const name = writesMemory(step) ? "write" : "read";
    for (const at of request.elements) marks[place(at)] = `cell ${name} asked`;
    for (const sector of request.sectors.keys()) {
      eachOfSector(array, sector, (at, first, last) => {
        marks[place(at)] += ` sector${first ? " begins" : ""}${last ? " ends" : ""}`;
      });
    }
  }
}

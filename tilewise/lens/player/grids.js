// Grids of cells, and shared memory as such.

const MOST_CELLS = 4096; // of one grid; a larger matrix is drawn coarser, more memory is left out
const FEW_CELLS = 1536; // of shared memory that is drawn as pieces, too
const [MANY, SEEN] = [512, 10]; // cells, and pixels that each of so many has at most
const TEXT = 27; // pixels a cell must have, to have its value in it
const ROOMY = 40; // and to have it with one more digit

function make(parent, tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// Writes only what changed: that is what makes a step cheap.
function setText(element, text) {
  if (element.shown === text) return;
  element.shown = text;
  element.textContent = text;
}

// Room for the tallest of the longest texts that a box may have, so that nothing below it moves.
function roomFor(box, texts) {
  const before = box.shown;
  box.style.minHeight = "";
  let most = 0;
  for (const text of [...new Set(texts)].sort((a, b) => b.length - a.length).slice(0, 4)) {
    setText(box, text);
    most = Math.max(most, box.getBoundingClientRect().height);
  }
  setText(box, before || "");
  box.style.minHeight = `${Math.ceil(most)}px`;
}

// A grid of cells, each with a text and a class.
class Grid {
  constructor(parent, { rows, columns, count, label, tip, pick }) {
    this.rows = rows;
    this.columns = columns;
    this.element = make(parent, "div", "grid");
    this.element.setAttribute("role", pick ? "grid" : "img");
    this.element.setAttribute("aria-label", label);
    this.cells = [];
    this.texts = [];
    this.classes = [];
    for (let row = 0; row < rows; ++row) {
      const line = make(this.element, "div", "row");
      if (pick) line.setAttribute("role", "row");
      for (let i = row * columns; i < Math.min(count, (row + 1) * columns); ++i) {
        const cell = make(line, "div", "cell");
        cell.place = i;
        if (pick) {
          cell.setAttribute("role", "gridcell");
          cell.tabIndex = i === 0 ? 0 : -1;
        }
        this.cells.push(cell);
      }
    }
    this.element.grid = this;
    this.tip = tip;
    this.pick = pick;
    this.current = 0;
  }

  set(i, className, text = "") {
    if (this.classes[i] !== className) {
      this.classes[i] = className;
      this.cells[i].className = className;
    }
    if (this.texts[i] !== text) {
      this.texts[i] = text;
      this.cells[i].textContent = text;
    }
  }

  size(width, height = width) {
    this.width = width;
    this.height = height;
    this.element.style.setProperty("--w", `${width}px`);
    this.element.style.setProperty("--h", `${height}px`);
    this.element.style.setProperty("--gap", width < 6 ? "0px" : "1px");
    // What is too small to be boxed is filled.
    this.element.classList.toggle("tiny", width < 5);
    this.element.classList.toggle("specks", width < 3);
    const least = Math.min(width, height);
    this.element.style.setProperty("--edge", least < 5 ? "0px" : least < 9 ? "1px" : "2px");
  }

  number(value) {
    if (this.width < TEXT) return "";
    return this.width < ROOMY ? short(value) : medium(value);
  }

  focus(i) {
    if (i < 0 || i >= this.cells.length) return;
    this.cells[this.current].tabIndex = -1;
    this.current = i;
    this.cells[i].tabIndex = 0;
    this.cells[i].setAttribute("aria-label", this.tip(i));
    this.cells[i].focus();
  }
}

// Who wrote a cell of shared memory last.
const writerOf = (state, cell) =>
  state.writer[cell] < 0 ? "a thread of another block" : `thread ${state.writer[cell]}`;

class Shared {
  constructor(parent) {
    parent.replaceChildren();
    // Where pieces are drawn line by line, cells of a large tile tell no more.
    let left = Pieces.isFor(recording) ? FEW_CELLS : MOST_CELLS;
    this.boxes = make(parent, "div", "flow");
    this.shown = recording.shared.map((array) => {
      const count = Math.min(array.count, Math.max(0, left));
      left -= count;
      const box = make(this.boxes, "div", "array");
      make(box, "h3", "", `${array.name}, ${dimensionsOf(array)}`);
      const grid = new Grid(box, {
        rows: Math.ceil(count / array.columns),
        columns: array.columns,
        count,
        label: `Shared memory: ${array.name}`,
        tip: (i) => this.tip(array.first + i),
        pick: (i) => pick({ kind: "cell", number: array.first + i }),
      });
      if (count < array.count) {
        make(box, "p", "note", `The first ${count} of ${array.count} cells.`);
      }
      const fault = faultIn(recording, "shared", array.name);
      const shape = { ...array, leading: array.columns };
      const places = fault && new FaultPlaces(box, grid, shape, fault, elementOf(array, fault.at));
      return { array, grid, count, places };
    });
  }

  fit(width) {
    const gap = 12;
    const all = this.shown.reduce((sum, one) => sum + one.array.columns, 0);
    const most = Math.max(...this.shown.map((one) => one.array.columns));
    const beside = Math.floor((width - gap * (this.shown.length - 1)) / all);
    const below = Math.floor(width / most);
    // Beside one another, unless only below one another their values can be read.
    const cell = beside >= TEXT || (below < TEXT && beside >= 7) ? beside : below;
    const size = Math.max(3, Math.min(cell, 46));
    for (const { array, grid, count } of this.shown) {
      // Without values, many cells need no more room than to be seen.
      if (size < TEXT && count > MANY) {
        grid.size(Math.min(size, SEEN));
        continue;
      }
      grid.size(size, size < TEXT ? size : array.rows > 8 ? 20 : width < 360 ? 18 : 24);
    }
  }

  tip(cell) {
    const { state } = recording;
    const { name } = recording.cell(cell);
    if (state.when[cell] < 0) return `${name}: nobody has written it`;
    return (
      `${name} = ${long(state.value[cell])}, written by ${writerOf(state, cell)} ` +
      `at step ${state.when[cell] + 1}, read ${times(state.reads[cell], "time")} since`
    );
  }

  draw(state, step) {
    const lit = new Map();
    if (step.space === "shared") {
      const name = writesMemory(step) ? "write" : "read";
      eachAccess(step, (thread, at, bytes) =>
        recording.eachCell(at, bytes, (cell) => lit.set(cell, name)),
      );
    }
    const mark = picked && picked.kind === "cell" ? picked.number : -1;
    const factors = litBySum().cells;
    for (const { array, grid, count, places } of this.shown) {
      const faulty = new Map();
      if (places) places.draw(step, (i, name) => faulty.set(i, name));
      for (let i = 0; i < count; ++i) {
        const cell = array.first + i;
        const written = state.when[cell] >= 0;
        let name = "cell";
        if (lit.has(cell)) name += ` ${lit.get(cell)}`;
        else if (faulty.has(i)) name += ` ${faulty.get(i)}`;
        else if (!written) name += " unwritten";
        if (factors.has(cell)) name += ` ${factors.get(cell)}`;
        if (cell === mark) name += " picked";
        const value = written ? state.value[cell] : null;
        grid.set(i, name, written ? (value === null ? "" : grid.number(value)) : "");
      }
    }
  }
}

// The trace, and what a block's memory and threads hold at any step of it.
"use strict";

const WARP = 32;
const BANKS = 32;
const WORD = 4; // bytes
const CHECKPOINT = 100; // steps between saved states: going back replays fewer than these

// fn(thread, place): every thread that runs the step, and its place in the step's lists.
function eachThread(step, fn) {
  let place = 0;
  for (const [first, count] of step.threads) {
    for (let thread = first; thread < first + count; ++thread) fn(thread, place++);
  }
}

// fn(thread, at, bytes, value, left): a thread's access, a vector's elements one by one. ``at`` counts
// elements in global memory, bytes in shared memory; ``left`` is what stands there after a store or
// an atomic, where that is known.
function eachAccess(step, fn) {
  if (!step.at) return;
  eachThread(step, (thread, place) => {
    const at = step.at[place];
    if (at === null || at === undefined) return;
    const value = step.values ? step.values[place] : null;
    const after = step.kind === "atomic" ? step.left : step.values;
    const left = after ? after[place] : null;
    const many = [value, left].find(Array.isArray);
    if (!many) {
      fn(thread, at, step.width, value, left);
      return;
    }
    const bytes = step.width / many.length;
    many.forEach((_, j) => {
      const place = at + (step.space === "global" ? j : j * bytes);
      fn(thread, place, bytes, value ? value[j] : null, left ? left[j] : null);
    });
  });
}

// An element as the source spells it: a[2][5], and f[3][0].x of a vector.
const spelled = (name, index, component = "") => `${name}[${index.join("][")}]${component && `.${component}`}`;

// An array's extents, the outermost first; empty for an array of one dimension.
const extentsOf = (array) => array.extents || (array.flat ? [] : [array.rows, array.leading || array.columns]);

// An array's extents in words, in elements; a vector is one element of several values.
function dimensionsOf(array) {
  const what = array.components ? "vector" : "element";
  if (array.flat) return times(array.count / (array.components || 1), what);
  const extents = (array.extents || [array.rows, array.columns]).join(" × ");
  return array.components ? `${extents} vectors` : extents;
}

// The name of a value of an array, by its number in row-major order; a value of a vector is a component.
// If the number is outside the array, only the first index is out of bounds.
function elementOf(array, number, name = array.name) {
  const many = array.components || 1;
  let left = Math.floor(number / many);
  const component = many > 1 ? "xyzw"[number - left * many] : "";
  const index = [];
  for (const extent of extentsOf(array).slice(1).reverse()) {
    const next = Math.floor(left / extent);
    index.unshift(left - next * extent);
    left = next;
  }
  return spelled(name, [left, ...index], component);
}

const readsMemory = (step) => step.kind === "load" || step.kind === "atomic";
const writesMemory = (step) => step.kind === "store" || step.kind === "atomic";

// A block's recording: its steps, where its lines and phases begin, and its state at a step.
class Recording {
  constructor(trace, number, costs) {
    this.trace = trace;
    this.costs = costs;
    this.block = trace.blocks[number];
    this.steps = this.block.steps;
    this.last = this.steps.length - 1;
    this.threads = trace.block[0] * trace.block[1] * trace.block[2];
    this.arrays = trace.arrays;
    this.shared = this.numberCells(trace.shared || []);
    this.elementsOfC = this.elements();
    this.lines = this.starts((step, before) => step.line !== null && step.line !== before, "line");
    this.phases = this.starts((step, before) => step.phase !== before, "phase");
    this.phased = this.steps.some((step) => step.phase !== null && step.phase !== undefined);
    this.accesses = this.linesThatAccess();
    this.tiles = new Map();
    this.sums = sumsOf(costs); // the running total of each cost, by step
    this.work = this.workOf();
    this.slides = new Slides(this);
    this.counted = new Map(); // conflicts, by step
    this.saved = [];
    this.now = -1;
    this.origins = new Origins(this);
    this.wrong = this.wrongElements();
    this.state = this.empty();
  }

  // Shared memory's arrays, their cells numbered through.
  numberCells(shared) {
    let cells = 0;
    const found = shared.map((array) => {
      const count = Math.floor(array.bytes / array.element);
      const columns = array.columns || Math.min(count, 32);
      const one = { ...array, columns, rows: Math.ceil(count / columns), first: cells, count };
      cells += count;
      return one;
    });
    this.cells = cells;
    this.words = found.reduce((most, one) => Math.max(most, one.offset + one.bytes), 0) / WORD;
    this.words = Math.ceil(this.words);
    return found;
  }

  // fn(cell) for each cell of shared memory that the bytes touch.
  eachCell(at, bytes, fn) {
    for (const array of this.shared) {
      const from = Math.max(at, array.offset) - array.offset;
      const to = Math.min(at + bytes, array.offset + array.bytes) - array.offset;
      if (from >= to) continue;
      const end = Math.min(Math.ceil(to / array.element), array.count);
      for (let i = Math.floor(from / array.element); i < end; ++i) fn(array.first + i);
    }
  }

  // Whether anybody wrote any of the bytes.
  isWritten(state, at, bytes) {
    let found = false;
    this.eachCell(at, bytes, (cell) => (found ||= state.when[cell] >= 0));
    return found;
  }

  // A cell's array, row, column and byte offset.
  cell(number) {
    const array = this.shared.find((one) => number < one.first + one.count);
    const i = number - array.first;
    const row = Math.floor(i / array.columns);
    const column = i % array.columns;
    return { array, row, column, name: elementOf(array, i), offset: array.offset + i * array.element };
  }

  array(name) {
    return this.arrays.findIndex((one) => one.name === name);
  }

  // Elements that are wrong in the end: element -> what was computed, and what would be right.
  wrongElements() {
    const found = new Map();
    const { array, at, computed, right } = this.trace.wrong || { at: [] };
    at.forEach(([row, column], i) => {
      found.set(row * this.arrays[this.array(array)].leading + column, { computed: computed[i], right: right[i] });
    });
    return found;
  }

  // What is wrong with an element, in a sentence; empty where nothing is.
  wrongIn(name, at) {
    const found = this.trace.wrong && this.trace.wrong.array === name ? this.wrong.get(at) : null;
    if (!found) return "";
    const { computed, right } = found;
    return `${computed === null ? "Nobody writes it" : `In the end it is ${long(computed)}`}; right would be ${long(right)}.`;
  }

  // A global element's name, as a[2][5].
  element(name, at) {
    const array = this.arrays.find((one) => one.name === name);
    if (!array) return name ? spelled(name, [at]) : "global memory";
    return elementOf(array, at);
  }

  // How many elements the block stores: as many threads an untiled product would take.
  elements() {
    const stored = new Set();
    this.owner = new Map(); // thread -> the name of the first element that it stores
    this.ownerOf = this.arrays.map(() => new Map()); // of each array, element -> thread
    for (const step of this.steps) {
      if (step.space !== "global" || !writesMemory(step)) continue;
      eachAccess(step, (thread, at) => {
        stored.add(`${step.array} ${at}`);
        const array = this.array(step.array);
        if (array >= 0) this.ownerOf[array].set(at, thread);
        if (!this.owner.has(thread)) this.owner.set(thread, this.element(step.array, at));
      });
    }
    return stored.size;
  }

  starts(begins, name) {
    const found = [0];
    let before = this.steps.length ? this.steps[0][name] : null;
    this.steps.forEach((step, i) => {
      if (!begins(step, before)) return;
      if (i > 0) found.push(i);
      before = step[name];
    });
    return found;
  }

  // The lines that reach global memory: line -> the steps in which they do.
  linesThatAccess() {
    const found = new Map();
    this.steps.forEach((step, i) => {
      if (!globalAccess(step) || step.line === null) return;
      if (!found.has(step.line)) found.set(step.line, []);
      found.get(step.line).push(i);
    });
    return found;
  }

  // The elements of every array that the block loads in a phase, or stores at all.
  tilesOf(phase) {
    if (!this.tiles.has(phase)) {
      const found = this.arrays.map(() => new Set());
      for (const step of this.steps) {
        if (step.space !== "global") continue;
        const array = this.array(step.array);
        if (array < 0 || !(writesMemory(step) || (phase !== null && step.phase === phase))) continue;
        eachAccess(step, (thread, at) => found[array].add(at));
      }
      this.tiles.set(phase, found);
    }
    return this.tiles.get(phase);
  }

  empty() {
    return {
      value: new Array(this.cells).fill(null), // of each cell of shared memory
      writer: new Int32Array(this.cells).fill(-1), // thread
      when: new Int32Array(this.cells).fill(-1), // step
      reads: new Int32Array(this.cells), // since it was written
      origin: new Int32Array(Math.ceil((this.words * WORD) / PIECE)).fill(-1), // of each piece
      stored: this.arrays.map(() => new Map()),
      result: new Array(this.threads).fill(null), // each thread's last
      worked: new Int32Array(this.threads), // by thread, the steps so far that are part of its work
      waiting: new Uint8Array(this.threads), // at a barrier of the block
      ended: new Uint8Array(this.threads),
      conflicts: 0,
    };
  }

  copy(state) {
    return {
      ...state,
      value: state.value.slice(),
      writer: state.writer.slice(),
      when: state.when.slice(),
      reads: state.reads.slice(),
      origin: state.origin.slice(),
      stored: state.stored.map((map) => new Map(map)),
      result: state.result.slice(),
      ended: state.ended.slice(),
      worked: state.worked.slice(),
      waiting: state.waiting.slice(),
    };
  }

  // The state right behind step ``to``.
  seek(to) {
    const saved = Math.min(Math.floor(to / CHECKPOINT), this.saved.length - 1);
    if (to < this.now || saved * CHECKPOINT > this.now) {
      this.state = saved < 0 ? this.empty() : this.copy(this.saved[saved]);
      this.now = saved < 0 ? -1 : saved * CHECKPOINT;
    }
    while (this.now < to) {
      this.now += 1;
      this.apply(this.steps[this.now]);
      if (this.now % CHECKPOINT === 0 && this.saved.length === this.now / CHECKPOINT) {
        this.saved.push(this.copy(this.state));
      }
    }
    return this.state;
  }

  apply(step) {
    const state = this.state;
    state.conflicts += step.conflicts || 0;
    for (const [piece, from] of this.origins.writes.get(this.now) || []) state.origin[piece] = from;
    if (step.copy) this.move(step);
    if (step.reads) this.multiply(step);
    if (this.costs.work[this.now]) eachThread(step, (thread) => (state.worked[thread] += 1));
    this.wait(step);
    if (step.sync && step.sync.do === "init") {
      for (const at of step.sync.at || []) this.eachCell(at, 8, (cell) => this.put(cell, step, null));
    }
    if (step.kind === "compute" && step.values) {
      eachThread(step, (thread, place) => {
        const value = step.values[place];
        state.result[thread] = Array.isArray(value) ? value[0] : value;
      });
    } else if (step.kind === "end") {
      eachThread(step, (thread) => (state.ended[thread] = 1));
    } else if (step.space === "shared") {
      eachAccess(step, (thread, at, bytes, value, left) =>
        this.eachCell(at, bytes, (cell) => {
          if (readsMemory(step)) state.reads[cell] += 1;
          if (!writesMemory(step)) return;
          state.value[cell] = left;
          state.writer[cell] = thread;
          state.when[cell] = this.now;
          if (step.kind === "store") state.reads[cell] = 0;
        }),
      );
    } else if (step.space === "global") {
      const array = this.array(step.array);
      if (array < 0 || !writesMemory(step)) return;
      eachAccess(step, (thread, at, bytes, value, left) => state.stored[array].set(at, left));
    }
  }

  // Threads that arrive at a barrier of the block wait for all threads that have not ended.
  wait(step) {
    const { waiting, ended } = this.state;
    const isWhole = step.kind === "barrier" && step.scope !== "warp" && step.scope !== "part";
    if (!isWhole) return;
    eachThread(step, (thread) => (waiting[thread] = 1));
    if (waiting.every((waits, thread) => waits || ended[thread])) waiting.fill(0);
  }

  // Writes a value to a cell; it is null where no thread's value is known.
  put(cell, step, value) {
    const { state } = this;
    state.value[cell] = value;
    state.writer[cell] = step.threads.length ? step.threads[0][0] : -1;
    state.when[cell] = this.now;
    state.reads[cell] = 0;
  }

  // A bulk copy to shared memory, or from there.
  move(step) {
    const { copy } = step;
    this.eachCell(copy.at, copy.bytes, (cell) => {
      if (copy.store) this.state.reads[cell] += 1;
      else this.put(cell, step, null);
    });
  }

  // fn(element) for each element of an array that a bulk copy loads.
  eachCopied(copy, fn) {
    if (copy.pattern === undefined) return;
    const many = PIECE / bytesOf(this.arrays[this.array(copy.array)].dtype);
    for (const apart of this.trace.patterns[copy.pattern]) {
      for (let i = 0; apart !== null && i < many; ++i) fn(copy.from + apart + i);
    }
  }

  // A product that reads its matrices in shared memory.
  multiply(step) {
    for (const [name, groups] of Object.entries(step.reads)) {
      groups.forEach((_, group) =>
        eachRead(step, group, name, (at, bytes) =>
          this.eachCell(at, bytes, (cell) => (this.state.reads[cell] += 1)),
        ),
      );
    }
  }

  // For each thread, how many steps are part of its work.
  workOf() {
    const found = new Int32Array(this.threads);
    this.steps.forEach((step, i) => {
      if (this.costs.work[i]) eachThread(step, (thread) => (found[thread] += 1));
    });
    return found;
  }

  // The share of its work that a thread has done, from 0 to 1.
  share(state, thread) {
    return this.work[thread] ? state.worked[thread] / this.work[thread] : 0;
  }

  // ---- steps that are shown ----

  isFolded(number) {
    return isFolding && FOLDED.includes(this.steps[number].kind) && number !== this.last;
  }

  // The step that is shown next, or before.
  beside(number, by) {
    let at = number + by;
    while (at > 0 && at < this.last && this.isFolded(at)) at += by;
    if (at <= 0 && this.isFolded(0)) return number;
    return Math.max(0, Math.min(this.last, at));
  }

  shownFrom(number) {
    return this.isFolded(number) ? this.beside(number, 1) : number;
  }

  // The step that comes a number of shown steps later.
  passing(number, many) {
    let at = number;
    for (let i = 0; i < many && at < this.last; ++i) at = this.beside(at, 1);
    return at;
  }

  // A thread's value of a step, or one element of it if it is a vector.
  valueOf([number, element], thread) {
    const place = placeOf(this.steps[number], thread);
    const value = place < 0 || !this.steps[number].values ? null : this.steps[number].values[place];
    return Array.isArray(value) ? value[element] : value;
  }
}

const FOLDED = ["other", "branch"]; // kinds of steps that only compute indices and addresses, or branch
let isFolding = true;

// The index of a thread in a step's lists; -1 if the thread does not run the step.
function placeOf(step, thread) {
  let before = 0;
  for (const [first, many] of step.threads) {
    if (thread >= first && thread < first + many) return before + thread - first;
    before += many;
  }
  return -1;
}

// The running totals of each cost, by step.
function sumsOf(costs) {
  const found = {};
  for (const [name, each] of Object.entries(costs)) {
    if (!Array.isArray(each)) continue;
    let sum = 0;
    found[name] = each.map((one) => (sum += one));
  }
  return found;
}

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

// fn(thread, at, bytes, value): a thread's access, a vector's elements one by one. ``at`` counts
// elements in global memory, bytes in shared memory.
function eachAccess(step, fn) {
  if (!step.at) return;
  eachThread(step, (thread, place) => {
    const at = step.at[place];
    if (at === null || at === undefined) return;
    const value = step.values ? step.values[place] : null;
    if (!Array.isArray(value)) {
      fn(thread, at, step.width, value);
      return;
    }
    const bytes = step.width / value.length;
    value.forEach((one, j) => fn(thread, at + (step.space === "global" ? j : j * bytes), bytes, one));
  });
}

const readsMemory = (step) => step.kind === "load" || step.kind === "atomic";
const writesMemory = (step) => step.kind === "store" || step.kind === "atomic";

// A block's recording: its steps, where its lines and phases begin, and its state at a step.
class Recording {
  constructor(trace, number) {
    this.trace = trace;
    this.block = trace.blocks[number];
    this.steps = this.block.steps;
    this.last = this.steps.length - 1;
    this.threads = trace.block[0] * trace.block[1] * trace.block[2];
    this.arrays = trace.arrays;
    this.shared = this.numberCells(trace.shared || []);
    this.elementsOfC = this.elements();
    this.lines = this.starts((step, before) => step.line !== null && step.line !== before, "line");
    this.phases = this.starts((step, before) => step.phase !== before, "phase");
    this.tiles = new Map();
    this.counted = new Map();
    this.saved = [];
    this.now = -1;
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

  // A cell's array, row, column and byte offset.
  cell(number) {
    const array = this.shared.find((one) => number < one.first + one.count);
    const i = number - array.first;
    const row = Math.floor(i / array.columns);
    const column = i % array.columns;
    const name = array.rows > 1 ? `${array.name}[${row}][${column}]` : `${array.name}[${i}]`;
    return { array, row, column, name, offset: array.offset + i * array.element };
  }

  array(name) {
    return this.arrays.findIndex((one) => one.name === name);
  }

  // A global element's name, as a[2][5].
  element(name, at) {
    const array = this.arrays.find((one) => one.name === name);
    if (!array) return name ? `${name}[${at}]` : "global memory";
    if (!array.leading) return `${name}[${at}]`;
    return `${name}[${Math.floor(at / array.leading)}][${at % array.leading}]`;
  }

  // How many elements the block stores: as many threads an untiled product would take.
  elements() {
    const stored = new Set();
    this.owner = new Map();
    for (const step of this.steps) {
      if (step.space !== "global" || !writesMemory(step)) continue;
      eachAccess(step, (thread, at) => {
        stored.add(`${step.array} ${at}`);
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
    const a = this.arrays.find((one) => one.name === "a");
    return {
      value: new Array(this.cells).fill(null), // of each cell of shared memory
      writer: new Int32Array(this.cells).fill(-1), // thread
      when: new Int32Array(this.cells).fill(-1), // step
      reads: new Int32Array(this.cells), // since it was written
      stored: this.arrays.map(() => new Map()),
      result: new Array(this.threads).fill(null), // each thread's last
      ended: new Uint8Array(this.threads),
      columns: new Uint8Array(a ? a.columns : 0), // of A, read so far
      loads: 0,
      sectors: 0,
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
      stored: state.stored.map((map) => new Map(map)),
      result: state.result.slice(),
      ended: state.ended.slice(),
      columns: state.columns.slice(),
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
    if (step.kind === "compute" && step.values) {
      eachThread(step, (thread, place) => {
        const value = step.values[place];
        state.result[thread] = Array.isArray(value) ? value[0] : value;
      });
    } else if (step.kind === "end") {
      eachThread(step, (thread) => (state.ended[thread] = 1));
    } else if (step.space === "shared") {
      eachAccess(step, (thread, at, bytes, value) =>
        this.eachCell(at, bytes, (cell) => {
          if (readsMemory(step)) state.reads[cell] += 1;
          if (!writesMemory(step)) return;
          // An atomic's value is what it found, not what it left.
          state.value[cell] = step.kind === "store" ? value : null;
          state.writer[cell] = thread;
          state.when[cell] = this.now;
          if (step.kind === "store") state.reads[cell] = 0;
        }),
      );
    } else if (step.space === "global") {
      const array = this.array(step.array);
      if (readsMemory(step)) state.sectors += step.sectors || 0;
      eachAccess(step, (thread, at, bytes, value) => {
        if (readsMemory(step)) state.loads += 1;
        if (array < 0) return;
        if (step.kind === "store") state.stored[array].set(at, value);
        if (step.array === "a") state.columns[at % this.arrays[array].leading] = 1;
      });
    }
  }

  // Loads from global memory of the same elements of C, up to here, by a thread each that reads
  // its own row of A and column of B; null where the recording doesn't say.
  untiled(state) {
    const a = this.arrays.find((one) => one.name === "a");
    if (!a || !this.elementsOfC || this.arrays.length < 3) return null;
    const all = 2 * a.columns * this.elementsOfC;
    const phased = this.phases.length > 1;
    const soFar = 2 * state.columns.reduce((sum, one) => sum + one, 0) * this.elementsOfC;
    return { all, now: phased ? soFar : all, phased };
  }

  // The access that a step is of, with those of neighbouring steps that the machine code joins to
  // it: {at: each thread's first byte, threads, width, steps}. They make no request of their own.
  joined(number) {
    const step = this.steps[number];
    const [threads, at] = [[], []];
    eachThread(step, (thread, place) => {
      threads.push(thread);
      at.push(step.at[place]);
    });
    const found = { threads, at, width: step.width, steps: 1 };
    let [low, high] = [0, step.width];
    for (let i = number + 1; i < this.steps.length && this.steps[i].kind !== "barrier"; ++i) {
      const other = this.steps[i];
      if (other.kind !== step.kind || other.space !== "shared" || !other.at) continue;
      const apart = other.at[0] - step.at[0];
      const fits = Math.max(high, apart + other.width) - Math.min(low, apart) <= 16;
      const alike = other.at.length === at.length && other.at.every((one, j) => one - step.at[j] === apart);
      if (!fits || !alike) continue;
      if (other.requests) break;
      [low, high] = [Math.min(low, apart), Math.max(high, apart + other.width)];
      found.steps += 1;
    }
    found.at = at.map((one) => one + low);
    for (found.width = 1; found.width < high - low; ) found.width *= 2;
    return found;
  }

  // What the banks do for a step: {banks: bank -> words that it serves in turn for one warp, more
  // than it must; least: as few as it could be; steps}. Null where the recorded count of conflicts
  // is not what this way of counting gives.
  conflictsOf(number) {
    const step = this.steps[number];
    if (step.space !== "shared" || !step.conflicts || !step.at) return null;
    if (this.counted.has(number)) return this.counted.get(number);
    const access = this.joined(number);
    const words = Math.max(1, access.width / WORD);
    const warps = new Map(); // warp -> lane -> word
    access.threads.forEach((thread, i) => {
      const warp = Math.floor(thread / WARP);
      if (!warps.has(warp)) warps.set(warp, new Array(WARP).fill(-1));
      warps.get(warp)[thread % WARP] = Math.floor(access.at[i] / WORD);
    });
    const banks = new Map();
    let [conflicts, least] = [0, 0];
    for (const lanes of warps.values()) {
      // Lanes that are served at once: all of 4 bytes, half of 8, a quarter of 16; twice as many
      // of a load in which they want the same in pairs.
      const paired = (distance) =>
        lanes.every((word, i) => word < 0 || lanes[i ^ distance] < 0 || word === lanes[i ^ distance]);
      const twice = words > 1 && step.kind === "load" && (paired(1) || paired(2));
      const atOnce = (WARP / words) * (twice ? 2 : 1);
      const turns = new Map();
      const crowded = new Set();
      let parts = 0;
      for (let first = 0; first < WARP; first += atOnce) {
        const wanted = new Set();
        for (const word of lanes.slice(first, first + atOnce)) {
          for (let j = 0; word >= 0 && j < words; ++j) wanted.add(word + j);
        }
        const load = new Map();
        for (const word of wanted) load.set(word % BANKS, (load.get(word % BANKS) || 0) + 1);
        for (const [bank, many] of load) {
          turns.set(bank, (turns.get(bank) || 0) + many);
          if (many > 1) crowded.add(bank);
        }
        if (!load.size) continue;
        parts += 1;
        conflicts += Math.max(...load.values()) - 1;
      }
      least = Math.max(least, parts);
      for (const bank of crowded) banks.set(bank, Math.max(banks.get(bank) || 0, turns.get(bank)));
    }
    const found = conflicts === step.conflicts ? { banks, least, steps: access.steps } : null;
    this.counted.set(number, found);
    return found;
  }
}

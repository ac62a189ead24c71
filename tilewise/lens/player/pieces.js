// Where pieces of 16 bytes lie in shared memory, in lines of 128 bytes: all 32 banks once. And which
// of them a warp's lanes reach at once.

const LINE = 128; // bytes
const ACROSS = LINE / PIECE;
const MOST_LINES = 16;

// fn(first byte, bytes): what a step's warpgroup reads of a matrix in shared memory.
function eachRead(step, group, name, fn) {
  const found = step.reads && step.reads[name] && step.reads[name][group];
  if (!found) return;
  const [pattern, first] = found;
  for (const apart of trace.patterns[pattern]) fn(first + apart, PIECE);
}

// The place of a warp's warpgroup among those that run a step; -1 where it does not.
function groupOf(step, warp) {
  const groups = [...new Set(stepThreads(step).map((thread) => Math.floor(thread / (4 * WARP))))];
  return groups.indexOf(Math.floor(warp / 4));
}

const reachesPieces = (step) =>
  Boolean(step.reads || step.kind === "copy" && step.copy || (step.space === "shared" && step.at));

class Pieces {
  static isFor(recording) {
    return recording.steps.some((step) => step.reads || step.copy || (step.space === "shared" && (step.layout !== undefined || step.width === PIECE)));
  }

  constructor(parent) {
    parent.replaceChildren();
    this.group = 0; // of those lanes that are served at once
    const lines = Math.ceil((recording.words * WORD) / LINE);
    this.rows = Math.min(lines, MOST_LINES);
    this.last = []; // for each step, the one that reaches shared memory: itself, or the last before
    let last = recording.steps.findIndex(reachesPieces);
    recording.steps.forEach((step, i) => this.last.push((last = reachesPieces(step) ? i : last)));
    this.served = make(parent, "div", "served");
    make(this.served, "h3", "", "Served at once, a row each, in the banks of a column");
    this.turns = new Grid(this.served, {
      rows: 4,
      columns: ACROSS + 1,
      count: 4 * (ACROSS + 1),
      label: "How many different words each four banks serve, of the lanes that are served at once",
      tip: (i) => this.tipOfTurn(i),
      pick: (i) => this.choose(Math.floor(i / (ACROSS + 1))),
    });
    make(parent, "h3", "", recording.origins.arrays.size > 1 ? "Shared memory, 128 bytes a line, and what lies there: array, row and piece" : "Shared memory, 128 bytes a line, and what lies there, as row:piece of its array");
    this.lines = new Grid(parent, {
      rows: this.rows,
      columns: ACROSS + 1,
      count: this.rows * (ACROSS + 1),
      label: "Pieces of 16 bytes in shared memory, 128 bytes a line",
      tip: (i) => this.tipOfPiece(i),
      pick: (i) => this.look(i),
    });
    for (const grid of [this.turns, this.lines]) grid.element.classList.add("pieces");
    this.shown = [];
    this.now = null;
    const of = $("pieces-of");
    of.onchange = () => draw();
  }

  choose(group) {
    this.group = group;
    draw();
  }

  // The story of the first cell of a piece.
  look(i) {
    const line = this.shown[Math.floor(i / (ACROSS + 1))];
    const column = (i % (ACROSS + 1)) - 1;
    if (line === null || column < 0) return;
    let first = -1;
    recording.eachCell(line * LINE + column * PIECE, 1, (cell) => (first = first < 0 ? cell : first));
    if (first >= 0) pick({ kind: "cell", number: first });
  }

  fit(width) {
    const cell = Math.max(20, Math.min(Math.floor(width / (ACROSS + 1)), 56));
    this.turns.size(cell, 18);
    this.lines.size(cell, 18);
    this.lines.element.classList.toggle("narrow", cell < 48);
  }

  // The warp that is shown, or where that takes no part in a step, the first that does.
  warpOf(step) {
    const warps = stepThreads(step).map((thread) => Math.floor(thread / WARP));
    return warps.includes(shownWarp) || !warps.length ? shownWarp : warps[0];
  }

  // What a warp does in a step: {sets: [{name, pieces: piece -> words, banks}], all, name}.
  access(step, warp) {
    const sets = [];
    const all = new Set();
    const add = (name, lanes, reached) => {
      const one = { name, lanes, pieces: new Set(), banks: Array.from({ length: BANKS }, () => new Set()) };
      for (const [at, bytes] of reached) {
        for (let word = Math.floor(at / WORD); word * WORD < at + bytes; ++word) {
          one.banks[word % BANKS].add(word);
          one.pieces.add(Math.floor((word * WORD) / PIECE));
        }
      }
      for (const piece of one.pieces) all.add(piece);
      sets.push(one);
    };
    if (step.kind === "copy") {
      const { at, bytes } = step.copy;
      for (let piece = at / PIECE; piece < (at + bytes) / PIECE; ++piece) all.add(piece);
    } else if (step.reads) {
      eachRead(step, groupOf(step, warp), $("pieces-of").value, (at) => all.add(at / PIECE));
    } else {
      const lanes = new Array(WARP).fill(null);
      eachThread(step, (thread, place) => {
        const at = step.at[place]; // of another block's memory it is beyond this one's
        if (Math.floor(thread / WARP) === warp && at >= 0 && at < recording.words * WORD) lanes[thread % WARP] = at;
      });
      const atOnce = servedTogether(step, lanes.map((at) => (at === null ? -1 : Math.floor(at / WORD))), Math.max(1, step.width / WORD));
      for (let first = 0; first < WARP; first += atOnce) {
        const there = lanes.slice(first, first + atOnce).filter((at) => at !== null);
        const matrix = !step.rows ? "" : `Matrix ${first / 8}: `;
        const own = atOnce === WARP ? "all" : `${first}–${first + atOnce - 1}`;
        const name = `${matrix}${atOnce === WARP ? "all lanes" : `lanes ${own}`}`;
        if (there.length) add(name, own, there.map((at) => [at, step.width]));
      }
    }
    return { sets, all };
  }

  draw(state, step) {
    const number = this.last[position];
    const shown = recording.steps[number];
    $("pieces-of-label").hidden = !shown.reads;
    if (shown.reads) this.offer(Object.keys(shown.reads));
    const warp = this.warpOf(shown);
    const { sets, all } = this.access(shown, warp);
    this.group = Math.min(this.group, Math.max(0, sets.length - 1));
    const set = sets[this.group];
    this.served.hidden = !sets.length;
    this.now = { sets, set, shown };
    const crowded = (one, column) =>
      Math.max(...one.banks.slice(4 * column, 4 * column + 4).map((words) => words.size));
    for (let row = 0; row < 4; ++row) {
      const one = sets[row];
      const mark = one && row === this.group ? " picked" : "";
      this.turns.set(row * (ACROSS + 1), one ? "cell bank" : "cell none", one ? one.lanes : "");
      for (let column = 0; column < ACROSS; ++column) {
        const many = one ? crowded(one, column) : 0;
        const name = !one ? "cell none" : many > 1 ? "cell conflict" : many ? "cell read" : "cell";
        this.turns.set(row * (ACROSS + 1) + 1 + column, name + mark, many ? String(many) : "");
      }
    }
    this.choice(all, set);
    const write = writesMemory(shown) || shown.kind === "copy" && !shown.copy.store;
    this.shown.forEach((line, row) => {
      this.lines.set(row * (ACROSS + 1), "cell bank", line === null ? "" : String(line * LINE));
      for (let column = 0; column < ACROSS; ++column) {
        const place = row * (ACROSS + 1) + 1 + column;
        const piece = line === null ? -1 : line * ACROSS + column;
        if (piece < 0 || piece * PIECE >= recording.words * WORD) {
          this.lines.set(place, "cell none", "");
          continue;
        }
        const from = recording.origins.piece(state.origin[piece]);
        let name = "cell";
        if (set && set.pieces.has(piece)) name += crowded(set, column) > 1 ? " conflict" : write ? " write" : " read";
        else if (!set && all.has(piece) && !(write && from)) name += write ? " write" : " read";
        else if (from) name += ` tint${from.tint}`;
        else if (!recording.isWritten(state, piece * PIECE, PIECE)) name += " unwritten";
        if (all.has(piece) && !(set && set.pieces.has(piece))) name += " reached";
        if (from && from.label.length > 5) name += " long";
        this.lines.set(place, name, from ? from.label : "");
      }
    });
    setText($("pieces-note"), this.say(shown, number, warp, sets, set, all));
  }

  // Which lines are shown: those of the whole warp where they are few, else those of the lanes.
  choice(all, set) {
    const linesOf = (pieces) => [...new Set([...pieces].map((piece) => Math.floor(piece / ACROSS)))].sort((a, b) => a - b);
    let lines = linesOf(all);
    if (lines.length && lines[lines.length - 1] - lines[0] < this.rows) {
      const most = Math.ceil((recording.words * WORD) / LINE);
      const first = Math.max(0, Math.min(lines[0], most - this.rows));
      lines = Array.from({ length: this.rows }, (_, i) => first + i);
    } else if (set) {
      lines = linesOf(set.pieces);
    }
    this.shown = Array.from({ length: this.rows }, (_, i) => lines[i] ?? null);
  }

  offer(names) {
    const of = $("pieces-of");
    if (of.offered === names.join()) return;
    of.offered = names.join();
    of.replaceChildren(...names.map((name) => new Option(name, name)));
  }

  say(shown, number, warp, sets, set, all) {
    const step = number === position ? "" : `Step ${count(number + 1)}`;
    const who = shown.kind === "copy" || recording.threads <= WARP ? "" : `${step ? ", warp" : "Warp"} ${warp}`;
    const when = step || who ? `${step}${who}. ` : "";
    const cutOff = all.size > this.rows * ACROSS ? ` The first of ${times(Math.ceil(all.size / ACROSS), "line")}.` : "";
    if (shown.kind === "copy") return `${when}${times(all.size, "piece")} of a bulk copy.${cutOff}`;
    if (shown.reads) {
      const of = $("pieces-of").value;
      return `${when}The ${times(all.size, "piece")} of ${of} that the warpgroup multiplies.${cutOff}`;
    }
    if (!set) return when;
    const turns = (one) => Math.max(...one.banks.map((words) => words.size));
    const most = turns(set);
    const others = sets.length > 1 ? ` All ${sets.length} together: ${times(sets.reduce((sum, one) => sum + turns(one), 0), "wavefront")}.` : "";
    const one = `${set.name}: ${times(set.pieces.size, "piece")}`;
    if (most < 2) return `${when}${one}, in banks of their own: served at once.${others}`;
    return `${when}${one}, up to ${most} different words in one bank: ${most} turns.${others}`;
  }

  tipOfTurn(i) {
    const [row, column] = [Math.floor(i / (ACROSS + 1)), (i % (ACROSS + 1)) - 1];
    const one = this.now && this.now.sets[row];
    if (!one) return "no such lanes";
    if (column < 0) return one.name;
    const words = one.banks.slice(4 * column, 4 * column + 4).map((each) => each.size);
    return `${one.name}, banks ${4 * column} to ${4 * column + 3}: up to ${times(Math.max(...words), "word")} of a bank`;
  }

  tipOfPiece(i) {
    const line = this.shown[Math.floor(i / (ACROSS + 1))];
    const column = (i % (ACROSS + 1)) - 1;
    if (line === null || line === undefined) return "no line";
    const first = line * LINE + Math.max(0, column) * PIECE;
    if (column < 0) return `bytes ${first} to ${first + LINE - 1} of shared memory`;
    const from = recording.origins.piece(recording.state.origin[first / PIECE]);
    return `bytes ${first} to ${first + PIECE - 1}, banks ${4 * column} to ${4 * column + 3}${from ? `: ${from.name}` : ""}`;
  }
}

// Shared memory's banks, for one warp at a time, and the block's threads.

let shownWarp = 0; // whose accesses the banks show

function showWarp(warp) {
  shownWarp = warp;
  $("warp").value = String(warp);
}

class Banks {
  constructor(parent) {
    parent.replaceChildren();
    this.warps = Math.ceil(recording.threads / WARP);
    $("warp-label").hidden = this.warps === 1;
    $("warp").replaceChildren(...Array.from({ length: this.warps }, (_, i) => new Option(String(i), String(i))));
    showWarp(Math.min(shownWarp, this.warps - 1));
    const most = Pieces.isFor(recording) ? FEW_CELLS : MOST_CELLS;
    this.rows = Math.min(Math.ceil(recording.words / BANKS), most / BANKS);
    this.most = new Grid(parent, {
      rows: 1,
      columns: BANKS,
      count: BANKS,
      label: "Words that each bank serves one after another",
      tip: (i) => `bank ${i}`,
    });
    this.most.element.classList.add("most");
    this.words = new Grid(parent, {
      rows: this.rows,
      columns: BANKS,
      count: this.rows * BANKS,
      label: "The words of shared memory, a bank a column",
      tip: (i) => `bank ${i % BANKS}: bytes ${i * WORD} to ${i * WORD + WORD - 1}${this.names(i)}`,
    });
    // Where the kernel is about conflicts, beside the sentence that tells of them.
    $("banks-panel").classList.toggle("early", Boolean(recording.steps[recording.block.first || 0].conflicts));
    this.turns = new Turns($("turns"));
    this.beats = this.turns.beats;
    this.cells = this.words.cells.map((_, i) => {
      const found = [];
      recording.eachCell(i * WORD, WORD, (cell) => found.push(cell));
      return found;
    });
  }

  names(word) {
    const found = this.cells[word].map((cell) => recording.cell(cell).name);
    return found.length ? `, ${found.join(", ")}` : "";
  }

  fit(width) {
    const cell = Math.max(5, Math.min(Math.floor(width / BANKS), 18));
    this.most.size(cell, 18);
    this.words.size(cell, this.rows <= 8 ? 14 : Math.max(2, Math.min(7, Math.floor(MOST_HIGH / this.rows))));
    this.turns.fit(width);
    // Room for the longest note, so that nothing moves.
    const note = $("banks-note");
    const all = recording.steps.map((step, i) =>
      this.say({ conflicts: 99999 }, step, conflictsOf(recording, i)),
    );
    note.style.minHeight = "";
    setText(note, all.reduce((longest, text) => (text.length > longest.length ? text : longest)));
    note.style.minHeight = `${note.offsetHeight}px`;
  }

  draw(state, step) {
    const found = step.isAwaited ? null : conflictsOf(recording, position);
    const own = found && found.warps.get(shownWarp);
    const conflicts = own ? own.banks : new Map();
    const lit = new Map();
    if (step.space === "shared") {
      const name = writesMemory(step) ? "write" : "read";
      for (const word of own ? own.words : []) lit.set(word, name);
      eachAccess(step, (thread, at, bytes) => {
        if (Math.floor(thread / WARP) !== shownWarp) return;
        for (let word = Math.floor(at / WORD); word * WORD < at + bytes; ++word) lit.set(word, name);
      });
    }
    for (let bank = 0; bank < BANKS; ++bank) {
      const words = conflicts.get(bank);
      const fits = words !== undefined && (this.most.width >= 14 || words < 10);
      const label = bank % 4 === 0 && this.most.width >= 8 ? String(bank) : "";
      this.most.set(
        bank,
        words === undefined ? "cell bank" : "cell conflict",
        fits ? String(words) : words === undefined ? label : "",
      );
    }
    const mark = picked && picked.kind === "cell" ? picked.number : -1;
    this.cells.forEach((cells, word) => {
      let name = "cell";
      if (!cells.length) name += " none";
      else if (lit.has(word)) name += conflicts.has(word % BANKS) ? " conflict" : ` ${lit.get(word)}`;
      else if (cells.every((cell) => state.when[cell] < 0)) name += " unwritten";
      if (mark >= 0 && cells.includes(mark)) name += " picked";
      this.words.set(word, name);
    });
    setText($("banks-note"), this.say(state, step, found));
    this.turns.draw(step);
  }

  say(state, step, found) {
    const before = `${times(state.conflicts, "conflict")} so far.`;
    if (step.isAwaited) return `Before this step. ${before}`;
    if (step.space !== "shared") return `No access to shared memory in this step. ${before}`;
    // One of several neighbouring accesses that the machine code makes one wider one.
    if (!step.requests) return `Served by the wider access of a step before. ${before}`;
    const asked = times(step.requests, "request");
    const all = this.warps > 1 ? `All warps: ${asked}, ` : `${asked}, `;
    if (!step.conflicts) return `${all}no conflict. ${before}`;
    const told = `${all}${times(step.conflicts, "conflict")}; ${before}`;
    const own = found && found.warps.get(shownWarp);
    const who = `Warp ${shownWarp}`;
    if (!found) return told;
    if (!own) return `${who} takes no part in this step. ${told}`;
    if (!own.banks.size) return `${who}: no conflict. ${told}`;
    const [bank, words] = [...own.banks].reduce((most, one) => (one[1] > most[1] ? one : most));
    const least = own.least > 1 ? `; ${own.least} would be the fewest` : "";
    const wide = found.steps > 1 ? ` (with ${found.steps - 1} more accesses that follow, in one)` : "";
    return `${who}${wide}: bank ${bank} serves ${words} words in turn${least}. ${told}`;
  }
}

const MOST_HIGH = 192; // pixels of all words of shared memory, a bank a column
const MOST_WARPS = 8; // each with a grid of its own

class Threads {
  constructor(parent) {
    this.parent = parent;
    this.columns = 0;
  }

  fit(width) {
    // Rows of the block where whole ones make a warp: then the threads lie as their elements of C.
    // Of many warps, one a row.
    const across = trace.block[0];
    const rows = WARP % across === 0 && width / across >= 10;
    this.many = recording.threads > MOST_WARPS * WARP;
    const columns = this.many ? WARP : rows ? across : [32, 16, 8].find((one) => width / one >= 30) || 8;
    if (columns !== this.columns) {
      this.columns = columns;
      this.build();
    }
    const gap = 12;
    const size = (beside) => Math.floor((width - gap * (beside - 1)) / (columns * beside));
    let beside = this.warps.length;
    while (beside > 1 && size(beside) < TEXT) beside -= 1;
    const cell = Math.max(6, Math.min(size(beside), 46));
    for (const { grid } of this.warps) grid.size(cell, cell < TEXT ? cell : 24);
  }

  // Lets many warps, one a row, be so many pixels high.
  within(high) {
    if (!this.many) return;
    for (const { grid } of this.warps) {
      const most = Math.max(6, Math.floor(high / grid.rows));
      if (grid.width > most) grid.size(most);
    }
  }

  build() {
    this.parent.replaceChildren();
    this.parent.className = "flow";
    this.warps = [];
    const together = this.many ? recording.threads : WARP;
    for (let first = 0; first < recording.threads; first += together) {
      const count = Math.min(together, recording.threads - first);
      const box = make(this.parent, "div", "warp");
      const warp = first / WARP;
      const name = this.many ? `Warps 0–${Math.ceil(count / WARP) - 1}, one a row` : `Warp ${warp}`;
      make(box, "h3", "", `${name}: ${threadsInWords([...Array(count).keys()].map((i) => first + i))}`);
      const grid = new Grid(box, {
        rows: Math.ceil(count / this.columns),
        columns: this.columns,
        count,
        label: name,
        tip: (i) => this.tip(first + i),
        pick: (i) => pickThread(first + i),
      });
      this.warps.push({ first, grid });
    }
  }

  tip(thread) {
    const { state } = recording;
    const result = state.result[thread];
    const owns = recording.owner.get(thread);
    return (
      `thread ${thread} (${coordinates(thread)})${owns ? `, for ${owns}` : ""}: ` +
      (state.ended[thread] ? "has ended" : active(thread) ? "runs in this step" : state.waiting[thread] ? "waits at a barrier" : "does not run in this step") +
      (result === null ? "" : `, last result ${long(result)}`)
    );
  }

  draw(state, step) {
    const runs = new Uint8Array(recording.threads);
    eachThread(step, (thread) => (runs[thread] = 1));
    const mark = picked && picked.kind === "thread" ? picked.number : -1;
    for (const { first, grid } of this.warps) {
      for (let i = 0; i < grid.cells.length; ++i) {
        const thread = first + i;
        let name = "cell";
        if (step.fault && step.fault.thread === thread) name += " bad";
        else if (runs[thread]) name += " active";
        else if (state.waiting[thread]) name += " waits";
        else if (state.ended[thread]) name += " ended";
        if (thread === mark) name += " picked";
        const result = state.result[thread];
        grid.set(i, name, result === null ? "" : grid.number(result));
      }
    }
  }
}

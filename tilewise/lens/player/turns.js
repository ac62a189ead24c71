// The turns in which a warp's access to shared memory is served: each bank serves a word a turn.

// The turns of a warp in a step: [{first: whether it would be there without a conflict, banks: bank ->
// the first lane that wants the word}]. Which of a bank's words comes first is not documented; here it
// is the one of the lowest lane.
function turnsOf(recording, number, warp) {
  const step = recording.steps[number];
  if (step.space !== "shared" || !step.at || !step.requests) return [];
  const access = joined(recording, number);
  const words = Math.max(1, access.width / WORD);
  const lanes = new Array(WARP).fill(-1);
  access.threads.forEach((thread, i) => {
    if (Math.floor(thread / WARP) === warp && access.at[i] !== null) lanes[thread % WARP] = Math.floor(access.at[i] / WORD);
  });
  const atOnce = servedTogether(step, lanes, words);
  const found = [];
  for (let first = 0; first < WARP; first += atOnce) {
    const banks = new Map(); // bank -> word -> lane
    for (let lane = first; lane < first + atOnce; ++lane) {
      for (let j = 0; lanes[lane] >= 0 && j < words; ++j) {
        const word = lanes[lane] + j;
        if (!banks.has(word % BANKS)) banks.set(word % BANKS, new Map());
        const wanted = banks.get(word % BANKS);
        if (!wanted.has(word)) wanted.set(word, lane);
      }
    }
    const many = Math.max(0, ...[...banks.values()].map((wanted) => wanted.size));
    for (let turn = 0; turn < many; ++turn) {
      const served = new Map();
      for (const [bank, wanted] of banks) {
        if (turn < wanted.size) served.set(bank, [...wanted.values()][turn]);
      }
      found.push({ isFirst: turn === 0, banks: served });
    }
  }
  return found;
}

const SAMPLES = 3; // steps of an instruction that are looked at for the most turns it takes

class Turns {
  constructor(parent) {
    parent.replaceChildren();
    this.head = make(parent, "h3", "turning");
    this.rows = this.most();
    this.grid = new Grid(parent, {
      rows: this.rows,
      columns: BANKS,
      count: this.rows * BANKS,
      label: "The lane that each bank serves, a turn a row",
      tip: (i) => this.tip(Math.floor(i / BANKS), i % BANKS),
    });
    this.grid.element.classList.add("turns");
    this.beats = new Beats(parent, "turn", () => this.paint());
    this.turns = [];
  }

  // The rows that the grid needs: the most turns that a warp takes for one instruction.
  most() {
    const seen = new Map();
    let found = 1;
    recording.steps.forEach((step, i) => {
      const times = seen.get(step.i) || 0;
      if (step.space !== "shared" || times >= SAMPLES) return;
      seen.set(step.i, times + 1);
      const warps = new Set(stepThreads(step).map((thread) => Math.floor(thread / WARP)));
      for (const warp of warps) found = Math.max(found, turnsOf(recording, i, warp).length);
    });
    return Math.min(found, WARP);
  }

  fit(width) {
    const cell = Math.max(5, Math.min(Math.floor(width / BANKS), 18));
    roomFor(this.head, [this.title(10, this.rows, this.rows - 1)]);
    this.grid.size(cell, Math.max(7, Math.min(14, Math.floor(MOST_HIGH / this.rows))));
  }

  title(warp, turns, more) {
    const why = more ? `, ${more} of them for conflicts (striped)` : "";
    return `Warp ${warp}: ${times(turns, "turn")}${why}. Each row is a turn, and shows the lane that each bank serves`;
  }

  draw(step) {
    this.turns = step.isAwaited ? [] : turnsOf(recording, position, shownWarp);
    const many = this.turns.length;
    const more = this.turns.filter((turn) => !turn.isFirst).length;
    setText(this.head, many ? this.title(shownWarp, many, more) : "The turns in which banks serve a warp, one a row");
    this.beats.begin(`${position} ${shownWarp} ${many}`, Math.min(many, this.rows));
    this.paint();
  }

  paint() {
    const { now } = this.beats;
    const isText = this.grid.width >= 14;
    for (let row = 0; row < this.rows; ++row) {
      const turn = row < now ? this.turns[row] : null;
      for (let bank = 0; bank < BANKS; ++bank) {
        const lane = turn ? turn.banks.get(bank) : undefined;
        const name = lane === undefined ? "" : turn.isFirst ? " read" : " conflict";
        this.grid.set(row * BANKS + bank, `cell${row < Math.max(1, this.turns.length) ? "" : " none"}${name}`, lane === undefined || !isText ? "" : String(lane));
      }
    }
  }

  tip(row, bank) {
    const turn = this.turns[row];
    const lane = turn ? turn.banks.get(bank) : undefined;
    return lane === undefined ? `turn ${row + 1}: bank ${bank} rests` : `turn ${row + 1}: bank ${bank} serves lane ${lane}`;
  }
}

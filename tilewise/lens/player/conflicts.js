// Bank conflicts: which banks serve more words than they must, and for which accesses.

// The access that a step is of, with those of neighbouring steps that the machine code joins to
// it: {at: each thread's first byte, threads, width, steps}. They make no request of their own.
function joined(recording, number) {
  const step = recording.steps[number];
  const [threads, at] = [[], []];
  eachThread(step, (thread, place) => {
    threads.push(thread);
    at.push(step.at[place]);
  });
  const found = { threads, at, width: step.width, steps: 1 };
  if (step.rows) return found;
  let [low, high] = [0, step.width];
  for (let i = number + 1; i < recording.steps.length && recording.steps[i].kind !== "barrier"; ++i) {
    const other = recording.steps[i];
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

// How many lanes are served at once, of those of a warp that reach words: all of 4 bytes, half of 8,
// a quarter of 16; twice as many of a load in which they want the same in pairs; of ldmatrix and
// stmatrix the eight that give the rows of one matrix.
function servedTogether(step, lanes, words) {
  if (step.rows) return 8;
  const paired = (distance) =>
    lanes.every((word, i) => word < 0 || lanes[i ^ distance] < 0 || word === lanes[i ^ distance]);
  const twice = words > 1 && step.kind === "load" && (paired(1) || paired(2));
  return (WARP / words) * (twice ? 2 : 1);
}

// What the banks do for a step: {warps: warp -> {banks: bank -> words that it serves in turn, more
// than it must; least: as few as it could be; words: all that the warp wants; conflicts}; steps}.
// Null where the recorded count of conflicts is not what this way of counting gives.
function conflictsOf(recording, number) {
  const step = recording.steps[number];
  if (step.space !== "shared" || !step.conflicts || !step.at) return null;
  if (recording.counted.has(number)) return recording.counted.get(number);
  const access = joined(recording, number);
  const words = Math.max(1, access.width / WORD);
  const warps = new Map(); // warp -> lane -> word
  access.threads.forEach((thread, i) => {
    const warp = Math.floor(thread / WARP);
    if (!warps.has(warp)) warps.set(warp, new Array(WARP).fill(-1));
    if (access.at[i] !== null) warps.get(warp)[thread % WARP] = Math.floor(access.at[i] / WORD);
  });
  const counted = new Map();
  for (const [warp, lanes] of warps) {
    const atOnce = servedTogether(step, lanes, words);
    const turns = new Map();
    const crowded = new Set();
    const one = { banks: new Map(), least: 0, words: new Set(), conflicts: 0 };
    for (let first = 0; first < WARP; first += atOnce) {
      const wanted = new Set();
      for (const word of lanes.slice(first, first + atOnce)) {
        for (let j = 0; word >= 0 && j < words; ++j) wanted.add(word + j);
      }
      for (const word of wanted) one.words.add(word);
      const load = new Map();
      for (const word of wanted) load.set(word % BANKS, (load.get(word % BANKS) || 0) + 1);
      for (const [bank, many] of load) {
        turns.set(bank, (turns.get(bank) || 0) + many);
        if (many > 1) crowded.add(bank);
      }
      if (!load.size) continue;
      one.least += 1;
      one.conflicts += Math.max(...load.values()) - 1;
    }
    for (const bank of crowded) one.banks.set(bank, turns.get(bank));
    counted.set(warp, one);
  }
  const conflicts = [...counted.values()].reduce((sum, one) => sum + one.conflicts, 0);
  const found = conflicts === step.conflicts ? { warps: counted, steps: access.steps } : null;
  recording.counted.set(number, found);
  return found;
}

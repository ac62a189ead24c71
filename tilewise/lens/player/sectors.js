// What a warp asks of global memory in one access, and the sectors that this costs.

const SECTOR = 32; // bytes, aligned in memory

// Where an array's elements lie: {base, bytes}. Of memory that is no array's, ``at`` is in bytes.
function layout(array) {
  if (!array) return { base: 0, bytes: 1 };
  const bits = /\d+/.exec(array.dtype || "");
  return { base: array.address || 0, bytes: bits ? Number(bits[0]) / 8 : 4 };
}

const globalAccess = (step) => step.space === "global" && Boolean(step.at);

// A step's requests, a warp each: [{warp, threads, elements, bytes, sectors: sector -> how often}].
function requestsOf(recording, step) {
  const { base, bytes } = layout(recording.arrays[recording.array(step.array)]);
  const warps = new Map();
  eachThread(step, (thread, place) => {
    const warp = Math.floor(thread / WARP);
    if (!warps.has(warp)) {
      warps.set(warp, { warp, threads: 0, elements: new Set(), sectors: new Map(), same: new Map() });
    }
    const one = warps.get(warp);
    const at = step.at[place];
    one.threads += 1;
    for (let i = at; i < at + step.width / bytes; ++i) one.elements.add(i);
    // Threads that update one address atomically take turns, and each turn has its sectors anew.
    const turn = step.kind === "atomic" ? (one.same.get(at) || 0) + 1 : 1;
    one.same.set(at, turn);
    const from = base + at * bytes;
    for (let i = Math.floor(from / SECTOR); i * SECTOR < from + step.width; ++i) {
      one.sectors.set(i, Math.max(one.sectors.get(i) || 0, turn));
    }
  });
  return [...warps.values()].map((one) => ({ ...one, bytes: one.elements.size * Math.min(bytes, step.width) }));
}

const costOf = (request) => [...request.sectors.values()].reduce((sum, turns) => sum + turns, 0);

// The elements of an array in a sector: fn(at, whether it is the sector's first, its last).
function eachOfSector(array, sector, fn) {
  const { base, bytes } = layout(array);
  const first = Math.floor((sector * SECTOR - base) / bytes);
  const last = Math.ceil(((sector + 1) * SECTOR - base) / bytes) - 1;
  for (let at = Math.max(0, first); at <= last; ++at) {
    const inside = at % array.leading < array.columns && Math.floor(at / array.leading) < array.rows;
    if (inside && !(at >= array.count)) fn(at, at === first, at === last);
  }
}

// The access that is pointed at: {step, requests, request: the warp's}, or null. ``pointed`` is
// {array, holds: of an element, whether it is meant} or {line}.
function lookedAt(recording, position, pointed) {
  if (!pointed) return null;
  let number = position;
  let meant = () => true;
  if (pointed.line) {
    const all = recording.accesses.get(pointed.line);
    number = all.findLast((i) => i <= position) ?? all[0];
  } else {
    meant = (one) => [...one.elements].some(pointed.holds);
  }
  const step = recording.steps[number];
  if (!globalAccess(step)) return null;
  if (!pointed.line && step.array !== recording.arrays[pointed.array].name) return null;
  const requests = requestsOf(recording, step);
  const request = requests.find(meant);
  return request ? { step, requests, request } : null;
}

function sectorsInWords(recording, { step, requests, request }) {
  const array = recording.arrays[recording.array(step.array)];
  const { elements, bytes, threads } = request;
  const verb = { load: "ask for", store: "store", atomic: "update" }[step.kind];
  const what = array
    ? `${times(elements.size, "element")} of ${called(array)} (${times(bytes, "byte")})`
    : times(bytes, "byte");
  const cost = costOf(request);
  const used = bytes / (SECTOR * cost);
  const share = used === 1 ? "all used" : `${Number((100 * used).toFixed(1))} % used`;
  const line = step.line === null ? "" : `, line ${step.line}`;
  const said =
    `Warp ${request.warp}${line}: ${times(threads, "thread")} ${threads === 1 ? verb.replace(/^\w+/, "$&s") : verb} ${what} ` +
    `in ${times(cost, "sector")} (${times(SECTOR * cost, "byte")}): ${share}.`;
  const all = requests.reduce((sum, one) => sum + costOf(one), 0);
  if (all !== step.sectors) return `${said} (The run counted ${times(step.sectors, "sector")} for this step.)`;
  return requests.length === 1 ? said : `${said} The step's ${requests.length} warps: ${times(all, "sector")}.`;
}

// The sentence below the matrices.
class Sectors {
  constructor(box) {
    this.box = box;
    this.hint = recording.accesses.size
      ? "Point at an element that this step loads or stores, or at a line whose number is underlined, for a warp's sectors."
      : "No line of this recording reaches global memory.";
  }

  // Room for the longest of what the instructions do at first, so that nothing below moves.
  fit() {
    const firsts = new Map();
    for (const step of recording.steps) {
      if (globalAccess(step) && !firsts.has(step.i)) firsts.set(step.i, step);
    }
    this.box.style.minHeight = "";
    let most = 0;
    for (const step of firsts.values()) {
      const requests = requestsOf(recording, step);
      setText(this.box, sectorsInWords(recording, { step, requests, request: requests.at(-1) }));
      most = Math.max(most, this.box.offsetHeight);
    }
    setText(this.box, this.hint);
    this.box.style.minHeight = `${Math.max(most, this.box.offsetHeight)}px`;
  }

  draw() {
    setText(this.box, looked ? sectorsInWords(recording, looked) : this.hint);
  }
}

// A warp's access to global memory in sectors of 32 bytes, beside the fewest that its bytes could lie in.

const MOST_SECTORS = 32; // the most sectors that are drawn
const SLOTS = 8; // parts of a sector, 4 bytes each

// The sectors of a request, each with which of its slots are asked for.
function slotsOf(recording, step, request) {
  const { base, bytes } = layout(recording.arrays[recording.array(step.array)]);
  const found = new Map([...request.sectors.keys()].sort((a, b) => a - b).map((sector) => [sector, new Set()]));
  for (const at of request.elements) {
    const first = base + at * bytes;
    for (let byte = first; byte < first + Math.min(bytes, step.width); byte += Math.min(4, bytes)) {
      const sector = found.get(Math.floor(byte / SECTOR));
      if (sector) sector.add(Math.floor((byte % SECTOR) / (SECTOR / SLOTS)));
    }
  }
  return [...found.values()];
}

// The sectors that as many bytes would take if they were contiguous from the start of a sector.
function fewest(bytes) {
  const count = Math.ceil(bytes / SECTOR);
  const slot = SECTOR / SLOTS;
  return Array.from({ length: count }, (_, i) =>
    new Set(Array.from({ length: Math.min(SLOTS, Math.ceil((bytes - i * SECTOR) / slot)) }, (_, j) => j)),
  );
}

class Requests {
  static isFor(recording) {
    return recording.steps.some(globalAccess);
  }

  constructor(parent) {
    parent.replaceChildren();
    this.last = [];
    let last = recording.steps.findIndex(globalAccess);
    recording.steps.forEach((step, i) => this.last.push((last = globalAccess(step) ? i : last)));
    this.rows = ["own", "best"].map((name) => {
      const box = make(parent, "div", `request ${name}`);
      const head = make(box, "h3");
      const strip = make(box, "div", "sectors");
      strip.setAttribute("aria-hidden", "true"); // its heading says it
      return { head, strip, shown: "" };
    });
    this.most = Math.max(1, ...recording.steps.filter(globalAccess).map((step) => Math.min(MOST_SECTORS, Math.ceil(step.sectors / Math.max(1, step.requests)))));
    parent.style.setProperty("--lines", String(Math.ceil(this.most / 16)));
  }

  // The access that is pointed at, or the last one of the warp that is shown.
  draw() {
    let number = this.last[position];
    let [step, request] = [recording.steps[number], null];
    if (looked) [step, request] = [looked.step, looked.request];
    const requests = looked ? looked.requests : requestsOf(recording, step);
    request ||= requests.find((one) => one.warp === shownWarp) || requests[0];
    const when = looked || number === position ? "This" : number < position ? "The last" : "The next";
    const [own, best] = [slotsOf(recording, step, request), fewest(request.bytes)];
    const [told, fewer] = this.say(when, step, request, own.length, best.length);
    this.fill(0, own, told);
    this.fill(1, best, fewer);
  }

  say(when, step, request, own, best) {
    const array = recording.arrays[recording.array(step.array)];
    const what = { load: "load", store: "store", atomic: "update" }[step.kind];
    const share = (100 * request.bytes) / (SECTOR * own);
    const used = share < 100 ? ` (${Number(share.toFixed(1))} % used)` : "";
    const bytes = times(request.bytes, "byte");
    return [
      `${when} ${what}${array ? ` of ${called(array)}` : ""}, warp ${request.warp}: ${times(own, "sector")} for ${bytes}${used}`,
      `The fewest for ${bytes}: ${times(best, "sector")}${own > best ? "" : ", as here"}`,
    ];
  }

  // Room for the longest text of the first step of each instruction.
  fit() {
    const firsts = new Map();
    for (const step of recording.steps) if (globalAccess(step) && !firsts.has(step.i)) firsts.set(step.i, step);
    const said = [...firsts.values()].map((step) => {
      const request = requestsOf(recording, step).at(-1);
      return this.say("The next", step, request, request.sectors.size, fewest(request.bytes).length);
    });
    this.rows.forEach(({ head }, row) => roomFor(head, said.map((both) => both[row])));
  }

  fill(row, sectors, text) {
    const { head, strip } = this.rows[row];
    setText(head, text);
    const shown = sectors.slice(0, MOST_SECTORS).map((slots) => Array.from({ length: SLOTS }, (_, i) => (slots.has(i) ? 1 : 0)).join("")).join(" ");
    if (this.rows[row].shown === shown) return;
    this.rows[row].shown = shown;
    strip.replaceChildren();
    for (const slots of shown.split(" ")) {
      const box = make(strip, "span", "sector");
      for (const slot of slots) make(box, "i", slot === "1" ? "used" : "");
    }
  }
}

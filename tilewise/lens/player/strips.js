// What happens over all steps, in strips below one another: the stages of a ring, and the warps.
// Steps that only compute, on no matrices, have no room in them.

const STRIP = 14; // pixels high
const MOST_PIECES = 4; // of a stage, that are named one by one

const hasRoom = (step) => !["other", "branch", "compute"].includes(step.kind);

// Where steps are along a strip: how many that have room are before each, and all of them.
function axisOf(steps) {
  const before = [0];
  for (const step of steps) before.push(before[before.length - 1] + (hasRoom(step) ? 1 : 0));
  return { before, all: Math.max(1, before[steps.length]) };
}

const warpsInWords = (warps) => (warps.length === 1 ? `warp ${warps[0]}` : `warps ${runs(warps)}`);

class Strips {
  // What comes can be read off them, too.
  showsAll = true;

  constructor(parent) {
    parent.replaceChildren();
    this.axis = axisOf(recording.steps);
    this.rows = this.parts().map(({ label, segments, now }) => {
      const box = make(parent, "div", "strip");
      const head = make(box, "p");
      make(head, "span", "", label);
      const says = make(head, "b");
      const track = make(box, "div", "track");
      const canvas = make(track, "canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${label}, over all steps`);
      const cursor = make(track, "div", "cursor");
      track.addEventListener("click", (event) => {
        const { left, width } = track.getBoundingClientRect();
        const wanted = Math.floor(((event.clientX - left) / width) * this.axis.all);
        play(false);
        go(this.axis.before.findIndex((many) => many > wanted) - 1);
      });
      return { segments, now, says, canvas, cursor };
    });
    const legend = make(parent, "ul", "legend across");
    for (const [name, text] of this.legend()) {
      const item = make(legend, "li");
      make(item, "span", `cell sample ${name}`);
      make(item, "span", "", text);
    }
    // Canvases have the colours of when they were painted.
    matchMedia("(prefers-color-scheme: dark)").onchange = () => fit();
  }

  fit(width) {
    const style = getComputedStyle(document.body);
    const colours = Object.fromEntries(
      ["text", "muted", "line", "read", "write", "conflict", "active", "of-a", "of-b", "of-c"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
    const ratio = window.devicePixelRatio || 1;
    for (const { segments, canvas } of this.rows) {
      canvas.width = Math.round(width * ratio);
      canvas.height = STRIP * ratio;
      const pen = canvas.getContext("2d");
      const { before, all } = this.axis;
      const step = canvas.width / all;
      for (const [from, to, name] of segments) {
        const [colour, high] = this.paint[name];
        pen.fillStyle = colours[colour];
        if (before[from] === before[to + 1]) continue;
        const left = Math.floor(before[from] * step);
        const tall = Math.round(canvas.height * high);
        pen.fillRect(left, (canvas.height - tall) / 2, Math.max(ratio, Math.ceil(before[to + 1] * step) - left), tall);
      }
    }
  }

  draw() {
    const { before, all } = this.axis;
    const at = `${((50 * (before[position] + before[position + 1])) / all).toFixed(3)}%`;
    for (const { now, says, cursor } of this.rows) {
      cursor.style.left = at;
      setText(says, now());
    }
  }
}

// The stages that asynchronous copies fill: empty, filling, full, being read.
class Stages extends Strips {
  static isFor(recording) {
    return Boolean(recording.block.stages);
  }

  get paint() {
    return { fill: ["write", 0.5], full: ["of-c", 1], read: ["read", 1] };
  }

  legend() {
    return [["write", "copies are under way"], ["full", "full"], ["read", "read"], ["", "empty, or not needed any more"]];
  }

  parts() {
    return recording.block.stages.map(({ bytes, fills }, i) => {
      const segments = [];
      for (const { begin, full, read } of fills) {
        segments.push([begin, full, "fill"]);
        if (!read.length) continue;
        if (read[0] > full + 1) segments.push([full + 1, read[0] - 1, "full"]);
        segments.push([read[0], read[1], "read"]);
      }
      const ends = bytes.map(([first, many]) => [first, first + many - 1]);
      const isLong = ends.length > MOST_PIECES;
      const said = isLong ? [[ends[0][0], ends.at(-1)[1]]] : ends;
      const pieces = isLong ? `, in ${count(ends.length)} pieces` : "";
      const where = said.map(([from, to]) => `${count(from)}–${count(to)}`).join(", ") + pieces;
      return { label: `Stage ${i}: bytes ${where}`, segments, now: () => this.now(fills) };
    });
  }

  now(fills) {
    const fill = fills.findLast(({ begin }) => begin <= position);
    if (!fill) return "empty";
    const nth = fills.length > 1 ? ` (fill ${fills.indexOf(fill) + 1} of ${fills.length})` : "";
    const { full, read } = fill;
    const who = fill.writers.map((warp) => (warp < 0 ? "another block" : `warp ${warp}`));
    const writers = who.length > 2 ? warpsInWords(fill.writers.filter((warp) => warp >= 0)) : who.reverse().join(" and ");
    if (position <= full) return `filled by ${writers}${nth}`;
    if (!read.length) return `full, and never read${nth}`;
    if (position < read[0]) return `full, for ${warpsInWords(fill.readers)}${nth}`;
    return position <= read[1] ? `read by ${warpsInWords(fill.readers)}${nth}` : "empty: read by all who need it";
  }
}

// The warps, those that run the same steps as one: what each does, and what it waits for.
class Warps extends Strips {
  static isFor(recording) {
    return recording.steps.some((step) => step.sync || step.copy);
  }

  get paint() {
    return {
      copy: ["write", 1], matrix: ["read", 1], shared: ["of-b", 0.7],
      store: ["of-c", 1], signal: ["text", 1], wait: ["conflict", 0.3],
    };
  }

  legend() {
    return [
      ["wait", "waits"], ["write", "copies or loads"], ["read", "multiplies"], ["of-shared", "shared memory"],
      ["full", "stores or ends"], ["signal", "tells others"], ["", "computes, or others run"],
    ];
  }

  parts() {
    const warps = Array.from({ length: Math.ceil(recording.threads / WARP) }, () => []);
    recording.steps.forEach((step, i) => {
      const seen = new Set();
      for (const [first, many] of step.threads) {
        for (let warp = Math.floor(first / WARP); warp * WARP < first + many; ++warp) seen.add(warp);
      }
      for (const warp of seen) warps[warp].push(i);
    });
    const groups = new Map();
    warps.forEach((steps, warp) => {
      const key = steps.join();
      if (!groups.has(key)) groups.set(key, { steps, warps: [] });
      groups.get(key).warps.push(warp);
    });
    return [...groups.values()].map(({ steps, warps: who }) => {
      const label = warpsInWords(who);
      return {
        label: label[0].toUpperCase() + label.slice(1),
        segments: this.segments(steps),
        now: () => this.now(steps),
      };
    });
  }

  does(step) {
    const { kind, space, sync } = step;
    if (kind === "matrix") return "matrix";
    if (kind === "copy" || (kind === "load" && space === "global")) return "copy";
    if (kind === "barrier" || (sync && sync.do === "wait")) return "wait";
    if (sync) return "signal";
    if (space === "shared") return "shared";
    return hasRoom(step) ? "store" : "other";
  }

  // Whether those who run a step stay there until others do something.
  holds(step) {
    return step.kind === "barrier" ? step.scope !== "warp" : Boolean(step.sync && step.sync.passes === false);
  }

  segments(steps) {
    const found = [];
    steps.forEach((number, i) => {
      const step = recording.steps[number];
      const next = i + 1 < steps.length ? steps[i + 1] - 1 : number;
      if (hasRoom(step)) found.push([number, this.holds(step) ? next : number, this.does(step)]);
    });
    // Waits are painted first: what is done must not vanish behind them.
    return found.sort((a, b) => (b[2] === "wait") - (a[2] === "wait"));
  }

  now(steps) {
    const last = steps.findLast((number) => number <= position);
    if (last === undefined) return "not begun";
    const step = recording.steps[last];
    if (step.kind === "end") return "has ended";
    const words = this.words(step);
    if (last === position || this.holds(step)) return words;
    return `other warps run (last: ${words})`;
  }

  words(step) {
    const { sync } = step;
    const names = sync && sync.names ? [...sync.names, ...(sync.far ? ["another block's"] : [])].join(" and ") : "";
    const groups = { "cp.async": "its copies", bulk: "its bulk copies", wgmma: "its products" };
    if (step.kind === "barrier") return step.scope === "warp" ? "meets in its warp" : "waits at the barrier";
    if (sync && sync.on === "mbarrier") {
      if (sync.do !== "wait") return { arrive: "arrives at", expect: "expects bytes at", init: "initialises" }[sync.do] + ` ${names}`;
      return sync.passes ? `passes ${names}` : `waits at ${names}`;
    }
    if (sync && sync.on === "cluster") return sync.do === "wait" ? "waits for the cluster" : "arrives at the cluster's barrier";
    if (sync && sync.do === "commit") return `closes a group of ${groups[sync.on]}`;
    if (sync) return `waits for ${groups[sync.on]}${sync.allowed ? ` but ${times(sync.allowed, "group")}` : ""}`;
    return {
      matrix: "multiplies", copy: step.copy ? "starts a bulk copy" : "loads", shared: step.kind === "load" ? "reads shared memory" : "writes shared memory",
      store: "stores", other: "computes",
    }[this.does(step)];
  }
}

// Two kernels side by side. The views read the same global names as in the page of one kernel. Here the
// names stand for one of the two kernels at a time; see inScene().

let trace, costs, recording;
let position = 0;
let picked = null;
let pointed = null;
let looked = null;
let views = [];
const $ = (id) => document.getElementById(id);
const [pick, pickElement] = [() => {}, () => {}]; // a cell has its tip here, and no story

let scenes = []; // the two kernels: {trace, costs, recording, views, position, parts}
let pairs = []; // pairs of blocks: {blocks, ticks, fair}
let pair = null; // the blocks that are shown: one of ``pairs``
let now = 0; // tick

// Makes the names stand for a scene, and calls ``fn``.
function inScene(scene, fn) {
  ({ trace, costs, recording, views, position } = scene);
  return fn();
}

// ---- one kernel's pane ----

function paneOf(side, title) {
  const box = $(`pane${side}`);
  box.replaceChildren();
  const part = (name, tag = "div", className = name) => make(box, tag, className);
  const head = part("h", "h2");
  head.id = `h-pane${side}`;
  const key = make(head, "i", `key ${side ? "there" : "here"}`);
  key.setAttribute("aria-hidden", "true");
  make(head, "span", "", title);
  const parts = { size: part("note", "p"), told: part("told", "p"), say: part("say", "p"), code: part("code", "p") };
  for (const name of ["arrays", "shared", "sum", "turns", "requests"]) {
    parts[name] = make(part(`panel ${name}`), "div", "", "");
  }
  return parts;
}

function sizeOf({ problem, grid, block }) {
  const extent = (all) => all.filter((one, i) => i < 2 || one > 1).join(" × ");
  const threads = `blocks of ${extent(block)} threads`;
  return problem
    ? `${problem.dtype}, ${problem.tile ? `tile ${problem.tile}, ` : ""}${threads}`
    : `grid ${extent(grid)}, ${threads}`;
}

const haveConflicts = () =>
  scenes.some((scene) => pair.blocks.some((number) => scene.trace.blocks[number].steps.some((step) => step.conflicts)));

function openScene(scene, side, number) {
  const { parts } = scene;
  inScene(scene, () => (scene.recording = new Recording(trace, number, costs[number])));
  scene.position = 0;
  scene.views = [];
  inScene(scene, () => {
    setText(parts.size, sizeOf(trace));
    setText(parts.told, scene.told);
    parts.told.hidden = scenes.every(({ told }) => !told);
    parts.told.classList.toggle("cut", /^(WRONG|FAULT)/.test(scene.told));
    const kinds = [[Arrays, "arrays", true], [Shared, "shared", recording.cells], [Sum, "sum", Sum.isFor(recording)],
      [Turns, "turns", recording.cells && haveConflicts()], [Requests, "requests", Requests.isFor(recording)]];
    for (const [Kind, name, isThere] of kinds) {
      parts[name].parentElement.hidden = !isThere;
      if (!isThere) continue;
      const view = new Kind(parts[name]);
      view.box = parts[name];
      views.push(view);
    }
    scene.lines = trace.source.split("\n").map((text, i) => `${i + 1}  ${text.trim()}`);
  });
}

function drawScene(scene) {
  inScene(scene, () => {
    const state = recording.seek(position);
    const step = recording.steps[position];
    for (const view of views) view.draw(state, step);
    setText(scene.parts.say, step.say || "");
    let at = position;
    while (at > 0 && recording.steps[at].line === null) at -= 1;
    const { line } = recording.steps[at];
    setText(scene.parts.code, line === null ? "" : scene.lines[line - 1] || "");
  });
}

// ---- what both cost ----

const COSTS = {
  sectors: "sectors read", loads: "values loaded", requests: "requests of loads",
  wavefronts: "wavefronts of shared memory", barriers: "barriers, a warp each",
};

class Both {
  constructor() {
    // Blocks that store different numbers of elements are compared by what each element costs.
    const elements = scenes.map(({ recording: one }) => one.elementsOfC);
    const cut = scenes.some(({ recording: one }) => one.block.cut);
    // A kernel that stops at a fault has not done its whole work: a share of it is no measure.
    this.stopped = scenes.filter(({ recording: one }) => one.steps[one.last].kind === "fault").map((one) => one.title);
    this.isEach = elements.every(Boolean) && !cut && scenes.every((one) => one.trace.problem);
    this.parts = this.isEach ? elements : [1, 1];
    const select = $("cost");
    if (!select.options.length) for (const [name, text] of Object.entries(COSTS)) select.append(new Option(text, name));
    select.onchange = () => this.paint();
    select.value = this.telling();
    const table = $("costs-table");
    table.replaceChildren();
    const head = make(make(table, "thead"), "tr");
    const each = this.isEach ? "an element of C" : "the block";
    for (const text of [each, ...scenes.map((one) => one.title), "compared"]) make(head, "th", "", text);
    const body = make(table, "tbody");
    this.rows = Object.entries(COSTS).map(([name, text]) => {
      const row = make(body, "tr");
      make(row, "th", "", text);
      return { name, cells: [0, 1, 2].map(() => make(row, "td")) };
    });
    this.paint();
  }

  // The cost whose ratio is furthest from 1; costs that are 0 for one kernel have no ratio.
  telling() {
    const ratio = (name) => {
      const [one, other] = scenes.map(({ recording: each }, side) => this.cost(side, name, each.last));
      return one && other ? Math.max(one / other, other / one) : 1;
    };
    return Object.keys(COSTS).reduce((most, name) => (ratio(name) > ratio(most) ? name : most));
  }

  cost(side, name, step) {
    return scenes[side].recording.sums[name][step] / this.parts[side];
  }

  paint() {
    const name = $("cost").value || "sectors";
    const box = $("costs-chart");
    box.replaceChildren();
    const most = Math.max(...scenes.map(({ recording: one }, side) => this.cost(side, name, one.last))) || 1;
    this.move = chart(box, `${COSTS[name]}, over the share of the work that is done`, scenes.map(({ recording: one }, side) => ({
      name: side ? "there" : "here",
      points: pointsOf(one.sums.work, one.sums[name].map((sum) => sum / this.parts[side]), most),
      marks: (this.stopped.length ? [] : pair.fair).map(({ share, steps }) => [share, this.cost(side, name, steps[side]) / most]),
    })));
    this.draw();
  }

  draw() {
    const done = scenes.map(({ recording: one, position: at }) => one.sums.work[at] / (one.sums.work[one.last] || 1));
    this.move(Math.min(...done));
    const passed = ({ steps }) => steps.every((step, side) => step <= scenes[side].position);
    const fair = this.stopped.length ? null : pair.fair.findLast(passed);
    for (const { name, cells } of this.rows) {
      scenes.forEach(({ position: at }, side) => setText(cells[side], amount(this.cost(side, name, at))));
      const [one, other] = fair ? fair.steps.map((step, side) => this.cost(side, name, step)) : [0, 0];
      setText(cells[2], !fair ? "" : compared(one, other));
    }
    setText($("costs-note"), this.note(fair));
  }

  note(fair) {
    if (this.stopped.length) return `Not compared: ${this.stopped.join(" and ")} ${this.stopped.length > 1 ? "stop" : "stops"} at a fault, with a part of the work done.`;
    if (!fair) return "Compared where a phase of either ends: before, not all that is loaded is used.";
    const share = Number((100 * fair.share).toFixed(1));
    const end = fair.share === 1 ? "at the end" : `where both had done ${share} % of their work`;
    return `Compared ${end}: ${scenes[0].title} to ${scenes[1].title}.`;
  }

  fit() {
    roomFor($("costs-note"), [null, ...pair.fair].map((fair) => this.note(fair)));
  }
}

const amount = (value) => (Number.isInteger(value) ? count(value) : value >= 100 ? value.toFixed(0) : value.toPrecision(3));

function compared(one, other) {
  if (one === other) return "equal";
  if (!one || !other) return `${amount(one)} to ${amount(other)}`;
  const ratio = one > other ? one / other : other / one;
  return `${Number(ratio.toPrecision(3))} × as ${one > other ? "many" : "few"}`;
}

let both = null;

// ---- where we are ----

function draw() {
  scenes.forEach((scene, side) => {
    scene.position = pair.ticks[now][side];
    drawScene(scene);
  });
  both.draw();
  const slider = $("slider");
  if (slider.valueAsNumber !== now) slider.value = String(now);
  const of = `Step ${count(now + 1)} of ${count(pair.ticks.length)}`;
  slider.setAttribute("aria-valuetext", of);
  setText($("position"), of);
  if (tipped) showTip();
  document.body.dataset.step = String(now);
}

function go(to) {
  now = Math.max(0, Math.min(pair.ticks.length - 1, to));
  draw();
}

const atEnd = () => now === pair.ticks.length - 1;
const advance = (steps) => go(now + steps);

// The ticks at which both kernels have reached a point of comparison.
const stops = () =>
  pair.fair.map(({ steps }) => pair.ticks.findIndex((tick) => tick.every((at, side) => at >= steps[side])));

const MOVES = {
  start: () => go(0),
  end: () => go(pair.ticks.length - 1),
  back: () => go(now - 1),
  forward: () => go(now + 1),
  "phase-back": () => go(stops().findLast((at) => at < now) ?? 0),
  "phase-forward": () => go(stops().find((at) => at > now) ?? pair.ticks.length - 1),
};
const KEYS = {
  ArrowLeft: "back", ArrowRight: "forward", ",": "back", ".": "forward", "[": "phase-back", "]": "phase-forward",
  Home: "start", End: "end",
};

// ---- keys, clicks and tips ----

for (const [id, move] of Object.entries(MOVES)) {
  $(id).addEventListener("click", () => {
    play(false);
    move();
  });
}
$("play").addEventListener("click", () => play(!playing));
$("help").addEventListener("click", () => $("keys").showModal());
$("slider").addEventListener("input", () => {
  play(false);
  go($("slider").valueAsNumber);
});
$("block").addEventListener("change", () => open(Number($("block").value)));
for (const place of ["buttons", "pane0", "pane1"]) {
  $(place).addEventListener("mousedown", (event) => {
    if (!event.target.closest("select, label")) event.preventDefault();
  });
}

function cellOf(target) {
  const cell = target && target.closest && target.closest(".grid .cell");
  return cell && cell.closest(".pane") ? { cell, grid: cell.closest(".grid").grid } : null;
}

const sceneOf = ({ cell }) => scenes[Number(cell.closest(".pane").id.slice(-1))];

let tipped = null;

function showTip() {
  const box = $("tip");
  const { cell, grid } = tipped;
  setText(box, inScene(sceneOf(tipped), () => grid.tip(cell.place)));
  box.hidden = false;
  box.style.left = "0";
  const at = cell.getBoundingClientRect();
  const above = at.top - box.offsetHeight - 6;
  box.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${above > 4 ? above : at.bottom + 6}px`;
}

function point(target) {
  tipped = cellOf(target);
  if (tipped) showTip();
  else $("tip").hidden = true;
}

document.addEventListener("pointerover", (event) => point(event.target));
document.addEventListener("pointerleave", () => point(null));
document.addEventListener("focusin", (event) => point(event.target));
document.addEventListener("focusout", () => point(null));
document.addEventListener("scroll", () => point(null), { passive: true });

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  const isBracket = (key === "[" || key === "]") && event.altKey && !event.metaKey;
  if (!isBracket && (event.ctrlKey || event.altKey || event.metaKey)) return;
  if (target.matches("select") || $("keys").open) return;
  const found = cellOf(target);
  if (found && found.grid.pick && !event.shiftKey) {
    const { grid } = found;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }[key];
    if (by !== undefined) {
      event.preventDefault();
      inScene(sceneOf(found), () => grid.focus(grid.current + by));
      return;
    }
  }
  if (key === "Escape" && found) target.blur();
  if (key === "?") $("keys").showModal();
  if (key === " " && !target.matches("button")) {
    event.preventDefault();
    play(!playing);
  }
  const move = KEYS[key];
  if (!move) return;
  event.preventDefault();
  play(false);
  MOVES[move]();
});

// ---- opening ----

function fit() {
  for (const scene of scenes) {
    inScene(scene, () => {
      for (const view of views) if (view.fit) view.fit(view.box.clientWidth);
      // Room for the longest sentence, so that nothing below moves.
      roomFor(scene.parts.say, recording.steps.map((step) => step.say || ""));
      roomFor(scene.parts.code, scene.lines);
    });
  }
  both.fit();
  document.body.style.setProperty("--bar", `${$("controls").offsetHeight}px`);
  draw();
}

function open(number) {
  play(false);
  point(null);
  pair = pairs[number];
  now = 0;
  scenes.forEach((scene, side) => {
    openScene(scene, side, pair.blocks[side]);
    scene.position = pair.ticks[0][side];
  });
  // One legend for both on a small screen: the longer of theirs.
  const legends = [...document.querySelectorAll(".pane .legend")].sort((a, b) => b.children.length - a.children.length);
  $("legend").replaceChildren(...[...legends[0].children].map((item) => item.cloneNode(true)));
  both = new Both();
  $("slider").max = String(pair.ticks.length - 1);
  // Open at the first point of comparison, where there is something to see.
  now = stops()[0];
  fit();
}

async function start() {
  try {
    const data = JSON.parse(await window.unpacked("trace"));
    pairs = data.pairs;
    scenes = data.traces.map((one, side) => ({ trace: one, costs: data.costs[side], title: data.titles[side], told: data.told[side] }));
  } catch (error) {
    $("wait").textContent = `The recording in this page can't be read: ${error.message}`;
    return;
  }
  document.body.classList.remove("waiting");
  document.body.classList.add("beside");
  const [{ trace: one }] = scenes;
  make($("title"), "span", "", `${scenes[0].title} beside ${scenes[1].title} `);
  const { problem } = one;
  if (problem) make($("title"), "small", "", `C ${problem.m} × ${problem.n} = A ${problem.m} × ${problem.k} · B ${problem.k} × ${problem.n}`);
  const units = [...new Set(scenes.map(({ costs: all }) => all[0].unit))];
  setText($("clock"), `The clock is the work that is done: the share of each block's ${units.join(", and its ")}. Whoever has done less goes on.`);
  scenes.forEach((scene, side) => (scene.parts = paneOf(side, scene.title)));
  pairs.forEach(({ blocks }, i) => {
    const [x, y] = scenes[0].trace.blocks[blocks[0]].index;
    $("block").append(new Option(`x ${x}, y ${y}`, String(i)));
  });
  open(0);
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    fit();
  }).observe(document.body);
}

start();

// The page: where it stands in the recording, and what moves it.

let trace;
let costs; // what the steps of each block cost
const $ = (id) => document.getElementById(id);
let recording; // of the block that is shown
let picked = null; // {kind: "element" | "cell" | "thread", ...}: what the closer look is at
let pointed = null; // {array, holds} or {line}: what the sectors are of
let looked = null; // the access that this is, at this step
let views = [];

// ---- where we are ----

let position = 0;
// The step that a question is about: until it is answered, the page stands before it, and no access
// of the step before is shown in its place.
let awaited = null;

const still = ({ i, line, phase }) => ({ i, line, phase, kind: "other", threads: [], isAwaited: true });

function draw() {
  const state = recording.seek(position);
  const step = awaited === null ? recording.steps[position] : still(recording.steps[awaited]);
  looked = lookedAt(recording, position, pointed);
  for (const view of views) view.draw(state, step);
  const slider = $("slider");
  if (slider.valueAsNumber !== position) slider.value = String(position);
  const of = `Step ${count(position + 1)} of ${count(recording.last + 1)}`;
  if (slider.getAttribute("aria-valuetext") !== of) slider.setAttribute("aria-valuetext", of);
  setText($("position"), of);
  if (tipped) setText($("tip"), tipped.grid.tip(tipped.cell.place));
  document.body.dataset.step = String(position);
}

function go(to) {
  position = Math.max(0, Math.min(recording.last, to));
  awaited = null;
  draw();
}

function fold(on) {
  isFolding = on;
  $("fold").setAttribute("aria-pressed", String(on));
  $("fold").textContent = `Index steps: ${on ? "folded" : "shown"}`;
  draw();
}

// The step at which a line or a phase begins, or the first of its steps that is shown.
const next = (starts) => starts.map((at) => recording.shownFrom(at)).find((start) => start > position) ?? recording.last;
const before = (starts) => starts.map((at) => recording.shownFrom(at)).findLast((start) => start < position) ?? 0;

const MOVES = {
  start: () => go(0),
  end: () => go(recording.last),
  back: () => go(recording.beside(position, -1)),
  forward: () => go(recording.beside(position, 1)),
  "line-back": () => go(before(recording.lines)),
  "line-forward": () => go(next(recording.lines)),
  "phase-back": () => go(before(recording.phases)),
  "phase-forward": () => go(next(recording.phases)),
};

const atEnd = () => position === recording.last;
const advance = (steps) => go(recording.passing(position, steps));

// ---- keys and clicks ----

for (const [id, move] of Object.entries(MOVES)) {
  $(id).addEventListener("click", () => {
    play(false);
    move();
  });
}
$("play").addEventListener("click", () => play(!playing));
$("fold").addEventListener("click", () => fold(!isFolding));
$("slider").addEventListener("input", () => {
  play(false);
  go($("slider").valueAsNumber);
});
$("block").addEventListener("change", () => open(Number($("block").value)));
$("warp").addEventListener("change", () => {
  showWarp(Number($("warp").value));
  fit();
});
$("close").addEventListener("click", () => pick(null));
$("help").addEventListener("click", () => $("keys").showModal());
// A click must not take the keys away from the player.
for (const place of ["buttons", "arrays", "shared", "banks", "turns", "threads", "stages", "warps", "pieces", "fragments", "arrivals"]) {
  $(place).addEventListener("mousedown", (event) => {
    if (!event.target.closest("select, label")) event.preventDefault();
  });
}
$("story").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  play(false);
  go(button.step);
});

function cellOf(target) {
  const cell = target.closest && target.closest(".grid .cell");
  return cell ? { cell, grid: cell.closest(".grid").grid } : null;
}

document.querySelector("main").addEventListener("click", (event) => {
  const found = cellOf(event.target);
  if (found && found.grid.pick) found.grid.pick(found.cell.place);
});

const STEPS = {
  ArrowLeft: "back",
  ArrowRight: "forward",
  ",": "back",
  ".": "forward",
  "[": "phase-back",
  "]": "phase-forward",
  Home: "start",
  End: "end",
};

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  // On many keyboards a bracket is typed with AltGr, which is Ctrl and Alt, or with Option.
  const bracket = (key === "[" || key === "]") && event.altKey && !event.metaKey;
  if (!bracket && (event.ctrlKey || event.altKey || event.metaKey)) return;
  if (target.matches("select") || $("keys").open) return;
  if (tourKey(event)) return;
  if (key === "?") {
    event.preventDefault();
    play(false);
    $("keys").showModal();
    return;
  }
  if (target.matches("#source .asks") && (key === "ArrowUp" || key === "ArrowDown")) {
    event.preventDefault();
    $("source").source.focus(target, key === "ArrowUp" ? -1 : 1);
    return;
  }
  const found = cellOf(target);
  if (found && found.grid.pick && !event.shiftKey) {
    const { grid } = found;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }[key];
    if (by !== undefined) {
      event.preventDefault();
      grid.focus(grid.current + by);
      return;
    }
    if (key === "Enter") grid.pick(grid.current);
  }
  if (key === "Escape") {
    if (found || target.matches("#source .asks")) target.blur();
    else pick(null);
    return;
  }
  if (key === " ") {
    // On a button, the space bar presses it.
    if (target.matches("button")) return;
    event.preventDefault();
    play(!playing);
    return;
  }
  if (key === "f" || key === "F") {
    fold(!isFolding);
    return;
  }
  let move = STEPS[key];
  if (!move) return;
  if (event.shiftKey && key.startsWith("Arrow")) move = move === "back" ? "line-back" : "line-forward";
  event.preventDefault();
  play(false);
  MOVES[move]();
});

// ---- the tip under the pointer ----

let tipped = null; // the cell that the tip is of

function tip(found) {
  const box = $("tip");
  tipped = found;
  if (!found) {
    box.hidden = true;
    return;
  }
  setText(box, found.grid.tip(found.cell.place));
  box.hidden = false;
  box.style.left = "0";
  const at = found.cell.getBoundingClientRect();
  const left = Math.min(at.left, document.documentElement.clientWidth - box.offsetWidth - 8);
  const above = at.top - box.offsetHeight - 6;
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${above > 4 ? above : at.bottom + 6}px`;
}

// The target's tip; and the sectors, if it is an element of a matrix, or a line that reaches memory.
function point(target) {
  const found = target && cellOf(target);
  const line = target && target.closest && target.closest("#source .asks");
  tip(found);
  const before = pointed;
  pointed = guided();
  if (line) pointed = { line: line.number };
  else if (found && found.grid.part) pointed = found.grid.part(found.cell.place);
  if (pointed || before) draw();
}

document.addEventListener("pointerover", (event) => isResting(event) || point(event.target));
document.addEventListener("pointerleave", () => point(null));
document.addEventListener("focusin", (event) => {
  const found = cellOf(event.target);
  if (found) found.cell.setAttribute("aria-label", found.grid.tip(found.cell.place));
  point(event.target);
});
document.addEventListener("focusout", () => point(null));
document.addEventListener("scroll", () => tip(null), { passive: true });

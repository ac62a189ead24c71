// The guided tour: stops that say what happens, point at it, and sometimes ask first.
//
// The page must have a panel around each element whose id a stop names, and the class of-NAME on an
// array's box. To show a stop, the tour calls open(), showWarp(), pick...() and fit().

const AROUND = 122; // pixels of headings and notes around a picture
const MOST_CODE = 90; // letters of an instruction
const LEAST_HIGH = 160; // pixels of a picture, at the least

let tour = { question: "", sentences: [], stops: [], of_rung: false };
let stopped = -1; // the stop that is shown; -1 outside the tour
let reached = 0; // the stop to come back to
const told = new Map(); // stop -> the choice that was made, or -1 if the answer was only shown

const isTouring = () => stopped >= 0;
const isCovered = () => document.body.classList.contains("opening");
const isAsking = () => isTouring() && Boolean(tour.stops[stopped].ask) && !told.has(stopped);

// The source line whose sectors the page marks at this stop; null if it marks none.
function guided() {
  if (!isTouring() || isAsking()) return null;
  const { sectors, step } = tour.stops[stopped];
  const { line } = recording.steps[step];
  return sectors && line !== null && position === step ? { line } : null;
}

// ---- moving ----

function showCover() {
  stopped = -1;
  awaited = null;
  document.body.classList.remove("touring");
  document.body.classList.add("opening");
  $("opening").hidden = false;
  remember("");
}

function enterTour(number) {
  document.body.classList.remove("opening");
  $("opening").hidden = true;
  document.body.classList.add("touring");
  $("tour").hidden = false;
  stopAt(number);
  $("tour-title").focus();
}

function exploreFreely() {
  const wasTouring = isTouring();
  stopped = -1;
  awaited = null;
  document.body.classList.remove("opening", "touring");
  $("opening").hidden = true;
  $("tour").hidden = true;
  for (const panel of document.querySelectorAll(".panel")) panel.classList.remove("aside", "pointed");
  for (const one of document.querySelectorAll(".array")) one.classList.remove("pointed", "aside");
  $("sectors").classList.remove("aside");
  pointed = picked = null;
  if (tour.stops.length) setText($("tour-again"), wasTouring ? `Tour, stop ${reached + 1}` : "Tour");
  fit();
  window.scrollTo(0, 0);
  $("play").focus({ preventScroll: true });
  remember("play");
}

function stopAt(number) {
  play(false);
  stopped = Math.max(0, Math.min(tour.stops.length - 1, number));
  reached = stopped;
  const stop = tour.stops[stopped];
  if (trace.blocks[stop.block] !== recording.block) {
    $("block").value = String(stop.block);
    open(stop.block);
  }
  markOf(stop.mark);
  if (recording.cells) showWarp(stop.warp);
  else shownWarp = stop.warp;
  showStop();
  remember(`stop-${stopped + 1}`);
}

// Marks a thread, an element of an array, or a cell of shared memory by its byte.
function markOf(mark) {
  picked = null;
  if (!mark) return;
  const { thread, array, at, byte } = mark;
  if (thread !== undefined) pickThread(thread);
  else if (byte !== undefined) recording.eachCell(byte, 1, (number) => pick({ kind: "cell", number }));
  else {
    const number = recording.array(array);
    const value = () => recording.state.stored[number].get(at) ?? null;
    pickElement({ array: number, at, holds: (one) => one === at, name: recording.element(array, at), value });
  }
}

// Shows the stop. Until its question is answered, the player stands at the step before it.
function showStop() {
  const stop = tour.stops[stopped];
  position = Math.max(0, stop.step - (isAsking() ? 1 : 0));
  awaited = isAsking() ? stop.step : null;
  pointed = guided();
  writeCard();
  const first = arrangePanels(stop.look);
  document.body.style.setProperty("--card", `${$("tour").offsetHeight}px`);
  $("sectors").classList.toggle("aside", !pointed);
  fitStop();
  scrollToPlace(first);
  tip(null);
  restedAt = pointerAt;
}

function answerStop(choice) {
  if (!isAsking()) return;
  told.set(stopped, choice);
  showStop();
  $("tour-next").focus({ preventScroll: true });
}

function onward() {
  if (isAsking()) answerStop(-1);
  else if (stopped < tour.stops.length - 1) stopAt(stopped + 1);
  else exploreFreely();
}

// Keeps the place in the page's address, so that a reload or a link comes back to it. A page within a
// notebook's cell has no address of its own.
function remember(place) {
  try {
    history.replaceState(null, "", place ? `#${place}` : location.pathname + location.search);
  } catch {
    // Then the place is not kept.
  }
}

function followAddress() {
  const place = /^#stop-(\d+)$/.exec(location.hash);
  if (place && tour.stops.length) enterTour(Number(place[1]) - 1);
  else if (location.hash === "#play") exploreFreely();
  else showCover();
}

// ---- what is shown ----

// The panel that a name of a stop points at, and the box if the name is an array's.
function pointedPlace(name) {
  const box = document.querySelector(`#arrays .array.of-${CSS.escape(name)}`);
  const panel = (box || $(name))?.closest(".panel");
  return panel && !panel.hidden ? { panel, box } : null;
}

// Whether a panel is nothing to look at for a question. It may show a later step, which would answer
// it: the next request, the first fragments or pieces where there were none yet, or all steps in
// strips. Or fragments or pieces of an earlier step, which the question is not about.
function isBesideTheQuestion(name) {
  const isOther = (shown) => (name === "sum" ? shown > position : shown !== position);
  return name === "requests" || views.some(({ box, last, showsAll }) => box === $(name) && (showsAll || (last && isOther(last[position]))));
}

// Shows the panels that a stop looks at, the most important first, and no others.
function arrangePanels(look) {
  const shown = isAsking() ? look.filter((name) => !isBesideTheQuestion(name)) : look;
  const places = shown.map(pointedPlace).filter(Boolean);
  for (const one of document.querySelectorAll(".array.pointed")) one.classList.remove("pointed");
  for (const panel of document.querySelectorAll(".panel")) {
    const order = places.findIndex((place) => place.panel === panel);
    panel.classList.toggle("aside", order < 0);
    panel.classList.toggle("pointed", order === 0 && !places[0].box);
    panel.style.order = order < 0 ? "" : String(order);
  }
  for (const { box } of places) if (box) box.classList.add("pointed");
  // If the arrays are not those of a product, only the arrays that the stop names are shown.
  for (const one of document.querySelectorAll("#arrays.flow > .array")) one.classList.toggle("aside", !one.matches(".pointed"));
  return places[0] || null;
}

// The part of the window beside the card: its top and its bottom in pixels.
function spare() {
  const card = $("tour").getBoundingClientRect();
  const isBelow = getComputedStyle($("tour")).position === "fixed";
  return isBelow ? [8, card.top - 8] : [card.bottom + 8, window.innerHeight - 8];
}

// Lays the panels out, with arrays at most as high as the room beside the card.
function fitStop() {
  window.scrollTo(0, 0);
  const arrays = views.find((view) => view instanceof Arrays);
  // The layout must not depend on how large the arrays were before.
  if (arrays) for (const { grid } of arrays.shown) grid.size(2);
  fit();
  const [from, to] = spare();
  const room = Math.max(to - from - AROUND, LEAST_HIGH);
  for (const view of views) view.within?.(room);
  draw();
  if (!arrays) return;
  const [a, b] = arrays.shown;
  for (const { grid, down } of arrays.shown) {
    const most = Math.floor(room / (arrays.product ? a.down + b.down : down));
    if (grid.width > most) grid.size(Math.max(2, most));
  }
  draw();
  // What stands around the matrices may be higher than usual, such as a long legend.
  const panel = $("arrays-panel");
  const before = a.grid.width;
  while (arrays.product && panel.scrollHeight > panel.clientHeight && a.grid.width > 2) {
    for (const { grid } of arrays.shown) grid.size(grid.width - 1);
  }
  if (a.grid.width < before) draw();
}

// Called when the window's width has changed.
const fitAgain = () => (isTouring() ? showStop() : fit());

// Scrolls so that the place a stop points at is visible beside the card.
function scrollToPlace(place) {
  if (!place) return;
  const at = (place.box || place.panel).getBoundingClientRect();
  const [from, to] = spare();
  if (at.bottom > to) window.scrollBy(0, Math.min(at.bottom - to, at.top - from));
}

function writeCard() {
  const stop = tour.stops[stopped];
  const asks = isAsking();
  const { ask } = stop;
  setText($("tour-count"), `Stop ${stopped + 1} of ${tour.stops.length}`);
  $("tour-bar").style.width = `${(100 * (stopped + 1)) / tour.stops.length}%`;
  setText($("tour-title"), stop.title);
  const { line } = recording.steps[stop.step];
  const code = stop.step === 0 ? "" : codeOf(recording.steps[stop.step]);
  $("tour-code").hidden = !code;
  setText($("tour-code-line"), code ? `line ${line}` : "");
  setText($("tour-code-text"), code);
  const said = $("tour-said");
  said.replaceChildren();
  if (asks) {
    make(said, "p", "", stop.before);
    make(said, "p", "asked", ask.question);
  } else {
    if (ask) writeVerdict(said, ask, told.get(stopped));
    make(said, "p", "", stop.text);
  }
  writeChoices(ask, asks);
  $("tour-back").disabled = stopped === 0;
  const isLast = stopped === tour.stops.length - 1;
  setText($("tour-next"), asks ? "Show the answer" : isLast ? "Explore freely" : "Next ›");
}

// The source line of a step without its comment; for inline PTX, the instruction.
function codeOf({ line, i }) {
  if (line === null) return "";
  const code = (trace.source.split("\n")[line - 1] || "").replace(/\/\/.*/, "").trim();
  if (!code.startsWith("asm")) return code;
  const { text } = trace.instructions[i];
  return text.length > MOST_CODE ? `${text.slice(0, MOST_CODE)} …` : text;
}

function writeVerdict(parent, ask, choice) {
  const right = ask.choices[ask.right];
  const isRight = choice === ask.right;
  const text = choice < 0 ? `${right}.` : isRight ? `Right: ${right}.` : `No, not ${ask.choices[choice]}: ${right}.`;
  const line = make(parent, "p", `verdict${choice < 0 ? "" : isRight ? " right" : " wrong"}`);
  make(line, "b", "", `${choice < 0 ? "" : isRight ? "✓ " : "✗ "}${text}`);
  if (choice >= 0 && !isRight && ask.remarks[choice]) make(line, "span", "", ` ${ask.remarks[choice]}`);
}

function writeChoices(ask, asks) {
  const box = $("tour-choices");
  box.replaceChildren();
  box.hidden = !asks;
  if (!asks) return;
  box.setAttribute("aria-label", ask.question);
  ask.choices.forEach((text, i) => {
    const button = make(box, "button");
    button.type = "button";
    make(button, "kbd", "", String(i + 1));
    make(button, "span", "", ` ${text}`);
    button.addEventListener("click", () => answerStop(i));
  });
}

// ---- keys ----

const TOUR_KEYS = {
  ArrowRight: onward, PageDown: onward, n: onward,
  ArrowLeft: () => stopAt(stopped - 1), PageUp: () => stopAt(stopped - 1), p: () => stopAt(stopped - 1),
  Home: () => stopAt(0), End: () => stopAt(tour.stops.length - 1),
};

// Handles the keys of the opening and of the tour. Returns whether the player must ignore the key.
function tourKey(event) {
  const { key, target } = event;
  if (isCovered()) {
    // The keys for the next stop start the tour. Page Down first scrolls to the end of a long opening.
    const page = document.documentElement;
    const isAtEnd = page.scrollTop + page.clientHeight >= page.scrollHeight - 1;
    if (key === "Escape") exploreFreely();
    else if (TOUR_KEYS[key] === onward && (key !== "PageDown" || isAtEnd)) {
      event.preventDefault();
      if (tour.stops.length) enterTour(0);
      else exploreFreely();
    }
    return true;
  }
  if (!isTouring() || key === "?") return false;
  const isOnButton = target.matches("button");
  if (key === "Escape" && cellOf(target)) return false;
  if (key === "Escape") {
    exploreFreely();
    return true;
  }
  if (key.startsWith("Arrow") && (cellOf(target) || target.matches("#source .asks"))) return false;
  if (key === "Enter" && cellOf(target)) return false;
  if (isAsking() && /^[1-9]$/.test(key) && Number(key) <= tour.stops[stopped].ask.choices.length) {
    event.preventDefault();
    answerStop(Number(key) - 1);
    return true;
  }
  const move = TOUR_KEYS[key] || (key === " " && !isOnButton ? onward : null);
  if (move) {
    event.preventDefault();
    move();
  }
  // The player's own keys would leave the stop.
  return true;
}

// ---- the pointer ----

let pointerAt = ""; // the pointer's place
let restedAt = ""; // its place when the stop was shown

for (const name of ["pointermove", "pointerdown"]) {
  document.addEventListener(name, ({ clientX, clientY }) => (pointerAt = `${clientX} ${clientY}`), { capture: true, passive: true });
}

// Whether the pointer has not moved since the stop was shown: then what lies below it was not chosen.
const isResting = ({ clientX, clientY }) => isTouring() && `${clientX} ${clientY}` === restedAt;

// ---- its card ----

function buildTour() {
  const card = $("tour");
  const head = make(card, "div", "head");
  make(head, "p", "note").id = "tour-count";
  const bar = make(make(head, "div", "track"), "div", "bar");
  bar.id = "tour-bar";
  const leave = make(head, "button", "", "Leave");
  leave.title = "Leave the tour (Esc)";
  leave.id = "tour-leave";
  const title = make(card, "h2");
  title.id = "tour-title";
  title.tabIndex = -1;
  const said = make(card, "div");
  said.id = "tour-said";
  said.setAttribute("aria-live", "polite");
  const code = make(card, "p", "note");
  code.id = "tour-code";
  make(code, "span").id = "tour-code-line";
  make(code, "code").id = "tour-code-text";
  const group = make(card, "div");
  group.id = "tour-choices";
  group.setAttribute("role", "group");
  const moves = make(card, "div", "moves");
  const back = make(moves, "button", "", "‹ Back");
  back.id = "tour-back";
  back.title = "The stop before (←)";
  const next = make(moves, "button", "main-way", "Next ›");
  next.id = "tour-next";
  next.title = "The next stop (→)";
  for (const [button, act] of [[leave, exploreFreely], [back, () => stopAt(stopped - 1)], [next, onward]]) {
    button.type = "button";
    button.addEventListener("click", act);
  }
}

// Called once the recording is there. If the tour can't be read, the page is for free exploration.
async function openTour() {
  try {
    const text = await window.unpacked("guide");
    tour = JSON.parse(text.replace(/([\d,]) x (?=\d)/g, "$1 × ")); // sizes, as 16 × 16
  } catch {
    tour.question = trace.title || trace.kernel;
  }
  buildTour();
  // The picture is of the block that the tour is about.
  const about = tour.stops.length ? tour.stops[0].block : 0;
  if (about) open(about);
  buildCover(tour, enterTour, exploreFreely);
  if (about) open(0);
  const again = $("tour-again");
  again.hidden = !tour.stops.length;
  again.addEventListener("click", () => enterTour(reached));
  window.addEventListener("hashchange", followAddress);
}

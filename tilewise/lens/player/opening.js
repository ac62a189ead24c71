// Opening the page: the recording is unpacked, and laid out.

const UNSEEN = 320; // pixels that what is not shown is fitted to

function fit() {
  for (const view of views) {
    if (!view.fit) continue;
    const box = view.box || view.parent || $("words");
    // What is not shown is fitted when it is; once it must be, to be drawn.
    if (!box.clientWidth && view.isFitted) continue;
    view.isFitted = true;
    view.fit(box.clientWidth || UNSEEN);
  }
  labelPhases();
  document.body.style.setProperty("--words", `${$("words").offsetHeight}px`);
  document.body.style.setProperty("--bar", `${$("controls").offsetHeight}px`);
  draw();
}

function phaseMarks() {
  const strip = $("phases");
  strip.replaceChildren();
  recording.phases.forEach((start, i) => {
    const end = recording.phases[i + 1] ?? recording.last + 1;
    const { phase } = recording.steps[start];
    const mark = make(strip, "span", phase === null || phase === undefined ? "" : "in");
    mark.style.flexGrow = String(end - start);
    if (phase !== null && phase !== undefined) mark.title = `phase ${phase + 1}`;
  });
  labelPhases();
}

// A phase's name where it has room, its number where only that has, and else nothing.
function labelPhases() {
  for (const mark of $("phases").children) {
    for (const text of [mark.title, mark.title.replace("phase ", ""), ""]) {
      mark.textContent = text;
      if (mark.scrollWidth <= mark.clientWidth) break;
    }
  }
}

function open(number) {
  play(false);
  point(null);
  picked = null;
  recording = new Recording(trace, number, costs[number]);
  shownLane = 0;
  $("slider").max = String(recording.last);
  phaseMarks();
  document.body.classList.toggle("unphased", !recording.phased);
  for (const id of ["shared-panel", "banks-panel"]) $(id).hidden = !recording.cells;
  views = [];
  const add = (Kind, id) => {
    const view = new Kind($(id));
    view.box = $(id);
    views.push(view);
  };
  add(Arrays, "arrays");
  add(Sectors, "sectors");
  if (recording.cells) {
    add(Shared, "shared");
    add(Banks, "banks");
  }
  for (const [Kind, id] of PANELS) {
    const isThere = Kind.isFor(recording);
    $(`${id}-panel`).hidden = !isThere;
    if (isThere) add(Kind, id);
  }
  add(Threads, "threads");
  add(Source, "source");
  views.push(new Words(), new Traffic());
  add(Details, "story");
  position = Math.max(0, Math.min(recording.last, recording.block.first || 0));
  fit();
}

function heading() {
  const { problem, kernel, title, grid, block } = trace;
  $("source-note").hidden = !trace.source_note;
  setText($("source-note"), trace.source_note || "");
  const size = (extent) => extent.filter((one, i) => i < 2 || one > 1).join(" × ");
  $("title").replaceChildren();
  make($("title"), "span", "", `${title || kernel} `);
  const tile = problem && problem.tile ? `, tile ${problem.tile}` : "";
  const what = problem
    ? `C ${problem.m} × ${problem.n} = A ${problem.m} × ${problem.k} · B ${problem.k} × ${problem.n}${tile}`
    : `${size(grid)} blocks of ${size(block)} threads`;
  make($("title"), "small", "", what);
  trace.blocks.forEach((one, i) => {
    const [x, y, z] = one.index;
    const name = `x ${x}, y ${y}${grid[2] > 1 ? `, z ${z}` : ""}${one.cut ? " (cut short)" : ""}`;
    $("block").append(new Option(name, String(i)));
  });
}

async function start() {
  try {
    trace = JSON.parse(await window.unpacked("trace"));
    costs = JSON.parse(await window.unpacked("costs"));
  } catch (error) {
    $("wait").textContent = `The recording in this page can't be read: ${error.message}`;
    return;
  }
  heading();
  open(0);
  await openTour();
  document.body.classList.remove("waiting");
  followAddress();
  document.body.dataset.shown = ""; // all is there
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    fitAgain();
  }).observe(document.body);
}

start();

// The closer look: an element's, a cell's or a thread's story.

class Details {
  constructor(box) {
    this.box = box;
    this.shown = "";
  }

  draw(state) {
    $("details").classList.toggle("open", picked !== null);
    document.body.classList.toggle("looking", picked !== null);
    $("close").hidden = picked === null;
    if (!picked) this.nothing();
    else this[picked.kind](state);
  }

  nothing() {
    if (!this.begins("nothing", "A closer look")) return;
    this.say("Click an element of a matrix: its value, and which threads loaded or stored it.");
    if (recording.cells) this.say("Click a cell of shared memory: who wrote it, who read it, and when.");
    this.say("Click a thread: what it does, line by line.");
  }

  say(text, className = "") {
    make(this.box, "p", className, text);
  }

  // Whether the box is to be filled anew, for what ``key`` names.
  begins(key, title) {
    if (this.shown === key) return false;
    this.shown = key;
    setText($("h-details"), title);
    this.box.replaceChildren();
    return true;
  }

  element() {
    const { at, array, name, history } = picked;
    const passed = history.filter((event) => event.step <= position);
    if (!this.begins(`element ${name} ${passed.length}`, name)) return;
    const stores = passed.filter((event) => event.kind !== "load");
    const loads = passed.filter((event) => event.kind === "load");
    const value = picked.value();
    if (value !== null) this.say(`It holds ${long(value)}.`, "big");
    else if (history.some((event) => event.kind !== "load")) this.say(stores.length ? "It holds a value that is not known." : "Nobody has stored it yet.", "big");
    const wrong = recording.wrongIn(recording.arrays[array].name, at);
    if (wrong) this.say(wrong, "cut");
    for (const [verb, events] of [["Loaded", loads], ["Stored", stores]]) {
      if (!events.length) continue;
      const lines = linesOf(events);
      this.say(
        `${verb} ${times(accessesOf(events), "time")} by this block up to here, by ` +
          `${threadsInWords(events.flatMap((event) => event.threads))}${lines.length ? `, at line ${lines.join(", ")}` : ""}.`,
      );
    }
    if (!history.length) this.say("Nothing in this recording reaches it.");
    else if (!passed.length) this.say(`Not reached yet: first at step ${count(history[0].step + 1)}.`);
    this.events(passed, "loaded", "stored");
  }

  cell(state) {
    const { number, history } = picked;
    const { name, offset } = recording.cell(number);
    const passed = history.filter((event) => event.step <= position);
    const title = `${name}: byte ${offset}, bank ${Math.floor(offset / WORD) % BANKS}`;
    if (!this.begins(`cell ${number} ${passed.length}`, title)) return;
    const when = state.when[number];
    if (when < 0) {
      this.say("Nobody has written it yet.", "big");
    } else {
      this.say(`It holds ${state.value[number] === null ? "a value that is not known" : long(state.value[number])}.`, "big");
      const { line } = recording.steps[when];
      this.say(`Written by ${writerOf(state, number)} at step ${count(when + 1)}${line === null ? "" : `, line ${line}`}.`);
    }
    const all = passed.filter((event) => event.kind === "load");
    const since = all.filter((event) => event.step > when);
    const reads = accessesOf(since);
    const read = `Read ${times(reads, "time")} since, by ${threadsInWords(since.flatMap((event) => event.threads))}.`;
    if (when >= 0) this.say(reads ? read : "Not read since.");
    const total = accessesOf(all);
    if (total > reads) this.say(`Read ${times(total, "time")} from the start, at line ${linesOf(all).join(", ")}.`);
    this.events(passed, "read", "written");
  }

  // The last events first, each a button to its step.
  events(passed, read, written) {
    const list = make(this.box, "ul", "events");
    for (const event of passed.slice(-60).reverse()) {
      const wrote = event.kind !== "load";
      const item = make(make(list, "li"), "button", wrote ? "wrote" : "");
      item.type = "button";
      item.step = event.step;
      make(item, "span", "step", `step ${count(event.step + 1)}`);
      const value = wrote && event.value !== null ? ` ${long(event.value)}` : "";
      const line = event.line === null ? "" : `, line ${event.line}`;
      make(item, "span", "", `${wrote ? written : read}${value} by ${threadsInWords(event.threads)}${line}`);
    }
  }

  thread() {
    const { number, story } = picked;
    const title = `Thread ${number}: ${coordinates(number)}, warp ${Math.floor(number / WARP)}, lane ${number % WARP}`;
    if (this.begins(`thread ${number}`, title)) {
      this.say(picked.owns ? `It stores ${recording.owner.get(number)}.` : "It stores no element in this recording.");
      const list = make(this.box, "ul", "events");
      let phase = null;
      this.items = story.map((entry) => {
        if (entry.phase !== phase && entry.phase !== null && entry.phase !== undefined) {
          make(list, "li", "phase", `Phase ${entry.phase + 1}`);
          phase = entry.phase;
        }
        const item = make(make(list, "li"), "button");
        item.type = "button";
        item.step = entry.first;
        make(item, "span", "step", entry.line === null ? "" : `line ${entry.line}`);
        make(item, "span", "", entry.texts.join("; "));
        return item;
      });
      this.current = null;
    }
    let at = -1;
    story.forEach((entry, i) => {
      if (entry.first <= position) at = i;
    });
    const item = at < 0 ? null : this.items[at];
    if (item === this.current) return;
    if (this.current) this.current.removeAttribute("class");
    this.current = item;
    if (!item) return;
    item.className = "now";
    keepInView(this.box, item);
  }
}

// Scrolls the box alone, never the page.
function keepInView(box, element) {
  const outer = box.getBoundingClientRect();
  const inner = element.getBoundingClientRect();
  const margin = Math.min(40, outer.height / 4);
  if (inner.top < outer.top + margin) box.scrollTop -= outer.top + margin - inner.top;
  else if (inner.bottom > outer.bottom - margin) box.scrollTop += inner.bottom - outer.bottom + margin;
}

function coordinates(thread) {
  const [x, y, z] = trace.block;
  const found = [`x ${thread % x}`];
  if (y > 1 || z > 1) found.push(`y ${Math.floor(thread / x) % y}`);
  if (z > 1) found.push(`z ${Math.floor(thread / (x * y))}`);
  return found.join(", ");
}

const active = (thread) =>
  recording.steps[position].threads.some(([first, many]) => thread >= first && thread < first + many);

function pick(what) {
  picked = what;
  if (what && what.kind === "cell") what.history = cellHistory(recording, what.number);
  $("story").scrollTop = 0;
  draw();
}

function pickThread(number) {
  const found = { kind: "thread", number, story: threadStory(recording, number), owns: null };
  for (const step of recording.steps) {
    if (found.owns || step.space !== "global" || !writesMemory(step)) continue;
    eachAccess(step, (thread, at) => {
      if (thread === number && !found.owns) found.owns = { array: step.array, at };
    });
  }
  if (recording.cells) showWarp(Math.floor(number / WARP));
  pick(found);
}

function pickElement(part) {
  pick({ kind: "element", ...part, history: elementHistory(recording, part) });
}

// The source, the sentence, the loads, and the closer look.

class Source {
  constructor(list) {
    list.replaceChildren();
    this.list = list;
    this.current = null;
    this.lines = trace.source.replace(/\n$/, "").split("\n").map((text) => {
      const line = make(list, "li");
      const code = make(line, "code");
      const from = text.indexOf("//");
      make(code, "span", "", from < 0 ? text || " " : text.slice(0, from));
      if (from >= 0) make(code, "span", "comment", text.slice(from));
      return line;
    });
  }

  draw(state, step) {
    // Of an instruction that is of no line, the line before it.
    let at = position;
    while (at > 0 && recording.steps[at].line === null) at -= 1;
    const line = this.lines[recording.steps[at].line - 1] || null;
    if (line === this.current) return;
    if (this.current) this.current.removeAttribute("class");
    this.current = line;
    if (!line) return;
    line.className = "now";
    keepInView(this.list, line);
  }
}

class Words {
  fit() {
    // Room for the longest sentence, so that nothing below moves while the steps go by.
    const box = $("words");
    box.style.minHeight = "";
    const longest = (name) => {
      const all = [...new Set(recording.steps.map((step) => step[name] || ""))];
      return all.sort((a, b) => b.length - a.length).slice(0, 4);
    };
    let height = 0;
    const now = ["say", "why"].map((name) => $(name).textContent);
    for (const name of ["say", "why"]) {
      let most = 0;
      $(name).style.minHeight = "";
      for (const text of longest(name)) {
        $(name).textContent = text;
        most = Math.max(most, $(name).offsetHeight);
      }
      $(name).style.minHeight = `${most}px`;
      height += most;
    }
    ["say", "why"].forEach((name, i) => ($(name).textContent = now[i]));
    return height;
  }

  draw(state, step) {
    const runs = step.threads.map(([a, n]) => (n === 1 ? `${a}` : `${a}–${a + n - 1}`)).join(", ");
    const instruction = trace.instructions[step.i];
    setText($("say"), step.say || "");
    setText($("why"), step.why || "");
    const where = [
      step.line === null ? null : `line ${step.line}`,
      step.phase === null || step.phase === undefined ? null : `phase ${step.phase + 1}`,
      instruction ? instruction.text : null,
      runs.length > 40 ? times(step.threads.reduce((sum, one) => sum + one[1], 0), "thread") : `threads ${runs}`,
    ];
    setText($("where"), where.filter(Boolean).join("  ·  "));
  }
}

class Traffic {
  draw(state) {
    const untiled = recording.untiled(state);
    setText($("loads"), times(state.loads, "value"));
    setText($("untiled"), untiled ? times(untiled.now, "value") : "unknown");
    const says = untiled && untiled.phased ? "With no tiling, so far" : "With no tiling, in all";
    setText($("untiled-says"), says);
    const all = Math.max(untiled ? untiled.all : 0, recording.allLoads);
    setWidth($("bar-own"), all ? state.loads / all : 0);
    setWidth($("bar-untiled"), untiled && all ? untiled.now / all : 0);
    const ratio = untiled && untiled.phased && state.loads ? untiled.now / state.loads : 0;
    const sectors = `${times(state.sectors, "sector")} of 32 bytes read.`;
    const fewer = ratio > 1 ? ` ${Number(ratio.toFixed(1))} times fewer loads than one thread for each element of C, reading its whole row and column.` : "";
    setText($("traffic-note"), sectors + fewer);
  }
}

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
    else if (picked.kind === "cell") this.cell(state);
    else this.thread(state);
  }

  nothing() {
    if (this.shown === "nothing") return;
    this.shown = "nothing";
    setText($("h-details"), "A closer look");
    this.box.replaceChildren();
    make(this.box, "p", "", "Click a cell of shared memory: who wrote it, who read it, and when.");
    make(this.box, "p", "", "Click a thread: what it does, line by line.");
  }

  cell(state) {
    const { number, history } = picked;
    const { name, offset } = recording.cell(number);
    const passed = history.filter((event) => event.step <= position);
    const key = `cell ${number} ${passed.length}`;
    if (this.shown === key) return;
    this.shown = key;
    setText($("h-details"), `${name}: byte ${offset}, bank ${Math.floor(offset / WORD) % BANKS}`);
    this.box.replaceChildren();
    if (state.when[number] < 0) {
      make(this.box, "p", "big", "Nobody has written it yet.");
    } else {
      make(this.box, "p", "big", `It holds ${state.value[number] === null ? "a value that is not known" : long(state.value[number])}.`);
      const { line } = recording.steps[state.when[number]];
      make(
        this.box,
        "p",
        "",
        `Written by thread ${state.writer[number]} at step ${state.when[number] + 1}` +
          `${line === null ? "" : `, line ${line}`}.`,
      );
    }
    const since = passed.filter((event) => !event.wrote && event.step > state.when[number]);
    const reads = since.reduce((sum, event) => sum + event.threads.length, 0);
    const readers = since.flatMap((event) => event.threads);
    const read = `Read ${times(reads, "time")} since, by ${threadsInWords(readers)}.`;
    if (state.when[number] >= 0) make(this.box, "p", "", reads ? read : "Not read since.");
    const all = passed.filter((event) => !event.wrote);
    const total = all.reduce((sum, event) => sum + event.threads.length, 0);
    const lines = [...new Set(all.map((event) => event.line).filter((line) => line !== null))];
    if (total > reads) {
      make(this.box, "p", "", `Read ${times(total, "time")} from the start, at line ${lines.join(", ")}.`);
    }
    const list = make(this.box, "ul", "events");
    for (const event of passed.slice(-60).reverse()) {
      const item = make(make(list, "li"), "button", event.wrote ? "wrote" : "");
      item.type = "button";
      item.step = event.step;
      make(item, "span", "step", `step ${count(event.step + 1)}`);
      const value = event.wrote && event.value !== null ? ` ${long(event.value)}` : "";
      make(item, "span", "", `${event.wrote ? "written" : "read"}${value} by ${threadsInWords(event.threads)}${event.line === null ? "" : `, line ${event.line}`}`);
    }
  }

  thread() {
    const { number, story } = picked;
    if (this.shown !== `thread ${number}`) {
      this.shown = `thread ${number}`;
      setText($("h-details"), `Thread ${number}: ${coordinates(number)}, warp ${Math.floor(number / WARP)}, lane ${number % WARP}`);
      this.box.replaceChildren();
      make(this.box, "p", "", picked.owns ? `It stores ${recording.owner.get(number)}.` : "It stores no element in this recording.");
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
  pick(found);
}

// The source, and the sentences.

const cutShort = () =>
  "The recording was cut here, before the block's end. To see it whole, watch " +
  (trace.problem ? "a smaller product: a smaller m, n or k." : "a smaller launch.");

class Source {
  constructor(list) {
    list.replaceChildren();
    this.list = list;
    this.current = null;
    this.lines = trace.source.replace(/\n$/, "").split("\n").map((text, i) => {
      const line = make(list, "li");
      line.number = i + 1;
      line.className = recording.accesses.has(line.number) ? "asks" : "";
      const code = make(line, "code");
      const from = text.indexOf("//");
      make(code, "span", "", from < 0 ? text || " " : text.slice(0, from));
      if (from >= 0) make(code, "span", "comment", text.slice(from));
      return line;
    });
    // With Tab to the first line that reaches global memory, with arrows to the others.
    this.asking = this.lines.filter((line) => line.className);
    this.asking.forEach((line, i) => {
      line.tabIndex = i ? -1 : 0;
      line.setAttribute("aria-describedby", "sectors");
    });
    list.source = this;
  }

  // Where there is other room, the line has to be brought into view again.
  fit() {
    if (this.current) this.current.classList.remove("now");
    this.current = null;
  }

  focus(line, by) {
    const other = this.asking[this.asking.indexOf(line) + by];
    if (!other) return;
    line.tabIndex = -1;
    other.tabIndex = 0;
    other.focus();
  }

  draw(state, step) {
    // If an instruction belongs to no line, the line before it is marked.
    let at = step.isAwaited ? awaited : position;
    while (at > 0 && recording.steps[at].line === null) at -= 1;
    const line = this.lines[recording.steps[at].line - 1] || null;
    if (line === this.current) return;
    if (this.current) this.current.classList.remove("now");
    this.current = line;
    if (!line) return;
    line.classList.add("now");
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
      if (name === "why" && recording.block.cut) all.push(cutShort());
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
    const cut = recording.block.cut && position === recording.last;
    $("why").classList.toggle("cut", cut || Boolean(step.fault));
    setText($("why"), cut ? cutShort() : step.why || "");
    const where = [
      step.line === null ? null : `line ${step.line}`,
      step.phase === null || step.phase === undefined ? null : `phase ${step.phase + 1}`,
      instruction ? instruction.text : null,
      runs.length > 40 ? times(step.threads.reduce((sum, one) => sum + one[1], 0), "thread") : `${runs.match(/\D/) ? "threads" : "thread"} ${runs}`,
    ];
    setText($("where"), where.filter(Boolean).join("  ·  "));
  }
}

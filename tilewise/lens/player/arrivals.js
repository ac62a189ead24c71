// A barrier of the block: the warps arrive one after the other, and those that are there wait.

const isBarrier = (step) => step.kind === "barrier" && step.scope !== "warp" && step.scope !== "part";

class Arrivals {
  static isFor(recording) {
    return recording.threads > WARP && recording.steps.some(isBarrier);
  }

  constructor(parent) {
    parent.replaceChildren();
    this.warps = Math.ceil(recording.threads / WARP);
    this.row = make(parent, "ol", "arrivals");
    this.marks = Array.from({ length: this.warps }, (_, warp) => make(this.row, "li", "", String(warp)));
    this.beats = new Beats(parent, "warp", () => this.paint());
    this.says = make(parent, "p", "note");
  }

  fit() {
    roomFor(this.says, [this.opened(this.warps), this.comes(this.warps, this.warps, this.warps)]);
  }

  opened(warps) {
    return `All ${times(warps, "warp")} are there, and go on. They arrive in any order; here by number.`;
  }

  comes(warp, waiting, coming) {
    return `Warp ${warp} has arrived; ${times(waiting, "warp")} ${waiting === 1 ? "waits" : "wait"} for ${times(coming, "other")}.`;
  }

  draw(state, step) {
    this.there = [];
    for (let warp = 0; warp < this.warps; ++warp) {
      const threads = Array.from({ length: WARP }, (_, lane) => warp * WARP + lane).filter((thread) => thread < recording.threads);
      this.there.push(threads.every((thread) => state.ended[thread]) ? "ended" : threads.some((thread) => state.waiting[thread]) ? "waits" : "runs");
    }
    this.arriving = isBarrier(step) ? [...new Set(stepThreads(step).map((thread) => Math.floor(thread / WARP)))] : [];
    this.beats.begin(String(position), this.arriving.length);
    this.paint();
  }

  // At a barrier the last to arrive lets all go on.
  paint() {
    const { now } = this.beats;
    const isOpen = this.arriving.length > 0 && now === this.arriving.length && !this.there.includes("waits");
    const coming = this.arriving.slice(now);
    this.marks.forEach((mark, warp) => {
      const at = this.arriving.indexOf(warp);
      const name = at < 0 ? this.there[warp] : at >= now ? "runs" : isOpen ? "passes" : "waits";
      if (mark.className !== name) mark.className = name;
      mark.title = `warp ${warp} ${{ runs: "runs", waits: "waits at the barrier", passes: "has arrived, and goes on", ended: "has ended" }[name]}`;
    });
    const waiting = this.marks.filter((mark) => mark.className === "waits").length;
    let said = waiting ? `${times(waiting, "warp")} ${waiting === 1 ? "waits" : "wait"} at a barrier.` : "No warp waits at a barrier now.";
    if (coming.length) said = this.comes(this.arriving[now - 1], waiting, coming.length);
    else if (isOpen) said = this.opened(this.arriving.length);
    setText(this.says, said);
  }
}

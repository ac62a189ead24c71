// What happens within a step, one beat after the other: the turns of a conflict, or the warps that arrive
// at a barrier. Beats go on by themselves while the player stands still or plays slowly, and by two buttons.

const BEAT = 160; // milliseconds
const MOST_TIME = 1600; // of all beats of a step
const SLOW = 8; // steps a second, up to which the player waits for beats

const isStill = matchMedia("(prefers-reduced-motion: reduce)");

class Beats {
  // ``changed`` is called when another beat is shown.
  constructor(parent, what, changed) {
    this.what = what;
    this.changed = changed;
    this.key = "";
    [this.count, this.now] = [0, 0];
    this.box = make(parent, "p", "beats");
    this.back = this.button("‹", `a ${what} back`, -1);
    this.says = make(this.box, "output");
    this.on = this.button("›", `a ${what} on`, 1);
  }

  button(text, label, by) {
    const made = make(this.box, "button", "", text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.addEventListener("click", () => {
      play(false);
      this.stop();
      this.show(Math.max(1, Math.min(this.count, this.now + by)));
    });
    return made;
  }

  // Begins the ``count`` beats of a step, unless they have begun.
  begin(key, count) {
    if (key === this.key) return;
    this.key = key;
    this.stop();
    this.count = count;
    const isFast = playing && Number($("speed").value) > SLOW;
    const many = isStill.matches || isFast || count < 2 ? count : 1;
    this.show(many, true);
    if (many < count) this.timer = setInterval(() => this.tick(), Math.min(BEAT, MOST_TIME / count));
  }

  tick() {
    this.show(this.now + 1);
    if (this.now >= this.count) this.stop();
  }

  stop() {
    if (this.timer) clearInterval(this.timer);
    this.timer = 0;
  }

  show(now, isFirst = false) {
    this.now = now;
    this.box.classList.toggle("none", this.count < 2);
    this.back.disabled = now <= 1;
    this.on.disabled = now >= this.count;
    setText(this.says, this.count < 2 ? "" : `${this.what} ${now} of ${this.count}`);
    if (!isFirst) this.changed();
  }
}

// Whether the player has to wait for beats.
const areBeating = () => views.some((view) => view.beats && view.beats.timer);

// The part of each array that the block loads at a step, and what it has loaded before.

class Slides {
  constructor(recording) {
    this.recording = recording;
    this.hasPhases = recording.steps.some((step) => step.phase > 0);
    this.boxes = new Map(); // by array, and step or phase
    this.loads = recording.arrays.map((_, array) => this.of(array));
  }

  // The steps that load an array, and for each of its elements the first that does.
  of(array) {
    const [steps, first] = [[], new Map()];
    this.recording.steps.forEach((step, i) => {
      let isHere = false;
      this.eachLoaded(step, array, (at) => {
        isHere = true;
        if (!first.has(at)) first.set(at, i);
      });
      if (isHere) steps.push(i);
    });
    return { steps, first };
  }

  // fn(element) for each element of an array that a step loads.
  eachLoaded(step, array, fn) {
    const { name } = this.recording.arrays[array];
    if (step.copy && step.copy.array === name && !step.copy.store) this.recording.eachCopied(step.copy, fn);
    if (step.space !== "global" || step.array !== name || !readsMemory(step)) return;
    eachAccess(step, (thread, at) => fn(at));
  }

  // fn(element) for each that was loaded up to a step.
  eachBefore(array, number, fn) {
    for (const [at, first] of this.loads[array].first) if (first <= number) fn(at);
  }

  // The rectangle of an array that is loaded in a step's phase, {top, left, bottom, right}. In kernels with
  // one phase or none, and where bulk copies run ahead, it is what the last load loads.
  at(array, number) {
    const { steps } = this.loads[array];
    if (!steps.length) return null;
    const { phase } = this.recording.steps[number];
    const isPhased = this.hasPhases && !this.recording.steps[steps[0]].copy;
    if (isPhased && (phase === null || phase === undefined)) return null;
    const last = isPhased ? null : steps.findLast((i) => i <= number);
    if (last === undefined) return null;
    const key = `${array} ${isPhased ? `phase ${phase}` : last}`;
    if (!this.boxes.has(key)) {
      const meant = isPhased ? steps.filter((i) => this.recording.steps[i].phase === phase) : [last];
      this.boxes.set(key, this.box(array, meant));
    }
    return this.boxes.get(key);
  }

  box(array, steps) {
    const { leading } = this.recording.arrays[array];
    let found = null;
    for (const i of steps) {
      this.eachLoaded(this.recording.steps[i], array, (at) => {
        const [row, column] = [Math.floor(at / leading), at % leading];
        found ||= { top: row, left: column, bottom: row, right: column };
        found.top = Math.min(found.top, row);
        found.left = Math.min(found.left, column);
        found.bottom = Math.max(found.bottom, row);
        found.right = Math.max(found.right, column);
      });
    }
    return found;
  }
}

// One thread's multiply-add, with its numbers, and where both factors lie.

const isSum = (step) => step.kind === "compute" && Boolean(step.terms) && step.terms.length > 1 && step.terms.slice(0, 2).every((term) => term !== null);

// Where a value of a step that a thread has came from: {cells} of shared memory, or {array, at} of a
// matrix, and its name; null where that is not known.
function whereIs([number, element], thread) {
  const step = recording.steps[number];
  const place = placeOf(step, thread);
  if (place < 0 || !step.at) return null;
  if (step.space === "global") {
    const array = recording.array(step.array);
    const at = step.at[place] + element;
    return array < 0 ? null : { array, at, name: nameOf(array, at) };
  }
  if (step.space !== "shared") return null;
  const values = step.values[place];
  const at = step.at[place] + element * (step.width / (Array.isArray(values) ? values.length : 1));
  let cell = -1;
  recording.eachCell(at, 1, (one) => (cell = one));
  if (cell < 0) return null;
  const { name } = recording.cell(cell);
  const from = storedFrom(number, at);
  return { cell, name, from: from ? nameOf(from.array, from.at) : "", ...from };
}

// An element, a product's matrices by a capital letter.
const nameOf = (array, at) => elementOf(recording.arrays[array], at, called(recording.arrays[array]));

// The element of global memory that a byte of shared memory held at a step: {array, at}.
function storedFrom(before, byte) {
  for (let i = before; i >= 0; --i) {
    const step = recording.steps[i];
    if (step.kind !== "store" || step.space !== "shared" || !step.at) continue;
    let found = null;
    eachThread(step, (thread, place) => {
      const first = step.at[place];
      if (first === null || byte < first || byte >= first + step.width) return;
      found = fromLoad(step, thread, place, byte - first) || {};
    });
    if (found) return found.at === undefined ? null : found;
  }
  return null;
}

function fromLoad(step, thread, place, apart) {
  if (step.terms) {
    const term = step.terms[Math.floor((apart * step.terms.length) / step.width)];
    if (!Array.isArray(term)) return null;
    const load = recording.steps[term[0]];
    const array = load.space === "global" ? recording.array(load.array) : -1;
    const at = placeOf(load, thread);
    return array < 0 || at < 0 ? null : { array, at: load.at[at] + term[1] };
  }
  for (const [name, pattern, first] of step.origin || []) {
    const from = trace.patterns[pattern][place];
    const array = recording.array(name);
    if (from !== null) return { array, at: first + from + Math.floor(apart / bytesOf(recording.arrays[array].dtype)) };
  }
  return null;
}

// The thread that is looked at, in a step.
function thatOne(step) {
  if (picked && picked.kind === "thread" && placeOf(step, picked.number) >= 0) return picked.number;
  return step.threads[0][0];
}

// Of a multiply-add, a thread's terms: {thread, result, terms: [{value, where, name}]}; kept for as
// long as the player stands there.
function sumAt(number) {
  const step = recording.steps[number];
  if (!isSum(step)) return null;
  const thread = thatOne(step);
  const key = `${number} ${thread}`;
  if (recording.sumKey !== key) {
    const [one, other, before] = step.terms.map((term) =>
      Array.isArray(term)
        ? { value: recording.valueOf(term, thread), where: whereIs(term, thread) }
        : { value: term, where: null },
    );
    recording.sumKey = key;
    recording.sumNow = { thread, one, other, before, result: recording.valueOf([number, 0], thread) };
  }
  return recording.sumNow;
}

// Class names of cells that a sum's factors lie in: {cells: cell -> name, elements: array -> at -> name}.
function litBySum() {
  const found = { cells: new Map(), elements: recording.arrays.map(() => new Map()) };
  const sum = sumAt(position);
  for (const name of sum ? ["one", "other"] : []) {
    const { where } = sum[name];
    if (!where) continue;
    if (where.cell !== undefined) found.cells.set(where.cell, name);
    if (where.array !== undefined) found.elements[where.array].set(where.at, name);
  }
  return found;
}

// Four digits of a number.
const digits = (value) => (finite(value) ? String(Number(value.toPrecision(4))) : String(value)).replace("-", "−");

const SOME = 40; // sums, of which the longest tells how much room they need

class Sum {
  static isFor(recording) {
    return recording.steps.some(isSum);
  }

  constructor(parent) {
    parent.replaceChildren();
    this.last = [];
    let last = recording.steps.findIndex(isSum);
    recording.steps.forEach((step, i) => this.last.push((last = isSum(step) ? i : last)));
    this.line = make(parent, "p", "sum");
    this.parts = {};
    for (const name of ["thread", "before", "plus", "one", "times", "other", "is", "result"]) {
      this.parts[name] = make(this.line, "span", name);
    }
    this.places = make(parent, "p", "note");
  }

  // Room for the longest of some, so that nothing below moves; a half more digits may come.
  fit() {
    const all = recording.steps.flatMap((step, i) => (isSum(step) ? [i] : []));
    const some = all.filter((_, i) => i % Math.ceil(all.length / SOME) === 0).map((i) => this.say(i, ", next"));
    roomFor(this.places, some.map(([, places]) => places));
    const longest = some.map(([words]) => Object.values(words).join("") + "0000").sort((a, b) => b.length - a.length)[0];
    for (const part of Object.values(this.parts)) setText(part, "");
    this.line.style.minHeight = "";
    setText(this.parts.result, longest);
    this.line.style.minHeight = `${this.line.offsetHeight}px`;
  }

  draw() {
    const number = this.last[position];
    const [words, places] = this.say(number, number === position ? "" : number < position ? ", last" : ", next");
    for (const [name, text] of Object.entries(words)) setText(this.parts[name], text);
    setText(this.places, places);
  }

  say(number, when) {
    const step = recording.steps[number];
    const { thread, one, other, before, result } = sumAt(number);
    const { text } = trace.instructions[step.i];
    const isAdded = /^(fma|mad)/.test(text);
    const sign = isAdded || text.startsWith("mul") ? "×" : { add: "+", sub: "−", div: "÷" }[text.slice(0, 3)] || text.split(".")[0];
    const inWords = (term) => (term && term.value !== null && term.value !== undefined ? digits(term.value) : "?");
    const words = {
      thread: `Thread ${thread}${when}: `, before: isAdded ? inWords(before) : "", plus: isAdded ? " + " : "",
      one: inWords(one), times: ` ${sign} `, other: inWords(other), is: " = ", result: digits(result),
    };
    const said = [one, other].map((term) => term && term.where).filter(Boolean)
      .map(({ name, from }) => (from ? `${name}, which came from ${from}` : name));
    const places = said.length === 2 ? `${said[0]}; and ${said[1]}.` : said.length ? `${said[0]}.` : "Where its factors come from is not known.";
    return [words, places];
  }
}

// Numbers, lists and histories in words.

function finite(value) {
  return typeof value === "number";
}

// At most four characters, or nearly.
function short(value) {
  if (value === null || value === undefined) return "";
  if (!finite(value)) return String(value).replace("Infinity", "∞");
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1000) return String(value);
  if (size < 0.005) return "≈0";
  if (size < 0.995) return value.toFixed(2).replace("0.", ".");
  if (size < 9.95) return value.toFixed(1);
  if (size < 999.5) return value.toFixed(0);
  return value.toExponential(0).replace("e+", "e");
}

// At most six characters, or nearly.
function medium(value) {
  if (!finite(value)) return short(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 10000) return String(value);
  if (size < 0.0005) return "≈0";
  if (size < 9.995) return value.toFixed(2);
  if (size < 99.95) return value.toFixed(1);
  return short(value);
}

function long(value) {
  if (value === null || value === undefined) return "unknown";
  return finite(value) ? String(Number(value.toPrecision(6))) : String(value);
}

const count = (n) => n.toLocaleString("en");
const times = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

// Sorted numbers as runs: 0–3, 8.
function runs(numbers) {
  const found = [];
  for (const n of numbers) {
    const last = found[found.length - 1];
    if (last && last[1] === n - 1) last[1] = n;
    else found.push([n, n]);
  }
  return found.map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(", ");
}

function threadsInWords(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  if (!sorted.length) return "no thread";
  return `${sorted.length === 1 ? "thread" : "threads"} ${runs(sorted)}`;
}

function stepThreads(step) {
  const found = [];
  eachThread(step, (thread) => found.push(thread));
  return found;
}

// The steps that touch something: [{step, line, kind, threads, value}]. ``touches`` is asked of each
// access: whether it is one, by its first place and its bytes.
function touching(recording, isMeant, touches) {
  const found = [];
  recording.steps.forEach((step, i) => {
    if (!isMeant(step)) return;
    const threads = [];
    let last = null;
    eachAccess(step, (thread, at, bytes, value, left) => {
      if (!touches(at, bytes)) return;
      threads.push(thread);
      last = left;
    });
    if (threads.length) found.push({ step: i, line: step.line, kind: step.kind, threads, value: last });
  });
  return found;
}

// Everything that ever touches a cell of shared memory.
function cellHistory(recording, cell) {
  const touches = (at, bytes) => {
    let found = false;
    recording.eachCell(at, bytes, (one) => (found ||= one === cell));
    return found;
  };
  return touching(recording, (step) => step.space === "shared", touches);
}

// Everything that ever touches an element, or a part, of a matrix.
function elementHistory(recording, { array, holds }) {
  const { name } = recording.arrays[array];
  return touching(recording, (step) => step.space === "global" && step.array === name, holds);
}

const linesOf = (events) => [...new Set(events.map((event) => event.line).filter((line) => line !== null))];
const accessesOf = (events) => events.reduce((sum, event) => sum + event.threads.length, 0);

// What a thread does, a line at a time: [{first, last, line, phase, text}].
function threadStory(recording, thread) {
  const found = [];
  let broken = true;
  recording.steps.forEach((step, i) => {
    const place = placeOf(step, thread);
    if (place < 0) return;
    const text = step.fault ? faultOf(step.fault, thread) : deed(recording, step, place);
    if (!text) return;
    const last = found[found.length - 1];
    if (last && !broken && last.line === step.line) {
      last.texts.push(text);
      last.last = i;
    } else {
      found.push({ first: i, last: i, line: step.line, phase: step.phase, texts: [text] });
    }
    // Each multiply-add of a loop by itself, although all are of one line.
    broken = step.kind === "compute";
  });
  return found;
}

const faultOf = (fault, thread) => (fault.thread === thread ? `stops here: ${fault.kind}` : "");

function deed(recording, step, place) {
  const value = step.values ? step.values[place] : null;
  const shown = Array.isArray(value) ? value.map(long).join(", ") : long(value);
  const known = value === null || value === undefined ? "" : step.kind === "atomic" ? `, which held ${shown}` : ` = ${shown}`;
  if (step.kind === "compute") return known ? `result ${shown}` : "";
  if (step.kind === "barrier") return "waits at the barrier";
  if (step.kind === "end") return "ends";
  if (!step.at) return "";
  const at = step.at[place];
  let name = step.space;
  if (step.space === "global") name = recording.element(step.array, at);
  if (step.space === "shared") recording.eachCell(at, 1, (cell) => (name = recording.cell(cell).name));
  const verb = { load: "reads", store: "writes", atomic: "atomically updates" }[step.kind];
  return verb ? `${verb} ${name}${known}` : "";
}

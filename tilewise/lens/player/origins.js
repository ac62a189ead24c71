// Where what lies in shared memory comes from in global memory, for each piece of 16 bytes.
//
// The trace has it of bulk copies, and of each store of which it is known.

const PIECE = 16; // bytes
const bytesOf = (dtype) => Number(dtype.match(/\d+$/)[0]) / 8;

class Origins {
  constructor(recording) {
    this.recording = recording;
    this.places = []; // {array, at: element}
    this.arrays = new Set(); // that they are of
    this.writes = new Map(); // step -> [piece, number of a place or -1]
    recording.steps.forEach((step, number) => {
      const found = [];
      if (step.kind === "copy") this.copied(step.copy, found);
      else if (step.kind === "store" && step.space === "shared" && step.at) this.stored(step, found);
      if (found.length) this.writes.set(number, found);
    });
  }

  stored(step, found) {
    const from = new Map(); // of each thread, by its place in the step's lists
    for (const [name, pattern, first] of step.origin || []) {
      const array = this.recording.array(name);
      trace.patterns[pattern].forEach((apart, place) => {
        if (apart !== null) from.set(place, { array, at: first + apart });
      });
    }
    eachThread(step, (thread, place) => {
      const at = step.at[place];
      if (at === null) return;
      const one = from.get(place);
      const element = one ? bytesOf(this.recording.arrays[one.array].dtype) : 1;
      for (let piece = Math.ceil(at / PIECE); piece * PIECE < at + step.width; ++piece) {
        found.push([piece, one ? this.number(one.array, one.at + (piece * PIECE - at) / element) : -1]);
      }
    });
  }

  copied(copy, found) {
    if (!copy || copy.store) return;
    const pattern = copy.pattern === undefined ? [] : trace.patterns[copy.pattern];
    const array = this.recording.array(copy.array);
    for (let i = 0; i < copy.bytes / PIECE; ++i) {
      const there = array >= 0 && pattern[i] !== null && pattern[i] !== undefined;
      found.push([copy.at / PIECE + i, there ? this.number(array, copy.from + pattern[i]) : -1]);
    }
  }

  number(array, at) {
    this.arrays.add(array);
    this.places.push({ array, at });
    return this.places.length - 1;
  }

  // What a piece is: {label, name, tint}; null where that is not known.
  piece(number) {
    if (number < 0) return null;
    const { array, at } = this.places[number];
    const one = this.recording.arrays[array];
    const many = PIECE / bytesOf(one.dtype);
    const name = `${this.recording.element(one.name, at)} and ${many - 1} more`;
    if (one.flat || !one.leading) return { label: String(at), name, tint: Math.floor(at / many) % 8 };
    const [row, column] = [Math.floor(at / one.leading), at % one.leading];
    // Pieces of several arrays have the array's name before them.
    const whose = this.arrays.size > 1 ? called(one).slice(0, 2) : "";
    const label = whose + (column % many ? `${row},${column}` : `${row}:${column / many}`);
    return { label, name, tint: Math.floor(column / many) % 8 };
  }
}

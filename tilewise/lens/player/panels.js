// The panels that a recording may need: each kind says whether it does, and is drawn where its name is.

const PANELS = [
  [Stages, "stages"], [Warps, "warps"], [Pieces, "pieces"], [Fragments, "fragments"], [Sum, "sum"],
  [Requests, "requests"], [Arrivals, "arrivals"],
];

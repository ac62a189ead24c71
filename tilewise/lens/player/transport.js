// Playing: steps go by, so many a second. What stands where is the page's: ``go`` moves to a step,
// ``advance`` so many on, and ``atEnd`` says whether there is none.

let playing = false;
let clock = 0;
let due = 0; // steps, and a part of one

function play(on) {
  if (on === playing) return;
  playing = on;
  if (on && atEnd()) go(0);
  $("play-icon").setAttribute("d", on ? "M3 2h4v12H3zM9 2h4v12H9z" : "M3 1l11 7-11 7z");
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  // A reader of the screen is told of single steps, not of a stream of them.
  for (const box of document.querySelectorAll("[aria-live]")) box.setAttribute("aria-live", on ? "off" : "polite");
  if (!on) return;
  clock = performance.now();
  due = 0;
  requestAnimationFrame(tick);
}

function tick(now) {
  if (!playing) return;
  // After a pause of the whole page, go on from here and don't race to catch up.
  due += (Math.max(0, Math.min(now - clock, 250)) / 1000) * Number($("speed").value);
  clock = now;
  const steps = Math.floor(due);
  due -= steps;
  // Turns and arrivals within a step take their time.
  if (areBeating()) due = 0;
  else if (steps) advance(steps);
  if (atEnd() && !areBeating()) play(false);
  else requestAnimationFrame(tick);
}

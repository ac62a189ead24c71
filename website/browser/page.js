// The page "Try it": its form, and what tilewise answers from the worker.
"use strict";

(() => {
  const form = document.getElementById("try");
  const [status, error, out, player, progress, idea] = [
    "status", "error", "out", "player", "progress", "idea",
  ].map((name) => document.getElementById(`try-${name}`));
  const rungs = JSON.parse(document.getElementById("try-rungs").textContent);
  const fields = form.elements;
  let worker = null; // once it is there, it loads
  let waiting = null; // what was asked last, until it is answered
  let clock = 0;
  let stopped = ""; // what is said before all else, until something is asked

  const option = (value, text) => new Option(text === undefined ? value : text, value);
  const called = (name) => rungs.find((each) => each.name === name);

  function offerTiles(rung, select) {
    const found = called(rung.value);
    const before = select.value;
    select.replaceChildren(
      ...(found && found.tiles.length
        ? found.tiles.map((tile) => option(tile))
        : [option("", found ? "has none" : "–")]),
    );
    select.disabled = !found || !found.tiles.length;
    const wanted = [before, String(found ? found.tile : "")];
    const usable = wanted.find((tile) => [...select.options].some((x) => x.value === tile));
    if (usable !== undefined) select.value = usable;
  }

  function chosen() {
    offerTiles(fields.rung, fields.tile);
    offerTiles(fields.rung2, fields.tile2);
    idea.textContent = called(fields.rung.value).idea;
  }

  // The address has what is chosen, so that it can be handed on.
  const names = ["rung", "tile", "rung2", "tile2", "m", "n", "k", "alpha", "beta"];
  const usual = { rung: "tiled", rung2: "", m: 64, n: 64, k: 64, alpha: 1, beta: 0, tile: "16" };
  function fill(query) {
    const given = new URLSearchParams(query);
    const unknown = new Set();
    const set = (name) => {
      const field = fields[name];
      const isOffered = (value) =>
        value != null && (!field.options || [...field.options].some((x) => x.value === String(value)));
      const asked = given.get(name);
      if (asked && !isOffered(asked)) unknown.add(`${name}=${asked}`);
      const value = [asked, usual[name]].find(isOffered);
      if (value !== undefined) field.value = value;
    };
    for (const some of [["rung", "rung2"], ["tile", "tile2"], ["m", "n", "k", "alpha", "beta"]]) {
      some.forEach(set);
      chosen();
    }
    error.hidden = true;
    if (unknown.size) {
      fail(`The address asks for ${[...unknown].join(", ")}, which this page does not offer: look at what is chosen instead.`);
    }
  }

  function offerRungs() {
    const offered = () => rungs.map((each) => option(each.name, `${each.number} ${each.name}`));
    fields.rung.replaceChildren(...offered());
    fields.rung2.replaceChildren(option("", "none"), ...offered());
  }

  function asked(what) {
    const one = (rung, tile) => ({ rung: rung.value, tile: tile.value === "" ? null : Number(tile.value) });
    const both = [one(fields.rung, fields.tile)];
    if (fields.rung2.value && what === "run") both.push(one(fields.rung2, fields.tile2));
    const numbers = ["m", "n", "k", "alpha", "beta"].map((name) => [name, Number(fields[name].value)]);
    return { what, rungs: both, ...Object.fromEntries(numbers) };
  }

  function say(text, of = null) {
    status.textContent = text;
    progress.hidden = of === null;
    if (of && of.max) [progress.max, progress.value] = [of.max, of.value];
    else progress.removeAttribute("value");
  }

  function fail(text) {
    error.textContent = text;
    error.hidden = false;
  }

  function busy(is) {
    // Disabled in words alone: a button that has the focus keeps it.
    for (const each of [fields.run, fields.watch]) each.setAttribute("aria-disabled", is);
    fields.stop.disabled = !is;
    clearInterval(clock);
  }

  function running() {
    const began = Date.now();
    const tell = () => say(`Running on the emulator: ${Math.round((Date.now() - began) / 1000)} s`, {});
    tell();
    clearInterval(clock);
    clock = setInterval(tell, 1000);
  }

  function start() {
    if (location.protocol === "file:") {
      say("");
      fail(
        "A browser starts no Python from a file. Serve the site: python -m http.server --directory build/site",
      );
      return null;
    }
    const found = new Worker("try/worker.js");
    found.isReady = false;
    found.onmessage = (event) => hear(found, event.data);
    found.onerror = (event) => hear(found, { broken: event.message || "the worker did not load" });
    say(`${stopped}Loading Python, about 20 MB the first time …`, {});
    return found;
  }

  function hear(from, told) {
    if (from !== worker) return; // it was stopped
    if (told.step) {
      say(`${stopped}Loading ${told.name} (${told.step} of ${told.of}) …`, { value: told.step - 1, max: told.of });
    } else if (told.ready) {
      worker.isReady = true;
      form.dataset.ready = told.ready.toFixed(1);
      if (waiting) running();
      else say(`${stopped}Ready, after ${told.ready.toFixed(1)} s.`);
    } else if (told.broken) {
      worker.terminate();
      worker = waiting = null;
      busy(false);
      say("");
      fail(`Python in the browser broke down: ${told.broken}. Press Run to start it again.`);
    } else {
      const { what } = waiting;
      waiting = null;
      busy(false);
      if (told.found.error) {
        say("");
        fail(told.found.error);
        return;
      }
      say(`Done in ${told.seconds.toFixed(told.seconds < 10 ? 2 : 0)} s, in this browser.`);
      form.dataset.seconds = told.seconds.toFixed(3);
      if (what === "watch") watch(told.found.page);
      else show(told.found);
    }
  }

  function show(found) {
    out.replaceChildren();
    for (const each of found.results) {
      const part = document.createElement("div");
      part.className = "try-result";
      part.innerHTML = each.html; // which tilewise escaped
      part.dataset.counters = JSON.stringify(each.counters);
      out.append(part);
    }
    if (found.beside) {
      const part = document.createElement("div");
      part.className = "try-beside";
      part.innerHTML = found.beside;
      out.append(part);
    }
    for (const table of out.querySelectorAll("table")) {
      const wide = document.createElement("div"); // a wide table scrolls by itself
      wide.className = "try-table";
      wide.tabIndex = 0;
      wide.setAttribute("role", "region");
      wide.setAttribute("aria-label", "Table");
      table.replaceWith(wide);
      wide.append(table);
    }
  }

  function watch(page) {
    const frame = player.querySelector("iframe");
    frame.srcdoc = page;
    player.hidden = false;
    player.scrollIntoView({ block: "nearest" });
  }

  function ask(what) {
    if (waiting || !form.reportValidity()) return;
    stopped = "";
    error.hidden = true;
    out.replaceChildren();
    player.hidden = true;
    history.replaceState(null, "", `?${new URLSearchParams(names.map((x) => [x, fields[x].value]))}`);
    worker ??= start();
    if (!worker) return;
    waiting = asked(what);
    busy(true);
    worker.postMessage(waiting);
    if (worker.isReady) running();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask("run");
  });
  fields.watch.addEventListener("click", () => ask("watch"));
  fields.rung.addEventListener("change", chosen);
  fields.rung2.addEventListener("change", chosen);
  fields.stop.addEventListener("click", () => {
    worker.terminate();
    worker = waiting = null;
    busy(false);
    stopped = "Stopped. For the next run: ";
    worker = start();
    fields.run.focus();
  });
  for (const link of document.querySelectorAll('a[href^="?rung="]')) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (waiting) return;
      fill(link.getAttribute("href"));
      form.scrollIntoView({ block: "center" });
      ask("run");
    });
  }
  offerRungs();
  fill(location.search);
  form.hidden = false;
  worker = start();
})();

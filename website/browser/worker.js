// Runs tilewise in Pyodide, beside the page: so the page stays alive, and can stop it.
"use strict";

const STEPS = ["Python and NumPy", "tilewise", "the compiled kernels"];
let answer;

function load(name) {
  return fetch(name).then((reply) => {
    if (!reply.ok) throw new Error(`${name}: the server says ${reply.status}`);
    return reply.arrayBuffer();
  });
}

async function prepare() {
  const began = performance.now();
  const tell = (step) => postMessage({ step, name: STEPS[step - 1], of: STEPS.length });
  const files = ["tilewise.zip", "kernels.bin", "answers.py"].map(load);
  for (const file of files) file.catch(() => {}); // told where it is waited for
  tell(1);
  importScripts("pyodide/pyodide.js");
  const indexURL = new URL("pyodide/", self.location.href).href;
  const python = await loadPyodide({ indexURL, packages: ["numpy"] }); // fetched at the same time
  tell(2);
  const [code, kernels, answers] = await Promise.all(files);
  python.unpackArchive(code, "zip", { extractDir: "/home/pyodide" });
  python.FS.writeFile("/home/pyodide/answers.py", new Uint8Array(answers));
  python.FS.writeFile("/tmp/kernels.bin", new Uint8Array(kernels));
  const module = python.pyimport("answers");
  tell(3);
  module.prepare("/tmp/kernels.bin");
  answer = module.answer;
  postMessage({ ready: (performance.now() - began) / 1000 });
}

const prepared = prepare();
prepared.catch((error) => postMessage({ broken: String(error.message || error) }));

onmessage = async (event) => {
  try {
    await prepared;
  } catch {
    return; // which was told
  }
  const began = performance.now();
  try {
    const found = JSON.parse(answer(JSON.stringify(event.data)));
    postMessage({ found, seconds: (performance.now() - began) / 1000 });
  } catch (error) {
    postMessage({ broken: String(error.message || error).trim().split("\n").pop() });
  }
};

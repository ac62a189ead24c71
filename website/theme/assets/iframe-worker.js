/* A Worker for pages that are opened from a file, where browsers start none: its script runs in a
   hidden frame, and messages go to it and back. Elsewhere the browser's own Worker stays. */
(() => {
  if (location.protocol !== "file:") return;
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.url = new URL(url, document.baseURI).href;
      this.onmessage = this.onerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      this.frame.addEventListener("load", () => this.run(), { once: true });
      const start = () => document.body.append(this.frame);
      if (document.body) start();
      else document.addEventListener("DOMContentLoaded", start);
    }
    run() {
      const inside = this.frame.contentWindow;
      // In a worker, postMessage answers whoever started it.
      inside.postMessage = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      inside.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.load(this.url).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        for (const data of waiting) this.postMessage(data);
      });
    }
    load(url) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = new URL(url, this.url).href;
        script.onload = done;
        script.onerror = failed;
        this.frame.contentDocument.head.append(script);
      });
    }
    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
        return;
      }
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  }
  window.Worker = FrameWorker;
})();

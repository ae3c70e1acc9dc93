// Browsers start no worker from file://, so the script of the search runs in a hidden frame there.
// Material's theme looks for this class by its name, and leaves out its own copy from another host if a file has this name.
if (location.protocol === "file:") {
  const load = (frame, url) => new Promise((resolve, reject) => {
    const script = frame.contentDocument.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = () => reject(new Error(`cannot load ${url}`));
    frame.contentDocument.head.append(script);
  });
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        this.frame.onload = resolve;
        document.body.append(this.frame);
      }).then(() => {
        const inner = this.frame.contentWindow;
        inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        inner.importScripts = async (...urls) => {
          for (const each of urls) await load(this.frame, each);
        };
        return load(this.frame, url);
      });
    }
    postMessage(data) {
      this.ready.then(() => {
        const inner = this.frame.contentWindow;
        inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      });
    }
  };
  window.Worker = window.IFrameWorker;
}

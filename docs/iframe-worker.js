// A page that is opened from the disk may not start a worker, and the search of the site needs one: this one lives in a
// hidden frame.  The plugin "offline" of mkdocs-material would fetch another from the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentDocument;
      inside.open();
      inside.write("<!doctype html><body></body>");
      inside.close();
      this.room = frame.contentWindow;
      this.room.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.createElement("script");
      script.src = url;
      this.ready = new Promise((done) => (script.onload = done));
      inside.body.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.room.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}

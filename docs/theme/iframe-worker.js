// Makes the search work in pages opened from a disk. Browsers start no worker there, so a hidden frame runs its script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => this.deliver(this, data);
      inside.importScripts = () => {};
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach(data => this.deliver(inside, data));
      };
      inside.document.body.appendChild(script);
    }
    postMessage(data) {
      if (this.ready) this.deliver(this.frame.contentWindow, data);
      else this.waiting.push(data);
    }
    deliver(target, data) {
      setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}

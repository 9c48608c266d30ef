// Search in pages that were opened from disk. A browser gives them no worker, so the search runs in a hidden frame instead, which
// is asked and answers as a worker would. Served pages keep real workers. The theme's offline plugin knows this file by its name.
(() => {
  if (location.protocol !== "file:") return;

  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #waiting = [];
    #ready = false;

    constructor(address) {
      super();
      this.#frame.hidden = true;
      // A frame may get another window until it says that it is there.
      this.#frame.onload = () => this.#start(address);
      document.documentElement.append(this.#frame);
    }

    #start(address) {
      const inner = this.#frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = address;
      script.onload = () => {
        this.#ready = true;
        this.#waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inner.document.head.append(script);
    }

    postMessage(data) {
      if (this.#ready) this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      else this.#waiting.push(data);
    }

    terminate() {
      this.#frame.remove();
    }
  };
})();

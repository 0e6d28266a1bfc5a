// The connection to the gateway: server-sent events over fetch, which unlike EventSource tells the
// status of a refusal; it comes back by itself when the gateway does.

const SILENT_S = 3.5; // updates come once a second
const DEAD_S = 12;
const RETRY_MIN_S = 1;
const RETRY_MAX_S = 5;
const REQUEST_TIMEOUT_MS = 10_000;

// `handlers`: connected(), update(document), state(name, detail) with the names connecting, live,
// stale, refused and unreachable, and signedOut().
export class Live {
  constructor(handlers) {
    this.handlers = handlers;
    this.abort = null;
    this.retryS = RETRY_MIN_S;
    this.timer = null;
    this.heardAt = null;
    setInterval(() => this.watch(), 500);
    // A hidden page gives its connection back: a browser has few of them for one server.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.stop();
      else this.start();
    });
  }

  start() {
    if (this.abort === null) this.connect();
  }

  stop() {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
    this.heardAt = null;
  }

  async connect() {
    clearTimeout(this.timer);
    const abort = new AbortController();
    this.abort = abort;
    try {
      const response = await fetch("/api/v1/events", { signal: abort.signal, cache: "no-store" });
      if (response.status === 401) {
        this.handlers.signedOut();
        return;
      }
      if (!response.ok) {
        this.handlers.state("refused", await reason(response));
      } else {
        this.heardAt = performance.now();
        this.handlers.connected();
        await this.read(response.body);
        this.handlers.state("unreachable", null);
      }
    } catch (error) {
      if (this.abort === abort) this.handlers.state("unreachable", null);
      if (!abort.signal.aborted && error.name !== "TypeError") console.error(error);
    }
    if (this.abort === abort) this.retry();
  }

  retry() {
    this.abort = null;
    this.heardAt = null;
    this.timer = setTimeout(() => this.connect(), this.retryS * 1000);
    this.retryS = Math.min(RETRY_MAX_S, this.retryS * 1.5);
  }

  async read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) this.take(event);
    }
  }

  take(event) {
    const data = event.split("\n").find((line) => line.startsWith("data: "));
    if (data === undefined) return;
    this.heardAt = performance.now();
    this.retryS = RETRY_MIN_S;
    this.handlers.state("live", null);
    this.handlers.update(JSON.parse(data.slice("data: ".length)));
  }

  // A gateway that hangs, or a cable that was pulled, closes no connection.
  watch() {
    if (this.heardAt === null) return;
    const silentS = (performance.now() - this.heardAt) / 1000;
    if (silentS > DEAD_S) {
      const abort = this.abort;
      this.handlers.state("unreachable", null);
      this.retry();
      abort?.abort();
    } else if (silentS > SILENT_S) {
      this.handlers.state("stale", silentS);
    }
  }
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The gateway answered ${response.status}.`;
  }
}

// A change, or a figure on demand; throws an Error whose message is for people.
export async function request(path, { method = "GET" } = {}) {
  let response;
  try {
    const signal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
    response = await fetch(path, { method, cache: "no-store", signal });
  } catch {
    throw new Error("The gateway cannot be reached.");
  }
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}

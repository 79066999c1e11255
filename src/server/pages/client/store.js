// Stores: values that every framework can read, and that live on the server only while something reads them.

const LINGER = 10_000;

export class Store {
  #value;
  #listeners = new Set();
  #lingering;
  #isOpen = false;
  #stops;

  constructor(value) {
    this.#value = value;
  }

  /** The same object until it changes. */
  get = () => this.#value;

  /** The first subscriber opens the store, and it closes some time after the last one. */
  subscribe = (onChange) => {
    const own = () => onChange();
    clearTimeout(this.#lingering);
    this.#listeners.add(own);
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.#stops = this.opened();
    }
    return () => {
      if (!this.#listeners.delete(own) || this.#listeners.size) return;
      this.#lingering = setTimeout(() => this.shut(), LINGER);
      this.#lingering.unref?.();
    };
  };

  get isOpen() {
    return this.#isOpen;
  }

  put(value) {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  patch(change) {
    this.put({ ...this.#value, ...change });
  }

  shut() {
    clearTimeout(this.#lingering);
    if (!this.#isOpen) return;
    this.#isOpen = false;
    for (const stop of this.#stops ?? []) stop();
    this.closed();
  }

  /** May return functions that end what it begins. */
  opened() {}
  closed() {}
}

/** Listens to events of the page, if there is one. Returns the function that ends it. */
export function onPage(names, run) {
  const stop = new AbortController();
  for (const name of names) globalThis.addEventListener?.(name, run, { signal: stop.signal });
  return () => stop.abort();
}

/** Calls `run` once for all calls within some time. */
export class Joined {
  #timer;
  #run;
  #wait;

  constructor(run, wait) {
    [this.#run, this.#wait] = [run, wait];
  }

  call(wait = this.#wait) {
    this.#timer ??= setTimeout(() => { this.#timer = undefined; this.#run(); }, wait);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

const TIMER_MAX = 2 ** 31 - 1;

/** Not a number where there is no message, or one that never expires: it compares as neither. */
const expiryOf = (message) => Date.parse(message?.expiresAt);

export const isExpired = (message) => expiryOf(message) <= Date.now();

/** Calls back at the earliest of some moments. No event says that a message expires. */
export class ExpiryTimer extends Joined {
  /** `messages`: some may be absent, and most expire never. */
  watch(messages) {
    this.stop();
    const next = Math.min(...messages.map(expiryOf).filter(Boolean));
    if (next < Infinity) this.call(Math.min(TIMER_MAX, Math.max(0, next - Date.now()) + 50));
  }
}

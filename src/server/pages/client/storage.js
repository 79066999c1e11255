// What a device keeps of one user: unsent messages and drafts. `localStorage` writes before it returns, so a message that is on the
// screen survives a reload in the same instant, and its `storage` event reaches the other tabs.

import { onPage } from "./store.js";

/** Storage in memory, with the methods of `localStorage` that are used here. */
function inMemory() {
  const values = new Map();
  return {
    get length() { return values.size; },
    key: (index) => [...values.keys()][index] ?? null,
    getItem: (key) => values.get(key) ?? null,
    setItem: (key, value) => void values.set(key, value),
    removeItem: (key) => void values.delete(key),
  };
}

function ofDevice() {
  try {
    return globalThis.localStorage ?? inMemory();
  } catch {
    // A page may be denied its storage.
    return inMemory();
  }
}

/** A new idempotency key. `randomUUID` is absent over plain HTTP. */
export const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Values of one user, as JSON. They are in memory until the user is known. */
export class Kept {
  #device;
  #storage = inMemory();
  prefix = "";

  /** `onOther(name)`: another tab has changed this value. */
  constructor(storage, onOther) {
    this.#device = storage === undefined ? ofDevice() : storage ?? inMemory();
    this.stop = onPage(["storage"], ({ key }) => this.prefix && key?.startsWith(this.prefix) && onOther(key.slice(this.prefix.length)));
  }

  /** Moves to the values of the user, all of whose names begin with this. */
  begin(prefix) {
    const early = this.names("").map((name) => [name, this.get(name)]);
    [this.#storage, this.prefix] = [this.#device, prefix];
    for (const [name, value] of early) this.set(name, value);
  }

  get(name) {
    const text = this.#storage.getItem(this.prefix + name);
    return text === null ? undefined : JSON.parse(text);
  }

  /** `undefined` removes it. */
  set(name, value) {
    const key = this.prefix + name;
    try {
      if (value === undefined) this.#storage.removeItem(key);
      else this.#storage.setItem(key, JSON.stringify(value));
    } catch {
      // A full storage: the value lives as long as the page.
    }
  }

  names(start) {
    const keys = Array.from({ length: this.#storage.length }, (_, index) => this.#storage.key(index));
    return keys.filter((key) => key?.startsWith(this.prefix + start)).map((key) => key.slice(this.prefix.length));
  }

  /** Nothing of this user is on the device any more, also not what is written later. */
  clear() {
    for (const name of this.names("")) this.set(name);
    this.#storage = inMemory();
  }
}

// Messages on their way. Each is on the device before it is sent, and has a key of its own: however often it is tried, the server stores
// it once. Every conversation has a queue, and the messages of one leave in the order in which they were written.

import { newKey } from "./storage.js";
import { Store } from "./store.js";
import { errorOf } from "./transport.js";

const WAIT = 1_000;
const WAIT_MOST = 8_000;
/** The server knows a key for 24 hours. */
const KEY_LIFE = 23 * 3_600_000;
const SEARCH_BEFORE = 3_600_000;
const SEARCH_PAGES = 50;
const ARRIVES_WITHIN = 3_000;
const UNSENT = "unsent ";

/**
 * Tabs of one user send one after the other. Without locks, as over plain HTTP and in a page that is denied its storage, the keys alone
 * prevent doubles.
 */
async function inTurn(name, run) {
  let running;
  const begin = () => (running ??= run());
  await globalThis.navigator?.locks?.request(name, begin).catch(() => {});
  await begin();
}

export class Outbox extends Store {
  #core;
  #kept;
  #onSent;
  #records = new Map();
  #running = new Set();
  #waking = new Map();
  #isClosed = false;

  /** `onSent(conversationId, message)`. */
  constructor(core, onSent) {
    super([]);
    [this.#core, this.#kept, this.#onSent] = [core, core.kept, onSent];
  }

  /** The user is known: the messages of earlier visits are on their way again. */
  begin() {
    for (const name of this.#kept.names(UNSENT)) this.#read(name);
    this.#changed();
    this.wake();
  }

  close() {
    this.#isClosed = true;
    for (const resume of this.#waking.values()) resume();
  }

  /** Another tab has changed a value. */
  changedElsewhere(name) {
    if (!name.startsWith(UNSENT)) return;
    const record = this.#records.get(name.slice(UNSENT.length));
    const update = () => { this.#read(name); this.#changed(); };
    if (this.#kept.get(name) || !record || record.error) return update();
    // It was sent: here it stays in sight until its event is there.
    this.#set(record.key, { isSending: true });
    setTimeout(update, ARRIVES_WITHIN);
  }

  of(conversationId) {
    return this.get().filter((outgoing) => outgoing.conversationId === conversationId);
  }

  /** `quote`: the message that it replies to, to be shown meanwhile. */
  add(conversationId, input, quote) {
    const key = newKey();
    const last = Math.max(0, ...[...this.#records.values()].map(({ order }) => order));
    this.#write({ key, conversationId, input, quote, createdAt: new Date().toISOString(), order: Math.max(Date.now(), last + 1), attemptedAt: null, error: null });
    this.#changed();
    this.#run(conversationId);
    return key;
  }

  /** The same message once more, with the same key. */
  retry(key) {
    const record = this.#records.get(key);
    if (!record) return;
    const { code } = record.error ?? {};
    this.#write({ ...record, error: null, attemptedAt: code === "KEY_EXPIRED" ? null : record.attemptedAt });
    this.#changed();
    this.#resume(record);
  }

  discard(key) {
    const record = this.#records.get(key);
    if (!record) return;
    this.#remove(record);
    this.#resume(record);
  }

  /** The server is back: what waits only for it is tried now. */
  wake() {
    for (const record of this.#records.values()) {
      if (record.retry?.error.code !== "RATE_LIMITED") this.#resume(record);
    }
  }

  /** Ends the wait of this record, not that of another one. */
  #resume({ conversationId, retry }) {
    if (retry) this.#waking.get(conversationId)?.();
    this.#run(conversationId);
  }

  #read(name) {
    const record = this.#kept.get(name);
    const key = name.slice(UNSENT.length);
    if (!record) this.#records.delete(key);
    else this.#records.set(key, { ...this.#records.get(key), ...record });
  }

  #write({ isSending, retry, ...record }) {
    this.#records.set(record.key, { ...record, isSending, retry });
    this.#kept.set(UNSENT + record.key, record);
  }

  #remove({ key }) {
    this.#records.delete(key);
    this.#kept.set(UNSENT + key, undefined);
    this.#changed();
  }

  /** How a record stands, in this tab alone. */
  #set(key, change) {
    const record = this.#records.get(key);
    if (record) this.#records.set(key, { ...record, ...change });
    this.#changed();
  }

  #changed() {
    const records = [...this.#records.values()].sort((a, b) => a.order - b.order || (a.key < b.key ? -1 : 1));
    this.put(records.map(({ key, conversationId, input, quote, createdAt, error, isSending, retry }) => ({
      key, conversationId, input, quote, createdAt,
      send: {
        state: error ? "failed" : isSending ? "sending" : "waiting",
        error: error ? errorOf(error.code, error.message) : retry?.error ?? null,
        retryAt: error ? null : retry?.at ?? null,
      },
    })));
  }

  #next(conversationId) {
    const { key } = this.of(conversationId).find(({ send }) => send.state === "waiting") ?? {};
    return this.#records.get(key);
  }

  async #run(conversationId) {
    if (this.#isClosed || !this.#kept.prefix || this.#running.has(conversationId) || !this.#next(conversationId)) return;
    this.#running.add(conversationId);
    await inTurn(`${this.#kept.prefix}${conversationId}`, () => this.#drain(conversationId)).catch(() => {});
    this.#running.delete(conversationId);
    this.#run(conversationId);
  }

  async #drain(conversationId) {
    let wait = WAIT;
    for (let record; !this.#isClosed && (record = this.#next(conversationId)); ) {
      const { key } = record;
      try {
        this.#set(key, { isSending: true, retry: null });
        const message = await this.#send(record);
        wait = WAIT;
        this.#onSent(conversationId, message);
        this.#remove(record);
      } catch (error) {
        const current = this.#records.get(key);
        if (!current) continue;
        if (error.isPassing || error.code === "UNAUTHENTICATED") {
          const time = error.retryAfterMs ?? wait;
          this.#set(key, { isSending: false, retry: { error, at: Date.now() + time } });
          await this.#pause(conversationId, time);
          wait = Math.min(WAIT_MOST, wait * 2);
        } else {
          this.#write({ ...current, isSending: false, retry: null, error: { code: error.code, message: error.message } });
          this.#changed();
        }
      }
    }
  }

  /** The stored message. */
  async #send(record) {
    const { key, conversationId, input, attemptedAt } = record;
    if (attemptedAt && Date.now() - attemptedAt > KEY_LIFE) {
      const found = await this.#find(record);
      if (found) return found;
      throw errorOf("KEY_EXPIRED", "This message was not found among those sent. Send it again?");
    }
    if (!attemptedAt) this.#write({ ...this.#records.get(key), attemptedAt: Date.now() });
    const { messageEdge } = await this.#core.change("sendMessage", { conversationId, ...input, idempotencyKey: key });
    return messageEdge.node;
  }

  /** The message with this key, whose first try is too long ago for the server to know. */
  async #find({ key, conversationId, attemptedAt }) {
    const from = new Date(attemptedAt - SEARCH_BEFORE).toISOString();
    for (let after = null, pages = 0; pages < SEARCH_PAGES; pages += 1) {
      const { conversation } = await this.#core.ask("PAGE", { id: conversationId, first: 100, from, after });
      const { edges, pageInfo } = conversation?.messages ?? { edges: [], pageInfo: {} };
      const found = edges.find(({ node }) => node.clientKey === key);
      if (found || !pageInfo.hasNextPage) return found?.node;
      after = pageInfo.endCursor;
    }
  }

  #pause(conversationId, time) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, time);
      this.#waking.set(conversationId, () => { clearTimeout(timer); resolve(); });
    }).finally(() => this.#waking.delete(conversationId));
  }
}

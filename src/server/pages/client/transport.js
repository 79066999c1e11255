// The way to the server: requests over POST /graphql, and all subscriptions over one graphql-transport-ws socket that comes back after
// every cut. Each subscription keeps the last cursor and resumes there: the server replays the missed events first, in order.

import { Store, onPage } from "./store.js";

const REQUEST_TIME = 15_000;
const PING_EVERY = 10_000;
const PONG_TIME = 5_000;
const WAIT_FIRST = 250;
const WAIT_FULL = 1_000;
const WAIT_MOST = 3_000;
const WAIT_HIDDEN = 30_000;
const RENEW_BEFORE = 30_000;
const QUERY_TRIES = 3;

/** The token can no longer be renewed: the app has to sign in again. Thrown by the app's `token`. */
export class SignedOut extends Error {}

/** An error of the server, or OFFLINE without an answer. */
export class ChatError extends Error {
  constructor({ message, extensions = {} }) {
    super(message);
    this.name = "ChatError";
    this.code = extensions.code ?? "INTERNAL";
    this.outcome = extensions.outcome;
    this.retryAfterMs = extensions.retryAfterMs;
    this.inputPath = extensions.inputPath;
  }

  /** Whether another try may help. */
  get isPassing() {
    return ["OFFLINE", "UNAVAILABLE", "RATE_LIMITED"].includes(this.code) || this.outcome === "UNKNOWN";
  }
}

export const errorOf = (code, message) => new ChatError({ message, extensions: { code } });
export const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
/** A random part of a wait that doubles with each try. */
export const backoff = (tries, first = WAIT_FULL, most = WAIT_HIDDEN) => Math.random() * Math.min(most, first * 2 ** tries);
export const isHidden = () => Boolean(globalThis.document?.hidden);
const textOf = (document) => document.loc?.source.body ?? String(document);
/** Whether the document may have a mutation: one in a comment counts, too. */
const hasMutation = (query) => /\bmutation\b/.test(query);

/** Claims of a JWT, unverified; an empty object for another token. */
export function claimsOf(token) {
  try {
    const bytes = atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0))));
  } catch {
    return {};
  }
}

export class Transport {
  connection = new Store({ state: "connecting", retryAt: null });
  #options;
  #url;
  #token = null;
  #asking = null;
  #unlisten;
  #renewal;
  #socket;
  #isReady = false;
  #isOpening = false;
  #isClosed = false;
  #tries = 0;
  #retryTimer;
  #pingTimer;
  #pongTimer;
  #nextId = 1;
  #operations = new Map();

  /** `options` of `connect`, and `onToken(claims)`, `onReady()` after each connection. */
  constructor(options) {
    this.#options = options;
    this.#url = new URL(options.url, globalThis.location?.href);
    if (!this.#url.pathname.endsWith("/")) this.#url.pathname += "/";
    this.#unlisten = onPage(["online", "pageshow", "visibilitychange"], () => this.retryNow());
    this.#connect();
  }

  get isClosed() {
    return this.#isClosed;
  }

  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const timer of [this.#retryTimer, this.#renewal, this.#pongTimer]) clearTimeout(timer);
    clearInterval(this.#pingTimer);
    this.#isReady = false;
    this.#operations.clear();
    this.#unlisten();
    this.#socket?.close(1000);
  }

  #end(reason) {
    this.close();
    this.connection.put({ state: "signed-out", reason });
  }

  // ---- The token.

  /** One request for a token at a time. */
  #ask(reason) {
    this.#asking ??= (async () => {
      let timer;
      try {
        const tooLate = new Promise((_, reject) => { timer = setTimeout(() => reject(errorOf("OFFLINE", "There is no token.")), REQUEST_TIME); });
        const token = await Promise.race([this.#options.token(reason), tooLate]);
        const claims = claimsOf(token);
        if (token !== this.#token) this.#renewBefore(claims);
        this.#token = token;
        this.#options.onToken?.(claims);
        return token;
      } catch (error) {
        if (error instanceof SignedOut) this.#end("refused");
        throw error;
      } finally {
        clearTimeout(timer);
        this.#asking = null;
      }
    })();
    return this.#asking;
  }

  /** Asks for the next token before the end of this one, by its own lifetime: the clock here may be wrong. */
  #renewBefore({ exp, iat }) {
    clearTimeout(this.#renewal);
    if (!exp || this.#isClosed) return;
    const spans = [exp - Date.now() / 1_000, exp - iat].filter((span) => span > 0);
    const time = Math.min(2 ** 31 / 1_000, ...spans) * 1_000;
    this.#renewIn(time - Math.min(RENEW_BEFORE, time / 4));
  }

  #renewIn(time) {
    this.#renewal = setTimeout(() => this.#ask("expiring").catch(() => this.#isClosed || this.#renewIn(WAIT_MOST)), time);
    this.#renewal.unref?.();
  }

  // ---- Requests.

  /** The data of a query or mutation, or a ChatError. A query is tried again where that may help; a mutation only with another token. */
  async request(document, variables = {}) {
    const query = textOf(document);
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#post(query, variables);
      } catch (error) {
        if (!error.isPassing || tries === QUERY_TRIES || this.#isClosed || hasMutation(query)) throw error;
        await pause(Math.min(WAIT_MOST, error.retryAfterMs ?? WAIT_FIRST * 2 ** tries * (0.5 + Math.random())));
      }
    }
  }

  async #post(query, variables, isSecondTry = false) {
    if (this.#isClosed) throw errorOf("UNAUTHENTICATED", "You are signed out.");
    let answer, token;
    try {
      token = this.#token ?? (await this.#ask("start"));
      const response = await (this.#options.fetch ?? globalThis.fetch)(new URL("graphql", this.#url), {
        method: "POST",
        headers: {
          "content-type": "application/json",
          accept: "application/graphql-response+json, application/json;q=0.9",
          authorization: `Bearer ${token}`,
        },
        body: JSON.stringify({ query, variables }),
        signal: AbortSignal.timeout(REQUEST_TIME),
      });
      answer = await response.json();
    } catch {
      throw errorOf("OFFLINE", "The server does not answer.");
    }
    const error = answer.errors?.[0];
    if (error?.extensions?.code === "UNAUTHENTICATED" && !isSecondTry) {
      if (token === this.#token) await this.#ask("refused").catch(() => { throw errorOf("OFFLINE", "There is no token."); });
      return this.#post(query, variables, true);
    }
    if (error) throw new ChatError(error);
    return answer.data;
  }

  // ---- Subscriptions.

  /**
   * Runs until the returned function is called. `next` gets the data. `end` is called once the server has ended the stream for good:
   * with an error, or without one where nothing is left to deliver.
   */
  subscribe({ document, variables, next, end = () => {} }) {
    const query = textOf(document);
    const operation = { query, variables: { ...variables }, next, end, asksLive: /\bisLive\b/.test(query), isBehind: false };
    this.#enter(operation);
    if (this.#isReady) this.#start(operation);
    return () => {
      const { id } = operation;
      if (this.#operations.delete(id) && this.#isReady) this.#say({ id, type: "complete" });
      this.#caughtUp();
    };
  }

  #enter(operation) {
    operation.id = String(this.#nextId++);
    this.#operations.set(operation.id, operation);
  }

  #say(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  #start(operation) {
    const { id, query, variables, asksLive, timer } = operation;
    clearTimeout(timer);
    operation.isBehind = asksLive && Boolean(variables.after);
    this.#say({ id, type: "subscribe", payload: { query, variables } });
    this.#caughtUp();
  }

  #caughtUp() {
    if (!this.#isReady) return;
    const isCaughtUp = ![...this.#operations.values()].some(({ isBehind }) => isBehind);
    const { state, isCaughtUp: before } = this.connection.get();
    if (state !== "connected" || before !== isCaughtUp) this.connection.put({ state: "connected", isCaughtUp });
  }

  #received({ type, id, payload }) {
    clearTimeout(this.#pongTimer);
    const operation = this.#operations.get(id);
    if (type === "connection_ack") this.#ready();
    else if (type === "ping") this.#say({ type: "pong" });
    else if (!operation) return;
    else if (type === "next") this.#next(operation, payload);
    else if (type === "error") this.#failed(operation, payload[0]);
    else if (type === "complete") this.#finish(operation, null);
  }

  #ready() {
    [this.#isReady, this.#isOpening, this.#tries] = [true, false, 0];
    clearInterval(this.#pingTimer);
    this.#pingTimer = setInterval(() => this.#ping(), PING_EVERY);
    for (const operation of this.#operations.values()) this.#start(operation);
    this.#caughtUp();
    this.#options.onReady?.();
  }

  #next(operation, { data, errors, extensions }) {
    const field = Object.values(data ?? {})[0];
    const cursor = extensions?.cursor ?? field?.cursor ?? field?.messageEdge?.cursor;
    // An event over the bound of an answer has an error and a cursor, and the stream continues after it. An event of which only a part
    // failed is delivered again.
    if (errors && (field || !cursor)) {
      this.#say({ id: operation.id, type: "complete" });
      return this.#failed(operation, errors[0]);
    }
    if (cursor) operation.variables.after = cursor;
    if (!field) return;
    if (field.isLive && operation.isBehind) {
      operation.isBehind = false;
      this.#caughtUp();
    }
    operation.next(data);
  }

  /** A passing error is tried again, from the last cursor: under another id, for the server may still use this one. */
  #failed(operation, error) {
    const problem = new ChatError(error);
    if (!problem.isPassing) return this.#finish(operation, problem);
    this.#operations.delete(operation.id);
    this.#enter(operation);
    operation.timer = setTimeout(() => {
      if (this.#isReady && this.#operations.has(operation.id)) this.#start(operation);
    }, problem.retryAfterMs ?? WAIT_FULL * (1 + Math.random()));
  }

  #finish(operation, problem) {
    this.#operations.delete(operation.id);
    this.#caughtUp();
    operation.end(problem);
  }

  // ---- The socket.

  /** Tries at once, or asks a socket that looks open whether it is. */
  retryNow() {
    if (isHidden() || this.#isClosed || this.#isOpening) return;
    if (this.#isReady) return this.#ping();
    this.#tries = 0;
    this.#connect();
  }

  async #connect() {
    clearTimeout(this.#retryTimer);
    this.#isOpening = true;
    let token = this.#token;
    try {
      token ??= await this.#ask("start");
    } catch {
      if (!this.#isClosed) this.#lost(0);
      return;
    }
    if (this.#isClosed) return;
    const url = new URL("graphql/ws", this.#url);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new (this.#options.WebSocket ?? globalThis.WebSocket)(url, "graphql-transport-ws");
    this.#socket = socket;
    socket.onopen = () => this.#say({ type: "connection_init", payload: { Authorization: `Bearer ${token}` } });
    socket.onmessage = ({ data }) => socket === this.#socket && this.#received(JSON.parse(data));
    socket.onclose = ({ code }) => socket === this.#socket && this.#closed(code, token);
    // A network that swallows everything never closes a socket.
    this.#expectPong(PING_EVERY);
  }

  #ping() {
    this.#say({ type: "ping" });
    this.#expectPong(PONG_TIME);
  }

  #expectPong(time) {
    clearTimeout(this.#pongTimer);
    this.#pongTimer = setTimeout(() => {
      const socket = this.#socket;
      this.#socket = null;
      socket.close();
      this.#closed(1006);
    }, time);
  }

  async #closed(code, token) {
    clearTimeout(this.#pongTimer);
    clearInterval(this.#pingTimer);
    this.#isReady = false;
    if (this.#isClosed) return;
    if (code === 4401) return this.#end("suspended");
    if (code === 4403 && token === this.#token) {
      this.#isOpening = true;
      await this.#ask("refused").catch(() => {});
      if (this.#isClosed) return;
    }
    this.#lost(code);
  }

  #lost(code) {
    this.#isOpening = false;
    // A server that has asked for time, or is about to stop, gets some.
    const first = /101|429/.test(code) ? WAIT_FULL : WAIT_FIRST;
    const wait = backoff(this.#tries, first, isHidden() ? WAIT_HIDDEN : WAIT_MOST);
    this.connection.put({ state: this.#tries++ ? "offline" : "connecting", retryAt: Date.now() + wait });
    this.#retryTimer = setTimeout(() => this.#connect(), wait);
  }
}

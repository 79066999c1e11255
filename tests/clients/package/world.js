// A server made by hand and a clock that is wound by hand, for the rules of the package.

import { mock } from "node:test";

import { connect } from "../wideroom-client/index.js";

const realImmediate = setImmediate;
mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"], now: 1_800_000_000_000 });
Math.random = () => 0.5;
/** Events of the page, and the locks that its tabs share. */
export const page = new EventTarget();
globalThis.addEventListener = page.addEventListener.bind(page);
const locks = new Map();
const request = (name, run) => {
  const held = (locks.get(name) ?? Promise.resolve()).then(run);
  locks.set(name, held.catch(() => {}));
  return held;
};
Object.defineProperty(globalThis, "navigator", { value: { locks: { request } }, configurable: true });

/** Lets every promise run that can. */
export const settle = async () => { for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => realImmediate(resolve)); };
export const wind = async (time) => {
  for (const step = Math.max(50, time / 200); time > 0; time -= step) { mock.timers.tick(Math.min(step, time)); await settle(); }
};

/** A socket whose server answers pings. */
export const windOn = async (socket, time) => {
  for (; time > 0; time -= 1_000) { socket.hear({ type: "pong" }); await wind(Math.min(1_000, time)); }
};

export const tokenOf = (sub, life = 3_600) => {
  const now = Math.floor(Date.now() / 1_000);
  return `h.${Buffer.from(JSON.stringify({ sub, iat: now, exp: now + life })).toString("base64url")}.s`;
};

export function storageOf() {
  const values = new Map();
  // The event of a change goes to the other tabs; in this process all are told.
  const tell = (key) => queueMicrotask(() => page.dispatchEvent(Object.assign(new Event("storage"), { key })));
  return {
    values,
    get length() { return values.size; },
    key: (index) => [...values.keys()][index] ?? null,
    getItem: (key) => values.get(key) ?? null,
    setItem: (key, value) => { values.set(key, value); tell(key); },
    removeItem: (key) => { values.delete(key); tell(key); },
  };
}

/** A server: `answers` maps the name of an operation to its data, an error, or nothing where the network fails. */
export function world({ answers = {}, token = () => tokenOf("alice"), storage = storageOf() } = {}) {
  const sent = [];
  const sockets = [];
  const asked = [];
  const fetch = async (_, { body, headers }) => {
    const { query, variables } = JSON.parse(body);
    const name = /(?:query|mutation) (\w+)/.exec(query)[1];
    sent.push({ name, input: variables.input, variables });
    const answer = await answers[name]?.(variables.input ?? variables, headers.authorization);
    if (answer === undefined) throw new TypeError("The network failed.");
    return { json: async () => (answer.extensions ? { data: null, errors: [{ message: "No.", ...answer }] } : { data: answer }) };
  };
  class Socket {
    readyState = 0;
    said = [];
    constructor() { sockets.push(this); }
    send(text) { this.said.push(JSON.parse(text)); }
    close() { this.readyState = 3; }
    open() { this.readyState = 1; this.onopen(); this.hear({ type: "connection_ack" }); }
    hear(message) { this.onmessage({ data: JSON.stringify(message) }); }
    cut(code) { this.readyState = 3; this.onclose({ code }); }
    of(type) { return this.said.filter((message) => message.type === type); }
  }
  const viewer = () => ({ viewer: { username: "alice" } });
  answers.Viewer ??= viewer;
  const chat = connect({ url: "http://chat.test/", storage, fetch, WebSocket: Socket, token: (reason) => { asked.push(reason); return token(reason); } });
  return { chat, sent, sockets, asked, storage, answers, sends: () => sent.filter(({ name }) => name === "SendMessage").map(({ input }) => input) };
}

/** Ids of the streams of a field. */
export const openedOn = (socket, field) => socket.of("subscribe").filter(({ payload }) => payload.query.includes(field)).map(({ id }) => id);

export const stored = ({ conversationId, body, idempotencyKey }) => ({ sendMessage: { messageEdge: { node: {
  id: idempotencyKey, orderKey: "1", clientKey: idempotencyKey, body, sender: { username: "alice" }, conversationId, mentions: [], reactions: [], attachments: [] } } } });
export const failure = (code, more = {}) => ({ extensions: { code, ...more } });

/** Checks each rule, one after the other. */
export async function check(...rules) {
  for (const rule of rules) {
    try {
      await rule();
    } catch (error) {
      console.error(rule.name);
      throw error;
    }
  }
  process.exit(0);
}

// The rules that the package promises, each against a server made by hand and a clock that is wound by hand: queues and keys of unsent
// messages, tabs, tokens, close codes, dead sockets and cursors. `node package/rules.js`

import assert from "node:assert/strict";
import { mock } from "node:test";

import { ChatError, SignedOut, connect } from "../wideroom-client/index.js";

const HOUR = 3_600_000;
const realImmediate = setImmediate;
mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"], now: 1_800_000_000_000 });
Math.random = () => 0.5;
/** Events of the page, and the locks that its tabs share. */
const page = new EventTarget();
globalThis.addEventListener = page.addEventListener.bind(page);
const locks = new Map();
const request = (name, run) => {
  const held = (locks.get(name) ?? Promise.resolve()).then(run);
  locks.set(name, held.catch(() => {}));
  return held;
};
Object.defineProperty(globalThis, "navigator", { value: { locks: { request } }, configurable: true });

/** Lets every promise run that can. */
const settle = async () => { for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => realImmediate(resolve)); };
const wind = async (time) => {
  for (const step = Math.max(50, time / 200); time > 0; time -= step) { mock.timers.tick(Math.min(step, time)); await settle(); }
};

/** A socket whose server answers pings. */
const windOn = async (socket, time) => {
  for (; time > 0; time -= 1_000) { socket.hear({ type: "pong" }); await wind(Math.min(1_000, time)); }
};

const tokenOf = (sub, life = 3_600) => {
  const now = Math.floor(Date.now() / 1_000);
  return `h.${Buffer.from(JSON.stringify({ sub, iat: now, exp: now + life })).toString("base64url")}.s`;
};

function storageOf() {
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
function world({ answers = {}, token = () => tokenOf("alice"), storage = storageOf() } = {}) {
  const sent = [];
  const sockets = [];
  const asked = [];
  const fetch = async (_, { body }) => {
    const { query, variables } = JSON.parse(body);
    const name = /(?:query|mutation) (\w+)/.exec(query)[1];
    sent.push({ name, input: variables.input, variables });
    const answer = await answers[name]?.(variables.input ?? variables);
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
const openedOn = (socket, field) => socket.of("subscribe").filter(({ payload }) => payload.query.includes(field)).map(({ id }) => id);

const stored = ({ conversationId, body, idempotencyKey }) => ({ sendMessage: { messageEdge: { node: {
  id: idempotencyKey, orderKey: "1", clientKey: idempotencyKey, body, sender: { username: "alice" }, conversationId, mentions: [], reactions: [], attachments: [] } } } });
const failure = (code, more = {}) => ({ extensions: { code, ...more } });

/** A wait of one conversation holds no other, and those of one keep their order and their keys. */
async function queues() {
  let isSlow = true;
  const { chat, sends } = world({ answers: {
    SendMessage: (input) => (input.conversationId === "slow" && isSlow ? failure("RATE_LIMITED", { retryAfterMs: 60_000 }) : stored(input)),
  } });
  await settle();
  const keys = ["1", "2"].map((body) => chat.conversation("slow").send(body));
  chat.conversation("other").send("3");
  await settle();
  assert.deepEqual(sends().map(({ body }) => body), ["1", "3"]);
  const [first, second] = chat.outbox.get();
  assert.equal(first.send.error.code, "RATE_LIMITED");
  assert.equal(first.send.retryAt, Date.now() + 60_000);
  assert.equal(second.send.state, "waiting");
  isSlow = false;
  await wind(61_000);
  assert.deepEqual(sends().map(({ body }) => body), ["1", "3", "1", "2"]);
  assert.deepEqual(sends().filter(({ conversationId }) => conversationId === "slow").map(({ idempotencyKey }) => idempotencyKey), [keys[0], ...keys]);
  assert.deepEqual(chat.outbox.get(), []);
  chat.close();
}

/** A connection cuts short what waits for the server, but no wait that the server has asked for, whatever else is in the queue. */
async function pauses() {
  let code = "RATE_LIMITED";
  const { chat, sends, sockets } = world({ answers: {
    SendMessage: (input) => (input.body === "no" ? failure("FORBIDDEN") : code ? failure(code, { retryAfterMs: 60_000 }) : stored(input)),
  } });
  await settle();
  const conversation = chat.conversation("c");
  const failed = conversation.send("no");
  await settle();
  const [first, , third] = ["1", "2", "3"].map((body) => conversation.send(body));
  await settle();
  const tried = () => sends().slice(1).map(({ body }) => body);
  const isUntouched = async () => { await settle(); assert.deepEqual(tried(), ["1"]); };
  await isUntouched();
  sockets[0].open();
  await isUntouched();
  conversation.discard(third);
  await isUntouched();
  conversation.retry(failed);
  await isUntouched();
  // The person decides about the one that waits.
  conversation.retry(first);
  await settle();
  assert.deepEqual(tried(), ["1", "no", "1"], "in the order in which they were written");
  code = "UNAVAILABLE";
  conversation.discard(first);
  await settle();
  assert.deepEqual(tried().slice(3), ["2"]);
  code = null;
  sockets[0].hear({ type: "connection_ack" });
  await settle();
  assert.deepEqual(tried().slice(3), ["2", "2"]);
  assert.deepEqual(chat.outbox.get().map(({ key }) => key), [failed]);
  chat.close();
}

/** A message is on the device before `send` returns; the next visit sends it under the same key, as nobody else. */
async function reloads() {
  const first = world({});
  await settle();
  const key = first.chat.conversation("c").send("unsent");
  first.chat.conversation("c").draft.set("a draft");
  assert.ok([...first.storage.values.values()].some((text) => text.includes(key)), "at once");
  await settle();
  first.chat.close();
  const other = world({ storage: first.storage, token: () => tokenOf("bob"), answers: { SendMessage: stored, Viewer: () => ({ viewer: { username: "bob" } }) } });
  await wind(10_000);
  assert.deepEqual([other.sends(), other.chat.outbox.get()], [[], []]);
  other.chat.close();
  const again = world({ storage: first.storage, answers: { SendMessage: stored } });
  await settle();
  assert.deepEqual(again.sends().map(({ idempotencyKey }) => idempotencyKey), [key]);
  assert.equal(again.chat.conversation("c").draft.get(), "a draft");
  await again.chat.signOut();
  assert.equal(first.storage.length, 0, "signing out empties it");
}

/** The name of one user begins the name of another: each has values of their own, and one who signs out leaves nothing, whatever comes late. */
async function neighbours() {
  const storage = storageOf();
  const chatOf = (sub, answers = {}) => world({ storage, token: () => tokenOf(sub), answers: { Viewer: () => ({ viewer: { username: sub } }), ...answers } });
  const lee = chatOf("ann lee");
  await settle();
  lee.chat.conversation("c").send("of ann lee");
  lee.chat.conversation("c").draft.set("a draft");
  await settle();
  lee.chat.close();
  const kept = [...storage.values];
  assert.equal(kept.length, 2);
  let refuse;
  const ann = chatOf("ann", { SendMessage: () => ({ then: (resolve) => { refuse = () => resolve(failure("FORBIDDEN")); } }) });
  await settle();
  assert.deepEqual([ann.chat.outbox.get(), ann.chat.conversation("lee c").draft.get()], [[], ""]);
  ann.chat.conversation("c").send("of ann");
  await settle();
  await ann.chat.signOut();
  refuse();
  await settle();
  ann.chat.conversation("c").draft.set("late");
  assert.deepEqual([...storage.values], kept);
}

/** A page that is denied its storage is denied locks: it sends without them. A lock that begins is used once. */
async function deniedLocks() {
  const of = async (request) => {
    let asked = 0;
    // More would be an endless loop.
    const counted = (name, run) => { asked += 1; return asked > 20 ? new Promise(() => {}) : request(name, run); };
    Object.defineProperty(globalThis, "navigator", { configurable: true, value: { locks: { request: counted } } });
    const { chat, sends } = world({ answers: { SendMessage: stored } });
    await settle();
    for (const body of ["1", "2"]) chat.conversation("c").send(body);
    await settle();
    chat.close();
    return [sends().map(({ body }) => body), chat.outbox.get().length, asked];
  };
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator") ?? { configurable: true, value: undefined };
  try {
    assert.deepEqual(await of(async () => { throw new DOMException("Denied.", "SecurityError"); }), [["1", "2"], 0, 1]);
    assert.deepEqual(await of(async (_, run) => run()), [["1", "2"], 0, 1]);
  } finally {
    Object.defineProperty(globalThis, "navigator", before);
  }
}

/** Two tabs of one user share the queue: both show a message, and one of them sends it. */
async function tabs() {
  const storage = storageOf();
  let isDown = true;
  const answers = () => ({ SendMessage: (input) => (isDown ? undefined : stored(input)) });
  const both = [world({ storage, answers: answers() }), world({ storage, answers: answers() })];
  await settle();
  const bodies = ["1", "2", "3", "4"];
  for (const [at, body] of bodies.entries()) {
    both[at % 2].chat.conversation("c").send(body);
    await settle();
  }
  for (const { chat } of both) assert.deepEqual(chat.outbox.get().map(({ input }) => input.body), bodies);
  isDown = false;
  const before = both.map(({ sends }) => sends().length);
  await wind(20_000);
  const sent = both.flatMap(({ sends }, at) => sends().slice(before[at]).map(({ body }) => body));
  assert.deepEqual(sent.sort(), bodies, "each by one of them");
  for (const { chat } of both) {
    assert.deepEqual(chat.outbox.get(), []);
    chat.close();
  }
}

/** After 23 hours the history is asked for the key, and then the person. */
async function oldKeys() {
  for (const isThere of [true, false]) {
    const edges = () => [{ node: { ...stored({ body: "old", idempotencyKey: isThere ? key : "another" }).sendMessage.messageEdge.node } }];
    const { chat, sends, sent, answers } = world({ answers: { Page: () => ({ conversation: { messages: { edges: edges(), pageInfo: { hasNextPage: false } } } }) } });
    await settle();
    const key = chat.conversation("c").send("old");
    await settle();
    assert.equal(sends().length, 1);
    await wind(22 * HOUR);
    const tries = sends().length;
    assert.ok(tries > 100, "it was tried all the time");
    await wind(1.1 * HOUR);
    const last = sends().length;
    await wind(HOUR);
    assert.equal(sends().length, last, "the key is old");
    assert.ok(sent.some(({ name }) => name === "Page"));
    if (isThere) assert.deepEqual(chat.outbox.get(), []);
    else {
      const [{ send }] = chat.outbox.get();
      assert.deepEqual([send.state, send.error.code], ["failed", "KEY_EXPIRED"]);
      answers.SendMessage = stored;
      chat.conversation("c").retry(key);
      await settle();
      assert.deepEqual(chat.outbox.get(), []);
      assert.equal(sends().at(-1).idempotencyKey, key);
    }
    chat.close();
  }
}

/** A refusal fails one message, and the next one goes. */
async function refusals() {
  const { chat, sends } = world({ answers: { SendMessage: (input) => (input.body === "no" ? failure("FORBIDDEN") : stored(input)) } });
  await settle();
  chat.conversation("c").send("no");
  chat.conversation("c").send("yes");
  await settle();
  assert.deepEqual(sends().map(({ body }) => body), ["no", "yes"]);
  assert.deepEqual(chat.outbox.get().map(({ send }) => [send.state, send.error.code]), [["failed", "FORBIDDEN"]]);
  chat.close();
}

/** A token that fails is asked again, is renewed before its end, and a SignedOut ends it. */
async function tokens() {
  let fails = 2;
  const { chat, asked, sockets } = world({ token: async (reason) => {
    if (fails-- > 0) throw new Error("The token server is away.");
    if (reason === "refused") throw new SignedOut();
    return tokenOf("alice", 20);
  } });
  await wind(10_000);
  sockets.at(-1).open();
  assert.equal(chat.connection.get().state, "connected");
  fails = 2;
  await wind(14_000);
  assert.deepEqual(asked.slice(-3), ["expiring", "expiring", "expiring"], "a renewal that fails is tried again");
  assert.deepEqual([chat.connection.get().state, sockets.at(-1).readyState], ["connected", 1], "and ends no socket");
  // The socket has the token from before.
  const count = asked.length;
  sockets.at(-1).cut(4403);
  await wind(3_000);
  assert.equal(asked.slice(count).includes("refused"), false, "there is a newer one");
  sockets.at(-1).open();
  sockets.at(-1).cut(4403);
  await settle();
  assert.deepEqual(chat.connection.get(), { state: "signed-out", reason: "refused" });
  await assert.rejects(chat.request("query Any { viewer { id } }"), (error) => error instanceof ChatError && error.code === "UNAUTHENTICATED");
}

/** 4401 is final; every other code comes back, later and later but never much. */
async function closeCodes() {
  const { chat, sockets } = world();
  await settle();
  for (const code of [1000, 1006, 1012, 1013, 4290, 4291, 4400, 4408]) {
    sockets.at(-1).open();
    const before = sockets.length;
    sockets.at(-1).cut(code);
    await wind(1_600);
    assert.ok(sockets.length > before, `it comes back from ${code}`);
  }
  sockets.at(-1).open();
  const waits = [];
  for (let tries = 0; tries < 12; tries += 1) {
    const before = sockets.length;
    sockets.at(-1).cut(1006);
    waits.push(chat.connection.get().retryAt - Date.now());
    await wind(3_000);
    assert.ok(sockets.length > before);
  }
  // Half of the wait, since every random number is one half here.
  assert.deepEqual(waits, [125, 250, 500, 1_000, ...Array(8).fill(1_500)]);
  assert.equal(chat.connection.get().state, "offline");
  sockets.at(-1).open();
  sockets.at(-1).cut(4401);
  const before = sockets.length;
  await wind(HOUR);
  assert.deepEqual([sockets.length, chat.connection.get()], [before, { state: "signed-out", reason: "suspended" }]);
}

/** It comes back at once when the network, or the page, does; and asks a socket that looks open whether it is. */
async function returns() {
  const { chat, sockets } = world();
  await settle();
  sockets.at(-1).open();
  for (const name of ["online", "visibilitychange", "pageshow"]) {
    const pings = sockets.at(-1).of("ping").length;
    page.dispatchEvent(new Event(name));
    assert.equal(sockets.at(-1).of("ping").length, pings + 1, name);
    sockets.at(-1).hear({ type: "pong" });
    sockets.at(-1).cut(1006);
    const before = sockets.length;
    assert.ok(chat.connection.get().retryAt > Date.now(), "it waits");
    page.dispatchEvent(new Event(name));
    await settle();
    assert.equal(sockets.length, before + 1, name);
    sockets.at(-1).open();
  }
  chat.close();
}

/** A socket without a pong for 5 s is dropped, and each stream goes on after its last response. */
async function streams() {
  const { chat, sockets } = world();
  await settle();
  const [first] = sockets;
  first.open();
  const payloads = [];
  chat.subscribe("subscription S($after: String) { s(after: $after) { isLive } }", {}, (data) => payloads.push(data));
  const ended = [];
  chat.subscribe("subscription E { e }", {}, () => {}, (error) => ended.push(error?.code));
  const [{ id }, { id: other }] = first.of("subscribe");
  first.hear({ type: "next", id, payload: { data: { s: { isLive: true } }, extensions: { cursor: "1" } } });
  // An event over the bound of an answer has a cursor and no data.
  first.hear({ type: "next", id, payload: { data: null, errors: [{ message: "Too large." }], extensions: { cursor: "2" } } });
  first.hear({ type: "next", id: other, payload: { data: null, errors: [{ message: "Old.", ...failure("CURSOR_EXPIRED") }] } });
  assert.deepEqual([payloads.length, ended], [1, ["CURSOR_EXPIRED"]]);
  await wind(10_000);
  assert.equal(first.of("ping").length, 1);
  await wind(6_000);
  assert.notEqual(sockets.at(-1), first, "dropped");
  sockets.at(-1).open();
  // A server of an earlier version has no `extensions.cursor`.
  for (const field of [{ cursor: "a" }, { messageEdge: { cursor: "b" } }]) {
    sockets.at(-1).hear({ type: "next", id, payload: { data: { s: field } } });
    sockets.at(-1).cut(1006);
    await wind(200);
    sockets.at(-1).open();
    assert.deepEqual(sockets.at(-1).of("subscribe").at(-1).payload.variables, { after: field.cursor ?? field.messageEdge.cursor });
  }
  sockets.at(-1).hear({ type: "next", id, payload: { data: { s: { cursor: "c" } }, extensions: { cursor: "2" } } });
  sockets.at(-1).cut(1006);
  await wind(200);
  sockets.at(-1).open();
  const [resumed, ...rest] = sockets.at(-1).of("subscribe");
  assert.deepEqual([resumed.payload.variables, rest], [{ after: "2" }, []]);
  assert.equal(chat.connection.get().isCaughtUp, false, "it replays");
  sockets.at(-1).hear({ type: "next", id, payload: { data: { s: { isLive: true } }, extensions: { cursor: "3" } } });
  assert.equal(chat.connection.get().isCaughtUp, true);
  // A passing error begins again, from there.
  sockets.at(-1).hear({ type: "error", id, payload: [{ message: "Later.", ...failure("UNAVAILABLE", { retryAfterMs: 500 }) }] });
  await wind(600);
  assert.deepEqual(sockets.at(-1).of("subscribe").at(-1).payload.variables, { after: "3" });
  chat.close();
}

/**
 * A stream that fails for a while begins again once, on the socket of then, after its last cursor: as another operation, for the server may
 * still end the first one.
 */
async function restarts() {
  const { chat, sockets } = world();
  await settle();
  sockets[0].open();
  const ended = [];
  const heard = [];
  const stop = chat.subscribe("subscription S($after: String) { s(after: $after) { cursor } }", {}, ({ s }) => heard.push(s.cursor), (error) => ended.push(error?.code ?? null));
  const passing = (retryAfterMs) => [{ message: "Later.", ...failure("UNAVAILABLE", { retryAfterMs }) }];
  const begun = (socket) => socket.of("subscribe").map(({ id, payload }) => [id, payload.variables.after]);
  const next = (socket, cursor) => socket.hear({ type: "next", id: begun(socket).at(-1)[0], payload: { data: { s: { cursor } } } });
  next(sockets[0], "1");
  // As the server ends a stream: a response without data, and `complete`.
  const [[first]] = begun(sockets[0]);
  sockets[0].hear({ type: "next", id: first, payload: { data: null, errors: passing(500) } });
  sockets[0].hear({ type: "complete", id: first });
  await wind(600);
  assert.deepEqual(begun(sockets[0]).map(([, after]) => after), [undefined, "1"], "it begins again");
  next(sockets[0], "2");
  // A server that goes on with it is told, and is not heard.
  const second = begun(sockets[0]).at(-1)[0];
  sockets[0].hear({ type: "next", id: second, payload: { data: null, errors: passing(500) } });
  assert.equal(sockets[0].of("complete").at(-1).id, second);
  sockets[0].hear({ type: "next", id: second, payload: { data: null, errors: passing(500) } });
  await wind(600);
  assert.deepEqual(begun(sockets[0]).map(([, after]) => after), [undefined, "1", "2"]);
  // The socket is lost during the pause.
  sockets[0].hear({ type: "error", id: begun(sockets[0]).at(-1)[0], payload: passing(5_000) });
  sockets[0].cut(1006);
  await wind(600);
  sockets[1].open();
  next(sockets[1], "3");
  await wind(10_000);
  assert.deepEqual(begun(sockets[1]).map(([, after]) => after), ["2"], "once");
  // Each operation of a socket has an id of its own.
  for (const socket of sockets) assert.equal(new Set(begun(socket).map(([id]) => id)).size, begun(socket).length);
  // One that is given up during the pause does not come back.
  sockets[1].hear({ type: "error", id: begun(sockets[1]).at(-1)[0], payload: passing(500) });
  stop();
  await wind(600);
  assert.equal(begun(sockets[1]).length, 1);
  assert.deepEqual([heard, ended], [["1", "2", "3"], []]);
  chat.close();
}

/** The inbox has one stream, after any failure and however its listeners come and go; one that always fails is opened less and less often. */
async function feeds() {
  const entry = (id) => ({ id: `e${id}`, conversation: { id, kind: "GROUP" }, unreadCount: 0, lastMessage: null, isPinned: false, isArchived: false, lastActivityAt: id });
  const answers = {
    UpdatesCursor: () => ({ inbox: { updatesCursor: "0" } }),
    Summary: () => ({ inboxSummary: { unreadConversationCount: 0, mentionedConversationCount: 0, isCapped: false } }),
    Inbox: () => ({ inbox: { edges: [], pageInfo: { hasNextPage: false, endCursor: null } } }),
    PinnedEntries: () => ({ inbox: { edges: [], pageInfo: {} } }),
  };
  const openedIn = (socket) => openedOn(socket, "inboxUpdated");
  const endedIn = (socket) => socket.of("complete").map(({ id }) => id);
  const changed = (socket, id) => socket.hear({ type: "next", id: openedIn(socket).at(-1), payload: { data: { inboxUpdated: { event: { inboxEntryEdge: { node: entry(id) } } } } } });

  // An error at its cursor that no other try seems to help.
  const rejected = [];
  const onRejection = (reason) => rejected.push(reason);
  process.on("unhandledRejection", onRejection);
  let fails = 3;
  const first = world({ answers: { ...answers, UpdatesCursor: () => (fails-- > 0 ? failure("INTERNAL") : answers.UpdatesCursor()) } });
  await settle();
  first.sockets[0].open();
  first.chat.badge.subscribe(() => {});
  await settle();
  const inbox = first.chat.inbox();
  inbox.subscribe(() => {});
  await settle();
  assert.equal(inbox.get().status, "failed");
  await windOn(first.sockets[0], 10_000);
  assert.deepEqual([openedIn(first.sockets[0]).length, inbox.get().status, rejected], [1, "ready", []]);
  changed(first.sockets[0], "1");
  assert.equal(inbox.get().items.length, 1);
  process.off("unhandledRejection", onRejection);
  first.chat.close();

  // The last listener leaves while it opens, and another one comes.
  const waiting = [];
  const second = world({ answers: { ...answers, UpdatesCursor: () => new Promise((resolve) => waiting.push(() => resolve(answers.UpdatesCursor()))) } });
  await settle();
  const [socket] = second.sockets;
  socket.open();
  second.chat.badge.subscribe(() => {})();
  await windOn(socket, 10_000);
  const other = second.chat.inbox();
  const stop = other.subscribe(() => {});
  await settle();
  assert.equal(waiting.length, 2);
  waiting[0]();
  await settle();
  assert.deepEqual(openedIn(socket), [], "not for those who have left");
  waiting[1]();
  await settle();
  assert.equal(openedIn(socket).length, 1);
  stop();
  await windOn(socket, 10_000);
  assert.deepEqual(endedIn(socket), openedIn(socket));
  second.chat.close();

  // A document that the server refuses, and a stream that ends at once.
  for (const failed of [() => ({ type: "error", payload: [{ message: "No.", ...failure("BAD_USER_INPUT") }] }), () => ({ type: "complete" })]) {
    const third = world({ answers });
    await settle();
    const [only] = third.sockets;
    only.open();
    third.chat.inbox().subscribe(() => {});
    let refused = 0;
    const refuse = async (time) => {
      for (; time > 0; time -= 50) {
        for (const id of openedIn(only).slice(refused)) { refused += 1; only.hear({ ...failed(), id }); }
        await windOn(only, 50);
      }
    };
    await refuse(60_000);
    assert.ok(refused > 3 && refused < 12, `opened ${refused} times in a minute`);
    // Once it delivers, its next end is a first one again.
    await windOn(only, 30_000);
    assert.equal(openedIn(only).length, refused + 1);
    changed(only, "1");
    only.hear({ type: "complete", id: openedIn(only).at(-1) });
    await windOn(only, 1_100);
    assert.equal(openedIn(only).length, refused + 2);
    third.chat.close();
    only.hear({ type: "complete", id: openedIn(only).at(-1) });
    const { length } = third.sent;
    await wind(60_000);
    assert.equal(third.sent.length, length, "closed");
  }

  // An inbox that is closed while the server is away does not come back.
  let isAway = true;
  const fourth = world({ answers: { ...answers, Inbox: () => (isAway ? undefined : answers.Inbox()) } });
  await settle();
  const [back] = fourth.sockets;
  back.open();
  const leave = fourth.chat.inbox().subscribe(() => {});
  await windOn(back, 2_000);
  leave();
  await windOn(back, 10_000);
  isAway = false;
  await windOn(back, 10_000);
  assert.deepEqual(endedIn(back), openedIn(back));
  fourth.chat.inbox().subscribe(() => {});
  await settle();
  assert.equal(openedIn(back).length, 2);
  fourth.chat.close();
}

/** A conversation is there as soon as the viewer is in it, for the first time or again. One whose stream always fails is read less and less often. */
async function readded() {
  let isIn = false;
  const entry = { id: "e", conversation: { id: "c", kind: "GROUP" }, unreadCount: 0, lastMessage: null, visibleFrom: null };
  const head = { kind: "GROUP", participants: { edges: [] }, pinnedMessages: { edges: [] }, inboxEntry: entry, eventsCursor: "0" };
  const { chat, sockets, sent } = world({ answers: {
    UpdatesCursor: () => ({ inbox: { updatesCursor: "0" } }),
    Conversation: () => ({ conversation: isIn ? { ...head, messages: { edges: [], pageInfo: {} } } : null }),
  } });
  await settle();
  const [socket] = sockets;
  socket.open();
  const conversation = chat.conversation("c");
  conversation.subscribe(() => {});
  await settle();
  const hear = (field, value) => socket.hear({ type: "next", id: openedOn(socket, field).at(-1), payload: { data: { [field]: value } } });
  const changes = async (event, now) => { isIn = now; hear("inboxUpdated", { event }); await settle(); };
  const shown = () => [conversation.get().status, openedOn(socket, "conversationEvents").length];
  assert.deepEqual(shown(), ["gone", 0]);
  await changes({ inboxEntryEdge: { node: entry } }, true);
  assert.deepEqual(shown(), ["ready", 1], "it was opened before");
  await changes({ inboxEntryId: "e", conversationId: "c" }, false);
  assert.deepEqual(shown(), ["gone", 1]);
  // With the whole history: the entry is the same.
  await changes({ inboxEntryEdge: { node: entry } }, true);
  assert.deepEqual(shown(), ["ready", 2]);
  await changes({ inboxEntryId: "e", conversationId: "c" }, false);
  // The change itself was missed.
  isIn = true;
  socket.hear({ type: "next", id: openedOn(socket, "inboxUpdated").at(-1), payload: { data: null, errors: [{ message: "Old.", ...failure("CURSOR_EXPIRED") }] } });
  await windOn(socket, 1_100);
  assert.deepEqual(shown(), ["ready", 3]);
  let refused = 0;
  const before = sent.length;
  for (let time = 0; time < 60_000; time += 50) {
    for (const id of openedOn(socket, "conversationEvents").slice(2 + refused)) { refused += 1; socket.hear({ type: "error", id, payload: [{ message: "No.", ...failure("BAD_USER_INPUT") }] }); }
    await windOn(socket, 50);
  }
  assert.ok(refused > 3 && refused < 12, `opened ${refused} times in a minute`);
  assert.ok(sent.length - before <= refused);
  await windOn(socket, 30_000);
  hear("conversationEvents", { event: null, isLive: true });
  socket.hear({ type: "complete", id: openedOn(socket, "conversationEvents").at(-1) });
  const { length } = openedOn(socket, "conversationEvents");
  await windOn(socket, 1_100);
  assert.equal(openedOn(socket, "conversationEvents").length, length + 1);
  chat.close();
}

const one = (number) => ({ id: `m${number}`, orderKey: String(number).padStart(9, "0"), body: String(number), sender: { username: "bob" }, mentions: [], reactions: [] });
const pageOf = (from, count) => ({
  edges: Array.from({ length: count }, (_, at) => ({ node: one(from - at) })),
  pageInfo: { hasNextPage: from - count > 0, endCursor: String(from - count + 1), hasPreviousPage: false, startCursor: String(from) },
});

/** An open conversation with 30 messages, and the socket of its streams. */
async function opened(more = {}) {
  const head = { kind: "GROUP", participants: { edges: [] }, pinnedMessages: { edges: [] }, inboxEntry: null, eventsCursor: "0" };
  const all = world({ answers: {
    UpdatesCursor: () => ({ inbox: { updatesCursor: "0" } }),
    Conversation: () => ({ conversation: { ...head, messages: pageOf(30, 30) } }),
    MarkRead: () => ({ markRead: { inboxEntry: { id: "e" } } }),
    ...more,
  } });
  await settle();
  all.sockets[0].open();
  const conversation = all.chat.conversation("c");
  conversation.subscribe(() => {});
  await settle();
  const stream = (field) => all.sockets[0].of("subscribe").findLast(({ payload }) => payload.query.includes(field)).id;
  return { ...all, conversation, stream };
}

/** A cursor that has expired: the conversation, and the inbox, are read anew. */
async function expiredCursors() {
  const page = { inbox: { edges: [], pageInfo: { hasNextPage: false, endCursor: null } } };
  const { chat, sent, sockets, conversation, stream } = await opened({ Inbox: () => page, PinnedEntries: () => page });
  chat.inbox().subscribe(() => {});
  await settle();
  const count = (name) => sent.filter((request) => request.name === name).length;
  const expire = (field) => sockets[0].hear({ type: "error", id: stream(field), payload: [{ message: "Old.", ...failure("CURSOR_EXPIRED") }] });
  for (const [field, ...names] of [["conversationEvents", "Conversation"], ["inboxUpdated", "UpdatesCursor", "Inbox"]]) {
    const before = names.map(count);
    const id = stream(field);
    expire(field);
    await wind(1_000);
    assert.deepEqual(names.map(count), before.map((number) => number + 1), field);
    assert.notEqual(stream(field), id, `${field} is open again`);
  }
  assert.equal(conversation.get().items.length, 30);
  chat.close();
}

/** A conversation that is open for days holds its newest 1,000 messages, unless its reader is further up. */
async function openForDays() {
  const { chat, sockets, sent, conversation, stream } = await opened({
    Page: ({ around }) => ({ conversation: { messages: pageOf(Number(around.slice(1)) + 15, 30) } }),
  });
  const id = stream("conversationEvents");
  let number = 30;
  const hear = (count) => {
    for (; count > 0; count -= 1) {
      number += 1;
      const event = { __typename: "MessageAddedEvent", messageEdge: { node: one(number) } };
      sockets[0].hear({ type: "next", id, payload: { data: { conversationEvents: { cursor: String(number), isLive: true, event } } } });
    }
  };
  const shown = () => { const { items, hasOlder } = conversation.get(); return [items[0].body, items.at(-1).body, items.length, hasOlder]; };
  hear(970);
  assert.deepEqual(shown(), ["1", "1000", 1_000, false]);
  hear(500);
  assert.deepEqual(shown(), ["501", "1500", 1_000, true]);
  // One who scrolls up keeps what is loaded.
  await conversation.older();
  assert.equal(sent.at(-1).variables.around, "m501");
  hear(100);
  assert.deepEqual(shown(), ["487", "1600", 1_114, true]);
  conversation.seen("m1600");
  hear(1);
  assert.deepEqual(shown(), ["602", "1601", 1_000, true]);
  chat.close();
}

/** A query is tried three times. A mutation is tried once, wherever its document has it: a second try could do it twice. */
async function repeats() {
  const { chat, sent, answers } = world();
  await settle();
  const tries = async (document) => {
    const before = sent.length;
    const asked = chat.request(document).catch(() => {});
    await wind(10_000);
    await asked;
    return sent.length - before;
  };
  const fragment = "fragment F on SendMessagePayload { messageEdge { node { id } } }";
  for (const text of [
    "mutation Any { a }", `${fragment} mutation Any { a { ...F } }`, "# It sends.\nmutation Any { a }", "\uFEFF , mutation Any { a }",
    `${fragment}\n# }\n"""A \\""" in it. # """ mutation Any { a }`, '"Sends # it" mutation Any { a }',
  ]) assert.equal(await tries(text), 1, text);
  assert.equal(await tries(`${fragment} query Any { mutations { ...F } }`), 3);
  answers.Any = () => failure("INTERNAL", { outcome: "UNKNOWN" });
  assert.equal(await tries(`${fragment} mutation Any { a { ...F } }`), 1);
  chat.close();
}

/** A retry of a new group has the key of the first try. */
async function groups() {
  const keys = [];
  const { chat } = world({ answers: { CreateGroupConversation: ({ idempotencyKey }) => {
    keys.push(idempotencyKey);
    if (keys.length === 1) return undefined;
    return { createGroupConversation: { inboxEntryEdge: { node: { id: "e", conversation: { id: "g" }, unreadCount: 0, lastMessage: null } } } };
  } } });
  await settle();
  await assert.rejects(chat.createGroup("Lunch", ["bob"]), { code: "OFFLINE" });
  assert.equal(await chat.createGroup("Lunch", ["bob"]), "g");
  await chat.createGroup("Lunch", ["bob"]);
  assert.ok(keys[0] === keys[1] && keys[1] !== keys[2]);
  chat.close();
}

for (const rule of [queues, pauses, reloads, neighbours, deniedLocks, tabs, oldKeys, refusals, tokens, closeCodes, streams, expiredCursors, restarts, feeds, returns, readded, openForDays, repeats, groups]) {
  try {
    await rule();
  } catch (error) {
    console.error(rule.name);
    throw error;
  }
}
process.exit(0);

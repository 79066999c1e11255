// The rules that the package promises: queues and keys of unsent messages, tabs, tokens, close codes, dead sockets and cursors.
// `node package/rules.js`

import assert from "node:assert/strict";

import { ChatError, SignedOut } from "../wideroom-client/index.js";
import { check, failure, page, settle, storageOf, stored, tokenOf, wind, world } from "./world.js";

const HOUR = 3_600_000;

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

/** The app may begin with a token that it kept, which the server refuses: the first requests go on with the next one. */
async function keptTokens() {
  const [kept, fresh] = [tokenOf("alice", -10), tokenOf("alice")];
  const { chat, asked } = world({
    token: (reason) => (reason === "refused" ? fresh : kept),
    answers: { Viewer: (_, authorization) => (authorization === `Bearer ${fresh}` ? { viewer: { username: "alice" } } : failure("UNAUTHENTICATED")) },
  });
  await settle();
  assert.deepEqual([chat.viewer.get()?.username, asked.at(-1)], ["alice", "refused"]);
  chat.close();
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

await check(queues, reloads, tabs, oldKeys, refusals, tokens, keptTokens, closeCodes, returns, streams, groups);

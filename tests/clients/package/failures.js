// Failures that the package outlives: pauses that a server asks for, storage and locks that are denied, streams and inboxes that end, and users
// whose names are alike. `node package/failures.js`

import assert from "node:assert/strict";

import { check, failure, openedOn, settle, storageOf, stored, tokenOf, wind, windOn, world } from "./world.js";

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

await check(pauses, neighbours, deniedLocks, restarts, feeds, readded, repeats);

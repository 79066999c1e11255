// The rules that the package promises of an open conversation: expired cursors, read marks, replays, and what stays in memory.
// `node package/conversations.js`

import assert from "node:assert/strict";

import { check, failure, page, settle, wind, world } from "./world.js";

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

/** Read marks are joined, wait for a hidden page and never move back; deliveries are told by themselves. */
async function marks() {
  const { chat, sent, sockets, conversation, stream } = await opened({ MarkDelivered: () => ({ markDelivered: { inboxEntry: { id: "e" } } }) });
  const marked = (name) => sent.filter((request) => request.name === name).map(({ input }) => input.messageId ?? input.conversationId);
  conversation.seen("m10");
  for (const id of ["m12", "m15", "m11"]) conversation.seen(id);
  await wind(5_000);
  assert.deepEqual(marked("MarkRead"), ["m10", "m15"]);
  conversation.seen("m14");
  globalThis.document = { hidden: true };
  conversation.seen("m20");
  await wind(5_000);
  assert.deepEqual(marked("MarkRead"), ["m10", "m15"]);
  delete globalThis.document;
  page.dispatchEvent(new Event("visibilitychange"));
  await settle();
  assert.deepEqual(marked("MarkRead"), ["m10", "m15", "m20"]);
  const node = { id: "e", conversation: { id: "other" }, unreadCount: 1, lastMessage: one(1) };
  for (let twice = 0; twice < 2; twice += 1) {
    sockets[0].hear({ type: "next", id: stream("inboxUpdated"), payload: { data: { inboxUpdated: { cursor: "1", event: { inboxEntryEdge: { node } } } } } });
  }
  await settle();
  assert.deepEqual(marked("MarkDelivered"), ["other"]);
  chat.close();
}

/** The events of a replay are shown together, and the last 20 conversations stay in memory. */
async function replaysAndMemory() {
  const { chat, sockets, conversation, stream } = await opened();
  let shown = 0;
  conversation.subscribe(() => { shown += 1; });
  for (let number = 31; number <= 60; number += 1) {
    const event = { __typename: "MessageAddedEvent", messageEdge: { node: one(number) } };
    sockets[0].hear({ type: "next", id: stream("conversationEvents"), payload: { data: { conversationEvents: { isLive: false, event } }, extensions: { cursor: String(number) } } });
  }
  assert.equal(shown, 0);
  await wind(150);
  assert.deepEqual([shown, conversation.get().items.length], [1, 60]);
  const stores = Array.from({ length: 25 }, (_, at) => chat.conversation(`c${at}`));
  assert.equal(chat.conversation("c"), conversation, "an open one stays");
  assert.equal(chat.conversation("c24"), stores[24]);
  assert.equal(chat.conversation("c6"), stores[6], "the 20th, with the open one");
  assert.notEqual(chat.conversation("c5"), stores[5]);
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

/** An event of which a part could not be read, as on a machine under load: it is delivered again, and no message is missing in the middle. */
async function halfRead() {
  const { chat, sockets, conversation, stream } = await opened();
  const opens = () => sockets[0].of("subscribe").filter(({ payload }) => payload.query.includes("conversationEvents"));
  const hear = (number, error) => {
    const event = error ? null : { __typename: "MessageAddedEvent", messageEdge: { node: one(number) } };
    const payload = { data: { conversationEvents: { cursor: String(number), isLive: true, event } }, extensions: { cursor: String(number) } };
    sockets[0].hear({ type: "next", id: stream("conversationEvents"), payload: error ? { ...payload, errors: [{ message: "Busy.", path: ["conversationEvents", "event"], ...error }] } : payload });
  };
  const shown = () => conversation.get().items.slice(30).map(({ body }) => body);
  hear(31);
  const id = stream("conversationEvents");
  hear(32, failure("UNAVAILABLE", { retryAfterMs: 500 }));
  // The server goes on meanwhile.
  sockets[0].hear({ type: "next", id, payload: { data: { conversationEvents: { cursor: "33", isLive: true, event: { __typename: "MessageAddedEvent", messageEdge: { node: one(33) } } } } } });
  assert.deepEqual(shown(), ["31"]);
  await wind(600);
  assert.deepEqual(opens().map(({ payload }) => payload.variables.after), ["0", "31"]);
  for (const number of [32, 33]) hear(number);
  assert.deepEqual(shown(), ["31", "32", "33"]);
  chat.close();
}

await check(expiredCursors, marks, replaysAndMemory, openForDays, halfRead);

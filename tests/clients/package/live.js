// The rules that the package promises of live messages. `node package/live.js`

import assert from "node:assert/strict";

import { liveMessages } from "../wideroom-client/live.js";
import { check, failure, openedOn, settle, wind, windOn, world } from "./world.js";

const message = (id, liveMessageId) => ({ id, orderKey: id, body: "The whole text.", sender: { username: "agent:a" }, mentions: [], reactions: [], ...(liveMessageId && { liveMessageId }) });

/** A live list of an open conversation with one message, or none, and the socket of its streams. */
async function opened({ fields = { liveMessageId: null }, answers = {} } = {}) {
  const head = { kind: "GROUP", participants: { edges: [] }, pinnedMessages: { edges: [] }, inboxEntry: null, eventsCursor: "0" };
  const pageInfo = { hasNextPage: false, endCursor: null, hasPreviousPage: false, startCursor: null };
  const all = world({ answers: {
    UpdatesCursor: () => ({ inbox: { updatesCursor: "0" } }),
    Conversation: () => ({ conversation: { ...head, messages: { edges: fields ? [{ node: { ...message("m1"), ...fields } }] : [], pageInfo } } }),
    ...answers,
  } });
  await settle();
  const [socket] = all.sockets;
  socket.open();
  const live = liveMessages(all.chat, "c");
  const stop = live.subscribe(() => {});
  await settle();
  let cursor = 0;
  const hear = (field, value, on = socket) => on.hear({ type: "next", id: openedOn(on, `${field}(`).at(-1), payload: { data: { [field]: value } } });
  /** A payload of the stream: text, and what else there is of the live message. */
  const step = (id, text, { isWhole = false, on, ...more } = {}) => {
    cursor += 1;
    const liveMessage = { id, state: "WRITING", status: null, startedAt: `2026-01-01T00:00:0${id}Z`, steps: [], sender: { username: "agent:a" }, replyTo: null, stopRequestedBy: null, ...more };
    hear("liveMessages", { cursor: String(cursor), text, isWhole, liveMessage }, on);
  };
  hear("liveMessages", { cursor: "0", text: "", isWhole: false, liveMessage: null });
  const added = (id, liveMessageId) => hear("conversationEvents", { isLive: true, event: { __typename: "MessageAddedEvent", messageEdge: { node: message(id, liveMessageId) } } });
  const bodies = () => live.get().map(({ body }) => body);
  return { ...all, socket, live, stop, hear, step, added, bodies };
}

const subscriptions = (socket) => socket.of("subscribe").filter(({ payload }) => payload.query.includes("liveMessages(")).map(({ payload }) => payload.variables.after);

/** Texts grow in order, the first begun first, and another writer takes the place of the first one. */
async function grows() {
  const { chat, live, step, bodies } = await opened();
  step("2", "Zwölf ", { isWhole: true, status: "thinking" });
  step("1", "Other", { isWhole: true });
  const { status } = live.get()[1];
  step("2", "Löffel 🥄", { steps: [{ key: "k", title: "Count", state: "RUNNING", detail: null }] });
  assert.deepEqual([bodies(), status, live.get()[1].status, live.get()[1].steps[0].title], [["Other", "Zwölf Löffel 🥄"], "thinking", null, "Count"]);
  step("2", "Anew", { isWhole: true });
  step("3", "the rest of something unseen");
  assert.deepEqual(bodies(), ["Other", "Anew"]);
  step("1", "", { state: "DISCARDED" });
  assert.deepEqual(bodies(), ["Anew"]);
  chat.close();
}

/** A live message is there until its message is, whichever of the two streams is first, and never with it. */
async function becomesAMessage() {
  const { chat, live, step, added, bodies } = await opened();
  const counts = [];
  const both = () => counts.push(live.get().length + chat.conversation("c").get().items.length);
  live.subscribe(both);
  step("1", "The whole ", { isWhole: true });
  step("1", "text.", { state: "SENT" });
  assert.deepEqual([bodies(), live.get()[0].state], [["The whole text."], "SENT"]);
  added("m2", "1");
  assert.deepEqual([bodies(), chat.conversation("c").get().items.length], [[], 2]);
  await wind(2_000);
  assert.deepEqual(counts, [2, 2, 2], "one of the two");
  // The message first: nothing of the stream brings it back.
  step("2", "The whole", { isWhole: true });
  added("m3", "2");
  assert.deepEqual(bodies(), []);
  step("2", " text.");
  step("2", "The whole text.", { isWhole: true });
  step("2", "", { state: "SENT" });
  assert.deepEqual(bodies(), []);
  // A message that does not come, as one of a blocked sender.
  step("3", "Lost", { isWhole: true });
  step("3", "", { state: "SENT" });
  assert.deepEqual(bodies(), ["Lost"]);
  await wind(1_100);
  assert.deepEqual(bodies(), []);
  chat.close();

  // An app that does not select the field would show both.
  for (const isEmpty of [false, true]) {
    const plain = await opened({ fields: isEmpty ? null : {} });
    plain.step("1", "The whole", { isWhole: true });
    plain.step("1", " text.", { state: "SENT" });
    assert.equal(plain.bodies().length, isEmpty ? 1 : 0);
    plain.added("m2");
    assert.deepEqual(plain.bodies(), []);
    plain.chat.close();
  }
}

/** After a cut a text continues where it was. A cursor that has expired begins anew. */
async function resumes() {
  const { chat, sockets, socket, step, bodies } = await opened();
  step("1", "Before ", { isWhole: true });
  socket.cut(1006);
  assert.deepEqual(bodies(), ["Before "], "it stays in sight");
  await wind(1_000);
  const [, next] = sockets;
  next.open();
  assert.deepEqual([subscriptions(socket), subscriptions(next)], [[undefined], ["1"]]);
  step("1", "and after.", { on: next });
  assert.deepEqual(bodies(), ["Before and after."]);
  next.hear({ type: "error", id: openedOn(next, "liveMessages(").at(-1), payload: [{ message: "Old.", ...failure("CURSOR_EXPIRED") }] });
  assert.deepEqual(bodies(), []);
  await wind(1_100);
  assert.deepEqual(subscriptions(next), ["1", undefined]);
  step("1", "Before and after, whole.", { isWhole: true, on: next });
  assert.deepEqual(bodies(), ["Before and after, whole."]);
  chat.close();
}

/** A stream that always ends is opened less and less often, and one of a conversation that is gone is not. */
async function ends() {
  const { chat, socket, step, bodies } = await opened();
  let ended = 0;
  for (let time = 0; time < 60_000; time += 50) {
    for (const id of openedOn(socket, "liveMessages(").slice(ended)) { ended += 1; socket.hear({ type: "complete", id }); }
    await windOn(socket, 50);
  }
  assert.ok(ended > 3 && ended < 12, `opened ${ended} times in a minute`);
  await windOn(socket, 30_000);
  step("1", "There", { isWhole: true });
  assert.deepEqual(bodies(), ["There"]);
  chat.close();

  const gone = await opened({ answers: { Conversation: () => ({ conversation: null }) } });
  gone.socket.hear({ type: "complete", id: openedOn(gone.socket, "liveMessages(").at(-1) });
  await windOn(gone.socket, 60_000);
  assert.equal(subscriptions(gone.socket).length, 1);
  gone.chat.close();
}

/** A conversation that is loaded anew, as after a block, begins its live messages anew. */
async function loadedAnew() {
  const { chat, socket, hear, step, bodies } = await opened();
  step("1", "Of one who is blocked next", { isWhole: true });
  hear("inboxUpdated", { event: { user: { username: "agent:a" } } });
  await settle();
  assert.deepEqual([bodies(), subscriptions(socket)], [[], [undefined, undefined]]);
  step("2", "Of another one", { isWhole: true });
  assert.deepEqual(bodies(), ["Of another one"]);
  chat.close();
}

/** A request to stop shows at once. It goes once, also where it fails. */
async function stops() {
  const liveMessage = { id: "1", stopRequestedBy: { username: "alice" } };
  const { chat, live, sent, step, answers } = await opened({ answers: { StopLiveMessage: () => ({ stopLiveMessage: { liveMessage } }) } });
  step("1", "Once upon", { isWhole: true });
  await live.stop("1");
  assert.deepEqual([live.get()[0].stopRequestedBy, live.get()[0].body], [{ username: "alice" }, "Once upon"]);
  answers.StopLiveMessage = () => failure("FORBIDDEN");
  await assert.rejects(live.stop("1"), { code: "FORBIDDEN" });
  assert.deepEqual(sent.filter(({ name }) => name === "StopLiveMessage").map(({ input }) => input), [{ liveMessageId: "1" }, { liveMessageId: "1" }]);
  chat.close();
}

/** Without a reader it ends, and holds no old text for the next one. */
async function closes() {
  const { chat, socket, live, stop, step, bodies } = await opened();
  step("1", "Old", { isWhole: true });
  stop();
  await windOn(socket, 11_000);
  assert.deepEqual([bodies(), socket.of("complete").some(({ id }) => id === openedOn(socket, "liveMessages(").at(-1))], [[], true]);
  live.subscribe(() => {});
  await settle();
  assert.deepEqual(subscriptions(socket), [undefined, undefined]);
  chat.close();
}

await check(grows, becomesAMessage, resumes, ends, loadedAnew, stops, closes);

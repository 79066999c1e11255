// Live messages of the package against a real server and the program for agents, over a socket that is cut again and again.
// `node package/live_server.js URL ALICE AGENT USERNAME`

import assert from "node:assert/strict";
import { setTimeout as wait } from "node:timers/promises";

import WebSocket from "ws";

import { writeLive } from "../agent.js";
import { ask, until } from "../support.js";
import { connect } from "../wideroom-client/index.js";
import { LIVE_FIELDS, liveMessages } from "../wideroom-client/live.js";

const [url, alice, agent, username] = process.argv.slice(2);
const WRITE = "mutation($input: WriteLiveMessageInput!) { done: writeLiveMessage(input: $input) { liveMessage { id stopRequestedBy { username } } } }";
const DISCARD = "mutation($input: DiscardLiveMessageInput!) { discardLiveMessage(input: $input) { liveMessage { state } } }";
const CUTS = 12;

/** Sockets of the chat, and the bytes of live texts that they have received. */
const sockets = [];
let received = 0;
class Noted extends WebSocket {
  constructor(...args) {
    super(...args);
    sockets.push(this);
    this.on("error", () => {}); // of a cut before it was open
    this.on("message", (data) => { received += Buffer.byteLength(JSON.parse(data).payload?.data?.liveMessages?.text ?? ""); });
  }
}

const chat = connect({ url: new URL(".", url).href, token: () => alice, storage: null, WebSocket: Noted, select: { message: LIVE_FIELDS } });
const id = await chat.startDirect(username);
const conversation = chat.conversation(id);
const live = liveMessages(chat, id);
conversation.subscribe(() => {});
live.subscribe(() => {});
const answers = () => conversation.get().items.filter(({ sender }) => sender.username === username);
await until("the conversation is open", () => conversation.get().status === "ready" && chat.connection.get().isCaughtUp);

/** Each text continues at its byte, and becomes one message in the moment in which it leaves the list. */
async function cuts() {
  const words = Array.from({ length: 150 }, (_, number) => `${number}. Löffel 🥄 `);
  const whole = words.join("");
  const steps = [{ key: "1", title: "Count the spoons", state: "DONE", detail: null }];
  let hasBegun = false;
  let shown = "";
  const stop = live.subscribe(() => {
    const [first] = live.get();
    hasBegun ||= Boolean(first);
    if (hasBegun) assert.equal(live.get().length + answers().length, 1, "one of the two");
    if (!first) return;
    assert.ok(whole.startsWith(first.body) && first.body.startsWith(shown), "a beginning that only grows");
    shown = first.body;
  });
  const before = received;
  const written = writeLive({ urls: [url], token: () => agent, conversationId: id, key: "spoons" }, async function* (writer) {
    writer.setSteps(steps);
    for (const word of words) {
      yield word;
      await wait(30);
    }
  });
  await until("it has begun", () => hasBegun);
  for (let cut = 0; cut < CUTS; cut += 1) {
    await wait(250);
    sockets.at(-1).terminate();
  }
  await written;
  await until("its message is there", () => answers().length && !live.get().length);
  stop();
  const [{ body, liveMessageId, isInterrupted, steps: done }] = answers();
  assert.deepEqual([body, Boolean(liveMessageId), isInterrupted, done], [whole, true, false, steps]);
  assert.ok(sockets.length > CUTS / 2, `only ${sockets.length} sockets`);
  // The message may come before the last part.
  const [least, most] = [shown, whole].map((text) => Buffer.byteLength(text));
  assert.ok(received - before >= least && received - before <= most, `each byte once: ${received - before} of ${least} to ${most}`);
}

/** Another writer takes the place of the first. It learns of the request to stop, and its live message goes without a message. */
async function anotherWriter() {
  const write = async (writer, text) => (await ask(url, agent, WRITE, { input: { conversationId: id, key: "two", writer, position: 0, text } })).done.liveMessage;
  const bodies = () => live.get().map(({ body }) => body).join();
  await write("a", "The first one");
  await until("the first text", () => bodies() === "The first one");
  const { id: liveMessageId } = await write("b", "The second one");
  await until("the second text", () => bodies() === "The second one");
  await live.stop(liveMessageId);
  assert.equal(live.get()[0].stopRequestedBy.username, "alice");
  assert.equal((await write("b", "The second one, a little longer")).stopRequestedBy.username, "alice");
  await ask(url, agent, DISCARD, { input: { liveMessageId } });
  await until("it is gone", () => !live.get().length);
  assert.equal(answers().length, 1);
}

await cuts();
await anotherWriter();
process.exit(0);

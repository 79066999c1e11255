// `Chat` of the AI SDK, which `useChat` wraps, against a real server: `node ai_transport_test.js URL ALICE AGENT USERNAME`.

import assert from "node:assert/strict";
import { setTimeout as wait } from "node:timers/promises";

import { Chat } from "@ai-sdk/react";

import { writeLive } from "./agent.js";
import { WideroomTransport } from "./ai-transport.js";
import { ask, proxy, until } from "./support.js";

const [url, alice, agent, username] = process.argv.slice(2);
const MAKE = "mutation($input: CreateGroupConversationInput!) { made: createGroupConversation(input: $input) { conversation { id } } }";
const NEWEST = "query($id: ID!) { conversation(id: $id) { messages(first: 1) { edges { node { id body sender { isAgent } } } } } }";
const SEND = "mutation($input: SendMessageInput!) { sendMessage(input: $input) { messageEdge { node { id } } } }";

const start = async () => (await ask(url, alice, MAKE, { input: { name: "AI", usernames: [username] } })).made.conversation.id;
const open = async (id, at = url) => {
  const transport = new WideroomTransport({ url: at, token: () => alice });
  return new Chat({ id, transport, messages: await transport.load(id), onError: (error) => assert.fail(error) });
};
const newest = async (id) => (await ask(url, alice, NEWEST, { id })).conversation.messages.edges[0]?.node;
const shown = (chat) => (chat.lastMessage?.role === "assistant" ? chat.lastMessage.parts.filter(({ type }) => type === "text").map(({ text }) => text).join("") : "");

/** Answers the question that stands last: `count` words, one in 20 ms. With `hangs` it then is silent. */
const answer = async (id, count, { hangs, steps } = {}) => {
  let question;
  while (!question) {
    await wait(20);
    const node = await newest(id);
    question = node && !node.sender.isAgent && node.body === "Well?" ? node : undefined;
  }
  const seen = {};
  seen.ended = writeLive({ urls: [url], token: () => agent, conversationId: id, key: "answer", replyToId: question.id }, async function* (live) {
    seen.signal = live.signal;
    if (steps) live.setSteps(steps);
    for (let number = 0; number < count; number += 1) {
      yield `${number} `;
      await wait(20);
    }
    if (hangs) await new Promise(() => {});
  });
  return seen;
};
const text = (count) => Array.from({ length: count }, (_, number) => `${number} `).join("");

async function anAnswerIsShownWhileItIsWritten() {
  const id = await start();
  const chat = await open(id);
  const steps = [{ key: "search", title: "Searching", state: "DONE", detail: null }];
  const sent = chat.sendMessage({ text: "Well?" });
  await answer(id, 60, { steps });
  await until("text is shown", () => shown(chat).length > 1);
  assert.ok(text(60).startsWith(shown(chat)) && chat.status === "streaming");
  await sent;
  assert.deepEqual([shown(chat), chat.status, chat.messages.length], [text(60), "ready", 2]);
  assert.deepEqual(chat.lastMessage.parts.find(({ type }) => type === "data-work").data, { status: null, steps });
  assert.deepEqual(chat.lastMessage.metadata, { id: (await newest(id)).id, isInterrupted: false });
  // A reload after the end: the same messages, and nothing to resume.
  const after = await open(id);
  await after.resumeStream();
  assert.equal(after.lastMessage.id, chat.lastMessage.id);
  assert.deepEqual([after.status, shown(after)], ["ready", text(60)]);
}

async function aReloadAndASecondDeviceContinue() {
  const id = await start();
  const first = await open(id);
  const sent = first.sendMessage({ text: "Well?" });
  await answer(id, 120);
  await until("text is shown", () => shown(first).length > 10);
  const others = await Promise.all([open(id), open(id)]);
  const resumed = others.map((chat) => chat.resumeStream());
  await until("all show it", () => others.every((chat) => shown(chat).length > 10));
  assert.ok(others.every((chat) => chat.status === "streaming"));
  await Promise.all([sent, ...resumed]);
  for (const chat of [first, ...others]) assert.deepEqual([shown(chat), chat.lastMessage.id], [text(120), first.lastMessage.id]);
}

async function aCutStreamContinues() {
  const id = await start();
  const through = await proxy(url);
  const chat = await open(id, through.url);
  const sent = chat.sendMessage({ text: "Well?" });
  await answer(id, 120);
  for (const length of [10, 60, 120]) {
    await until("text is shown", () => shown(chat).length > length);
    through.cut();
  }
  await sent;
  assert.deepEqual([shown(chat), chat.messages.length], [text(120), 2]);
}

async function aSecondProcessOfTheAgentReplacesTheText() {
  const id = await start();
  const chat = await open(id);
  const sent = chat.sendMessage({ text: "Well?" });
  await answer(id, 500);
  await until("text is shown", () => shown(chat).length > 10);
  await writeLive({ urls: [url], token: () => agent, conversationId: id, key: "answer" }, async function* () {
    yield "Another ";
    await until("the text is replaced", () => shown(chat) === "Another ");
    yield "answer";
  });
  await sent;
  assert.equal(shown(chat), "Another answer");
}

async function stopReachesTheAgent() {
  const id = await start();
  const chat = await open(id);
  const sent = chat.sendMessage({ text: "Well?" });
  const seen = await answer(id, 500);
  await until("text is shown", () => shown(chat).length > 10);
  const before = shown(chat);
  await chat.stop();
  await Promise.all([sent, seen.ended]);
  const { body } = await newest(id);
  assert.ok(seen.signal.aborted && body.startsWith(before) && text(500).startsWith(body));
  assert.equal(chat.status, "ready");
}

async function aDeadAgentEndsTheStream() {
  const id = await start();
  const chat = await open(id);
  const sent = chat.sendMessage({ text: "Well?" });
  await answer(id, 20, { hangs: true });
  await until("text is shown", () => shown(chat) === text(20));
  // As the server does after a silence.
  await ask(url, agent, SEND, { input: { conversationId: id, body: text(20), idempotencyKey: "answer" } });
  await sent;
  assert.deepEqual([shown(chat), chat.status], [text(20), "ready"]);
}

async function anAnswerWithoutALiveMessageArrives() {
  const id = await start();
  const chat = await open(id);
  const sent = chat.sendMessage({ text: "Well?" });
  await until("the question", () => chat.status === "submitted");
  while ((await newest(id))?.body !== "Well?") await wait(20);
  await ask(url, agent, SEND, { input: { conversationId: id, body: "At once." } });
  await sent;
  assert.equal(shown(chat), "At once.");
}

async function aStopBeforeTheAnswerReachesTheAgent() {
  const id = await start();
  const chat = await open(id);
  const sent = chat.sendMessage({ text: "Well?" });
  while ((await newest(id))?.body !== "Well?") await wait(20);
  await wait(300);
  await chat.stop();
  const seen = await answer(id, 500);
  await Promise.all([sent, seen.ended]);
  assert.ok(seen.signal.aborted && text(500).startsWith((await newest(id)).body));
}

async function anOutsiderIsRefused() {
  const transport = new WideroomTransport({ url, token: () => "no token" });
  await assert.rejects(transport.load(await start()), { code: "UNAUTHENTICATED" });
}

const CASES = [anAnswerIsShownWhileItIsWritten, aReloadAndASecondDeviceContinue, aCutStreamContinues,
  aSecondProcessOfTheAgentReplacesTheText, stopReachesTheAgent, aStopBeforeTheAnswerReachesTheAgent,
  aDeadAgentEndsTheStream, anAnswerWithoutALiveMessageArrives, anOutsiderIsRefused];
await Promise.all(CASES.map(async (run) => {
  await run().catch((error) => Promise.reject(Object.assign(error, { message: `${run.name}: ${error.message}` })));
  if (process.env.TIMES) console.log(run.name);
}));
process.exit(0);

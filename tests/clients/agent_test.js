// Agents that write live messages, against a real server: `node agent_test.js URL ALICE AGENT USERNAME COMMAND…`. COMMAND runs
// `agent_process.js` or `agent_process.py`.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import http from "node:http";
import { setTimeout as wait } from "node:timers/promises";

import { ask } from "./support.js";

const [url, alice, agent, username, ...command] = process.argv.slice(2);
if (spawnSync(command[0], ["--version"]).error && process.env.CI !== "true") {
  console.error(`${command[0]} is missing: its agent is not tested`);
  process.exit(0);
}

const LIVE = "id state body status steps { key title state } stopRequestedBy { username }";
const SHOWN = `query($id: ID!) { conversation(id: $id) { liveMessages { ${LIVE} } messages(first: 10) { edges { node { id body sender { username } } } } } }`;
const MAKE = "mutation($input: CreateGroupConversationInput!) { made: createGroupConversation(input: $input) { conversation { id } } }";
const STOP = "mutation($id: ID!) { stopLiveMessage(input: { liveMessageId: $id }) { liveMessage { state } } }";
const SEND = "mutation($input: SendMessageInput!) { sendMessage(input: $input) { messageEdge { node { id } } } }";
const DEADLINE = 120_000;
process.setMaxListeners(0);

const startConversation = async () => (await ask(url, alice, MAKE, { input: { name: "Agents", usernames: [username] } })).made.conversation.id;

/** What alice sees: the live message, if there is one, and the messages of the agent, oldest first. */
const look = async (id) => {
  const { conversation } = await ask(url, alice, SHOWN, { id });
  const messages = conversation.messages.edges.map(({ node }) => node).filter(({ sender }) => sender.username === username);
  return { live: conversation.liveMessages[0], messages: messages.reverse() };
};

const until = async (what, holds) => {
  for (const deadline = Date.now() + DEADLINE; ; await wait(100)) {
    const found = await holds();
    if (found) return found;
    assert.ok(Date.now() < deadline, `in time: ${what}`);
  }
};

/** Starts a process of the agent. `ended` is what it prints; null if it was killed. */
const start = (conversationId, task) => {
  const given = { urls: [url], token: agent, key: "answer", ...task, conversationId };
  const child = spawn(command[0], [...command.slice(1), JSON.stringify(given)], { stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => child.kill("SIGKILL"));
  let printed = "";
  child.stdout.on("data", (data) => (printed += data));
  const ended = new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve(code === 0 ? JSON.parse(printed) : null));
  });
  return { child, ended };
};

const isWriting = (id, text) => until("text is shown", async () => {
  const { live } = await look(id);
  return live && live.body.length >= (text ?? 1) && live;
});

/** A proxy that counts requests and lets each through, and drops each answer whose number is a multiple. */
const proxied = async (droppedEvery) => {
  const counts = { requests: 0, dropped: 0 };
  const server = http.createServer((near, answer) => {
    counts.requests += 1;
    const isDropped = counts.requests % droppedEvery === 0;
    if (isDropped) counts.dropped += 1;
    const far = http.request(url, { method: near.method, headers: near.headers }, (response) => {
      if (isDropped) return response.resume().on("end", () => answer.destroy());
      answer.writeHead(response.statusCode, response.headers);
      response.pipe(answer);
    });
    far.on("error", () => answer.destroy());
    near.pipe(far);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/graphql`, counts };
};

const words = (count, of = (number) => `${number} `) => Array.from({ length: count }, (_, number) => of(number));

async function arrivesWholeAndOnce() {
  const id = await startConversation();
  const parts = words(3_000);
  const text = parts.join("");
  const [through, began] = [await proxied(Infinity), Date.now()];
  const writing = start(id, { urls: [through.url], parts, everyMs: 1 });
  let longest = 0;
  const ended = await until("the answer", async () => {
    const { live } = await look(id);
    assert.ok(!live || text.startsWith(live.body), "a beginning of the text");
    longest = Math.max(longest, live?.body.length ?? 0);
    return Promise.race([writing.ended, wait(100)]);
  });
  const { live, messages } = await look(id);
  const most = 4 + (Date.now() - began) / 250;
  assert.ok(longest > 0, "the text was shown while it was written");
  assert.ok(through.counts.requests <= most, `${parts.length} parts are gathered: ${through.counts.requests} requests, at most ${most}`);
  assert.deepEqual(messages.map(({ body }) => body), [text]);
  assert.deepEqual(ended, { ids: [messages[0].id], isStopped: false, error: null });
  assert.equal(live, undefined);
}

async function everyCharacterArrives() {
  const id = await startConversation();
  // Four bytes each after one: pieces of 4 KiB would end inside a character.
  const burst = `a${"😀".repeat(2_000)}`;
  const parts = [burst, "e\u0301 ", "漢字 ", ...words(20, () => "ß")];
  if (command[0] === "node") parts.push("\ud83d", "\ude00");
  const text = parts.join("");
  const writing = start(id, { parts, everyMs: 60 });
  await until("the answer", async () => {
    const { live } = await look(id);
    assert.ok(!live || text.startsWith(live.body), "a beginning of the text");
    return Promise.race([writing.ended, wait(50)]);
  });
  assert.deepEqual((await look(id)).messages.map(({ body }) => body), [text]);
}

async function stopsAndSendsWhatItHas() {
  const id = await startConversation();
  const writing = start(id, { parts: words(9_000), everyMs: 5 });
  const live = await isWriting(id, 20);
  await ask(url, alice, STOP, { id: live.id });
  const ended = await writing.ended;
  const { messages } = await look(id);
  assert.equal(ended.isStopped, true);
  assert.equal(messages.length, 1);
  assert.ok(messages[0].body.startsWith(live.body), "what was shown is sent");
  assert.ok(words(9_000).join("").startsWith(messages[0].body));
}

async function aSecondProcessTakesOver() {
  const id = await startConversation();
  const first = start(id, { parts: words(9_000, (number) => `old ${number} `), everyMs: 5 });
  await isWriting(id, 20);
  first.child.kill("SIGKILL");
  const second = start(id, { parts: words(200, (number) => `new ${number} `), everyMs: 5 });
  const [killed, ended] = await Promise.all([first.ended, second.ended]);
  const { live, messages } = await look(id);
  assert.equal(killed, null);
  assert.deepEqual(messages.map(({ body }) => body), [words(200, (number) => `new ${number} `).join("")]);
  assert.deepEqual([ended.ids, live], [[messages[0].id], undefined]);
}

async function aSupersededProcessEndsQuietly() {
  const id = await startConversation();
  const first = start(id, { parts: words(9_000, (number) => `old ${number} `), everyMs: 5 });
  await isWriting(id, 20);
  const second = start(id, { parts: words(400, (number) => `new ${number} `), everyMs: 5 });
  const [superseded, ended] = await Promise.all([first.ended, second.ended]);
  assert.deepEqual(superseded, { ids: [], isStopped: true, error: null });
  const { messages } = await look(id);
  assert.deepEqual(messages.map(({ id: message }) => message), ended.ids);
  assert.ok(messages[0].body.startsWith("new 0 "));
}

async function lostAnswersLoseNothing() {
  const id = await startConversation();
  const through = await proxied(3);
  const parts = words(800);
  // Nobody listens on the first address.
  const { ids, error } = await start(id, { urls: ["http://127.0.0.1:9/graphql", through.url], parts, everyMs: 4 }).ended;
  assert.equal(error, null);
  assert.ok(through.counts.dropped >= 2, "answers were dropped");
  const { messages } = await look(id);
  assert.deepEqual(messages.map(({ id: message, body }) => [message, body]), [[ids[0], parts.join("")]]);
}

async function aFailedProducerLeavesItsText() {
  const id = await startConversation();
  const partly = await start(id, { parts: ["so far"], everyMs: 400, failsWith: "no model" }).ended;
  const { live, messages } = await look(id);
  assert.deepEqual([partly.error, live, messages.map(({ body }) => body)], ["no model", undefined, ["so far"]]);
  const empty = await start(id, { key: "other", parts: ["", "\n"], everyMs: 300, failsWith: "no model" }).ended;
  const after = await look(id);
  assert.deepEqual([empty, after.live, after.messages.length], [{ ids: [], isStopped: false, error: "no model" }, undefined, 1]);
}

async function aLongTextBecomesSeveralMessages() {
  const id = await startConversation();
  const parts = words(4_500);
  const { ids, error } = await start(id, { parts: [parts.slice(0, 2_900).join(""), parts.slice(2_900).join("")], everyMs: 600 }).ended;
  const { messages } = await look(id);
  assert.equal(error, null);
  assert.deepEqual(messages.map(({ id: message }) => message), ids);
  assert.equal(messages.length, 2);
  assert.equal(messages.map(({ body }) => body).join(""), parts.join(""));
  assert.match(messages[0].body, / $/, "it ends with a word");
}

async function anInterruptedMessageIsCompleted() {
  const id = await startConversation();
  const parts = words(300);
  const writing = start(id, { parts, everyMs: 10 });
  const { body } = await isWriting(id, 20);
  // As the server does after a silence.
  await ask(url, agent, SEND, { input: { conversationId: id, body, idempotencyKey: "answer" } });
  const ended = await writing.ended;
  const { messages } = await look(id);
  assert.deepEqual(messages.map((message) => message.body), [parts.join("")]);
  assert.deepEqual(ended, { ids: [messages[0].id], isStopped: false, error: null });
}

async function stepsAndStatusAreShown() {
  const id = await startConversation();
  const step = (state) => [{ key: "search", title: "Searching", state }];
  // A busy machine looks seldom: the first step stays for a while.
  const writing = start(id, { parts: ["One. ", "Two."], everyMs: 12_000, steps: { 0: step("RUNNING"), 1: step("DONE") } });
  await until("a step", async () => {
    const { live } = await look(id);
    return live?.status === "thinking" && live.steps[0]?.state === "RUNNING";
  });
  await writing.ended;
  const found = await ask(url, alice, "query($id: ID!) { conversation(id: $id) { messages(first: 1) { edges { node { body steps { key title state } } } } } }", { id });
  assert.deepEqual(found.conversation.messages.edges[0].node, { body: "One. Two.", steps: step("DONE") });
}

const CASES = [arrivesWholeAndOnce, everyCharacterArrives, stopsAndSendsWhatItHas, aSecondProcessTakesOver, aSupersededProcessEndsQuietly,
  lostAnswersLoseNothing, aFailedProducerLeavesItsText, aLongTextBecomesSeveralMessages, anInterruptedMessageIsCompleted, stepsAndStatusAreShown];
const only = process.env.ONLY;
await Promise.all(CASES.filter(({ name }) => !only || name === only).map(async (run) => {
  const began = Date.now();
  await run().catch((error) => Promise.reject(Object.assign(error, { message: `${run.name}: ${error.message}` })));
  if (process.env.TIMES) console.log(run.name, Date.now() - began);
}));
process.exit(0);

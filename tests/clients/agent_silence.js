// Agents that are silent for longer than the server waits, against a real server: `node agent_silence.js URL ALICE AGENT USERNAME COMMAND…`,
// as agent_test.js.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { setTimeout as wait } from "node:timers/promises";

import { ask } from "./support.js";

const [url, alice, agent, username, ...command] = process.argv.slice(2);
/** The server waits 60 to 130 s for a write. */
const SILENCE = 145_000;
const MAKE = "mutation($input: CreateGroupConversationInput!) { made: createGroupConversation(input: $input) { conversation { id } } }";
const SHOWN = "query($id: ID!) { conversation(id: $id) { liveMessages { body } messages(first: 5) { edges { node { body isInterrupted sender { isAgent } } } } } }";

const look = async (id) => {
  const { liveMessages, messages } = (await ask(url, alice, SHOWN, { id })).conversation;
  const sent = messages.edges.map(({ node }) => node).filter(({ sender }) => sender.isAgent);
  return { live: liveMessages.map(({ body }) => body), sent: sent.map(({ body, isInterrupted }) => [body, isInterrupted]) };
};
/** A busy server looks a moment later. */
const settled = async (id) => {
  for (let looks = 0; looks < 120; looks += 1) {
    const shown = await look(id);
    if (shown.live.length === 0) return shown;
    await wait(500);
  }
};
const start = async (parts, everyMs) => {
  const id = (await ask(url, alice, MAKE, { input: { name: "Silence", usernames: [username] } })).made.conversation.id;
  const task = { urls: [url], token: agent, key: "answer", parts, everyMs, conversationId: id };
  const child = spawn(command[0], [...command.slice(1), JSON.stringify(task)], { stdio: ["ignore", "ignore", "inherit"] });
  process.on("exit", () => child.kill("SIGKILL"));
  return { id, child, ended: new Promise((resolve) => child.on("close", resolve)) };
};

const parts = Array.from({ length: 600 }, (_, number) => `${number} `);
const [killed, suspended] = [await start(parts, 50), await start(parts, 50)];
// It works for longer than a busy machine takes for all that follows.
const working = await start(["before ", "after"], SILENCE * 3);
const hasText = async ({ id }) => {
  for (let looks = 0; looks < 240; looks += 1) {
    if ((await look(id)).live[0]) return;
    await wait(500);
  }
};
await Promise.all([killed, suspended, working].map(hasText));
killed.child.kill("SIGKILL");
suspended.child.kill("SIGSTOP");
// Appends that were under way are kept.
await wait(1_000);
const [dead] = (await look(killed.id)).live;
const [asleep] = (await look(suspended.id)).live;
assert.ok(dead.length > 0 && asleep.length > 0);
await wait(SILENCE);
assert.deepEqual(await settled(killed.id), { live: [], sent: [[dead, true]] });
assert.deepEqual(await settled(suspended.id), { live: [], sent: [[asleep, true]] });
const { live, sent } = await look(working.id);
assert.ok(live.length === 1 && live[0].startsWith("before ") && sent.length === 0, "an agent at work is not interrupted");
suspended.child.kill("SIGCONT");
await suspended.ended;
assert.deepEqual(await look(suspended.id), { live: [], sent: [[parts.join(""), false]] }, "it completes its message");
working.child.kill("SIGKILL");
process.exit(0);

// Drives the chat page through what breaks trust in a chat: waits of one conversation that hold another, vanished and forgotten messages,
// a dead text field, an agent that looks like a person, a suspension that looks like a cut.
// Usage: node trust.js BASE_URL CHROMIUM SCREENSHOT_FOLDER SERVICE_TOKEN AGENT_TOKEN. It writes "kill" and "start", and reads a line when that
// is done.

import assert from "node:assert/strict";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { apiOf, entry, hasReadAll, message, openId, send, sendMany, stored } from "./chat.js";
import { launch } from "./page.js";

const [base, executablePath, folder, service, agent] = process.argv.slice(2);
const { newContext, open, close } = await launch(base, executablePath);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const windows = [];

async function server(command) {
  console.log(command);
  assert.equal((await answers.next()).value, "done");
}

async function windowOf(username) {
  const page = await open(await newContext({ viewport: { width: 1180, height: 760 } }), `/demo?as=${username}`);
  windows.push(page);
  return page;
}

const field = (page) => page.locator("#text");
const waiting = (page, text) => page.locator("li.message.waiting", { hasText: text });

/** A wait of one conversation holds no other, and what waits can be taken back. */
async function slowModeHoldsItsOwnConversationAlone(alice, bob) {
  await entry(alice, "Project Phoenix").click();
  await message(alice, "cursors, or offsets").waitFor();
  const id = await openId(alice);
  const setSlow = (slowModeSeconds) => apiOf(base, "alice")(
    "mutation($input: UpdateConversationInput!) { updateConversation(input: $input) { conversation { id } } }", { input: { conversationId: id, slowModeSeconds } });
  await setSlow(3_600);
  await entry(bob, "Project Phoenix").click();
  await message(bob, "cursors, or offsets").waitFor();
  await send(bob, "At once");
  await stored(bob, "At once").waitFor();
  await send(bob, "An hour later");
  await waiting(bob, "An hour later").getByText("Slow mode:").waitFor();
  await entry(bob, "Alice").click();
  await send(bob, "Not held by the other one");
  await stored(bob, "Not held by the other one").waitFor();
  await entry(bob, "Project Phoenix").click();
  await waiting(bob, "An hour later").getByRole("button", { name: "Take back" }).click();
  await waiting(bob, "An hour later").waitFor({ state: "detached" });
  assert.equal(await field(bob).inputValue(), "An hour later");
  await field(bob).fill("");
  await setSlow(0);
}

/** At the first unread message of many, without the server, a new message stands below a gap, and is sent once. */
async function aMessageNeverVanishes(alice, bob) {
  await entry(bob, "Alice").click();
  const id = await openId(bob);
  await entry(bob, "Project Phoenix").click();
  // Not before the page has left: it would mark the first of them as read.
  await bob.locator("#room-title", { hasText: "Project Phoenix" }).waitFor();
  await sendMany(base, "alice", id, Array.from({ length: 120 }, (_, index) => `Unread ${index + 1}`));
  await entry(bob, "Alice").locator(".badge", { hasText: "99+" }).waitFor();
  await entry(bob, "Alice").click();
  await message(bob, "Unread 1").waitFor();
  await server("kill");
  await bob.locator("#bar", { hasText: "Offline" }).waitFor();
  await send(bob, "Written at the gap");
  await waiting(bob, "Written at the gap").locator(".tick[data-status=WAITING]").waitFor();
  assert.equal(await bob.locator("#room-problem").textContent(), "");

  // Another conversation is there without the server: its title, what was read a minute ago, and a field that sends.
  await entry(bob, "Project Phoenix").click();
  await bob.locator("#room-title", { hasText: "Project Phoenix" }).waitFor();
  await message(bob, "cursors, or offsets").waitFor();
  await send(bob, "Sent to a dead server");
  await waiting(bob, "Sent to a dead server").waitFor();
  // One that was never opened has its title and its field, too, and keeps what is typed.
  await entry(bob, "Carol").click();
  await bob.locator("#room-title", { hasText: "Carol" }).waitFor();
  await field(bob).fill("Half a sent");
  await server("start");
  await bob.waitForFunction(() => !document.querySelector("#bar").textContent);
  await bob.locator("#list .message").first().waitFor();
  assert.equal(await field(bob).inputValue(), "Half a sent");
  await field(bob).fill("");
  await entry(alice, "Project Phoenix").click();
  await stored(alice, "Sent to a dead server").waitFor();
  await entry(alice, "Bob").click();
  await stored(alice, "Written at the gap").waitFor();
  assert.equal(await alice.locator("li.message", { hasText: "Written at the gap" }).count(), 1, "sent once");
}

/** Read by scrolling is read, also if one leaves before the end. */
async function halfReadIsHalfRead(bob) {
  const unread = async () => {
    const { inbox } = await apiOf(base, "bob")("{ inbox(first: 50) { edges { node { firstUnreadMessage { body } conversation { directPeer { username } } } } } }");
    return inbox.edges.find(({ node }) => node.conversation.directPeer?.username === "carol").node.firstUnreadMessage?.body;
  };
  await entry(bob, "Carol").click();
  const id = await openId(bob);
  await hasReadAll(base, "bob", id);
  await entry(bob, "Alice").click();
  await bob.locator("#room-title", { hasText: "Alice" }).waitFor();
  await sendMany(base, "carol", id, Array.from({ length: 90 }, (_, index) => `Page ${index + 1}`));
  await entry(bob, "Carol").locator(".badge", { hasText: "90" }).waitFor();
  await entry(bob, "Carol").click();
  await message(bob, "Page 1").waitFor();
  // In one step: the page may draw its messages anew at any time.
  const isAtPage40 = () => bob.evaluate(() => {
    const scroller = document.querySelector("#scroller");
    const found = [...scroller.querySelectorAll("li.message .body")].find(({ textContent }) => textContent === "Page 40");
    if (found) found.scrollIntoView({ block: "center" });
    else scroller.scrollTop = scroller.scrollHeight;
    return Boolean(found);
  });
  while (!(await isAtPage40())) await bob.waitForTimeout(50);
  // The page hears of the scrolling in its next frame.
  await bob.evaluate(() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); }));
  await entry(bob, "Alice").click();
  let first = "Page 1";
  for (let tries = 0; tries < 100 && Number(first?.slice(5)) < 30; tries += 1) {
    await bob.waitForTimeout(50);
    first = await unread();
  }
  assert.ok(Number(first.slice(5)) >= 30 && Number(first.slice(5)) <= 90, `the first unread message is ${first}`);
}

/** A reload, and another day, forget neither what is unsent nor what is being written. */
async function aReloadForgetsNothing(alice, bob) {
  await entry(alice, "Bob").click();
  await entry(bob, "Alice").click();
  await bob.context().route("**/graphql", (route) => (route.request().postData()?.includes("mutation SendMessage") ? route.abort() : route.fallback()));
  await send(bob, "Unsent and reloaded");
  await waiting(bob, "Unsent and reloaded").waitFor();
  await field(bob).fill("A draft");
  await bob.reload();
  await waiting(bob, "Unsent and reloaded").waitFor();
  assert.equal(await field(bob).inputValue(), "A draft");
  // A second window of the same person shows it too, and no message is tried by both.
  const second = await bob.context().newPage();
  await second.goto(bob.url());
  await waiting(second, "Unsent and reloaded").waitFor();
  await bob.context().unroute("**/graphql");
  for (const page of [alice, bob, second]) await stored(page, "Unsent and reloaded").waitFor();
  for (const page of [alice, bob, second]) assert.equal(await page.locator("li.message", { hasText: "Unsent and reloaded" }).count(), 1, "once");
  await second.close();
}

/** Wherever an agent is named, people see that it is a program, whatever it calls itself. */
async function anAgentIsNoPerson(alice) {
  const input = { name: "Returns", usernames: ["bob", "agent:helper"] };
  const { createGroupConversation: { conversation: { id } } } = await apiOf(base, "alice")(
    "mutation($input: CreateGroupConversationInput!) { createGroupConversation(input: $input) { conversation { id } } }", { input });
  await apiOf(base, "agent:helper", agent)("mutation { updateProfile(input: { displayName: \"Emma\" }) { user { id } } }");
  await sendMany(base, "agent:helper", id, ["How can I help?"], agent);
  await entry(alice, "Returns").locator(".entry-line", { hasText: "Emma (agent): How can I help?" }).waitFor();
  await entry(alice, "Returns").click();
  await message(alice, "How can I help?").locator(".author", { hasText: /^Emma agent$/ }).waitFor();
  await alice.locator("#room-state", { hasText: "Emma (agent)" }).waitFor();
  await alice.locator("#room-title").click();
  await alice.locator("#member-list li", { hasText: "Emma" }).locator(".agent").waitFor();
  assert.equal(await alice.locator("#member-list .agent").count(), 1, "people have no such sign");
  await alice.screenshot({ path: join(folder, "trust-agent.png") });
  await alice.keyboard.press("Escape");

  const start = "mutation { startDirectConversation(input: { username: \"agent:helper\" }) { conversation { id } } }";
  const { startDirectConversation: { conversation: direct } } = await apiOf(base, "alice")(start);
  await sendMany(base, "agent:helper", direct.id, ["Shall I look for your parcel?"], agent);
  await entry(alice, "Emma").locator(".entry-name .agent").waitFor();
  await entry(alice, "Emma").click();
  await alice.locator("#room-title", { hasText: /^Emma agent$/ }).waitFor();
  await alice.locator("#room-title").click();
  await alice.locator(".sheet-heading", { hasText: /^Emma agent$/ }).waitFor();
  await alice.keyboard.press("Escape");
  assert.equal(await entry(alice, "Bob").locator(".agent").count(), 0);
}

/** A suspension is no cut: the page says so, and comes back no more. */
async function aSuspensionIsSaid(bob) {
  const response = await fetch(new URL("graphql", base), {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service}` },
    body: JSON.stringify({ query: "mutation { suspendUser(input: { username: \"bob\" }) { user { id } } }" }),
  });
  assert.equal((await response.json()).errors, undefined);
  await bob.locator("#door-problem", { hasText: "suspended" }).waitFor();
  assert.equal(await bob.locator("#bar").textContent(), "");
}

try {
  const carol = apiOf(base, "carol");
  const started = await carol("mutation { startDirectConversation(input: { username: \"bob\" }) { conversation { id } } }");
  await sendMany(base, "carol", started.startDirectConversation.conversation.id, ["Hello, Bob."]);
  const [alice, bob] = [await windowOf("alice"), await windowOf("bob")];
  await slowModeHoldsItsOwnConversationAlone(alice, bob);
  await aMessageNeverVanishes(alice, bob);
  await halfReadIsHalfRead(bob);
  await aReloadForgetsNothing(alice, bob);
  await anAgentIsNoPerson(alice);
  await aSuspensionIsSaid(bob);
  process.stdin.destroy();
} catch (error) {
  for (const [index, page] of windows.entries()) await page.screenshot({ path: join(folder, `trust-failed-${index}.png`) });
  throw error;
} finally {
  await close();
}

// Asks the agent of the demo, in several windows of a real browser, with every other host closed: its answer grows in all of them, is stopped
// and outlives a reload, and becomes one message. Then looks at live messages on every screen, light and dark.
// Usage: node live.js BASE_URL CHROMIUM SCREENSHOT_FOLDER. Exit code 0: all of it held. The screenshots are to be looked at.

import assert from "node:assert/strict";
import { apiOf, entry, message, openId, send, sendMany } from "./chat.js";
import { launch, looker, rewrite, topInList } from "./page.js";

const [base, executablePath, folder] = process.argv.slice(2);
const { newContext, open, check, notes, close } = await launch(base, executablePath);
const look = looker(folder);

const WRITE = "mutation($input: WriteLiveMessageInput!) { writeLiveMessage(input: $input) { nextPosition liveMessage { id } } }";
const DISCARD = "mutation($input: DiscardLiveMessageInput!) { discardLiveMessage(input: $input) { liveMessage { id } } }";
const CREATE = "mutation($input: CreateGroupConversationInput!) { createGroupConversation(input: $input) { conversation { id } } }";
const MESSAGES = "query($id: ID!) { conversation(id: $id) { messages(first: 50) { edges { node { id body sender { username } } } } } }";
const REACT = "mutation($input: AddReactionInput!) { addReaction(input: $input) { message { id } } }";

const live = (page) => page.locator("li.live");
const textOf = (page) => live(page).locator(".body").textContent();
const answers = (page, question) => page.locator("li.message:not(.live)", { hasText: `You wrote: “${question}”` });
const grownTo = (page, length) => page.waitForFunction((most) => document.querySelector("li.live .body")?.textContent.length > most, length, { polling: 100 });
const WHOLE = /with its steps folded\.$/;

async function windowOf(username, name, options = { viewport: { width: 1100, height: 700 } }) {
  const page = await open(await newContext(options), `/demo?as=${username}`);
  await entry(page, name).click();
  await page.locator("#text").waitFor();
  return page;
}

/** Notes what is read out, and on each frame how many elements show the answer, the lengths of its text, and its status and steps. */
const watch = (page, question) => page.evaluate((words) => {
  const [counts, lengths, states] = [new Set(), [], new Set()];
  window.states = states;
  window.announced = [];
  new MutationObserver((changes) => window.announced.push(...changes.flatMap(({ addedNodes }) => [...addedNodes].map((node) => node.textContent))))
    .observe(document.querySelector("#announcer"), { childList: true });
  let isOver = false;
  // A page whose frames are counted draws each of them: no longer than the answer is watched.
  window.watched = () => {
    isOver = true;
    return { counts: [...counts], isGrowing: lengths.every((length, at) => !at || length >= lengths[at - 1]) };
  };
  const note = () => {
    const bubbles = document.querySelectorAll("li.live");
    const stored = [...document.querySelectorAll("li.message:not(.live)")].filter((node) => node.textContent.includes(words));
    if (bubbles.length + stored.length || counts.size) counts.add(bubbles.length + stored.length);
    for (const node of document.querySelectorAll("li.live .steps li, li.live .live-foot")) states.add(`${node.dataset.state ?? ""} ${node.textContent}`);
    if (bubbles.length === 1) lengths.push(bubbles[0].querySelector(".body").textContent.length);
    if (!isOver) requestAnimationFrame(note);
  };
  note();
}, `You wrote: “${question}”`);

/** The answer was in sight from its begin on, once, and only grew. */
const sawItGrow = async (page, name) => assert.deepEqual(await page.evaluate(() => window.watched()), { counts: [1], isGrowing: true }, name);

const isAtEnd = (page) => page.locator("#scroller").evaluate((node) => node.scrollHeight - node.scrollTop - node.clientHeight < 2);

/** The answer grows in two windows of one user, and is one message in the end. */
async function anAnswer(alice, phone) {
  const question = "What is for lunch?";
  for (const page of [alice, phone]) await watch(page, question);
  await send(alice, question);
  for (const page of [alice, phone]) await page.locator("#typing .sr", { hasText: "Echo (agent) is writing" }).waitFor({ state: "attached" });
  for (const length of [20, 60, 120]) {
    await grownTo(phone, length);
    const shown = await textOf(phone);
    await grownTo(alice, shown.length - 1);
    assert.ok((await textOf(alice)).startsWith(shown), "both have the same text");
    assert.ok(await isAtEnd(alice), "a reader at the end stays there");
  }
  const announced = (page) => page.evaluate(() => window.announced);
  for (const page of [alice, phone]) assert.deepEqual(await announced(page), [], "a text that grows is not read out");
  for (const page of [alice, phone]) {
    await answers(page, question).waitFor();
    await live(page).waitFor({ state: "detached" });
    assert.equal(await answers(page, question).count(), 1);
    assert.match(await answers(page, question).locator(".body").textContent(), WHOLE);
    assert.match((await announced(page)).join("\n"), /^Echo \(agent\): You wrote/);
    await sawItGrow(page, question);
  }
  for (const page of [alice, phone]) {
    const states = (await page.evaluate(() => [...window.states])).join("\n");
    for (const part of [/RUNNING Read the question, running/, /DONE Read the question, done4 words/, /RUNNING Think about it/, / thinkingStop/, / writingStop/]) assert.match(states, part);
  }
  const steps = answers(alice, question).locator("details.steps");
  assert.equal(await steps.evaluate((node) => node.open), false, "the steps are folded");
  await steps.locator("summary", { hasText: "3 steps" }).click();
  await steps.locator("[data-state=DONE]", { hasText: "Read the question" }).waitFor();
  const asAlice = apiOf(base, "alice");
  const { conversation } = await asAlice(MESSAGES, { id: await openId(alice) });
  const echoed = conversation.messages.edges.map(({ node }) => node).filter(({ sender }) => sender.username === "agent:echo");
  assert.equal(echoed.length, 2, "one greeting and one answer");
  // The message is drawn anew, and its steps stay unfolded.
  await asAlice(REACT, { input: { messageId: echoed.find(({ body }) => body.includes(question)).id, emoji: "🎉" } });
  await answers(alice, question).locator(".reaction").waitFor();
  assert.ok(await steps.evaluate((node) => node.open), "the steps stay unfolded");
}

/** The other window stops it: what there is becomes the message. */
async function aStop(alice, phone) {
  const question = "Tell me all about soup";
  for (const page of [alice, phone]) await watch(page, question);
  await send(alice, question);
  await grownTo(phone, 50);
  await phone.getByRole("button", { name: "Stop Echo (agent)" }).click();
  for (const page of [alice, phone]) {
    await answers(page, question).waitFor();
    await live(page).waitFor({ state: "detached" });
    assert.doesNotMatch(await answers(page, question).locator(".body").textContent(), WHOLE);
    await answers(page, question).locator("summary", { hasText: "3 steps, 1 not done" }).waitFor();
    await sawItGrow(page, question);
  }
}

/** A reload of a reader, and one of the page that answers: the text continues. Who reads further up is not moved. */
async function aReload(alice, phone) {
  // A long answer: a machine under load takes its time to reload a page.
  const question = `Shall we go${" on and on".repeat(25)}?`;
  await send(alice, question);
  await grownTo(phone, 40);
  await phone.reload();
  await grownTo(phone, 60);
  await watch(phone, question);
  const before = (await textOf(alice)).length;
  await alice.reload();
  await grownTo(alice, before);
  const top = () => topInList(alice.locator("li.message").first());
  await alice.locator("#scroller").evaluate((node) => { node.scrollTop = 0; });
  const held = await top();
  await grownTo(alice, before + 80);
  assert.equal(await top(), held, "a reader further up is not moved");
  await answers(phone, question).waitFor();
  await live(phone).waitFor({ state: "detached" });
  assert.match(await answers(phone, question).locator(".body").textContent(), WHOLE);
  await sawItGrow(phone, question);
  await answers(alice, question).waitFor();
  assert.equal(await answers(alice, question).count(), 1);
}

/** In a group the agent answers who has asked, and they alone, and an admin, have a button. */
async function aGroup() {
  const { createGroupConversation } = await apiOf(base, "alice")(CREATE, { input: { name: "Soup club", usernames: ["bob", "carol", "agent:echo"] } });
  const { id } = createGroupConversation.conversation;
  await sendMany(base, "alice", id, ["Ask Echo."]);
  const [alice, bob, carol] = [await windowOf("alice", "Soup club"), await windowOf("bob", "Soup club"), await windowOf("carol", "Soup club")];
  await message(bob, "Ask Echo.").waitFor();
  // A long answer, which is stopped: no window comes too late for it.
  await send(bob, `Which beans?${" And which rice?".repeat(20)}`);
  const stop = (page) => live(page).getByRole("button", { name: "Stop Echo (agent)" });
  for (const page of [alice, bob, carol]) {
    await live(page).locator(".quote", { hasText: "Which beans?" }).waitFor();
    await live(page).locator(".author", { hasText: "Echo agent" }).waitFor();
  }
  assert.deepEqual([await stop(alice).count(), await stop(bob).count(), await stop(carol).count()], [1, 1, 0], "the owner and who has asked");
  await stop(bob).click();
  for (const page of [alice, bob, carol]) await live(page).waitFor({ state: "detached" });
  for (const page of [alice, bob, carol]) await page.context().close();
}

const SIZES = { telephone: { width: 360, height: 740 }, tablet: { width: 820, height: 1180 }, desk: { width: 1280, height: 800 } };
const STEPS = [
  { key: "1", title: "Read the question", state: "DONE", detail: "4 words" }, { key: "2", title: "Look into the pantry, on every shelf and behind each of the jars", state: "FAILED", detail: "it is locked" },
  { key: "3", title: "Ask carol for the key", state: "WAITING" }, { key: "4", title: "Write the answer", state: "RUNNING" },
];

/** Live messages as they look: with steps in every state, of several writers, and what they become. */
async function looks() {
  const echo = apiOf(base, "agent:echo");
  for (const [size, viewport] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"]) {
      const hands = size === "telephone" ? { hasTouch: true, isMobile: true } : {};
      const context = await newContext({ viewport, colorScheme, ...hands });
      // A server sends an interrupted message only after a minute of silence.
      await rewrite(context, (text) => text.replaceAll("\"isInterrupted\":false,\"steps\":[{", "\"isInterrupted\":true,\"steps\":[{"));
      const page = await open(context, "/demo?as=dave");
      await entry(page, "Echo").click();
      await message(page, "Hello!").waitFor();
      const conversationId = await openId(page);
      const write = (key, text, more) => echo(WRITE, { input: { conversationId, key: `${size} ${colorScheme} ${key}`, writer: "w", position: 0, text, ...more } });
      const begun = [
        await write("empty", "", { status: "looking into the pantry", steps: STEPS.slice(0, 1).map((step) => ({ ...step, state: "RUNNING" })) }),
        await write("long", "For four: 200 g of lentils, two onions, and a lemon. https://example.org/soup\n\nالحساء جاهز\n".repeat(2), { steps: STEPS }),
      ];
      await live(page).nth(1).locator("[data-state=WAITING]").waitFor();
      assert.ok(await isAtEnd(page));
      await look(page, `${size}-${colorScheme}-live`);
      for (const { writeLiveMessage } of begun) await echo(DISCARD, { input: { liveMessageId: writeLiveMessage.liveMessage.id } });
      await live(page).first().waitFor({ state: "detached" });
      await sendMany(base, "agent:echo", conversationId, [{ body: "Lentils, with lemon.", steps: STEPS.slice(0, 2) }]);
      // The second visit reads it from the history, the first one from the stream.
      await message(page, "Lentils, with lemon.").waitFor();
      await page.reload();
      await message(page, "Lentils, with lemon.").locator(".meta", { hasText: "Interrupted" }).waitFor();
      await message(page, "Lentils, with lemon.").locator("summary").click();
      await message(page, "Lentils, with lemon.").locator("li", { hasText: "it is locked" }).waitFor();
      await look(page, `${size}-${colorScheme}-live-done`);
      await context.close();
    }
  }
}

try {
  const [alice, phone] = [await windowOf("alice", "Echo"), await windowOf("alice", "Echo")];
  for (const page of [alice, phone]) await message(page, "Hello!").waitFor();
  await anAnswer(alice, phone);
  await aStop(alice, phone);
  await aReload(alice, phone);
  await aGroup();
  await looks();
  check();
} catch (error) {
  console.error(notes());
  throw error;
} finally {
  await close();
}

// Drives one feature of the chat page, as people do, in real browsers, with every host but the server's closed.
// Usage: node features.js BASE_URL CHROMIUM SCREENSHOT_FOLDER FEATURE. Exit code 0: all of it held.

import assert from "node:assert/strict";
import { join } from "node:path";
import { apiOf, chooseAction, entry, hasReadAll, message, openId, send, sendMany, stored } from "./chat.js";
import { fits, launch, rewrite } from "./page.js";

const [base, executablePath, folder, feature] = process.argv.slice(2);
const { newContext, open, check, close } = await launch(base, executablePath);
const windows = [];

const shoot = (page, name) => page.screenshot({ path: join(folder, `${feature}-${name}.png`) });

async function windowOf(username, options = { viewport: { width: 1180, height: 760 } }) {
  const page = await open(await newContext(options), `/demo?as=${username}`);
  windows.push(page);
  return page;
}

/** The message has been marked as the one that was jumped to, and is in sight. */
async function jumpedTo(page, text) {
  await page.locator("li.message[data-was-found]", { hasText: text }).evaluate((node) => node.removeAttribute("data-was-found"));
  const isSeen = await message(page, text).evaluate((node) => {
    const [inner, outer] = [node.getBoundingClientRect(), document.querySelector("#scroller").getBoundingClientRect()];
    return inner.top >= outer.top && inner.bottom <= outer.bottom;
  });
  assert.ok(isSeen, `${text} is in sight`);
}

const bodies = (page) => page.locator("li.message .body").allTextContents();
const isLoaded = async (page, text) => (await bodies(page)).includes(text);
const toTheEnd = (page) => page.locator("#scroller").evaluate((node) => { node.scrollTop = node.scrollHeight; });
const lines = (count, word = "Line") => Array.from({ length: count }, (_, index) => `${word} ${index + 1}`);

async function mentions() {
  const [alice, bob] = [await windowOf("alice"), await windowOf("bob")];
  await entry(alice, "Project Phoenix").click();
  await message(alice, "cursors, or offsets").waitFor();
  const text = alice.locator("#text");

  // By keyboard: the field keeps the focus and says which option is chosen.
  await text.pressSequentially("Look, @ca");
  await alice.getByRole("option", { name: "Carol" }).waitFor();
  assert.equal(await alice.getByRole("option").count(), 1);
  assert.equal(await text.getAttribute("role"), "combobox");
  assert.equal(await text.getAttribute("aria-expanded"), "true");
  const active = await text.getAttribute("aria-activedescendant");
  assert.equal(await alice.locator(`#${active}`).getAttribute("aria-selected"), "true");
  await text.press("Enter");
  assert.equal(await text.inputValue(), "Look, @carol ");
  assert.equal(await text.getAttribute("aria-expanded"), null);

  // By pointer.
  await text.pressSequentially("and @");
  await alice.getByRole("option", { name: "Everyone" }).waitFor();
  await shoot(alice, "picker");
  await alice.getByRole("option", { name: "Bob" }).click();
  assert.equal(await text.inputValue(), "Look, @carol and @bob ");
  await text.press("Enter");
  await stored(alice, "Look, @carol and @bob").locator(".mention", { hasText: "@carol" }).waitFor();

  const id = await openId(alice);
  const { conversation } = await apiOf(base, "bob")(
    "query($id: ID!) { conversation(id: $id) { lastMessage { mentions { username } mentionsEveryone } } }", { id });
  assert.deepEqual(conversation.lastMessage, { mentions: [{ username: "bob" }, { username: "carol" }], mentionsEveryone: false });

  // Escape keeps the text, and the next Enter sends it. A name that was written by hand counts too, once it is known.
  await text.pressSequentially("Mail me at soup@bob, @d");
  await alice.getByRole("option", { name: "Dave" }).waitFor();
  await text.press("Escape");
  await alice.getByRole("listbox").waitFor({ state: "hidden" });
  await text.pressSequentially("ave");
  await text.press("Enter");
  const written = message(alice, "Mail me at soup@bob");
  await written.locator(".mention").waitFor();
  assert.deepEqual(await written.locator(".mention").allTextContents(), ["@dave"]);

  // An edit takes a mention out and brings another one in. It is of the newest message, once that has arrived.
  await stored(alice, "Mail me at soup@bob").waitFor();
  await text.press("ArrowUp");
  // More than a name: at the end of one, Enter chooses it from the picker, once that is open.
  await text.fill("Mail me, @carol, please");
  await text.press("Enter");
  await message(alice, "Mail me, @carol").locator(".mention", { hasText: "@carol" }).waitFor();
  await alice.locator("li.message .mention", { hasText: "@dave" }).waitFor({ state: "detached" });

  // Bob: a badge beside the count of unread ones, and a way to each of them, however far they are.
  await sendMany(base, "carol", id, lines(70));
  await sendMany(base, "carol", id, [{ body: "All of you: soup!", mentionsEveryone: true }, ...lines(50, "After")]);
  await entry(bob, "Project Phoenix").locator(".badge.at").waitFor();
  await entry(bob, "Project Phoenix").locator(".badge", { hasText: "99+" }).waitFor();
  await shoot(bob, "badge");
  await entry(bob, "Project Phoenix").click();
  const button = bob.getByRole("button", { name: "To the next unread mention" });
  await button.click();
  await jumpedTo(bob, "Look, @carol and @bob");
  await message(bob, "Look, @carol and @bob").locator(".mention.me", { hasText: "@bob" }).waitFor();
  await shoot(bob, "mentioned");
  await button.click();
  await jumpedTo(bob, "All of you: soup!");
  await bob.locator("#pill").click();
  await message(bob, "After 50").waitFor();
  await entry(bob, "Project Phoenix").locator(".badge").first().waitFor({ state: "detached" });
  await button.waitFor({ state: "hidden" });
}

async function pins() {
  const [alice, bob] = [await windowOf("alice"), await windowOf("bob")];
  for (const page of [alice, bob]) {
    await entry(page, "Project Phoenix").click();
    await message(page, "cursors, or offsets").waitFor();
  }
  const id = await openId(alice);
  await send(alice, "The plan: soup at noon.");
  await message(bob, "The plan").waitFor();
  await chooseAction(alice, "The plan", "Pin");
  for (const page of [alice, bob]) {
    await page.locator("#pins", { hasText: "Pinned message" }).waitFor();
    await page.locator("#pins", { hasText: "Alice: The plan: soup at noon." }).waitFor();
    await message(page, "The plan").getByText("Pinned").waitFor({ state: "attached" });
  }
  await send(alice, "Bring spoons.");
  await chooseAction(bob, "Bring spoons.", "Pin");
  await alice.locator("#pins", { hasText: "Pinned message 2 of 2" }).waitFor();
  await shoot(alice, "bar");

  // Both are far above once the page is loaded again.
  await sendMany(base, "carol", id, lines(130));
  await message(bob, "Line 130").waitFor();
  // Otherwise the page would open at the first unread message.
  await hasReadAll(base, "bob", id);
  await bob.reload();
  await message(bob, "Line 130").waitFor();
  await bob.locator("#pins", { hasText: "Bring spoons." }).click();
  await jumpedTo(bob, "Bring spoons.");
  await shoot(bob, "jump");
  await bob.locator("#pins", { hasText: "Pinned message 1 of 2" }).click();
  await jumpedTo(bob, "The plan");

  // A gap lies below: messages that arrive meanwhile are counted, not shown in the wrong place.
  assert.equal(await isLoaded(bob, "Line 130"), false);
  await send(alice, "Are you reading?");
  await bob.locator("#pill", { hasText: "1 new" }).waitFor();
  assert.equal(await isLoaded(bob, "Are you reading?"), false);
  // Scrolling down closes the gap without a jump, in order.
  for (let step = 0; step < 40 && !(await isLoaded(bob, "Are you reading?")); step += 1) {
    await toTheEnd(bob);
    await bob.waitForTimeout(100);
  }
  await message(bob, "Are you reading?").waitFor();
  assert.deepEqual((await bodies(bob)).filter((body) => /^Line \d/.test(body)), lines(130), "none is missing, none is there twice");
  await send(bob, "I am.");
  await message(alice, "I am.").waitFor();

  // And the pill goes there at once.
  await bob.reload();
  await message(bob, "I am.").waitFor();
  await bob.locator("#pins").click();
  await jumpedTo(bob, "Bring spoons.");
  await bob.locator("#pins").click();
  await jumpedTo(bob, "The plan");
  // What is written meanwhile stays below the gap, also once it is sent.
  const noPages = (route) => (route.request().postData()?.includes("query Page")
    ? route.fulfill({ json: { errors: [{ message: "Later.", extensions: { code: "UNAVAILABLE", retryAfterMs: 50 } }] } }) : route.fallback());
  await bob.context().route("**/graphql", noPages);
  await send(bob, "Below the gap");
  await stored(bob, "Below the gap").waitFor();
  assert.equal(await message(bob, "Below the gap").evaluate((node) => node.previousElementSibling.textContent), "Newer messages are between");
  await bob.context().unroute("**/graphql", noPages);
  // The gap also closes as one scrolls, and the pill is gone with it.
  await bob.locator("#pill").dispatchEvent("click");
  await message(bob, "I am.").waitFor();

  // An edit shows in the bar; a deletion and an unpinning empty it.
  await alice.locator("#pins").click();
  await jumpedTo(alice, "Bring spoons.");
  // What was being written waits behind an edit.
  await alice.locator("#text").fill("And then");
  for (const key of ["Escape", "Enter"]) {
    await chooseAction(alice, "Bring spoons.", "Edit");
    await alice.locator("#text").fill("Bring spoons and bread.");
    await alice.locator("#text").press(key);
    assert.equal(await alice.locator("#text").inputValue(), "And then");
  }
  await alice.locator("#text").fill("");
  await bob.locator("#pins", { hasText: "Bring spoons and bread." }).waitFor();
  await chooseAction(alice, "Bring spoons and bread.", "Delete", "Delete for everyone?");
  await bob.locator("#pins", { hasText: "The plan" }).waitFor();
  await bob.locator("#pins").click();
  await jumpedTo(bob, "The plan");
  await chooseAction(bob, "The plan", "Unpin");
  for (const page of [alice, bob]) await page.locator("#pins").waitFor({ state: "hidden" });
}

async function blocks() {
  const [alice, bob, telephone] = [await windowOf("alice"), await windowOf("bob"), await windowOf("bob")];
  await entry(bob, "Project Phoenix").click();
  await entry(alice, "Project Phoenix").click();
  for (const page of [alice, bob]) await message(page, "cursors, or offsets").waitFor();
  const group = await openId(alice);
  await send(alice, "I think soup is overrated.");
  await message(bob, "I think soup is overrated.").waitFor();
  await entry(bob, "Alice").click();
  await message(bob, "Bring your notebook").waitFor();

  // In the head of the direct conversation. It leaves the inbox here and on the other device, and stays to be read.
  await bob.getByRole("button", { name: "Actions for this conversation" }).click();
  await bob.getByRole("menuitem", { name: "Block Alice", exact: true }).click();
  await bob.getByRole("menuitem", { name: "Block Alice?", exact: true }).click();
  await bob.locator("#notice", { hasText: "You have blocked Alice" }).waitFor();
  for (const page of [bob, telephone]) {
    await entry(page, "Alice").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Blocked (1)" }).waitFor();
  }
  assert.equal(await bob.locator("#text").isDisabled(), true);
  assert.ok(await bob.locator("li.message").count() > 0);
  await shoot(bob, "direct");

  // Alice notices nothing.
  await entry(alice, "Bob").click();
  await message(alice, "Bring your notebook").waitFor();
  await send(alice, "Soup, though?");
  await message(alice, "Soup, though?").locator(".tick[data-status=SENT]").waitFor();

  // In a group the messages are folded, and read on demand.
  await entry(bob, "Project Phoenix").click();
  const folded = bob.locator("li.message", { hasText: "somebody you have blocked" });
  await folded.first().waitFor();
  await sendMany(base, "alice", group, ["Still overrated."]);
  const seen = await folded.count();
  await bob.waitForFunction((count) => [...document.querySelectorAll("li.message")].filter((node) => node.textContent.includes("somebody you have blocked")).length >= count, seen);
  assert.equal(await bob.locator("#list", { hasText: "overrated" }).count(), 0);
  await shoot(bob, "folded");
  await folded.last().getByRole("button", { name: "Show" }).click();
  await message(bob, "overrated").waitFor();

  // The list of blocked people gives the way back.
  await bob.getByRole("button", { name: "Blocked (1)" }).click();
  await bob.locator("#blocked-list", { hasText: "Alice" }).waitFor();
  await shoot(bob, "list");
  await bob.getByRole("button", { name: "Unblock Alice" }).click();
  await bob.locator("#blocked-list", { hasText: "Nobody is blocked." }).waitFor();
  await bob.getByRole("button", { name: "Close", exact: true }).click();
  for (const page of [bob, telephone]) await entry(page, "Alice").waitFor();
  await folded.first().waitFor({ state: "detached" });
  await entry(bob, "Alice").click();
  await message(bob, "Soup, though?").waitFor();
  await bob.locator("#text:enabled").waitFor();
  await send(bob, "Soup, always.");
  await message(alice, "Soup, always.").waitFor();

  // From the menu of a message, and back from the notice.
  await chooseAction(bob, "Soup, though?", "Block Alice", "Block Alice?");
  await bob.locator("#notice").getByRole("button", { name: "Unblock" }).click();
  await bob.locator("#notice").waitFor({ state: "hidden" });
  await send(alice, "Are we good?");
  await message(bob, "Are we good?").waitFor();
}

async function search() {
  const alice = await windowOf("alice");
  await entry(alice, "Project Phoenix").click();
  await message(alice, "cursors, or offsets").waitFor();
  const id = await openId(alice);
  await sendMany(base, "bob", id, [
    "The pumpkin was the first.", ...Array.from({ length: 54 }, (_, index) => `Pumpkin soup number ${index + 2}`),
    { body: "Photographs", attachments: [{ url: "https://example.org/bowl.png", mimeType: "image/png", name: "bowl of soup.png" }] },
    { body: "", attachments: [{ url: "https://example.org/recipe.pdf", mimeType: "application/pdf", name: "recipe.pdf" }] },
    "See https://example.org/soup", ...lines(60),
  ]);
  await message(alice, "Line 60").waitFor();
  // Otherwise the page would open at the first unread message.
  await hasReadAll(base, "alice", id);
  await alice.reload();
  await message(alice, "Line 60").waitFor();

  // Across: what matches is highlighted, and pages come as one scrolls.
  const everywhere = alice.getByRole("searchbox", { name: "Search all messages" });
  await everywhere.fill("pumpk");
  await alice.locator("#search-status", { hasText: "20+ messages" }).waitFor();
  assert.equal(await alice.locator("#results mark").first().textContent(), "Pumpkin");
  assert.equal(await alice.locator("#inbox").isVisible(), false);
  await shoot(alice, "across");
  for (let step = 0; step < 40 && (await alice.locator("#results a").count()) < 55; step += 1) {
    await alice.locator("#results-scroll").evaluate((node) => { node.scrollTop = node.scrollHeight; });
    await alice.waitForTimeout(100);
  }
  await alice.locator("#search-status", { hasText: "55 messages" }).waitFor();
  await alice.locator("#results a").last().click();
  await jumpedTo(alice, "The pumpkin was the first.");
  assert.equal(await isLoaded(alice, "Line 60"), false, "a page around the old message");
  // The same match again, from another conversation.
  await everywhere.fill("");
  await entry(alice, "Bob").click();
  await everywhere.fill("pumpkin first");
  await alice.locator("#results a").first().waitFor();
  await everywhere.press("ArrowDown");
  await alice.keyboard.press("Enter");
  await jumpedTo(alice, "The pumpkin was the first.");
  await everywhere.fill("marzipan");
  await alice.locator("#results .empty", { hasText: "No message was found" }).waitFor();
  await shoot(alice, "nothing");

  // A failure says so and can be tried again; a search that could not look everywhere says that.
  await alice.route("**/graphql", (route) => (route.request().postData().includes("query Search") ? route.abort() : route.fallback()));
  await everywhere.fill("soup");
  await alice.locator("#results [role=alert]", { hasText: "offline" }).waitFor();
  await alice.unroute("**/graphql");
  await rewrite(alice, (text) => text.replace('"isCapped":false', '"isCapped":true'));
  await alice.locator("#results").getByRole("button", { name: "Try again" }).click();
  await alice.locator("#search-status", { hasText: "most recently active conversations" }).waitFor();
  await alice.unroute("**/graphql");
  await everywhere.press("Escape");
  await entry(alice, "Bob").waitFor();

  // In one conversation, and its gallery without words.
  await alice.getByRole("button", { name: "Search in this conversation" }).click();
  const inRoom = alice.getByRole("searchbox", { name: "Search in this conversation" });
  await inRoom.fill("\"soup number 42\"");
  await alice.locator("#find-list a").waitFor();
  await alice.locator("#find-list a").click();
  await jumpedTo(alice, "Pumpkin soup number 42");
  assert.equal(await alice.locator("#find").isVisible(), false);
  await alice.getByRole("button", { name: "Actions for this conversation" }).click();
  await alice.getByRole("menuitem", { name: "Images and files" }).click();
  await inRoom.fill("");
  await alice.locator("#find-list a", { hasText: "bowl of soup.png" }).waitFor();
  assert.equal(await alice.locator("#find-list a").count(), 1);
  await shoot(alice, "gallery");
  for (const [name, found] of [["Files", "recipe.pdf"], ["Links", "https://example.org/soup"]]) {
    await alice.getByRole("button", { name, exact: true }).click();
    await alice.locator("#find-list a", { hasText: found }).waitFor();
    assert.equal(await alice.locator("#find-list a").count(), 1);
  }
  await alice.keyboard.press("Escape");
  assert.equal(await alice.locator("#find").isVisible(), false);
  await alice.locator("#room-title", { hasText: "Project Phoenix" }).waitFor();
}

async function reports() {
  const [alice, bob] = [await windowOf("alice"), await windowOf("bob")];
  for (const page of [alice, bob]) {
    await entry(page, "Project Phoenix").click();
    await message(page, "cursors, or offsets").waitFor();
  }
  await send(alice, "Buy my soup, cheap!");
  await message(bob, "Buy my soup").waitFor();
  await chooseAction(bob, "Buy my soup", "Report…");
  const dialog = bob.getByRole("dialog", { name: "Report a message" });
  await dialog.getByText("Alice: Buy my soup, cheap!").waitFor();
  // Without a reason nothing is sent.
  await dialog.getByRole("button", { name: "Report", exact: true }).click();
  assert.equal(await dialog.getByText("Thank you.").isVisible(), false);
  await dialog.getByRole("radio", { name: "Spam" }).check();
  await dialog.getByRole("textbox").fill("The third one today.");
  await dialog.getByRole("checkbox", { name: "Block Alice too" }).check();
  await shoot(bob, "dialog");
  const sent = bob.waitForResponse((answer) => answer.url().endsWith("/graphql") && answer.request().postData().includes("reportMessage"));
  await dialog.getByRole("button", { name: "Report", exact: true }).click();
  const { input } = (await sent).request().postDataJSON().variables;
  assert.deepEqual([input.reason, input.note], ["SPAM", "The third one today."]);
  assert.ok((await (await sent).json()).data.reportMessage.reportId);
  await dialog.getByText("Thank you.").waitFor();
  await dialog.getByRole("button", { name: "Close", exact: true }).click();
  await bob.locator("li.message", { hasText: "somebody you have blocked" }).first().waitFor();
  // One's own messages have no such entry.
  await chooseAction(alice, "Buy my soup");
  await alice.getByRole("menuitem", { name: "Edit" }).waitFor();
  assert.equal(await alice.getByRole("menuitem", { name: "Report…" }).count(), 0);
}

async function history() {
  const [alice, bob, telephone] = [await windowOf("alice"), await windowOf("bob"), await windowOf("alice")];
  const chooseFor = async (page, ...choices) => {
    await page.getByRole("button", { name: "Actions for this conversation" }).click();
    for (const [role, name] of choices) await page.getByRole(role, { name, exact: true }).click();
  };
  const disappear = (page, choice) => chooseFor(page, ["menuitem", "Disappearing messages…"], ["menuitemradio", choice]);

  // Cleared for one person, on all of that person's devices, and for nobody else.
  for (const page of [alice, bob, telephone]) {
    await entry(page, "Project Phoenix").click();
    await message(page, "cursors, or offsets").waitFor();
  }
  await chooseFor(alice, ["menuitem", "Clear for me"], ["menuitem", "Clear all messages, for you alone?"]);
  for (const page of [alice, telephone]) {
    await page.locator("#list", { hasText: "No messages yet" }).waitFor();
    await entry(page, "Project Phoenix").getByText("Nothing here yet").waitFor();
  }
  await message(bob, "cursors, or offsets").waitFor();
  await send(bob, "Still here?");
  for (const page of [alice, telephone]) await message(page, "Still here?").waitFor();
  await shoot(alice, "cleared");

  // The owner of a group chooses when its messages disappear. The old ones of the sample go at once.
  await disappear(alice, "1 week");
  for (const page of [alice, bob]) await page.locator("#room-state", { hasText: "messages disappear after 7 days" }).waitFor();
  await message(bob, "cursors, or offsets").waitFor({ state: "detached" });
  await bob.locator(".system", { hasText: "Alice lets messages disappear after 7 days" }).waitFor();
  await bob.getByRole("button", { name: "Actions for this conversation" }).click();
  assert.equal(await bob.getByRole("menuitem", { name: "Disappearing messages…" }).count(), 0);
  await bob.keyboard.press("Escape");
  await alice.getByRole("button", { name: "Actions for this conversation" }).click();
  await alice.getByRole("menuitem", { name: "Disappearing messages…" }).click();
  assert.equal(await alice.getByRole("menuitemradio", { name: "1 week" }).getAttribute("aria-checked"), "true");
  await shoot(alice, "menu");
  await alice.keyboard.press("Escape");

  // A message vanishes when its time has come, without a reload: the shortest time is a minute.
  const id = await openId(alice);
  await apiOf(base, "alice")(
    "mutation($input: UpdateConversationInput!) { updateConversation(input: $input) { conversation { id } } }",
    { input: { conversationId: id, messageTtlSeconds: 60 } });
  await alice.locator("#room-state", { hasText: "messages disappear after 1 minute" }).waitFor();
  const began = Date.now();
  await send(alice, "Gone in a minute.");
  await message(bob, "Gone in a minute.").waitFor();
  for (const page of [alice, bob]) await message(page, "Gone in a minute.").waitFor({ state: "detached", timeout: 180_000 });
  assert.ok(Date.now() - began > 50_000, "not before its time");
  await entry(bob, "Project Phoenix").getByText("Nothing here yet").waitFor();
  await disappear(alice, "Off");
  await bob.locator(".system", { hasText: "lets messages stay" }).waitFor();
  await bob.locator("#list", { hasText: "Gone in a minute." }).waitFor({ state: "detached" });

  // In a direct conversation both have to ask.
  await entry(alice, "Bob").click();
  await disappear(alice, "1 day");
  await alice.locator("#room-state", { hasText: "you asked for 1 day" }).waitFor();
  await entry(bob, "Alice").click();
  await disappear(bob, "1 week");
  for (const page of [alice, bob]) await page.locator("#room-state", { hasText: "messages disappear after 7 days" }).waitFor();
}

const features = { history, reports, mentions, pins, blocks, search };

try {
  await features[feature]();
  check((line) => feature === "search" && line.includes("ERR_FAILED"));
} catch (error) {
  for (const [index, page] of windows.entries()) await shoot(page, `failed-${index}`);
  throw error;
} finally {
  await close();
}

// Drives the chat page as people do, in two windows of a real browser, with every host but the server's closed.
// Usage: node demo.js BASE_URL CHROMIUM SCREENSHOT_FOLDER. It writes "kill" and "start" to have the server killed and started again, and
// reads a line when that is done. Exit code 0: all of it held.

import assert from "node:assert/strict";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chooseAction, entry, hasReadAll, message, openId, send, sendMany, tapEntry } from "./chat.js";
import { fits, launch, topInList } from "./page.js";

const [base, executablePath, folder] = process.argv.slice(2);
const { newContext, open, check, close } = await launch(base, executablePath);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function server(command) {
  console.log(command);
  assert.equal((await answers.next()).value, "done");
}

const shoot = (page, name) => page.screenshot({ path: join(folder, `demo-${name}.png`) });
const lastBodies = (page, count) => page.locator("li.message .body").allTextContents().then((all) => all.slice(-count));

/** Signs of typing are never replayed: who has only just begun to listen hears the next one. */
async function typeUntil(page, sign) {
  let isSeen = false;
  const seen = sign.waitFor().finally(() => { isSeen = true; });
  while (!isSeen) await page.locator("#text").pressSequentially("soup ", { delay: 100 });
  await seen;
}

async function aConversationInTwoWindows(alice, bob) {
  await alice.getByRole("button", { name: "alice" }).click();
  await entry(alice, "Bob").locator(".badge", { hasText: "1" }).waitFor();
  await entry(alice, "Project Phoenix").locator(".badge", { hasText: "3" }).waitFor();
  await alice.waitForFunction(() => document.title.startsWith("(2) alice"));
  await entry(alice, "Bob").click();
  await alice.locator("#unread").waitFor();
  await entry(alice, "Bob").locator(".badge").waitFor({ state: "detached" });

  await entry(bob, "Alice").click();
  await alice.locator("#room-state", { hasText: "online" }).waitFor();

  await typeUntil(alice, bob.locator("#typing", { hasText: "Alice is typing" }));
  await send(alice, "Soup at twelve?");
  await message(bob, "Soup at twelve?").waitFor();
  await bob.waitForFunction(() => !document.querySelector("#typing").textContent);
  await bob.locator("#announcer", { hasText: "Alice: Soup at twelve?" }).waitFor({ state: "attached" });
  await message(alice, "Soup at twelve?").locator(".tick[data-status=READ]").waitFor();

  // Keyboard only: from the text field back to the last message, its menu, and the first emoji.
  await bob.locator("#text").focus();
  await bob.keyboard.press("Shift+Tab");
  await bob.keyboard.press("Enter");
  await bob.keyboard.press("Enter");
  await message(alice, "Soup at twelve?").locator(".reaction", { hasText: "👍" }).waitFor();
  await message(alice, "Soup at twelve?").locator(".reaction").click();
  await message(bob, "Soup at twelve?").locator(".reaction", { hasText: "2" }).waitFor();
  await message(alice, "Soup at twelve?").locator(".reaction[aria-pressed=true]").waitFor();
  await message(alice, "Soup at twelve?").locator(".reaction").click();
  await message(bob, "Soup at twelve?").locator(".reaction", { hasText: "2" }).waitFor({ state: "detached" });

  await chooseAction(bob, "Soup at twelve?", "Reply");
  await send(bob, "With bread, please.");
  await message(alice, "With bread, please.").locator(".quote", { hasText: "Soup at twelve?" }).waitFor();

  await alice.locator("#text").focus();
  await alice.keyboard.press("ArrowUp");
  assert.equal(await alice.locator("#text").inputValue(), "Soup at twelve?");
  await send(alice, "Soup at half past?");
  await message(bob, "Soup at half past?").locator(".meta", { hasText: "edited" }).waitFor();

  await send(alice, "Nobody should read this.");
  await message(bob, "Nobody should read this.").waitFor();
  await chooseAction(alice, "Nobody should read this.", "Delete", "Delete for everyone?");
  await bob.locator(".deleted").waitFor();
  assert.equal(await bob.locator("#list", { hasText: "Nobody should read this." }).count(), 0);
}

async function textIsOnlyText(alice, bob) {
  const hostile = "<img src=x onerror=\"document.title='caught'\"> javascript:alert(1) https://example.org/soup";
  await send(alice, hostile);
  await message(bob, hostile).waitFor();
  assert.equal(await bob.locator("#list img").count(), 0);
  assert.deepEqual(await message(bob, hostile).locator("a").evaluateAll((all) => all.map((a) => a.href)), ["https://example.org/soup"]);
  await sendMany(base, "alice", await openId(alice), ["x".repeat(2_000), "ab ".repeat(5_300), "مرحبا، الحساء جاهز", "🎉🍲"]);
  await message(bob, "🎉🍲").waitFor();
  await fits(bob, "a long word");
}

async function olderOnesComeWithoutAJump(alice, bob) {
  const id = await openId(bob);
  await sendMany(base, "alice", id, Array.from({ length: 90 }, (_, index) => `Line ${index + 1}`));
  await message(bob, "Line 90").waitFor();
  // Otherwise the page would open at the first unread message.
  await hasReadAll(base, "bob", id);
  await bob.reload();
  await message(bob, "Line 90").waitFor();
  const shown = () => bob.locator("li.message").count();
  let before = await shown();
  assert.ok(before < 70, `only the newest: ${before}`);
  for (let page = 0; page < 2; page += 1) {
    // In one go: what is older comes as soon as the page is near the top.
    const place = await bob.evaluate(() => {
      const scroller = document.querySelector("#scroller");
      scroller.scrollTop = 150;
      const { top } = scroller.getBoundingClientRect();
      const node = [...document.querySelectorAll("li.message")].find((item) => item.getBoundingClientRect().top >= top);
      return { id: node.dataset.id, top: node.getBoundingClientRect().top - top };
    });
    await bob.waitForFunction((count) => document.querySelectorAll("li.message").length > count, before);
    const after = await topInList(bob.locator(`[data-id="${place.id}"]`));
    assert.ok(Math.abs(after - place.top) <= 1.5, `it jumped by ${after - place.top} px`);
    before = await shown();
  }
  await send(alice, "Are you there?");
  await bob.locator("#pill", { hasText: "1 new" }).click();
  await message(bob, "Are you there?").waitFor();
  await message(alice, "Are you there?").locator(".tick[data-status=READ]").waitFor();
}

async function aCutShowsAndHeals(alice, bob) {
  await server("kill");
  for (const page of [alice, bob]) await page.locator("#bar", { hasText: "Offline" }).waitFor();
  for (const text of ["First while away", "Second while away"]) await send(alice, text);
  await message(alice, "Second while away").locator(".tick[data-status=WAITING]").waitFor();
  // A try that fails leaves the bar as it is.
  await alice.getByRole("button", { name: "Try now" }).click();
  await alice.locator("#bar", { hasText: "Offline" }).waitFor();
  await shoot(alice, "offline");
  await server("start");
  await message(bob, "Second while away").waitFor();
  assert.deepEqual(await lastBodies(bob, 2), ["First while away", "Second while away"]);
  for (const page of [alice, bob]) await page.waitForFunction(() => !document.querySelector("#bar").textContent);
  await message(alice, "Second while away").locator(".tick[data-status=READ]").waitFor();
  assert.equal(await alice.locator("li.message", { hasText: "First while away" }).count(), 1, "sent once");
  // Subscriptions of the page work again.
  await send(bob, "Welcome back");
  await message(alice, "Welcome back").waitFor();
}

async function aGroup(alice, bob) {
  await alice.getByRole("button", { name: "New conversation" }).click();
  await alice.locator(".chip", { hasText: "bob" }).click();
  await alice.locator(".chip", { hasText: "carol" }).click();
  await alice.locator("#group-name").fill("Lunch");
  await alice.getByRole("button", { name: "Start" }).click();
  await alice.locator("#room-title", { hasText: "Lunch" }).waitFor();
  await send(alice, "Who is coming?");
  await entry(bob, "Lunch").locator(".badge", { hasText: "1" }).waitFor();
  await message(alice, "Who is coming?").locator(".tick[data-status=SENT]").waitFor();
}

async function onATelephone() {
  for (const colorScheme of ["light", "dark"]) {
    const context = await newContext({ viewport: { width: 360, height: 780 }, colorScheme, hasTouch: true, isMobile: true });
    const page = await open(context, "/demo?as=bob");
    await entry(page, "Lunch").waitFor();
    assert.equal(await page.locator("#room").isVisible(), false, "one of the two at a time");
    await fits(page, "the inbox on a telephone");
    await shoot(page, `phone-inbox-${colorScheme}`);
    await tapEntry(page, "Project Phoenix", message(page, "Are those cursors, or offsets?"));
    assert.equal(await page.locator("#inbox").isVisible(), false);
    await fits(page, "a conversation on a telephone");
    const small = await page.locator("main button:visible, main a:visible").evaluateAll((all) =>
      all.filter((one) => one.getBoundingClientRect().height < 40).map((one) => one.outerHTML));
    assert.deepEqual(small, [], "large enough for a thumb");
    await shoot(page, `phone-room-${colorScheme}`);
    await page.getByRole("link", { name: "Back to the inbox" }).tap();
    await entry(page, "Lunch").waitFor();
    await context.close();
  }
}

const windows = [];

try {
  const context = await newContext({ viewport: { width: 1180, height: 760 } });
  const alice = await open(context, "/demo");
  await shoot(alice, "door");
  const bob = await open(await newContext({ viewport: { width: 1180, height: 760 }, colorScheme: "dark" }), "/demo?as=bob");
  windows.push(alice, bob);
  await aConversationInTwoWindows(alice, bob);
  await shoot(alice, "wide-light");
  await shoot(bob, "wide-dark");
  await textIsOnlyText(alice, bob);
  await shoot(bob, "hostile");
  await olderOnesComeWithoutAJump(alice, bob);
  await aCutShowsAndHeals(alice, bob);
  await aGroup(alice, bob);
  await shoot(alice, "group");
  await onATelephone();
  // While the server is away the browser itself says so.
  check((line) => /ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|WebSocket connection/.test(line));
  process.stdin.destroy();
} catch (error) {
  for (const [index, page] of windows.entries()) await shoot(page, `failed-${index}`);
  throw error;
} finally {
  await close();
}

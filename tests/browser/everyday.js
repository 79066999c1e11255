// Drives what people do every day in the chat page: run a group, sort the inbox, send a picture, copy a text; by mouse, keyboard and touch.
// Usage: node everyday.js BASE_URL CHROMIUM SCREENSHOT_FOLDER SCENE. Exit code 0: all of it held.

import assert from "node:assert/strict";
import { join } from "node:path";
import { apiOf, chooseAction, entry, message, openId, send, sendMany, stored, tapEntry } from "./chat.js";
import { fits, launch } from "./page.js";

const [base, executablePath, folder, scene] = process.argv.slice(2);
const { newContext, open, check, notes, pictures: fetched, close } = await launch(base, executablePath);
const windows = [];
const DESK = { viewport: { width: 1280, height: 760 } };
const TELEPHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };

const shoot = (page, name) => page.screenshot({ path: join(folder, `everyday-${name}.png`) });

async function windowOf(username, options = DESK) {
  const page = await open(await newContext(options), `/demo?as=${username}`);
  windows.push(page);
  return page;
}

async function phoenix(page) {
  await entry(page, "Project Phoenix").click();
  await message(page, "cursors, or offsets").waitFor();
  return openId(page);
}

const sheetOf = (page) => page.getByRole("complementary", { name: /^(Group|Profile)$/ });
const member = (page, name) => page.locator("#member-list li", { hasText: name });

async function choose(page, name, ...choices) {
  await page.getByRole("button", { name: `Actions for ${name}`, exact: true }).click();
  for (const choice of choices) await page.getByRole("menuitem", { name: choice, exact: true }).click();
}

async function sheet() {
  const [alice, bob] = [await windowOf("alice"), await windowOf("bob")];
  const id = await phoenix(alice);
  await phoenix(bob);
  await alice.getByRole("button", { name: "Project Phoenix", exact: true }).click();
  await member(alice, "Carol").waitFor();
  assert.equal(await alice.locator("#member-list li").count(), 4);
  await member(alice, "Bob").getByText("online").waitFor();
  await member(alice, "Alice").getByText("Owner").waitFor();

  // Roles, and what they give: the other window follows.
  await bob.getByRole("button", { name: "Project Phoenix", exact: true }).click();
  await member(bob, "Carol").waitFor();
  assert.equal(await bob.locator("#member-form").isVisible(), false, "a member adds nobody");
  assert.equal(await sheetOf(bob).getByRole("combobox").count(), 0, "and sets nothing");
  await choose(alice, "Bob", "Make an admin");
  await member(alice, "Bob").getByText("Admin").waitFor();
  await bob.locator("#member-form").waitFor();
  await sheetOf(bob).getByLabel("Slow mode").selectOption("30");
  await alice.waitForFunction(() => document.querySelector("[data-key=slow]").value === "30");
  await sheetOf(alice).getByLabel("Slow mode").selectOption("0");
  await sheetOf(alice).getByLabel("New people see").selectOption("SINCE_JOINED");
  await alice.locator(".system", { hasText: "Alice shows new people the messages since they joined" }).waitFor();
  await sheetOf(alice).getByLabel("Name of the group").fill("Project Heron");
  await sheetOf(alice).getByRole("button", { name: "Rename" }).click();
  for (const page of [alice, bob]) await page.locator("#room-title", { hasText: "Project Heron" }).waitFor();
  await shoot(alice, "sheet");
  // Where there is no room for both, what the sheet covers is out of reach, and comes back with a wider window.
  const isOutOfReach = (isInert) => alice.waitForFunction((wanted) => document.getElementById("room").inert === wanted, isInert);
  await alice.setViewportSize({ width: 820, height: 760 });
  await isOutOfReach(true);
  await fits(alice, "the sheet beside the inbox");
  await alice.setViewportSize(DESK.viewport);
  await isOutOfReach(false);

  // Silence, removal, ban, and the way back.
  await choose(alice, "Dave", "Silence");
  await member(alice, "Dave").getByText("silenced").waitFor();
  await choose(alice, "Dave", "Let write again");
  await member(alice, "Dave").getByText("silenced").waitFor({ state: "detached" });
  await choose(alice, "Dave", "Remove", "Remove Dave?");
  for (const page of [alice, bob]) await member(page, "Dave").waitFor({ state: "detached" });
  // The finder: those whom the page has seen, by the beginning of a name.
  await alice.locator("#member-add").fill("da");
  await alice.locator("#member-found").getByRole("button", { name: "Dave" }).click();
  for (const page of [alice, bob]) await member(page, "Dave").waitFor();
  await choose(bob, "Dave", "Ban", "Ban Dave?");
  await alice.locator("#ban-list li", { hasText: "Dave" }).waitFor();
  await alice.getByRole("button", { name: "Lift the ban of Dave" }).click();
  await alice.locator("#bans").waitFor({ state: "hidden" });
  const { conversation } = await apiOf(base, "alice")("query($id: ID!) { conversation(id: $id) { name historyVisibility slowModeSeconds participants { edges { node { role user { username } } } } } }", { id });
  assert.deepEqual(conversation.participants.edges.map(({ node }) => [node.user.username, node.role]), [["alice", "OWNER"], ["bob", "ADMIN"], ["carol", "MEMBER"]]);
  assert.deepEqual([conversation.name, conversation.historyVisibility, conversation.slowModeSeconds], ["Project Heron", "SINCE_JOINED", 0]);

  // A refusal is said in the sheet.
  await alice.locator("#member-add").fill(`${"x".repeat(129)}`);
  await alice.locator("#member-add").press("Enter");
  await alice.locator("#sheet-problem:not(:empty)").waitFor();

  // Escape closes the sheet alone, and the focus is back where it was.
  await alice.locator("#sheet-close").focus();
  await alice.keyboard.press("Escape");
  assert.equal(await sheetOf(alice).isVisible(), false);
  assert.equal(await alice.evaluate(() => document.activeElement.id), "room-title");

  // Bob leaves, and is out.
  await sheetOf(bob).getByRole("button", { name: "Leave the group" }).click();
  await sheetOf(bob).getByRole("button", { name: "Leave the group?" }).click();
  await entry(bob, "Project Heron").waitFor({ state: "detached" });
  await bob.locator("#nothing").waitFor();

  // The profile of a direct conversation: both names, a report, a block.
  await entry(bob, "Alice").click();
  await bob.getByRole("button", { name: "Alice", exact: true }).click();
  await sheetOf(bob).getByText("@alice").waitFor();
  await shoot(bob, "peer");
  await sheetOf(bob).getByRole("button", { name: "Report…" }).click();
  await bob.getByRole("dialog", { name: "Report Alice" }).getByRole("radio", { name: "Spam" }).check();
  await bob.getByRole("dialog", { name: "Report Alice" }).getByRole("button", { name: "Report", exact: true }).click();
  await bob.getByText("Thank you.").waitFor();
  await bob.locator("#report-close").click();
  await sheetOf(bob).getByRole("button", { name: "Block" }).click();
  await sheetOf(bob).getByRole("button", { name: "Block Alice?" }).click();
  await bob.locator("#notice", { hasText: "You have blocked Alice" }).waitFor();
}

async function entries() {
  const [alice, telephone] = [await windowOf("alice"), await windowOf("alice", TELEPHONE)];
  const item = (page, name) => page.getByRole("menuitem", { name, exact: true });
  const menu = async (page, name, ...choices) => {
    await entry(page, name).click({ button: "right" });
    for (const choice of choices) await item(page, choice).click();
  };
  // Every other device follows.
  await menu(alice, "Project Phoenix", "Pin");
  for (const page of [alice, telephone]) await page.locator(".entry", { hasText: "Project Phoenix" }).locator(".icon-pinned").waitFor();
  for (const page of [alice, telephone]) await page.waitForFunction(() => document.querySelector(".entry").textContent.includes("Project Phoenix"));
  await menu(alice, "Project Phoenix", "Mute");
  await entry(telephone, "Project Phoenix").locator(".icon-muted").waitFor();
  await entry(telephone, "Project Phoenix").locator(".badge.muted").waitFor();
  await menu(alice, "Bob", "Mark as read");
  for (const page of [alice, telephone]) await entry(page, "Bob").locator(".badge").waitFor({ state: "detached" });
  await menu(alice, "Bob", "Mark as unread");
  await entry(telephone, "Bob").locator(".badge", { hasText: "1" }).waitFor();
  await menu(alice, "Bob", "Notifications…");
  await alice.getByRole("menuitemradio", { name: "Mentions only" }).click();
  // A menu shows what had been answered when it was opened.
  const chosen = alice.locator("[role=menuitemradio][aria-checked=true]");
  while (await menu(alice, "Bob", "Notifications…"), await chosen.textContent() !== "Mentions only") await alice.keyboard.press("Escape");
  await shoot(alice, "levels");
  await alice.keyboard.press("Escape");

  for (const pointerType of ["touch", "mouse"]) assert.ok(await opensOnce(entry(alice, "Bob"), pointerType), pointerType);
  await alice.keyboard.press("Escape");

  // The menu key opens it, too; an entry comes back from the archive.
  await entry(alice, "Bob").focus();
  await alice.keyboard.press("Shift+F10");
  await item(alice, "Archive").click();
  for (const page of [alice, telephone]) await entry(page, "Bob").waitFor({ state: "detached" });
  await alice.getByRole("button", { name: "Archived" }).click();
  await menu(alice, "Bob", "Back to the inbox");
  await alice.locator("#inbox", { hasText: "Nothing is archived." }).waitFor();
  await alice.getByRole("button", { name: "Back to the inbox" }).click();
  for (const page of [alice, telephone]) await entry(page, "Bob").waitFor();

  // A long press opens the menu, and not the conversation.
  await hold(telephone, entry(telephone, "Project Phoenix"));
  await item(telephone, "Unpin").waitFor();
  await shoot(telephone, "long-press");
  assert.equal(await telephone.locator("#room").isVisible(), false);
  await item(telephone, "Unpin").tap();
  await entry(alice, "Project Phoenix").locator(".icon-pinned").waitFor({ state: "detached" });
}

/** Whether two events in a row that ask for the menu open one. Firefox sends both, and does not say that a finger does. */
const opensOnce = (target, pointerType) => target.evaluate((node, pointerType) => {
  const ask = () => {
    node.dispatchEvent(new MouseEvent("contextmenu", { bubbles: true, cancelable: true }));
    return document.querySelector(".menu");
  };
  node.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true, pointerType }));
  const menu = ask();
  return Boolean(menu) && ask() === menu;
}, pointerType);

/** A finger that pulls to the right. */
async function swipe(page, target, far) {
  const { x, y, height } = await target.boundingBox();
  const session = await page.context().newCDPSession(page);
  const touch = (type, by) => session.send("Input.dispatchTouchEvent", { type, touchPoints: by === undefined ? [] : [{ x: x + 20 + by, y: y + height / 2 }] });
  // At once: on a busy machine it would be a long press.
  const moves = Array.from({ length: far / 10 }, (_, index) => (index + 1) * 10);
  await Promise.all([touch("touchStart", 0), ...moves.map((by) => touch("touchMove", by)), touch("touchEnd")]);
}

/** A finger that stays. */
async function hold(page, target) {
  const { x, y, width, height } = await target.boundingBox();
  const session = await page.context().newCDPSession(page);
  const point = { x: x + width / 3, y: y + height / 2 };
  await session.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [point] });
  await page.locator(".menu").waitFor();
  await session.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
}

async function pictures() {
  const [alice, bob] = [await windowOf("alice"), await windowOf("bob")];
  for (const page of [alice, bob]) await entry(page, page === alice ? "Bob" : "Alice").click();
  await message(bob, "Bring your notebook").waitFor();
  await alice.getByRole("button", { name: "Attach by address" }).click();
  await alice.locator("#attach-url").fill("https://pictures.example.org/bowl.png");
  await alice.getByRole("dialog").getByRole("button", { name: "Attach" }).click();
  await alice.getByRole("button", { name: "Do not attach bowl.png" }).waitFor();
  await send(alice, "The soup of today");
  const picture = bob.getByRole("img", { name: "bowl.png" });
  await picture.waitFor();
  // Its room is there before the picture: 1600 × 1200 at most 360 wide.
  assert.deepEqual(await picture.evaluate((node) => [node.width, node.height, node.loading, node.referrerPolicy]), [360, 270, "lazy", "no-referrer"]);
  await bob.waitForFunction(() => document.querySelector(".picture img").naturalWidth > 0);
  assert.ok(fetched.length && fetched.every(({ referrer }) => !referrer), JSON.stringify(fetched));
  // One without a size has a room, too; what is no picture is a link; one of http is never fetched.
  await sendMany(base, "alice", await openId(bob), [
    { body: "", attachments: [{ url: "https://pictures.example.org/unsized.jpg", mimeType: "image/jpeg" }] },
    { body: "", attachments: [{ url: "https://example.org/recipe.pdf", mimeType: "application/pdf", name: "recipe.pdf" }] },
    { body: "", attachments: [{ url: "http://example.org/plain.png", mimeType: "image/png", name: "plain.png" }] },
  ]);
  await bob.getByRole("link", { name: "plain.png", exact: true }).waitFor();
  assert.equal(await bob.getByRole("link", { name: "recipe.pdf", exact: true }).getAttribute("href"), "https://example.org/recipe.pdf");
  assert.equal(await bob.locator(".picture img.unsized").count(), 1);
  await shoot(bob, "pictures");

  // The profile: a name and a picture, which the other one sees at the next look.
  await alice.getByRole("button", { name: "your profile" }).click();
  await alice.getByLabel("Name", { exact: true }).fill("Alice Liddell");
  await alice.getByLabel("Address of a picture").fill("https://pictures.example.org/alice.png");
  await alice.getByRole("button", { name: "Save" }).click();
  await alice.locator("#me", { hasText: "Alice Liddell" }).waitFor();
  await alice.locator("#me img").waitFor();
  await bob.reload();
  await bob.locator("#room-title", { hasText: "Alice Liddell" }).waitFor();
  await bob.locator("#room-avatar img").waitFor();
  // A like name of another user brings the usernames in.
  await apiOf(base, "carol")("mutation($input: UpdateProfileInput!) { updateProfile(input: $input) { user { id } } }", { input: { displayName: "ALICE LIDDELL" } });
  await bob.reload();
  await entry(bob, "Project Phoenix").click();
  await bob.locator(".author", { hasText: "@carol" }).first().waitFor();
}

async function writing() {
  const context = await newContext(DESK);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const [alice, bob] = [await open(context, "/demo?as=alice"), await windowOf("bob")];
  windows.push(alice);
  const id = await phoenix(bob);
  await phoenix(alice);
  const silence = (until) => apiOf(base, "alice")("mutation($input: SilenceParticipantInput!) { silenceParticipant(input: $input) { participant { id } } }", { input: { conversationId: id, username: "bob", until } });

  // A refused message is not offered again; its text can be taken back.
  await bob.context().route("**/graphql", async (route) => {
    if (!route.request().postData()?.includes("mutation SendMessage")) return route.fallback();
    await silence();
    await bob.locator("#closed").waitFor();
    return route.fallback();
  });
  await send(bob, "Too late");
  await bob.locator(".failure", { hasText: "Not sent" }).waitFor();
  await bob.context().unroute("**/graphql");
  await bob.locator("#closed", { hasText: "You are silenced here: you read, and do not write." }).waitFor();
  assert.equal(await bob.locator("#text").isVisible(), false);
  assert.equal(await bob.getByRole("button", { name: "Send again" }).count(), 0);
  await shoot(bob, "silenced");
  // A silence that ends opens the field by itself, and then another try may pass.
  await silence(new Date(Date.now() + 3_600_000).toISOString());
  await bob.locator("#closed", { hasText: "until" }).waitFor();
  await silence(new Date(Date.now() + 3_000).toISOString());
  await bob.locator("#text").waitFor();
  await bob.getByRole("button", { name: "Send again" }).click();
  await message(alice, "Too late").waitFor();

  // Slow mode stands in the field of those whom it slows.
  const slow = (slowModeSeconds) => apiOf(base, "alice")("mutation($input: UpdateConversationInput!) { updateConversation(input: $input) { conversation { id } } }", { input: { conversationId: id, slowModeSeconds } });
  await slow(60);
  await bob.getByPlaceholder("Message (slow mode: one in 1 minute)").waitFor();
  await alice.getByPlaceholder("Message", { exact: true }).waitFor();
  await slow(0);

  // Code, and addresses without a scheme.
  await send(alice, "Try this:");
  await alice.locator("#text").fill("```js\nconst soup = \"@bob https://example.org\";\n```\nwww.example.org/menu, or cook@example.org.");
  await alice.locator("#text").press("Enter");
  await bob.locator("code", { hasText: "const soup" }).waitFor();
  assert.equal(await message(bob, "const soup").locator("code a, code .mention").count(), 0);
  assert.deepEqual(await message(bob, "const soup").locator("a").evaluateAll((all) => all.map((a) => a.href)), ["https://www.example.org/menu", "mailto:cook@example.org"]);

  // Copies: of the text, and of a link that leads to the message.
  await chooseAction(alice, "Try this:", "Copy text");
  assert.equal(await alice.evaluate(() => navigator.clipboard.readText()), "Try this:");
  await chooseAction(alice, "Planning is at two", "Copy link");
  const link = await alice.evaluate(() => navigator.clipboard.readText());
  await entry(alice, "Bob").click();
  await alice.evaluate((href) => { location.href = href; }, link);
  await alice.locator("li.message[data-was-found]", { hasText: "Planning is at two" }).waitFor();

  // Ticks in the inbox, a count on the arrow, and the day that stays.
  await entry(alice, "Bob").click();
  await send(alice, "Seen?");
  await entry(alice, "Bob").locator(".tick[data-status=DELIVERED]").waitFor();
  await entry(bob, "Alice").click();
  await entry(alice, "Bob").locator(".tick[data-status=READ]").waitFor();
  const direct = await openId(alice);
  await entry(bob, "Kitchen").click();
  // Not before the page has left: it would mark the first of them as read.
  await bob.locator("#room-title", { hasText: "Kitchen" }).waitFor();
  await sendMany(base, "alice", direct, Array.from({ length: 150 }, (_, index) => `Row ${index + 1}`));
  await entry(bob, "Alice").locator(".badge", { hasText: "99+" }).waitFor();
  // Also a conversation that was open a moment ago begins at what is new, and marks no more than was seen.
  await entry(bob, "Alice").click();
  await message(bob, "Row 1").waitFor();
  await bob.locator("#unread").waitFor();
  await bob.locator("#pill", { hasText: "99+ new" }).waitFor();
  const isInSight = await bob.locator("#unread").evaluate((node) => node.getBoundingClientRect().top > 0 && node.getBoundingClientRect().bottom < innerHeight);
  assert.ok(isInSight, "the line of the new messages is in sight");
  // The day stays for a second and a half: the page itself sees it come.
  await bob.locator("#scroller").evaluate((node) => new Promise((come) => {
    const day = document.querySelector("#day");
    new MutationObserver(() => day.textContent === "Today" && come()).observe(day, { childList: true });
    node.scrollTop += 400;
  }));
  await shoot(bob, "arrow");

  // A name that is new to the page is said before it is written to.
  await alice.getByRole("button", { name: "New conversation" }).click();
  await alice.locator("#names").fill("zelda");
  await alice.locator("#new-names", { hasText: "New to you: zelda." }).waitFor();
  await alice.locator("#names").fill("bob");
  assert.equal(await alice.locator("#new-names").textContent(), "");
}

async function hands() {
  // Keyboard alone, from the door to a sent message.
  const alice = await open(await newContext(DESK), "/demo");
  windows.push(alice);
  await alice.getByRole("button", { name: "alice" }).waitFor();
  const tabTo = async (what, key = "Tab") => {
    for (let stop = 0; stop < 20; stop += 1) {
      await alice.keyboard.press(key);
      if (await alice.evaluate((selector) => document.activeElement.matches(selector), what)) return;
    }
    assert.fail(`no way to ${what}`);
  };
  await tabTo("#people button");
  await alice.keyboard.press("Enter");
  await entry(alice, "Kitchen").waitFor();
  await tabTo("#inbox a");
  await alice.keyboard.press("Enter");
  await message(alice, "I bring the bread").waitFor();
  await alice.waitForFunction(() => document.activeElement.id === "text");
  await alice.keyboard.type("Written without a mouse");
  await alice.keyboard.press("Enter");
  await stored(alice, "Written without a mouse").waitFor();
  // The messages are one stop of Tab; the arrows walk them, and what is in one of them.
  await alice.keyboard.press("Shift+Tab");
  assert.equal(await alice.evaluate(() => document.activeElement.closest(".message").textContent.includes("without a mouse")), true);
  for (let step = 0; step < 6; step += 1) await alice.keyboard.press("ArrowUp");
  assert.equal(await alice.evaluate(() => document.activeElement.closest(".message").textContent.includes("Soup today")), true);
  await alice.keyboard.press("ArrowLeft");
  assert.equal(await alice.evaluate(() => document.activeElement.href), "https://example.org/menu");
  await alice.keyboard.press("Shift+Tab");
  assert.equal(await alice.evaluate(() => Boolean(document.activeElement.closest("#list"))), false, "no link of another message is in the way");

  // Screen reader: each item names its sender, and its text describes its button.
  const item = alice.locator("li.message", { hasText: "Written without a mouse" });
  assert.match(await item.textContent(), /^You: Written/);
  assert.match(await message(alice, "Twelve it is").textContent(), /^Bob/);
  const more = message(alice, "I bring the bread").locator(".more");
  assert.equal(await more.getAttribute("aria-label"), "Actions");
  assert.match(await more.evaluate((node) => document.getElementById(node.getAttribute("aria-describedby")).textContent), /^I bring the bread/);
  assert.equal(await message(alice, "I bring the bread").locator("b[title='@dave']").count(), 1);

  // Touch: no dots, a long press in place of them.
  const telephone = await windowOf("bob", TELEPHONE);
  await tapEntry(telephone, "Kitchen", message(telephone, "Written without a mouse"));
  assert.equal(await message(telephone, "I bring the bread").locator(".more").evaluate((node) => getComputedStyle(node).opacity), "0");
  await hold(telephone, message(telephone, "I bring the bread").locator(".bubble"));
  await shoot(telephone, "touch");
  await telephone.getByRole("menuitem", { name: "Heart" }).tap();
  await message(alice, "I bring the bread").locator(".reaction", { hasText: "❤️" }).waitFor();
  const context = telephone.locator("#context-text");
  await swipe(telephone, message(telephone, "I bring the bread").locator(".bubble"), 40);
  assert.equal(await context.isVisible(), false, "half a swipe is none");
  await swipe(telephone, message(telephone, "I bring the bread").locator(".bubble"), 100);
  await telephone.locator("#context-text", { hasText: "Reply to Dave: I bring the bread" }).waitFor();
  assert.equal(await message(telephone, "I bring the bread").evaluate((node) => node.style.translate), "");
  await telephone.getByRole("button", { name: "Cancel" }).tap();
  await fits(telephone, "a conversation by touch");
  await telephone.locator("#room-title").tap();
  await telephone.locator("#member-list li").first().waitFor();
  await fits(telephone, "the sheet by touch");
  await shoot(telephone, "sheet-touch");
  await telephone.getByRole("button", { name: "Close", exact: true }).tap();

  // A larger font of the browser.
  await alice.evaluate(() => { document.documentElement.style.fontSize = "200%"; });
  await fits(alice, "a font of 200 %");
  assert.equal(await alice.locator("#text").evaluate((node) => getComputedStyle(node).fontSize), "30px");
  await shoot(alice, "font-200");

  // Another language: its clock, and no words of it.
  const german = await windowOf("dave", { ...DESK, locale: "de-DE" });
  const american = await windowOf("dave", { ...DESK, locale: "en-US" });
  for (const page of [german, american]) await phoenix(page);
  assert.match(await german.locator("li.day").first().textContent(), /^February 4, 2025$/);
  assert.match(await german.locator("li.message time").first().textContent(), /^\d\d:\d\d$/);
  assert.match(await american.locator("li.message time").first().textContent(), /^\d{1,2}:\d\d [AP]M$/);
}

const scenes = { sheet, entries, pictures, writing, hands };

try {
  await scenes[scene]();
  check();
} catch (error) {
  console.error(notes());
  for (const page of windows) console.error(await page.locator("#list").innerText({ timeout: 5_000 }).catch(() => "no conversation"));
  for (const [index, page] of windows.entries()) await shoot(page, `${scene}-failed-${index}`);
  throw error;
} finally {
  await close();
}

// Looks at the chat page at the sizes of a telephone, a tablet and a desk, light and dark, with hard texts: nothing is wider than the
// screen or cut off, every control has a name, is large enough for a finger on a telephone, and every text has a contrast of at least 4.5 to
// what lies under it.
// Usage: node look.js BASE_URL CHROMIUM SCREENSHOT_FOLDER AGENT_TOKEN. Exit code 0: all of it held. The screenshots are to be looked at; `chat.png` is the
// one of the README. They want the fonts of fonts-noto-core and fonts-noto-color-emoji: others have no emoji in colour.

import assert from "node:assert/strict";
import { join } from "node:path";
import { apiOf, chooseAction, entry, message, openId, send, sendMany, stored } from "./chat.js";
import { launch, looker } from "./page.js";

const [base, executablePath, folder, agent] = process.argv.slice(2);
const { newContext, open, check, pictures, close } = await launch(base, executablePath);
const look = looker(folder);

const SIZES = { telephone: { width: 390, height: 844 }, tablet: { width: 820, height: 1180 }, laptop: { width: 1024, height: 768 }, desk: { width: 1440, height: 900 } };
const LONG = "A very long name of a group that nobody would ever choose, but somebody did, with many words in it";
const AGENT = "Emma who helps with orders and with returns, and with whatever else you ask her";
const CREATE = "mutation($input: CreateGroupConversationInput!) { createGroupConversation(input: $input) { conversation { id } } }";
const PIN = "mutation($input: PinMessageInput!) { pinMessage(input: $input) { message { id } } }";
const SILENCE = "mutation($input: SilenceParticipantInput!) { silenceParticipant(input: $input) { participant { id } } }";
const BLOCK = "mutation($input: BlockUserInput!) { blockUser(input: $input) { user { username } } }";

async function hardTexts() {
  const bob = apiOf(base, "bob");
  const create = async (name, usernames = ["alice"]) => (await bob(CREATE, { input: { name, usernames } })).createGroupConversation.conversation.id;
  for (let count = 1; count <= 40; count += 1) await create(`Group ${count}`);
  const rightToLeft = await create("مجموعة الحساء");
  await sendMany(base, "bob", rightToLeft, [{ body: "مرحبا @alice، الحساء جاهز", mentionedUsernames: ["alice"] }, "🎉🍲"]);
  const silenced = await create("Silenced");
  await sendMany(base, "bob", silenced, ["🍲", "Write 4,000 characters. ".repeat(167), "Run `npm ci`, then:\n```js\nserve(await cook({ beans: 200, water: 1.5, salt: \"a pinch\", time: 45 * 60_000, lid: true }));\n```",
    { body: "The soup", attachments: [{ url: "https://example.org/bowl.png", mimeType: "image/png", name: "bowl.png", width: 1600, height: 1200 }] }]);
  await bob(SILENCE, { input: { conversationId: silenced, username: "alice" } });
  const id = await create(LONG, ["alice", "carol", "dave", "agent:helper"]);
  const ids = await sendMany(base, "bob", id, [
    "x".repeat(2_000), "word ".repeat(80), "مرحبا، الحساء جاهز", "🎉🍲", "Soup: https://example.org/soup",
    { body: "Hello @alice, and @everyone: مرحبا", mentionedUsernames: ["alice"], mentionsEveryone: true },
    { body: "", attachments: [{ url: "https://example.org/a.png", mimeType: "image/png", name: "a picture with a very long name that goes on and on and on.png" }] },
  ]);
  for (const messageId of ids.slice(0, 6)) await bob(PIN, { input: { messageId } });
  await apiOf(base, "agent:helper", agent)("mutation($input: UpdateProfileInput!) { updateProfile(input: $input) { user { id } } }", { input: { displayName: AGENT } });
  const { startDirectConversation } = await apiOf(base, "alice")("mutation { startDirectConversation(input: { username: \"agent:helper\" }) { conversation { id } } }");
  for (const conversationId of [id, startDirectConversation.conversation.id]) await sendMany(base, "agent:helper", conversationId, ["How can I help?"], agent);
  await sendMany(base, "dave", id, ["Nobody should read this."]);
  await apiOf(base, "alice")(BLOCK, { input: { username: "dave" } });
  await sendMany(base, "alice", id, ["Well, @bob."]);
}

/** A day in the kitchen, as the README shows it. */
async function readme() {
  const [bob, carol, dave] = ["bob", "carol", "dave"].map((name) => apiOf(base, name));
  const context = await newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB" });
  const page = await open(context, "/demo?as=alice");
  await entry(page, "Kitchen").click();
  await message(page, "I bring the bread").waitFor();
  const id = await openId(page);
  const ids = await page.locator("li.message").evaluateAll((all) => all.map((node) => node.dataset.id));
  await carol(PIN, { input: { messageId: ids[1] } });
  for (const api of [bob, carol]) await api("mutation($input: AddReactionInput!) { addReaction(input: $input) { message { id } } }", { input: { messageId: ids[5], emoji: "🎉" } });
  await sendMany(base, "carol", id, [{ body: "And coffee after?", replyToId: ids[4] }]);
  await send(page, "Always. @dave, black for you?");
  await stored(page, "Always.").waitFor();
  await sendMany(base, "dave", id, [{ body: "With two spoons of sugar, @alice", mentionedUsernames: ["alice"] }]);
  await message(page, "two spoons").waitFor();
  for (const name of ["bob", "carol", "dave"]) await apiOf(base, name)("mutation($input: MarkReadInput!) { markRead(input: $input) { __typename } }", { input: { conversationId: id, messageId: await page.locator("li.message").last().getAttribute("data-id") } });
  await page.locator(".tick[data-status=READ]").last().waitFor();
  // A sign of typing ends by itself.
  const typing = setInterval(() => bob("mutation($input: SetTypingInput!) { setTyping(input: $input) { __typename } }", { input: { conversationId: id, typing: true } }).catch(() => {}), 500);
  await page.locator("#typing", { hasText: "Bob is typing" }).waitFor();
  await page.screenshot({ path: join(folder, "chat.png") });
  clearInterval(typing);
  await context.close();
}

/** The focus shows on each of the first stops of Tab. */
async function focusShows(page, name) {
  for (let stop = 0; stop < 12; stop += 1) {
    await page.keyboard.press("Tab");
    const outline = await page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return document.activeElement === document.body || document.activeElement.id === "scroller" || (outlineStyle !== "none" && outlineWidth !== "0px")
        ? "" : document.activeElement.outerHTML.slice(0, 90);
    });
    assert.equal(outline, "", `${name}: the focus shows`);
  }
}

try {
  await readme();
  await hardTexts();
  for (const [size, viewport] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"]) {
      const hands = size === "telephone" ? { hasTouch: true, isMobile: true } : {};
      const context = await newContext({ viewport, colorScheme, ...hands });
      const page = await open(context, "/demo");
      const name = (what) => `${size}-${colorScheme}-${what}`;
      await look(page, name("door"));
      await page.getByRole("button", { name: "alice" }).click();
      await entry(page, "Group 40").waitFor();
      await look(page, name("inbox"));
      await entry(page, "Group 40").click({ button: "right" });
      await look(page, name("entry-menu"));
      await page.keyboard.press("Escape");
      await page.locator("#search").fill("hello");
      await page.locator("#results a").first().waitFor();
      await look(page, name("search"));
      await page.locator("#search").fill("");
      await page.locator("#me").click();
      await look(page, name("profile"));
      await page.keyboard.press("Escape");
      await page.locator("#new").click();
      await page.locator("#names").fill("bob, zelda");
      await look(page, name("new"));
      await page.keyboard.press("Escape");
      await entry(page, "Emma").click();
      await message(page, "How can I help?").waitFor();
      await look(page, name("agent"));
      if (size === "telephone") await page.locator("#back").click();
      await entry(page, "Silenced").click();
      await page.locator("#closed").waitFor();
      await look(page, name("silenced"));
      if (size === "telephone") await page.locator("#back").click();
      await entry(page, "A very long name").click();
      await message(page, "Well, @bob.").waitFor();
      await look(page, name("room"));
      await page.locator("#pins").click();
      await page.locator("[data-was-found]").first().waitFor();
      await look(page, name("jump"));
      await page.locator("#text").pressSequentially("@");
      await page.getByRole("option").first().waitFor();
      await look(page, name("picker"));
      await page.locator("#text").fill("");
      await page.getByRole("button", { name: "Actions for this conversation" }).click();
      await look(page, name("menu"));
      await page.keyboard.press("Escape");
      await page.locator("#room-title").click();
      await page.locator("#member-list li").nth(3).waitFor();
      assert.match(await page.locator("#member-list").ariaSnapshot(), /\bYou\b/, "a screen reader says words, not AliceYou");
      await look(page, name("sheet"));
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Attach by address" }).click();
      await look(page, name("attach"));
      await page.keyboard.press("Escape");
      await chooseAction(page, "Soup: https://example.org", "Report…");
      await look(page, name("report"));
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("button", { name: "Search in this conversation" }).click();
      await page.getByRole("button", { name: "Images" }).click();
      await page.locator("#find-list a").first().waitFor();
      await look(page, name("gallery"));
      await page.keyboard.press("Escape");
      if (size !== "telephone") {
        await page.getByRole("button", { name: "Blocked (1)" }).click();
        await page.locator("#blocked-list li").first().waitFor();
        await look(page, name("blocked"));
        await page.getByRole("button", { name: "Close", exact: true }).click();
        await focusShows(page, name("focus"));
      }
      await context.close();
    }
  }
  assert.ok(pictures.length, "pictures are fetched");
  check();
} finally {
  await close();
}

// Drives the GraphiQL page as people do, in a real browser, with every host but the server's closed.
// Usage: node graphiql.js BASE_URL CHROMIUM SCREENSHOT_FOLDER SERVICE_TOKEN. Exit code 0: all of it held.

import assert from "node:assert/strict";
import { join } from "node:path";
import { sendMany } from "./chat.js";
import { checked, fits, launch, paleTexts } from "./page.js";

const [base, executablePath, folder, serviceToken] = process.argv.slice(2);
const { newContext, open, check, close } = await launch(base, executablePath);

/** Characters that a line of the editor shows on a laptop. */
const LINE_MOST = 60;

/** Element of CodeMirror, which holds the whole text. The document shows only the visible lines. */
const RESULT = ".result-window .CodeMirror";
const VARIABLES = ".graphiql-editor-tool .CodeMirror";
const textOf = (page, editor) => page.evaluate((selector) => document.querySelector(selector)?.CodeMirror.getValue() ?? "", editor);
const waitForResult = (page, part) =>
  page.waitForFunction(([selector, text]) => document.querySelector(selector)?.CodeMirror.getValue().includes(text), [RESULT, part]);

/** GraphiQL reads a tab's operation a moment after showing it. */
async function toTab(page, name) {
  await page.locator(".graphiql-tabs").getByText(name, { exact: true }).click();
  await page.waitForFunction((own) => document.querySelector(".graphiql-query-editor .CodeMirror").CodeMirror.operationName === own, name);
}

async function setVariables(page, change) {
  const variables = JSON.parse(await textOf(page, VARIABLES));
  change(variables);
  await page.evaluate(([selector, text]) => document.querySelector(selector).CodeMirror.setValue(text), [VARIABLES, JSON.stringify(variables)]);
}

/** Puts headers into the tab, as the comment of the tab shows them. */
async function setHeaders(page, headers) {
  await page.getByRole("button", { name: "Headers", exact: true }).click();
  const editor = page.locator(".graphiql-editor-tool .CodeMirror:visible");
  await editor.evaluate((element, text) => element.CodeMirror.setValue(text), JSON.stringify(headers));
}

const execute = (page) => page.locator(".graphiql-execute-button").click();

/** Runs the subscription of this name, until the server has answered. */
async function listen(page, name) {
  await toTab(page, name);
  await execute(page);
  await page.locator("#socket[data-state=connected]", { hasText: "live: on" }).waitFor();
}

/** Runs the query or mutation of this name, which is in the editor, and gives its answer. GraphiQL asks things of its own meanwhile. */
async function run(page, name) {
  const answered = page.waitForResponse((response) =>
    new URL(response.url()).pathname === "/graphql" && response.request().postDataJSON()?.operationName === name);
  await execute(page);
  const answer = await (await answered).json();
  assert.equal(answer.errors, undefined, JSON.stringify(answer.errors));
  return answer.data;
}

try {
  const context = await newContext({ viewport: { width: 1440, height: 900 } });

  const alice = await open(context, "/");
  assert.equal(await alice.locator("#person").inputValue(), "alice", "the first of the people");
  await waitForResult(alice, "Alice & Bob");
  const inbox = await run(alice, "Inbox");
  assert.deepEqual(inbox.inbox.edges.map(({ node }) => node.conversation.name), ["Kitchen", null, "Alice & Bob", "Project Phoenix"]);
  assert.deepEqual(inbox.inbox.edges.map(({ node }) => node.unreadCount), [0, 0, 1, 3]);
  await alice.screenshot({ path: join(folder, "inbox.png") });

  // GraphiQL writes its tabs down by and by.
  await alice.waitForFunction(() => localStorage.getItem("wideroom:alice:graphiql:tabState")?.includes("Mentions"));
  const tabs = await alice.evaluate(() => JSON.parse(localStorage.getItem("wideroom:alice:graphiql:tabState")).tabs);
  assert.equal(tabs.length, 11);
  for (const line of tabs.flatMap(({ query }) => query.split("\n"))) assert.ok(line.length <= LINE_MOST, line);
  await toTab(alice, "Conversation");
  assert.match(await textOf(alice, ".graphiql-query-editor .CodeMirror"), /^# The conversation is Kitchen\.$/m);
  const newest = (await run(alice, "Conversation")).conversation.messages;
  assert.equal(newest.edges.length, 5);
  await setVariables(alice, (variables) => { variables.after = newest.pageInfo.endCursor; });
  const older = (await run(alice, "Conversation")).conversation.messages;
  assert.equal(older.edges.length, 2, "the sample has seven messages here");

  const bob = await open(context, "/?as=bob");
  // The page runs its first query by itself, and its button would stop that one.
  await waitForResult(bob, "Alice & Bob");
  await listen(bob, "NewMessages");
  // Two messages are replayed, and both are shown.
  for (const { node } of newest.edges.slice(0, 2)) await waitForResult(bob, node.body);

  const body = `From one window to the other, ${Date.now()}`;
  await toTab(alice, "Send");
  let conversationId;
  await setVariables(alice, (variables) => { ({ conversationId } = variables.input); variables.input.body = body; });
  const sent = (await run(alice, "Send")).sendMessage.messageEdge.node;
  assert.equal((await run(alice, "Send")).sendMessage.messageEdge.node.id, sent.id, "a retry with the same key is the same message");
  await waitForResult(bob, body);
  await bob.screenshot({ path: join(folder, "subscription.png") });

  await toTab(alice, "MarkRead");
  assert.equal((await run(alice, "MarkRead")).markRead.inboxEntry.unreadCount, 0);

  await toTab(alice, "Search");
  assert.ok((await run(alice, "Search")).searchMessages.edges.length > 0, "it finds a word of the conversation");
  await sendMany(base, "bob", conversationId, [{ body: "Soup, @alice?", mentionedUsernames: ["alice"] }]);
  await toTab(alice, "Mentions");
  const mentions = await run(alice, "Mentions");
  assert.deepEqual([mentions.searchMessages, mentions.inbox].map(({ edges }) => edges.length), [2, 1], "one of the sample, which is read, and this one");

  // Both streams of an app; bob's tells of what alice sends as a service.
  await listen(bob, "InboxUpdated");
  await waitForResult(bob, "isLive");
  const dave = await open(context, "/?as=dave");
  await waitForResult(dave, "Project Phoenix");
  await listen(dave, "ConversationEvents");
  await waitForResult(dave, "\"isLive\": true");

  // A message while it is written, in the window of another one.
  await listen(dave, "Live");
  await waitForResult(dave, "\"liveMessage\": null");
  await toTab(alice, "WriteLive");
  const { nextPosition, liveMessage } = (await run(alice, "WriteLive")).writeLiveMessage;
  assert.deepEqual([liveMessage.body, nextPosition], ["Once upon a time ", 17]);
  await waitForResult(dave, "\"text\": \"Once upon a time \"");
  await setVariables(alice, ({ input }) => { Object.assign(input, { position: nextPosition, text: "there was soup." }); });
  await run(alice, "WriteLive");
  await waitForResult(dave, "\"text\": \"there was soup.\"");
  await dave.screenshot({ path: join(folder, "live.png") });

  await toTab(alice, "Send");
  await setHeaders(alice, { Authorization: `Bearer ${serviceToken}`, "Wideroom-As": "alice" });
  await setVariables(alice, (variables) => { variables.input = { conversationId, body: "Your order was shipped" }; });
  const shipped = (await run(alice, "Send")).sendMessage.messageEdge.node;
  assert.deepEqual([shipped.sender.username, shipped.body], ["alice", "Your order was shipped"], "the service acts as alice");
  await waitForResult(bob, shipped.body);
  await alice.screenshot({ path: join(folder, "service.png") });

  await bob.locator("#person").selectOption("carol");
  await bob.locator("#socket[data-state=idle]", { hasText: "live: off" }).waitFor();
  await waitForResult(bob, "Project Phoenix");
  assert.ok(!(await textOf(bob, RESULT)).includes("Alice & Bob"), "carol sees her own inbox only");
  await alice.reload();
  assert.equal(await alice.locator("#person").inputValue(), "alice", "a window keeps its person");

  for (const [name, width, height] of [["wide", 1440, 900], ["tablet", 1024, 768], ["narrow", 390, 844]]) {
    for (const colorScheme of ["light", "dark"]) {
      const context = await newContext({ viewport: { width, height }, colorScheme, hasTouch: name === "narrow" });
      const page = await open(context, "/");
      await waitForResult(page, "Alice & Bob");
      const look = (what) => checked(page, join(folder, `${name}-${colorScheme}-${what}.png`), async () => {
        await fits(page, name);
        assert.deepEqual(await page.evaluate(paleTexts), [], `${name}, ${colorScheme}, ${what}: contrast`);
      });
      await look("inbox");
      await toTab(page, "Send");
      await look("send");
      await page.evaluate((selector) => {
        const { CodeMirror: editor } = document.querySelector(selector);
        editor.setValue("query Faulty { nothing inbox {  } }");
        editor.setCursor(0, 31);
        editor.focus();
      }, ".graphiql-query-editor .CodeMirror");
      // What the page learns meanwhile closes them.
      const hints = page.locator(".CodeMirror-hint").first();
      for (let tries = 0; tries < 20 && !(await hints.isVisible()); tries += 1) {
        await page.keyboard.press("Control+Space");
        await hints.waitFor({ timeout: 3_000 }).catch(() => {});
      }
      await hints.waitFor();
      await look("hints");
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: /documentation/i }).click();
      await page.locator(".graphiql-doc-explorer", { hasText: "Start here." }).waitFor();
      await look("docs");
      await context.close();
    }
  }

  check();
} finally {
  await close();
}

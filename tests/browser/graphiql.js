// Drives the GraphiQL page as people do, in a real browser, with every host but the server's closed.
// Usage: node graphiql.js BASE_URL CHROMIUM SCREENSHOT_FOLDER SERVICE_TOKEN. Exit code 0: all of it held.

import assert from "node:assert/strict";
import { join } from "node:path";
import { fits, launch } from "./page.js";

const [base, executablePath, folder, serviceToken] = process.argv.slice(2);
const { newContext, open, check, close } = await launch(base, executablePath);

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

/** Fills the token into the headers that the tab holds. */
async function setToken(page, token) {
  await page.getByRole("button", { name: "Headers", exact: true }).click();
  await page.evaluate((value) => {
    const editor = [...document.querySelectorAll(".graphiql-editor-tool .CodeMirror")]
      .map((element) => element.CodeMirror).find((one) => one.getValue().includes("Wideroom-As"));
    editor.setValue(editor.getValue().replace("PASTE-THE-TOKEN", value));
  }, token);
}

const execute = (page) => page.locator(".graphiql-execute-button").click();

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
  assert.deepEqual(inbox.inbox.edges.map(({ node }) => node.conversation.name), ["Kitchen", "Alice & Bob", "Project Phoenix"]);
  assert.deepEqual(inbox.inbox.edges.map(({ node }) => node.unreadCount), [0, 1, 3]);
  await alice.screenshot({ path: join(folder, "inbox.png") });

  await toTab(alice, "Conversation");
  const newest = (await run(alice, "Conversation")).conversation.messages;
  assert.equal(newest.edges.length, 5);
  await setVariables(alice, (variables) => { variables.after = newest.pageInfo.endCursor; });
  const older = (await run(alice, "Conversation")).conversation.messages;
  assert.equal(older.edges.length, 2, "the sample has seven messages here");

  const bob = await open(context, "/?as=bob");
  // The page runs its first query by itself, and its button would stop that one.
  await waitForResult(bob, "Alice & Bob");
  await toTab(bob, "NewMessages");
  await execute(bob);
  await bob.locator("#socket[data-state=connected]").waitFor();
  await waitForResult(bob, newest.edges[0].node.body);

  const body = `From one window to the other, ${Date.now()}`;
  await toTab(alice, "Send");
  await setVariables(alice, (variables) => { variables.input.body = body; });
  const sent = (await run(alice, "Send")).sendMessage.messageEdge.node;
  assert.equal((await run(alice, "Send")).sendMessage.messageEdge.node.id, sent.id, "a retry with the same key is the same message");
  await waitForResult(bob, body);
  await bob.screenshot({ path: join(folder, "subscription.png") });

  await toTab(alice, "MarkRead");
  assert.equal((await run(alice, "MarkRead")).markRead.inboxEntry.unreadCount, 0);

  await toTab(alice, "SendAsService");
  await setToken(alice, serviceToken);
  const shipped = (await run(alice, "SendAsService")).sendMessage.messageEdge.node;
  assert.deepEqual([shipped.sender.username, shipped.body], ["alice", "Your order was shipped"], "the service acts as alice");
  await waitForResult(bob, shipped.body);
  await alice.screenshot({ path: join(folder, "service.png") });

  await bob.locator("#person").selectOption("carol");
  await bob.locator("#socket[data-state=idle]").waitFor();
  await waitForResult(bob, "Project Phoenix");
  assert.ok(!(await textOf(bob, RESULT)).includes("Alice & Bob"), "carol sees her own inbox only");
  await alice.reload();
  assert.equal(await alice.locator("#person").inputValue(), "alice", "a window keeps its person");

  for (const [name, width, height] of [["wide", 1440, 900], ["narrow", 390, 844]]) {
    for (const colorScheme of ["light", "dark"]) {
      const look = await newContext({ viewport: { width, height }, colorScheme, hasTouch: name === "narrow" });
      const page = await open(look, "/");
      await waitForResult(page, "Alice & Bob");
      await fits(page, name);
      await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
      await look.close();
    }
  }

  check();
} finally {
  await close();
}

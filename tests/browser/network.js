// Two windows of a chat that lose nothing and show nothing twice: the server is killed and started again, and a proxy before it cuts and
// swallows. Usage: node network.js BASE_URL CHROMIUM SCREENSHOT_FOLDER PAGE [APP_FOLDER]. PAGE is `demo`, or `app`: the React app, which is
// served by this driver from its folder. It writes "kill", "start" and "token NAME", and reads a line when that is done.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import net from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { apiOf } from "./chat.js";
import { browserFor } from "./page.js";

const [base, executablePath, folder, kind, appFolder] = process.argv.slice(2);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const MESSAGES = 120;
const ROUNDS = 5;
const GROUP = "Project Phoenix";

async function server(command) {
  console.log(command);
  return (await answers.next()).value;
}

/** A proxy whose connections can be cut, or swallow everything. */
async function proxyOf({ hostname, port }) {
  const open = new Set();
  let isSwallowing = false;
  const listener = net.createServer((near) => {
    const far = net.connect(port, hostname);
    for (const [socket, other] of [[near, far], [far, near]]) {
      open.add(socket);
      socket.on("error", () => {}).on("close", () => { other.destroy(); open.delete(socket); });
      socket.on("data", (bytes) => isSwallowing || other.write(bytes));
    }
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${listener.address().port}/`,
    cut: () => open.forEach((socket) => socket.destroy()),
    swallow: (isOn) => { isSwallowing = isOn; },
  };
}

async function appServer() {
  const types = { ".html": "text/html", ".js": "text/javascript" };
  const listener = createServer(async ({ url }, response) => {
    const name = new URL(url, "http://app").pathname.slice(1) || "index.html";
    const body = await readFile(join(appFolder, name)).catch(() => null);
    response.writeHead(body ? 200 : 404, { "content-type": types[name.slice(name.lastIndexOf("."))] ?? "text/plain" }).end(body);
  });
  // The origin that the server lists.
  await new Promise((resolve) => listener.listen(Number(new URL(process.env.APP_ORIGIN).port), "127.0.0.1", resolve));
  return listener;
}

const proxy = await proxyOf(new URL(base));
const app = kind === "app" ? await appServer() : null;
const browser = await browserFor("127.0.0.1", executablePath);

/** The page of a user. Each token lives for 20 s. The first one comes after `ready`. */
async function open(username, ready = Promise.resolve()) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 760 } });
  await context.route("**/demo/token", async (route) => {
    const headers = { "access-control-allow-origin": "*", "access-control-allow-headers": "*" };
    if (route.request().method() === "OPTIONS") return route.fulfill({ status: 204, headers });
    await ready;
    return route.fulfill({ json: { token: await tokenOf(username) }, headers });
  });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (error) => problems.push(error.message));
  await page.goto(app ? `${process.env.APP_ORIGIN}/?as=${username}&server=${proxy.url}` : `${proxy.url}demo?as=${username}`);
  return page;
}

const problems = [];
/** One question to the other side at a time. */
let asking = Promise.resolve();
const tokenOf = (username) => {
  const token = asking.then(() => server(`token ${username}`));
  asking = token;
  return token;
};
const command = (words) => { asking = asking.then(() => server(words)); return asking; };

/** How each of the two pages is used. */
const page = kind === "app"
  ? {
    enter: (window) => window.locator("nav button", { hasText: GROUP }).click(),
    field: (window) => window.getByLabel("Message", { exact: true }),
    bodies: (window) => window.locator("li[data-state] .body").allTextContents(),
    isQuiet: (window) => window.evaluate(() => !document.querySelector("li[data-state=waiting], li[data-state=sending]")),
    older: async (window) => { await window.getByRole("button", { name: "Older" }).click({ timeout: 500 }).catch(() => {}); },
  }
  : {
    enter: (window) => window.locator(".entry", { hasText: GROUP }).click(),
    field: (window) => window.locator("#text"),
    bodies: (window) => window.locator("li.message .body").allTextContents(),
    isQuiet: (window) => window.evaluate(() => !document.querySelector("li.message.waiting")),
    older: (window) => window.locator("#scroller").evaluate((node) => { node.scrollTop = 0; }),
  };

async function write(window, name, from, to) {
  for (let number = from; number < to; number += 1) {
    const field = page.field(window);
    await field.fill(`${name} ${number}`);
    await field.press("Enter");
  }
}

async function until(what, holds) {
  for (const deadline = Date.now() + 120_000; !(await holds()); ) {
    assert.ok(Date.now() < deadline, `in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Of the group: alice owns it, bob is a member. */
async function setSlowMode(slowModeSeconds) {
  const alice = apiOf(base, "alice");
  const { inbox } = await alice("{ inbox(first: 50) { edges { node { conversation { id name } } } } }");
  const { id } = inbox.edges.map(({ node }) => node.conversation).find(({ name }) => name === GROUP);
  await alice("mutation($input: UpdateConversationInput!) { updateConversation(input: $input) { conversation { id } } }", { input: { conversationId: id, slowModeSeconds } });
}

const names = ["alice", "bob"];
const windows = [];
try {
  // The React app comes from elsewhere: it may be there before its server. The demo is, if its server dies before the first token.
  if (app) await command("kill");
  let release;
  windows.push(await open(names[0], new Promise((resolve) => { release = resolve; })));
  if (!app) await command("kill");
  release();
  await windows[0].getByText("Offline").first().waitFor();
  await command("start");
  windows.push(await open(names[1]));
  for (const window of windows) await page.enter(window);
  for (const window of windows) await until("the history", async () => (await page.bodies(window)).length > 0);

  for (let round = 0; round < ROUNDS; round += 1) {
    const part = MESSAGES / ROUNDS;
    const isSlow = round === ROUNDS - 1;
    if (isSlow) await setSlowMode(15);
    const writing = windows.map((window, at) => write(window, names[at], round * part, (round + 1) * part));
    if (round < 3) {
      await command("kill");
      await command("start");
    } else if (round === 3) {
      proxy.cut();
      proxy.swallow(true);
      setTimeout(() => proxy.swallow(false), 3_000);
    }
    await Promise.all(writing);
    // In slow mode a member's messages wait for each other.
    if (isSlow) {
      await until("some wait", async () => !(await page.isQuiet(windows[1])));
      await setSlowMode(0);
    }
    // Unsent messages outlive the page, in the middle of it all.
    if (round === 2) {
      await until("its server", () => fetch(base).then(() => true, () => false));
      await windows[1].reload();
      if (app) await page.enter(windows[1]);
      await page.field(windows[1]).waitFor();
    }
  }
  for (const window of windows) await until("all is sent", () => page.isQuiet(window));

  const expected = (name) => Array.from({ length: MESSAGES }, (_, number) => `${name} ${number}`);
  const isOurs = (body) => /^(alice|bob) \d+$/.test(body);
  const shown = [];
  for (const window of windows) {
    await until("all are shown", async () => {
      await page.older(window);
      return (await page.bodies(window)).filter(isOurs).length >= 2 * MESSAGES;
    });
    shown.push((await page.bodies(window)).filter(isOurs));
  }
  assert.deepEqual(shown[0], shown[1], "both windows show the same");
  for (const name of names) assert.deepEqual(shown[0].filter((body) => body.startsWith(name)), expected(name), "once each, in the order written");

  const { inbox } = await apiOf(base, "alice")("{ inbox(first: 50) { edges { node { conversation { id name messageCount } } } } }");
  const { conversation } = inbox.edges.map(({ node }) => node).find((node) => node.conversation.name === GROUP);
  const stored = [];
  for (let after = null, isMore = true; isMore; ) {
    const { conversation: { messages } } = await apiOf(base, "alice")(
      "query($id: ID!, $after: String) { conversation(id: $id) { messages(first: 100, after: $after) { edges { node { body } } pageInfo { hasNextPage endCursor } } } }",
      { id: conversation.id, after });
    stored.unshift(...messages.edges.map(({ node }) => node.body).reverse());
    [isMore, after] = [messages.pageInfo.hasNextPage, messages.pageInfo.endCursor];
  }
  assert.deepEqual(shown[0], stored.filter(isOurs), "what is stored");
  assert.deepEqual(problems, [], "no error in a page");
} catch (error) {
  for (const [at, window] of windows.entries()) await window.screenshot({ path: join(folder, `network-${kind}-${at}.png`) });
  throw error;
} finally {
  await browser.close();
  app?.close();
}
process.exit(0);

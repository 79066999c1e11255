// Steps that the drivers of the chat page share.

import assert from "node:assert/strict";

export const entry = (page, name) => page.locator(".entry", { has: page.locator(".entry-name", { hasText: name }) });
export const message = (page, text) => page.locator("li.message", { hasText: text }).last();
export const stored = (page, text) => page.locator("li.message:not(.waiting)", { hasText: text });
export const openId = (page) => page.evaluate(() => decodeURIComponent(location.hash.slice(1)));

/** Taps an entry. A busy machine may hold what is meant as a tap: the menu that opens is closed, and the entry tapped again. */
export async function tapEntry(page, name, inside) {
  for (;;) {
    await entry(page, name).tap();
    await inside.or(page.locator(".menu")).first().waitFor();
    if (await inside.isVisible()) return;
    await page.keyboard.press("Escape");
  }
}

export async function send(page, text) {
  await page.locator("#text").fill(text);
  await page.locator("#text").press("Enter");
}

export async function chooseAction(page, text, ...names) {
  // What one has just sent is with the others before one's own page has the answer, and its menu is another one until then.
  await stored(page, text).last().waitFor();
  await message(page, text).hover();
  await message(page, text).locator(".more").click();
  for (const name of names) await page.getByRole("menuitem", { name, exact: true }).click();
}

/** Fields of an input that make a second request one and the same. */
const REPEATED = ["idempotencyKey", "key", "liveMessageId"];

/** The API of a user, past the page. The users of the demo need no token. */
export function apiOf(base, username, token = null) {
  const post = async (path, body, token) => (await fetch(new URL(path, base), {
    method: "POST",
    headers: { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) },
    body: JSON.stringify(body),
  })).json();
  return async (query, variables = {}) => {
    const isSafe = ({ extensions }) => extensions?.outcome === "NOT_DONE"
      || (extensions?.outcome === "UNKNOWN" && REPEATED.some((name) => variables.input?.[name]));
    token ??= (await post("demo/token", { username })).token;
    for (let tries = 1; ; tries += 1) {
      const answer = await post("graphql", { query, variables }, token);
      // As every client does it: a busy machine refuses what it did not do, or does not know yet whether it was done.
      if (tries < 20 && answer.errors?.every(isSafe)) continue;
      assert.equal(answer.errors, undefined, JSON.stringify(answer.errors));
      return answer.data;
    }
  };
}

const SEND = "mutation($input: SendMessageInput!) { sendMessage(input: $input) { messageEdge { node { id } } } }";

/** Bodies, or inputs with more fields. Returns the ids. */
export async function sendMany(base, username, conversationId, messages, token = null) {
  const api = apiOf(base, username, token);
  const ids = [];
  for (const one of messages) {
    const input = { conversationId, idempotencyKey: crypto.randomUUID(), ...(typeof one === "string" ? { body: one } : one) };
    ids.push((await api(SEND, { input })).sendMessage.messageEdge.node.id);
  }
  return ids;
}

/** Ends once a user has read all of a conversation. Its page marks a message as read some time after it has shown it. */
export async function hasReadAll(base, username, conversationId) {
  const api = apiOf(base, username);
  const unread = async () => (await api("query($id: ID!) { node(id: $id) { ... on Conversation { inboxEntry { unreadCount } } } }", { id: conversationId }))
    .node.inboxEntry.unreadCount;
  while (await unread()) await new Promise((done) => setTimeout(done, 100));
}

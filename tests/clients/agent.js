// Live message of an agent: a text that the participants read while the agent writes it, and that becomes a message at the end. Copy this
// file: it needs Node 20 and no package.
//
//   const ids = await writeLive({ urls, token, conversationId, key: `answer-${number}`, replyToId }, async function* (live) {
//     live.setStatus("thinking");
//     for await (const part of model.stream(prompt, { signal: live.signal })) yield part.text;
//   });
//
// - `urls` are addresses of servers of one deployment, such as `https://chat.example.org/graphql`. After a failure the next one is tried.
// - `token()` returns the agent's token, or a promise of it, for each request.
// - `key` names the answer: 1 to 60 printable ASCII characters. A process that takes over uses the same key, and one message is sent.
// - `live.signal` aborts when a user asks to stop (the text so far is sent), and when another process has taken over (nothing is sent).
// - A producer that throws: the participants have read its text, so the text so far is sent; without text the live message is discarded.
//   Then the error is thrown.
// - A text of more than 16 KiB becomes several messages, with the keys `key`, `key.2`, `key.3` …
// - The result has the ids of the messages that this process sent or completed.

import { setTimeout as wait } from "node:timers/promises";

const BODY_MAX = 16 * 1024; // bytes of a message
const PIECE_MAX = 4 * 1024; // bytes of a write
const PENDING_MAX = 4 * BODY_MAX; // characters that wait to be written; the producer pauses beyond
const SILENCE_MAX = 20_000; // ms without a write; after 60 s the server would send what there is
const RETRY_FOR = 10 * 60_000; // ms

const LIVE = "id state body stopRequestedBy { username } message { id body }";
const WRITE = `mutation($input: WriteLiveMessageInput!) { done: writeLiveMessage(input: $input) { nextPosition liveMessage { ${LIVE} } } }`;
const FIND = `query($id: ID!) { done: node(id: $id) { ... on LiveMessage { ${LIVE} } } }`;
const SEND = "mutation($input: SendMessageInput!) { done: sendMessage(input: $input) { messageEdge { node { id } } } }";
const EDIT = "mutation($input: EditMessageInput!) { done: editMessage(input: $input) { message { id } } }";
const DISCARD = "mutation($input: DiscardLiveMessageInput!) { done: discardLiveMessage(input: $input) { liveMessage { id } } }";

export async function writeLive({ urls, token, conversationId, key, replyToId }, produce) {
  const request = requester(urls, token);
  const source = { text: "", steps: undefined, changes: {}, isDone: false, error: undefined, stop: new AbortController(), wake() {} };
  gather(source, produce);
  const ids = [];
  for (let number = 1; number === 1 || !source.isDone || source.text !== ""; number += 1) {
    const named = number === 1 ? { conversationId, key, replyToId } : { conversationId, key: `${key}.${number}` };
    const id = await writeOne(request, source, named);
    if (id) ids.push(id);
  }
  if (source.error) throw source.error;
  return ids;
}

/** Takes the text from the producer. It never rejects: the error waits for the end. */
async function gather(source, produce) {
  const set = (changes) => {
    Object.assign(source.changes, changes);
    source.wake();
  };
  const live = {
    signal: source.stop.signal,
    setStatus: (status) => set({ status }), // null clears it
    setSteps: (steps) => set({ steps: (source.steps = steps) }), // all of them, each a MessageStepInput
  };
  let half = ""; // first half of a character whose second half comes with the next part
  try {
    for await (const part of produce(live)) {
      if (source.isDone) return;
      const text = half + part;
      half = /[\uD800-\uDBFF]$/.exec(text)?.[0] ?? "";
      source.text += text.slice(0, text.length - half.length).toWellFormed();
      source.wake();
      while (source.text.length > PENDING_MAX && !source.isDone) await wait(50);
    }
  } catch (error) {
    if (!source.isDone) source.error = error;
  }
  source.isDone = true;
  source.wake();
}

/** Writes one live message and sends it. Returns the id of the message, if there is one. */
async function writeOne(request, source, { conversationId, key, replyToId }) {
  const writer = crypto.randomUUID();
  let [position, live, sent, isSuperseded] = [0, null, null, false];
  /** Handles CONFLICT: another process has taken over, or the server has sent a beginning of this text after a silence. */
  const settle = async (error, text) => {
    if (error.code !== "CONFLICT") throw error;
    sent = await sentBeginning(request, live, text);
    if (sent) return;
    isSuperseded = true;
    source.text = "";
    end(source, "another process has taken over");
  };
  try {
    while (!source.isDone && Buffer.byteLength(source.text) <= BODY_MAX) {
      const hasNews = Buffer.byteLength(source.text) > position || Object.keys(source.changes).length > 0;
      if (sent || !hasNews) await changed(source, live ? SILENCE_MAX : 100);
      if (sent || source.isDone) continue;
      const input = { conversationId, key, writer, position, text: cut(source.text, position, PIECE_MAX), ...source.changes };
      if (position === 0) input.replyToId = replyToId;
      source.changes = {};
      try {
        ({ nextPosition: position, liveMessage: live } = await request(WRITE, { input }));
        if (live.stopRequestedBy) end(source, `${live.stopRequestedBy.username} asked to stop`);
      } catch (error) {
        await settle(error, source.text);
      }
    }
    if (isSuperseded) return null;
    const body = bodyOf(source.text);
    source.text = source.text.slice(body.length);
    if (!sent && body.trim() === "") {
      if (live) await request(DISCARD, { input: { liveMessageId: live.id } });
      return null;
    }
    const isWhole = !source.error && !source.stop.signal.aborted;
    const steps = source.steps?.map((step) => (isWhole || step.state === "DONE" ? step : { ...step, state: "FAILED" }));
    source.steps = undefined;
    if (!sent) {
      const input = { conversationId, body, idempotencyKey: key, replyToId, ...(steps && { steps }) };
      const done = await request(SEND, { input }).catch((error) => settle(error, body));
      if (done) return done.messageEdge.node.id;
    }
    if (sent && sent.body !== body) await request(EDIT, { input: { messageId: sent.id, body } });
    return sent?.id;
  } catch (error) {
    end(source, "the message was refused");
    if (live && typeof error.code === "string") await request(DISCARD, { input: { liveMessageId: live.id } }).catch(() => {});
    throw error;
  }
}

function end(source, reason) {
  source.isDone = true;
  source.stop.abort(new DOMException(reason, "AbortError"));
}

/** The message, if it is a beginning of this text. Null: another process has taken over, or a user has discarded the live message. */
async function sentBeginning(request, live, text) {
  for (let tries = 0; live && tries < 5; tries += 1) {
    const found = await request(FIND, { id: live.id });
    if (found?.message) return text.startsWith(found.message.body) ? found.message : null;
    // A server that sends the text of a silent writer waits a few seconds before.
    if (found?.state !== "WRITING" || !found.body.startsWith(live.body)) return null;
    await wait(2_000);
  }
  return null;
}

/** A function that sends a request until it has an answer: to the next server after a failure, later where the rate is exceeded. */
function requester(urls, token) {
  let turn = 0;
  return async (query, variables) => {
    const deadline = Date.now() + RETRY_FOR;
    for (let pause = 200; ; pause = Math.min(pause * 2, 5_000)) {
      const authorization = `Bearer ${await token()}`;
      try {
        return await attempt(urls[turn % urls.length], authorization, { query, variables });
      } catch (error) {
        // An error without a code is no answer of the server: the connection was cut, or a proxy answered.
        const isFinal = typeof error.code === "string" && !["UNAVAILABLE", "RATE_LIMITED"].includes(error.code);
        if (isFinal || Date.now() > deadline) throw error;
        if (error.code !== "RATE_LIMITED") turn += 1;
        await wait(error.retryAfterMs ?? pause * (0.5 + Math.random() / 2));
      }
    }
  };
}

async function attempt(url, authorization, body) {
  const headers = { authorization, "content-type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(15_000) });
  if (response.status === 404) throw Object.assign(new Error(`${url} is no address of GraphQL`), { code: "NOT_FOUND" });
  const { data, errors } = await response.json();
  if (errors) throw Object.assign(new Error(errors[0].message), errors[0].extensions);
  return data.done;
}

/** Waits for the next change of the source, at most this long. */
const changed = (source, ms) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    source.wake = () => resolve(clearTimeout(timer));
  });

/** At most so many bytes of UTF-8 from a position on, without half a character. */
function cut(text, position, size) {
  const bytes = Buffer.from(text);
  let end = Math.min(position + size, bytes.length);
  while ((bytes[end] & 0xc0) === 0x80) end -= 1;
  return bytes.toString("utf8", position, end);
}

/** The beginning of a text that fits into a message. It ends after a line or a word, if it can. */
function bodyOf(text) {
  const body = cut(text, 0, BODY_MAX);
  const blank = Math.max(body.lastIndexOf("\n"), body.lastIndexOf(" "));
  return body === text || blank < body.length / 2 ? body : body.slice(0, blank + 1);
}

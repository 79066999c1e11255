// The agent of the demo. The page of the user who asked runs it. It uses the API as any other agent does, with a token of its own: it writes
// a status and steps, then the text word by word, and sends the message at the end. `tests/clients/agent.js` is a program for real agents.

const AGENT = "agent:echo";
/** Answers under way, which a reload of this page continues. */
const KEPT = "wideroom:echo";
const WORDS_EVERY = 250;
const WAIT = 1_000;
const TRIES = 60;

const WRITE = "mutation($input: WriteLiveMessageInput!) { done: writeLiveMessage(input: $input) { nextPosition liveMessage { id stopRequestedBy { username } } } }";
const SEND = "mutation($input: SendMessageInput!) { done: sendMessage(input: $input) { messageEdge { node { id } } } }";
const DISCARD = "mutation($input: DiscardLiveMessageInput!) { done: discardLiveMessage(input: $input) { liveMessage { id } } }";

const kept = () => JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
const keep = (jobs) => sessionStorage.setItem(KEPT, JSON.stringify(jobs));
const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

/** Answers a message that this page has sent, where the agent takes part. */
export function answer({ id: conversationId, kind, participants }, { id, clientKey, body }) {
  if (!participants.some(({ username }) => username === AGENT)) return;
  const job = { conversationId, key: `echo-${clientKey}`, writer: crypto.randomUUID(), question: body ?? "", replyToId: kind === "GROUP" ? id : null };
  keep([...kept(), job]);
  run(job);
}

export const resume = () => kept().forEach(run);

async function run(job) {
  try {
    await write(job);
  } catch {
    // The live message has ended, or the agent may not write here. After a silence the server sends what there is.
  }
  keep(kept().filter(({ key }) => key !== job.key));
}

async function post(path, body, token) {
  const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
  return (await fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

let token;
async function ask(query, input) {
  for (let tries = 1; ; tries += 1) {
    let error;
    try {
      ({ token } = token ? { token } : await post("demo/token", { username: AGENT }));
      const { data, errors } = await post("graphql", { query, variables: { input } }, token);
      if (!errors) return data.done;
      error = errors[0].extensions;
    } catch {
      // The server is away.
    }
    if (tries === TRIES || !["UNAVAILABLE", "RATE_LIMITED", undefined].includes(error?.code)) throw new Error(error?.code);
    await pause(error?.retryAfterMs ?? WAIT);
  }
}

/** Words of the answer, each with the blank after it. */
function wordsFor(question) {
  const shown = question.length > 300 ? `${question.slice(0, 300).toWellFormed()}…` : question;
  return `You wrote: “${shown}”

I am the agent of this demo, and I only echo. But I do it as an assistant does: first the steps of the work, then the text while it is written. Every window here shows the same of it, a reload continues where it was, and Stop ends it with the text so far. What stays is one message, with its steps folded.`.match(/\s*\S+/g);
}

const STEPS = [["read", "Read the question"], ["think", "Think about it"], ["write", "Write the answer"]];
/** The steps, of which the first ones are done. The next one stands as `state` says. */
const stepsAt = (done, state, words) => STEPS.slice(0, state ? done + 1 : done).map(([key, title], index) =>
  ({ key, title, state: index < done ? "DONE" : state, detail: key === "read" && done > 0 ? `${words} ${words === 1 ? "word" : "words"}` : null }));

async function write({ conversationId, key, writer, question, replyToId }) {
  const words = wordsFor(question);
  const asked = question.match(/\S+/g)?.length ?? 0;
  let text = "";
  let position = 0;
  const append = async (more) => {
    const bytes = new TextEncoder().encode(text).subarray(position);
    const input = { conversationId, key, writer, position, text: new TextDecoder().decode(bytes), ...(position ? {} : { replyToId }), ...more };
    const { nextPosition, liveMessage } = await ask(WRITE, input);
    // After a reload the server has text from before.
    while (words.length && new TextEncoder().encode(text).length < nextPosition) text += words.shift();
    position = nextPosition;
    return liveMessage;
  };
  let live;
  for (let done = 0; done < STEPS.length && !live?.stopRequestedBy; done += 1) {
    live = await append({ status: ["reading", "thinking", null][done], steps: stepsAt(done, "RUNNING", asked) });
    if (position === 0 && done < 2) await pause(WAIT);
  }
  while (words.length && !live.stopRequestedBy) {
    text += words.shift();
    [live] = await Promise.all([append(), pause(WORDS_EVERY)]);
  }
  if (!text) return ask(DISCARD, { liveMessageId: live.id });
  const steps = words.length ? stepsAt(2, "FAILED", asked) : stepsAt(3, null, asked);
  await ask(SEND, { conversationId, body: text, idempotencyKey: key, replyToId, steps });
}

// ChatTransport of the AI SDK over a conversation with an agent: for `useChat` of `@ai-sdk/react` and the other hooks of the package
// `ai`, version 7. Copy this file: it needs no further package.
//
//   const transport = new WideroomTransport({ url: "https://chat.example.org/graphql", token: () => fetchToken() });
//   const { messages, sendMessage, stop } = useChat({ id: conversationId, messages: await transport.load(conversationId), transport, resume: true });
//
// - The id of the chat is the id of the conversation. The id of the user's message is the idempotency key.
// - The text of the agent's live message arrives as it is written. The message's steps and status are the part `data-work`.
// - After a reload, and on another device, `resume: true` continues an answer that is being written, from its beginning.
// - `stop()` asks the agent to stop. `useChat` also stops when its component unmounts; with `useChat({ chat })`, whose `Chat` the app made, it
//   does not.
// - The metadata of an answer is { id, isInterrupted }: the id of the message, and whether the agent fell silent.
// - `regenerate()` sends the last message of the user again.

const ANSWER = "id body isInterrupted liveMessageId sender { username isAgent } replyTo { id }";
const SEND = "mutation($input: SendMessageInput!) { sendMessage(input: $input) { messageEdge { cursor node { id createdAt } } } }";
const STOP = "mutation($id: ID!) { stopLiveMessage(input: { liveMessageId: $id }) { liveMessage { id } } }";
const LOAD = `query($id: ID!) { conversation(id: $id) { messages(first: 50) { edges { cursor node { ${ANSWER} } } } } }`;
const WRITING = "query($id: ID!) { conversation(id: $id) { liveMessages { id state sender { isAgent } } } }";
const LIVES = `subscription($id: ID!, $after: String) { liveMessages(conversationId: $id, after: $after) { text isWhole
  liveMessage { id state status startedAt steps { key title state detail } sender { isAgent } replyTo { id } message { ${ANSWER} } } } }`;
const ADDED = `subscription($id: ID!, $after: String) { messageAdded(conversationId: $id, after: $after) { messageEdge { node { ${ANSWER} } } } }`;

const refusal = ([{ message, extensions }]) => Object.assign(new Error(message), extensions);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const isFinal = (error) => typeof error.code === "string" && !["UNAVAILABLE", "RATE_LIMITED"].includes(error.code);

export class WideroomTransport {
  resumeStreamIsReplay = true;

  /** @param {{ url: string, token: () => string | Promise<string> }} options */
  constructor({ url, token }) {
    Object.assign(this, { url, token });
  }

  /** The newest messages of a conversation, for `messages` of `useChat`. */
  async load(chatId) {
    const { conversation } = await this.#ask(LOAD, { id: chatId });
    return conversation.messages.edges.map(({ node }) => ({
      id: (node.sender.isAgent && node.liveMessageId) || node.id,
      role: node.sender.isAgent ? "assistant" : "user",
      metadata: { id: node.id, isInterrupted: node.isInterrupted },
      parts: [{ type: "text", text: node.body ?? "", state: "done" }],
    })).reverse();
  }

  /** @param {Parameters<import("ai").ChatTransport<import("ai").UIMessage>["sendMessages"]>[0]} options */
  async sendMessages({ trigger, chatId, messages, abortSignal }) {
    const asked = messages.findLast(({ role }) => role === "user");
    const body = asked.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
    const idempotencyKey = trigger === "submit-message" ? asked.id : crypto.randomUUID();
    const { sendMessage } = await this.#ask(SEND, { input: { conversationId: chatId, body, idempotencyKey } });
    const { cursor, node: question } = sendMessage.messageEdge;
    const isAnswer = ({ replyTo, startedAt }) => (replyTo ? replyTo.id === question.id : !startedAt || startedAt >= question.createdAt);
    return this.#answer(chatId, cursor, isAnswer, abortSignal);
  }

  /** @param {Parameters<import("ai").ChatTransport<import("ai").UIMessage>["reconnectToStream"]>[0]} options */
  async reconnectToStream({ chatId, abortSignal }) {
    // The cursor is read first: an answer that is being written afterwards is sent after it.
    const { conversation } = await this.#ask(LOAD, { id: chatId });
    const writing = (await this.#ask(WRITING, { id: chatId })).conversation.liveMessages;
    const live = writing.find(({ state, sender }) => state === "WRITING" && sender.isAgent);
    const isAnswer = ({ id, liveMessageId }) => live.id === id || live.id === liveMessageId;
    return live ? this.#answer(chatId, conversation.messages.edges[0]?.cursor, isAnswer, abortSignal) : null;
  }

  /** Stream of the chunks of one answer: from its live message, or from its message where the agent showed none. */
  #answer(chatId, cursor, isAnswer, abortSignal) {
    const ended = new AbortController();
    const listen = (out) => {
      let [live, text, shown, work] = [null, "", false, ""];
      const send = (chunk) => !abortSignal?.aborted && out.enqueue(chunk);
      const begin = (id) => !live && ([{ type: "start", messageId: id }, { type: "start-step" }].forEach(send), (live = id));
      const append = (more, isWhole) => {
        if (isWhole && shown) [shown, text, work] = [(send({ type: "reset-step" }), false), "", ""];
        if (more && !shown) shown = (send({ type: "text-start", id: "text" }), true);
        if (more) send({ type: "text-delta", id: "text", delta: more });
        text += more;
      };
      const finish = (message) => {
        if (message?.body?.startsWith(text)) append(message.body.slice(text.length));
        else append(message?.body ?? "", true);
        if (shown) send({ type: "text-end", id: "text" });
        send({ type: "finish-step" });
        const messageMetadata = message && { id: message.id, isInterrupted: message.isInterrupted };
        send({ type: "finish", finishReason: message?.isInterrupted ? "interrupted" : "stop", messageMetadata });
        close();
      };
      const stop = () => live && this.#ask(STOP, { id: live }).catch(() => {});
      const close = (error) => {
        if (ended.signal.aborted) return;
        ended.abort();
        if (!abortSignal?.aborted) error ? out.error(error) : out.close();
      };
      const onLive = ({ liveMessages: { liveMessage, text: more, isWhole } }) => {
        if (!liveMessage?.sender.isAgent || (live ? live !== liveMessage.id : !isAnswer(liveMessage))) return;
        begin(liveMessage.id);
        if (abortSignal?.aborted) return stop().finally(() => close());
        append(more, isWhole);
        const data = { status: liveMessage.status, steps: liveMessage.steps };
        if ((data.status || data.steps.length || work) && JSON.stringify(data) !== work) send({ type: "data-work", id: "work", data });
        if (data.status || data.steps.length || work) work = JSON.stringify(data);
        if (liveMessage.state !== "WRITING") finish(liveMessage.message);
      };
      const onAdded = ({ messageAdded: { messageEdge: { node } } }) => {
        if (!node.sender.isAgent || (live ? live !== node.liveMessageId : !isAnswer(node))) return;
        begin(node.liveMessageId ?? node.id);
        finish(node);
      };
      const onAbort = () => {
        out.error(abortSignal.reason);
        // An agent that has not begun is asked as soon as it does.
        live ? stop().finally(() => ended.abort()) : setTimeout(() => ended.abort(), 30_000);
      };
      abortSignal?.aborted ? onAbort() : abortSignal?.addEventListener("abort", onAbort);
      this.#listen(LIVES, { id: chatId }, onLive, ended.signal).catch(close);
      this.#listen(ADDED, { id: chatId, after: cursor }, onAdded, ended.signal).catch(close);
    };
    return new ReadableStream({ start: listen, cancel: () => ended.abort() });
  }

  /** Reads a subscription over Server-Sent Events, and continues it from its last cursor after a cut. */
  async #listen(query, variables, next, signal) {
    for (let pause = 200; !signal.aborted; pause = Math.min(pause * 2, 5_000)) {
      try {
        const response = await this.#fetch({ query, variables }, "text/event-stream", signal);
        if (!response.headers.get("content-type")?.startsWith("text/event-stream")) throw refusal((await response.json()).errors);
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
          const events = (rest + part.value).split("\n\n");
          rest = events.pop();
          for (const event of events) {
            const data = event.split("\n").find((line) => line.startsWith("data:") && line.length > 6)?.slice(5);
            if (!data || signal.aborted) continue;
            const answer = JSON.parse(data);
            if (answer.errors && !answer.data) throw refusal(answer.errors);
            variables.after = answer.extensions?.cursor ?? variables.after;
            pause = 200;
            next(answer.data);
          }
        }
      } catch (error) {
        if (signal.aborted) return;
        if (isFinal(error)) throw error;
      }
      await wait(pause);
    }
  }

  async #ask(query, variables) {
    for (let tries = 0; ; tries += 1) {
      try {
        const { data, errors } = await (await this.#fetch({ query, variables }, "application/json", AbortSignal.timeout(15_000))).json();
        if (errors) throw refusal(errors);
        return data;
      } catch (error) {
        if (isFinal(error) || tries === 5) throw error;
        await wait(error.retryAfterMs ?? 200 * 2 ** tries);
      }
    }
  }

  async #fetch(body, accept, signal) {
    const headers = { authorization: `Bearer ${await this.token()}`, "content-type": "application/json", accept };
    return fetch(this.url, { method: "POST", headers, body: JSON.stringify(body), signal });
  }
}

// Messages on their way. Each is shown at once and sent with a key of its own: however often a send is tried, it makes one message.
// They leave one after the other, in the order they were written, and wait while the server is away.

import { ApiError } from "./api.js";
import { SEND } from "./documents.js";

const WAIT = 1_000;
const WAIT_MOST = 8_000;

export class Outbox {
  #api;
  #onChange;
  #onSent;
  #waiting = [];
  #isSending = false;
  #wake = () => {};

  constructor({ api, onChange, onSent }) {
    this.#api = api;
    this.#onChange = onChange;
    this.#onSent = onSent;
  }

  /** What has not arrived in this conversation, the oldest first. */
  of(conversationId) {
    return this.#waiting.filter((message) => message.conversationId === conversationId);
  }

  /** `mentions`: { usernames, isEveryone }. */
  send(conversationId, body, replyTo, { usernames, isEveryone }) {
    const mentions = usernames.map((username) => ({ username }));
    const message = { key: crypto.randomUUID(), conversationId, body, replyTo, mentions, mentionsEveryone: isEveryone, createdAt: new Date().toISOString(), failure: "" };
    this.#waiting.push(message);
    this.#onChange(conversationId);
    this.#run();
  }

  /** The same message once more, with the same key. */
  again(message) {
    message.failure = "";
    this.#onChange(message.conversationId);
    this.#run();
  }

  discard(message) {
    this.#forget(message.key);
    this.#onChange(message.conversationId);
  }

  /** The server is back: what waits is tried now. */
  wake() {
    this.#wake();
  }

  #forget(key) {
    this.#waiting = this.#waiting.filter((message) => message.key !== key);
  }

  async #run() {
    if (this.#isSending) return;
    this.#isSending = true;
    let wait = WAIT;
    for (let message; (message = this.#waiting.find(({ failure }) => !failure)); ) {
      const { conversationId, body, replyTo, mentions, mentionsEveryone, key } = message;
      const mentionedUsernames = mentions.map(({ username }) => username);
      try {
        const { sendMessage } = await this.#api.ask(SEND, {
          input: { conversationId, body, replyToId: replyTo?.id, mentionedUsernames, mentionsEveryone, idempotencyKey: key },
        });
        wait = WAIT;
        this.#forget(key);
        this.#onSent(conversationId, sendMessage.messageEdge.node);
      } catch (error) {
        if (error instanceof ApiError && error.isPassing) {
          await this.#pause(error.retryAfterMs ?? wait);
          wait = Math.min(WAIT_MOST, wait * 2);
        } else {
          message.failure = error.message;
          this.#onChange(conversationId);
        }
      }
    }
    this.#isSending = false;
  }

  #pause(time) {
    return new Promise((resolve) => {
      this.#wake = resolve;
      setTimeout(resolve, time);
    });
  }
}

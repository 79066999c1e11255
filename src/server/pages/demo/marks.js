// The read marks of one conversation: the viewer's own, and what those of the others mean for the viewer's messages.

import { MARK_READ, STATUSES } from "./documents.js";

const STATUSES_MOST = 50;
const STATUSES_WAIT = 120;

export class Marks {
  #api;
  #id;
  #viewer;
  #history;
  #on;
  #timer;
  #key = "";

  /** `on`: read(), and statuses(): the messages have other statuses. */
  constructor({ api, conversationId, viewer, history, on, signal }) {
    [this.#api, this.#id, this.#viewer, this.#history, this.#on] = [api, conversationId, viewer, history, on];
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /** The newest message is in sight. */
  read() {
    const newest = this.#history.messages.at(-1);
    if (!newest || newest.key <= this.#key) return;
    const before = this.#key;
    this.#key = newest.key;
    this.#on.read();
    this.#api.ask(MARK_READ, { input: { conversationId: this.#id, messageId: newest.id } }).catch(() => {
      this.#key = before;
    });
  }

  /** A marker has moved. Its meaning for each message is the server's to say. */
  moved({ user }) {
    if (user.username === this.#viewer) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#askStatuses(), STATUSES_WAIT);
  }

  async #askStatuses() {
    const open = this.#history.messages.filter(({ sender, status }) => sender.username === this.#viewer && status && status !== "READ");
    const ids = open.slice(-STATUSES_MOST).map(({ id }) => id);
    if (!ids.length) return;
    const answer = await this.#api.ask(STATUSES, { ids }).catch(() => ({ nodes: [] }));
    const statuses = new Map(answer.nodes.filter(Boolean).map(({ id, status }) => [id, status]));
    this.#history.change((message) => (statuses.has(message.id) ? { ...message, status: statuses.get(message.id) } : message));
    this.#on.statuses();
  }
}

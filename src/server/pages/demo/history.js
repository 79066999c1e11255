// The loaded messages of one conversation: a run without a gap, oldest first. It normally reaches the newest message. After a jump to an
// old one it may end before: then newer pages are loaded as the reader scrolls down, and live messages wait until they connect.

import { AROUND, PAGE } from "./documents.js";
import { orderKey } from "./dom.js";

const PAGE_SIZE = 30;

export class History {
  #api;
  #id;
  #messages = [];
  #pageInfo = { hasNextPage: false, hasPreviousPage: false };
  /** Increases whenever the run is replaced: an answer for the run before is dropped. */
  #generation = 0;
  #loading = new Set();
  /** Key of the newest message that was loaded ever. */
  #newest = "";
  /** Live messages that arrived while a newer page was read, which may lack them. */
  #ahead = [];

  constructor(api, conversationId) {
    [this.#api, this.#id] = [api, conversationId];
  }

  get messages() {
    return this.#messages;
  }

  /** Whether the run reaches the newest message. */
  get isLive() {
    return !this.#pageInfo.hasPreviousPage;
  }

  has(id) {
    return this.#messages.some((message) => message.id === id);
  }

  /** Whether a live message is new. An event may be delivered again after its message has left the run. */
  isNew(message) {
    return !this.has(message.id) && (this.isLive || orderKey(message.uuid) > this.#newest);
  }

  /** Replaces the run by this page. */
  begin({ edges, pageInfo }) {
    this.#generation += 1;
    this.#loading.clear();
    this.#messages = [];
    this.#pageInfo = pageInfo;
    this.#insert(edges.map(({ node }) => node));
  }

  /** Loads the page before the oldest message. Returns whether the run has changed. */
  older() {
    if (!this.#pageInfo.hasNextPage) return false;
    return this.#extend("older", PAGE, { first: PAGE_SIZE, after: this.#pageInfo.endCursor }, ({ hasNextPage, endCursor }) => {
      Object.assign(this.#pageInfo, { hasNextPage, endCursor });
    });
  }

  /** Loads the page after the newest message of a run that is not live. */
  newer() {
    if (this.isLive) return false;
    return this.#extend("newer", PAGE, { last: PAGE_SIZE, before: this.#pageInfo.startCursor }, ({ hasPreviousPage, startCursor }) => {
      Object.assign(this.#pageInfo, { hasPreviousPage, startCursor });
      if (this.isLive) this.#insert(this.#ahead);
    });
  }

  /** Makes the run live again, from the newest page. */
  async newest() {
    const page = await this.#read(PAGE, { first: PAGE_SIZE });
    if (!page) return false;
    this.begin(page);
    this.#insert(this.#ahead);
    return true;
  }

  /** Loads the page around a message: joined to the run where they overlap, in place of it where they do not. */
  async around(messageId) {
    const page = await this.#read(AROUND, { messageId });
    if (!page?.edges.length) return false;
    const keys = page.edges.map(({ node }) => orderKey(node.uuid));
    const [newest, oldest] = [keys[0], keys.at(-1)];
    const [first, last] = [this.#messages[0]?.key ?? "", this.#messages.at(-1)?.key ?? ""];
    if (newest < first || oldest > last) {
      this.begin(page);
      if (this.isLive) this.#insert(this.#ahead);
      return true;
    }
    const { hasNextPage, endCursor, hasPreviousPage, startCursor } = page.pageInfo;
    if (oldest < first) Object.assign(this.#pageInfo, { hasNextPage, endCursor });
    if (!this.isLive && newest > last) Object.assign(this.#pageInfo, { hasPreviousPage, startCursor });
    this.#insert(page.edges.map(({ node }) => node));
    return true;
  }

  /** A message in its current state. One outside of the run is left to the pages. */
  upsert(message) {
    const key = orderKey(message.uuid);
    if (this.#pageInfo.hasNextPage && key < this.#messages[0]?.key) return;
    if (this.isLive || key <= this.#messages.at(-1)?.key) return this.#insert([message]);
    this.#ahead.push(message);
    if (key > this.#newest) this.#newest = key;
  }

  /** Replaces each message by the result. Those without one are removed. */
  change(next) {
    this.#messages = this.#messages.map(next).filter(Boolean);
  }

  async #read(document, variables) {
    this.#ahead = [];
    return (await this.#api.ask(document, { id: this.#id, ...variables })).conversation?.messages;
  }

  async #extend(direction, document, variables, connect) {
    if (this.#loading.has(direction)) return false;
    this.#loading.add(direction);
    const generation = this.#generation;
    if (direction === "newer") this.#ahead = [];
    try {
      const { conversation } = await this.#api.ask(document, { id: this.#id, ...variables });
      if (!conversation || generation !== this.#generation) return false;
      this.#insert(conversation.messages.edges.map(({ node }) => node));
      connect(conversation.messages.pageInfo);
      return true;
    } catch {
      // The next scroll asks again.
      return false;
    } finally {
      if (generation === this.#generation) this.#loading.delete(direction);
    }
  }

  /** Each once, in the order of their ids. */
  #insert(messages) {
    const known = new Map(this.#messages.map((message) => [message.id, message]));
    for (const message of messages) known.set(message.id, { ...message, key: orderKey(message.uuid) });
    this.#messages = [...known.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    const newest = this.#messages.at(-1)?.key ?? "";
    if (newest > this.#newest) this.#newest = newest;
  }
}

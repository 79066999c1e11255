// The list of conversations, as elements: the pinned ones above, then by activity.

import { addressOf, avatar, el, icon, nameOf, part, replaceItems, shortTime, titleOf, titleParts } from "./dom.js";
import { lineOf } from "./message.js";

const NEAR_END = 400;

export class InboxList {
  #store;
  #viewer;
  #isOnline;
  #nodes = new Map();
  #open = "";
  #stop;
  #listening = new AbortController();

  /** `isOnline(username)`. */
  constructor({ chat, viewer, isOnline }) {
    [this.#store, this.#viewer, this.#isOnline] = [chat.inbox(), viewer, isOnline];
    part("inbox-scroll").addEventListener("scroll", () => this.#scrolled(), { signal: this.#listening.signal, passive: true });
    this.#stop = this.#store.subscribe(() => this.render());
    this.render();
  }

  close() {
    this.#listening.abort();
    this.#stop();
    part("inbox").replaceChildren();
  }

  get entries() {
    return this.#store.get().items;
  }

  /** Calls back with each change. Returns the function that ends it. */
  watch(run) {
    return this.#store.subscribe(run);
  }

  /** The conversation that is shown beside. */
  select(conversationId) {
    this.#open = conversationId;
    this.render();
  }

  #scrolled() {
    const list = part("inbox-scroll");
    // After a failure the next scroll asks again.
    if (list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END) this.#store.more().catch(() => {});
  }

  render() {
    const list = part("inbox");
    const { entries } = this;
    if (!entries.length) {
      list.replaceChildren(...this.#emptiness());
      this.#nodes.clear();
      return;
    }
    const focused = document.activeElement?.closest?.("#inbox a")?.hash;
    // Only what changed is touched: a replaced list would lose the reader's place in it.
    replaceItems(list, entries.map((entry) => this.#node(entry)));
    if (focused && !document.activeElement?.closest?.("#inbox")) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  #emptiness() {
    const { status, error } = this.#store.get();
    if (status === "failed") return [el("li", { class: "empty" }, `The inbox did not load: ${error.message}`)];
    if (status === "ready") return [el("li", { class: "empty" }, "No conversations yet. Start one with the plus above.")];
    return Array.from({ length: 6 }, () => el("li", { class: "skeleton", "aria-hidden": "true" }));
  }

  #node(entry) {
    const isOnline = entry.conversation.kind === "DIRECT" && this.#isOnline(entry.conversation.directPeer?.username);
    const isOpen = entry.conversation.id === this.#open;
    const signature = JSON.stringify([entry, isOnline, isOpen, new Date().toDateString()]);
    const known = this.#nodes.get(entry.id);
    if (known?.signature === signature) return known.node;
    const node = this.#draw(entry, isOnline, isOpen);
    this.#nodes.set(entry.id, { signature, node });
    return node;
  }

  #draw(entry, isOnline, isOpen) {
    const { conversation, lastMessage, unreadCount, unreadCountIsCapped, unreadMentionCount } = entry;
    const title = titleOf(conversation, this.#viewer);
    const count = `${unreadCount}${unreadCountIsCapped ? "+" : ""}`;
    return el("li", {},
      el("a", { class: "entry", href: addressOf(conversation.id), "aria-current": isOpen ? "true" : undefined },
        avatar(title, isOnline),
        el("span", { class: "entry-name" }, ...titleParts(conversation, this.#viewer), isOnline ? el("span", { class: "sr" }, ", online") : null,
          entry.isPinned ? icon("pinned") : null, entry.isMuted ? icon("muted") : null),
        el("time", { dateTime: entry.lastActivityAt }, shortTime(entry.lastActivityAt)),
        el("span", { class: "entry-line" }, ...this.#line(conversation, lastMessage)),
        el("span", { class: "badges" },
          unreadMentionCount ? el("span", { class: "badge at" }, el("span", { "aria-hidden": "true" }, "@"), el("span", { class: "sr" }, "You are mentioned. ")) : null,
          unreadCount ? el("span", { class: `badge${entry.isMuted ? " muted" : ""}` }, count, el("span", { class: "sr" }, " unread")) : null)));
  }

  #line(conversation, message) {
    if (!message) return [el("i", {}, "Nothing here yet")];
    const isOwn = message.sender.username === this.#viewer;
    const line = lineOf(message);
    if (message.deletedAt || message.kind === "SYSTEM") return [el("i", {}, line)];
    const text = el("span", { dir: "auto" }, line.slice(0, 200));
    if (isOwn) return ["You: ", text];
    return conversation.kind === "GROUP" ? [`${nameOf(message.sender)}: `, text] : [text];
  }
}

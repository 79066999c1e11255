// The list of conversations, as elements: the pinned ones above, then by activity.

import { addressOf, avatar, el, icon, part, replaceItems, shortTime, titleOf, titleParts, wordsOf } from "./dom.js";
import { CHANGES, NEWEST, STATUSES } from "./documents.js";
import { openMenu } from "./menu.js";
import { lineOf, tick } from "./message.js";
import { firstNameOf, namesVersion } from "./names.js";
import { onHold } from "./press.js";

const NEAR_END = 400;
const STATUS_EVERY = 15_000;
const STATUSES_MOST = 20;
const LEVELS = [["ALL", "All messages"], ["MENTIONS", "Mentions only"], ["NONE", "Nothing"]];

export class InboxList {
  #chat;
  #inbox;
  /** The archived conversations, while they are shown. */
  #archive = null;
  #viewer;
  #isOnline;
  #nodes = new Map();
  #open = "";
  /** Statuses of last messages, where they are newer than those of the entries. */
  #statuses = new Map();
  #stops;
  #asking;
  #listening = new AbortController();

  /** `isOnline(username)`. */
  constructor({ chat, viewer, isOnline }) {
    [this.#chat, this.#inbox, this.#viewer, this.#isOnline] = [chat, chat.inbox(), viewer, isOnline];
    const { signal } = this.#listening;
    onHold(part("inbox"), ".entry", (anchor) => this.#menu(anchor), { signal, isForAll: true });
    part("archived").addEventListener("click", () => this.#switch(), { signal });
    part("inbox-scroll").addEventListener("scroll", () => this.#scrolled(), { signal, passive: true });
    this.#asking = setInterval(() => this.#askStatuses(), STATUS_EVERY);
    this.#stops = [this.#inbox.subscribe(() => this.render())];
    this.render();
  }

  get #store() {
    return this.#archive ?? this.#inbox;
  }

  #switch() {
    this.#stops.splice(1).forEach((stop) => stop());
    this.#archive = this.#archive ? null : this.#chat.inbox({ archived: true });
    if (this.#archive) this.#stops.push(this.#archive.subscribe(() => this.render()));
    this.render();
  }

  #menu(anchor) {
    const entry = this.#store.get().items.find(({ conversation }) => addressOf(conversation.id) === anchor.hash);
    const attempt = (doing) => doing.then(() => this.#say(""), (error) => this.#say(wordsOf(error)));
    if (entry) openEntryMenu({ chat: this.#chat, inbox: this.#inbox, viewer: this.#viewer, entry, anchor, attempt });
  }

  #say(words) {
    part("inbox-problem").textContent = words;
  }

  close() {
    this.#listening.abort();
    clearInterval(this.#asking);
    this.#stops.forEach((stop) => stop());
    part("inbox").replaceChildren();
    this.#say("");
  }

  get entries() {
    return this.#inbox.get().items;
  }

  /** Calls back with each change. Returns the function that ends it. */
  watch(run) {
    return this.#inbox.subscribe(run);
  }

  // ---- Whether the others have received and read the viewer's last messages.

  #statusOf({ lastMessage }) {
    return lastMessage?.sender.username === this.#viewer && lastMessage.kind === "TEXT" && !lastMessage.deletedAt ? this.#statuses.get(lastMessage.id) ?? lastMessage.status : null;
  }

  /** The open conversation knows it at once. */
  learnStatus({ id, status }) {
    if (!status || this.#statuses.get(id) === status) return;
    this.#statuses.set(id, status);
    this.render();
  }

  async #askStatuses() {
    const isWanted = (entry) => ["SENT", "DELIVERED"].includes(this.#statusOf(entry));
    const ids = this.#store.get().items.filter(isWanted).slice(0, STATUSES_MOST).map(({ id }) => id);
    if (!ids.length || document.hidden) return;
    const { nodes } = await this.#chat.request(STATUSES, { ids }).catch(() => ({ nodes: [] }));
    for (const entry of nodes) if (entry?.lastMessage) this.learnStatus(entry.lastMessage);
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
    const entries = this.#store.get().items;
    part("archived").textContent = this.#archive ? "Back to the inbox" : "Archived";
    part("inbox-scroll").setAttribute("aria-label", this.#archive ? "Archived conversations" : "Inbox");
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
    if (status === "ready" && this.#archive) return [el("li", { class: "empty" }, "Nothing is archived.")];
    if (status === "ready") return [el("li", { class: "empty" }, "No conversations yet. Start one with the plus above.")];
    return Array.from({ length: 6 }, () => el("li", { class: "skeleton", "aria-hidden": "true" }));
  }

  #node(entry) {
    const isOnline = entry.conversation.kind === "DIRECT" && this.#isOnline(entry.conversation.directPeer?.username);
    const isOpen = entry.conversation.id === this.#open;
    const signature = JSON.stringify([entry, this.#statusOf(entry), isOnline, isOpen, namesVersion(), new Date().toDateString()]);
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
      el("a", { class: "entry", href: addressOf(conversation.id), "aria-current": isOpen ? "true" : undefined, "aria-haspopup": "menu" },
        avatar(title, isOnline, conversation.avatarUrl ?? conversation.directPeer?.avatarUrl),
        el("span", { class: "entry-name" }, ...titleParts(conversation, this.#viewer), isOnline ? el("span", { class: "sr" }, ", online") : null,
          entry.isPinned ? icon("pinned") : null, entry.isMuted ? icon("muted") : null),
        el("time", { dateTime: entry.lastActivityAt }, shortTime(entry.lastActivityAt)),
        el("span", { class: "entry-line" }, ...this.#line(conversation, lastMessage, this.#statusOf(entry))),
        el("span", { class: "badges" },
          unreadMentionCount ? el("span", { class: "badge at" }, el("span", { "aria-hidden": "true" }, "@"), el("span", { class: "sr" }, "You are mentioned. ")) : null,
          unreadCount ? el("span", { class: `badge${entry.isMuted ? " muted" : ""}` }, count, el("span", { class: "sr" }, " unread")) : null)));
  }

  #line(conversation, message, status) {
    if (!message) return [el("i", {}, "Nothing here yet")];
    const isOwn = message.sender.username === this.#viewer;
    const line = lineOf(message);
    if (message.deletedAt || message.kind === "SYSTEM") return [el("i", {}, line)];
    const text = el("span", { dir: "auto" }, line.slice(0, 200));
    if (isOwn) return [status ? tick(status) : "", "You: ", text];
    return conversation.kind === "GROUP" ? [`${firstNameOf(message.sender)}: `, text] : [text];
  }
}

/** The menu of an entry. `inbox`: the list of the package. `attempt(promise)`: says what failed. */
function openEntryMenu({ chat, inbox, viewer, entry, anchor, attempt }) {
  const { conversation, lastMessage, unreadCount, isPinned, isMuted, isArchived, notificationLevel } = entry;
  const update = (change) => () => attempt(inbox.update(conversation.id, change));
  const levels = () => openMenu(anchor, {
    name: "Notifications",
    items: LEVELS.map(([level, label]) => ({ label, isChecked: level === notificationLevel, run: update({ level }) })),
  });
  openMenu(anchor, {
    name: "Conversation",
    items: [
      unreadCount > 0 && { label: "Mark as read", run: () => attempt(chat.request(CHANGES.markRead, { input: { conversationId: conversation.id, messageId: lastMessage.id } })) },
      !unreadCount && lastMessage && { label: "Mark as unread", run: () => attempt(markUnread(chat, conversation.id, viewer)) },
      { label: isPinned ? "Unpin" : "Pin", run: update({ pinned: !isPinned }) },
      { label: isMuted ? "Unmute" : "Mute", run: update({ muted: !isMuted }) },
      { label: "Notifications…", run: levels },
      { label: isArchived ? "Back to the inbox" : "Archive", run: update({ archived: !isArchived }) },
    ].filter(Boolean),
  });
}

/** From the newest message of another user on: one's own are never unread. */
async function markUnread(chat, id, viewer) {
  const { conversation } = await chat.request(NEWEST, { id });
  const last = conversation.messages.edges.find(({ node }) => node.kind === "TEXT" && node.sender.username !== viewer);
  if (!last) throw new Error("There is no message of anybody else.");
  await chat.conversation(id).markUnread(last.node.id);
}

// The list of conversations: the newest activity first, pinned ones above, live. It also says that messages have arrived here.

import { ENTRIES, INBOX, INBOX_UPDATED, MARK_DELIVERED, UNREAD_EXPIRIES } from "./documents.js";
import { addressOf, avatar, el, icon, nameOf, part, replaceItems, shortTime, titleOf, titleParts } from "./dom.js";
import { ExpiryTimer, isExpired } from "./expiry.js";
import { lineOf } from "./message.js";

export class Inbox {
  #api;
  #viewer;
  #on;
  #entries = new Map();
  #nodes = new Map();
  #pageInfo = { hasNextPage: false };
  #isLoading = false;
  #isAsking = false;
  #isLoaded = false;
  #problem = "";
  #open = "";
  #unsubscribe = () => {};
  #expiry = new ExpiryTimer(() => this.#expire());
  #listening = new AbortController();

  /**
   * `on`: loaded(), changed(entry), removed(conversationId), blocked(user), presence(username), which says whether somebody is there.
   */
  constructor({ api, viewer, on }) {
    this.#api = api;
    this.#viewer = viewer;
    this.#on = on;
    part("inbox-scroll").addEventListener("scroll", () => this.#loadMore(), { signal: this.#listening.signal, passive: true });
    this.render();
    this.#load();
  }

  close() {
    this.#listening.abort();
    this.#unsubscribe();
    this.#expiry.stop();
    part("inbox").replaceChildren();
  }

  get entries() {
    return [...this.#entries.values()];
  }

  /** The conversation that is shown beside. */
  select(conversationId) {
    this.#open = conversationId;
    this.render();
  }

  upsert(entry) {
    if (entry.isArchived) this.#entries.delete(entry.id);
    else this.#entries.set(entry.id, entry);
    this.render();
  }

  read(conversationId) {
    const entry = this.entries.find(({ conversation }) => conversation.id === conversationId);
    if (entry?.unreadCount) this.upsert({ ...entry, unreadCount: 0, unreadMentionCount: 0, firstUnreadMessage: null, firstUnreadMention: null });
  }

  /** Back after a cut: what did not load is tried again. */
  wake() {
    if (this.#problem) this.#load();
  }

  /** The last messages of a user look different once the user is blocked, or no longer. */
  blockChanged({ username, viewerHasBlocked }) {
    for (const [id, entry] of this.#entries) {
      const { lastMessage } = entry;
      if (lastMessage?.sender.username !== username) continue;
      this.#entries.set(id, { ...entry, lastMessage: { ...lastMessage, sender: { ...lastMessage.sender, viewerHasBlocked } } });
    }
    this.render();
  }

  async #load() {
    this.#unsubscribe();
    this.#problem = "";
    try {
      const { inbox } = await this.#api.ask(INBOX);
      this.#entries.clear();
      this.#take(inbox);
      this.#isLoaded = true;
      this.#listen(inbox.updatesCursor);
      this.#on.loaded();
    } catch (error) {
      this.#problem = error.message;
    }
    this.render();
  }

  #take({ edges, pageInfo }) {
    for (const { node } of edges) {
      this.#entries.set(node.id, node);
      this.#delivered(node);
    }
    this.#pageInfo = pageInfo;
  }

  async #loadMore() {
    const list = part("inbox-scroll");
    const isNear = list.scrollHeight - list.scrollTop - list.clientHeight < 400;
    if (!isNear || this.#isLoading || !this.#pageInfo.hasNextPage) return;
    this.#isLoading = true;
    try {
      this.#take((await this.#api.ask(INBOX, { after: this.#pageInfo.endCursor })).inbox);
      this.#on.loaded();
      this.render();
    } catch {
      // The next scroll asks again.
    } finally {
      this.#isLoading = false;
    }
  }

  #listen(after) {
    this.#unsubscribe = this.#api.subscribe({
      query: INBOX_UPDATED,
      variables: { after },
      next: ({ event }) => event && this.#hear(event),
      // Away for longer than the server remembers: begin anew.
      end: () => this.#load(),
    });
  }

  #hear(event) {
    if (event.__typename === "InboxEntryRemovedEvent") {
      this.#entries.delete(event.inboxEntryId);
      this.#on.removed(event.conversationId);
      this.render();
      return;
    }
    if (event.__typename === "BlockChangedEvent") return this.#on.blocked(event.user);
    const entry = event.inboxEntryEdge.node;
    this.upsert(entry);
    this.#delivered(entry);
    this.#on.changed(entry);
  }

  /** The sender sees two ticks. */
  #delivered({ conversation, lastMessage, unreadCount }) {
    if (!unreadCount || !lastMessage || lastMessage.sender.username === this.#viewer) return;
    this.#api.ask(MARK_DELIVERED, { input: { conversationId: conversation.id } }).catch(() => {});
  }

  /** Asks when the first unread messages expire, where messages do, 100 at once. */
  async #askExpiries() {
    const isUnknown = ({ unreadCount, lastMessage, firstUnreadMessage }) => unreadCount && lastMessage?.expiresAt && firstUnreadMessage === undefined;
    const unknown = this.entries.filter(isUnknown).slice(0, 100);
    if (!unknown.length || this.#isAsking) return;
    this.#isAsking = true;
    const { nodes } = await this.#api.ask(UNREAD_EXPIRIES, { ids: unknown.map(({ id }) => id) }).catch(() => ({ nodes: [] }));
    this.#isAsking = false;
    if (this.#listening.signal.aborted) return;
    for (const entry of unknown) {
      // An entry that has changed meanwhile is asked for again.
      if (this.#entries.get(entry.id) !== entry) continue;
      const found = nodes.find((node) => node?.id === entry.id);
      this.#entries.set(entry.id, { ...entry, firstUnreadMessage: found?.firstUnreadMessage ?? null });
    }
    this.render();
  }

  /** Reads the entries whose messages have expired again, 100 at once. */
  async #expire() {
    const due = this.entries.filter(({ lastMessage, firstUnreadMessage }) => isExpired(lastMessage) || isExpired(firstUnreadMessage)).slice(0, 100);
    if (!due.length) return this.render();
    const { nodes } = await this.#api.ask(ENTRIES, { ids: due.map(({ id }) => id) }).catch(() => ({ nodes: [] }));
    if (this.#listening.signal.aborted) return;
    for (const entry of nodes.filter(Boolean)) this.#entries.set(entry.id, entry);
    // While the server is away, what has expired is not shown any more.
    for (const { id } of due) {
      const entry = this.#entries.get(id);
      if (isExpired(entry?.lastMessage)) this.#entries.set(id, { ...entry, lastMessage: null });
      if (isExpired(entry?.firstUnreadMessage)) this.#entries.set(id, { ...this.#entries.get(id), firstUnreadMessage: null, unreadCount: 0 });
    }
    this.render();
  }

  render() {
    const list = part("inbox");
    const order = (a, b) => b.isPinned - a.isPinned || (a.lastActivityAt < b.lastActivityAt ? 1 : a.lastActivityAt > b.lastActivityAt ? -1 : 0);
    const entries = this.entries.sort(order);
    if (!entries.length) {
      list.replaceChildren(...this.#emptiness());
      this.#nodes.clear();
      return;
    }
    this.#askExpiries();
    this.#expiry.set(entries.flatMap(({ lastMessage, firstUnreadMessage }) => [lastMessage?.expiresAt, firstUnreadMessage?.expiresAt]));
    const focused = document.activeElement?.closest?.("#inbox a")?.hash;
    const wanted = entries.map((entry) => this.#node(entry));
    // Only what changed is touched: a replaced list would lose the reader's place in it.
    replaceItems(list, wanted);
    if (focused && !document.activeElement?.closest?.("#inbox")) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    const unread = entries.filter(({ unreadCount, isMuted }) => unreadCount && !isMuted).length;
    document.title = `${unread ? `(${unread}) ` : ""}${this.#viewer} · Wideroom chat`;
  }

  #emptiness() {
    if (this.#problem) {
      const again = el("button", { class: "quiet", type: "button", onclick: () => this.#load() }, "Try again");
      return [el("li", { class: "empty" }, `The inbox did not load: ${this.#problem} `, again)];
    }
    if (this.#isLoaded) return [el("li", { class: "empty" }, "No conversations yet. Start one with the plus above.")];
    return Array.from({ length: 6 }, () => el("li", { class: "skeleton", "aria-hidden": "true" }));
  }

  #node(entry) {
    const isOnline = entry.conversation.kind === "DIRECT" && this.#on.presence(entry.conversation.directPeer?.username);
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

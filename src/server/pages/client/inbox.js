// Lists: the inbox, in the order of activity with the pinned entries first, and the matches of a search.

import { ExpiryTimer, Store, isExpired } from "./store.js";

const LOADING = { items: [], status: "loading", error: null, hasMore: false };
const NODES_MOST = 100;

/** Whether an entry belongs to an inbox with this filter. */
function isIn(entry, { kind, unreadOnly, mentionedOnly, archived = false, pinned }) {
  return (!kind || entry.conversation.kind === kind) && (!unreadOnly || entry.unreadCount > 0) && (!mentionedOnly || entry.unreadMentionCount > 0)
    && entry.isArchived === archived && (pinned == null || entry.isPinned === pinned);
}

const order = (a, b) => b.isPinned - a.isPinned || (a.lastActivityAt < b.lastActivityAt ? 1 : a.lastActivityAt > b.lastActivityAt ? -1 : 0);

export class Inbox extends Store {
  #core;
  #filter;
  #entries = new Map();
  #cursor = null;
  /** Activity of the last entry of the pages. Older ones come with the next page. */
  #end = "";
  #isReading = false;
  #during = [];
  #isRefreshing = false;
  #more = null;
  #expiry = new ExpiryTimer(() => this.#show());

  constructor(core, filter = {}) {
    super(LOADING);
    [this.#core, this.#filter] = [core, filter];
  }

  opened() {
    const unlisten = this.#core.feed.listen({
      entry: (entry) => this.#changed(entry),
      removed: (id) => { this.#entries.delete(id); this.#show(); },
      // Counts have changed, too.
      blocked: () => this.#load(),
      anew: () => this.#load(),
    });
    this.#load();
    return [unlisten, () => this.#expiry.stop()];
  }

  /** Loads the next page. */
  more = () => {
    if (!this.get().hasMore) return Promise.resolve();
    this.#more ??= this.#page().finally(() => { this.#more = null; });
    return this.#more;
  };

  update = async (conversationId, { level, ...flags }) => {
    const input = { conversationId, ...flags, ...(level !== undefined && { notificationLevel: level }) };
    this.#core.feed.changed((await this.#core.change("updateInboxEntry", input)).inboxEntry);
  };

  async #load() {
    const { feed, ask, lasting } = this.#core;
    try {
      await lasting(async () => {
        await feed.ready();
        const pinned = this.#filter.pinned == null && ask("PINNED", { filter: { ...this.#filter, pinned: true } });
        await this.#read(ask("INBOX", { filter: this.#filter }), pinned);
      }, () => this.isOpen);
      this.#show("ready");
    } catch (error) {
      this.patch({ status: "failed", error });
    }
  }

  async #page() {
    await this.#read(this.#core.ask("INBOX", { filter: this.#filter, after: this.#cursor }));
    this.#show();
  }

  /** Takes a page in, or two. Changes during the read are newer than what it shows. */
  async #read(page, pinned) {
    [this.#isReading, this.#during] = [true, []];
    try {
      const [{ inbox }, more] = await Promise.all([page, pinned]);
      if (more) this.#entries.clear();
      for (const { node } of [...(more?.inbox.edges ?? []), ...inbox.edges]) {
        this.#core.feed.learn(node);
        this.#entries.set(node.id, node);
      }
      [this.#cursor, this.#end] = [inbox.pageInfo.endCursor, inbox.edges.at(-1)?.node.lastActivityAt ?? this.#end];
      this.patch({ hasMore: inbox.pageInfo.hasNextPage });
      for (const entry of this.#during) this.#take(entry);
    } finally {
      this.#isReading = false;
    }
  }

  #changed(entry) {
    if (this.#isReading) this.#during.push(entry);
    this.#take(entry);
    this.#show();
  }

  #take(entry) {
    const isBeyond = this.get().hasMore && !entry.isPinned && entry.lastActivityAt < this.#end;
    if (isIn(entry, this.#filter) && !isBeyond) this.#entries.set(entry.id, entry);
    else this.#entries.delete(entry.id);
  }

  #show(status = this.get().status) {
    const items = [...this.#entries.values()].sort(order);
    this.#expiry.watch(items.flatMap(({ lastMessage, firstUnreadMessage }) => [lastMessage, firstUnreadMessage]));
    this.patch({ items, status, error: null });
    this.#refresh();
  }

  /**
   * Reads the entries again whose messages have expired, and those of which it is unknown when the first unread message expires. It is
   * asked only where messages do.
   */
  async #refresh() {
    const isDue = ({ unreadCount, lastMessage, firstUnreadMessage: first }) =>
      isExpired(lastMessage) || isExpired(first) || (unreadCount && lastMessage?.expiresAt && first === undefined);
    const due = [...this.#entries.values()].filter(isDue).slice(0, NODES_MOST);
    if (!due.length || this.#isRefreshing) return;
    this.#isRefreshing = true;
    const { nodes } = await this.#core.ask("ENTRIES", { ids: due.map(({ id }) => id) }).catch(() => ({ nodes: [] }));
    this.#isRefreshing = false;
    if (!this.isOpen) return;
    for (const before of due) {
      // An entry that has changed meanwhile is read again.
      if (this.#entries.get(before.id) !== before) continue;
      const entry = nodes.find((node) => node?.id === before.id) ?? before;
      // While the server is away, an expired message is not shown any more.
      const lastMessage = isExpired(entry.lastMessage) ? null : entry.lastMessage;
      const firstUnreadMessage = isExpired(entry.firstUnreadMessage) ? null : entry.firstUnreadMessage ?? null;
      this.#entries.set(before.id, { ...entry, lastMessage, firstUnreadMessage, unreadCount: firstUnreadMessage ? entry.unreadCount : 0 });
    }
    this.#show();
  }
}

/** Matches of a search, newest first. Without text, a filter alone is the gallery of a conversation. */
export class Search extends Store {
  #core;
  #query;
  #after = null;
  #loading = null;

  constructor(core, query) {
    super({ ...LOADING, isCapped: false });
    [this.#core, this.#query] = [core, query];
  }

  opened() {
    if (this.get().status !== "ready") this.more();
  }

  more = () => {
    const { status, hasMore } = this.get();
    if (status === "ready" && !hasMore) return Promise.resolve();
    this.#loading ??= this.#load().finally(() => { this.#loading = null; });
    return this.#loading;
  };

  async #load() {
    const { conversationId: id, ...query } = this.#query;
    const { ask } = this.#core;
    this.patch({ status: this.#after ? "ready" : "loading", error: null });
    try {
      const variables = { ...query, after: this.#after };
      const { searchMessages } = id
        ? (await ask("SEARCH_IN", { id, ...variables })).conversation ?? {}
        : await ask("SEARCH", variables);
      const { edges, pageInfo, isCapped } = searchMessages ?? { edges: [], pageInfo: {}, isCapped: false };
      this.#after = pageInfo.endCursor;
      const items = [...this.get().items, ...edges.map(({ node, snippet }) => ({ message: node, snippet }))];
      this.patch({ items, status: "ready", hasMore: Boolean(pageInfo.hasNextPage), isCapped });
    } catch (error) {
      this.patch({ status: "failed", error });
    }
  }
}

// One conversation: its messages without a gap, the unsent ones below, and everything that happens in it, live.

import { ExpiryTimer, Joined, Store, isExpired, onPage } from "./store.js";
import { backoff, isHidden } from "./transport.js";
import { Window, nodes } from "./window.js";

const PAGE_SIZE = 30;
/** Messages that stay while the reader is at the newest one. */
const KEPT = 1_000;
const REPLAY_WAIT = 100;
const HEAD_WAIT = 200;
const SEEN_EVERY = 1_000;
const TYPING_EVERY = 2_500;
const TYPING_ENDS = 5_000;

export class Conversation extends Store {
  #core;
  #at;
  #window;
  #generation = 0;
  #streams = [];
  /** Ends of the stream of events since it last had one. */
  #ends = 0;
  #items = new WeakMap();
  /** Sent messages that the run does not reach yet. */
  #beyond = [];
  #seen = null;
  #marked = "";
  #markedAt = 0;
  #isHeldUnread = false;
  /** Whether the reader is at the newest message, as far as the app has said. */
  #isAtEnd = true;
  #typedAt = 0;
  #typingTimer;
  #replay = new Joined(() => this.#show(), REPLAY_WAIT);
  #head = new Joined(() => this.#readHead(), HEAD_WAIT);
  #reading = new Joined(() => this.#markRead(), SEEN_EVERY);
  #expiry = new ExpiryTimer(() => this.#expire());

  constructor(core, id, at) {
    super({
      status: "loading", error: null, conversation: null, entry: core.feed.entryOf(id),
      items: [], hasOlder: false, hasNewer: false, firstUnreadId: null, typingUsers: [], pins: [],
    });
    this.id = id;
    [this.#core, this.#at] = [core, at];
    this.#window = new Window(async (page) => (await this.#ask("PAGE", page)).conversation?.messages);
  }

  #ask(name, variables) {
    return this.#core.ask(name, { id: this.id, ...variables });
  }

  // ---- Life.

  opened() {
    const { feed, outbox, transport } = this.#core;
    this.#isHeldUnread = false;
    const stops = [
      onPage(["visibilitychange"], () => this.#markRead()),
      outbox.subscribe(() => this.#show()),
      transport.connection.subscribe(() => this.#connection(transport.connection.get().state)),
      feed.listen({
        entry: (entry) => entry.conversation.id === this.id && this.#entry(entry),
        removed: (_, conversationId) => conversationId === this.id && this.#load(),
        // Every sender has changed, and perhaps the streams have ended.
        blocked: () => this.#load(),
        anew: () => this.#return(),
      }),
    ];
    // The app shows the messages in memory meanwhile, and marks none of them as seen before they are read anew.
    this.patch({ status: "loading", entry: feed.entryOf(this.id) ?? this.get().entry });
    this.#show();
    this.#load(true);
    return stops;
  }

  closed() {
    this.#generation += 1;
    this.#unlisten();
    for (const timer of [this.#replay, this.#head, this.#reading, this.#expiry]) timer.stop();
    this.#markRead();
    this.#stopTyping();
    this.patch({ typingUsers: [] });
  }

  #unlisten() {
    for (const stop of this.#streams.splice(0)) stop();
  }

  /** Reads it anew. `isOpening`: it begins at the first unread message, or at the wanted one. */
  async #load(isOpening = false) {
    const generation = ++this.#generation;
    const isCurrent = () => generation === this.#generation && this.isOpen;
    this.#unlisten();
    let conversation;
    const read = async () => {
      ({ conversation } = await this.#ask("CONVERSATION", { first: PAGE_SIZE }));
      return isCurrent() && conversation?.messages;
    };
    try {
      await this.#core.lasting(() => this.#window.begin(read), isCurrent, (error) => isCurrent() && this.patch({ error }));
    } catch (error) {
      if (isCurrent()) this.patch({ status: "failed", error });
      return;
    }
    if (!isCurrent()) return;
    if (!conversation) return this.patch({ status: "gone" });
    const { messages: _, eventsCursor, participants, inboxEntry, pinnedMessages, ...head } = conversation;
    if (inboxEntry) this.#core.feed.learn(inboxEntry);
    this.patch({
      conversation: { ...head, participants: nodes(participants).map(({ user }) => user) },
      entry: inboxEntry, error: null, pins: pinnedMessages.edges,
      ...(isOpening && { firstUnreadId: inboxEntry?.firstUnreadMessage?.id ?? null }),
    });
    this.#listen(eventsCursor);
    const wanted = isOpening && (this.#at ?? this.get().firstUnreadId);
    this.#at = undefined;
    this.#isAtEnd = !wanted;
    if (wanted) await this.#window.around(wanted).catch(() => {});
    if (!isCurrent()) return;
    // The page is shown before the state is ready: the app then finds the first unread message in it.
    this.#show();
    this.patch({ status: "ready" });
  }

  #listen(after) {
    const { transport, documents } = this.#core;
    const generation = this.#generation;
    // The streams of a blocked conversation have ended.
    if (this.#isBlocked) return;
    this.#streams = [
      transport.subscribe({
        document: documents.EVENTS,
        variables: { id: this.id, after },
        next: ({ conversationEvents: { event, isLive } }) => this.#event(event, isLive),
        // The viewer is out of it or has blocked its other participant, or the cursor is too old.
        end: () => setTimeout(() => generation === this.#generation && this.#load(), backoff(this.#ends++)),
      }),
      transport.subscribe({
        document: documents.TYPING,
        variables: { id: this.id },
        next: ({ typingChanged: { user, isTyping } }) => this.#typing(user, isTyping),
      }),
    ];
  }

  get #isBlocked() {
    return Boolean(this.get().conversation?.directPeer?.viewerHasBlocked);
  }

  // ---- Events.

  #event(event, isLive) {
    this.#ends = 0;
    const { __typename: kind, message = event?.messageEdge?.node, pinnedMessageEdge } = event ?? {};
    if (kind === "MessageAddedEvent") this.#typing(message.sender, false);
    if (kind === "PinsChangedEvent") this.#pinned(message, pinnedMessageEdge);
    if (message) {
      this.#window.upsert(message);
      this.#refreshPin(message);
    } else if (kind === "MarkerMovedEvent") {
      if (event.participant.user.username !== this.#core.username()) this.#head.call();
    } else if (kind === "HistoryExpiredEvent") this.#load();
    else if (kind) this.#head.call();
    // The events of a replay are shown together.
    if (!isLive) return this.#replay.call();
    this.#replay.stop();
    this.#show();
  }

  #typing(user, isTyping) {
    if (user.username === this.#core.username()) return;
    const others = this.get().typingUsers.filter(({ username }) => username !== user.username);
    if (isTyping || others.length < this.get().typingUsers.length) this.patch({ typingUsers: isTyping ? [...others, user] : others });
  }

  #connection(state) {
    if (state === "connected") this.#markRead();
    else if (this.get().typingUsers.length) this.patch({ typingUsers: [] });
  }

  #entry(entry) {
    // Cleared, here or on another device.
    const isCleared = this.get().conversation && entry.visibleFrom !== this.get().entry?.visibleFrom;
    this.patch({ entry });
    if (isCleared) this.#load();
    this.#return();
  }

  /** The viewer may be in it again, or for the first time. */
  #return() {
    if (!/gone|failed/.test(this.get().status)) return;
    this.patch({ status: "loading" });
    this.#load(true);
  }

  async #readHead() {
    const { conversation } = await this.#ask("HEAD").catch(() => ({}));
    if (conversation && this.isOpen) this.updated(conversation);
  }

  /** The conversation in its current state: of its head, any fields. */
  updated(head) {
    const { conversation } = this.get();
    this.patch({ conversation: { ...conversation, ...head } });
    this.#tick();
    // Every message expires at another time now.
    if (head.messageTtlSeconds !== undefined && head.messageTtlSeconds !== conversation?.messageTtlSeconds) this.#load();
  }

  /** The ticks of the viewer's messages, up to where everybody has received and read. */
  #tick() {
    const { deliveredToAllUpTo: delivered, readByAllUpTo: read } = this.get().conversation;
    this.#window.change((message) => {
      const { orderKey, status: before, sender } = message;
      if (!before || before === "READ" || sender.username !== this.#core.username()) return message;
      const status = orderKey <= read?.orderKey ? "READ" : orderKey <= delivered?.orderKey ? "DELIVERED" : before;
      return status === before ? message : { ...message, status };
    });
    this.#show();
  }

  #expire() {
    this.#window.change((message) => (isExpired(message) ? null : message));
    this.patch({ pins: this.get().pins.filter(({ node }) => !isExpired(node)) });
    this.#show();
  }

  #pinned(message, edge) {
    const others = this.get().pins.filter(({ node }) => node.id !== message.id);
    this.patch({ pins: edge ? [edge, ...others].sort((a, b) => (a.pinnedAt < b.pinnedAt ? 1 : -1)) : others });
  }

  /** A deletion unpins without an event. */
  #refreshPin(message) {
    const pin = this.get().pins.find(({ node }) => node.id === message.id);
    if (!pin) return;
    if (message.deletedAt) this.#pinned(message, null);
    else this.patch({ pins: this.get().pins.map((other) => (other === pin ? { ...pin, node: message } : other)) });
  }

  // ---- What is shown.

  #show() {
    if (this.#isAtEnd) this.#window.trim(KEPT);
    const { messages, isLive, hasOlder } = this.#window;
    const arrived = new Set(messages.map(({ clientKey }) => clientKey).filter(Boolean));
    this.#beyond = isLive ? [] : this.#beyond.filter(({ clientKey }) => !arrived.has(clientKey));
    for (const { clientKey } of this.#beyond) arrived.add(clientKey);
    const unsent = this.#core.outbox.of(this.id).filter(({ key }) => !arrived.has(key));
    const items = [...[...messages, ...this.#beyond].map((message) => this.#item(message, sentItem)), ...unsent.map((one) => this.#item(one, (outgoing) => this.#unsentItem(outgoing)))];
    const before = this.get().items;
    const isSame = items.length === before.length && items.every((item, index) => item === before[index]);
    this.#expiry.watch([...messages, ...this.get().pins.map(({ node }) => node)]);
    if (isSame && this.get().hasOlder === hasOlder && this.get().hasNewer === !isLive) return;
    this.patch({ items: isSame ? before : items, hasOlder, hasNewer: !isLive });
  }

  /** The same object for the same message. */
  #item(source, make) {
    if (!this.#items.has(source)) this.#items.set(source, make(source));
    return this.#items.get(source);
  }

  #unsentItem({ key, input, quote, createdAt, send }) {
    const { body, replyToId, mentionedUsernames = [], mentionsEveryone = false, attachments = [], metadata = null } = input;
    const sender = this.#core.viewer() ?? { username: this.#core.username() };
    return {
      id: key, key, send, clientKey: key, orderKey: "~", kind: "TEXT", body, sender, createdAt, metadata, attachments, mentionsEveryone,
      mentions: mentionedUsernames.map((username) => ({ username })), replyTo: replyToId ? quote ?? { id: replyToId, body: "", sender: { username: "" } } : null,
      reactions: [], status: null, isPinned: false, editedAt: null, deletedAt: null, expiresAt: null,
    };
  }

  /** A message of the viewer is stored. */
  sent(message) {
    if (!this.#window.upsert(message)) this.#beyond.push(message);
    this.#show();
  }

  // ---- What the app calls.

  older = () => this.#extend(this.#window.older(), false);
  newer = () => this.#extend(this.#window.newer());
  toNewest = () => this.#extend(this.#window.newest(), true);

  async #extend(loading, isAtEnd = this.#isAtEnd) {
    this.#isAtEnd = isAtEnd;
    await loading;
    this.#show();
  }

  jump = async (messageId) => {
    this.#isAtEnd = false;
    try {
      await this.#window.around(messageId);
    } catch (error) {
      if (error.code !== "NOT_FOUND") throw error;
    }
    this.#show();
    return Boolean(this.#window.find(messageId));
  };

  send = (body, { mentions, everyone, replyTo, attachments, metadata } = {}) => {
    this.#stopTyping(false);
    const quote = this.#window.find(replyTo);
    const input = { body, replyToId: replyTo, mentionedUsernames: mentions, mentionsEveryone: everyone, attachments, metadata };
    return this.#core.outbox.add(this.id, input, quote && { id: quote.id, body: quote.body, deletedAt: quote.deletedAt, sender: quote.sender });
  };

  retry = (key) => this.#core.outbox.retry(key);
  discard = (key) => this.#core.outbox.discard(key);

  edit = (messageId, body, { usernames, everyone } = {}) =>
    this.#do("editMessage", { messageId, body, mentionedUsernames: usernames, mentionsEveryone: everyone });
  delete = (messageId) => this.#do("deleteMessage", { messageId });

  /** Shown at once, and taken back if the server refuses it. */
  react = async (messageId, emoji, on = true) => {
    const before = this.#window.find(messageId);
    const guess = before && { ...before, reactions: withReaction(before.reactions, emoji, on) };
    if (guess) this.#window.change((message) => (message === before ? guess : message));
    this.#show();
    try {
      await this.#do(on ? "addReaction" : "removeReaction", { messageId, emoji });
    } catch (error) {
      this.#window.change((message) => (message === guess ? before : message));
      this.#show();
      throw error;
    }
  };

  pin = async (messageId, on = true) => {
    const { message, pinnedMessageEdge } = await this.#do(on ? "pinMessage" : "unpinMessage", { messageId });
    this.#pinned(message, pinnedMessageEdge);
  };

  async #do(name, input) {
    const payload = await this.#core.change(name, input);
    this.#window.upsert(payload.message);
    this.#refreshPin(payload.message);
    this.#show();
    return payload;
  }

  typing = () => {
    clearTimeout(this.#typingTimer);
    this.#typingTimer = setTimeout(() => this.#stopTyping(), TYPING_ENDS);
    if (Date.now() - this.#typedAt < TYPING_EVERY) return;
    this.#typedAt = Date.now();
    this.#tellTyping(true);
  };

  #tellTyping(typing) {
    this.#core.change("setTyping", { conversationId: this.id, typing }).catch(() => {});
  }

  /** The server also ends it by itself: after a message, and after a while. */
  #stopTyping(tells = true) {
    clearTimeout(this.#typingTimer);
    if (this.#typedAt && tells) this.#tellTyping(false);
    this.#typedAt = 0;
  }

  seen = (messageId) => {
    this.#isAtEnd = messageId === this.#window.messages.at(-1)?.id;
    const message = this.#window.find(messageId);
    if (!message || this.#isHeldUnread || message.orderKey <= (this.#seen?.orderKey ?? this.#marked)) return;
    this.#seen = message;
    if (Date.now() - this.#markedAt > SEEN_EVERY) this.#markRead();
    else this.#reading.call();
  };

  async #markRead() {
    const seen = this.#seen;
    if (!seen || isHidden() || this.#isBlocked) return;
    const before = this.#marked;
    [this.#seen, this.#marked, this.#markedAt] = [null, seen.orderKey, Date.now()];
    try {
      await this.#core.change("markRead", { conversationId: this.id, messageId: seen.id });
    } catch {
      // The next connection, and the next call, try again.
      this.#marked = before;
      this.#seen ??= seen;
    }
  }

  /** It stays unread until the conversation is opened again. */
  markUnread = async (messageId) => {
    [this.#isHeldUnread, this.#seen, this.#marked] = [true, null, ""];
    await this.#core.change("markUnread", { conversationId: this.id, messageId });
  };

  /** Other participants whose username begins with the prefix. */
  people = async (prefix) => {
    const { conversation } = await this.#ask("PARTICIPANTS", { prefix });
    return nodes(conversation?.participants).map(({ user }) => user).filter(({ username }) => username !== this.#core.username());
  };

  draft = {
    get: () => this.#core.kept.get(`draft ${this.id}`) ?? "",
    set: (text) => this.#core.kept.set(`draft ${this.id}`, text || undefined),
  };
}

const sentItem = (message) => ({ ...message, key: message.clientKey ?? message.id, send: null });

function withReaction(reactions, emoji, on) {
  const own = reactions.find((reaction) => reaction.emoji === emoji);
  if (Boolean(own?.viewerHasReacted) === on) return reactions;
  if (!own) return [...reactions, { emoji, count: 1, countIsCapped: false, viewerHasReacted: true }];
  return reactions
    .map((reaction) => (reaction === own ? { ...own, count: own.count + (on ? 1 : -1), viewerHasReacted: on } : reaction))
    .filter(({ count }) => count > 0);
}

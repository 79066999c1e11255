// One conversation: its messages in order, older ones as one scrolls up, and everything that happens in it, live. The position of the
// event stream is read together with the first page, so nothing falls between them, and after a cut the stream goes on from its cursor.

import { Composer } from "./composer.js";
import * as documents from "./documents.js";
import { avatar, dayKey, dayName, el, icon, nameOf, orderKey, part, replaceItems, shortTime, titleOf, titleParts } from "./dom.js";
import { openMenu } from "./menu.js";
import { drawMessage, drawWaiting, isRun, lineOf } from "./message.js";
import { Scroll } from "./scroll.js";

const PAGE = 30;
const PAGE_MOST = 100;
const STATUSES_MOST = 50;

export class Room {
  #api;
  #outbox;
  #viewer;
  #id;
  #on;
  #conversation;
  #composer;
  #scroll;
  #messages = [];
  #nodes = new Map();
  #pageInfo = { hasNextPage: false };
  #isLoadingOlder = false;
  #firstUnread = null;
  #newCount = 0;
  #markedKey = "";
  #typing = new Map();
  #stops = [];
  #statusTimer;
  #listening = new AbortController();

  /** `on`: read(conversationId), announce(words), presence(username). */
  constructor({ api, outbox, viewer, conversationId, draft, on }) {
    Object.assign(this, { draft });
    [this.#api, this.#outbox, this.#viewer, this.#id, this.#on] = [api, outbox, viewer, conversationId, on];
    const { signal } = this.#listening;
    this.#scroll = new Scroll(part("scroller"), part("list"), signal);
    part("scroller").addEventListener("scroll", () => this.#scrolled(), { signal, passive: true });
    part("list").addEventListener("keydown", (event) => this.#walk(event), { signal });
    part("pill").addEventListener("click", () => this.#scroll.toEnd(), { signal });
    document.addEventListener("visibilitychange", () => this.#markRead(), { signal });
    this.#load();
  }

  /** Lets go of everything; gives what was being written. */
  close() {
    this.#listening.abort();
    clearTimeout(this.#statusTimer);
    for (const stop of this.#stops) stop();
    part("list").replaceChildren();
    part("typing").replaceChildren();
    part("pill").hidden = true;
    return this.#composer?.close() ?? this.draft;
  }

  get id() {
    return this.#id;
  }

  get #isClosed() {
    return this.#listening.signal.aborted;
  }

  // ---- Loading.

  async #load(size = PAGE) {
    for (const stop of this.#stops.splice(0)) stop();
    if (!this.#conversation) this.#showSkeleton();
    let conversation;
    try {
      ({ conversation } = await this.#api.ask(documents.ROOM, { id: this.#id, first: size }));
    } catch (error) {
      return this.#isClosed || this.#fail(error.message);
    }
    if (this.#isClosed) return;
    if (!conversation) return this.#fail("There is no such conversation, or you are not in it.");
    const { firstUnreadMessage, unreadCount } = conversation.inboxEntry ?? {};
    const nodes = conversation.messages.edges.map(({ node }) => node);
    // So that the first unread message is there to be scrolled to.
    if (firstUnreadMessage && size === PAGE && unreadCount >= PAGE - 10) return this.#load(Math.min(PAGE_MOST, unreadCount + 20));
    this.#conversation = conversation;
    this.#messages = [];
    this.#pageInfo = conversation.messages.pageInfo;
    this.#firstUnread ??= firstUnreadMessage?.id ?? null;
    this.#insert(nodes);
    this.#showHead();
    this.#composer ??= this.#newComposer();
    this.#render();
    this.#scroll.toEnd();
    if (part("unread")) this.#scroll.to(part("unread"));
    this.#scrolled();
    this.#listen(conversation.eventsCursor);
  }

  #newComposer() {
    return new Composer({
      send: (body, replyTo) => {
        this.#firstUnread = null;
        this.#outbox.send(this.#id, body, replyTo);
        this.#scroll.toEnd();
      },
      edit: (message, body) => this.#do(documents.EDIT, { messageId: message.id, body }),
      typing: (typing) => this.#api.ask(documents.SET_TYPING, { input: { conversationId: this.#id, typing } }).catch(() => {}),
      lastOwn: () => this.#messages.findLast((message) => this.#isOwn(message) && message.kind === "TEXT" && !message.deletedAt),
      problem: (words) => this.#say(words),
    }, this.draft);
  }

  #showSkeleton() {
    part("list").replaceChildren(...Array.from({ length: 7 }, (_, index) =>
      el("li", { class: `skeleton${index % 3 ? "" : " own"}`, "aria-hidden": "true" })));
  }

  #fail(words) {
    part("list").replaceChildren(el("li", { class: "empty" }, `${words} `,
      el("button", { class: "quiet", type: "button", onclick: () => this.#load() }, "Try again")));
  }

  async #loadOlder() {
    if (this.#isLoadingOlder || !this.#pageInfo.hasNextPage) return;
    this.#isLoadingOlder = true;
    try {
      const { conversation } = await this.#api.ask(documents.OLDER, { id: this.#id, after: this.#pageInfo.endCursor });
      if (this.#isClosed || !conversation) return;
      this.#pageInfo = conversation.messages.pageInfo;
      this.#insert(conversation.messages.edges.map(({ node }) => node));
      this.#render();
    } catch {
      // The next scroll asks again.
    } finally {
      this.#isLoadingOlder = false;
    }
  }

  // ---- What is known.

  #isOwn(message) {
    return message.sender.username === this.#viewer;
  }

  /** Each once, in the order of their ids. */
  #insert(messages) {
    const known = new Map(this.#messages.map((message) => [message.id, message]));
    for (const message of messages) known.set(message.id, { ...message, key: orderKey(message.uuid) });
    this.#messages = [...known.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  /** One that lies above what is loaded is left to the scrolling. */
  #upsert(message) {
    const oldest = this.#messages[0];
    if (this.#pageInfo.hasNextPage && oldest && orderKey(message.uuid) < oldest.key) return;
    this.#insert([message]);
    this.#render();
  }

  /** The server has it: from here or from the stream, whichever is first. */
  sent(message) {
    this.#upsert(message);
  }

  /** Something that waits has changed. */
  refresh() {
    if (this.#conversation) this.#render();
  }

  /** The socket is gone: who was typing is not known any more. */
  offline() {
    this.#typing.clear();
    this.#showTyping();
    if (!this.#conversation) return;
    if (this.#conversation.directPeer) this.#conversation.directPeer.presence = null;
    this.#showHead();
  }

  wake() {
    if (!this.#conversation) this.#load();
    else this.#markRead();
  }

  // ---- What happens.

  #listen(after) {
    const id = this.#id;
    this.#stops.push(
      this.#api.subscribe({
        query: documents.EVENTS,
        variables: { id, after },
        next: ({ event }) => event && this.#hear(event),
        end: (error) => this.#ended(error),
      }),
      this.#api.subscribe({ query: documents.TYPING, variables: { id }, next: (payload) => this.#hearTyping(payload) }),
    );
  }

  #ended(error) {
    // Away for longer than the server remembers: read anew.
    if (error?.code === "CURSOR_EXPIRED") return this.#load();
    this.#composer.enable(false);
    this.#say("You are no longer in this conversation.");
  }

  #hear(event) {
    const message = event.messageEdge?.node ?? event.message;
    if (event.__typename === "MessageAddedEvent") this.#added(message);
    else if (message) this.#upsert(message);
    else if (event.__typename === "MarkerMovedEvent") this.#markersMoved(event.participant);
    else if (event.__typename === "ConversationRenamedEvent") Object.assign(this.#conversation, event.conversation);
    this.#showHead();
  }

  #added(message) {
    const isKnown = this.#messages.some(({ id }) => id === message.id);
    this.#typing.delete(message.sender.username);
    this.#showTyping();
    if (!isKnown && !this.#isOwn(message)) {
      this.#on.announce(`${nameOf(message.sender)}: ${lineOf(message)}`);
      if (!this.#scroll.isAtBottom) this.#newCount += 1;
    }
    this.#upsert(message);
    this.#showPill();
    this.#markRead();
  }

  /** What a marker means for each message is the server's to say. */
  #markersMoved({ user }) {
    if (user.username === this.#viewer) return;
    clearTimeout(this.#statusTimer);
    this.#statusTimer = setTimeout(async () => {
      const open = this.#messages.filter((message) => this.#isOwn(message) && message.status && message.status !== "READ");
      const ids = open.slice(-STATUSES_MOST).map(({ id }) => id);
      if (!ids.length) return;
      const answer = await this.#api.ask(documents.STATUSES, { ids }).catch(() => ({ nodes: [] }));
      const statuses = new Map(answer.nodes.filter(Boolean).map(({ id, status }) => [id, status]));
      this.#messages = this.#messages.map((message) => (statuses.has(message.id) ? { ...message, status: statuses.get(message.id) } : message));
      if (!this.#isClosed) this.#render();
    }, 120);
  }

  #hearTyping({ user, isTyping }) {
    if (user.username === this.#viewer) return;
    if (isTyping) this.#typing.set(user.username, nameOf(user));
    else this.#typing.delete(user.username);
    this.#showTyping();
  }

  #markRead() {
    const newest = this.#messages.at(-1);
    if (!newest || document.hidden || !this.#scroll.isAtBottom || newest.key <= this.#markedKey) return;
    const before = this.#markedKey;
    this.#markedKey = newest.key;
    this.#on.read(this.#id);
    this.#api.ask(documents.MARK_READ, { input: { conversationId: this.#id, messageId: newest.id } }).catch(() => {
      this.#markedKey = before;
    });
  }

  // ---- What one does to a message.

  async #do(document, input) {
    try {
      const answer = await this.#api.ask(document, { input });
      this.#say("");
      if (!this.#isClosed) this.#upsert(Object.values(answer)[0].message);
    } catch (error) {
      this.#say(error.code === "OFFLINE" ? "You are offline. Try again when you are back." : error.message);
    }
  }

  #react(message, emoji, isWanted) {
    return this.#do(isWanted ? documents.REACT : documents.UNREACT, { messageId: message.id, emoji });
  }

  #menu(message, button) {
    const items = [{ label: "Reply", run: () => this.#composer.reply(message) }];
    if (this.#isOwn(message)) {
      items.push(
        { label: "Edit", run: () => this.#composer.edit(message) },
        { label: "Delete", asks: "Delete for everyone?", run: () => this.#do(documents.DELETE, { messageId: message.id }) },
      );
    }
    const mine = (emoji) => message.reactions.some((reaction) => reaction.emoji === emoji && reaction.viewerHasReacted);
    openMenu(button, { react: (emoji) => this.#react(message, emoji, !mine(emoji)), items });
  }

  #quoted(id) {
    const node = this.#scroll.find(id);
    if (!node) return this.#say("That message is further up.");
    this.#scroll.to(node, true);
    node.classList.add("found");
    setTimeout(() => node.classList.remove("found"), 1_500);
  }

  /** The arrows walk the messages; only one of them is in the order of Tab. */
  #walk(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const buttons = [...part("list").querySelectorAll(".more")];
    const at = buttons.indexOf(event.target.closest(".message")?.querySelector(".more"));
    const to = buttons[at + step];
    if (!step || at < 0) return;
    event.preventDefault();
    if (!to) return step > 0 && part("text").focus();
    to.focus();
  }

  // ---- What is shown.

  #say(words) {
    part("room-problem").textContent = words;
  }

  #showHead() {
    const { kind, participants, participantCount, directPeer } = this.#conversation;
    const title = titleOf(this.#conversation, this.#viewer);
    const presence = directPeer && (this.#on.presence(directPeer.username) ?? directPeer.presence);
    const names = participants.edges.map(({ node }) => (node.user.username === this.#viewer ? "you" : nameOf(node.user)));
    const rest = participantCount - names.length;
    let state = rest > 0 ? `${participantCount} people` : names.join(", ");
    if (kind === "DIRECT") state = presence?.isOnline ? "online" : presence?.lastSeenAt ? `last seen ${shortTime(presence.lastSeenAt)}` : "";
    part("room-title").replaceChildren(...titleParts(this.#conversation, this.#viewer).filter(Boolean));
    part("room-avatar").replaceChildren(avatar(title, presence?.isOnline));
    part("room-state").textContent = state;
  }

  /** Somebody came or went. */
  presenceChanged() {
    if (this.#conversation) this.#showHead();
  }

  #showTyping() {
    const names = [...this.#typing.values()];
    const words = names.length > 2 ? "Several people are typing" : `${names.join(" and ")} ${names.length > 1 ? "are" : "is"} typing`;
    part("typing").replaceChildren(...(names.length ? [el("span", { class: "dots", "aria-hidden": "true" }, el("i"), el("i"), el("i")), words] : []));
  }

  #showPill() {
    if (this.#scroll.isAtBottom) this.#newCount = 0;
    part("pill").hidden = !this.#newCount && !this.#scroll.isFar;
    part("pill").replaceChildren(icon("down"), this.#newCount ? `${this.#newCount} new` : el("span", { class: "sr" }, "To the newest message"));
  }

  #render() {
    const focused = document.activeElement?.closest?.("#list [data-id]")?.dataset.id;
    const arrived = new Set(this.#messages.map(({ clientKey }) => clientKey));
    const waiting = this.#outbox.of(this.#id).filter(({ key }) => !arrived.has(key));
    this.#scroll.around(() => replaceItems(part("list"), this.#items(waiting)));
    const buttons = part("list").querySelectorAll(".more");
    buttons.forEach((button, index) => { button.tabIndex = index === buttons.length - 1 ? 0 : -1; });
    if (focused && !document.activeElement?.closest?.("#list")) this.#scroll.find(focused)?.querySelector(".more")?.focus({ preventScroll: true });
    this.#showPill();
  }

  #scrolled() {
    if (this.#scroll.isNearTop) this.#loadOlder();
    this.#showPill();
    this.#markRead();
  }

  #items(waiting) {
    const items = [];
    const on = {
      react: (message, emoji, isWanted) => this.#react(message, emoji, isWanted),
      menu: (message, button) => this.#menu(message, button),
      quote: (id) => this.#quoted(id),
      again: (message) => this.#outbox.again(message),
      discard: (message) => this.#outbox.discard(message),
    };
    const isGroup = this.#conversation.kind === "GROUP";
    const self = { username: this.#viewer };
    const all = [...this.#messages, ...waiting.map((message) => ({ ...message, id: message.key, kind: "TEXT", sender: self, waiting: message }))];
    all.forEach((message, index) => {
      const before = all[index - 1];
      const isNewDay = !before || dayKey(before.createdAt) !== dayKey(message.createdAt);
      const isFirstUnread = message.id === this.#firstUnread;
      if (isNewDay) items.push(this.#kept(`day ${dayKey(message.createdAt)}`, dayName(message.createdAt), (name) => el("li", { class: "day" }, el("span", {}, name))));
      if (isFirstUnread) items.push(this.#kept("unread", "", () => el("li", { class: "unread", id: "unread" }, el("span", {}, "New messages"))));
      const look = {
        isOwn: this.#isOwn(message), isGroup, startsRun: isFirstUnread || !isRun(before, message),
        endsRun: !isRun(message, all[index + 1] ?? { kind: "" }) || all[index + 1].id === this.#firstUnread,
      };
      const draw = message.waiting ? () => drawWaiting(message.waiting, look, on) : () => drawMessage(message, look, on);
      items.push(this.#kept(message.id, JSON.stringify([message, look]), draw));
    });
    if (!items.length) items.push(this.#kept("empty", "", () => el("li", { class: "empty" }, "No messages yet. Say hello.")));
    return items;
  }

  /** The node from before, where nothing of it has changed. */
  #kept(key, signature, draw) {
    const known = this.#nodes.get(key);
    if (known?.signature === signature) return known.node;
    const node = draw(signature);
    this.#nodes.set(key, { signature, node });
    return node;
  }
}

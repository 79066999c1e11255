// One conversation: its messages in order, and everything that happens in it, live. The position of the event stream is read together
// with the first page, so nothing falls between them, and after a cut the stream goes on from its cursor.

import { Actions } from "./actions.js";
import { Composer } from "./composer.js";
import * as documents from "./documents.js";
import { el, icon, nameOf, part, replaceItems } from "./dom.js";
import { ExpiryTimer, isExpired } from "./expiry.js";
import { Finder } from "./finder.js";
import { RoomHead } from "./head.js";
import { History } from "./history.js";
import { Log } from "./log.js";
import { Marks } from "./marks.js";
import { UnreadMentions } from "./mention-jump.js";
import { lineOf } from "./message.js";
import { People } from "./people.js";
import { PinBar } from "./pins.js";
import { Scroll } from "./scroll.js";
import { TypingLine } from "./typing.js";

const PAGE = 30;
const FOUND_TIME = 2_000;
/** A conversation is large once it has had more participants: then its admins alone pin and mention everyone. */
const SMALL_MOST = 32;

export class Room {
  #api;
  #outbox;
  #viewer;
  #id;
  #on;
  #conversation;
  #composer;
  #scroll;
  #head;
  #pins;
  #finder;
  #mentions;
  #history;
  #log;
  #actions;
  #known;
  #firstUnread = null;
  #newCount = 0;
  #marks;
  #typing;
  #stops = [];
  #visibleFrom = null;
  #expiry = new ExpiryTimer(() => this.#expire());
  #listening = new AbortController();

  /**
   * `on`: read(conversationId), announce(words), presence(username), block(username, isBlocked), a promise, cleared(entry), gone().
   * `messageId`: the message to begin at, or nothing.
   */
  constructor({ api, outbox, viewer, conversationId, messageId, draft, on }) {
    Object.assign(this, { draft });
    [this.#api, this.#outbox, this.#viewer, this.#id, this.#on] = [api, outbox, viewer, conversationId, on];
    const { signal } = this.#listening;
    this.#scroll = new Scroll(part("scroller"), part("list"), signal);
    part("scroller").addEventListener("scroll", () => this.#scrolled(), { signal, passive: true });
    part("list").addEventListener("keydown", (event) => this.#walk(event), { signal });
    part("pill").addEventListener("click", () => this.#toEnd(), { signal });
    this.#typing = new TypingLine(viewer);
    this.#log = this.#newLog();
    this.#known = new People(api, conversationId, viewer);
    this.#actions = this.#newActions();
    this.#history = new History(api, conversationId);
    this.#head = new RoomHead({ viewer, signal, on: { search: () => this.#finder.open(), menu: (button) => this.#actions.conversationMenu(button), presence: on.presence } });
    this.#pins = new PinBar((id) => this.jump(id), signal);
    this.#finder = new Finder({ api, conversationId, viewer, signal });
    this.#mentions = new UnreadMentions({ api, conversationId, viewer, jump: (id) => this.jump(id), signal });
    this.#marks = new Marks({
      api, conversationId, viewer, history: this.#history, signal,
      on: {
        read: () => { on.read(conversationId); this.#mentions.set(null); },
        statuses: () => this.#isClosed || this.#render(),
      },
    });
    part("notice-undo").addEventListener("click", () => this.#actions.block(this.#conversation.directPeer.username, false), { signal });
    document.addEventListener("visibilitychange", () => this.#markRead(), { signal });
    this.#load(messageId);
  }

  /** Lets go of everything; gives what was being written. */
  close() {
    this.#listening.abort();
    this.#expiry.stop();
    for (const stop of this.#stops) stop();
    part("list").replaceChildren();
    this.#typing.clear();
    for (const id of ["pill", "pins", "notice"]) part(id).hidden = true;
    return this.#composer?.close() ?? this.draft;
  }

  get id() {
    return this.#id;
  }

  get #isClosed() {
    return this.#listening.signal.aborted;
  }

  // ---- Loading.

  async #load(messageId) {
    for (const stop of this.#stops.splice(0)) stop();
    if (!this.#conversation) this.#showSkeleton();
    let conversation;
    try {
      ({ conversation } = await this.#api.ask(documents.ROOM, { id: this.#id, first: PAGE }));
    } catch (error) {
      return this.#isClosed || this.#fail(error.message);
    }
    if (this.#isClosed) return;
    if (!conversation) return this.#fail("There is no such conversation, or you are not in it.");
    this.#conversation = conversation;
    this.#visibleFrom = conversation.inboxEntry?.visibleFrom ?? null;
    this.#history.begin(conversation.messages);
    this.#firstUnread ??= conversation.inboxEntry?.firstUnreadMessage?.id ?? null;
    this.#known.learn(conversation.participants.edges.map(({ node }) => node.user));
    this.#known.mayMentionEveryone = conversation.kind === "GROUP" && this.#mayLead;
    this.#pins.set(conversation.pinnedMessages.edges);
    this.#composer ??= this.#newComposer();
    this.#showHead();
    this.#listen(conversation.eventsCursor);
    // The first unread message is there to be scrolled to, however many follow it.
    if (!messageId && this.#firstUnread && !this.#history.has(this.#firstUnread)) await this.#history.around(this.#firstUnread).catch(() => {});
    if (this.#isClosed) return;
    this.#render();
    this.#scroll.toEnd();
    if (part("unread")) this.#scroll.to(part("unread"));
    if (messageId) await this.jump(messageId);
    this.entryChanged(conversation.inboxEntry);
    this.#scrolled();
  }

  #newActions() {
    return new Actions(this.#api, this.#viewer, {
      conversation: () => this.#conversation,
      mayLead: () => this.#mayLead,
      isBlocked: () => this.#isBlocked,
      changed: (message) => this.#isClosed || this.#changed(message),
      pinned: (message, edge) => this.#isClosed || this.#pinned(message, edge),
      updated: (conversation) => this.#isClosed || this.#updated(conversation),
      cleared: (entry) => { this.#on.cleared(entry); this.entryChanged(entry); },
      problem: (words) => this.#isClosed || this.#say(words),
      block: this.#on.block,
      reply: (message) => this.#composer.reply(message),
      edit: (message) => this.#composer.edit(message),
      search: (kind) => this.#finder.open(kind),
    });
  }

  #newLog() {
    return new Log(this.#viewer, {
      react: (message, emoji, isWanted) => this.#actions.react(message, emoji, isWanted),
      menu: (message, button) => this.#actions.messageMenu(message, button),
      quote: (id) => this.jump(id),
      again: (message) => this.#outbox.again(message),
      discard: (message) => this.#outbox.discard(message),
      unfolded: () => this.#render(),
    });
  }

  #newComposer() {
    return new Composer({
      send: (body, replyTo, mentions) => {
        this.#firstUnread = null;
        this.#outbox.send(this.#id, body, replyTo, mentions);
        this.#toEnd();
      },
      edit: (message, body, mentions) => this.#actions.edit(message, body, mentions),
      find: (prefix) => this.#known.find(prefix),
      usernames: () => this.#known.usernames,
      typing: (typing) => this.#api.ask(documents.SET_TYPING, { input: { conversationId: this.#id, typing } }).catch(() => {}),
      lastOwn: () => this.#lastOwn(),
      problem: (words) => this.#say(words),
    }, this.draft);
  }

  /** The viewer's newest message. None while a newer one is on its way, as an edit would meet the one before. */
  #lastOwn() {
    if (this.#waiting().some(({ failure }) => !failure)) return null;
    return this.#history.messages.findLast((message) => this.#isOwn(message) && message.kind === "TEXT" && !message.deletedAt);
  }

  /** Messages of the viewer that have not arrived. */
  #waiting() {
    const arrived = new Set(this.#history.messages.map(({ clientKey }) => clientKey));
    return this.#outbox.of(this.#id).filter(({ key }) => !arrived.has(key));
  }

  #showSkeleton() {
    part("list").replaceChildren(...Array.from({ length: 7 }, (_, index) =>
      el("li", { class: `skeleton${index % 3 ? "" : " own"}`, "aria-hidden": "true" })));
  }

  #fail(words) {
    part("list").replaceChildren(el("li", { class: "empty" }, `${words} `,
      el("button", { class: "quiet", type: "button", onclick: () => this.#load() }, "Try again")));
  }

  /** Older or newer messages, and what one reads stays where it is. */
  async #loadMore(direction) {
    const isChanged = await this.#history[direction]();
    if (isChanged && !this.#isClosed) this.#render();
  }

  /** Scrolls to a message and marks it for a moment, however old it is. */
  async jump(id) {
    if (!this.#conversation) return;
    try {
      if (!this.#history.has(id)) {
        await this.#history.around(id);
        if (this.#isClosed) return;
        this.#render();
      }
    } catch (error) {
      if (error.code !== "NOT_FOUND") return this.#actions.failed(error);
    }
    const node = this.#scroll.find(id);
    if (!node) return this.#say("That message is no longer there.");
    this.#say("");
    this.#scroll.to(node, true);
    node.classList.add("found");
    setTimeout(() => node.classList.remove("found"), FOUND_TIME);
    (node.querySelector(".more") ?? part("scroller")).focus({ preventScroll: true });
    this.#showPill();
  }

  async #toEnd() {
    try {
      if (!this.#history.isLive && await this.#history.newest() && !this.#isClosed) this.#render();
    } catch (error) {
      return this.#actions.failed(error);
    }
    this.#scroll.toEnd();
  }

  // ---- What is known.

  #isOwn(message) {
    return message.sender.username === this.#viewer;
  }

  get #mayLead() {
    const { participantCount, viewerParticipant } = this.#conversation;
    return participantCount <= SMALL_MOST || viewerParticipant?.role !== "MEMBER";
  }

  #upsert(message) {
    this.#history.upsert(message);
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
      this.#typing.listen(this.#api, id),
    );
  }

  #ended(error) {
    // Away for longer than the server remembers: read anew.
    if (error?.code === "CURSOR_EXPIRED") return this.#load();
    this.removed(!error);
  }

  /**
   * The conversation has left the inbox, or its stream has ended: the viewer is no longer in it, or has blocked its other participant.
   * Otherwise a stream that has ended without an error begins anew.
   */
  async removed(beginsAnew = false) {
    let conversation;
    try {
      ({ conversation } = await this.#api.ask(documents.CONVERSATION, { id: this.#id }));
    } catch {
      return;
    }
    if (this.#isClosed || !this.#conversation) return;
    if (!conversation) this.#on.gone();
    else if (conversation.directPeer?.viewerHasBlocked) this.blockChanged(conversation.directPeer);
    else if (beginsAnew) this.#load();
  }

  /** The viewer has blocked a user, or has ended it: here, or on another device. */
  blockChanged({ username, viewerHasBlocked }) {
    if (!this.#conversation) return;
    const { directPeer } = this.#conversation;
    const change = (user) => (user?.username === username ? { ...user, viewerHasBlocked } : user);
    this.#history.change((message) => ({
      ...message, sender: change(message.sender), replyTo: message.replyTo && { ...message.replyTo, sender: change(message.replyTo.sender) },
    }));
    this.#pins.changeSender(change);
    if (directPeer?.username === username && directPeer.viewerHasBlocked !== viewerHasBlocked) {
      this.#conversation.directPeer = change(directPeer);
      // The streams of a blocked conversation have ended.
      if (!viewerHasBlocked) return this.#load();
    }
    this.#showHead();
    this.#render();
  }

  /** The viewer's inbox entry has changed: of it, the unread mentions. */
  entryChanged(entry) {
    // Cleared, here or on another device.
    if (this.#conversation && entry && entry.visibleFrom !== this.#visibleFrom) return this.#load();
    this.#mentions.set(entry);
    this.#showPill();
  }

  /** An expiry takes the past too: every message expires at another time now. */
  #updated(conversation) {
    const isOther = conversation.messageTtlSeconds !== this.#conversation.messageTtlSeconds;
    Object.assign(this.#conversation, conversation);
    if (isOther) this.#load();
    else this.#showHead();
  }

  /** Drops the messages whose time has come: no event says so. */
  #expire() {
    this.#history.change((message) => (isExpired(message) ? null : message));
    this.#pins.keep((message) => !isExpired(message));
    this.#render();
  }

  #hear(event) {
    const message = event.messageEdge?.node ?? event.message;
    if (event.__typename === "MessageAddedEvent") this.#added(message);
    else if (event.__typename === "PinsChangedEvent") this.#pinned(message, event.pinnedMessageEdge);
    else if (message) this.#changed(message);
    else if (event.__typename === "MarkerMovedEvent") this.#marks.moved(event.participant);
    else if (event.__typename === "HistoryExpiredEvent") this.#load();
    else if (event.__typename === "ConversationUpdatedEvent") this.#updated(event.conversation);
    else if (event.__typename === "ConversationRenamedEvent") Object.assign(this.#conversation, event.conversation);
    this.#showHead();
  }

  #added(message) {
    const isNew = this.#history.isNew(message);
    this.#typing.ended(message.sender.username);
    if (isNew && !this.#isOwn(message) && !message.sender.viewerHasBlocked) {
      this.#on.announce(`${nameOf(message.sender)}: ${lineOf(message)}`);
      if (!this.#isAtEnd) this.#newCount += 1;
    }
    this.#upsert(message);
    this.#showPill();
    this.#markRead();
  }

  #changed(message) {
    this.#pins.refresh(message);
    this.#upsert(message);
  }

  #pinned(message, edge) {
    this.#pins.changed(message, edge);
    this.#upsert(message);
  }

  get #isAtEnd() {
    return this.#history.isLive && this.#scroll.isAtBottom;
  }

  #markRead() {
    if (!document.hidden && this.#isAtEnd && !this.#isBlocked) this.#marks.read();
  }

  // ---- What is shown.

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

  #say(words) {
    part("room-problem").textContent = words;
  }

  get #isBlocked() {
    return Boolean(this.#conversation?.directPeer?.viewerHasBlocked);
  }

  #showHead() {
    const { directPeer } = this.#conversation;
    this.#head.show(this.#conversation);
    part("notice").hidden = !this.#isBlocked;
    if (this.#isBlocked) part("notice-text").textContent = `You have blocked ${nameOf(directPeer)}: no messages come or go.`;
    this.#composer.enable(!this.#isBlocked);
  }

  /** Somebody came or went. */
  presenceChanged() {
    if (this.#conversation) this.#showHead();
  }

  #showPill() {
    if (this.#isAtEnd) this.#newCount = 0;
    this.#mentions.show(!this.#isAtEnd);
    part("pill").hidden = !this.#newCount && !this.#scroll.isFar && this.#history.isLive;
    part("pill").replaceChildren(icon("down"), this.#newCount ? `${this.#newCount} new` : el("span", { class: "sr" }, "To the newest message"));
  }

  #render() {
    const focused = document.activeElement?.closest?.("#list [data-id]")?.dataset.id;
    this.#scroll.around(() => replaceItems(part("list"), this.#log.draw({
      messages: this.#history.messages,
      waiting: this.#history.isLive ? this.#waiting() : [],
      isGroup: this.#conversation.kind === "GROUP",
      firstUnread: this.#firstUnread,
    })));
    this.#scroll.sticks = this.#history.isLive;
    this.#expiry.set(this.#history.messages.map(({ expiresAt }) => expiresAt));
    const buttons = part("list").querySelectorAll(".more");
    buttons.forEach((button, index) => { button.tabIndex = index === buttons.length - 1 ? 0 : -1; });
    if (focused && !document.activeElement?.closest?.("#list")) this.#scroll.find(focused)?.querySelector(".more")?.focus({ preventScroll: true });
    this.#showPill();
  }

  #scrolled() {
    if (this.#scroll.isNearTop) this.#loadMore("older");
    if (this.#scroll.isNearBottom) this.#loadMore("newer");
    this.#showPill();
    this.#markRead();
  }
}

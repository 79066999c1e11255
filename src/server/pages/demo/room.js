// One conversation as elements. The package keeps its messages, whether the server is there or not; this draws them, says what has been
// seen, and keeps the reader where they are.

import { liveMessages } from "../../client/live.js";
import { Actions } from "./actions.js";
import { Composer } from "./composer.js";
import { el, icon, part, replaceItems } from "./dom.js";
import { spanOf, untilOf } from "./expiry.js";
import { PinBar, RoomHead } from "./head.js";
import { LiveBubbles, showTyping } from "./live.js";
import { Log } from "./log.js";
import { EVERYONE, EVERYONE_USER, UnreadMentions } from "./mentions.js";
import { lineOf } from "./message.js";
import { learn, nameOf } from "./names.js";
import { onHold } from "./press.js";
import { FloatingDay, Scroll, Walk } from "./scroll.js";
import { Finder } from "./search.js";
import { Sheet } from "./sheet.js";

/** Order keys of the newest messages that were seen, by conversation. */
const seenUpTo = new Map();
const FOUND_TIME = 2_000;
const PICKED_MOST = 9;
/** A conversation is large once it has had more participants: then its admins alone pin and mention everyone. */
const SMALL_MOST = 32;

export class Room {
  #chat;
  #store;
  #viewer;
  #on;
  #composer;
  #scroll;
  #head;
  #pins;
  #finder;
  #mentions;
  #log;
  #lives;
  #bubbles;
  #wereLive = new Set();
  /** Keys of what was written here, until it is stored. */
  #written = new Set();
  #actions;
  #sheet;
  #walk;
  #known = new Map();
  /** Whether it has been shown at its beginning: the first unread message, or the end. */
  #isPlaced = false;
  /** Whether the line before the first unread message stands. */
  #hasUnreadLine = true;
  /** The first unread message of a conversation that has stayed open for a while, and so is not read anew. */
  #firstUnreadId;
  #newest = "";
  #ticking;
  #stop;
  #listening = new AbortController();

  /** `on`: announce(words), presence(username), block(username, isBlocked), a promise, status(message), sent(conversation, message), gone(). `messageId`: the message to begin at, or nothing. */
  constructor({ chat, viewer, conversationId, messageId, on }) {
    [this.#chat, this.#viewer, this.#on, this.#store] = [chat, viewer, on, chat.conversation(conversationId)];
    const { signal } = this.#listening;
    this.#scroll = new Scroll(part("scroller"), part("list"), signal);
    new FloatingDay(part("scroller"), part("list"), part("day"), signal);
    part("scroller").addEventListener("scroll", () => this.#scrolled(), { signal, passive: true });
    this.#walk = new Walk(part("list"), part("text"), signal);
    // On a touch screen the buttons of the messages are for screen readers and keyboards.
    onHold(part("list"), ".message:not(.waiting)", (node) => node.querySelector(".more")?.click(), { signal, swipe: ({ dataset }) => this.#actions.swiped(dataset.id) });
    part("pill").addEventListener("click", () => this.#toEnd(), { signal });
    this.#log = this.#newLog();
    this.#actions = this.#newActions();
    this.#head = new RoomHead({ viewer, signal, on: { search: () => this.#finder.open(), menu: (button) => this.#actions.conversationMenu(button), presence: on.presence } });
    this.#sheet = new Sheet({
      chat, store: this.#store, viewer, signal,
      on: { presence: on.presence, block: (...block) => this.#actions.block(...block), report: (user) => this.#actions.reportUser(user), clear: () => this.#actions.clear() },
    });
    this.#pins = new PinBar((id) => this.jump(id), signal);
    this.#finder = new Finder({ chat, conversationId, viewer, signal });
    this.#mentions = new UnreadMentions({ chat, conversationId, viewer, jump: (id) => this.jump(id), signal });
    part("notice-undo").addEventListener("click", () => this.#actions.block(this.#conversation.directPeer.username, false), { signal });
    // The composer needs no server.
    this.#composer = this.#newComposer();
    if (this.#state.status === "ready") this.#firstUnreadId = this.#unreadSince(seenUpTo.get(conversationId));
    this.#lives = liveMessages(chat, conversationId);
    this.#bubbles = new LiveBubbles({ stop: (id) => this.#lives.stop(id).catch((error) => this.#actions.failed(error)), quote: (id) => this.jump(id) });
    this.#stop = this.#store.subscribe(() => this.#changed());
    signal.addEventListener("abort", this.#lives.subscribe(() => this.#showLives()));
    this.#ticking = setInterval(() => this.#tick(), 1_000);
    this.#changed();
    if (messageId) this.#jumpWhenReady(messageId);
  }

  close() {
    this.#listening.abort();
    this.#stop();
    clearInterval(this.#ticking);
    this.#composer.close();
    for (const id of ["list", "lives"]) part(id).replaceChildren();
    for (const id of ["pill", "pins", "notice"]) part(id).hidden = true;
    part("typing").replaceChildren();
  }

  get id() {
    return this.#store.id;
  }

  get #isClosed() {
    return this.#listening.signal.aborted;
  }

  get #state() {
    return this.#store.get();
  }

  /** What is known of it: all, or what the inbox says. */
  get #conversation() {
    return this.#state.conversation ?? this.#state.entry?.conversation ?? null;
  }

  // ---- Its parts.

  #newActions() {
    return new Actions(this.#chat, this.#store, this.#viewer, {
      mayLead: () => this.#mayLead,
      mayWrite: () => !this.#isBlocked && !this.#isSilenced,
      problem: (words) => this.#isClosed || this.#say(words),
      block: this.#on.block,
      reply: (message) => this.#composer.reply(message),
      edit: (message) => this.#composer.edit(message),
      search: (kind) => this.#finder.open(kind),
      about: () => this.#sheet.open(),
    });
  }

  #newLog() {
    return new Log(this.#viewer, {
      react: (message, emoji, isWanted) => this.#actions.react(message, emoji, isWanted),
      menu: (message, button) => this.#actions.messageMenu(message, button),
      quote: (id) => this.jump(id),
      again: ({ key }) => this.#store.retry(key),
      discard: ({ key }) => this.#store.discard(key),
      takeBack: (message) => { this.#store.discard(message.key); this.#composer.take(message); },
      unfolded: () => this.#render(),
    });
  }

  #newComposer() {
    return new Composer({
      send: (body, replyTo, { usernames, isEveryone }, attachments) => {
        this.#hasUnreadLine = false;
        this.#written.add(this.#store.send(body, { mentions: usernames, everyone: isEveryone, replyTo: replyTo?.id, attachments }));
        this.#toEnd();
      },
      edit: (message, body, mentions) => this.#actions.edit(message, body, mentions),
      find: (prefix) => this.#find(prefix),
      usernames: () => [...this.#known.keys(), ...(this.#mayMentionEveryone ? [EVERYONE] : [])],
      typing: () => this.#store.typing(),
      draft: (text) => this.#store.draft.set(text),
      lastOwn: () => this.#lastOwn(),
      problem: (words) => this.#say(words),
    }, this.#store.draft.get());
  }

  /** People for the picker: by the beginning of a username, which the API compares bytewise, or of a display name that is known. */
  async #find(prefix) {
    const small = prefix.toLowerCase();
    let found = await this.#store.people(prefix);
    if (!found.length && small !== prefix) found = await this.#store.people(small);
    this.#learn(found);
    const named = [...this.#known.values()].filter(({ displayName }) => prefix && displayName?.toLowerCase().startsWith(small));
    const users = [...new Map([...found, ...named].map((user) => [user.username, user])).values()].filter(({ username }) => username !== this.#viewer);
    if (this.#mayMentionEveryone && EVERYONE.startsWith(small)) users.push(EVERYONE_USER);
    return users.slice(0, PICKED_MOST);
  }

  #learn(users) {
    for (const user of users) {
      learn(user);
      this.#known.set(user.username, user);
    }
  }

  /** The viewer's newest message. None while a newer one is on its way, as an edit would meet the one before. */
  #lastOwn() {
    const { items } = this.#state;
    if (items.some(({ send }) => send && send.state !== "failed")) return null;
    return items.findLast((message) => !message.send && this.#isOwn(message) && message.kind === "TEXT" && !message.deletedAt);
  }

  // ---- Where one is.

  async #jumpWhenReady(messageId) {
    const { signal } = this.#listening;
    await new Promise((resolve) => {
      const check = () => this.#state.status !== "loading" && resolve();
      signal.addEventListener("abort", this.#store.subscribe(check));
      check();
    });
    if (!this.#isClosed) await this.jump(messageId);
  }

  /** Scrolls to a message and marks it for a moment, however old it is. */
  async jump(id) {
    try {
      await this.#store.jump(id);
    } catch (error) {
      return this.#isClosed || this.#actions.failed(error);
    }
    if (this.#isClosed) return;
    this.#render();
    const node = this.#scroll.find(id);
    if (!node) return this.#say("That message is no longer there.");
    this.#say("");
    this.#scroll.to(node, true);
    node.classList.add("found");
    setTimeout(() => node.classList.remove("found"), FOUND_TIME);
    (node.querySelector(".more") ?? part("scroller")).focus({ preventScroll: true });
    this.#showPill();
  }

  /** What waits to be sent stands at the end, also without the server. */
  async #toEnd() {
    await this.#store.toNewest().catch(() => {});
    if (this.#isClosed) return;
    this.#render();
    this.#scroll.toEnd();
  }

  #scrolled() {
    // After a failure the next scroll asks again.
    if (this.#scroll.isNearTop && this.#state.hasOlder) this.#store.older().catch(() => {});
    if (this.#scroll.isNearBottom && this.#state.hasNewer) this.#store.newer().catch(() => {});
    this.#showPill();
    this.#see();
  }

  /** The newest message in sight has been seen, and all before it. */
  #see() {
    if (this.#state.status !== "ready" || this.#isBlocked) return;
    const id = this.#scroll.lowest();
    if (!id) return;
    this.#store.seen(id);
    const { orderKey } = this.#state.items.find((message) => message.id === id) ?? {};
    if (orderKey && !(orderKey <= seenUpTo.get(this.id))) seenUpTo.set(this.id, orderKey);
  }

  #unreadSince(seen) {
    if (!this.#state.entry?.unreadCount) return null;
    return this.#state.items.find((message) => message.orderKey > seen && !message.send && !this.#isOwn(message))?.id ?? null;
  }

  get #isAtEnd() {
    return !this.#state.hasNewer && this.#scroll.isAtBottom;
  }

  // ---- What is known.

  #isOwn(message) {
    return message.sender.username === this.#viewer;
  }

  get #mayLead() {
    const { participantCount, viewerParticipant } = this.#state.conversation ?? {};
    return participantCount <= SMALL_MOST || (viewerParticipant && viewerParticipant.role !== "MEMBER");
  }

  get #mayMentionEveryone() {
    return this.#conversation?.kind === "GROUP" && this.#mayLead;
  }

  get #isBlocked() {
    return Boolean(this.#conversation?.directPeer?.viewerHasBlocked);
  }

  get #isSilenced() {
    const { isSilenced, silencedUntil } = this.#state.conversation?.viewerParticipant ?? {};
    return Boolean(isSilenced) && !(Date.parse(silencedUntil) <= Date.now());
  }

  /** Why nothing can be written now, or how fast. */
  get #limits() {
    const { slowModeSeconds, viewerParticipant } = this.#state.conversation ?? {};
    if (this.#isSilenced) return { closed: `You are silenced here${untilOf(viewerParticipant.silencedUntil)}: you read, and do not write.` };
    return { slow: slowModeSeconds && viewerParticipant?.role === "MEMBER" ? `Message (slow mode: one in ${spanOf(slowModeSeconds)})` : "" };
  }

  // ---- What is shown.

  #changed() {
    const { status, error, items, entry, conversation, pins } = this.#state;
    if (status === "gone") return this.#on.gone();
    if (conversation) this.#learn(conversation.participants);
    this.#announce(items);
    if (conversation && this.#written.size) for (const message of items) if (!message.send && this.#written.delete(message.clientKey)) this.#on.sent(conversation, message);
    const own = items.findLast((message) => !message.send && this.#isOwn(message));
    if (own) this.#on.status(own);
    this.#showHead();
    this.#pins.set(pins);
    this.#mentions.set(entry);
    if (status === "failed" && !items.length) this.#fail(error.message);
    else if (status === "loading" && !items.length) this.#showSkeleton();
    else this.#render();
    if (!this.#isPlaced && items.length) this.#scroll.toEnd();
    if (!this.#isPlaced && status === "ready") {
      this.#isPlaced = true;
      if (part("unread")) this.#scroll.to(part("unread"));
      this.#scrolled();
    }
    this.#see();
  }

  /** Somebody came or went. */
  presenceChanged() {
    this.#showHead();
  }

  /** New messages of others, for those who listen. What was missed is not read out. */
  #announce(items) {
    const stored = items.filter(({ send }) => !send);
    const newest = stored.at(-1)?.orderKey ?? "";
    if (this.#isPlaced && this.#chat.connection.get().isCaughtUp && !this.#state.hasNewer) {
      for (const message of stored.filter(({ orderKey }) => orderKey > this.#newest)) {
        if (!this.#isOwn(message) && !message.sender.viewerHasBlocked) this.#on.announce(`${nameOf(message.sender)}: ${lineOf(message)}`);
      }
    }
    if (newest > this.#newest) this.#newest = newest;
  }

  #showSkeleton() {
    part("list").replaceChildren(...Array.from({ length: 7 }, (_, index) =>
      el("li", { class: `skeleton${index % 3 ? "" : " own"}`, "aria-hidden": "true" })));
  }

  #fail(words) {
    part("list").replaceChildren(el("li", { class: "empty" }, words));
  }

  #showHead() {
    if (!this.#conversation) return;
    this.#head.show(this.#conversation);
    this.#sheet.changed();
    part("notice").hidden = !this.#isBlocked;
    if (this.#isBlocked) part("notice-text").textContent = `You have blocked ${nameOf(this.#conversation.directPeer)}: no messages come or go.`;
    const { closed, slow } = this.#limits;
    part("text").placeholder = slow || "Message";
    this.#composer.enable(!this.#isBlocked, closed);
  }

  #showPill() {
    const { entry, hasNewer } = this.#state;
    const count = this.#isAtEnd ? 0 : entry?.unreadCount ?? 0;
    this.#mentions.show(!this.#isAtEnd);
    part("pill").hidden = !count && !this.#scroll.isFar && !hasNewer;
    part("pill").replaceChildren(icon("down"), count ? `${count}${entry.unreadCountIsCapped ? "+" : ""} new` : el("span", { class: "sr" }, "To the newest message"));
  }

  #render() {
    this.#showLives();
    const { items, hasNewer, firstUnreadId } = this.#state;
    const focused = document.activeElement?.closest?.("#list [data-id]")?.dataset.id;
    this.#scroll.around(() => replaceItems(part("list"), this.#log.draw({
      items, hasNewer, isGroup: this.#conversation?.kind === "GROUP", mayWrite: !this.#isSilenced, wereLive: this.#wereLive, firstUnread: this.#hasUnreadLine ? this.#firstUnreadId ?? firstUnreadId : null,
    })));
    this.#scroll.sticks = !hasNewer;
    this.#walk.render();
    if (focused && !document.activeElement?.closest?.("#list")) this.#scroll.find(focused)?.querySelector(".more")?.focus({ preventScroll: true });
    this.#countDown();
    this.#showPill();
  }

  #showLives() {
    const { items, hasNewer, conversation, typingUsers } = this.#state;
    const lives = hasNewer || this.#isBlocked ? [] : this.#lives.get();
    for (const { id } of lives) this.#wereLive.add(id);
    const look = {
      viewer: this.#viewer, isGroup: this.#conversation?.kind === "GROUP", mayLead: /OWNER|ADMIN/.test(conversation?.viewerParticipant?.role),
      original: (id) => items.find((message) => message.id === id),
    };
    this.#scroll.around(() => this.#bubbles.draw(lives, look));
    showTyping(typingUsers, lives, this.#viewer);
    this.#showPill();
  }

  /** No event says that a silence has ended. */
  #tick() {
    if (!part("closed").hidden && !this.#isSilenced) this.#changed();
    this.#countDown();
  }

  /** Slow mode says how long. */
  #countDown() {
    for (const node of part("list").querySelectorAll("[data-until]")) {
      node.textContent = `Slow mode: ${Math.max(0, Math.ceil((node.dataset.until - Date.now()) / 1_000))} s`;
    }
  }

  #say(words) {
    part("room-problem").textContent = words;
  }
}

// What the viewer does to a message or to the conversation, and the menus that offer it.

import * as documents from "./documents.js";
import { addressOf, wordsOf } from "./dom.js";
import { EXPIRIES } from "./expiry.js";
import { openMenu } from "./menu.js";
import { nameOf } from "./names.js";
import { openReport } from "./safety.js";

export class Actions {
  #chat;
  #store;
  #viewer;
  #room;

  /**
   * `store`: the conversation of the package. `room`: mayLead(), mayWrite(), problem(words), block(username, isBlocked), reply(message),
   * edit(message), search(kind), about().
   */
  constructor(chat, store, viewer, room) {
    [this.#chat, this.#store, this.#viewer, this.#room] = [chat, store, viewer, room];
  }

  /** Says what failed. */
  async #do(doing) {
    try {
      await doing;
      this.#room.problem("");
    } catch (error) {
      this.failed(error);
    }
  }

  failed(error) {
    this.#room.problem(wordsOf(error));
  }

  edit(message, body, { usernames, isEveryone }) {
    return this.#do(this.#store.edit(message.id, body, { usernames, everyone: isEveryone }));
  }

  react(message, emoji, isWanted) {
    return this.#do(this.#store.react(message.id, emoji, isWanted));
  }

  block(username, isBlocked) {
    return this.#do(this.#room.block(username, isBlocked));
  }

  #blockItem(user) {
    return user.viewerHasBlocked
      ? { label: `Unblock ${nameOf(user)}`, run: () => this.block(user.username, false) }
      : { label: `Block ${nameOf(user)}`, asks: `Block ${nameOf(user)}?`, run: () => this.block(user.username, true) };
  }

  #report(message) {
    openReport({ chat: this.#chat, message, user: message.sender, block: (username) => this.#room.block(username, true) });
  }

  reportUser(user) {
    openReport({ chat: this.#chat, user, conversationId: this.#store.id, block: (username) => this.#room.block(username, true) });
  }

  /** As with the first entry of its menu. */
  swiped(id) {
    const message = this.#store.get().items.find((one) => one.id === id);
    if (message?.kind === "TEXT" && !message.deletedAt && this.#room.mayWrite()) this.#room.reply(message);
  }

  messageMenu(message, button) {
    const isOwn = message.sender.username === this.#viewer;
    const mayWrite = this.#room.mayWrite();
    const items = [
      mayWrite && { label: "Reply", run: () => this.#room.reply(message) },
      mayWrite && this.#room.mayLead() && { label: message.isPinned ? "Unpin" : "Pin", run: () => this.#do(this.#store.pin(message.id, !message.isPinned)) },
      navigator.clipboard && message.body && { label: "Copy text", run: () => this.#do(navigator.clipboard.writeText(message.body)) },
      navigator.clipboard && { label: "Copy link", run: () => this.#do(navigator.clipboard.writeText(new URL(addressOf(this.#store.id, message.id), location.href).href)) },
      mayWrite && isOwn && { label: "Edit", run: () => this.#room.edit(message) },
      isOwn && { label: "Delete", asks: "Delete for everyone?", run: () => this.#do(this.#store.delete(message.id)) },
      !isOwn && { label: "Report…", run: () => this.#report(message) },
      !isOwn && this.#blockItem(message.sender),
    ].filter(Boolean);
    const mine = (emoji) => message.reactions.some((reaction) => reaction.emoji === emoji && reaction.viewerHasReacted);
    openMenu(button, { name: "Message", react: mayWrite ? (emoji) => this.react(message, emoji, !mine(emoji)) : null, items });
  }

  get #conversation() {
    return this.#store.get().conversation;
  }

  conversationMenu(button) {
    const peer = this.#conversation?.directPeer;
    const items = [
      this.#conversation && { label: this.#conversation.kind === "GROUP" ? "People and settings" : "Profile", run: () => this.#room.about() },
      { label: "Search", run: () => this.#room.search() },
      { label: "Images and files", run: () => this.#room.search("IMAGE") },
      this.#mayExpire() && { label: "Disappearing messages…", run: () => this.#expiryMenu(button) },
      this.#conversation && { label: "Clear for me", asks: "Clear all messages, for you alone?", run: () => this.clear() },
      peer && peer.username !== this.#viewer && this.#blockItem(peer),
    ].filter(Boolean);
    openMenu(button, { name: "Conversation", items });
  }

  /** In a direct conversation each of the two asks for an expiry, and the longer one holds. */
  #mayExpire() {
    const conversation = this.#conversation;
    return Boolean(conversation) && this.#room.mayWrite() && (conversation.kind === "DIRECT" || conversation.viewerParticipant?.role === "OWNER");
  }

  #expiryMenu(button) {
    const { kind, messageTtlSeconds, viewerParticipant } = this.#conversation;
    const chosen = kind === "DIRECT" ? viewerParticipant.askedMessageTtlSeconds : messageTtlSeconds;
    const items = EXPIRIES.map(([seconds, label]) => ({ label, isChecked: seconds === (chosen ?? null), run: () => this.#expire(seconds) }));
    openMenu(button, { name: "Disappearing messages", items });
  }

  #expire(messageTtlSeconds) {
    const input = { conversationId: this.#store.id, messageTtlSeconds };
    return this.#do(this.#chat.request(documents.CHANGES.updateConversation, { input }).then(({ updateConversation }) => this.#store.updated(updateConversation.conversation)));
  }

  clear() {
    return this.#do(this.#chat.request(documents.CLEAR, { input: { conversationId: this.#store.id } }));
  }
}

// What the viewer does to a message or to the conversation, and the menus that offer it.

import * as documents from "./documents.js";
import { nameOf } from "./dom.js";
import { EXPIRIES } from "./expiry.js";
import { openMenu } from "./menu.js";
import { openReport } from "./report.js";

export class Actions {
  #api;
  #viewer;
  #room;

  /**
   * `room`: conversation(), mayLead(), isBlocked(), changed(message), pinned(message, edge), updated(conversation), cleared(inboxEntry), problem(words), block(username, isBlocked),
   * reply(message), edit(message), search(kind).
   */
  constructor(api, viewer, room) {
    [this.#api, this.#viewer, this.#room] = [api, viewer, room];
  }

  /** The payload of a mutation of a message, or nothing if it failed. */
  async #do(document, input) {
    try {
      const payload = Object.values(await this.#api.ask(document, { input }))[0];
      this.#room.problem("");
      this.#room.changed(payload.message);
      return payload;
    } catch (error) {
      return this.failed(error);
    }
  }

  failed(error) {
    this.#room.problem(error.code === "OFFLINE" ? "You are offline. Try again when you are back." : error.message);
  }

  edit(message, body, { usernames, isEveryone }) {
    return this.#do(documents.EDIT, { messageId: message.id, body, mentionedUsernames: usernames, mentionsEveryone: isEveryone });
  }

  react(message, emoji, isWanted) {
    return this.#do(isWanted ? documents.REACT : documents.UNREACT, { messageId: message.id, emoji });
  }

  async #pin(message, isWanted) {
    const payload = await this.#do(isWanted ? documents.PIN_MESSAGE : documents.UNPIN_MESSAGE, { messageId: message.id });
    if (payload) this.#room.pinned(payload.message, payload.pinnedMessageEdge);
  }

  async block(username, isBlocked) {
    try {
      await this.#room.block(username, isBlocked);
      this.#room.problem("");
    } catch (error) {
      this.failed(error);
    }
  }

  #blockItem(user) {
    return user.viewerHasBlocked
      ? { label: `Unblock ${nameOf(user)}`, run: () => this.block(user.username, false) }
      : { label: `Block ${nameOf(user)}`, asks: `Block ${nameOf(user)}?`, run: () => this.block(user.username, true) };
  }

  #report(message) {
    openReport({ api: this.#api, message, block: (username) => this.#room.block(username, true) });
  }

  messageMenu(message, button) {
    const isOwn = message.sender.username === this.#viewer;
    const mayWrite = !this.#room.isBlocked();
    const items = [
      mayWrite && { label: "Reply", run: () => this.#room.reply(message) },
      mayWrite && this.#room.mayLead() && { label: message.isPinned ? "Unpin" : "Pin", run: () => this.#pin(message, !message.isPinned) },
      mayWrite && isOwn && { label: "Edit", run: () => this.#room.edit(message) },
      isOwn && { label: "Delete", asks: "Delete for everyone?", run: () => this.#do(documents.DELETE, { messageId: message.id }) },
      !isOwn && { label: "Report…", run: () => this.#report(message) },
      !isOwn && this.#blockItem(message.sender),
    ].filter(Boolean);
    const mine = (emoji) => message.reactions.some((reaction) => reaction.emoji === emoji && reaction.viewerHasReacted);
    openMenu(button, { name: "Message", react: mayWrite ? (emoji) => this.react(message, emoji, !mine(emoji)) : null, items });
  }

  conversationMenu(button) {
    const peer = this.#room.conversation()?.directPeer;
    const items = [
      { label: "Search", run: () => this.#room.search() },
      { label: "Images and files", run: () => this.#room.search("IMAGE") },
      this.#mayExpire() && { label: "Disappearing messages…", run: () => this.#expiryMenu(button) },
      this.#room.conversation() && { label: "Clear for me", asks: "Clear all messages, for you alone?", run: () => this.#clear() },
      peer && peer.username !== this.#viewer && this.#blockItem(peer),
    ].filter(Boolean);
    openMenu(button, { name: "Conversation", items });
  }

  /** In a direct conversation each of the two asks for an expiry, and the longer one holds. */
  #mayExpire() {
    const conversation = this.#room.conversation();
    return Boolean(conversation) && !this.#room.isBlocked() && (conversation.kind === "DIRECT" || conversation.viewerParticipant?.role === "OWNER");
  }

  #expiryMenu(button) {
    const { kind, messageTtlSeconds, viewerParticipant } = this.#room.conversation();
    const chosen = kind === "DIRECT" ? viewerParticipant.askedMessageTtlSeconds : messageTtlSeconds;
    const items = EXPIRIES.map(([seconds, label]) => ({ label, isChecked: seconds === (chosen ?? null), run: () => this.#expire(seconds) }));
    openMenu(button, { name: "Disappearing messages", items });
  }

  async #expire(messageTtlSeconds) {
    try {
      const input = { conversationId: this.#room.conversation().id, messageTtlSeconds };
      this.#room.updated((await this.#api.ask(documents.UPDATE, { input })).updateConversation.conversation);
      this.#room.problem("");
    } catch (error) {
      this.failed(error);
    }
  }

  async #clear() {
    try {
      const input = { conversationId: this.#room.conversation().id };
      this.#room.cleared((await this.#api.ask(documents.CLEAR, { input })).clearHistory.inboxEntry);
      this.#room.problem("");
    } catch (error) {
      this.failed(error);
    }
  }
}

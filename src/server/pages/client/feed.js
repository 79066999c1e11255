// The one stream of inbox changes, for the inboxes, the badge and the open conversations. It also tells the senders that their messages
// have arrived on this device.

import { backoff } from "./transport.js";

export class InboxFeed {
  #core;
  #listeners = new Set();
  #entries = new Map();
  #delivered = new Map();
  #stop = null;
  #ready = null;
  #tries = 0;
  #timer;

  constructor(core) {
    this.#core = core;
  }

  /**
   * Returns the function that ends it. `listener`: entry(entry), removed(entryId, conversationId), blocked(user), and anew(), once changes
   * may have been missed; each is optional.
   */
  listen(listener) {
    this.#listeners.add(listener);
    this.ready();
    return () => {
      this.#listeners.delete(listener);
      if (!this.#listeners.size) this.close();
    };
  }

  /** Whatever is read after this promise misses no change. It belongs to the one stream of now: what an earlier one does is not heard. */
  ready() {
    if (!this.#ready) {
      const ready = this.#ready = this.#open(() => ready === this.#ready);
      ready.catch(() => ready === this.#ready && this.#again());
    }
    return this.#ready;
  }

  close() {
    clearTimeout(this.#timer);
    this.#stop?.();
    this.#stop = this.#ready = null;
  }

  /** The entry of a conversation, as it was last seen. */
  entryOf(conversationId) {
    return this.#entries.get(conversationId) ?? null;
  }

  /** An entry in its current state. */
  learn(entry) {
    this.#entries.set(entry.conversation.id, entry);
    const { conversation, lastMessage, unreadCount } = entry;
    if (!unreadCount || !lastMessage || lastMessage.sender.username === this.#core.username() || this.#delivered.get(conversation.id) === lastMessage.id) return;
    this.#delivered.set(conversation.id, lastMessage.id);
    this.#core.change("markDelivered", { conversationId: conversation.id }).catch(() => this.#delivered.delete(conversation.id));
  }

  /** An entry has changed, here or elsewhere. */
  changed(entry) {
    this.learn(entry);
    this.#tell("entry", entry);
  }

  #tell(name, ...values) {
    for (const listener of [...this.#listeners]) listener[name]?.(...values);
  }

  async #open(isCurrent) {
    const { lasting, ask, transport, documents } = this.#core;
    const { inbox } = await lasting(() => ask("UPDATES_CURSOR"), isCurrent);
    if (!isCurrent()) return this.#ready;
    this.#stop = transport.subscribe({
      document: documents.INBOX_UPDATED,
      variables: { after: inbox.updatesCursor },
      next: ({ inboxUpdated: { event } }) => {
        this.#tries = 0;
        if (event) this.#received(event);
      },
      // Away for longer than the server remembers, or refused.
      end: () => this.#again(),
    });
  }

  /** Opens the next stream after a pause. */
  #again() {
    this.close();
    this.#timer = setTimeout(() => {
      if (this.#core.transport.isClosed) return;
      this.#tell("anew");
      this.ready();
    }, backoff(this.#tries++));
  }

  #received(event) {
    if (event.inboxEntryEdge) return this.changed(event.inboxEntryEdge.node);
    if (event.user) return this.#tell("blocked", event.user);
    this.#entries.delete(event.conversationId);
    this.#tell("removed", event.inboxEntryId, event.conversationId);
  }
}

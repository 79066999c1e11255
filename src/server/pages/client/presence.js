// Small live values: who is there, and the numbers of the badge.

import { Joined, Store } from "./store.js";

const SUMMARY_WAIT = 1_000;

/** Presence by username. Empty while the server is away: nothing is known then. */
export class Presences extends Store {
  #core;
  #usernames;

  constructor(core, usernames) {
    super(new Map());
    [this.#core, this.#usernames] = [core, usernames];
  }

  opened() {
    const { transport, documents } = this.#core;
    if (!this.#usernames.length) return;
    return [
      transport.connection.subscribe(() => transport.connection.get().state !== "connected" && this.get().size && this.put(new Map())),
      transport.subscribe({
        document: documents.PRESENCE,
        variables: { usernames: this.#usernames },
        next: ({ presenceChanged: { user, presence } }) => this.put(new Map(this.get()).set(user.username, presence)),
      }),
      () => this.put(new Map()),
    ];
  }
}

export class Badge extends Store {
  #core;
  #joined = new Joined(() => this.#ask(), SUMMARY_WAIT);

  constructor(core) {
    super({ conversations: 0, mentioned: 0, isCapped: false });
    this.#core = core;
  }

  opened() {
    const changed = () => this.#joined.call();
    this.#ask();
    return [this.#core.feed.listen({ entry: changed, removed: changed, blocked: changed, anew: changed }), () => this.#joined.stop()];
  }

  async #ask() {
    const { ask, lasting } = this.#core;
    const { inboxSummary } = await lasting(() => ask("SUMMARY"), () => this.isOpen).catch(() => ({}));
    if (!inboxSummary) return;
    const { unreadConversationCount: conversations, mentionedConversationCount: mentioned, isCapped } = inboxSummary;
    this.put({ conversations, mentioned, isCapped });
  }
}

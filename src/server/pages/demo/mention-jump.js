// The button that jumps to the unread mentions of a conversation, from the oldest to the newest.

import { SEARCH_ROOM } from "./documents.js";
import { el, part } from "./dom.js";

export class UnreadMentions {
  #chat;
  #id;
  #viewer;
  #jump;
  #entry = null;
  /** Ids of the mentions after the first one, oldest first. Null until they are known. */
  #later = null;
  #seen = 0;

  constructor({ chat, conversationId, viewer, jump, signal }) {
    [this.#chat, this.#id, this.#viewer, this.#jump] = [chat, conversationId, viewer, jump];
    part("mention-jump").addEventListener("click", () => this.#go(), { signal });
    signal.addEventListener("abort", () => { part("mention-jump").hidden = true; });
  }

  /** The inbox entry in its current state, or null. Mentions that were scrolled past stay to be jumped to, until all are read. */
  set(entry) {
    if (entry?.unreadMentionCount && entry.unreadMentionCount < this.#entry?.unreadMentionCount) return;
    if (entry?.firstUnreadMention?.id !== this.#entry?.firstUnreadMention?.id) [this.#later, this.#seen] = [null, 0];
    this.#entry = entry?.firstUnreadMention ? entry : null;
  }

  show(isWanted) {
    const left = (this.#entry?.unreadMentionCount ?? 0) - this.#seen;
    part("mention-jump").hidden = !isWanted || left < 1;
    part("mention-jump").replaceChildren("@", left > 1 ? el("span", {}, `${left}`) : "", el("span", { class: "sr" }, " To the next unread mention"));
  }

  async #go() {
    const { firstUnreadMention } = this.#entry;
    const at = this.#seen++;
    if (at === 0) return this.#jump(firstUnreadMention.id);
    try {
      this.#later ??= await this.#find(firstUnreadMention);
    } catch {
      this.#seen = at;
      return;
    }
    const next = this.#later[at - 1];
    // Those that are left were deleted, or are too many for one page: the next change of the entry counts them anew.
    if (next) this.#jump(next);
    else this.set(null);
    this.show(true);
  }

  /** A search by a filter alone, without words. */
  async #find({ id, createdAt }) {
    const filter = { mentionedUsernames: [this.#viewer], from: createdAt };
    const found = [];
    for (let after = null, isMore = true, pages = 0; isMore && pages < 5; pages += 1) {
      const { edges, pageInfo } = (await this.#chat.request(SEARCH_ROOM, { id: this.#id, query: null, filter, after })).conversation.searchMessages;
      found.unshift(...edges.map(({ node }) => node).reverse());
      [after, isMore] = [pageInfo.endCursor, pageInfo.hasNextPage];
    }
    return found.filter((message) => message.id !== id && message.sender.username !== this.#viewer).map((message) => message.id);
  }
}

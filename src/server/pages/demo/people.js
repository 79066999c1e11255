// The people whom a text of this conversation may mention: those of its head, and those whom the picker has shown.

import { PARTICIPANTS } from "./documents.js";
import { EVERYONE, EVERYONE_USER } from "./mentions.js";

const PICKED_MOST = 9;

export class People {
  #api;
  #id;
  #viewer;
  #known = new Map();
  mayMentionEveryone = false;

  constructor(api, conversationId, viewer) {
    [this.#api, this.#id, this.#viewer] = [api, conversationId, viewer];
  }

  learn(users) {
    for (const user of users) this.#known.set(user.username, user);
  }

  get usernames() {
    return [...this.#known.keys(), ...(this.mayMentionEveryone ? [EVERYONE] : [])];
  }

  /** By the API's prefix of the username, which it compares bytewise, and by the display names that are known. */
  async find(prefix) {
    const small = prefix.toLowerCase();
    let found = await this.#ask(prefix);
    if (!found.length && small !== prefix) found = await this.#ask(small);
    this.learn(found);
    const named = [...this.#known.values()].filter(({ displayName }) => prefix && displayName?.toLowerCase().startsWith(small));
    const users = [...new Map([...found, ...named].map((user) => [user.username, user])).values()].filter(({ username }) => username !== this.#viewer);
    if (this.mayMentionEveryone && EVERYONE.startsWith(small)) users.push(EVERYONE_USER);
    return users.slice(0, PICKED_MOST);
  }

  async #ask(prefix) {
    const { conversation } = await this.#api.ask(PARTICIPANTS, { id: this.#id, prefix });
    return conversation?.participants.edges.map(({ node }) => node.user) ?? [];
  }
}

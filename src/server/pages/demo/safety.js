// Blocks: the list of blocked users, and the two mutations. A blocked user's direct conversation leaves the inbox, so the list is where a
// block is undone.

import { BLOCK, BLOCKED_USERS, BLOCKS, UNBLOCK } from "./documents.js";
import { el, icon, nameParts, part, userAvatar, wordsOf } from "./dom.js";
import { nameOf } from "./names.js";

export class Blocks {
  #chat;
  #users = new Map();
  #isClosed = false;

  constructor(chat) {
    this.#chat = chat;
    part("blocked").replaceChildren(icon("blocked"));
    this.#listen();
  }

  #listen() {
    const next = ({ inboxUpdated: { event } }) => event?.user && this.changed(event.user);
    this.#chat.subscribe(BLOCKS, {}, next, (error) => error?.code === "CURSOR_EXPIRED" && !this.#isClosed && this.#listen());
    this.load();
  }

  close() {
    this.#isClosed = true;
    part("blocked").hidden = true;
  }

  async load() {
    try {
      for (let after = null, isMore = true; isMore && !this.#isClosed; ) {
        const { edges, pageInfo } = (await this.#chat.request(BLOCKED_USERS, { after })).blockedUsers;
        if (!after) this.#users.clear();
        for (const { node } of edges) this.#users.set(node.username, node);
        [after, isMore] = [pageInfo.endCursor, pageInfo.hasNextPage];
      }
    } catch {
      // The button appears with the next change of a block.
    }
    this.#show();
  }

  /** An event of the inbox, or the answer of a mutation. */
  changed(user) {
    if (user.viewerHasBlocked) this.#users.set(user.username, user);
    else this.#users.delete(user.username);
    this.#show();
  }

  /** Throws the error of the API. */
  async set(username, isBlocked) {
    const payload = Object.values(await this.#chat.request(isBlocked ? BLOCK : UNBLOCK, { input: { username } }))[0];
    this.changed(payload.user);
  }

  #show() {
    if (this.#isClosed) return;
    part("blocked").hidden = !this.#users.size;
    part("blocked").setAttribute("aria-label", `Blocked (${this.#users.size})`);
    part("blocked").title = `Blocked (${this.#users.size})`;
    if (part("blocked-dialog").open) this.#draw();
  }

  open() {
    part("blocked-problem").textContent = "";
    this.#draw();
    part("blocked-dialog").showModal();
  }

  #draw() {
    const items = [...this.#users.values()].map((user) => el("li", {},
      userAvatar(user), el("span", { class: "entry-name" }, ...nameParts(user)),
      el("button", { class: "quiet", type: "button", "aria-label": `Unblock ${nameOf(user)}`, onclick: () => this.#unblock(user.username) }, "Unblock")));
    part("blocked-list").replaceChildren(...(items.length ? items : [el("li", { class: "empty" }, "Nobody is blocked.")]));
  }

  async #unblock(username) {
    try {
      await this.set(username, false);
      part("blocked-problem").textContent = "";
    } catch (error) {
      part("blocked-problem").textContent = wordsOf(error);
    }
  }
}

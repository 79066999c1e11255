// Mentions. The API never parses them from a text: the client names the users. This page names a user whose `@username` stands in the
// text, if the picker has shown that user or the user is in the conversation's head.

import { SEARCH_ROOM } from "./documents.js";
import { el, nameParts, part } from "./dom.js";

export const EVERYONE = "everyone";
export const EVERYONE_USER = { username: EVERYONE };
const WAIT = 120;

/** A listbox over the text field: names that begin with the word after the @. */
export class MentionPicker {
  #find;
  #field = part("text");
  #list = part("mentions");
  #users = [];
  #at = 0;
  #timer;
  #asked = 0;
  #dismissed = null;

  /** `find`: returns a promise of the users for a beginning of a name. */
  constructor(find, signal) {
    this.#find = find;
    this.#field.addEventListener("input", () => this.#changed(), { signal });
    this.#field.addEventListener("click", () => this.#changed(), { signal });
    this.#field.addEventListener("blur", () => this.close(), { signal });
    // The text field keeps the focus.
    this.#list.addEventListener("pointerdown", (event) => event.preventDefault(), { signal });
    this.#list.addEventListener("click", ({ target }) => this.#choose([...this.#list.children].indexOf(target.closest("li"))), { signal });
    signal.addEventListener("abort", () => this.close());
  }

  get #isOpen() {
    return !this.#list.hidden;
  }

  /** The word from its @ to the caret, or null. */
  get #word() {
    const { value, selectionStart, selectionEnd } = this.#field;
    if (selectionStart !== selectionEnd) return null;
    return /(?<![\p{L}\p{N}_@])@([^\s@]{0,64})$/u.exec(value.slice(0, selectionStart))?.[1] ?? null;
  }

  #changed() {
    const word = this.#word;
    clearTimeout(this.#timer);
    // A word that the reader has dismissed stays closed while it grows.
    if (word === null) return this.close();
    if (this.#dismissed !== null && word.startsWith(this.#dismissed)) return this.close(true);
    this.#dismissed = null;
    this.#timer = setTimeout(() => this.#ask(word), this.#isOpen || !word ? 0 : WAIT);
  }

  async #ask(word) {
    const question = ++this.#asked;
    const users = await this.#find(word).catch(() => []);
    if (question !== this.#asked || this.#word !== word || document.activeElement !== this.#field) return;
    if (users.length) this.#open(users);
    else this.close();
  }

  #open(users) {
    [this.#users, this.#at] = [users, 0];
    this.#list.replaceChildren(...users.map((user, index) => el("li", { role: "option", id: `mention-${index}`, "aria-selected": "false" },
      ...(user === EVERYONE_USER ? [el("b", {}, "Everyone"), el("span", { class: "handle" }, "@everyone")] : nameParts(user, true)).filter(Boolean))));
    this.#list.hidden = false;
    for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-controls", "mentions"], ["aria-expanded", "true"]]) {
      this.#field.setAttribute(name, value);
    }
    this.#move(0);
  }

  close(keepsDismissal = false) {
    clearTimeout(this.#timer);
    this.#asked += 1;
    if (!keepsDismissal) this.#dismissed = null;
    if (!this.#isOpen) return;
    this.#list.hidden = true;
    this.#list.replaceChildren();
    for (const name of ["role", "aria-autocomplete", "aria-controls", "aria-expanded", "aria-activedescendant"]) this.#field.removeAttribute(name);
  }

  #move(step) {
    this.#at = (this.#at + step + this.#users.length) % this.#users.length;
    [...this.#list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === this.#at)));
    this.#list.children[this.#at].scrollIntoView({ block: "nearest" });
    this.#field.setAttribute("aria-activedescendant", `mention-${this.#at}`);
  }

  #choose(index) {
    const user = this.#users[index];
    if (!user) return;
    const from = this.#field.selectionStart - this.#word.length;
    this.#field.setRangeText(`${user.username} `, from, this.#field.selectionStart, "end");
    this.close();
    this.#field.dispatchEvent(new Event("input"));
  }

  /** Takes the key if the list is open and the key is for it. */
  key(event) {
    if (!this.#isOpen) return false;
    const run = {
      ArrowDown: () => this.#move(1),
      ArrowUp: () => this.#move(-1),
      Enter: () => this.#choose(this.#at),
      Tab: () => this.#choose(this.#at),
      Escape: () => { this.#dismissed = this.#word; this.close(true); },
    }[event.key];
    if (!run || event.shiftKey) return false;
    event.preventDefault();
    event.stopPropagation();
    run();
    return true;
  }
}

/** The button that jumps to the unread mentions of a conversation, from the oldest to the newest. */
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

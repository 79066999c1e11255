// A search: a text field, and a list of matches that goes on as one scrolls. A page of the API may be short or even empty while there are
// more: then the next one is asked for at once, for a while. It runs twice in the page: over all conversations, and in one.

import { SEARCH_ROOM } from "./documents.js";
import { addressOf, el, fullTime, icon, part, remoteImage, shortTime } from "./dom.js";
import { lineOf } from "./message.js";
import { nameOf } from "./names.js";

const WAIT = 250;
/** Pages without a match that are asked for before the reader has to press a button. */
const EMPTY_PAGES = 8;
const RETRIES = 3;
const KINDS = [["IMAGE", "Images"], ["VIDEO", "Videos"], ["AUDIO", "Audio"], ["FILE", "Files"], ["LINK", "Links"]];

export class Search {
  #parts;
  #find;
  #draw;
  #filter;
  #onShown;
  #question = 0;
  #timer;
  #count = 0;
  #after = null;
  #hasMore = false;
  #isCapped = false;
  #isLoading = false;
  #asked = "";

  /**
   * `parts`: field, list, scroller, status. `find(query, filter, after)`: returns a promise of a MessageMatchConnection. `draw(edge)`:
   * returns the element of a match. `filter()`: returns the chosen filter, or null. `onShown(isShown)`: there is something to find, or no more.
   */
  constructor({ parts, find, draw, filter = () => null, onShown = () => {}, signal }) {
    [this.#parts, this.#find, this.#draw, this.#filter, this.#onShown] = [parts, find, draw, filter, onShown];
    parts.field.addEventListener("input", () => this.#changed(WAIT), { signal });
    parts.field.addEventListener("keydown", (event) => this.#key(event), { signal });
    parts.list.addEventListener("keydown", (event) => this.#walk(event), { signal });
    parts.scroller.addEventListener("scroll", () => this.#scrolled(), { signal, passive: true });
    signal.addEventListener("abort", () => this.stop());
  }

  /** Asks at once: the filter has changed. */
  refresh() {
    this.#changed(0);
  }

  clear() {
    this.#parts.field.value = "";
    this.#changed(0);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#question += 1;
  }

  get #wanted() {
    return JSON.stringify([this.#parts.field.value.trim(), this.#filter()]);
  }

  #changed(wait) {
    if (this.#wanted === this.#asked) return;
    this.#asked = this.#wanted;
    this.stop();
    const isWanted = Boolean(this.#parts.field.value.trim() || this.#filter());
    this.#onShown(isWanted);
    if (!isWanted) {
      this.#parts.list.replaceChildren();
      this.#say("");
      return;
    }
    this.#timer = setTimeout(() => this.#begin(), wait);
  }

  #begin() {
    [this.#count, this.#after, this.#hasMore, this.#isCapped] = [0, null, true, false];
    this.#parts.list.replaceChildren(...Array.from({ length: 4 }, () => el("li", { class: "skeleton", "aria-hidden": "true" })));
    this.#say("Searching…");
    this.#parts.scroller.scrollTop = 0;
    this.#load();
  }

  async #load() {
    const question = ++this.#question;
    this.#isLoading = true;
    try {
      for (let empty = 0; this.#hasMore && empty < EMPTY_PAGES; empty += 1) {
        const page = await this.#ask(question);
        if (question !== this.#question) return;
        if (!page) throw new Error("There is no such conversation, or you are not in it.");
        if (!this.#count) this.#parts.list.replaceChildren();
        this.#parts.list.querySelector(".further")?.remove();
        this.#parts.list.append(...page.edges.map((edge) => this.#draw(edge)));
        this.#count += page.edges.length;
        [this.#after, this.#hasMore, this.#isCapped] = [page.pageInfo.endCursor, page.pageInfo.hasNextPage, page.isCapped];
        if (page.edges.length) break;
      }
      this.#loaded();
    } catch (error) {
      if (question === this.#question) this.#failed(error);
    } finally {
      if (question === this.#question) this.#isLoading = false;
    }
  }

  /** Somebody who types fast meets the rate of searches: the last question waits for it. */
  async #ask(question) {
    for (let tries = 0; ; tries += 1) {
      try {
        return await this.#find(this.#parts.field.value.trim() || null, this.#filter(), this.#after);
      } catch (error) {
        if (error.code !== "RATE_LIMITED" || tries === RETRIES || question !== this.#question) throw error;
        await new Promise((resolve) => { setTimeout(resolve, error.retryAfterMs ?? 1_000); });
      }
    }
  }

  #loaded() {
    const { list, scroller } = this.#parts;
    const found = this.#count === 1 ? "1 message" : `${this.#count}${this.#hasMore ? "+" : ""} messages`;
    this.#say(`${this.#count || !this.#hasMore ? found : "Nothing found yet"}${this.#isCapped ? ", in your 1,000 most recently active conversations" : ""}`);
    if (!this.#count && !this.#hasMore) list.replaceChildren(el("li", { class: "empty" }, "No message was found. All of the words must occur; the last one may be unfinished."));
    else if (!this.#count) this.#further("Search further back");
    else if (this.#hasMore && scroller.scrollHeight <= scroller.clientHeight) queueMicrotask(() => this.#load());
  }

  #failed(error) {
    if (!this.#count) this.#parts.list.replaceChildren();
    this.#say("");
    this.#further("Try again", `${error.code === "OFFLINE" ? "You are offline, or the server does not answer." : error.message} `);
  }

  #further(label, words = "") {
    this.#parts.list.append(el("li", { class: "empty further", role: words ? "alert" : undefined }, words,
      el("button", { class: "quiet", type: "button", onclick: ({ currentTarget }) => { currentTarget.closest("li").remove(); this.#load(); } }, label)));
  }

  #say(words) {
    this.#parts.status.textContent = words;
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#parts.scroller;
    const isNear = scrollHeight - scrollTop - clientHeight < 300;
    if (isNear && this.#hasMore && !this.#isLoading && this.#count && !this.#parts.list.querySelector(".further")) this.#load();
  }

  #key(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") this.#parts.list.querySelector("a")?.focus();
    else if (event.key === "Escape" && this.#parts.field.value) {
      event.stopPropagation();
      this.clear();
    } else if (event.key !== "Enter") return;
    event.preventDefault();
  }

  /** The arrows walk the matches. */
  #walk(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const all = [...this.#parts.list.querySelectorAll("a.match")];
    const at = all.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    (all[at + step] ?? (step < 0 ? this.#parts.field : all[at])).focus();
  }
}

/** The parts of a snippet, with what matches highlighted. */
const snippetOf = (parts) => parts.map(({ text, isMatch }) => (isMatch ? el("mark", {}, text) : text));

/** The search in one conversation: by words, by what a message carries, or by both. Without words it is the gallery. */
export class Finder {
  #kind = null;
  #search;
  #chips;

  constructor({ chat, conversationId, viewer, signal }) {
    part("find-close").replaceChildren(icon("close"));
    this.#chips = KINDS.map(([kind, label]) => el("button", {
      type: "button", class: "chip", "aria-pressed": "false", onclick: () => this.#choose(this.#kind === kind ? null : kind),
    }, label));
    part("find-kinds").replaceChildren(...this.#chips);
    part("find-text").value = "";
    this.#search = new Search({
      parts: { field: part("find-text"), list: part("find-list"), scroller: part("find-scroll"), status: part("find-status") },
      find: async (query, filter, after) => (await chat.request(SEARCH_ROOM, { id: conversationId, query, filter, after })).conversation?.searchMessages,
      filter: () => (this.#kind ? { has: [this.#kind] } : null),
      draw: ({ node, snippet }) => drawMatch(addressOf(conversationId, node.id), node.sender.username === viewer ? "You" : nameOf(node.sender), node, snippet, () => this.close(false)),
      onShown: (isShown) => { part("find-hint").hidden = isShown; },
      signal,
    });
    part("find-close").addEventListener("click", () => this.close(), { signal });
    part("find").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    }, { signal });
    signal.addEventListener("abort", () => this.close(false));
  }

  open(kind = null) {
    this.#show(true);
    if (kind) this.#choose(kind);
    part("find-text").focus();
    part("find-text").select();
  }

  close(goesBack = true) {
    if (part("find").hidden) return;
    this.#show(false);
    if (goesBack) part("room-search").focus();
  }

  /** Everything under the search is out of reach while it is open. */
  #show(isOpen) {
    part("find").hidden = !isOpen;
    for (const id of ["pins", "scroller", "composer"]) part(id).inert = isOpen;
  }

  #choose(kind) {
    this.#kind = kind;
    this.#chips.forEach((chip, index) => chip.setAttribute("aria-pressed", String(KINDS[index][0] === kind)));
    this.#search.refresh();
  }
}

/** A match as a link to its message. Without a snippet, as in the gallery, it shows the attachments or the text. */
export function drawMatch(href, title, message, snippet, onclick) {
  const text = snippet.length ? snippetOf(snippet) : [lineOf(message).slice(0, 200)];
  const names = message.body ? message.attachments.map(({ name, mimeType }) => name || mimeType) : [];
  return el("li", {}, el("a", { class: "match", href, onclick },
    el("b", { class: "match-title", dir: "auto" }, title),
    el("time", { dateTime: message.createdAt, title: fullTime(message.createdAt) }, shortTime(message.createdAt)),
    el("span", { class: "match-text", dir: "auto" }, ...text),
    ...message.attachments.filter(({ mimeType }) => mimeType.startsWith("image/")).map(({ url, name }) => remoteImage(url, { alt: name ?? "" })).filter(Boolean),
    ...names.map((name) => el("span", { class: "match-file" }, icon("file"), name))));
}

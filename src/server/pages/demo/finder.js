// The search in one conversation, over its messages: by words, by what a message carries, or by both. Without words it is the gallery.

import { SEARCH_ROOM } from "./documents.js";
import { addressOf, el, fullTime, icon, part, remoteImage, shortTime } from "./dom.js";
import { lineOf } from "./message.js";
import { nameOf } from "./names.js";
import { Search, snippetOf } from "./search.js";

const KINDS = [["IMAGE", "Images"], ["VIDEO", "Videos"], ["AUDIO", "Audio"], ["FILE", "Files"], ["LINK", "Links"]];

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

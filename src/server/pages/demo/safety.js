// Blocks and reports. The list of blocked users is where a block is undone, for their direct conversations leave the inbox. The dialog of a
// report goes to those who run the service.

import { BLOCK, BLOCKED_USERS, BLOCKS, REPORT, REPORT_USER, UNBLOCK } from "./documents.js";
import { el, icon, nameParts, part, userAvatar, wordsOf } from "./dom.js";
import { lineOf } from "./message.js";
import { nameOf } from "./names.js";

const REASONS = {
  SPAM: "Spam", HARASSMENT: "Harassment", HATE: "Hate", SEXUAL: "Sexual content", VIOLENCE: "Violence", SELF_HARM: "Self-harm",
  ILLEGAL: "Something illegal", OTHER: "Something else",
};

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

/** Reports `message`, or without one `user`. `block(username)`: a promise. The dialog calls it where the reporter asks for it too. */
export function openReport({ chat, message, user, conversationId, block }) {
  const dialog = part("report-dialog");
  const stop = new AbortController();
  const { signal } = stop;
  part("report-form").reset();
  part("report-problem").textContent = "";
  part("report-title").textContent = message ? "Report a message" : `Report ${nameOf(user)}`;
  part("report-line").textContent = message ? `${nameOf(user)}: ${lineOf(message).slice(0, 140)}` : "";
  part("report-copy").textContent = `${message ? "A copy of the message" : "The report"} goes to those who run this chat. Nobody else is told.`;
  part("report-reasons").replaceChildren(el("legend", {}, "Reason"), ...Object.entries(REASONS).map(([value, words]) =>
    el("label", {}, el("input", { type: "radio", name: "reason", value, required: true }), words)));
  part("report-block-label").hidden = user.viewerHasBlocked;
  part("report-block-name").textContent = `Block ${nameOf(user)} too`;
  const showSent = (isSent) => {
    [part("report-form").hidden, part("report-sent").hidden] = [isSent, !isSent];
  };
  showSent(false);

  const send = async (event) => {
    event.preventDefault();
    const button = part("report-send");
    button.disabled = true;
    try {
      const reason = new FormData(part("report-form")).get("reason");
      const input = { ...(message ? { messageId: message.id } : { username: user.username, conversationId }), reason, note: part("report-note").value.trim() || null };
      await chat.request(message ? REPORT : REPORT_USER, { input });
      if (part("report-block").checked) await block(user.username);
      showSent(true);
      part("report-close").focus();
    } catch (error) {
      part("report-problem").textContent = wordsOf(error);
    } finally {
      button.disabled = false;
    }
  };
  part("report-form").addEventListener("submit", send, { signal });
  for (const id of ["report-cancel", "report-close"]) part(id).addEventListener("click", () => dialog.close(), { signal });
  dialog.addEventListener("close", () => stop.abort(), { signal });
  dialog.showModal();
}

// Where one writes: a new message, an answer to one, or an edit of one's own. Enter sends, Shift-Enter is a new line, Escape gives up
// an answer or an edit, and the arrow up in an empty field edits one's last message.

import { openAttach } from "./attachments.js";
import { el, icon, part } from "./dom.js";
import { mentionedIn } from "../../client/text.js";
import { EVERYONE, MentionPicker } from "./mentions.js";
import { lineOf } from "./message.js";
import { nameOf } from "./names.js";

const BODY_BYTES_MAX = 16 * 1024;

export class Composer {
  #on;
  #picker;
  #mode = null;
  /** Text of the field from before an edit. */
  #before = "";
  #attachments = [];
  #listening = new AbortController();

  /**
   * `on`: send(body, replyTo, mentions, attachments), edit(message, body, mentions), typing(), draft(text), lastOwn(), problem(words),
   * find(prefix): a promise of users for the picker, usernames(): the users whom a text may mention, EVERYONE for all of them.
   */
  constructor(on, draft = "") {
    this.#on = on;
    const { signal } = this.#listening;
    part("send").replaceChildren(icon("send"));
    part("context-end").replaceChildren(icon("close"));
    part("attach").replaceChildren(icon("clip"));
    part("attach").addEventListener("click", () => openAttach((attachment) => this.#attach([...this.#attachments, attachment]), signal), { signal });
    this.#picker = new MentionPicker((prefix) => on.find(prefix), signal);
    part("composer").addEventListener("submit", (event) => { event.preventDefault(); this.#submit(); }, { signal });
    part("text").addEventListener("input", () => this.#changed(), { signal });
    part("text").addEventListener("keydown", (event) => this.#key(event), { signal });
    part("context-end").addEventListener("click", () => this.#end(), { signal });
    this.#set(draft);
    this.#attach([]);
    this.#showMode();
    this.enable(true);
  }

  /** Leaves the field to another conversation. What was being written here is kept. */
  close() {
    this.#listening.abort();
  }

  /** A message that was on its way comes back. */
  take({ body, attachments = [], replyTo }) {
    if (this.#mode?.edited) this.#end();
    this.#set([part("text").value, body].filter(Boolean).join("\n"));
    this.#attach([...this.#attachments, ...attachments]);
    if (replyTo && !this.#mode) this.#mode = { repliedTo: replyTo };
    this.#showMode();
    this.#on.draft(part("text").value);
    part("text").focus();
  }

  /** `reason`: why there is a line in place of the field, or nothing. */
  enable(isEnabled, reason = "") {
    [part("closed").hidden, part("composer").hidden] = [!reason, Boolean(reason)];
    if (part("closed").textContent !== reason) part("closed").textContent = reason;
    for (const id of ["text", "send", "attach"]) part(id).disabled = !isEnabled;
  }

  reply(message) {
    this.#mode = { repliedTo: message };
    this.#showMode();
    part("text").focus();
  }

  edit(message) {
    if (!this.#mode?.edited) this.#before = part("text").value;
    this.#mode = { edited: message };
    this.#set(message.body);
    this.#showMode();
    part("text").focus();
  }

  #end() {
    if (this.#mode?.edited) this.#set(this.#before);
    this.#mode = null;
    this.#showMode();
    part("text").focus();
  }

  /** Files that go with the next message. */
  #attach(attachments) {
    this.#attachments = attachments;
    part("attached").replaceChildren(...attachments.map((one) => el("button", {
      type: "button", class: "chip", "aria-label": `Do not attach ${one.name ?? one.url}`, onclick: () => { this.#attach(attachments.filter((other) => other !== one)); part("text").focus(); },
    }, icon("clip"), el("span", {}, one.name ?? one.url), icon("close"))));
    this.#grow();
    if (attachments.length) part("text").focus();
  }

  #showMode() {
    const { repliedTo, edited } = this.#mode ?? {};
    part("context").hidden = !this.#mode;
    if (repliedTo) part("context-text").textContent = `Reply to ${nameOf(repliedTo.sender)}: ${lineOf(repliedTo).slice(0, 140)}`;
    if (edited) part("context-text").textContent = "Edit your message";
    part("send").setAttribute("aria-label", edited ? "Save" : "Send");
  }

  #set(text) {
    part("text").value = text;
    this.#grow();
  }

  #grow() {
    const field = part("text");
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight}px`;
    part("send").classList.toggle("ready", Boolean(field.value.trim() || this.#attachments.length));
  }

  #changed() {
    this.#grow();
    if (this.#mode?.edited) return;
    this.#on.draft(part("text").value);
    if (part("text").value.trim()) this.#on.typing();
  }

  #key(event) {
    if (event.isComposing || this.#picker.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "Escape" && this.#mode) {
      event.stopPropagation();
      this.#end();
    } else if (event.key === "ArrowUp" && !part("text").value) {
      const last = this.#on.lastOwn();
      if (!last) return;
      event.preventDefault();
      this.edit(last);
    }
  }

  #submit() {
    const body = part("text").value.trim();
    if (!body && !this.#attachments.length) return;
    if (new TextEncoder().encode(body).length > BODY_BYTES_MAX) {
      this.#on.problem("This message is too long: it may have 16 KiB.");
      return;
    }
    this.#on.problem("");
    const { repliedTo, edited } = this.#mode ?? {};
    if (edited && !body) return;
    const attachments = this.#attachments;
    this.#mode = null;
    this.#picker.close();
    if (!edited) this.#attach([]);
    this.#set(edited ? this.#before : "");
    this.#showMode();
    if (!edited) this.#on.draft("");
    if (!edited) this.#on.send(body, repliedTo, this.#mentions(body), attachments);
    else if (body !== edited.body) this.#on.edit(edited, body, this.#mentions(body, edited));
    part("text").focus();
  }

  /** Of an edited message also the mentions that never stood in its text: they stay. */
  #mentions(body, edited) {
    const earlier = (edited?.mentions ?? []).map(({ username }) => username);
    const stood = new Set(mentionedIn(edited?.body ?? "", [...earlier, EVERYONE]));
    const named = new Set(mentionedIn(body, [...this.#on.usernames(), ...earlier, ...(edited?.mentionsEveryone ? [EVERYONE] : [])]));
    const isEveryone = named.delete(EVERYONE) || Boolean(edited?.mentionsEveryone && !stood.has(EVERYONE));
    return { usernames: [...new Set([...named, ...earlier.filter((name) => !stood.has(name))])].slice(0, 50), isEveryone };
  }
}

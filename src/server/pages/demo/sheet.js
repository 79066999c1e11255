// The side sheet of a conversation, which its title opens: its participants, and the settings that the viewer may change. In a direct
// conversation it is the profile of the other user.

import { CHANGES } from "./documents.js";
import { agentMark, avatar, el, icon, part, titleOf, userAvatar, wordsOf } from "./dom.js";
import { EXPIRIES, SLOW_MODES, spanOf } from "./expiry.js";
import { Members } from "./members.js";
import { displayOf, tooltipOf } from "./names.js";

const VISIBILITIES = [["ALL", "All messages"], ["SINCE_JOINED", "Messages since they joined"]];
/** Here the sheet covers the conversation. */
const narrow = matchMedia("(max-width: 899px)");

export class Sheet {
  #chat;
  #store;
  #viewer;
  #on;
  #signal;
  #members;
  #drawn = "";
  #joined = "";

  /** `on`: presence(username), block(username, isBlocked), report(user), clear(). */
  constructor({ chat, store, viewer, on, signal }) {
    [this.#chat, this.#store, this.#viewer, this.#on, this.#signal] = [chat, store, viewer, on, signal];
    part("sheet-close").replaceChildren(icon("close"));
    this.#members = new Members({
      chat, id: store.id, viewer, signal,
      on: { change: (name, input) => this.#change(name, input), block: on.block, report: on.report, failed: (error) => this.#say(wordsOf(error)) },
    });
    part("room-title").addEventListener("click", () => (part("sheet").hidden ? this.open() : this.close()), { signal });
    part("sheet-close").addEventListener("click", () => this.close(), { signal });
    part("sheet").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    }, { signal });
    part("sheet-name").addEventListener("submit", (event) => { event.preventDefault(); this.#rename(); }, { signal });
    narrow.addEventListener("change", () => this.#show(this.#isOpen), { signal });
    signal.addEventListener("abort", () => this.close(false));
    this.close(false);
  }

  get #conversation() {
    return this.#store.get().conversation;
  }

  get #isOpen() {
    return !part("sheet").hidden;
  }

  open() {
    if (!this.#conversation) return;
    this.#show(true);
    [this.#drawn, this.#joined] = ["", ""];
    this.#say("");
    this.changed();
    part("sheet-close").focus();
  }

  close(goesBack = true) {
    this.#show(false);
    if (goesBack) part("room-title").focus();
  }

  /** A conversation that the sheet covers is out of reach. */
  #show(isOpen) {
    part("sheet").hidden = !isOpen;
    part("room").inert = isOpen && narrow.matches;
    part("room-title").setAttribute("aria-expanded", String(isOpen));
  }

  /** The conversation has changed, or somebody came or went. */
  changed() {
    const conversation = this.#conversation;
    if (!this.#isOpen || !conversation) return;
    const { kind, name, directPeer, viewerParticipant: own, participantCount, slowModeSeconds, messageTtlSeconds, historyVisibility } = conversation;
    const presence = directPeer && this.#on.presence(directPeer.username);
    const drawn = JSON.stringify([name, directPeer, own, presence, participantCount, slowModeSeconds, messageTtlSeconds, historyVisibility]);
    if (drawn !== this.#drawn) this.#draw(kind === "GROUP", conversation, presence);
    this.#drawn = drawn;
    if (kind !== "GROUP") return;
    this.#members.show(this.#role, participantCount);
    // Changes of a group leave a SYSTEM message. A silence leaves none: the next opening of the sheet shows it.
    const joined = [participantCount, own?.role, this.#store.get().items.findLast((message) => message.kind === "SYSTEM")?.id].join();
    if (joined !== this.#joined) this.#members.load();
    this.#joined = joined;
  }

  /** A silence takes the rights of the viewer's role. */
  get #role() {
    const own = this.#conversation?.viewerParticipant;
    return !own || own.isSilenced ? "MEMBER" : own.role;
  }

  // ---- What is shown.

  #draw(isGroup, conversation, presence) {
    const { directPeer } = conversation;
    const mayLead = isGroup && this.#role !== "MEMBER";
    const title = titleOf(conversation, this.#viewer);
    const focused = document.activeElement?.closest?.("#sheet [data-key]")?.dataset.key;
    part("sheet-title").textContent = isGroup ? "Group" : "Profile";
    part("sheet-top").replaceChildren(isGroup ? avatar(title) : userAvatar(directPeer, presence?.isOnline),
      el("p", { class: "sheet-heading", dir: "auto" }, ...(isGroup || !directPeer ? [title] : [displayOf(directPeer), ...agentMark(directPeer)])),
      isGroup ? "" : el("p", { class: "hint", dir: "auto" }, tooltipOf(directPeer)));
    part("sheet-name").hidden = !mayLead;
    if (document.activeElement !== part("sheet-name-field")) part("sheet-name-field").value = conversation.name ?? "";
    part("sheet-settings").replaceChildren(...this.#settings(isGroup, conversation));
    part("members").hidden = !isGroup;
    part("sheet-actions").replaceChildren(...this.#actions(isGroup, conversation));
    if (focused) part("sheet").querySelector(`[data-key="${focused}"]`)?.focus();
  }

  #settings(isGroup, { slowModeSeconds, messageTtlSeconds, historyVisibility, viewerParticipant, directPeer }) {
    const update = (change) => this.#change("updateConversation", change);
    const role = this.#role;
    const expiry = isGroup ? messageTtlSeconds : viewerParticipant?.askedMessageTtlSeconds;
    const slow = SLOW_MODES.map((seconds) => [seconds, seconds ? spanOf(seconds) : "Off"]);
    return [
      isGroup && this.#setting("slow", "Slow mode: wait between two messages", slow, slowModeSeconds, role !== "MEMBER" && ((slowModeSeconds) => update({ slowModeSeconds: Number(slowModeSeconds) }))),
      isGroup && this.#setting("visibility", "New people see", VISIBILITIES, historyVisibility, role === "OWNER" && ((historyVisibility) => update({ historyVisibility }))),
      this.#setting("expiry", isGroup ? "Messages disappear" : "You ask that messages disappear", EXPIRIES.map(([seconds, words]) => [seconds, seconds ? `After ${words}` : words]), expiry ?? null,
        (isGroup ? role === "OWNER" : !directPeer?.viewerHasBlocked) && ((seconds) => update({ messageTtlSeconds: Number(seconds) || null }))),
    ].filter(Boolean);
  }

  /** A choice of several, or only its words where the viewer may not choose. A value of another client is one more choice. */
  #setting(key, label, choices, value, run) {
    const all = choices.some(([one]) => one === value) ? choices : [...choices, [value, spanOf(value)]];
    if (!run) return el("p", { class: "setting" }, label, el("span", {}, all.find(([one]) => one === value)[1]));
    const select = el("select", { "data-key": key, onchange: ({ currentTarget }) => run(currentTarget.value) },
      ...all.map(([one, words]) => el("option", { value: String(one ?? ""), selected: one === value }, words)));
    return el("label", { class: "setting" }, label, select);
  }

  #actions(isGroup, { directPeer }) {
    const row = (key, label, run, asks) => {
      let isSure = !asks;
      return el("button", { class: `row-button${asks ? " danger" : ""}`, type: "button", "data-key": key, onclick: ({ currentTarget }) => {
        if (isSure) return run();
        isSure = true;
        currentTarget.textContent = asks;
      } }, label);
    };
    const other = !isGroup && directPeer && directPeer.username !== this.#viewer;
    return [
      row("clear", "Clear for me", () => this.#on.clear(), "Clear all messages, for you alone?"),
      other && row("report", "Report…", () => this.#on.report(directPeer)),
      other && directPeer.viewerHasBlocked && row("block", "Unblock", () => this.#on.block(directPeer.username, false)),
      other && !directPeer.viewerHasBlocked && row("block", "Block", () => this.#on.block(directPeer.username, true), `Block ${displayOf(directPeer)}?`),
      isGroup && row("leave", "Leave the group", () => this.#change("leaveConversation", {}), "Leave the group?"),
    ].filter(Boolean);
  }

  // ---- What is done.

  /** Says what failed. Returns whether it went well. */
  async #change(name, input) {
    try {
      const data = await this.#chat.request(CHANGES[name], { input: { conversationId: this.#store.id, ...input } });
      if (data[name].conversation) this.#store.updated(data[name].conversation);
      // The sheet may be that of another conversation by now.
      if (this.#signal.aborted) return false;
      this.#say("");
      return true;
    } catch (error) {
      if (this.#signal.aborted) return false;
      this.#say(wordsOf(error));
      this.#drawn = "";
      this.changed();
      return false;
    }
  }

  async #rename() {
    const name = part("sheet-name-field").value.trim();
    if (name && name !== this.#conversation.name) await this.#change("renameConversation", { name });
  }

  #say(words) {
    part("sheet-problem").textContent = words;
  }
}

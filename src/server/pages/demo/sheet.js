// The side sheet of a conversation, which its title opens: its participants, and the settings that the viewer may change. In a direct
// conversation it is the profile of the other user.

import { BANS, CHANGES, MEMBERS } from "./documents.js";
import { addressOf, agentMark, avatar, el, icon, nameParts, part, titleOf, userAvatar, wordsOf } from "./dom.js";
import { EXPIRIES, SLOW_MODES, spanOf, untilOf } from "./expiry.js";
import { openMenu } from "./menu.js";
import { displayOf, knownUsers, nameOf, tooltipOf } from "./names.js";

const FEW = 10;
const FOUND_MOST = 6;
const WAIT = 200;
const HOUR = 3_600_000;
const ROLES = { OWNER: "Owner", ADMIN: "Admin", MEMBER: "" };
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

// ---- The participants.

/** Whether the viewer governs a participant: an owner everybody, an admin the members. */
const governs = (role, member) => role === "OWNER" || (role === "ADMIN" && member.role === "MEMBER");

/** Participants of a group: who they are, whom the viewer may add and remove, and who is banned. */
class Members {
  #chat;
  #id;
  #viewer;
  #on;
  #members = [];
  #bans = [];
  #after = null;
  #hasMore = false;
  #role = "MEMBER";
  #asked = 0;
  #timer;
  #signal;

  /** `on`: change(name, input), which says what failed and returns whether it went well; block(username, isBlocked), report(user). */
  constructor({ chat, id, viewer, on, signal }) {
    [this.#chat, this.#id, this.#viewer, this.#on, this.#signal] = [chat, id, viewer, on, signal];
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
    for (const field of ["member-find", "member-add"]) part(field).value = "";
    for (const list of ["member-list", "member-found", "ban-list"]) part(list).replaceChildren();
    part("member-find").addEventListener("input", () => { clearTimeout(this.#timer); this.#timer = setTimeout(() => this.load(), WAIT); }, { signal });
    part("member-add").addEventListener("input", () => this.#suggest(), { signal });
    part("member-more").addEventListener("click", () => this.load(true), { signal });
    part("member-form").addEventListener("submit", (event) => { event.preventDefault(); this.#add(part("member-add").value.split(",")); }, { signal });
  }

  /** `role`: the viewer's, with the rights that it gives now. */
  show(role, count) {
    this.#role = role;
    part("member-form").hidden = role === "MEMBER";
    part("member-find").parentElement.hidden = count <= FEW;
    part("member-count").textContent = `${count} ${count === 1 ? "person" : "people"}`;
    this.#suggest();
  }

  async load(isMore = false) {
    const question = ++this.#asked;
    try {
      const variables = { id: this.#id, prefix: part("member-find").value.trim() || null, after: isMore ? this.#after : null };
      const [{ conversation }, bans] = await Promise.all([this.#chat.request(MEMBERS, variables), this.#role === "MEMBER" ? null : this.#chat.request(BANS, { id: this.#id })]);
      if (question !== this.#asked || this.#signal.aborted || !conversation) return;
      const { edges, pageInfo } = conversation.participants;
      this.#members = [...(isMore ? this.#members : []), ...edges.map(({ node }) => node)];
      [this.#after, this.#hasMore] = [pageInfo.endCursor, pageInfo.hasNextPage];
      this.#bans = bans?.conversation?.bans?.edges.map(({ node }) => node) ?? [];
      this.#draw();
    } catch (error) {
      if (question === this.#asked && !this.#signal.aborted) this.#on.failed(error);
    }
  }

  #draw() {
    const focused = document.activeElement?.closest?.("#member-list li")?.dataset.name;
    part("member-list").replaceChildren(...this.#members.map((member) => this.#row(member)));
    if (focused) part("member-list").querySelector(`[data-name="${CSS.escape(focused)}"] button`)?.focus();
    part("member-more").hidden = !this.#hasMore;
    part("bans").hidden = !this.#bans.length;
    part("ban-list").replaceChildren(...this.#bans.map(({ user, until, reason }) => el("li", {},
      userAvatar(user), el("span", { class: "who" }, ...nameParts(user), el("small", {}, `Banned${untilOf(until)}${reason ? `: ${reason}` : ""}`)),
      el("button", { class: "quiet", type: "button", "aria-label": `Lift the ban of ${nameOf(user)}`, onclick: () => this.#do("liftBan", user) }, "Lift"))));
    this.#suggest();
  }

  #row(member) {
    const { user, role, isSilenced, silencedUntil } = member;
    const isViewer = user.username === this.#viewer;
    const state = [ROLES[role], isSilenced && `silenced${untilOf(silencedUntil)}`, user.presence?.isOnline && "online", user.viewerHasBlocked && "blocked"].filter(Boolean).join(", ");
    const actions = el("button", {
      class: "round", type: "button", "aria-haspopup": "menu", "aria-label": `Actions for ${nameOf(user)}`, onclick: ({ currentTarget }) => this.#menu(member, currentTarget),
    }, icon("more"));
    return el("li", { "data-name": user.username }, userAvatar(user, user.presence?.isOnline),
      el("span", { class: "who" }, ...nameParts(user), isViewer ? el("span", { class: "handle" }, " You") : null, state ? el("small", {}, state) : null), isViewer ? null : actions);
  }

  #menu(member, button) {
    const { user, isSilenced } = member;
    const name = nameOf(user);
    const isGoverned = governs(this.#role, member);
    const role = (to, label) => this.#role === "OWNER" && member.role !== to && { label, run: () => this.#do("setParticipantRole", user, { role: to }) };
    openMenu(button, {
      name, items: [
        { label: "Message", run: () => this.#message(user) },
        role("MEMBER", "Make a member"), role("ADMIN", "Make an admin"), role("OWNER", "Make an owner"),
        isGoverned && !isSilenced && { label: "Silence for 1 hour", run: () => this.#do("silenceParticipant", user, { until: new Date(Date.now() + HOUR).toISOString() }) },
        isGoverned && !isSilenced && { label: "Silence", run: () => this.#do("silenceParticipant", user) },
        isGoverned && isSilenced && { label: "Let write again", run: () => this.#do("unsilenceParticipant", user) },
        isGoverned && { label: "Remove", asks: `Remove ${name}?`, run: () => this.#do("removeParticipant", user) },
        isGoverned && { label: "Ban", asks: `Ban ${name}?`, run: () => this.#do("banParticipant", user) },
        { label: "Report…", run: () => this.#on.report(user) },
        user.viewerHasBlocked ? { label: "Unblock", run: () => this.#block(user, false) } : { label: "Block", asks: `Block ${name}?`, run: () => this.#block(user, true) },
      ].filter(Boolean),
    });
  }

  async #do(change, { username }, more = {}) {
    if (await this.#on.change(change, { username, ...more })) this.load();
  }

  async #block({ username }, isBlocked) {
    await this.#on.block(username, isBlocked);
    this.load();
  }

  async #message({ username }) {
    try {
      location.hash = addressOf(await this.#chat.startDirect(username));
    } catch (error) {
      if (!this.#signal.aborted) this.#on.failed(error);
    }
  }

  // ---- Those whom one may add: the page knows the users whom it has shown, and a username can be typed.

  #suggest() {
    const word = part("member-add").value.split(",").at(-1).trim().toLowerCase();
    const present = new Set(this.#members.map(({ user }) => user.username));
    const found = knownUsers().filter((user) => !present.has(user.username) && !user.viewerHasBlocked
      && (user.username.toLowerCase().startsWith(word) || displayOf(user).toLowerCase().startsWith(word)));
    part("member-found").replaceChildren(...found.slice(0, FOUND_MOST).map((user) =>
      el("button", { class: "chip", type: "button", onclick: () => this.#add([user.username]) }, nameOf(user))));
  }

  async #add(names) {
    const usernames = names.map((name) => name.trim()).filter(Boolean);
    if (!usernames.length || !(await this.#on.change("addParticipants", { usernames }))) return;
    part("member-add").value = "";
    this.load();
  }
}

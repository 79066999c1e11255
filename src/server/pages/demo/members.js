// The participants of a group in its side sheet: who they are, whom the viewer may add and remove, and who is banned.

import { BANS, CHANGES, MEMBERS } from "./documents.js";
import { addressOf, el, icon, nameParts, part, userAvatar } from "./dom.js";
import { untilOf } from "./expiry.js";
import { openMenu } from "./menu.js";
import { displayOf, knownUsers, nameOf } from "./names.js";

const FEW = 10;
const FOUND_MOST = 6;
const WAIT = 200;
const HOUR = 3_600_000;
const ROLES = { OWNER: "Owner", ADMIN: "Admin", MEMBER: "" };

/** Whether the viewer governs a participant: an owner everybody, an admin the members. */
const governs = (role, member) => role === "OWNER" || (role === "ADMIN" && member.role === "MEMBER");

export class Members {
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

// The head of a conversation: its name and state, the search, the menu of the conversation, and the bar of its pinned messages.

import { avatar, el, icon, part, shortTime, titleOf, titleParts } from "./dom.js";
import { spanOf } from "./expiry.js";
import { lineOf } from "./message.js";
import { firstNameOf, nameOf } from "./names.js";

export class RoomHead {
  #viewer;
  #on;

  /** `on`: search(), menu(button), presence(username). */
  constructor({ viewer, on, signal }) {
    [this.#viewer, this.#on] = [viewer, on];
    part("room-search").replaceChildren(icon("search"));
    part("room-menu").replaceChildren(icon("more"));
    part("room-search").addEventListener("click", () => on.search(), { signal });
    part("room-menu").addEventListener("click", ({ currentTarget }) => on.menu(currentTarget), { signal });
    // Its entries depend on the conversation.
    for (const id of ["room-menu", "room-title"]) part(id).disabled = true;
    for (const id of ["room-title", "room-avatar", "room-state"]) part(id).replaceChildren();
  }

  /** A conversation of the package, or what an inbox entry says of one. */
  show(conversation) {
    const { kind, participants = [], participantCount = 0, directPeer, messageTtlSeconds, viewerParticipant } = conversation;
    const title = titleOf(conversation, this.#viewer);
    const presence = directPeer && !directPeer.viewerHasBlocked && this.#on.presence(directPeer.username);
    const names = participants.map((user) => (user.username === this.#viewer ? "you" : nameOf(user)));
    const rest = participantCount - names.length;
    let state = rest > 0 ? `${participantCount} people` : names.join(", ");
    if (kind === "DIRECT") state = presence?.isOnline ? "online" : presence?.lastSeenAt ? `last seen ${shortTime(presence.lastSeenAt)}` : "";
    if (directPeer?.viewerHasBlocked) state = "blocked";
    // In a direct conversation an expiry holds once both ask for one: the longer one.
    const asked = viewerParticipant?.askedMessageTtlSeconds;
    const expiry = messageTtlSeconds ? `messages disappear after ${spanOf(messageTtlSeconds)}` : asked && `you asked for ${spanOf(asked)}`;
    if (expiry) state = `${state}${state ? " · " : ""}${expiry}`;
    part("room-title").replaceChildren(...titleParts(conversation, this.#viewer).filter(Boolean));
    part("room-avatar").replaceChildren(avatar(title, presence?.isOnline, conversation.avatarUrl ?? directPeer?.avatarUrl));
    part("room-state").textContent = state;
    for (const id of ["room-menu", "room-title"]) part(id).disabled = !conversation.participants;
  }
}

/** One pinned message at a time. A click jumps to it, and the bar shows the one that was pinned before. */
export class PinBar {
  #pins = [];
  #at = 0;
  #jump;

  /** `jump`: called with the id of the message. */
  constructor(jump, signal) {
    this.#jump = jump;
    part("pins").addEventListener("click", () => this.#go(), { signal });
    this.#render();
  }

  /** The pinned messages, the last pinned first. */
  set(pins) {
    if (pins === this.#pins) return;
    const ids = (all) => all.map(({ node }) => node.id).join();
    if (ids(pins) !== ids(this.#pins)) this.#at = 0;
    this.#pins = pins;
    this.#render();
  }

  #go() {
    const { id } = this.#pins[this.#at].node;
    this.#at = (this.#at + 1) % this.#pins.length;
    this.#render();
    this.#jump(id);
  }

  #render() {
    const pin = this.#pins[this.#at];
    part("pins").hidden = !pin;
    if (!pin) return part("pins").replaceChildren();
    const count = this.#pins.length;
    part("pins").replaceChildren(icon("pinned"),
      el("span", { class: "pin-text" },
        el("b", {}, count > 1 ? `Pinned message ${count - this.#at} of ${count}` : "Pinned message"),
        el("span", { class: "pin-line" }, `${firstNameOf(pin.node.sender)}: `, el("span", { dir: "auto" }, lineOf(pin.node).slice(0, 200)))));
  }
}

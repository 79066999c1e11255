// The head of a conversation: its name and state, the search, and the menu of the conversation.

import { avatar, icon, part, shortTime, titleOf, titleParts } from "./dom.js";
import { spanOf } from "./expiry.js";
import { nameOf } from "./names.js";

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
    part("room-avatar").replaceChildren(avatar(title, presence?.isOnline, directPeer?.avatarUrl));
    part("room-state").textContent = state;
    for (const id of ["room-menu", "room-title"]) part(id).disabled = !conversation.participants;
  }
}

// The list of messages as elements: days, the line before the first unread one, runs of one sender. An element stays as long as nothing
// of its message has changed.

import { dayKey, dayName, el } from "./dom.js";
import { drawMessage, drawWaiting, isRun } from "./message.js";
import { namesVersion } from "./names.js";

export class Log {
  #viewer;
  #on;
  #nodes = new Map();
  #before = new Map();
  #unfolded = new Set();
  /** Keys of messages that have waited here. Behind a gap such a one stays at the end, also once it is sent. */
  #waited = new Set();

  /** `on`: react, menu, quote, again, discard, takeBack, and unfolded(), which draws anew. */
  constructor(viewer, on) {
    this.#viewer = viewer;
    this.#on = { ...on, unfold: (message) => { this.#unfolded.add(message.id); on.unfolded(); } };
  }

  /** The elements of these messages. `hasNewer`: there is a gap before those that were just written. `mayWrite`: the viewer is not silenced. `wereLive`: what the reader has seen while it was written. */
  draw({ items: all, hasNewer, isGroup, firstUnread, mayWrite, wereLive }) {
    // What is not drawn any more is forgotten.
    [this.#before, this.#nodes] = [this.#nodes, new Map()];
    const items = [];
    for (const { send, key } of all) if (send) this.#waited.add(key);
    const end = hasNewer ? all.findLastIndex(({ key }) => !this.#waited.has(key)) + 1 : -1;
    all.forEach((message, index) => {
      const [before, after] = [all[index - 1], all[index + 1]];
      const day = dayKey(message.createdAt);
      const isFirstUnread = message.id === firstUnread;
      if (index === end) items.push(this.#kept("gap", "", () => el("li", { class: "day" }, el("span", {}, "Newer messages are between"))));
      if (!before || dayKey(before.createdAt) !== day) {
        items.push(this.#kept(`day ${day}`, dayName(message.createdAt), (name) => el("li", { class: "day" }, el("span", {}, name))));
      }
      if (isFirstUnread) items.push(this.#kept("unread", "", () => el("li", { class: "unread", id: "unread" }, el("span", {}, "New messages"))));
      const look = {
        viewer: this.#viewer,
        isOwn: message.sender.username === this.#viewer,
        isGroup,
        mayWrite: !message.send || mayWrite,
        names: namesVersion(),
        isUnfolded: this.#unfolded.has(message.id),
        wasLive: wereLive.has(message.liveMessageId),
        startsRun: isFirstUnread || index === end || !isRun(before, message),
        endsRun: !isRun(message, after ?? { kind: "" }) || after.id === firstUnread,
      };
      const draw = message.send ? () => drawWaiting(message, look, this.#on) : () => drawMessage(message, look, this.#on);
      items.push(this.#kept(message.id, JSON.stringify([message, look]), draw));
    });
    if (!items.length) items.push(this.#kept("empty", "", () => el("li", { class: "empty" }, "No messages yet. Say hello.")));
    return items;
  }

  /** The node from before, where nothing of it has changed. */
  #kept(key, signature, draw) {
    const known = this.#before.get(key);
    const kept = known?.signature === signature ? known : { signature, node: draw(signature) };
    // What a person has unfolded stays so.
    if (kept !== known && known?.node.querySelector("details[open]")) kept.node.querySelector("details")?.toggleAttribute("open", true);
    this.#nodes.set(key, kept);
    return kept.node;
  }
}

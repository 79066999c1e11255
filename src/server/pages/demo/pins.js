// The bar above the messages: one pinned message at a time. A click jumps to it, and the bar shows the one that was pinned before.

import { el, icon, nameOf, part } from "./dom.js";
import { lineOf } from "./message.js";

export class PinBar {
  #pins = [];
  #at = 0;
  #jump;

  /** `jump`: called with the id of the message. */
  constructor(jump, signal) {
    this.#jump = jump;
    part("pins").addEventListener("click", () => this.#go(), { signal });
  }

  /** Edges of `pinnedMessages`, the last pinned first. */
  set(edges) {
    [this.#pins, this.#at] = [edges, 0];
    this.#render();
  }

  /** A message was pinned (`edge`), or unpinned. */
  changed(message, edge) {
    const others = this.#pins.filter(({ node }) => node.id !== message.id);
    this.set(edge ? [edge, ...others].sort((a, b) => (a.pinnedAt < b.pinnedAt ? 1 : -1)) : others);
  }

  /** The message was edited, or deleted: a deletion unpins without an event of its own. */
  refresh(message) {
    if (!this.#pins.some(({ node }) => node.id === message.id)) return;
    if (message.deletedAt) return this.changed(message, null);
    this.#pins = this.#pins.map((edge) => (edge.node.id === message.id ? { ...edge, node: message } : edge));
    this.#render();
  }

  /** Applies a change to every sender. */
  changeSender(change) {
    this.#pins = this.#pins.map((edge) => ({ ...edge, node: { ...edge.node, sender: change(edge.node.sender) } }));
    this.#render();
  }

  /** Removes the pins of messages for which the condition does not hold. */
  keep(condition) {
    const kept = this.#pins.filter(({ node }) => condition(node));
    if (kept.length < this.#pins.length) this.set(kept);
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
        el("span", { class: "pin-line" }, `${nameOf(pin.node.sender)}: `, el("span", { dir: "auto" }, lineOf(pin.node).slice(0, 200)))));
  }
}

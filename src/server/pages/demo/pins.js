// The bar above the messages: one pinned message at a time. A click jumps to it, and the bar shows the one that was pinned before.

import { el, icon, part } from "./dom.js";
import { lineOf } from "./message.js";
import { firstNameOf } from "./names.js";

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

// The messages by keyboard: one of them is in the order of Tab, with its links and buttons. The arrows up and down walk the messages, the
// other two what is in one of them.

const CONTROLS = "a, button";

export class Walk {
  #list;
  #field;

  /** `field`: what comes after the last message. */
  constructor(list, field, signal) {
    [this.#list, this.#field] = [list, field];
    list.addEventListener("keydown", (event) => this.#key(event), { signal });
    list.addEventListener("focusin", () => this.render(), { signal });
  }

  get #messages() {
    return [...this.#list.querySelectorAll(".message:not(.waiting)")].filter((node) => node.querySelector(CONTROLS));
  }

  /** Puts one message in the order of Tab: the one with the focus, or the last one. */
  render() {
    const messages = this.#messages;
    const focused = document.activeElement?.closest?.(".message");
    const chosen = messages.includes(focused) ? focused : messages.at(-1);
    for (const node of messages) for (const control of node.querySelectorAll(CONTROLS)) control.tabIndex = node === chosen ? 0 : -1;
  }

  #key(event) {
    const messages = this.#messages;
    const at = messages.indexOf(event.target.closest(".message"));
    if (at < 0) return;
    const controls = [...messages[at].querySelectorAll(CONTROLS)];
    const within = controls.indexOf(event.target.closest(CONTROLS));
    const goTo = (node) => node && (node.querySelector(".more") ?? node.querySelector(CONTROLS));
    const step = {
      ArrowUp: () => goTo(messages[at - 1]),
      ArrowDown: () => goTo(messages[at + 1]) ?? this.#field,
      ArrowLeft: () => controls[within - 1],
      ArrowRight: () => controls[within + 1],
    }[event.key];
    if (!step) return;
    event.preventDefault();
    step()?.focus();
  }
}

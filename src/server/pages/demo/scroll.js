// Where one is in a conversation, and that it stays there: older messages come in above and newer ones below, and what one reads does
// not move. Who is at the end stays at the end.

const BOTTOM = 48;
const FAR = 500;
/** Pixels of a message that make it seen. */
const SEEN = 16;

export class Scroll {
  #scroller;
  #list;
  #wasAtBottom = true;
  /** Whether the end of the list is the end of the conversation: only there new messages keep one at the end. */
  sticks = true;

  constructor(scroller, list, signal) {
    [this.#scroller, this.#list] = [scroller, list];
    scroller.addEventListener("scroll", () => { this.#wasAtBottom = this.isAtBottom; }, { signal, passive: true });
    // The keyboard of a telephone, or a window made smaller.
    const watcher = new ResizeObserver(() => this.#wasAtBottom && this.sticks && this.toEnd());
    watcher.observe(scroller);
    signal.addEventListener("abort", () => watcher.disconnect());
  }

  get #left() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  get isAtBottom() {
    return this.#left < BOTTOM;
  }

  get isFar() {
    return this.#left > FAR;
  }

  get isNearTop() {
    return this.#scroller.scrollTop < 600;
  }

  get isNearBottom() {
    return this.#left < 600;
  }

  /** Changes what is shown, and keeps the first message in sight where it is. */
  around(change) {
    if (this.isAtBottom && this.sticks) {
      change();
      this.toEnd();
      return;
    }
    const { top } = this.#scroller.getBoundingClientRect();
    const held = [...this.#list.querySelectorAll("[data-id]")].find((item) => item.getBoundingClientRect().bottom > top);
    const before = held?.getBoundingClientRect().top;
    change();
    const node = held && this.find(held.dataset.id);
    if (node) this.#scroller.scrollTop += node.getBoundingClientRect().top - before;
  }

  find(id) {
    return this.#list.querySelector(`[data-id="${CSS.escape(id)}"]`);
  }

  /** Id of the lowest message of which something is in sight. */
  lowest() {
    const { bottom } = this.#scroller.getBoundingClientRect();
    const isSeen = (item) => item.getBoundingClientRect().top < bottom - SEEN;
    return [...this.#list.querySelectorAll("[data-id]:not(.waiting)")].findLast(isSeen)?.dataset.id;
  }

  toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#wasAtBottom = true;
  }

  /** Of the scroller alone: `scrollIntoView` would move the page under it as well. */
  to(node, isInMiddle = false) {
    const [inner, outer] = [node.getBoundingClientRect(), this.#scroller.getBoundingClientRect()];
    this.#scroller.scrollTop += inner.top - outer.top - (isInMiddle ? (outer.height - inner.height) / 2 : 8);
    this.#wasAtBottom = this.isAtBottom;
  }
}

const SHOWN = 1_500;
/** Pixels at the top that the label covers. */
const ROOM = 44;

/** The day of what is at the top, over the list while one scrolls. */
export class FloatingDay {
  #timer;

  constructor(scroller, list, label, signal) {
    label.textContent = "";
    scroller.addEventListener("scroll", () => this.#show(scroller, list, label), { signal, passive: true });
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  #show(scroller, list, label) {
    const { top } = scroller.getBoundingClientRect();
    const days = [...list.querySelectorAll(".day")];
    const day = days.findLast((node) => node.getBoundingClientRect().bottom < top);
    // The label gives way to a line of the list at its place.
    const isTaken = [...days, ...list.querySelectorAll(".unread")].some((node) => {
      const line = node.getBoundingClientRect();
      return line.bottom >= top && line.top < top + ROOM;
    });
    label.textContent = day && !isTaken ? day.textContent : "";
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => { label.textContent = ""; }, SHOWN);
  }
}

const CONTROLS = "a, button, summary";

/**
 * The messages by keyboard: one of them is in the order of Tab, with its links and buttons. The arrows up and down walk the messages, the
 * other two what is in one of them.
 */
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

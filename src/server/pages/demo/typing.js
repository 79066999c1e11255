// The line that says who is typing.

import { TYPING } from "./documents.js";
import { el, nameOf, part } from "./dom.js";

export class TypingLine {
  #viewer;
  #names = new Map();

  constructor(viewer) {
    this.#viewer = viewer;
  }

  /** Returns the function that ends the subscription. */
  listen(api, id) {
    return api.subscribe({
      query: TYPING,
      variables: { id },
      next: ({ user, isTyping }) => {
        if (user.username === this.#viewer) return;
        if (isTyping) this.#names.set(user.username, nameOf(user));
        else this.#names.delete(user.username);
        this.#show();
      },
    });
  }

  /** A message of the user has arrived. */
  ended(username) {
    if (this.#names.delete(username)) this.#show();
  }

  clear() {
    this.#names.clear();
    this.#show();
  }

  #show() {
    const names = [...this.#names.values()];
    const words = names.length > 2 ? "Several people are typing" : `${names.join(" and ")} ${names.length > 1 ? "are" : "is"} typing`;
    part("typing").replaceChildren(...(names.length ? [el("span", { class: "dots", "aria-hidden": "true" }, el("i"), el("i"), el("i")), words] : []));
  }
}

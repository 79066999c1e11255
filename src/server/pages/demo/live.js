// Messages while they are written: bubbles at the foot of the conversation, below its messages. An element stays while its text grows.

import { dots, el, nameParts, part, replaceItems } from "./dom.js";
import { drawSteps, quote, richText, senderOf } from "./message.js";
import { nameOf } from "./names.js";

/** Shows the users who type. Writers of live messages are in sight: a screen reader says once that they write. */
export function showTyping(users, lives, viewer) {
  const writers = lives.map(({ sender }) => sender).filter(({ username }) => username !== viewer);
  const names = users.filter(({ username }) => !writers.some((writer) => writer.username === username)).map(nameOf);
  const words = names.length > 2 ? "Several people are typing" : `${names.join(" and ")} ${names.length > 1 ? "are" : "is"} typing`;
  const shown = names.length ? [dots(), words] : writers.length ? [el("span", { class: "sr" }, `${nameOf(writers[0])} is writing`)] : [];
  const isSame = part("typing").textContent === shown.map((node) => node.textContent ?? node).join("");
  if (!isSame) part("typing").replaceChildren(...shown);
}

export class LiveBubbles {
  #bubbles = new Map();
  #on;

  /** `on`: stop(id), quote(id). */
  constructor(on) {
    this.#on = on;
  }

  /** `look`: viewer, isGroup, mayLead, original(id), which is the message of a reply. */
  draw(lives, look) {
    const before = this.#bubbles;
    this.#bubbles = new Map(lives.map((live) => [live.id, before.get(live.id) ?? new LiveBubble(live, look, this.#on)]));
    for (const live of lives) this.#bubbles.get(live.id).update(live, look);
    replaceItems(part("lives"), [...this.#bubbles.values()].map(({ node }) => node));
  }
}

class LiveBubble {
  #steps = el("ul", { class: "steps" });
  #body = el("p", { class: "body", dir: "auto" });
  #status = el("span");
  #stop;
  #drawn = {};

  constructor({ id, sender, replyTo }, { viewer, isGroup, original }, on) {
    const isOwn = sender.username === viewer;
    this.#stop = el("button", { class: "quiet stop", type: "button", onclick: () => on.stop(id) });
    const asked = replyTo && original(replyTo.id);
    const bubble = el("div", { class: "bubble" },
      isGroup && !isOwn ? el("p", { class: "author" }, ...nameParts(sender)) : senderOf({ sender }, { isOwn }),
      asked ? quote(asked, on) : null, this.#steps, this.#body,
      el("p", { class: "live-foot" }, dots(), this.#status, this.#stop));
    this.node = el("li", { class: `message live starts ends${isOwn ? " own" : ""}` }, el("div", { class: "row" }, bubble));
  }

  /** Draws only what has changed: a click on Stop must not lose its button. */
  update(live, look) {
    this.#once("steps", JSON.stringify(live.steps), () => this.#steps.replaceChildren(...drawSteps(live.steps)));
    this.#once("body", live.body, () => this.#body.replaceChildren(...richText(live, look.viewer)));
    const isStopping = Boolean(live.stopRequestedBy);
    this.#once("status", live.status ?? "writing", (words) => { this.#status.textContent = words; });
    this.#once("stop", `${isStopping ? "Stopping" : "Stop"} ${nameOf(live.sender)}`, (words) => {
      [this.#stop.textContent, this.#stop.ariaLabel] = [isStopping ? "Stopping…" : "Stop", words];
    });
    this.#stop.disabled = isStopping;
    this.#stop.hidden = live.state !== "WRITING" || !(!look.isGroup || look.mayLead || live.replyTo?.sender.username === look.viewer);
  }

  #once(what, value, draw) {
    if (this.#drawn[what] === value) return;
    this.#drawn[what] = value;
    draw(value);
  }
}

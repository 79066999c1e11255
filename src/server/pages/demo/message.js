// How one message looks. It knows nothing of the server: what is done to it goes to `on`.

import { parts } from "../../client/index.js";
import { drawAttachment } from "./attachments.js";
import { dayKey, el, fullTime, icon, link, nameParts, timeOf } from "./dom.js";
import { spanOf } from "./expiry.js";
import { nameOf, userNamed } from "./names.js";

const LONG = 1_200;
const ONLY_EMOJI = /^(?:\p{Extended_Pictographic}[\u{FE0F}\u{200D}\u{1F3FB}-\u{1F3FF}]*){1,6}$/u;
const FOLDED = "A message of somebody you have blocked";
const RUN_TIME = 5 * 60_000;

/** What it says in one line: for the inbox, for a quote, for who listens. */
export function lineOf(message) {
  if (message.deletedAt) return "This message was deleted";
  if (message.sender?.viewerHasBlocked) return FOLDED;
  if (message.kind === "SYSTEM") return systemLine(message);
  // Backticks of code are left out.
  return message.body?.replace(/```(?:[\w+-]*\n)?/g, " ").trim() || message.attachments?.map(({ name }) => name || "Attachment").join(", ") || "";
}

const and = new Intl.ListFormat("en", { type: "conjunction" });
const ROLES = { OWNER: "an owner", ADMIN: "an admin", MEMBER: "a member" };

/** The server says in the metadata what happened. */
export function systemLine({ metadata, sender }) {
  const { event, usernames = [], name, role, seconds } = metadata ?? {};
  const who = nameOf(sender);
  const whom = and.format(usernames.map((name) => nameOf(userNamed(String(name)))));
  switch (event) {
    case "joined": return `${who} added ${whom}`;
    case "removed": return `${who} removed ${whom}`;
    case "left": return `${who} left`;
    case "renamed": return `${who} named the group “${name}”`;
    case "roleChanged": return `${who} made ${whom} ${ROLES[String(role).toUpperCase()] ?? "something else"}`;
    case "expiryChanged": return seconds ? `${who} lets messages disappear after ${spanOf(seconds)}` : `${who} lets messages stay`;
    case "visibilityChanged": return `${who} shows new people ${metadata.visibility === "ALL" ? "all messages" : "the messages since they joined"}`;
    default: return `${who} changed the conversation`;
  }
}

const STATUS = {
  WAITING: ["clock", "Waiting"],
  SENT: ["sent", "Sent"],
  DELIVERED: ["twice", "Delivered"],
  READ: ["twice", "Read"],
};

export function tick(status) {
  const [shape, words] = STATUS[status] ?? STATUS.SENT;
  return el("span", { class: "tick", "data-status": status, title: words }, icon(shape), el("span", { class: "sr" }, words));
}

/** Whether they are shown as one run: of one sender, soon after another, on one day. */
export function isRun(before, after) {
  return Boolean(before && before.kind === "TEXT" && after.kind === "TEXT"
    && before.sender.username === after.sender.username
    && dayKey(before.createdAt) === dayKey(after.createdAt)
    && Math.abs(Date.parse(after.createdAt) - Date.parse(before.createdAt)) < RUN_TIME);
}

/** `look`: isOwn, isGroup, startsRun, endsRun, isUnfolded, mayWrite, viewer. `on`: react, menu, quote, unfold. */
export function drawMessage(message, look, on) {
  if (message.kind === "SYSTEM") {
    return el("li", { class: "system", "data-id": message.id }, systemLine(message));
  }
  const bubble = el("div", { class: "bubble" });
  const isEmoji = !message.deletedAt && !message.replyTo && !message.sender.viewerHasBlocked && ONLY_EMOJI.test(message.body ?? "");
  bubble.append(look.isGroup && !look.isOwn && look.startsRun ? el("p", { class: "author" }, ...nameParts(message.sender)) : senderOf(message, look));
  const isFolded = look.isGroup && message.sender.viewerHasBlocked && !look.isUnfolded && !message.deletedAt;
  if (isFolded) {
    bubble.append(el("p", { class: "body deleted" }, `${FOLDED}. `), el("button", { class: "quiet", type: "button", onclick: () => on.unfold(message) }, "Show"));
  } else {
    if (message.replyTo && !message.deletedAt) bubble.append(quote(message.replyTo, on));
    if (message.steps?.length && !message.deletedAt) bubble.append(foldedSteps(message.steps));
    bubble.append(...attachmentsOf(message), bodyOf(message, look));
  }
  bubble.append(meta(message, look));

  const more = el("button", {
    class: "round more", type: "button", tabIndex: -1, "aria-haspopup": "menu",
    "aria-label": "Actions", "aria-describedby": `body-${message.id}`,
    onclick: (event) => on.menu(message, event.currentTarget),
  }, icon("more"));

  return el("li", {
    class: `message${look.isOwn ? " own" : ""}${look.startsRun ? " starts" : ""}${look.endsRun ? " ends" : ""}${isEmoji ? " emoji" : ""}${isMentioned(message, look) ? " mentioned" : ""}`,
    "data-id": message.id,
  }, el("div", { class: "row" }, bubble, message.deletedAt ? null : more), isFolded ? null : reactionsOf(message, on));
}

/** Heard in place of a name that is not shown. */
export const senderOf = (message, { isOwn }) => el("span", { class: "sr" }, `${isOwn ? "You" : nameOf(message.sender)}: `);

const isMentioned = ({ deletedAt, mentions, mentionsEveryone }, { isOwn, viewer }) =>
  !deletedAt && !isOwn && (mentionsEveryone || mentions.some(({ username }) => username === viewer));

/** The text with its links and mentions, cut after so many characters. */
export function richText(message, viewer, most = Infinity) {
  return parts({ ...message, body: message.body.slice(0, most) }).map(({ kind, text, url, username }) => {
    if (kind === "link") return link(url, text);
    if (kind === "text") return text;
    if (kind === "code") return el("code", { dir: "ltr" }, text);
    return el("span", { class: `mention${username === null || username === viewer ? " me" : ""}` }, text);
  });
}

/** `wasLive`: the reader has seen all of it while it was written. */
function bodyOf(message, { viewer, wasLive }) {
  if (message.deletedAt) return el("p", { class: "body deleted" }, lineOf(message));
  const body = message.body ?? "";
  const text = el("p", { class: "body", dir: "auto", id: `body-${message.id}` });
  if (wasLive || body.length <= LONG + 200) {
    text.append(...richText({ ...message, body }, viewer));
  } else {
    const showAll = () => text.replaceChildren(...richText(message, viewer));
    text.append(...richText(message, viewer, LONG), "… ", el("button", { class: "quiet", type: "button", onclick: showAll }, "Show all"));
  }
  return text;
}

const STEPS = { RUNNING: ["running", "running"], WAITING: ["clock", "waiting"], DONE: ["sent", "done"], FAILED: ["close", "failed"] };

/** Steps of the work behind a message, as items of a list. */
export const drawSteps = (steps) => steps.map(({ title, state, detail }) => {
  const [shape, words] = STEPS[state] ?? STEPS.WAITING;
  return el("li", { "data-state": state }, icon(shape), el("span", { dir: "auto" }, title, el("span", { class: "sr" }, `, ${words}`), detail ? el("small", {}, detail) : null));
});

function foldedSteps(steps) {
  const failed = steps.filter(({ state }) => state === "FAILED").length;
  const words = `${steps.length} ${steps.length === 1 ? "step" : "steps"}${failed ? `, ${failed} not done` : ""}`;
  return el("details", { class: "steps" }, el("summary", {}, words), el("ul", {}, ...drawSteps(steps)));
}

function attachmentsOf(message) {
  if (message.deletedAt) return [];
  return message.attachments.map(drawAttachment);
}

export function quote(original, on) {
  return el("button", { class: "quote", type: "button", onclick: () => on.quote(original.id) },
    el("b", {}, nameOf(original.sender)), el("span", { dir: "auto" }, lineOf({ kind: "TEXT", ...original }).slice(0, 140)));
}

function meta(message, { isOwn }) {
  return el("p", { class: "meta" },
    message.isPinned && !message.deletedAt ? el("span", { class: "tick", title: "Pinned" }, icon("pinned"), el("span", { class: "sr" }, "Pinned")) : null,
    message.editedAt && !message.deletedAt ? el("span", {}, "edited") : null,
    message.isInterrupted && !message.deletedAt ? el("span", {}, "Interrupted") : null,
    el("time", { dateTime: message.createdAt, title: fullTime(message.createdAt) }, timeOf(message.createdAt)),
    isOwn && message.status && !message.deletedAt ? tick(message.status) : null);
}

function reactionsOf(message, on) {
  if (!message.reactions.length || message.deletedAt) return null;
  return el("div", { class: "reactions" }, ...message.reactions.map(({ emoji, count, countIsCapped, viewerHasReacted }) =>
    el("button", {
      class: "reaction", type: "button", "aria-pressed": String(viewerHasReacted),
      "aria-label": `${emoji}, ${count}${countIsCapped ? " or more" : ""}`,
      onclick: () => on.react(message, emoji, !viewerHasReacted),
    }, emoji, count > 1 ? el("span", {}, `${count}${countIsCapped ? "+" : ""}`) : null)));
}

/** Whether another try of the same message may go well. A silence, or a role that was missing, can have ended meanwhile. */
const mayPass = ({ code }, { mayWrite }) => mayWrite && !["BAD_USER_INPUT", "CONFLICT", "NOT_FOUND"].includes(code);

/** One that the server has not confirmed. It can be taken back while it waits. */
export function drawWaiting(waiting, look, on) {
  const { state, error, retryAt } = waiting.send;
  const bubble = el("div", { class: "bubble" }, senderOf(waiting, { isOwn: true }));
  if (waiting.replyTo?.sender.username) bubble.append(quote(waiting.replyTo, on));
  const isSlow = state === "waiting" && error?.code === "RATE_LIMITED";
  bubble.append(...attachmentsOf(waiting), el("p", { class: "body", dir: "auto" }, ...richText(waiting, look.viewer)),
    el("p", { class: "meta" }, isSlow ? el("span", { "data-until": String(retryAt) }) : null,
      el("time", {}, timeOf(waiting.createdAt)), state === "failed" ? null : tick("WAITING")));
  const button = (label, run) => el("button", { class: "quiet", type: "button", onclick: () => run(waiting) }, label);
  let below = null;
  if (state === "failed") below = el("div", { class: "failure", role: "alert" }, `Not sent: ${error.message} `, mayPass(error, look) ? button("Send again", on.again) : null, button("Take back", on.takeBack), button("Discard", on.discard));
  else if (error) below = el("div", { class: "failure waits" }, button("Take back", on.takeBack));
  return el("li", { class: `message own waiting ends${look.startsRun ? " starts" : ""}`, "data-id": waiting.key },
    el("div", { class: "row" }, bubble), below);
}

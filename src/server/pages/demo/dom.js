// Small things that every part needs: making elements, saying times, ordering ids. Text is only ever set as text.

import { displayOf, handleOf, tooltipOf } from "./names.js";

/** An element with properties, and children that are elements or text. `data-` and `aria-` names, `role` and `class` become attributes. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (/^(data-|aria-|role$|class$|for$)/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Puts these children there, and touches none that stays: focus and selection hold. */
export function replaceItems(list, wanted) {
  const isWanted = new Set(wanted);
  for (const child of [...list.children]) if (!isWanted.has(child)) child.remove();
  let next = list.firstChild;
  for (const node of wanted) {
    if (node === next) next = next.nextSibling;
    else list.insertBefore(node, next);
  }
}

/** The part of the address after its #: a conversation, and the message to jump to. */
export const addressOf = (conversationId, messageId) =>
  `#${encodeURIComponent(conversationId)}${messageId ? `/${encodeURIComponent(messageId)}` : ""}`;

export const part = (id) => document.getElementById(id);

const SHAPES = {
  send: "M3 20 21 12 3 4v6l11 2-11 2z",
  back: "M15 5 8 12l7 7",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  plus: "M12 5v14M5 12h14",
  down: "M6 9l6 6 6-6",
  close: "M6 6l12 12M18 6 6 18",
  clock: "M12 7v5l3 2M12 3a9 9 0 1 0 .01 0",
  sent: "M5 12.5l4.5 4.5L19 7.5",
  twice: "M2 12.5l4.5 4.5L16 7.5M11 16l1 1 9.5-9.5",
  muted: "M4 10v4h4l5 4V6L8 10zM17 9l5 6M22 9l-5 6",
  search: "M11 4a7 7 0 1 0 .01 0M16 16l5 5",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  blocked: "M12 3a9 9 0 1 0 .01 0M6 6l12 12",
  clip: "M20 11l-8 8a5 5 0 0 1-7-7l8-8a3.5 3.5 0 0 1 5 5l-8 8a2 2 0 0 1-3-3l7-7",
  running: "M12 4a8 8 0 1 1-8 8",
  pinned: "M9 4h6l-1 7 4 3H6l4-3zM12 14v6",
};

/** A drawn sign. It is for the eye: who listens gets the name of what it stands in. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", SHAPES[name]);
  svg.append(path);
  return svg;
}

/** A name as elements: where room is short, the display name gives way. The tooltip always has the username. `isTyped`: it is typed by it. */
export function nameParts(user, isTyped = false) {
  const handle = isTyped && displayOf(user).toLowerCase() !== user.username.toLowerCase() ? tooltipOf(user).slice(1) : handleOf(user);
  return [el("b", { dir: "auto", title: tooltipOf(user) }, displayOf(user)), handle ? el("span", { class: "handle", dir: "auto" }, ` @${handle}`) : null, ...agentMark(user)];
}

/** The sign of an agent, behind its name. */
export const agentMark = (user) => (user?.isAgent ? [" ", el("span", { class: "agent" }, "agent")] : []);

/** Sign that a user writes. */
export const dots = () => el("span", { class: "dots", "aria-hidden": "true" }, el("i"), el("i"), el("i"));

/** The picture of a user, over the first letters of at most two words on a colour that stays the same for this name. */
export function avatar(title, isOnline = false, url = null) {
  const letters = title.split(/[\s&]+/u).filter(Boolean).slice(0, 2).map((word) => [...word][0].toUpperCase()).join("");
  let hash = 7;
  for (const character of title.toLowerCase()) hash = (hash * 33 + character.codePointAt(0)) % 1_009;
  return el("span", { class: `avatar tint-${hash % 6}`, "aria-hidden": "true", "data-online": isOnline ? "" : undefined }, letters, url ? remoteImage(url) : null);
}

/** An image of another host, which gets to know no more than that it was fetched. One that does not load goes. */
export function remoteImage(url, properties = {}) {
  if (!URL.canParse(url) || new URL(url).protocol !== "https:") return null;
  return el("img", { alt: "", loading: "lazy", decoding: "async", referrerPolicy: "no-referrer", ...properties, onerror: ({ currentTarget }) => currentTarget.remove(), src: url });
}

export const userAvatar = (user, isOnline) => avatar(displayOf(user), isOnline, user?.avatarUrl);

/** Words for an error. */
export const wordsOf = (error) => (error.code === "OFFLINE" ? "You are offline. Try again when you are back." : error.message);

export const titleOf = (conversation, viewer) => {
  if (conversation.kind === "GROUP") return conversation.name || "Group";
  const peer = conversation.directPeer;
  return !peer || peer.username === viewer ? "Note to self" : displayOf(peer);
};

export const titleParts = (conversation, viewer) => {
  const peer = conversation.kind === "DIRECT" && conversation.directPeer;
  return peer && peer.username !== viewer ? nameParts(peer) : [el("b", { dir: "auto" }, titleOf(conversation, viewer))];
};

// ---- Time: in the language of the page, by the clock of the reader.

const { hourCycle = "h23" } = new Intl.DateTimeFormat(undefined, { hour: "numeric" }).resolvedOptions();
const isHalfDay = hourCycle.startsWith("h1");
const clock = new Intl.DateTimeFormat("en", { hour: isHalfDay ? "numeric" : "2-digit", minute: "2-digit", hourCycle: isHalfDay ? "h12" : "h23" });
const weekday = new Intl.DateTimeFormat("en", { weekday: "short" });
const date = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
const longDate = new Intl.DateTimeFormat("en", { weekday: "long", day: "numeric", month: "long" });
const fullDate = new Intl.DateTimeFormat("en", { day: "numeric", month: "long", year: "numeric" });
const full = new Intl.DateTimeFormat("en", { dateStyle: "long", timeStyle: "short", hourCycle: isHalfDay ? "h12" : "h23" });

const midnight = (time) => new Date(time).setHours(0, 0, 0, 0);
const daysAgo = (time) => Math.round((midnight(Date.now()) - midnight(time)) / 86_400_000);

export const timeOf = (text) => clock.format(new Date(text));
export const fullTime = (text) => full.format(new Date(text));
export const dayKey = (text) => midnight(text);

/** 14:05 today, then Tue, then Mar 12. */
export function shortTime(text) {
  const days = daysAgo(text);
  return (days < 1 ? clock : days < 7 ? weekday : date).format(new Date(text));
}

export function dayName(text) {
  const days = daysAgo(text);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  return (days < 300 ? longDate : fullDate).format(new Date(text));
}

// ---- Links. Only web and mail addresses become links, whatever a message says.

export function link(url, text) {
  if (!URL.canParse(url) || !["http:", "https:", "mailto:"].includes(new URL(url).protocol)) return document.createTextNode(text);
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, text);
}

// The page as a whole: who one is, which conversation is open, and what the bar says about the connection.

import { SignedOut, connect } from "../../client/index.js";
import { claimsOf } from "../../client/transport.js";
import * as documents from "./documents.js";
import { addressOf, avatar, el, icon, nameParts, part, titleOf, userAvatar } from "./dom.js";
import { InboxList } from "./inbox.js";
import { knownUsers, nameOf } from "./names.js";
import { openProfile } from "./profile.js";
import { Room } from "./room.js";
import { Blocks } from "./safety.js";
import { Search, drawMatch } from "./search.js";

const people = JSON.parse(document.querySelector("meta[name=people]").content);
const isDemo = people.length > 0;

let session = null;

// ---- Who one is. A window keeps its own person.

const recall = (name) => sessionStorage.getItem(name) ?? "";

/** In the demo a token is asked for whenever one is wanted; nobody has to see one. */
async function demoToken(username) {
  const response = await fetch("demo/token", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username }),
  });
  if (!response.ok) throw new Error(`The server gives no token for ${username}.`);
  return (await response.json()).token;
}

function whyRefused(token) {
  const { exp } = claimsOf(token);
  return exp && exp * 1_000 < Date.now() ? "This token has expired. Paste a new one: your drafts are kept." : "This token is not accepted. Paste another one.";
}

function showDoor(problem = "") {
  [part("door").hidden, part("app").hidden] = [false, true];
  part("door-problem").textContent = problem;
  part("token-form").hidden = isDemo;
  part("people").hidden = !isDemo;
  part("door-words").textContent = isDemo ? "Who are you? Choose another person in a second window." : "Sign in with a token.";
  part("people").replaceChildren(...people.map((name) => el("li", {},
    el("button", { type: "button", onclick: () => signInAs(name) }, avatar(name), name))));
  document.title = "Wideroom chat";
}

function signInAs(username) {
  sessionStorage.setItem("wideroom:person", username);
  start(username, () => demoToken(username));
}

function signInWith(token) {
  sessionStorage.setItem("wideroom:token", token);
  const { sub } = claimsOf(token);
  if (!sub) return leave("This is no token.");
  start(sub, (reason) => {
    if (reason === "refused") throw new SignedOut();
    return token;
  });
}

/** Drafts and unsent messages stay on the device. */
function leave(problem = "") {
  closeRoom();
  for (const stop of session?.stops ?? []) stop();
  session?.chat.close();
  session = null;
  for (const name of ["wideroom:person", "wideroom:token"]) sessionStorage.removeItem(name);
  showBar("");
  showDoor(problem);
}

function start(username, token) {
  const chat = connect({ url: ".", user: username, token, select: documents.SELECT });
  session = { chat, viewer: username, room: null, peers: "", presence: null, stops: [] };
  [part("door").hidden, part("app").hidden] = [true, false];
  showMe({ username });
  session.inbox = new InboxList({ chat, viewer: username, isOnline: (peer) => presenceOf(peer)?.isOnline ?? false });
  session.blocks = new Blocks(chat);
  const search = searchEverywhere(chat);
  const seen = new Map();
  session.stops.push(
    chat.connection.subscribe(showConnection),
    chat.viewer.subscribe(() => showMe(chat.viewer.get())),
    chat.badge.subscribe(showBadge),
    session.inbox.watch(() => { watchPeers(); announceElsewhere(seen); }),
    () => session.presence?.stop(), () => session.inbox.close(), () => session.blocks.close(), () => search.close(),
  );
  showConnection();
  showBadge();
  route();
}

function showMe(user) {
  session.me = user;
  part("me").replaceChildren(userAvatar(user), el("span", { class: "entry-name" }, ...nameParts(user).filter(Boolean)), el("span", { class: "sr" }, " Your profile"));
}

function showBadge() {
  const { conversations, isCapped } = session.chat.badge.get();
  document.title = `${conversations ? `(${conversations}${isCapped ? "+" : ""}) ` : ""}${session.viewer} · Wideroom chat`;
}

// ---- The search over all conversations: its matches are shown in place of the inbox.

function searchEverywhere(chat) {
  const stop = new AbortController();
  part("search").value = "";
  const search = new Search({
    parts: { field: part("search"), list: part("results"), scroller: part("results-scroll"), status: part("search-status") },
    find: async (query, filter, after) => (await chat.request(documents.SEARCH, { query, filter, after })).searchMessages,
    draw: ({ node, snippet }) => {
      const title = titleOf(node.conversation, session.viewer);
      const peer = node.conversation.directPeer;
      const sender = node.sender.username === session.viewer ? "You" : nameOf(node.sender);
      return drawMatch(addressOf(node.conversation.id, node.id), node.sender.username === peer?.username ? sender : `${sender} in ${title}${peer?.isAgent ? " (agent)" : ""}`, node, snippet);
    },
    onShown: (isShown) => { [part("results-scroll").hidden, part("inbox-scroll").hidden] = [!isShown, isShown]; },
    signal: stop.signal,
  });
  return { close: () => { search.clear(); stop.abort(); } };
}

// ---- Who is there: of those with whom one talks alone.

const presenceOf = (username) => session?.presence?.store.get().get(username);

function watchPeers() {
  const own = session;
  const names = own.inbox.entries.map(({ conversation }) => conversation.directPeer?.username).filter((name) => name && name !== own.viewer);
  const usernames = [...new Set(names)].sort().slice(0, 100);
  if (own.peers === usernames.join("\n")) return;
  own.peers = usernames.join("\n");
  own.presence?.stop();
  const store = own.chat.presence(usernames);
  own.presence = { store, stop: store.subscribe(() => { own.inbox.render(); own.room?.presenceChanged(); }) };
}

// ---- Which conversation is open. It stands in the address, so that the way back works as everywhere.

function closeRoom() {
  if (!session?.room) return;
  session.room.close();
  session.room = null;
}

function route() {
  if (!session) return;
  let [id, messageId] = ["", ""];
  try {
    [id = "", messageId = ""] = location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    // No address of ours.
  }
  // Once it is on its way to the message, the same address can be chosen again.
  if (messageId) history.replaceState(null, "", addressOf(id));
  if (session.room?.id === id) return messageId && session.room.jump(messageId);
  const wasOpen = Boolean(session.room);
  closeRoom();
  part("app").dataset.view = id ? "room" : "inbox";
  [part("room-in").hidden, part("nothing").hidden] = [!id, Boolean(id)];
  part("room-problem").textContent = "";
  session.inbox.select(id);
  if (id) {
    session.room = new Room({
      chat: session.chat,
      viewer: session.viewer,
      conversationId: id,
      messageId,
      on: { announce, presence: presenceOf, status: (message) => session.inbox.learnStatus(message), block: (username, isBlocked) => session.blocks.set(username, isBlocked), sent: askAgent, gone: () => { location.hash = ""; } },
    });
    // On a telephone the keyboard would cover what one came to read.
    if (matchMedia("(pointer: fine)").matches) part("text").focus();
  } else if (wasOpen) {
    document.querySelector("#inbox a")?.focus();
  }
}

// ---- The agent of the demo runs in the page of the user who asked.

const agent = () => import("./echo.js");

function askAgent(conversation, message) {
  if (isDemo && conversation.participants.some(({ isAgent }) => isAgent)) agent().then(({ answer }) => answer(conversation, message), () => {});
}

// ---- For those who listen.

const SAID_WITHIN = 10_000;

/** Gone once it is said: what is deleted must not stay in it. */
function announce(words) {
  const line = el("p", {}, words.slice(0, 300));
  part("announcer").append(line);
  setTimeout(() => line.remove(), SAID_WITHIN);
}

/** Messages of a conversation that is not the open one. `seen`: the last message of each. */
function announceElsewhere(seen) {
  const isCaughtUp = session.chat.connection.get().isCaughtUp;
  for (const { conversation, lastMessage, unreadCount, isMuted } of session.inbox.entries) {
    const isNew = seen.has(conversation.id) && seen.get(conversation.id) !== lastMessage?.id;
    seen.set(conversation.id, lastMessage?.id);
    if (!isNew || !isCaughtUp || !unreadCount || isMuted || conversation.id === session.room?.id || !lastMessage?.body) continue;
    announce(`New message of ${nameOf(lastMessage.sender)}${conversation.name ? ` in ${conversation.name}` : ""}`);
  }
}

// ---- The connection.

let barTimer;

function showBar(state) {
  clearTimeout(barTimer);
  const words = { connecting: "Connecting…", offline: "Offline. Messages will be sent when you are back. ", behind: "Catching up…", back: "Connected again" }[state] ?? "";
  part("bar").dataset.state = state;
  part("bar").replaceChildren(words, ...(state === "offline" ? [el("button", { class: "quiet", type: "button", onclick: () => session?.chat.retryNow() }, "Try now")] : []));
  if (state === "back") barTimer = setTimeout(() => showBar(""), 1_600);
}

function showConnection() {
  const { state, isCaughtUp, reason } = session.chat.connection.get();
  const before = part("bar").dataset.state;
  if (state === "signed-out") {
    leave(reason === "suspended" ? "This account is suspended. Ask those who run this chat." : whyRefused(recall("wideroom:token")));
  } else if (state === "offline") {
    if (before !== "offline") showBar("offline");
  } else if (isCaughtUp) {
    showBar(["offline", "back"].includes(before) ? "back" : "");
  } else if (!["offline", "back"].includes(before)) {
    // A connection that is there at once is not worth a word.
    clearTimeout(barTimer);
    barTimer = setTimeout(() => showBar(state === "connected" ? "behind" : "connecting"), 400);
  }
}

// ---- A new conversation.

function namesWanted() {
  return [...new Set(part("names").value.split(",").map((name) => name.trim()).filter(Boolean))];
}

function showDialogFields() {
  const names = namesWanted();
  // The API does not tell whether a user exists.
  const known = new Set([...people, session.viewer, ...knownUsers().map(({ username }) => username)]);
  const strangers = names.filter((name) => !known.has(name));
  part("new-names").textContent = strangers.length ? `New to you: ${strangers.join(", ")}. Check the spelling: what you write waits for a user of exactly this name.` : "";
  part("group-field").hidden = names.length < 2;
  part("group-name").required = names.length > 1;
  for (const chip of part("chips").children) chip.setAttribute("aria-pressed", String(names.includes(chip.textContent)));
}

function openDialog() {
  part("dialog-form").reset();
  part("dialog-problem").textContent = "";
  const known = session.inbox.entries.map(({ conversation }) => conversation.directPeer?.username);
  const names = [...new Set([...people, ...known])].filter((name) => name && name !== session.viewer).slice(0, 12);
  part("chips").replaceChildren(...names.map((name) => el("button", {
    type: "button", class: "chip", "aria-pressed": "false",
    onclick: () => {
      const others = namesWanted().filter((own) => own !== name);
      part("names").value = (others.length < namesWanted().length ? others : [...others, name]).join(", ");
      showDialogFields();
    },
  }, name)));
  showDialogFields();
  part("dialog").showModal();
}

async function startConversation(event) {
  event.preventDefault();
  const names = namesWanted();
  if (!names.length) return;
  try {
    const id = names.length === 1
      ? await session.chat.startDirect(names[0])
      : await session.chat.createGroup(part("group-name").value.trim(), names);
    part("dialog").close();
    location.hash = addressOf(id);
  } catch (error) {
    part("dialog-problem").textContent = error.message;
  }
}

// ---- The beginning.

part("new").append(icon("plus"));
part("back").append(icon("back"));
part("new").addEventListener("click", openDialog);
part("leave").addEventListener("click", () => { leave(); location.hash = ""; });
for (const id of ["names", "group-name"]) part(id).addEventListener("input", showDialogFields);
part("dialog-form").addEventListener("submit", startConversation);
part("me").addEventListener("click", () => openProfile({ chat: session.chat, user: session.me, saved: showMe }));
part("blocked").addEventListener("click", () => session.blocks.open());
part("blocked-close").addEventListener("click", () => part("blocked-dialog").close());
part("dialog-cancel").addEventListener("click", () => part("dialog").close());
part("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = part("token").value.trim();
  part("token").value = "";
  signInWith(token);
});
addEventListener("hashchange", route);
// At once: what is written after a click must not go to the conversation before.
addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = link.hash;
  route();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && session?.room && !document.querySelector("dialog[open]")) {
    if (part("sheet").hidden) location.hash = "";
    else part("sheet-close").click();
  }
});

const wanted = new URLSearchParams(location.search).get("as") ?? recall("wideroom:person");
if (isDemo && recall("wideroom:echo")) agent().then(({ resume }) => resume(), () => {});
if (isDemo && people.includes(wanted)) signInAs(wanted);
else if (!isDemo && recall("wideroom:token")) signInWith(recall("wideroom:token"));
else showDoor();

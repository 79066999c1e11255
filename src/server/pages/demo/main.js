// The page as a whole: who one is, which conversation is open, and what the bar says about the connection.

import { Api, ApiError } from "./api.js";
import * as documents from "./documents.js";
import { addressOf, avatar, displayOf, el, icon, nameOf, nameParts, part, titleOf } from "./dom.js";
import { drawMatch } from "./finder.js";
import { Inbox } from "./inbox.js";
import { Outbox } from "./outbox.js";
import { Room } from "./room.js";
import { Blocks } from "./safety.js";
import { Search } from "./search.js";

const people = JSON.parse(document.querySelector("meta[name=people]").content);
const isDemo = people.length > 0;

let session = null;

// ---- Who one is. A window keeps its own person.

const recall = (name) => sessionStorage.getItem(name) ?? "";

/** In the demo a token is asked for whenever one is wanted; nobody has to see one. */
async function demoToken(username) {
  let response;
  try {
    response = await fetch("demo/token", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ username }),
    });
  } catch {
    throw new ApiError({ message: "The server does not answer.", extensions: { code: "OFFLINE" } });
  }
  if (!response.ok) throw new Error(`The server gives no token for ${username}.`);
  return (await response.json()).token;
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

async function signInAs(username) {
  try {
    sessionStorage.setItem("wideroom:person", username);
    await start(await demoToken(username), () => demoToken(username));
  } catch (error) {
    showDoor(error.message);
  }
}

async function signInWith(token) {
  sessionStorage.setItem("wideroom:token", token);
  const refused = () => {
    signOut("This token is not accepted, or has expired. Paste another one.");
    throw new Error("This token is not accepted, or has expired. Paste another one.");
  };
  try {
    await start(token, refused);
  } catch (error) {
    signOut(error.message);
  }
}

function signOut(problem = "") {
  closeRoom();
  session?.inbox.close();
  session?.blocks?.close();
  session?.search?.close();
  session?.stopPresence();
  session?.api.close();
  session = null;
  for (const name of ["wideroom:person", "wideroom:token"]) sessionStorage.removeItem(name);
  showBar("");
  showDoor(problem);
}

async function start(token, newToken) {
  const api = new Api({ token, newToken, onState: showConnection });
  let viewer;
  try {
    ({ viewer } = await api.ask(documents.VIEWER));
  } catch (error) {
    api.close();
    throw error;
  }
  const outbox = new Outbox({
    api,
    onChange: (id) => session?.room?.id === id && session.room.refresh(),
    onSent: (id, message) => session?.room?.id === id && session.room.sent(message),
  });
  session = { api, outbox, viewer: viewer.username, room: null, drafts: new Map(), presence: new Map(), peers: "", stopPresence: () => {} };
  [part("door").hidden, part("app").hidden] = [true, false];
  part("me").replaceChildren(avatar(displayOf(viewer)), el("span", { class: "entry-name" }, ...nameParts(viewer)));
  session.inbox = new Inbox({
    api,
    viewer: viewer.username,
    on: {
      changed: (entry) => {
        watchPeers();
        announceElsewhere(entry);
        if (entry.conversation.id === session.room?.id) session.room.entryChanged(entry);
      },
      removed: (id) => { if (session.room?.id === id) session.room.removed(); },
      blocked: (user) => session.blocks.changed(user),
      presence: (username) => session?.presence.get(username)?.isOnline ?? false,
      loaded: watchPeers,
    },
  });
  session.blocks = new Blocks({
    api,
    on: {
      changed: (user) => { session.inbox.blockChanged(user); session.room?.blockChanged(user); },
      returned: (entry) => session.inbox.upsert(entry),
    },
  });
  session.search = searchEverywhere(api);
  route();
}

// ---- The search over all conversations: its matches are shown in place of the inbox.

function searchEverywhere(api) {
  const stop = new AbortController();
  part("search").value = "";
  const search = new Search({
    parts: { field: part("search"), list: part("results"), scroller: part("results-scroll"), status: part("search-status") },
    find: async (query, filter, after) => (await api.ask(documents.SEARCH, { query, filter, after })).searchMessages,
    draw: ({ node, snippet }) => {
      const title = titleOf(node.conversation, session.viewer);
      const isPeer = node.sender.username === node.conversation.directPeer?.username;
      const sender = node.sender.username === session.viewer ? "You" : nameOf(node.sender);
      return drawMatch(addressOf(node.conversation.id, node.id), isPeer ? sender : `${sender} in ${title}`, node, snippet);
    },
    onShown: (isShown) => { [part("results-scroll").hidden, part("inbox-scroll").hidden] = [!isShown, isShown]; },
    signal: stop.signal,
  });
  return { close: () => { search.clear(); stop.abort(); } };
}

// ---- Who is there: of those with whom one talks alone.

function watchPeers() {
  const own = session;
  if (!own?.inbox) return;
  const names = own.inbox.entries.map(({ conversation }) => conversation.directPeer?.username).filter((name) => name && name !== own.viewer);
  const usernames = [...new Set(names)].sort().slice(0, 100);
  if (own.peers === usernames.join("\n")) return;
  own.peers = usernames.join("\n");
  own.stopPresence();
  own.stopPresence = usernames.length === 0 ? () => {} : own.api.subscribe({
    query: documents.PRESENCE,
    variables: { usernames },
    next: ({ user, presence }) => {
      own.presence.set(user.username, presence);
      own.inbox.render();
      own.room?.presenceChanged();
    },
  });
}

// ---- Which conversation is open. It stands in the address, so that the way back works as everywhere.

function closeRoom() {
  if (!session?.room) return;
  session.drafts.set(session.room.id, session.room.close());
  session.room = null;
}

function route() {
  if (!session) return;
  let [id, messageId] = ["", ""];
  try {
    [id = "", messageId = ""] = location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    // Somebody else's address: no conversation of ours.
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
      api: session.api,
      outbox: session.outbox,
      viewer: session.viewer,
      conversationId: id,
      messageId,
      draft: session.drafts.get(id) ?? "",
      on: {
        read: (conversationId) => session.inbox.read(conversationId),
        announce,
        presence: (username) => session.presence.get(username),
        block: (username, isBlocked) => session.blocks.set(username, isBlocked),
        cleared: (entry) => session.inbox.upsert(entry),
        gone: () => { location.hash = ""; },
      },
    });
    // On a telephone the keyboard would cover what one came to read.
    if (matchMedia("(pointer: fine)").matches) part("text").focus();
  } else if (wasOpen) {
    document.querySelector("#inbox a")?.focus();
  }
}

// ---- For those who listen.

const SAID_WITHIN = 10_000;

/** Gone when it has been said: it is no second history, and what is deleted must not stay in it. */
function announce(words) {
  const line = el("p", {}, words.slice(0, 300));
  part("announcer").append(line);
  setTimeout(() => line.remove(), SAID_WITHIN);
}

/** Messages of a conversation that is not the open one. */
function announceElsewhere({ conversation, lastMessage, unreadCount, isMuted }) {
  if (!unreadCount || isMuted || conversation.id === session.room?.id || !lastMessage?.body) return;
  announce(`New message of ${nameOf(lastMessage.sender)}${conversation.name ? ` in ${conversation.name}` : ""}`);
}

// ---- The connection.

let barTimer;

function showBar(state) {
  clearTimeout(barTimer);
  const words = { connecting: "Connecting…", offline: "Offline. Messages will be sent when you are back.", back: "Connected again" }[state] ?? "";
  part("bar").dataset.state = state;
  part("bar").textContent = words;
  if (state === "back") barTimer = setTimeout(() => showBar(""), 1_600);
}

function showConnection(state) {
  const wasOffline = part("bar").dataset.state === "offline";
  if (state === "connected") {
    showBar(wasOffline ? "back" : "");
    session?.outbox.wake();
    session?.inbox?.wake();
    session?.room?.wake();
  } else if (state === "offline") {
    showBar("offline");
    // What one knew of others holds no longer; back again it is told anew.
    session?.presence.clear();
    session?.inbox?.render();
    session?.room?.offline();
  } else if (!wasOffline) {
    // A connection that is there at once is not worth a word.
    clearTimeout(barTimer);
    barTimer = setTimeout(() => showBar("connecting"), 400);
  }
}

// ---- A new conversation.

function namesWanted() {
  return [...new Set(part("names").value.split(",").map((name) => name.trim()).filter(Boolean))];
}

/** Of one wish: whoever presses Start again after an error makes no second group. */
let groupKey = "";

function showDialogFields() {
  groupKey = crypto.randomUUID();
  const names = namesWanted();
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
  const group = { name: part("group-name").value.trim(), usernames: names, idempotencyKey: groupKey };
  try {
    const answer = names.length === 1
      ? await session.api.ask(documents.START_DIRECT, { input: { username: names[0] } })
      : await session.api.ask(documents.CREATE_GROUP, { input: group });
    const { conversation, inboxEntryEdge } = Object.values(answer)[0];
    session.inbox.upsert(inboxEntryEdge.node);
    watchPeers();
    part("dialog").close();
    location.hash = addressOf(conversation.id);
  } catch (error) {
    part("dialog-problem").textContent = error.message;
  }
}

// ---- The beginning.

part("new").append(icon("plus"));
part("back").append(icon("back"));
part("new").addEventListener("click", openDialog);
part("leave").addEventListener("click", () => { signOut(); location.hash = ""; });
for (const id of ["names", "group-name"]) part(id).addEventListener("input", showDialogFields);
part("dialog-form").addEventListener("submit", startConversation);
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
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && session?.room && !document.querySelector("dialog[open]")) location.hash = "";
});

const wanted = new URLSearchParams(location.search).get("as") ?? recall("wideroom:person");
if (isDemo && people.includes(wanted)) signInAs(wanted);
else if (!isDemo && recall("wideroom:token")) signInWith(recall("wideroom:token"));
else showDoor();

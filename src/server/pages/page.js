// GraphiQL with our defaults: who one is, where the socket is, and tabs that run as they stand.
// It uses the public API only: POST /graphql, and graphql-transport-ws at /graphql/ws.

import { START, examples, startOf } from "./examples.js";

const people = JSON.parse(document.querySelector("meta[name=people]").content);
const isDemo = people.length > 0;
const part = (id) => document.getElementById(id);

// ---- What is remembered. A token lives in its window only and goes with it; of a demo the browser remembers the last person that was chosen.

const TOKEN = "wideroom:token";
const PERSON = "wideroom:person";
// An earlier version kept the token here, for every window and for good.
localStorage.removeItem(TOKEN);

const recallPerson = () => sessionStorage.getItem(PERSON) ?? localStorage.getItem(PERSON) ?? "";
function rememberPerson(username) {
  for (const storage of [sessionStorage, localStorage]) storage.setItem(PERSON, username);
}

/** Tabs and history belong to a person, since the ids in them do; the theme to the browser. */
function storageOf(username) {
  const nameOf = (key) => (key === "graphiql:theme" ? key : `wideroom:${username}:${key}`);
  return {
    getItem: (key) => localStorage.getItem(nameOf(key)),
    setItem: (key, value) => localStorage.setItem(nameOf(key), value),
    removeItem: (key) => localStorage.removeItem(nameOf(key)),
    clear: () => Object.keys(localStorage).filter((key) => key.startsWith(nameOf(""))).forEach((key) => localStorage.removeItem(key)),
    get length() { return localStorage.length; },
  };
}

// ---- What the strip says.

function say(words) {
  part("notice").textContent = words;
  part("notice").hidden = !words;
}

const LIVE = { idle: "off", connecting: "connecting", connected: "on", reconnecting: "connecting again", refused: "token refused" };

function showSocket(state) {
  part("socket").dataset.state = state;
  part("socket").firstChild.textContent = `live: ${LIVE[state]}`;
}

const HOW = "Paste a new one above; wideroom token --user NAME prints it.";

/** The token is missing or no good: says why, as far as the token itself shows it, and offers the field for another. */
function refuse() {
  if (!isDemo) [part("sign-in").hidden, part("signed-in").hidden] = [false, true];
  say(whyRefused());
}

function whyRefused() {
  if (isDemo) return "The server does not accept the token it has just given. Reload the page.";
  if (!token) return "You are not signed in. Paste a token above; wideroom token --user NAME prints one.";
  const end = expiry(token);
  if (end && end <= Date.now()) return `This token expired at ${new Date(end).toLocaleString()}. ${HOW}`;
  return `The server does not accept this token. ${HOW}`;
}

/** When a JWT ends, in milliseconds. */
function expiry(jwt) {
  try {
    return JSON.parse(atob(jwt.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"))).exp * 1000;
  } catch {
    return undefined;
  }
}

// ---- The token: one for requests and socket alike.

let token = "";
let viewer = "";
let expiryTimer;
let wakeSocket = () => {};

function take(newToken) {
  token = newToken;
  clearTimeout(expiryTimer);
  const left = expiry(token) - Date.now();
  if (!isDemo && left > 0 && left < 2 ** 31) expiryTimer = setTimeout(refuse, left + 1000);
}

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

// ---- Requests.

async function post(params, headers = {}) {
  let response;
  try {
    response = await fetch("graphql", {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/graphql-response+json, application/json;q=0.9",
        ...(token && !headers.Authorization && { authorization: `Bearer ${token}` }),
        ...headers,
      },
      body: JSON.stringify(params),
    });
  } catch {
    say("The server does not answer.");
    throw new Error("The server does not answer.");
  }
  const text = await response.text();
  try {
    const answer = JSON.parse(text);
    const refused = response.status === 401 || answer.errors?.some((error) => error.extensions?.code === "UNAUTHENTICATED");
    return { answer, refused };
  } catch {
    throw new Error(`${response.status} ${response.statusText}: ${text.slice(0, 200)}`);
  }
}

async function ask(params, headers = {}) {
  let { answer, refused } = await post(params, headers);
  // A token of the tab's own: the answer alone says whether it is good.
  if (headers.Authorization) return answer;
  if (refused && isDemo) {
    take(await demoToken(part("person").value));
    ({ answer, refused } = await post(params));
  }
  if (refused) refuse();
  else say("");
  return answer;
}

// ---- The socket. It is open while a subscription runs, comes back after every cut, and the strip says where it is.

const EARLIER_SHOWN = 20;

let socket;
let running = 0;

function newSocket() {
  const url = new URL("graphql/ws", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  let refused = false;
  let pongTimer;
  const client = graphqlWs.createClient({
    url: url.href,
    connectionParams: async () => {
      // Where even that fails, the old token will do: it is refused again, and then this is tried again.
      if (refused && isDemo) await demoToken(part("person").value).then(take, () => {});
      return token ? { Authorization: `Bearer ${token}` } : {};
    },
    retryAttempts: Infinity,
    shouldRetry: () => true,
    // A refused token will not get better by trying again: wait for another.
    retryWait: (tries) => new Promise((resolve) => {
      if (refused && !isDemo) wakeSocket = resolve;
      else setTimeout(resolve, Math.min(8000, 250 * 2 ** tries) * (0.75 + Math.random() / 2));
    }),
    // A server that says nothing for five seconds after a ping is gone, whatever the network claims.
    keepAlive: 10_000,
    on: {
      connecting: (again) => showSocket(again ? "reconnecting" : "connecting"),
      connected: () => { refused = false; showSocket("connected"); },
      ping: (received) => { if (!received) pongTimer = setTimeout(() => client.terminate(), 5000); },
      pong: (received) => { if (received) clearTimeout(pongTimer); },
      closed: ({ code }) => {
        clearTimeout(pongTimer);
        if (client !== socket) return;
        refused = code === 4403;
        if (refused && !isDemo) refuse();
        showSocket(code === 1000 ? "idle" : refused && !isDemo ? "refused" : "reconnecting");
      },
    },
  });
  return client;
}

/**
 * A running subscription. The client sends its variables again after a cut, so they are kept at the last cursor seen. GraphiQL shows one
 * result: the payloads before it are a part of it.
 */
function subscribe(params, takesAfter) {
  return {
    subscribe(sink) {
      const own = socket;
      const payload = { ...params, variables: { ...params.variables } };
      let earlier = [];
      const end = () => { running -= 1; if (!running && own === socket) showSocket("idle"); };
      running += 1;
      const unsubscribe = own.subscribe(payload, {
        next(result) {
          const { data, errors, extensions } = result;
          if (takesAfter && extensions?.cursor) payload.variables.after = extensions.cursor;
          sink.next(earlier.length ? { ...result, earlier } : result);
          earlier = [data ?? { errors }, ...earlier].slice(0, EARLIER_SHOWN);
        },
        error(error) {
          end();
          sink.error("code" in error ? new Error(`The socket was closed: ${error.code} ${error.reason}`) : error);
        },
        complete() { end(); sink.complete(); },
      });
      return { unsubscribe };
    },
  };
}

function fetcher(params, options) {
  const operations = options?.documentAST?.definitions.filter(({ kind }) => kind === "OperationDefinition") ?? [];
  const operation = operations.find(({ name }) => name?.value === params.operationName) ?? operations[0];
  if (operation?.operation !== "subscription") return ask(params, options?.headers);
  return subscribe(params, operation.variableDefinitions.some(({ variable }) => variable.name.value === "after"));
}

// ---- Signing in.

let root;

/** GraphiQL anew, with this person's tabs. */
function mount(username, start, isSwitch) {
  socket?.dispose();
  socket = newSocket();
  showSocket("idle");
  const storage = storageOf(username);
  const stored = JSON.parse(storage.getItem("graphiql:tabState"));
  root ??= ReactDOM.createRoot(part("graphiql"));
  root.render(React.createElement(GraphiQL, {
    key: username,
    fetcher,
    storage,
    defaultTabs: examples(start, isDemo),
    defaultQuery: "# Ctrl-Space completes, Ctrl-Enter runs.\n\n",
    defaultEditorToolsVisibility: "variables",
    // Its documentation begins with the description of the schema.
    schemaDescription: true,
    // The token is the strip's, for requests and socket alike; in a demo a tab may have a service's. Headers are never stored.
    isHeadersEditorEnabled: isDemo,
    shouldPersistHeaders: false,
  }));
  const isQuery = !stored || /^\s*(query\b|\{)/m.test(stored.tabs[stored.activeTabIndex]?.query ?? "");
  if (username && isQuery && (isSwitch || !stored)) runWhenReady();
}

/** GraphiQL loads its editors by and by, and has no other way in from outside than its button. Whoever acts first runs what they like. */
function runWhenReady() {
  const before = Date.now();
  const acted = new AbortController();
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => acted.abort(), { capture: true, signal: acted.signal });
  const timer = setInterval(() => {
    const button = document.querySelector(".graphiql-execute-button");
    const result = document.querySelector("#graphiql .result-window .CodeMirror")?.CodeMirror;
    const hasRun = button?.ariaLabel.startsWith("Stop") || result?.getValue();
    if (hasRun || acted.signal.aborted || Date.now() - before > 30_000) {
      clearInterval(timer);
      acted.abort();
    } else if (result) {
      // GraphiQL ignores the button until it knows both of its editors.
      button?.click();
    }
  }, 100);
}

/** Asks who this is and for the ids that the examples need, then shows the page as that person sees it. */
async function signIn() {
  const { data } = token || isDemo ? await ask({ query: START }) : { data: null };
  const was = viewer;
  const start = startOf(data);
  viewer = start.username;
  if (!isDemo) {
    part("sign-in").hidden = Boolean(viewer);
    part("signed-in").hidden = !viewer;
    part("viewer").textContent = viewer;
    if (!viewer) refuse();
  }
  if (!root || viewer !== was) mount(viewer, start, Boolean(was));
  // The same person with a new token: what runs goes on.
  else wakeSocket();
}

/** Whatever goes wrong is said, and the page is there all the same. */
async function enter(newToken) {
  try {
    take(await newToken);
    await signIn();
  } catch (error) {
    say(error.message);
    if (!root) mount("", startOf(null), false);
  }
}

function signInAs(username) {
  document.title = `${username} · Wideroom GraphiQL`;
  rememberPerson(username);
  return enter(demoToken(username));
}

function signInWith(newToken) {
  sessionStorage.setItem(TOKEN, newToken);
  return enter(newToken);
}

if (!window.GraphiQL || !window.graphqlWs) {
  say("GraphiQL could not be loaded from its CDN. A build made where npm works has it inside and needs no internet.");
} else if (isDemo) {
  part("person").append(...people.map((name) => new Option(name)));
  const wanted = new URLSearchParams(location.search).get("as") ?? recallPerson();
  part("person").value = people.includes(wanted) ? wanted : people[0];
  part("person").addEventListener("change", () => signInAs(part("person").value));
  part("choice").hidden = false;
  signInAs(part("person").value);
} else {
  part("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    signInWith(part("token").value.trim());
    part("token").value = "";
  });
  part("signed-in").addEventListener("submit", (event) => {
    event.preventDefault();
    signInWith("");
  });
  part("sign-in").hidden = false;
  signInWith(sessionStorage.getItem(TOKEN) ?? "");
}

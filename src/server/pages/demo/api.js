// The way to the server: requests over POST /graphql, subscriptions over one graphql-transport-ws socket that comes back after every cut.
// Each subscription keeps the last cursor it saw and goes on from there: what was missed comes first, in order.

const REQUEST_TIME = 15_000;
const PING_EVERY = 10_000;
const PONG_TIME = 5_000;
const WAIT_MOST = 8_000;

/** What the server said, or that it said nothing: then `code` is OFFLINE. */
export class ApiError extends Error {
  constructor({ message, extensions = {} }) {
    super(message);
    this.code = extensions.code ?? "INTERNAL";
    this.outcome = extensions.outcome;
    this.retryAfterMs = extensions.retryAfterMs;
  }

  /** Trying again may help. */
  get isPassing() {
    return ["OFFLINE", "UNAVAILABLE", "RATE_LIMITED"].includes(this.code) || this.outcome === "UNKNOWN";
  }
}

const offline = () => new ApiError({ message: "The server does not answer.", extensions: { code: "OFFLINE" } });

export class Api {
  #token;
  #newToken;
  #onState;
  #socket;
  #tries = 0;
  #retryTimer;
  #pingTimer;
  #pongTimer;
  #isReady = false;
  #isClosed = false;
  #nextId = 1;
  #operations = new Map();

  /**
   * `newToken` gives another token when this one is refused, or throws when there is none.
   * `onState` hears "connecting", "connected" and "offline".
   */
  constructor({ token, newToken, onState }) {
    this.#token = token;
    this.#newToken = newToken;
    this.#onState = onState;
    addEventListener("online", this.#wake);
    document.addEventListener("visibilitychange", this.#wake);
    this.#connect();
  }

  /** Nothing more is heard from it. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#retryTimer);
    this.#operations.clear();
    removeEventListener("online", this.#wake);
    document.removeEventListener("visibilitychange", this.#wake);
    this.#socket?.close(1000);
  }

  /** The data of a query or mutation, or an ApiError. */
  async ask(query, variables = {}, isSecondTry = false) {
    let answer;
    try {
      const response = await fetch("graphql", {
        method: "POST",
        headers: {
          "content-type": "application/json",
          accept: "application/graphql-response+json, application/json;q=0.9",
          authorization: `Bearer ${this.#token}`,
        },
        body: JSON.stringify({ query, variables }),
        signal: AbortSignal.timeout(REQUEST_TIME),
      });
      answer = await response.json();
    } catch {
      throw offline();
    }
    const error = answer.errors?.[0];
    if (error?.extensions?.code === "UNAUTHENTICATED" && !isSecondTry) {
      this.#token = await this.#newToken();
      return this.ask(query, variables, true);
    }
    if (error) throw new ApiError(error);
    return answer.data;
  }

  /**
   * Runs until the function it returns is called. `next` gets the payload of the one field; `end` is called when the server has ended it
   * for good: with an error, or without one where there is nothing left to hear.
   */
  subscribe({ query, variables, next, end = () => {} }) {
    const id = String(this.#nextId++);
    this.#operations.set(id, { query, variables: { ...variables }, next, end });
    if (this.#isReady) this.#start(id);
    return () => {
      if (this.#operations.delete(id) && this.#isReady) this.#say({ id, type: "complete" });
    };
  }

  #say(message) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #start(id) {
    const { query, variables } = this.#operations.get(id);
    this.#say({ id, type: "subscribe", payload: { query, variables } });
  }

  #wake = () => {
    if (document.hidden || this.#isReady || this.#isClosed || this.#socket?.readyState === WebSocket.CONNECTING) return;
    this.#tries = 0;
    this.#connect();
  };

  #connect() {
    clearTimeout(this.#retryTimer);
    const url = new URL("graphql/ws", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    if (this.#tries === 0) this.#onState("connecting");
    const socket = new WebSocket(url, "graphql-transport-ws");
    this.#socket = socket;
    socket.onopen = () => this.#say({ type: "connection_init", payload: { Authorization: `Bearer ${this.#token}` } });
    socket.onmessage = ({ data }) => socket === this.#socket && this.#hear(JSON.parse(data));
    socket.onclose = ({ code }) => socket === this.#socket && this.#closed(code);
    // Of a network that swallows everything a socket learns nothing: it has to ask.
    this.#expectPong(PING_EVERY);
  }

  #expectPong(time) {
    clearTimeout(this.#pongTimer);
    this.#pongTimer = setTimeout(() => this.#drop(), time);
  }

  /** Without waiting for a closing frame that may never come. */
  #drop() {
    const socket = this.#socket;
    socket.onclose = null;
    socket.close();
    this.#closed(1006);
  }

  #hear({ type, id, payload }) {
    clearTimeout(this.#pongTimer);
    const operation = this.#operations.get(id);
    if (type === "connection_ack") {
      this.#isReady = true;
      this.#tries = 0;
      for (const own of this.#operations.keys()) this.#start(own);
      this.#pingTimer = setInterval(() => {
        this.#say({ type: "ping" });
        this.#expectPong(PONG_TIME);
      }, PING_EVERY);
      this.#onState("connected");
    } else if (type === "ping") {
      this.#say({ type: "pong" });
    } else if (type === "next" && operation) {
      if (payload.errors) return this.#ended(id, payload.errors[0]);
      const field = Object.values(payload.data)[0];
      if (field.cursor) operation.variables.after = field.cursor;
      operation.next(field);
    } else if (type === "error" && operation) {
      this.#ended(id, payload[0]);
    } else if (type === "complete" && operation) {
      this.#operations.delete(id);
      operation.end(null);
    }
  }

  /** What is only for now is tried again, from the last cursor. */
  #ended(id, error) {
    const operation = this.#operations.get(id);
    const problem = new ApiError(error);
    if (problem.isPassing) {
      this.#say({ id, type: "complete" });
      setTimeout(() => {
        if (this.#isReady && this.#operations.get(id) === operation) this.#start(id);
      }, problem.retryAfterMs ?? 1_000 + Math.random() * 1_000);
      return;
    }
    this.#operations.delete(id);
    operation.end(problem);
  }

  async #closed(code) {
    clearTimeout(this.#pongTimer);
    clearInterval(this.#pingTimer);
    const wasReady = this.#isReady;
    this.#isReady = false;
    if (this.#isClosed) return;
    this.#onState("offline");
    if (code === 4403) {
      try {
        this.#token = await this.#newToken();
      } catch (error) {
        // Offline it is asked again when the socket is; a token that nobody can renew ends it here.
        if (error.code !== "OFFLINE") return;
      }
    }
    const wait = wasReady ? 250 : Math.min(WAIT_MOST, 250 * 2 ** this.#tries);
    this.#tries += 1;
    this.#retryTimer = setTimeout(() => this.#connect(), wait * (0.75 + Math.random() / 2));
  }
}

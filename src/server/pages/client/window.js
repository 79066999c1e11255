// The loaded messages of one conversation: a run without a gap, oldest first. It normally reaches the newest message. After a jump to an
// old one it may end before: newer pages then extend it until it is live again.

const PAGE_SIZE = 30;
/** What a page says of its older end, and of its newer end. */
const OLDER = ["hasNextPage", "endCursor"];
const NEWER = ["hasPreviousPage", "startCursor"];

export class Window {
  #read;
  #messages = [];
  /** Order keys of the oldest and the newest message that were ever in the run: the run covers all between, though its messages expire. */
  #oldest;
  #newest;
  #pageInfo = { hasNextPage: false, hasPreviousPage: false };
  /** Reads follow each other: each begins at the ends that the one before has left. */
  #last = Promise.resolve();
  #isReading = false;
  #wanted = new Map();
  /** Messages of events during a read: its page may show an earlier state of them, or lack them. */
  #during = [];

  /** `read(page)`: returns a promise of `{ edges, pageInfo }`, or nothing. */
  constructor(read) {
    this.#read = read;
  }

  get messages() {
    return this.#messages;
  }

  /** Whether the run reaches the newest message. */
  get isLive() {
    return !this.#pageInfo.hasPreviousPage;
  }

  get hasOlder() {
    return this.#pageInfo.hasNextPage;
  }

  find(id) {
    return this.#messages.find((message) => message.id === id);
  }

  /** Replaces the run by the page that `read` returns a promise of. */
  begin(read) {
    return this.#inTurn(read, (page) => this.#replace(page));
  }

  /** Extends the run by the page before it. Returns whether it has changed. */
  older() {
    const page = () => ({ first: PAGE_SIZE, ...(this.#pageInfo.endCursor ? { after: this.#pageInfo.endCursor } : { around: this.#messages[0]?.id }) });
    return this.#once("older", () => this.hasOlder, page, (older) => this.#join(older, OLDER));
  }

  /** Extends a run that is not live by the page after it. */
  newer() {
    const page = () => ({ last: PAGE_SIZE, before: this.#pageInfo.startCursor });
    return this.#once("newer", () => !this.isLive, page, (newer) => this.#join(newer, NEWER));
  }

  /** Makes the run live, from the newest page. */
  newest() {
    return this.#once("newest", () => !this.isLive, () => ({ first: PAGE_SIZE }), (page) => this.#replace(page));
  }

  /** Loads the page around a message: joined to the run where they overlap, in place of it where they do not. */
  around(id) {
    return this.#inTurn(() => this.find(id) || this.#read({ first: PAGE_SIZE, around: id }), (page) => {
      if (!page.edges) return;
      const keys = nodes(page).map(({ orderKey }) => orderKey);
      const [newest, oldest] = [keys[0], keys.at(-1)];
      if (!keys.length) return;
      if (!(newest >= this.#oldest) || oldest > this.#newest) return this.#replace(page);
      this.#join(page, [...(oldest < this.#oldest ? OLDER : []), ...(!this.isLive && newest > this.#newest ? NEWER : [])]);
    });
  }

  /** A message in its current state. One outside of the run is left to the pages. */
  upsert(message) {
    if (this.#isReading) this.#during.push(message);
    return this.#apply(message);
  }

  /** Leaves so many of the newest messages of a live run. `older` brings the others back. */
  trim(count) {
    // A page under way joins the run where it begins now.
    if (this.#isReading || !this.isLive || this.#messages.length <= count) return;
    this.#messages = this.#messages.slice(-count);
    this.#oldest = this.#messages[0].orderKey;
    Object.assign(this.#pageInfo, { hasNextPage: true, endCursor: null });
  }

  /** Replaces each message by the result. Those without one are removed. */
  change(next) {
    this.#messages = this.#messages.map(next).filter(Boolean);
  }

  #apply(message) {
    const { orderKey } = message;
    if ((this.hasOlder && orderKey < this.#oldest) || (!this.isLive && orderKey > this.#newest)) return false;
    this.#insert([message]);
    return true;
  }

  #once(name, isWanted, page, take) {
    if (!isWanted()) return Promise.resolve(false);
    if (!this.#wanted.has(name)) {
      const run = this.#inTurn(() => isWanted() && this.#read(page()), take).finally(() => this.#wanted.delete(name));
      this.#wanted.set(name, run);
    }
    return this.#wanted.get(name);
  }

  #inTurn(read, take) {
    const run = async () => {
      this.#isReading = true;
      this.#during = [];
      try {
        const page = await read();
        if (!page) return false;
        take(page);
        for (const message of this.#during) this.#apply(message);
        return true;
      } finally {
        this.#isReading = false;
      }
    };
    const turn = this.#last.then(run);
    this.#last = turn.catch(() => {});
    return turn;
  }

  #replace(page) {
    [this.#messages, this.#oldest, this.#newest] = [[]];
    this.#join(page, [...OLDER, ...NEWER]);
  }

  /** Takes a page in, with what it says of the named ends. A page without messages has no cursors. */
  #join(page, names) {
    for (const name of names) this.#pageInfo[name] = page.pageInfo[name] ?? this.#pageInfo[name];
    this.#insert(nodes(page));
  }

  /** Each once, in order. */
  #insert(messages) {
    const known = new Map(this.#messages.map((message) => [message.id, message]));
    for (const message of messages) {
      known.set(message.id, message);
      if (!(message.orderKey >= this.#oldest)) this.#oldest = message.orderKey;
      if (!(message.orderKey <= this.#newest)) this.#newest = message.orderKey;
    }
    this.#messages = [...known.values()].sort((a, b) => (a.orderKey < b.orderKey ? -1 : 1));
  }
}

/** Nodes of a connection. */
export const nodes = (list) => (list?.edges ?? []).map(({ node }) => node);

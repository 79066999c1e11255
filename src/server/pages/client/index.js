// The chat of one user: everything that an app needs of Wideroom. See README.md.

import { Conversation } from "./conversation.js";
import { documentsWith } from "./documents.js";
import { InboxFeed } from "./feed.js";
import { Inbox, Search } from "./inbox.js";
import { Outbox } from "./outbox.js";
import { Badge, Presences } from "./presence.js";
import { Kept, newKey } from "./storage.js";
import { Store } from "./store.js";
import { SignedOut, Transport } from "./transport.js";

export { parts } from "./text.js";
export { ChatError, SignedOut } from "./transport.js";

const CONVERSATIONS_KEPT = 20;
const LASTING_WAIT = 3_000;

export function connect(options) {
  const documents = documentsWith(options.select);
  const viewer = new Store(null);
  const conversations = new Map();
  const groupKeys = new Map();
  let waiting = [];
  let subject = null;

  const kept = new Kept(options.storage, (name) => outbox.changedElsewhere(name));
  const request = (document, variables) => transport.request(document, variables);

  /** Runs until it succeeds, fails for good, or is not wanted after a wait. */
  async function lasting(run, isWanted, onFailure = () => {}) {
    for (;;) {
      try {
        return await run();
      } catch (error) {
        if (!error.isPassing) throw error;
        onFailure(error);
        await new Promise((resolve) => { waiting.push(resolve); setTimeout(resolve, error.retryAfterMs ?? LASTING_WAIT); });
        if (!isWanted()) throw error;
      }
    }
  }

  const core = {
    documents, kept, lasting,
    ask: (name, variables) => request(documents[name], variables),
    change: async (name, input) => (await request(documents[name], { input }))[name],
    viewer: viewer.get,
    username: () => viewer.get()?.username ?? subject ?? "",
  };
  const outbox = core.outbox = new Outbox(core, (id, message) => conversations.get(id)?.sent(message));

  /** The device keeps the values of each user apart: no prefix begins with another one. A token of another user than the app has named is none for this chat. */
  function begin(user) {
    if (subject === user) return;
    if (subject) throw new SignedOut();
    subject = user;
    kept.begin(`wideroom ${new URL(options.url, globalThis.location?.href).href} ${encodeURIComponent(user)} `);
    outbox.begin();
  }

  const transport = core.transport = new Transport({
    ...options,
    onToken: ({ sub }) => sub && begin(sub),
    onReady: () => {
      for (const resolve of waiting.splice(0)) resolve();
      outbox.wake();
    },
  });
  if (options.user) begin(options.user);
  const feed = core.feed = new InboxFeed(core);
  const badge = new Badge(core);

  const isOpen = () => transport.connection.get().state !== "signed-out";
  lasting(() => core.ask("VIEWER"), isOpen).then((data) => { begin(subject ?? data.viewer.username); viewer.put(data.viewer); }, () => {});

  /** The last ones stay in memory, so that they are there at once, and without the server. */
  function conversation(id, { at } = {}) {
    const known = at ? undefined : conversations.get(id);
    const store = known ?? new Conversation(core, id, at);
    if (!known) conversations.get(id)?.shut();
    conversations.delete(id);
    conversations.set(id, store);
    for (const [old, other] of conversations) {
      if (conversations.size <= CONVERSATIONS_KEPT) break;
      if (!other.isOpen) conversations.delete(old);
    }
    return store;
  }

  async function startDirect(username) {
    return begun(await core.change("startDirectConversation", { username }));
  }

  /** The same wish has the same key until it is fulfilled: a retry makes no second group. */
  async function createGroup(name, usernames) {
    const wish = JSON.stringify([name, usernames]);
    if (!groupKeys.has(wish)) groupKeys.set(wish, newKey());
    const group = await core.change("createGroupConversation", { name, usernames, idempotencyKey: groupKeys.get(wish) });
    groupKeys.delete(wish);
    return begun(group);
  }

  function begun({ inboxEntryEdge: { node } }) {
    feed.changed(node);
    return node.conversation.id;
  }

  function close() {
    for (const store of [...conversations.values(), badge]) store.shut();
    feed.close();
    outbox.close();
    kept.stop();
    transport.close();
    for (const resolve of waiting.splice(0)) resolve();
  }

  return {
    connection: transport.connection, viewer, badge, outbox,
    inbox: (filter) => new Inbox(core, filter),
    conversation,
    presence: (usernames) => new Presences(core, usernames),
    search: (query) => new Search(core, query),
    startDirect, createGroup, request,
    subscribe: (document, variables, next, end) => transport.subscribe({ document, variables, next, end }),
    retryNow: () => transport.retryNow(),
    close,
    async signOut() {
      close();
      kept.clear();
    },
  };
}

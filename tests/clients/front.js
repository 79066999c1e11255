// The README's examples of Relay, Apollo and urql against a real server: `node front.js URL ALICE BOB`.

import assert from "node:assert/strict";

import relay from "relay-runtime";

import * as apollo from "./apollo.js";
import chatMessagesPageQuery from "./generated/relay/chatMessagesPageQuery.graphql.js";
import chatOldestPageQuery from "./generated/relay/chatOldestPageQuery.graphql.js";
import chatQuery from "./generated/relay/chatQuery.graphql.js";
import chat_message from "./generated/relay/chat_message.graphql.js";
import chat_messages from "./generated/relay/chat_messages.graphql.js";
import chat_oldest from "./generated/relay/chat_oldest.graphql.js";
import * as relayed from "./relay.js";
import { ask, cuttable, say, startConversation, until } from "./support.js";
import { outbox } from "./unsent.js";
import * as urql from "./urql.js";

const { createOperationDescriptor, fetchQuery, getSelector } = relay;

const [url, alice, bob] = process.argv.slice(2);
const { viewer: sender } = await ask(url, alice, "{ viewer { __typename id username } }");
const { __typename, ...plainSender } = sender;
const COUNT = 10;
const newest = (count, from = COUNT) => Array.from({ length: count }, (_, index) => String(from - index));

/** How each library reads the list of a conversation, in pages of four. `bodies` are what a page would show, newest first. */
const libraries = {
  relay(id, sockets) {
    const client = relayed.connect(url, () => alice, sockets);
    const operation = createOperationDescriptor(chatQuery, { id });
    client.retain(operation);
    const list = (fragment, field) => {
      const { conversation } = client.lookup(operation.fragment).data;
      const { [field]: connection } = client.lookup(getSelector(fragment, conversation)).data;
      const bodies = connection.edges.map(({ node }) => client.lookup(getSelector(chat_message, node)).data.body);
      return { eventsCursor: conversation.eventsCursor, bodies, pageInfo: connection.pageInfo };
    };
    const page = async (query, variables) => {
      await fetchQuery(client, query, { id, count: 4, ...variables }).toPromise();
    };
    return {
      ...relayed,
      // Relay adds `__typename` itself.
      send: (client, message) => relayed.send(client, { ...message, sender: plainSender }),
      client,
      start: () => page(chatQuery, {}),
      older: (cursor) => page(chatMessagesPageQuery, { cursor }),
      newer: (cursor) => page(chatOldestPageQuery, { cursor }),
      fromNewest: () => list(chat_messages, "messages"),
      fromOldest: () => list(chat_oldest, "oldest"),
    };
  },
  apollo(id, sockets) {
    const client = apollo.connect(url, () => alice, sockets);
    // A list that begins at its end has a cache of its own.
    const other = apollo.connect(url, () => alice, sockets);
    const lists = [client, other].map((client, index) => client.watchQuery({ query: apollo.MESSAGES, variables: { id, [index ? "last" : "first"]: 4 } }));
    lists.forEach((list) => list.subscribe(() => {}));
    const shown = (list) => {
      const { eventsCursor, messages } = list.getCurrentResult().data.conversation;
      return { eventsCursor, bodies: messages.edges.map(({ node }) => node.body), pageInfo: messages.pageInfo };
    };
    return {
      ...apollo,
      client,
      start: () => Promise.all(lists.map((list) => list.result?.() ?? list.refetch())),
      older: (after) => lists[0].fetchMore({ variables: { first: 4, after } }),
      newer: (before) => lists[1].fetchMore({ variables: { last: 4, before } }),
      fromNewest: () => shown(lists[0]),
      fromOldest: () => shown(lists[1]),
    };
  },
  urql(id, sockets) {
    const connect = () => urql.connect(url, () => alice, sockets, sender);
    const shown = [{}, {}];
    const clients = [connect(), connect()];
    const ask = async (index, variables) => {
      const result = await clients[index].query(urql.MESSAGES, { id, ...variables }).toPromise();
      assert.equal(result.error, undefined);
      clients[index].query(urql.MESSAGES, { id, ...variables }).subscribe(({ data }) => {
        const { eventsCursor, messages } = data.conversation;
        shown[index] = { eventsCursor, bodies: messages.edges.map(({ node }) => node.body), pageInfo: messages.pageInfo };
      });
    };
    return {
      ...urql,
      client: clients[0],
      start: () => Promise.all([ask(0, { first: 4 }), ask(1, { last: 4 })]),
      older: (after) => ask(0, { first: 4, after }),
      newer: (before) => ask(1, { last: 4, before }),
      fromNewest: () => shown[0],
      fromOldest: () => shown[1],
    };
  },
};

/** The text of a message outlives its failures: one before it left, and one whose answer was lost. */
async function isKept(name, client, send, id) {
  const values = new Map();
  const storage = { getItem: (key) => values.get(key) ?? null, setItem: (key, value) => values.set(key, value) };
  const failures = [
    () => { throw new Error("The network failed."); },
    async (message) => { await send(client, message); throw new Error("The answer was lost."); },
  ];
  const { add, messages } = outbox({ storage, send: (message) => (failures.shift() ?? ((one) => send(client, one)))({ ...message, sender }) });
  const sending = add({ conversationId: id, body: "kept" });
  assert.equal(messages()[0].body, "kept", name);
  await sending;
  assert.deepEqual([messages(), failures], [[], []], name);
}

async function run(name) {
  const id = await startConversation(url, alice, bob, COUNT);
  const sockets = cuttable(url, () => alice);
  const { client, start, older, newer, fromNewest, fromOldest, send, listen } = libraries[name](id, sockets.client);

  // Pages, both ways.
  await start();
  const { eventsCursor } = fromNewest();
  assert.deepEqual(fromNewest().bodies, newest(4), name);
  assert.deepEqual(fromOldest().bodies, newest(4, 4), name);
  for (const count of [8, 10]) {
    assert.equal(fromNewest().pageInfo.hasNextPage, true, name);
    await older(fromNewest().pageInfo.endCursor);
    await until(`${name} shows ${count}`, () => fromNewest().bodies.length >= count);
    assert.deepEqual(fromNewest().bodies, newest(count), name);
    assert.equal(fromOldest().pageInfo.hasPreviousPage, true, name);
    await newer(fromOldest().pageInfo.startCursor);
    await until(`${name} shows ${count} from the oldest on`, () => fromOldest().bodies.length >= count);
    assert.deepEqual(fromOldest().bodies, newest(count, count), name);
  }
  assert.equal(fromNewest().pageInfo.hasNextPage, false, name);
  assert.equal(fromOldest().pageInfo.hasPreviousPage, false, name);

  // A subscription, and a message that is shown before it is sent, once.
  listen(client, { conversationId: id, after: eventsCursor });
  await until(`${name} subscribes`, () => sockets.subscribed.length === 1);
  const sending = send(client, { conversationId: id, body: "mine", sender });
  await until(`${name} shows what it sends`, () => fromNewest().bodies[0] === "mine");
  await sending;
  await say(url, bob, id, "yours");
  await until(`${name} hears`, () => fromNewest().bodies[0] === "yours");
  assert.deepEqual(fromNewest().bodies, ["yours", "mine", ...newest(10)], name);

  await isKept(name, client, send, id);
  await until(`${name} shows it once`, () => fromNewest().bodies[0] === "kept");
  assert.deepEqual(fromNewest().bodies, ["kept", "yours", "mine", ...newest(10)], name);

  // Cut: what was said meanwhile is told, once, from where it was and not from the start. The answer to a send overtakes it, and stands after it.
  await sockets.cut(async () => {
    await say(url, bob, id, "meanwhile");
    await send(client, { conversationId: id, body: "overtaking", sender });
    await until(`${name} shows what overtakes`, () => fromNewest().bodies[0] === "overtaking");
    assert.equal(fromNewest().bodies[1], "kept", name);
  });
  await until(`${name} hears what it missed`, () => fromNewest().bodies.includes("meanwhile"));
  assert.deepEqual(fromNewest().bodies, ["overtaking", "meanwhile", "kept", "yours", "mine", ...newest(10)], name);
  const [first, second] = sockets.subscribed.map(({ after }) => after);
  assert.ok(first === eventsCursor && second !== first, name);
}

/** A token that is not to be had at once ends no subscription. */
async function waitsForItsToken() {
  let failures = 2;
  const token = () => {
    if (failures > 0) throw new Error(`The token server is away: ${failures--}`);
    return alice;
  };
  const { client } = cuttable(url, token);
  const heard = await new Promise((next, error) => client.subscribe({ query: "subscription($after: String) { inboxUpdated(after: $after) { cursor } }" }, { next, error, complete: error }));
  assert.equal(failures, 0);
  assert.ok(heard.data.inboxUpdated.cursor);
}

await Promise.all([waitsForItsToken(), ...Object.keys(libraries).map(run)]);
process.exit(0);

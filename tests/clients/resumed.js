// Subscriptions over HTTP against a real server, cut in their midst: `node resumed.js URL ALICE BOB`.

import assert from "node:assert/strict";

import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries";
import { RetryLink } from "@apollo/client/link/retry";
import { createClient } from "graphql-sse";
import { tap } from "rxjs";

import { cursorOf, resuming } from "./resume.js";
import { ask, proxy, say, startConversation, until } from "./support.js";

const [url, alice, bob] = process.argv.slice(2);
const headers = { authorization: `Bearer ${alice}` };
const ADDED = "subscription($id: ID!, $after: String) { messageAdded(conversationId: $id, after: $after) { messageEdge { node { body } } } }";

/** `subscribe(url, variables, next)` is told what was said before, what is said, and after a cut what was missed, each once. */
async function isTold(name, subscribe) {
  const id = await startConversation(url, alice, bob, 2);
  const { messages } = (await ask(url, alice, `{ node(id: "${id}") { ... on Conversation { messages(last: 1) { edges { cursor } } } } }`)).node;
  const through = await proxy(url);
  const told = [];
  subscribe(through.url, { id, after: messages.edges[0].cursor }, (data) => told.push(data.messageAdded.messageEdge.node.body));
  await until(`${name}: what was said before`, () => told.length === 1);
  await say(url, bob, id, "now");
  await until(`${name}: what is said`, () => told.length === 2);
  through.cut();
  await say(url, bob, id, "meanwhile");
  await until(`${name}: what was missed`, () => told.length === 3);
  await say(url, bob, id, "again");
  await until(`${name}: what is said then`, () => told.length === 4);
  assert.deepEqual(told, ["2", "now", "meanwhile", "again"], name);
}

const graphqlSse = () =>
  isTold("graphql-sse", (url, variables, next) => {
    const client = resuming(createClient({ url, headers, retry: async () => {}, retryAttempts: 5 }));
    client.subscribe({ query: ADDED, variables }, { next: ({ data }) => next(data), error: assert.fail, complete: assert.fail });
  });

const apolloParts = () =>
  isTold("Apollo in parts", (url, variables, next) => {
    // `RetryLink` hands on the same operation after a cut.
    const move = new ApolloLink((operation, forward) =>
      forward(operation).pipe(tap((response) => (operation.variables = { ...operation.variables, after: cursorOf(response) ?? operation.variables.after }))),
    );
    const link = ApolloLink.from([new RetryLink({ delay: { initial: 1 } }), move, new HttpLink({ uri: url, headers })]);
    const client = new ApolloClient({ cache: new InMemoryCache(), link });
    const subscription = client.subscribe({ query: gql(ADDED), variables, fetchPolicy: "no-cache" });
    subscription.subscribe(({ data, error }) => (error ? assert.fail(error) : next(data)));
  });

/** A client that tries automatic persisted queries is refused, and sends full documents from then on. */
async function apolloPersists() {
  const link = ApolloLink.from([new PersistedQueryLink({ generateHash: () => "00" }), new HttpLink({ uri: url, headers })]);
  const client = new ApolloClient({ cache: new InMemoryCache(), link });
  assert.equal((await client.query({ query: gql("{ viewer { username } }") })).data.viewer.username, "alice");
}

await Promise.all([graphqlSse(), apolloParts(), apolloPersists()]);
process.exit(0);

// A server that runs the documents of a list only, asked as each client does: `node trusted.js URL TOKEN LIST`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries";
import { Client, fetchExchange } from "@urql/core";
import { persistedExchange } from "@urql/exchange-persisted";
import { createClient as createSse } from "graphql-sse";

import { cuttable } from "./support.js";

const [url, token, file] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}`, accept: "application/graphql-response+json" };
const list = JSON.parse(readFileSync(file, "utf8"));
const find = (start) => Object.entries(list).find(([, text]) => text.includes(start));
const [inboxId, inbox] = find("query chatInboxPageQuery") ?? find("query Inbox");
const [eventsId] = find("subscription chatInboxSubscription") ?? find("subscription Events");
const stranger = "{ viewer { username } }";

const post = async (body) => {
  const response = await fetch(url, { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) });
  const { data, errors } = await response.json();
  return { status: response.status, data, code: errors?.[0].extensions.code };
};

const first = async (results) => {
  for await (const result of results) return result;
};

async function overHttp() {
  const hash = { extensions: { persistedQuery: { version: 1, sha256Hash: inboxId } } };
  for (const body of [{ documentId: inboxId }, { doc_id: inboxId }, { query: "", ...hash }, hash, { query: inbox }, { query: inbox, ...hash }]) {
    const { status, data } = await post(body);
    assert.equal(status, 200, JSON.stringify(body));
    assert.ok(data.inbox.edges.length > 0);
  }
  const got = await fetch(`${url}?documentId=${encodeURIComponent(inboxId)}`, { headers });
  assert.ok((await got.json()).data.inbox);
  for (const [body, status, code] of [
    [{ query: stranger }, 403, "FORBIDDEN"],
    [{ query: `${inbox} ` }, 403, "FORBIDDEN"],
    [{ query: "{ __schema { types { name } } }" }, 403, "FORBIDDEN"],
    // The id of one document does not let another in.
    [{ query: stranger, documentId: inboxId }, 403, "FORBIDDEN"],
    [{ documentId: "nothing" }, 400, "PERSISTED_QUERY_NOT_SUPPORTED"],
    [{ extensions: { persistedQuery: { version: 1, sha256Hash: "00" } } }, 400, "PERSISTED_QUERY_NOT_SUPPORTED"],
    [{}, 422, "BAD_USER_INPUT"],
  ]) {
    assert.deepEqual(await post(body), { status, data: undefined, code }, JSON.stringify(body));
  }
}

async function overStreams() {
  const { plain } = cuttable(url, () => token);
  const sse = createSse({ url, headers, retryAttempts: 0 });
  // The same position is told first by both kinds of subscription, or nothing that may be seen.
  const variables = { id: "x" };
  for (const client of [plain, sse]) {
    // `graphql-ws` wants a text, be it an empty one.
    assert.ok((await first(client.iterate({ query: "", documentId: inboxId }))).data.inbox);
    const told = await first(client.iterate({ query: "", documentId: eventsId, variables })).catch((errors) => ({ errors }));
    assert.ok(told.data ?? ["NOT_FOUND", "BAD_USER_INPUT"].includes(told.errors[0].extensions.code), JSON.stringify(told));
  }
  for (const query of [stranger, "subscription { inboxUpdated { cursor } }"]) {
    await assert.rejects(first(plain.iterate({ query })), ([error]) => error.extensions.code === "FORBIDDEN");
    assert.equal((await first(sse.iterate({ query }))).errors[0].extensions.code, "FORBIDDEN");
  }
}

async function withApollo() {
  const sent = [];
  const spy = new ApolloLink((operation, forward) => {
    sent.push(operation.getContext().http?.includeQuery);
    return forward(operation);
  });
  const persisted = new PersistedQueryLink({ generateHash: (document) => (document.loc?.source.body === inbox ? inboxId : "00") });
  const cache = () => new InMemoryCache();
  const link = ApolloLink.from([persisted, spy, new HttpLink({ uri: url, headers })]);
  const client = new ApolloClient({ cache: cache(), link, queryDeduplication: false });
  assert.ok((await client.query({ query: gql(inbox), fetchPolicy: "no-cache" })).data.inbox);
  assert.deepEqual(sent, [false]);
  // One that is not in the list is tried by its hash, then as a text, and then its error is shown.
  await assert.rejects(client.query({ query: gql(stranger), fetchPolicy: "no-cache" }), (error) => error.errors[0].extensions.code === "FORBIDDEN");
  assert.deepEqual(sent, [false, false, true]);
}

async function withUrql() {
  const sent = [];
  const noted = (input, init) => {
    sent.push("query" in JSON.parse(init.body));
    return fetch(input, init);
  };
  const [, name] = /query (\w+)/.exec(inbox);
  const generateHash = async (text) => (text.includes(name) ? inboxId : "00");
  const persisted = persistedExchange({ preferGetForPersistedQueries: false, generateHash });
  const client = new Client({ url, fetch: noted, exchanges: [persisted, fetchExchange], fetchOptions: { headers } });
  const { data, error } = await client.query(inbox, {}).toPromise();
  assert.ok(data?.inbox, String(error));
  assert.deepEqual(sent, [false]);
  const refused = await client.query(stranger, {}).toPromise();
  assert.equal(refused.error.graphQLErrors[0].extensions.code, "FORBIDDEN");
  // By its hash, then as a text.
  assert.deepEqual(sent, [false, false, true]);
}

await Promise.all([overHttp(), overStreams(), withApollo(), withUrql()]);
process.exit(0);

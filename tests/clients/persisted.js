// Persisted queries of urql and Apollo Client, with the packages that make them: `node persisted.js URL TOKEN`. The server has no list of documents.

import assert from "node:assert/strict";

import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries";
import { Client, fetchExchange } from "@urql/core";
import { persistedExchange } from "@urql/exchange-persisted";

const [url, token] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}` };

/** `fetch` that notes for each request whether it holds the document. */
const noting = () => {
  const sent = [];
  const noted = (input, init) => {
    sent.push(init.method === "GET" ? new URL(input).searchParams.has("query") : "query" in JSON.parse(init.body));
    return fetch(input, init);
  };
  return { sent, fetch: noted };
};

/** The first query is tried by its hash, then sent whole. From then on the client sends documents at once. */
async function isServed(name, connect) {
  const { sent, fetch } = noting();
  const ask = connect(fetch);
  for (const field of ["username", "id"]) {
    assert.ok((await ask(`query { viewer { ${field} } }`)).viewer[field], name);
  }
  assert.deepEqual(sent, [false, true, true], name);
}

const sha256Hash = async (text) => Buffer.from(await crypto.subtle.digest("SHA-256", Buffer.from(text))).toString("hex");

await isServed("urql", (fetch) => {
  const client = new Client({ url, fetch, exchanges: [persistedExchange({ preferGetForPersistedQueries: true }), fetchExchange], fetchOptions: { headers } });
  return async (query) => {
    const { data, error } = await client.query(query, {}).toPromise();
    assert.equal(error, undefined, `urql: ${error}`);
    return data;
  };
});
await isServed("Apollo", (fetch) => {
  const persisted = new PersistedQueryLink({ generateHash: (document) => sha256Hash(document.loc.source.body) });
  const link = ApolloLink.from([persisted, new HttpLink({ uri: url, headers, fetch })]);
  const client = new ApolloClient({ cache: new InMemoryCache(), link });
  return async (query) => (await client.query({ query: gql(query), fetchPolicy: "no-cache" })).data;
});
process.exit(0);

// The usual clients against a running server: `node clients.js URL SECRET LONG_TOKEN`. Each subscription outlives its first token, which is
// signed here by the secret of the server, when it is asked for: a busy machine may need long until then.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";

import { ApolloClient, ApolloLink, CombinedProtocolErrors, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { setContext } from "@apollo/client/link/context";
import { RetryLink } from "@apollo/client/link/retry";
import { createClient } from "graphql-sse";

const [url, secret, longToken] = process.argv.slice(2);
const SECONDS = 6;

const shortToken = () => {
  const now = Math.floor(Date.now() / 1000);
  const parts = [{ alg: "HS256", typ: "JWT" }, { sub: "alice", iat: now, exp: now + SECONDS }];
  const signed = parts.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
};

/** The short token at first, then the long one. */
const tokens = () => {
  let asked = 0;
  return () => ({ authorization: `Bearer ${asked++ === 0 ? shortToken() : longToken}` });
};

/** Takes so many results of an async iterable. */
const take = async (count, results) => {
  const taken = [];
  for await (const result of results) {
    taken.push(result);
    if (taken.length === count) break;
  }
  return taken;
};

const sse = (options) => createClient({ url, retry: async () => {}, ...options });

async function graphqlSse() {
  const client = sse();
  const all = (query) => take(Infinity, client.iterate({ query }));
  assert.deepEqual(await all("subscription { count(to: 3) }"), [0, 1, 2].map((count) => ({ data: { count } })));
  assert.deepEqual(await all("{ number(n: 7) }"), [{ data: { number: 7 } }]);
  assert.deepEqual(await all('mutation { say(text: "ä") }'), [{ data: { say: "ä" } }]);
  for (const [query, code] of [["subscription {", "BAD_USER_INPUT"], ["{ nothing }", "BAD_USER_INPUT"], ["subscription { refused }", "NOT_FOUND"]]) {
    const [{ errors }] = await all(query);
    assert.equal(errors[0].extensions.code, code, query);
  }
  await assert.rejects(take(1, sse({ headers: { authorization: "Bearer x" }, retryAttempts: 0 }).iterate({ query: "{ me }" })), /401/);
}

async function graphqlSseComesBack() {
  const connects = [];
  const client = sse({ headers: tokens(), on: { connecting: (isAgain) => connects.push(isAgain) } });
  assert.deepEqual(await take(2, client.iterate({ query: "subscription { forever }" })), [{ data: { forever: 0 } }, { data: { forever: 0 } }]);
  assert.deepEqual(connects, [false, true]);
}

const apollo = (...links) => new ApolloClient({ cache: new InMemoryCache(), link: ApolloLink.from([...links, new HttpLink({ uri: url })]) });

/** Payloads of an Apollo subscription, until it completes or `count` have arrived. */
const listen = (client, query, count = Infinity) =>
  new Promise((resolve, reject) => {
    const results = [];
    const subscription = client.subscribe({ query: gql(query), fetchPolicy: "no-cache" }).subscribe({
      next: (result) => {
        results.push(result);
        if (results.length === count) {
          subscription.unsubscribe();
          resolve(results);
        }
      },
      error: reject,
      complete: () => resolve(results),
    });
  });

async function apolloParts() {
  const client = apollo();
  const counted = await listen(client, "subscription { count(to: 3) }");
  assert.deepEqual(counted.map(({ data }) => data.count), [0, 1, 2]);
  // Told at once: nothing comes after it.
  assert.equal((await listen(client, "subscription { forever }", 1))[0].data.forever, 0);
  assert.equal((await client.query({ query: gql("{ number(n: 7) }") })).data.number, 7);
  for (const [query, code] of [["subscription { nothing }", "BAD_USER_INPUT"], ["subscription { refused }", "NOT_FOUND"]]) {
    const [{ error }] = await listen(client, query);
    assert.equal(error.errors[0].extensions.code, code, query);
  }
}

async function apolloComesBack() {
  const headers = tokens();
  const authorize = () => setContext(() => ({ headers: headers() }));
  const retry = new RetryLink({ delay: { initial: 1, jitter: false } });
  const results = await listen(apollo(retry, authorize()), "subscription { forever }", 2);
  assert.deepEqual(results.map(({ data }) => data.forever), [0, 0]);
}

async function apolloWithoutRetriesIsToldWhy() {
  const authorize = setContext(() => ({ headers: { authorization: `Bearer ${shortToken()}` } }));
  const [first, last] = await listen(apollo(authorize), "subscription { forever }", 2);
  assert.equal(first.data.forever, 0);
  assert.ok(CombinedProtocolErrors.is(last.error), String(last.error));
  assert.equal(last.error.errors[0].extensions.code, "UNAUTHENTICATED");
}

// Together: each waits for the end of a token.
await Promise.all([graphqlSse(), graphqlSseComesBack(), apolloParts(), apolloComesBack(), apolloWithoutRetriesIsToldWhy()]);
process.exit(0);

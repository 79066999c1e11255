// A server behind a proxy: `node proxied.js URL ALICE BOB`. With `express` as a fourth argument behind the middleware of dev servers, which
// compresses whatever it may.

import assert from "node:assert/strict";

import compression from "compression";
import express from "express";
import { createClient as createSse } from "graphql-sse";
import { createClient as createSockets } from "graphql-ws";
import { createProxyMiddleware } from "http-proxy-middleware";
import WebSocket from "ws";

import { ask, say, startConversation, until } from "./support.js";

const [target, alice, bob, middleware] = process.argv.slice(2);
const headers = { authorization: `Bearer ${alice}` };
const ADDED = "subscription($id: ID!) { messageAdded(conversationId: $id) { messageEdge { node { body } } } }";

/** As webpack's dev server stands in front. */
const devServer = async () => {
  const app = express();
  app.use(compression({ threshold: 0 }));
  app.use(createProxyMiddleware({ target: new URL(target).origin, ws: true, pathFilter: "/graphql" }));
  const server = await new Promise((resolve) => {
    const listening = app.listen(0, "127.0.0.1", () => resolve(listening));
  });
  return `http://127.0.0.1:${server.address().port}/graphql`;
};

const url = middleware === "express" ? await devServer() : target;
const id = await startConversation(url, alice, bob, 1);

/** An event arrives while nothing comes after it. */
async function isTold(name, client) {
  const told = [];
  const stop = client.subscribe({ query: ADDED, variables: { id } }, { next: (result) => told.push(result), error: assert.fail, complete: () => {} });
  // A subscription without a cursor begins at some time; from then on it misses nothing.
  await until(`${name} is told`, () => {
    void say(url, bob, id, name);
    return told.some(({ data }) => data.messageAdded.messageEdge.node.body === name);
  });
  stop();
}

// Both accept gzip, as browsers do.
await isTold("events", createSse({ url, headers: { ...headers, "accept-encoding": "gzip, deflate, br" }, retryAttempts: 0 }));
for (const path of ["", "/ws"]) {
  const sockets = createSockets({ url: url.replace("http", "ws") + path, webSocketImpl: WebSocket, connectionParams: { headers }, retryAttempts: 0 });
  await isTold(`sockets ${path}`, sockets);
}
// More requests than the pool has connections.
const names = await Promise.all(Array.from({ length: 60 }, () => ask(url, alice, "{ viewer { username } }")));
assert.ok(names.every(({ viewer }) => viewer.username === "alice"));
process.exit(0);

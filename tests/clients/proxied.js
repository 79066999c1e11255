// A server behind a proxy: `node proxied.js URL ALICE BOB`. With a fourth argument behind a dev server: `vite` or `webpack`, each by the lines
// of dev/, or `express`, whose middleware compresses whatever it may. A fifth argument holds streams and sockets open in quiet for so many
// milliseconds.

import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";

import compression from "compression";
import express from "express";
import { createClient as createSse } from "graphql-sse";
import { createClient as createSockets } from "graphql-ws";
import { createProxyMiddleware } from "http-proxy-middleware";
import WebSocket from "ws";

import { ask, say, startConversation, until } from "./support.js";

const [target, alice, bob, front, quiet] = process.argv.slice(2);
const headers = { authorization: `Bearer ${alice}` };
const ADDED = "subscription($id: ID!) { messageAdded(conversationId: $id) { messageEdge { node { body } } } }";

// The configurations of dev servers read it.
process.env.WIDEROOM = new URL(target).origin;
const root = new URL("dev", import.meta.url).pathname;

/** Starts a dev server in front. Returns its HTTP server. */
const devServers = {
  async express() {
    const app = express();
    app.use(compression({ threshold: 0 }));
    app.use(createProxyMiddleware({ target: process.env.WIDEROOM, ws: true, pathFilter: "/graphql" }));
    return new Promise((resolve) => {
      const listening = app.listen(0, "127.0.0.1", () => resolve(listening));
    });
  },
  async vite() {
    const { createServer } = await import("vite");
    const server = await createServer({ root, configFile: `${root}/vite.config.js`, logLevel: "error", server: { host: "127.0.0.1" } });
    await server.listen();
    return server.httpServer;
  },
  async webpack() {
    const [{ default: webpack }, { default: DevServer }, { default: config }] = await Promise.all([
      import("webpack"),
      import("webpack-dev-server"),
      import("./dev/webpack.config.js"),
    ]);
    const quiet = { stats: "none", infrastructureLogging: { level: "none" } };
    const compiler = webpack({ mode: "development", context: root, entry: "./webpack.config.js", ...quiet });
    const server = new DevServer({ ...config.devServer, host: "127.0.0.1", port: 0 }, compiler);
    await server.start();
    return server.server;
  },
};

const url = !front ? target : `http://127.0.0.1:${(await devServers[front]()).address().port}/graphql`;
const id = await startConversation(url, alice, bob, 1);

/** An event arrives on the same connection after a quiet time. */
async function isHeld(name, client) {
  const told = [];
  client.subscribe({ query: ADDED, variables: { id } }, { next: (result) => told.push(result), error: assert.fail, complete: () => assert.fail(`${name} ended`) });
  await setTimeout(Number(quiet));
  const before = told.length;
  await say(url, bob, id, `${name} after the quiet`);
  const isIt = ({ data }) => data.messageAdded.messageEdge.node.body === `${name} after the quiet`;
  await until(`${name} outlives the quiet`, () => told.slice(before).some(isIt));
}

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

/** As browsers do, and webpack's dev server wants it. */
class BrowserSocket extends WebSocket {
  constructor(address, protocols) {
    super(address, protocols, { origin: new URL(url).origin });
  }
}

const events = () => createSse({ url, headers: { ...headers, "accept-encoding": "gzip, deflate, br" }, retryAttempts: 0 });
const sockets = (path) =>
  createSockets({ url: url.replace("http", "ws") + path, webSocketImpl: BrowserSocket, connectionParams: { headers }, retryAttempts: 0 });
if (quiet !== undefined) {
  await Promise.all([isHeld("events", events()), isHeld("sockets", sockets("/ws"))]);
  process.exit(0);
}
// Both accept gzip, as browsers do.
await isTold("events", events());
for (const path of ["", "/ws"]) {
  await isTold(`sockets ${path}`, sockets(path));
}
// More requests than the pool has connections.
const names = await Promise.all(Array.from({ length: 60 }, () => ask(url, alice, "{ viewer { username } }")));
assert.ok(names.every(({ viewer }) => viewer.username === "alice"));
process.exit(0);

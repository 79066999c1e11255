// Helpers of the client tests: plain requests, a conversation with a history, and sockets that can be cut.

import assert from "node:assert/strict";
import net from "node:net";
import { setTimeout as wait } from "node:timers/promises";

import { createClient } from "graphql-ws";
import WebSocket from "ws";

import { resuming } from "./resume.js";

/** The data of a plain request. */
export const ask = async (url, token, query, variables) => {
  const response = await fetch(url, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ query, variables }),
  });
  const { data, errors } = await response.json();
  assert.equal(errors, undefined, JSON.stringify(errors));
  return data;
};

const SEND = "mutation($input: SendMessageInput!) { sendMessage(input: $input) { messageEdge { cursor node { id body } } } }";

export const say = async (url, token, conversationId, body) => (await ask(url, token, SEND, { input: { conversationId, body } })).sendMessage;

/** A group of alice and bob with so many messages of bob's: "1", "2" … */
export const startConversation = async (url, alice, bob, count) => {
  const make = 'mutation { createGroupConversation(input: { name: "Clients", usernames: ["bob"] }) { conversation { id } } }';
  const { conversation } = (await ask(url, alice, make)).createGroupConversation;
  for (let number = 1; number <= count; number += 1) await say(url, bob, conversation.id, String(number));
  return conversation.id;
};

/** Waits until it holds, with a deadline. */
export const until = async (what, holds) => {
  const deadline = Date.now() + 60_000;
  while (!holds()) {
    assert.ok(Date.now() < deadline, `in time: ${what}`);
    await wait(10);
  }
};

const closed = (socket) => socket.readyState === WebSocket.CLOSED || new Promise((resolve) => socket.once("close", resolve));

/** A client of `graphql-ws` whose socket can be cut, and that notes the variables of each `subscribe` it sends. */
export const cuttable = (url, token) => {
  const noted = { sockets: [], subscribed: [] };
  let gone = Promise.resolve();
  class Noted extends WebSocket {
    constructor(...args) {
      super(...args);
      noted.sockets.push(this);
    }
    send(text, ...args) {
      const message = JSON.parse(text);
      if (message.type === "subscribe") noted.subscribed.push(message.payload.variables);
      super.send(text, ...args);
    }
  }
  const client = createClient({
    url: `${url.replace("http", "ws")}/ws`,
    connectionParams: () => ({ Authorization: `Bearer ${token()}` }),
    retryAttempts: Infinity,
    shouldRetry: () => true,
    // The close of a socket that `graphql-ws` has given up counts as one of the next socket, if it comes that late.
    retryWait: () => Promise.all([gone, ...noted.sockets.map(closed)]).then(() => wait(50)),
    webSocketImpl: Noted,
  });
  /** It comes back once all this is done. */
  const cut = (meanwhile = async () => {}) => {
    noted.sockets.at(-1).terminate();
    gone = meanwhile();
    return gone;
  };
  return { ...noted, client: resuming(client), plain: client, cut };
};

/** A proxy before the server, whose connections can be cut. */
export const proxy = async (url) => {
  const { hostname, port } = new URL(url);
  const open = new Set();
  const server = net.createServer((near) => {
    const far = net.connect(port, hostname);
    for (const [socket, other] of [[near, far], [far, near]]) {
      open.add(socket);
      socket.on("error", () => {}).on("close", () => {
        other.destroy();
        open.delete(socket);
      });
      socket.pipe(other);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/graphql`, cut: () => open.forEach((socket) => socket.destroy()) };
};

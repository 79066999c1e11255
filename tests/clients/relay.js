// Relay. The documents are those of relay/chat.js, compiled by relay-compiler.

import relay from "relay-runtime";

import chatMessageAddedSubscription from "./generated/relay/chatMessageAddedSubscription.graphql.js";
import chatSendMutation from "./generated/relay/chatSendMutation.graphql.js";

const { ConnectionHandler, Environment, Network, Observable, RecordSource, Store, commitMutation, requestSubscription } = relay;

export const connect = (url, token, sockets) => {
  const ask = async ({ name, text }, variables) => {
    const response = await fetch(url, {
      method: "POST",
      headers: { accept: "application/graphql-response+json", authorization: `Bearer ${token()}`, "content-type": "application/json" },
      body: JSON.stringify({ operationName: name, query: text, variables }),
    });
    return response.json();
  };
  const listen = ({ name, text }, variables) =>
    Observable.create((sink) => sockets.subscribe({ operationName: name, query: text, variables }, sink));
  return new Environment({ network: Network.create(ask, listen), store: new Store(new RecordSource()) });
};

/** Sorts a message that is on its way after all others. */
const NEWEST = "~";

const lists = (conversationId) => [ConnectionHandler.getConnectionID(conversationId, "chat__messages")];

/** Edges in the order of the server: the answer to a send may overtake an event. One on its way gives way to the one that is stored. */
const inOrder = (conversationId) => (store) => {
  for (const list of lists(conversationId).map((id) => store.get(id))) {
    const of = (edge, field) => edge.getLinkedRecord("node").getValue(field);
    const edges = list?.getLinkedRecords("edges") ?? [];
    const stored = new Set(edges.filter((edge) => of(edge, "orderKey") !== NEWEST).map((edge) => of(edge, "clientKey")));
    const shown = edges.filter((edge) => of(edge, "orderKey") !== NEWEST || !stored.has(of(edge, "clientKey")));
    list?.setLinkedRecords(shown.sort((a, b) => (of(a, "orderKey") < of(b, "orderKey") ? 1 : -1)), "edges");
  }
};

/** Shown at once. A retry carries the same key, and so makes no second message: `unsent.js` keeps the message for it. */
export const send = (environment, { conversationId, body, sender, key = crypto.randomUUID() }) =>
  new Promise((resolve, reject) => {
    const node = { id: key, orderKey: NEWEST, body, clientKey: key, createdAt: new Date().toISOString(), sender };
    commitMutation(environment, {
      mutation: chatSendMutation,
      variables: { input: { conversationId, body, idempotencyKey: key }, connections: lists(conversationId) },
      optimisticResponse: { sendMessage: { messageEdge: { cursor: key, node } } },
      optimisticUpdater: inOrder(conversationId),
      updater: inOrder(conversationId),
      onCompleted: (data, errors) => (errors ? reject(errors[0]) : resolve(data)),
      onError: reject,
    });
  });

/** From `after` on: the `eventsCursor` that was read before the messages were. */
export const listen = (environment, { conversationId, after }) =>
  requestSubscription(environment, {
    subscription: chatMessageAddedSubscription,
    variables: { id: conversationId, after, connections: lists(conversationId) },
    updater: inOrder(conversationId),
  });

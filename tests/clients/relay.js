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

const lists = (conversationId) => [ConnectionHandler.getConnectionID(conversationId, "chat__messages")];

/** Shown at once. A retry carries the same key, and so makes no second message: `unsent.js` keeps the message for it. */
export const send = (environment, { conversationId, body, sender, key = crypto.randomUUID() }) =>
  new Promise((resolve, reject) => {
    const node = { id: key, body, clientKey: key, createdAt: new Date().toISOString(), sender };
    commitMutation(environment, {
      mutation: chatSendMutation,
      variables: { input: { conversationId, body, idempotencyKey: key }, connections: lists(conversationId) },
      optimisticResponse: { sendMessage: { messageEdge: { cursor: key, node } } },
      onCompleted: (data, errors) => (errors ? reject(errors[0]) : resolve(data)),
      onError: reject,
    });
  });

/** From `after` on: the `eventsCursor` that was read before the messages were. */
export const listen = (environment, { conversationId, after }) =>
  requestSubscription(environment, {
    subscription: chatMessageAddedSubscription,
    variables: { id: conversationId, after, connections: lists(conversationId) },
  });

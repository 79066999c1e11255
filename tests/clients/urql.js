// urql with its normalised cache.

import { Client, fetchExchange, gql, subscriptionExchange } from "@urql/core";
import { cacheExchange } from "@urql/exchange-graphcache";
import { relayPagination } from "@urql/exchange-graphcache/extras";

/** Sorts a message that is on its way after all others. */
const NEWEST = "~";
const MESSAGE = gql`fragment Message on Message { id orderKey body clientKey createdAt sender { id username } }`;

/** Older messages: the same query with `after: pageInfo.endCursor`. The cache answers with all of them. */
export const MESSAGES = gql`
  query Messages($id: ID!, $first: Int, $after: String, $last: Int, $before: String) {
    conversation(id: $id) {
      id
      eventsCursor
      messages(first: $first, after: $after, last: $last, before: $before) {
        edges { cursor node { ...Message } }
        pageInfo { startCursor endCursor hasNextPage hasPreviousPage }
      }
    }
  }
  ${MESSAGE}
`;

const SEND = gql`
  mutation Send($input: SendMessageInput!) { sendMessage(input: $input) { messageEdge { cursor node { ...Message } } } }
  ${MESSAGE}
`;

const ADDED = gql`
  subscription Added($id: ID!, $after: String) {
    messageAdded(conversationId: $id, after: $after) { messageEdge { cursor node { ...Message } } }
  }
  ${MESSAGE}
`;

/** Puts a message into its lists, in the order of the server, once: the answer to a send and the subscription tell of the same one. */
const add = (cache, conversationId, edge) => {
  const conversation = { __typename: "Conversation", id: conversationId };
  for (const { fieldName, fieldKey, arguments: page } of cache.inspectFields(conversation)) {
    if (fieldName !== "messages" || page?.after || page?.before || page?.last) continue;
    const list = cache.resolve(conversation, fieldKey);
    const edges = cache.resolve(list, "edges");
    const of = (other, field) => (other === edge ? edge.node[field] : cache.resolve(cache.resolve(other, "node"), field));
    const { id, clientKey } = edge.node;
    const twin = edges.find((other) => of(other, "id") === id || (clientKey && of(other, "clientKey") === clientKey));
    // One on its way has its key as id, and gives way to the one that is stored.
    if (twin && of(twin, "id") !== clientKey) continue;
    const others = edges.filter((other) => other !== twin);
    cache.link(list, "edges", [edge, ...others].sort((a, b) => (of(a, "orderKey") < of(b, "orderKey") ? 1 : -1)));
  }
};

export const connect = (url, token, sockets, sender) => {
  const cache = cacheExchange({
    keys: { MessageEdge: (edge) => edge.cursor },
    resolvers: { Query: { inbox: relayPagination() }, Conversation: { messages: relayPagination(), participants: relayPagination() } },
    optimistic: {
      sendMessage({ input: { body, idempotencyKey: key } }) {
        const node = { __typename: "Message", id: key, orderKey: NEWEST, body, clientKey: key, createdAt: new Date().toISOString(), sender };
        return { __typename: "SendMessagePayload", messageEdge: { __typename: "MessageEdge", cursor: key, node } };
      },
    },
    updates: {
      Mutation: { sendMessage: ({ sendMessage }, { input }, cache) => sendMessage && add(cache, input.conversationId, sendMessage.messageEdge) },
      Subscription: { messageAdded: ({ messageAdded }, { conversationId }, cache) => add(cache, conversationId, messageAdded.messageEdge) },
    },
  });
  const forwardSubscription = (request) => ({ subscribe: (sink) => ({ unsubscribe: sockets.subscribe(request, sink) }) });
  return new Client({
    url,
    exchanges: [cache, fetchExchange, subscriptionExchange({ forwardSubscription })],
    fetchOptions: () => ({ headers: { authorization: `Bearer ${token()}` } }),
  });
};

/** Shown at once. A retry carries the same key, and so makes no second message: `unsent.js` keeps the message for it. */
export const send = async (client, { conversationId, body, key = crypto.randomUUID() }) => {
  const { data, error } = await client.mutation(SEND, { input: { conversationId, body, idempotencyKey: key } }).toPromise();
  if (error) throw error;
  return data;
};

/** From `after` on: the `eventsCursor` that was read before the messages were. */
export const listen = (client, { conversationId, after }) => client.subscription(ADDED, { id: conversationId, after }).subscribe(() => {});

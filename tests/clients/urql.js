// urql with its normalised cache.

import { Client, fetchExchange, gql, subscriptionExchange } from "@urql/core";
import { cacheExchange } from "@urql/exchange-graphcache";
import { relayPagination } from "@urql/exchange-graphcache/extras";

const MESSAGE = gql`fragment Message on Message { id body clientKey createdAt sender { id username } }`;

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

/** Puts a message at the top of its lists, once: the answer to a send and the subscription tell of the same one. */
const add = (cache, conversationId, edge) => {
  const conversation = { __typename: "Conversation", id: conversationId };
  for (const { fieldName, fieldKey, arguments: page } of cache.inspectFields(conversation)) {
    if (fieldName !== "messages" || page?.after || page?.before || page?.last) continue;
    const list = cache.resolve(conversation, fieldKey);
    const edges = cache.resolve(list, "edges");
    const isThere = edges.some((other) => cache.resolve(cache.resolve(other, "node"), "id") === edge.node.id);
    if (!isThere) cache.link(list, "edges", [edge, ...edges]);
  }
};

export const connect = (url, token, sockets, sender) => {
  const cache = cacheExchange({
    keys: { MessageEdge: (edge) => edge.cursor },
    resolvers: { Query: { inbox: relayPagination() }, Conversation: { messages: relayPagination(), participants: relayPagination() } },
    optimistic: {
      sendMessage({ input: { body, idempotencyKey: key } }) {
        const node = { __typename: "Message", id: key, body, clientKey: key, createdAt: new Date().toISOString(), sender };
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

/** Shown at once. Who sends again after an error gives the same key again, and so makes no second message. */
export const send = (client, { conversationId, body, key = crypto.randomUUID() }) =>
  client.mutation(SEND, { input: { conversationId, body, idempotencyKey: key } }).toPromise();

/** From `after` on: the `eventsCursor` that was read before the messages were. */
export const listen = (client, { conversationId, after }) => client.subscription(ADDED, { id: conversationId, after }).subscribe(() => {});
